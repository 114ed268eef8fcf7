"""The form of a barrier follows from the thread range that it joins: block, warp, named barrier, mbarrier, counter of the grid."""

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.kir import walk
from taskfuse.kir.synchronization import BarrierScope, Wait
from tests.lowering.faults import missed
from tests.lowering.running import agrees, barriers, bind, body, numbers, scopes, turned

BLOCK, WARP, NAMED, GRID = BarrierScope.BLOCK, BarrierScope.WARP, BarrierScope.NAMED, BarrierScope.GRID


def test_the_slice_of_a_row_is_a_warp_or_a_named_barrier_or_the_block() -> None:
    assert scopes(agrees(turned(3, 32, (P.TIDy, P.TIDx)), numbers(3, 32))) == [WARP]
    kernel = agrees(turned(3, 64, (P.TIDy, P.TIDx)), numbers(3, 64))
    assert scopes(kernel) == [NAMED]
    assert [(str(b.id), str(b.threads)) for b in barriers(kernel)] == [("threadIdx.y + 1", "64")]
    assert scopes(agrees(turned(3, 16, (P.TIDy, P.TIDx)), numbers(3, 16))) == [BLOCK]
    assert scopes(agrees(turned(3, 32, (P.TIDy, P.TIDx), flips=(0,)), numbers(3, 32))) == [BLOCK]


@pytest.mark.parametrize("columns", [32, 64])
def test_slices_are_needed(columns: int) -> None:
    fusion = turned(2, columns, (P.TIDy, P.TIDx))
    assert missed(tf.lower(fusion), fusion, numbers(2, columns)) == []


def member(columns: int, rows: int = 2) -> tf.Fusion:
    """Two members of a horizontal group on TIDy; one turns rows around within itself."""
    with tf.Fusion("member") as fusion:
        x, y = tf.define_tensor([rows, columns], name="x"), tf.define_tensor([rows, columns], name="y")
        a = tf.neg(x)
        b = tf.add(tf.flip(a, (0, 1)), 1.0)
        c = tf.neg(y)
        fusion.add_output(b)
        fusion.add_output(c)
    for tv in (a, b, c):
        bind(tv, P.TIDy, P.TIDx)
    fusion.group([fusion.task([c], "tc"), fusion.task([a, b], "ta")], "g").parallelize(P.TIDy)
    return fusion


def test_the_barrier_of_a_member_is_its_own() -> None:
    fusion = member(32)
    kernel = agrees(fusion, numbers(2, 32), numbers(2, 32))
    assert [(b.scope, str(b.id), str(b.threads)) for b in barriers(kernel)] == [(NAMED, "1", "64")]
    assert missed(kernel, fusion, numbers(2, 32), numbers(2, 32)) == []


def test_an_mbarrier_stands_in_where_a_thread_range_is_not_made_of_warps() -> None:
    fusion = member(5)
    kernel = agrees(fusion, numbers(2, 5), numbers(2, 5))
    assert scopes(kernel) == []
    assert "INIT sync0[0] count 10" in str(kernel)
    text = body(kernel)
    assert text.index("# ta") < text.index("ARRIVE sync0[0]") < text.index("WAIT sync0[0] parity sync0.c.parity") < text.index("sync0.c.advance(1)")
    assert missed(kernel, fusion, numbers(2, 5), numbers(2, 5)) == []


def test_a_stand_in_in_a_loop_goes_through_its_phases() -> None:
    with tf.Fusion("phases") as fusion:
        x, y = tf.define_tensor([5, 6], name="x"), tf.define_tensor([6], name="y")
        a = tf.neg(x)
        b = tf.add(tf.flip(a, 1), 1.0)
        c = tf.neg(y)
        fusion.add_output(b)
        fusion.add_output(c)
    bind(a, P.Serial, P.TIDx)
    bind(b, P.Serial, P.TIDx)
    bind(c, P.TIDx)
    a.inline_at(1)
    fusion.group([fusion.task([c], "tc"), fusion.task([a, b], "ta")], "g").parallelize(P.TIDy)
    kernel = agrees(fusion, numbers(5, 6), numbers(6))
    assert sum(isinstance(s, Wait) for s in walk(kernel)) == 2
    assert missed(kernel, fusion, numbers(5, 6), numbers(6)) == []


def test_a_whole_warp_is_a_warp_barrier() -> None:
    with tf.Fusion("warps") as fusion:
        x, y = tf.define_tensor([32], name="x"), tf.define_tensor([32], name="y")
        a, b = tf.neg(x), tf.neg(y)
        c = tf.add(tf.flip(a, 0), 1.0)
        fusion.add_output(c)
        fusion.add_output(b)
    for tv in (a, b, c):
        bind(tv, P.TIDx)
    fusion.group([fusion.task([b], "tb"), fusion.task([a, c], "ta")]).parallelize(P.TIDy)
    assert scopes(agrees(fusion, numbers(32), numbers(32))) == [WARP]


def test_more_than_15_named_barriers_fall_back_to_mbarriers() -> None:
    with tf.Fusion("ids") as fusion:
        tasks: list[tf.Task] = []
        for k in range(16):
            x = tf.define_tensor([2, 32], name=f"x{k}")
            a = tf.neg(x)
            b = tf.add(tf.flip(a, (0, 1)), 1.0)
            fusion.add_output(b)
            bind(a, P.TIDy, P.TIDx)
            bind(b, P.TIDy, P.TIDx)
            tasks.append(fusion.task([a, b]))
    fusion.group(tasks).parallelize(P.TIDy)
    kernel = agrees(fusion, *(numbers(2, 32, seed=k) for k in range(16)), interleavings=(tf.Interleaving.LOW_FIRST, tf.Interleaving.RANDOM))
    assert [str(b.id) for b in barriers(kernel)] == [str(k) for k in range(1, 16)]
    assert [m.name for m in kernel.mbarriers] == ["sync0"]


def test_a_grid_barrier_of_a_member_counts_its_blocks() -> None:
    with tf.Fusion("grid") as fusion:
        x, y = tf.define_tensor([3, 8], name="x"), tf.define_tensor([2, 8], name="y")
        a, c = tf.neg(x), tf.neg(y)
        b = tf.add(tf.flip(a, 0), 1.0)
        fusion.add_output(b)
        fusion.add_output(c)
    for tv in (a, b, c):
        bind(tv, P.BIDx, P.TIDx)
    fusion.group([fusion.task([c], "tc"), fusion.task([a, b], "ta")]).parallelize(P.BIDx)
    kernel = agrees(fusion, numbers(3, 8), numbers(2, 8))
    assert [(b.scope, str(b.threads)) for b in barriers(kernel)] == [(GRID, "24")]
    assert str(kernel.grid[0]) == "5"
    assert missed(kernel, fusion, numbers(3, 8), numbers(2, 8)) == []
