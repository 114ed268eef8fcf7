"""Turns of instances that share no ring: in any interleaving, with whole warps and without; what cannot take turns."""

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.kir import walk as statements
from taskfuse.kir.synchronization import Arrive, InitBarrier, Wait
from tests.lowering.pipelined import in_turn
from tests.lowering.running import agree, numbers, refused
from tests.proofs import proved

LOOP = """\
turn0.c = CURSOR(slots 1, slot 0, parity 0)
FOR i0 in 0..N:
  WAIT turn0[threadIdx.y] parity xor(turn0.c.parity, threadIdx.y == 0)
  FOR threadIdx.y in TIDy{2}:
    FOR threadIdx.x in TIDx{32}:
      tv1 = exp(x[i0, threadIdx.y, threadIdx.x])
  SYNC warp  # before one lane arrives for the warp
  IF threadIdx.x == 0:
    ARRIVE turn0[(threadIdx.y + 1) % 2]
  turn0.c.advance(1)
  FOR threadIdx.y in TIDy{2}:
    FOR threadIdx.x in TIDx{32}:
      tv2[i0, threadIdx.y, threadIdx.x] = neg(tv1)
"""


def test_loop() -> None:
    assert str(proved(tf.lower(in_turn()))).endswith(LOOP.rstrip())


@pytest.mark.parametrize(("count", "width", "arrivals"), [(2, 64, 2), (3, 16, 16)])
def test_results(count: int, width: int, arrivals: int) -> None:
    """Instances of whole warps have a lane of each arrive; those that share warps, all threads."""
    kernel = proved(tf.lower(in_turn(count, width)))
    counts = [str(s.count) for s in statements(kernel) if isinstance(s, InitBarrier)]
    assert counts == [str(arrivals)] * count
    for rows in (0, 1, 3):
        agree(kernel, in_turn(count, width), numbers(rows, count, width))


def test_tensors_of_a_loop_share_turns() -> None:
    fusion = in_turn()
    fusion.outputs[0].take_turns(P.TIDy)
    kernel = proved(tf.lower(fusion))
    assert [type(s) for s in statements(kernel) if isinstance(s, Wait | Arrive)] == [Wait, Arrive]
    assert str(kernel).index("ARRIVE") > str(kernel).index("neg(tv1)")


def test_loops_within_a_loop_share_its_turns() -> None:
    """A function of vectors is code of inner loops: the turn that a tensor of the loop around takes is passed behind them."""
    with tf.Fusion("nested") as fusion:
        x = tf.define_tensor([tf.dim("N", min=0), 2, 32, 4], name="x")
        a = tf.exp(x)
        b = tf.neg(a)
        fusion.add_output(tf.abs(tf.sin(b)))
    for tv in fusion.tensors():
        if not tv.is_input:
            tv.axis(1).parallelize(P.TIDy)
            tv.axis(2).parallelize(P.TIDx)
    sine = next(use.output for use in b.uses)
    fusion.inline_at([a, b], 1)
    sine.inline_at(4)
    for tv in (a, fusion.outputs[0]):
        tv.take_turns(P.TIDy)
    kernel = proved(tf.lower(fusion))
    assert [type(s) for s in statements(kernel) if isinstance(s, Wait | Arrive)] == [Wait, Arrive]
    assert str(kernel).index("WAIT turn0") < str(kernel).index("exp(") < str(kernel).index("abs(") < str(kernel).index("ARRIVE")


def test_refused() -> None:
    alone, several = in_turn(), in_turn()
    alone.tensor("tv1").inline_at(0)
    several.outputs[0].take_turns(P.TIDx)
    assert "its code shares no loop with other code" in refused(lambda: tf.lower(alone))
    assert "it takes turns with tv2 on other indices of TIDy" in refused(lambda: tf.lower(several))
    assert "where its task has 1 instances" in refused(lambda: tf.lower(in_turn(1)))


def test_barrier_within_a_turn() -> None:
    """Threads of one instance would wait for others, which wait for their turn."""
    with tf.Fusion("crossing") as f:
        x = tf.define_tensor([5, 2, 32], name="x")
        a = tf.exp(x)
        b = tf.neg(tf.flip(a, 1))
        y = tf.sin(b)
        f.add_output(y)
    for tv in (a, b, y):
        tv.axis(1).parallelize(P.TIDy)
        tv.axis(2).parallelize(P.TIDx)
    for tv in (b, a):
        tv.inline_at(1)
        tv.take_turns(P.TIDy)
    assert "a barrier of all instances lies within a turn" in refused(lambda: tf.lower(f))


@pytest.mark.parametrize("distributed", [False, True])
def test_a_turn_at_what_other_instances_need(distributed: bool) -> None:
    """Several positions of a ring that all instances use within one turn, or turns within that at a distributed channel: the next instance never comes."""
    with tf.Fusion("held") as f:
        x = tf.define_tensor([2 if distributed else "N", 2 if not distributed else 5, 4, 32], name="x")
        a = tf.exp(x)
        y = tf.neg(a)
        f.add_output(y)
    for tv in (a, y):
        tv.axis(3).parallelize(P.TIDx)
        if not distributed:
            tv.axis(1).parallelize(P.TIDy)
            tv.axis(2).parallelize(P.Unroll)
    a.inline_at(3)
    if distributed:
        y.axis(0).parallelize(P.TIDy)
    f.group([f.task([a]), f.task([y])]).parallelize(P.TIDz)
    proved(tf.lower(f))
    y.take_turns(P.TIDy)
    reason = "while it holds that of ch0.c, a channel" if distributed else "an inner loop waits in each trip for data that other instances need, too"
    assert reason in refused(lambda: tf.lower(f))
