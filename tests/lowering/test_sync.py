"""Barriers: present exactly where values cross, elided where the same thread makes both accesses."""

import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError
from taskfuse.ir.scalar import Expr, ceildiv, const, sym
from taskfuse.kir import walk
from taskfuse.kir.nodes import For
from taskfuse.kir.synchronization import Arrive, Barrier, BarrierScope, Wait
from taskfuse.lowering.plan import PLoop, PNode, PSync
from taskfuse.lowering.sync import check_trips
from tests.lowering.faults import missed
from tests.lowering.running import agrees, barriers, bind, body, numbers, scopes, turned

BLOCK, WARP, NAMED, GRID = BarrierScope.BLOCK, BarrierScope.WARP, BarrierScope.NAMED, BarrierScope.GRID


# -- straight code ------------------------------------------------------------------------------------------------------------------


def test_a_value_that_crosses_threads_needs_one_barrier() -> None:
    fusion = turned(3, 8, (P.TIDy, P.TIDx))
    kernel = agrees(fusion, numbers(3, 8))
    assert scopes(kernel) == [BLOCK]
    assert "SYNC block  # tv1 crosses TIDx in t0" in str(kernel)
    assert missed(kernel, fusion, numbers(3, 8)) == []


def test_a_value_that_stays_with_its_thread_needs_none() -> None:
    fusion = turned(3, 8, (P.Unroll, P.TIDx), flips=(0,))
    assert scopes(agrees(fusion, numbers(3, 8))) == []
    fusion.tensors()[1].set_memory_type(MemoryType.Shared)
    assert scopes(agrees(fusion, numbers(3, 8))) == []


def test_shared_memory_is_elided_by_comparing_index_expressions() -> None:
    def build(turn: bool) -> tf.Fusion:
        with tf.Fusion("elided") as fusion:
            x = tf.define_tensor([4, 8], name="x")
            a = tf.neg(x)
            b = tf.add(a, 1.0)
            fusion.add_output(b)
        a.set_memory_type(MemoryType.Shared)
        if turn:
            b.reorder([1, 0])
        bind(a, P.TIDy, P.TIDx)
        bind(b, P.TIDy, P.TIDx)
        return fusion

    assert scopes(agrees(build(False), numbers(4, 8))) == []
    fusion = build(True)
    kernel = agrees(fusion, numbers(4, 8))
    assert scopes(kernel) == [BLOCK]
    assert missed(kernel, fusion, numbers(4, 8)) == []


def test_digits_that_together_are_the_thread_are_elided() -> None:
    """Rule (iii) by an injective index map: [t // 8, t % 8] on both sides."""
    with tf.Fusion("digits") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    a.set_memory_type(MemoryType.Shared)
    bind(a, P.TIDx, P.TIDx)
    bind(b, P.TIDx, P.TIDx)
    assert scopes(agrees(fusion, numbers(4, 8))) == []


def test_one_barrier_serves_several_tensors() -> None:
    with tf.Fusion("several") as fusion:
        x, y = tf.define_tensor([8], name="x"), tf.define_tensor([8], name="y")
        a, b = tf.neg(x), tf.add(y, 1.0)
        c = tf.add(tf.flip(a, 0), tf.flip(b, 0))
        fusion.add_output(c)
    for tv in (a, b, c):
        bind(tv, P.TIDx)
    kernel = agrees(fusion, numbers(8), numbers(8, seed=1))
    assert scopes(kernel) == [BLOCK]
    assert missed(kernel, fusion, numbers(8), numbers(8, seed=1)) == []


def test_a_chain_needs_one_barrier_per_link() -> None:
    with tf.Fusion("chain") as fusion:
        x = tf.define_tensor([8], name="x")
        a = tf.neg(x)
        b = tf.add(tf.flip(a, 0), 1.0)
        c = tf.add(tf.flip(b, 0), tf.flip(a, 0))
        fusion.add_output(c)
    for tv in (a, b, c):
        bind(tv, P.TIDx)
    kernel = agrees(fusion, numbers(8))
    assert scopes(kernel) == [BLOCK, BLOCK]
    assert missed(kernel, fusion, numbers(8)) == []


def test_a_value_made_on_the_first_index_and_read_on_all_needs_a_barrier() -> None:
    with tf.Fusion("first") as fusion:
        x, y = tf.define_tensor([4], name="x"), tf.define_tensor([5, 4], name="y")
        a = tf.neg(x)
        b = tf.add(a, y)
        fusion.add_output(b)
    a.set_memory_type(MemoryType.Shared)
    bind(a, P.TIDx)
    bind(b, P.TIDy, P.TIDx)
    kernel = agrees(fusion, numbers(4), numbers(5, 4))
    assert "SYNC block  # tv2 crosses TIDy in t0" in str(kernel)
    assert missed(kernel, fusion, numbers(4), numbers(5, 4)) == []


# -- loops --------------------------------------------------------------------------------------------------------------------------


def looped(stages: int, trips: int = 4) -> tf.Fusion:
    """The reversal of rows of 8, a row per iteration of a loop."""
    fusion = turned(trips, 8, (P.Serial, P.TIDx))
    a = fusion.tensors()[1]
    a.inline_at(1)
    a.circular_buffer(stages)
    return fusion


def test_a_loop_needs_a_second_barrier_before_the_value_is_overwritten() -> None:
    fusion = looped(1)
    kernel = agrees(fusion, numbers(4, 8))
    (loop,) = [s for s in walk(kernel) if isinstance(s, For)]
    assert sum(isinstance(s, Barrier) for s in walk(loop.body)) == 2
    assert missed(kernel, fusion, numbers(4, 8)) == []


@pytest.mark.parametrize("stages", [2, 3])
def test_a_ring_of_two_slots_needs_no_second_barrier(stages: int) -> None:
    fusion = looped(stages)
    kernel = agrees(fusion, numbers(4, 8))
    assert scopes(kernel) == [BLOCK]
    assert missed(kernel, fusion, numbers(4, 8)) == []


@pytest.mark.parametrize("trips", [0, 1, 2])
def test_few_trips_of_a_ring(trips: int) -> None:
    agrees(looped(2, trips), numbers(trips, 8))


def test_a_ring_in_an_inner_loop_goes_on_over_the_outer_one() -> None:
    with tf.Fusion("inner") as fusion:
        x = tf.define_tensor([3, 3, 8], name="x")
        a = tf.neg(x)
        b = tf.add(tf.flip(a, 2), 1.0)
        fusion.add_output(b)
    for tv in (a, b):
        bind(tv, P.Serial, P.Serial, P.TIDx)
    a.inline_at(2)
    a.circular_buffer(2)
    kernel = agrees(fusion, numbers(3, 3, 8))
    assert scopes(kernel) == [BLOCK]
    assert missed(kernel, fusion, numbers(3, 3, 8)) == []


def test_a_reader_of_a_ring_that_needs_no_barrier_leaves_the_others() -> None:
    """Two readers, one of the own element, one across threads."""
    with tf.Fusion("readers") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        a = tf.neg(x)
        b, c = tf.add(a, 1.0), tf.add(tf.flip(a, 1), 2.0)
        fusion.add_output(b)
        fusion.add_output(c)
    for tv in (a, b, c):
        bind(tv, P.Serial, P.TIDx)
    a.inline_at(1)
    a.circular_buffer(2)
    kernel = agrees(fusion, numbers(4, 8))
    assert scopes(kernel) == [BLOCK]
    assert missed(kernel, fusion, numbers(4, 8)) == []


def test_reuse_of_bytes_is_ordered() -> None:
    """Two buffers on one place, one after the other: the second's writer waits for the first's readers."""
    with tf.Fusion("reuse") as fusion:
        x = tf.define_tensor([8], name="x")
        a = tf.neg(x)
        b = tf.add(tf.flip(a, 0), 1.0)
        c = tf.add(b, 1.0)
        d = tf.add(tf.flip(c, 0), 1.0)
        fusion.add_output(d)
    for tv in (a, b, c, d):
        bind(tv, P.TIDx)
    apart = agrees(fusion, numbers(8))
    assert scopes(apart) == [BLOCK, BLOCK]
    together = agrees(fusion, numbers(8), options=tf.LoweringOptions(shared_limit=32))
    assert len({str(b.offset) for b in together.buffers if b.memory is MemoryType.Shared}) == 1
    assert scopes(together) == [BLOCK, BLOCK, BLOCK]
    assert missed(together, fusion, numbers(8)) == []


# -- blocks -------------------------------------------------------------------------------------------------------------------------


def test_values_that_cross_blocks_need_a_grid_barrier() -> None:
    fusion = turned(3, 8, (P.BIDx, P.TIDx), flips=(0,))
    kernel = agrees(fusion, numbers(3, 8))
    assert [(b.scope, b.counter, str(b.threads)) for b in barriers(kernel)] == [(GRID, "grid0", "24")]
    assert [c.name for c in kernel.counters] == ["grid0"]
    assert missed(kernel, fusion, numbers(3, 8)) == []


def test_a_loop_over_a_global_buffer_needs_two_grid_barriers() -> None:
    fusion = turned(3, 4, (P.Serial, P.BIDx))
    fusion.tensors()[1].inline_at(1)
    kernel = agrees(fusion, numbers(3, 4))
    assert scopes(kernel) == [GRID, GRID]
    assert missed(kernel, fusion, numbers(3, 4)) == []


# -- groups -------------------------------------------------------------------------------------------------------------------------


def around(crossing: bool) -> tf.Fusion:
    """ta -> horizontal [tb, tc] on TIDz -> td, rows of 8."""
    with tf.Fusion("around") as fusion:
        x = tf.define_tensor([8], name="x")
        a = tf.neg(x)
        b, c = tf.add(tf.flip(a, 0) if crossing else a, 1.0), tf.add(a, 2.0)
        d = tf.add(b, c)
        fusion.add_output(d)
    for tv in (a, b, c, d):
        bind(tv, P.TIDx)
    fusion.task([a], "ta")
    fusion.group([fusion.task([b], "tb"), fusion.task([c], "tc")], "g").parallelize(P.TIDz)
    fusion.task([d], "td")
    return fusion


@pytest.mark.parametrize("crossing", [False, True])
def test_data_is_synchronized_before_and_after_a_horizontal_dispatch_at_its_parent(crossing: bool) -> None:
    fusion = around(crossing)
    kernel = agrees(fusion, numbers(8))
    text = body(kernel)
    found = barriers(kernel)
    assert all(" in root" in b.note for b in found)
    before, after = text.split("# tb")[0], text.split("# tc")[1]
    assert before.count("SYNC block") == (1 if crossing else 0)
    assert after.count("SYNC block") == 1
    assert len(found) == (2 if crossing else 1)
    assert missed(kernel, fusion, numbers(8)) == []


def test_data_that_enters_a_vertical_group_is_synchronized_before_it() -> None:
    with tf.Fusion("enters") as fusion:
        x = tf.define_tensor([8], name="x")
        z = tf.neg(x)
        a = tf.add(x, tf.flip(z, 0))
        b = tf.add(a, 1.0)
        c = tf.add(tf.flip(b, 0), 1.0)
        fusion.add_output(c)
    for tv in (z, a, b, c):
        bind(tv, P.TIDx)
    fusion.task([z], "tz")
    fusion.group([fusion.task([a], "ta"), fusion.task([b], "tb")], "g").parallelize(P.TIDz)
    fusion.task([c], "tc")
    kernel = agrees(fusion, numbers(8))
    text = body(kernel)
    assert text.index(f"SYNC block  # {z.name} crosses") < text.index("# ta") < text.index("# tb") < text.index(f"SYNC block  # {b.name} crosses")
    assert "# g: vertical on TIDz; a barrier orders what enters; a barrier orders what leaves" in text
    assert not [what for what in missed(kernel, fusion, numbers(8)) if "crosses" in what]


def test_channels_are_needed_entirely() -> None:
    """Every wait and every arrival of a pipeline of threads that are not whole warps."""
    with tf.Fusion("channel") as fusion:
        x = tf.define_tensor([5, 6], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    bind(a, P.Serial, P.TIDx)
    bind(b, P.Serial, P.TIDx)
    a.inline_at(1)
    a.circular_buffer(2)
    fusion.group([fusion.task([a], "load"), fusion.task([b], "compute")]).parallelize(P.TIDz)
    kernel = agrees(fusion, numbers(5, 6))
    assert sum(isinstance(s, Wait | Arrive) for s in walk(kernel)) == 4
    assert missed(kernel, fusion, numbers(5, 6)) == []


def test_guards_stand_inside_barriers() -> None:
    """A split that does not divide: threads beyond the extent store nothing but take part."""
    with tf.Fusion("guards") as fusion:
        x = tf.define_tensor([10], name="x")
        a = tf.neg(x)
        b = tf.add(tf.flip(a, 0), 1.0)
        fusion.add_output(b)
    for tv in (a, b):
        tv.split(0, 4)
        bind(tv, P.Serial, P.TIDx)
    a.set_memory_type(MemoryType.Shared)
    kernel = agrees(fusion, numbers(10))
    assert scopes(kernel) == [BLOCK]
    assert "IF 4*i" in str(kernel)
    assert missed(kernel, fusion, numbers(10)) == []


@pytest.mark.parametrize(("extent", "is_right"), [(ceildiv(sym("N") - sym("blockIdx.x"), 4), False), (ceildiv(sym("N"), 4), True)])
def test_blocks_do_not_wait_for_others_in_a_loop_that_those_may_leave_earlier(extent: Expr, is_right: bool) -> None:
    together = PSync((Barrier(BarrierScope.GRID, const(64), counter="grid0"),), tf.Fusion("f").tasks.root, True)
    plan: list[PNode] = [PLoop("i0", extent, False, [PLoop("i1", const(3), False, [together])])]
    if is_right:
        check_trips(plan)
    else:
        with pytest.raises(LoweringError, match=r"blocks wait for each other in a loop of ceildiv\(N - blockIdx.x, 4\) trips"):
            check_trips(plan)


def test_elements_that_a_loop_counts_need_no_barrier_in_it() -> None:
    """Threads that are no whole warps join several elements in one tree: its levels have barriers, not the elements."""

    def levels(elements: int) -> int:
        with tf.Fusion("sums") as fusion:
            x = tf.define_tensor([12, 3 * elements], name="x")
            for reduce in (tf.sum, tf.max):
                fusion.add_output(reduce(x, 0))
        for y in fusion.outputs:
            bind(y.split(1, elements).reorder([1, 0, 2]), P.TIDx, P.TIDy, P.Unroll)
        fusion.inline_most()
        kernel = agrees(fusion, numbers(12, 3 * elements))
        assert kernel.verify().verdict.value == "proved"
        return len(scopes(kernel))

    assert levels(4) == levels(1) == 10
