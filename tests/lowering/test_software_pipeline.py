"""Software pipelining of a loop: the same results for any number of trips in any interleaving; which loops cannot be pipelined; planted faults.

``tests/schedulers/attentions.py`` has walks with pipelined products.
"""

from functools import cache

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.check import Verdict, verify
from taskfuse.ir.calls import TileOrder
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.kir.printer import to_text
from tests.lowering.pipelined import staged, walk
from tests.lowering.running import agree, agrees, numbers, refused
from tests.proofs import proved

LOOP = """\
  FOR i0 in 0..N + 1:
    IF i0 >= 1:
      FOR threadIdx.x in TIDx{32}:
        tv3[i0 - 1, threadIdx.x] = neg(tv2)
    IF i0 < N:
      WAIT ch0.full[ch0.c.slot] parity ch0.c.parity
      FOR threadIdx.x in TIDx{32}:
        tv2 = sin(tv1[ch0.c.slot, threadIdx.x])
      SYNC warp  # before one lane arrives for the warp
      IF threadIdx.x == 0:
        ARRIVE ch0.empty[ch0.c.slot]
      ch0.c.advance(1)
"""
SOME = (tf.Interleaving.RANDOM_FINE, tf.Interleaving.ASYNC_LATE, tf.Interleaving.ASYNC_EARLY)


@cache
def texts() -> dict[str, str]:
    """Pipelined kernels: a small one with its claims, and products in turn without."""
    return {"staged": to_text(tf.lower(staged()), witness=True), "walk": str(tf.lower(walk()))}


def edited(name: str, old: str, new: str) -> Kernel:
    text = texts()[name]
    assert old in text
    return parse_kernel(text.replace(old, new))


def test_loop() -> None:
    kernel = proved(tf.lower(staged()))
    assert str(kernel).endswith(LOOP.rstrip())
    for rows in (0, 1, 2, 5):
        agree(kernel, staged(), numbers(rows, 32), interleavings=SOME)


def test_one_trip_has_nothing_to_overlap() -> None:
    assert "i0 >= 1" not in str(agrees(staged(rows=1), numbers(1, 32), interleavings=SOME))


def test_ring_of_the_later_stage() -> None:
    """Its slots are released one trip after others of the same loop, so it needs two of them."""

    def of(stages: int) -> tf.Fusion:
        with tf.Fusion("two_rings") as f:
            x, z = (tf.define_tensor([tf.dim("N", min=0), 32], name=name) for name in "xz")
            a, c = tf.exp(x), tf.cos(z)
            b = tf.sin(a)
            y = tf.add(b, c)
            f.add_output(y)
        for tv in (a, b, c, y):
            tv.axis(1).parallelize(P.TIDx)
        for tv in (b, c, a):
            tv.inline_at(1)
        a.circular_buffer(2)
        c.circular_buffer(stages)
        y.pipeline_stage(1)
        f.group([f.task([a], "load"), f.task([c], "load_too"), f.task([b, y], "use")]).parallelize(P.TIDy)
        return f

    kernel = proved(tf.lower(of(2)))
    for rows in (0, 1, 4):
        agree(kernel, of(2), numbers(rows, 32), numbers(rows, 32, seed=1), interleavings=SOME)
    assert "has 1 slot: it is released one trip late" in refused(lambda: tf.lower(of(1)))
    one = verify(parse_kernel(str(kernel).replace("slots 2, slot 0", "slots 1, slot 0").replace("[2]", "[1]").replace("float32[2, 32]", "float32[1, 32]")))
    assert one.verdict is not Verdict.PROVED


def chain(rows: int = 6) -> tuple[tf.Fusion, list[tf.TensorView]]:
    """Elementwise functions of rows, which share the loop over them, and two results."""
    with tf.Fusion("chain") as f:
        x = tf.define_tensor([rows, 32], name="x")
        a = tf.exp(x)
        b = tf.sin(a)
        y, z = tf.neg(b), tf.cos(a)
        f.add_output(y)
        f.add_output(z)
    for tv in (a, b, y, z):
        tv.axis(1).parallelize(P.TIDx)
    for tv in (b, a):
        tv.inline_at(1)
    return f, [a, b, y, z]


def test_stages_that_depend_on_each_other_otherwise_are_refused() -> None:
    f, (_, b, *_) = chain()
    b.pipeline_stage(1)
    assert "tv3 of stage 0 accesses tv2, which stage 1 writes" in refused(lambda: tf.lower(f))
    f, (_, _, y, z) = chain()
    for tv in (y, z):
        tv.pipeline_stage(1)
    agree(proved(tf.lower(f)), f, numbers(6, 32), interleavings=SOME)


@pytest.mark.parametrize("order", [tf.tiles.raster(), tf.tiles.grouped(3)])
def test_tiles_in_an_order(order: TileOrder) -> None:
    """The last stage is in the order of the loop, one trip behind, whatever the number of rows."""
    with tf.Fusion("ordered") as f:
        x = tf.define_tensor(["N", 16], name="x")
        a = tf.exp(x)
        y = tf.neg(a)
        f.add_output(y)
    for tv in (a, y):
        tv.split(1, 8).split(0, 4).reorder([0, 2, 1, 3]).rasterize([0, 1], order)
        tv.axis(1).parallelize(P.TIDy)
        tv.axis(2).parallelize(P.TIDx)
    a.inline_at(1)
    y.pipeline_stage(1)
    agree(proved(tf.lower(f)), f, numbers(21, 16), interleavings=SOME)


def test_code_without_a_loop_is_refused() -> None:
    f, (a, b, y, _) = chain()
    for tv in (b, a):
        tv.inline_at(0)
    y.pipeline_stage(1)
    assert "its code shares no loop with other code" in refused(lambda: tf.lower(f))


def test_steps_in_order_are_refused() -> None:
    with tf.Fusion("scanned") as f:
        x = tf.define_tensor([4, 6, 32], name="x")
        a = tf.exp(x)
        y = tf.cumsum(a, 1)
        f.add_output(y)
    for tv in (a, y):
        tv.axis(2).parallelize(P.TIDx)
    a.inline_at(1)
    y.pipeline_stage(1)
    assert "its steps are taken in order" in refused(lambda: tf.lower(f))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("IF i0 >= 1:", "IF i0 >= 2:"),  # a result is missing
        ("FOR i0 in 0..N + 1:", "FOR i0 in 0..N:"),  # the last one is
        ("= neg(tv2)", "= neg(tv1[ch0.c.slot, threadIdx.x])"),  # of the ring, without a wait
        ("tv3[i0 - 1, threadIdx.x]", "tv3[i0, threadIdx.x]"),  # that of the trip before
        ("IF i0 < N:", "IF i0 < N + 1:"),  # a fill that nobody makes
        ("IF i0 < N:", "IF i0 >= 1:"),  # a trip late
    ],
)
def test_planted(old: str, new: str) -> None:
    assert verify(edited("staged", old, new)).verdict is not Verdict.PROVED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("WAIT_GROUP wgmma <= 1", "WAIT_GROUP wgmma <= 2"),  # scores in flight are read, and their keys released
        ("wgmma <= 0\n        IF i10 >= 1:", "wgmma <= 1\n        IF i10 >= 1:"),  # registers of products in flight are written, their slots released
        ("COMMIT wgmma\n        SYNC warp", "SYNC warp"),  # products are in flight that no wait counts
        ("ARRIVE turn0[threadIdx.y % 2]", "ARRIVE turn0[threadIdx.y - 1]"),  # a turn goes to the one that had it
        ("xor(turn0.c.parity, threadIdx.y - 1 == 0)", "turn0.c.parity"),  # nobody begins
    ],
)
def test_planted_in_products(old: str, new: str) -> None:
    assert verify(edited("walk", old, new)).verdict is not Verdict.PROVED
