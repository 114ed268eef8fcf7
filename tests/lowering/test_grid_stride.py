"""Grid-stride loops: trips that the block index decides, and the loops that keep their guards instead."""

from collections.abc import Callable

import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError
from taskfuse.ir.scalar import Select, lookups_of
from taskfuse.kir import walk
from taskfuse.kir.nodes import For, If
from taskfuse.kir.synchronization import Advance
from taskfuse.tiles import Dynamic, Rotated
from tests.lowering.faults import missed
from tests.lowering.running import agrees, bind, body, numbers

S, U, TX, TY, TZ, BX, BY = P.Serial, P.Unroll, P.TIDx, P.TIDy, P.TIDz, P.BIDx, P.BIDy


def work(kernel: tf.Kernel) -> list[str]:
    """The bounds of the loops whose trips a block index decides."""
    return [str(s.stop) for s in walk(kernel) if isinstance(s, For) and any(name.startswith("blockIdx") for name in s.stop.free)]


def deal(tv: tf.TensorView, axis: int = 0, blocks: int = 3, ptype: P = BX) -> None:
    """Deal an axis out to blocks: [..., trip, block, ...]."""
    tv.split(axis, blocks)
    tv.axis(axis + 1).parallelize(ptype)


def rows(count: int | str = 7, columns: int = 4, blocks: int = 3) -> tf.Fusion:
    """One task, rows dealt out."""
    with tf.Fusion("rows") as fusion:
        y = tf.neg(tf.define_tensor([tf.dim(count, min=0) if isinstance(count, str) else count, columns], name="x"))
        fusion.add_output(y)
    deal(y, blocks=blocks)
    return fusion


def pipeline(rows: int | str, columns: int = 8, blocks: int = 5, tile: int = 4) -> tf.Fusion:
    """load -> use, tiles of a row dealt out: the axes of the tiles merged."""
    with tf.Fusion("pipeline") as fusion:
        x = tf.define_tensor([tf.dim(rows, min=0) if isinstance(rows, str) else rows, columns], name="x")
        a = tf.neg(x)
        b = tf.abs(a)
        fusion.add_output(b)
    for tv in (a, b):
        tv.split(1, tile)
        tv.merge(0)
        deal(tv, blocks=blocks)
        tv.axis(2).parallelize(TX)
    a.inline_at(1)
    a.circular_buffer(2)
    fusion.group([fusion.task([a], "load"), fusion.task([b], "use")]).parallelize(TY)
    return fusion


# -- trips --------------------------------------------------------------------------------------------------------------------------


def test_the_trips_of_a_block_are_its_share_of_the_work() -> None:
    kernel = agrees(rows("N"), numbers(7, 4))
    assert work(kernel) == ["ceildiv(N - blockIdx.x, 3)"]
    assert not any(isinstance(s, If) for s in walk(kernel))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 9])
@pytest.mark.parametrize("blocks", [1, 3, 8])
def test_blocks_with_more_work_with_less_and_with_none(count: int, blocks: int) -> None:
    agrees(rows(count, blocks=blocks), numbers(count, 4))
    agrees(rows("N", blocks=blocks), numbers(count, 4))


def test_a_split_that_divides_needs_none() -> None:
    assert work(agrees(rows(9), numbers(9, 4))) == []


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 11])
def test_roles_make_equal_trips_over_merged_tiles(count: int) -> None:
    kernel = agrees(pipeline("M"), numbers(count, 8))
    assert work(kernel) == ["ceildiv(2*M - blockIdx.x, 5)"] * 2
    agrees(pipeline("M", columns=10), numbers(count, 10))  # tiles overhang, too


def test_waits_and_arrivals_are_all_needed() -> None:
    fusion = pipeline(7)
    assert missed(tf.lower(fusion), fusion, numbers(7, 8)) == []


def test_two_axes_dealt_out_to_digits_of_one_index_or_to_two_indices() -> None:
    def build(*ptypes: P) -> tf.Fusion:
        with tf.Fusion("two") as fusion:
            y = tf.neg(tf.define_tensor([7, 5], name="x"))
            fusion.add_output(y)
        y.split(0, 3)
        y.split(2, 2)
        y.reorder([0, 2, 1, 3])
        bind(y, S, S, *ptypes)
        return fusion

    assert len(work(agrees(build(BX, BX), numbers(7, 5)))) == 2
    assert len(work(agrees(build(BX, BY), numbers(7, 5)))) == 2


def test_a_tensor_with_fewer_blocks_than_its_task() -> None:
    with tf.Fusion("fewer") as fusion:
        a, b = tf.neg(tf.define_tensor([7, 4], name="x")), tf.neg(tf.define_tensor([8, 4], name="y"))
        fusion.add_output(a)
        fusion.add_output(b)
    deal(a)
    b.axis(0).parallelize(BX)
    fusion.task([a, b])
    assert len(work(agrees(fusion, numbers(7, 4), numbers(8, 4)))) == 1


def test_a_loop_around_the_work_and_one_inside() -> None:
    with tf.Fusion("nested") as fusion:
        x = tf.define_tensor([2, 7, 3], name="x")
        a = tf.neg(x)
        b = tf.abs(a)
        fusion.add_output(b)
    for tv in (a, b):
        deal(tv, axis=1)
    a.inline_at(4)
    a.circular_buffer(2)
    fusion.group([fusion.task([a]), fusion.task([b])]).parallelize(TX)
    assert len(work(agrees(fusion, numbers(2, 7, 3)))) == 2


# -- groups -------------------------------------------------------------------------------------------------------------------------


def test_members_of_a_horizontal_group_on_blocks_count_from_their_own_start() -> None:
    with tf.Fusion("unequal") as fusion:
        a, b = tf.neg(tf.define_tensor([7, 4], name="x")), tf.neg(tf.define_tensor(["N", 4], name="y"))
        fusion.add_output(a)
        fusion.add_output(b)
    deal(a, blocks=3)
    deal(b, blocks=2)
    fusion.group([fusion.task([a]), fusion.task([b])]).parallelize(BX)
    for count in (1, 2, 5):
        kernel = agrees(fusion, numbers(7, 4), numbers(count, 4))
        assert work(kernel)[1] == "(N - blockIdx.x)//2 + 2"


def shared(ptype: P, memory: MemoryType | None = None) -> tf.Fusion:
    """A producer that shares the loop of two readers, which are members of a horizontal group."""
    with tf.Fusion("shared") as fusion:
        p = tf.neg(tf.define_tensor([7, 4], name="x"))
        readers = tf.abs(p), tf.add(p, 1.0)
        for tv in readers:
            fusion.add_output(tv)
    for tv in (p, *readers):
        deal(tv)
    p.inline_at(1)
    if memory is not None:
        p.set_memory_type(memory)
    fusion.task([p])
    fusion.group([fusion.task([tv]) for tv in readers]).parallelize(ptype)
    return fusion


def test_a_loop_of_members_with_unequal_starts_keeps_its_guards() -> None:
    assert work(agrees(shared(BX, MemoryType.Global), numbers(7, 4))) == []
    assert len(work(agrees(shared(BY), numbers(7, 4)))) == 1


# -- distributed channels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("outer", [False, True])
def test_instances_advance_past_the_trips_that_others_make(outer: bool, late: bool, stages: int) -> None:
    """The distributing axis stands around the grid-stride loop or inside it."""
    shape = (2, 7, 4) if outer else (7, 2, 4)
    with tf.Fusion("distributed") as fusion:
        x = tf.define_tensor(list(shape), name="x")
        a = tf.neg(x)
        b = tf.abs(a)
        fusion.add_output(b)
    for tv in (a, b):
        deal(tv, axis=1 if outer else 0)
        tv.axis(3).parallelize(TX)
    own = b.axis(0 if outer else 2)
    own.parallelize(TY)
    a.inline_at(3)
    a.circular_buffer(stages)
    group = fusion.group([fusion.task([a]), fusion.task([b])]).parallelize(TZ)
    if late:
        group.pingpong(own)
    kernel = agrees(fusion, numbers(*shape))
    assert len(work(kernel)) == 2
    steps = [str(s.count) for s in walk(kernel) if isinstance(s, Advance) and s.cursor == "ch0.c"]
    assert any("blockIdx.x" in step for step in steps) == outer


# -- loops in which blocks meet -----------------------------------------------------------------------------------------------------


def output_read_by_other_blocks() -> tf.Fusion:
    with tf.Fusion("output") as fusion:
        y = tf.neg(tf.define_tensor([7, 4], name="x"))
        z = tf.neg(y[:, ::-1])
        fusion.add_output(y)
        fusion.add_output(z)
    for tv in (y, z):
        deal(tv)
        tv.axis(2).parallelize(BY)
    y.inline_at(1)
    return fusion


def reduction_across_blocks() -> tf.Fusion:
    with tf.Fusion("sums") as fusion:
        e = tf.neg(tf.define_tensor([3, 7], name="x"))
        s = e.sum(1)
        fusion.add_output(s)
    for tv in (e, s):
        deal(tv, axis=1)
    e.inline_at(3)
    return fusion


def global_tensor() -> tf.Fusion:
    with tf.Fusion("global") as fusion:
        g = tf.neg(tf.define_tensor([7, 4], name="x"))
        y = tf.abs(g)
        fusion.add_output(y)
    for tv in (g, y):
        deal(tv)
    g.inline_at(1)
    g.set_memory_type(MemoryType.Global)
    return fusion


@pytest.mark.parametrize(("build", "shape"), [(output_read_by_other_blocks, (7, 4)), (reduction_across_blocks, (3, 7)), (global_tensor, (7, 4))])
def test_a_loop_in_which_blocks_wait_for_each_other_keeps_its_guards(build: Callable[[], tf.Fusion], shape: tuple[int, ...]) -> None:
    assert work(agrees(build(), numbers(*shape))) == []


def test_a_barrier_across_blocks_outside_of_the_loop_is_no_obstacle() -> None:
    with tf.Fusion("outside") as fusion:
        g = tf.neg(tf.define_tensor([3, 7, 4], name="x"))
        y = tf.neg(g[:, ::-1])
        fusion.add_output(y)
    for tv in (g, y):
        deal(tv, axis=1)
    g.inline_at(1)
    kernel = agrees(fusion, numbers(3, 7, 4))
    assert len(work(kernel)) == 2  # of the one that makes what other blocks read, and of the one that reads it
    assert "SYNC grid" in body(kernel)


# -- registers ----------------------------------------------------------------------------------------------------------------------


def test_a_loop_that_indexes_registers_keeps_its_trips() -> None:
    with tf.Fusion("registers") as fusion:
        w = tf.neg(tf.define_tensor([7, 4], name="x"))
        y = tf.abs(w)
        fusion.add_output(y)
    for tv in (w, y):
        deal(tv)
    kernel = agrees(fusion, numbers(7, 4))
    assert work(kernel) == []
    assert all(s.unroll for s in walk(kernel) if isinstance(s, For))

    w.set_memory_type(MemoryType.Shared)
    assert len(work(agrees(fusion, numbers(7, 4)))) == 2


@pytest.mark.parametrize("inside", [False, True])
def test_a_loop_around_a_reduction_is_one_and_a_loop_inside_indexes_accumulators(inside: bool) -> None:
    with tf.Fusion("sums") as fusion:
        y = tf.define_tensor([7, 4], name="x").sum(1)
        fusion.add_output(y)
    y.split(0, 3)
    if inside:
        y.reorder([2, 0, 1])
    y.axis(2 if inside else 1).parallelize(BX)
    assert len(work(agrees(fusion, numbers(7, 4)))) == (0 if inside else 1)


def test_registers_of_one_trip_are_no_obstacle() -> None:
    with tf.Fusion("inlined") as fusion:
        w = tf.neg(tf.define_tensor([7, 4], name="x"))
        y = tf.abs(w)
        fusion.add_output(y)
    for tv in (w, y):
        deal(tv)
    w.inline_at(1)
    kernel = agrees(fusion, numbers(7, 4))
    assert len(work(kernel)) == 1


# -- other forms --------------------------------------------------------------------------------------------------------------------


def test_an_unrolled_loop_and_one_that_is_split_again_keep_their_guards() -> None:
    def build(unrolled: bool) -> tf.Fusion:
        fusion = rows(11)
        (y,) = fusion.outputs
        if unrolled:
            y.axis(0).parallelize(U)
        else:
            y.split(0, 2)
        return fusion

    for unrolled in (False, True):
        assert work(agrees(build(unrolled), numbers(11, 4))) == []


def test_a_tensor_without_the_axis_follows_in_the_same_loop() -> None:
    """The bias has the rows as a foreign axis: each block computes it for the rows that it has."""
    with tf.Fusion("bias") as fusion:
        x, w = tf.define_tensor(["N", 4], name="x"), tf.define_tensor([4], name="w")
        b = tf.exp(w)
        y = x + b
        fusion.add_output(y)
    deal(y)
    y.propagate([tv for tv in fusion.tensors() if tv not in {x, w, y}])
    tf.parallelize_like(y, [b])
    fusion.inline_most()
    for count in (1, 4, 7):
        assert len(work(agrees(fusion, numbers(count, 4), numbers(4) * 0, tolerance=1e-6))) == 1


@pytest.mark.parametrize("rows", [4, 7, 8])
def test_registers_are_not_filled_from_work_that_a_block_does_not_have(rows: int) -> None:
    """The copy into Shared memory writes zeros past the end of a split, but a block without a last trip does not: copies into registers are guarded."""
    with tf.Fusion("registers") as fusion:
        x = tf.define_tensor([rows, rows], name="x")
        staged = tf.copy(x)
        kept = tf.copy(staged)
        y = tf.abs(kept)
        fusion.add_output(y)
    for tv in (staged, kept, y):
        tv.merge(0)
        deal(tv)
    staged.set_memory_type(MemoryType.Shared)
    staged.set_atom(tf.atoms.CP_ASYNC, [])
    kernel = agrees(fusion, numbers(rows, rows))
    assert len(work(kernel)) == 1
    assert sum(isinstance(s, If) for s in walk(kernel)) == 2


def test_what_lacks_the_axis_is_made_in_blocks_without_work_too_if_code_outside_reads_it() -> None:
    with tf.Fusion("everywhere") as fusion:
        x, w = tf.define_tensor([2, 5], name="x"), tf.define_tensor([1], name="w")
        c = tf.copy(x)
        b = tf.exp(w)
        y = c + b
        z = tf.define_tensor([4], name="v") + b
        fusion.add_output(y)
        fusion.add_output(z)
    c.split(0, 4)
    c.propagate([b], 2)
    b.axis(1).parallelize(BX)
    z.axis(0).parallelize(BX)
    kernel = agrees(fusion, numbers(2, 5), numbers(1) * 0, numbers(4), tolerance=1e-6)
    assert work(kernel) == []


@pytest.mark.parametrize(("count", "blocks", "first"), [(7, 3, 1), (6, 3, 2), (2, 5, 3), ("M", 4, 1), (9, 4, -3)])
def test_blocks_in_a_rotated_order_visit_items_of_work(count: int | str, blocks: int, first: int) -> None:
    """With and without a remainder, with fewer items than blocks, with any number of them."""
    with tf.Fusion("rotated") as fusion:
        y = tf.neg(tf.define_tensor([count, 4], name="x"))
        fusion.add_output(y)
    y.split(0, blocks).rasterize((1,), tf.tiles.rotated(first))
    y.axis(1).parallelize(BX)
    kernel = tf.lower(fusion)
    (loop,) = (s for s in walk(kernel) if isinstance(s, For) and s.start.free)
    assert (str(loop.start), str(loop.stop), str(loop.step)) == (f"(blockIdx.x + {first % blocks}) % {blocks}", str(count), str(blocks))
    assert not [s for s in walk(kernel) if isinstance(s, If)]
    kernel.verify().require()
    agrees(fusion, numbers(7 if count == "M" else int(count), 4))


def ringed(order: Rotated | Dynamic, *, is_between_roles: bool) -> tf.Fusion:
    """Rows in an order of the blocks, in a ring of two slots that takes one in each trip."""
    with tf.Fusion("ringed") as fusion:
        x = tf.define_tensor([7, 32], name="x")
        a = tf.neg(x)
        b = tf.abs(a)
        fusion.add_output(b)
    for tv in (a, b):
        tv.split(0, 5).rasterize((1,), order)
        bind(tv, S, BX, TX)
    a.set_memory_type(MemoryType.Shared)
    a.circular_buffer(2).inline_at(2)
    if is_between_roles:
        fusion.group([fusion.task([a]), fusion.task([b])]).parallelize(TY)
    return fusion


def test_a_ring_inside_a_role_counts_trips_and_keeps_them() -> None:
    kernel = agrees(ringed(tf.tiles.rotated(2), is_between_roles=False), numbers(7, 32))
    assert not [s for s in walk(kernel) if isinstance(s, For) and s.start.free]
    with pytest.raises(LoweringError, match="claims items of work where no loop of trips goes over them"):
        tf.lower(ringed(tf.tiles.dynamic(), is_between_roles=False))


def test_a_ring_between_roles_follows_items_of_work() -> None:
    for order in (tf.tiles.rotated(2), tf.tiles.dynamic()):
        fusion = ringed(order, is_between_roles=True)
        kernel = agrees(fusion, numbers(7, 32))
        kernel.verify().require()
        loops = [s for s in walk(kernel) if isinstance(s, For) and (s.start.free or s.queue is not None)]
        assert len(loops) == 2
        assert all(any(isinstance(inner, Advance) for inner in walk(s)) for s in loops)


# -- tiles of ragged rows -------------------------------------------------------------------------------------------------------------


def test_tiles_without_rows_run_no_trips() -> None:
    with tf.Fusion("grouped") as fusion:
        a, b = tf.define_tensor((150, 128), dtype=tf.bfloat16), tf.define_tensor((3, 128, 64), dtype=tf.bfloat16)
        fusion.add_output(tf.grouped_matmul(a, b, tf.table("offsets", 4, 150, rising=True)))
    tf.schedulers.matmul(fusion, tf.schedulers.MatmulConfig(128, 64, stages=2, blocks=2))
    skipping = [s.stop for s in walk(tf.lower(fusion)) if isinstance(s, For) and isinstance(s.stop, Select) and "upper_bound" in str(s.stop)]
    assert len(skipping) == 2  # of the role that loads, and of the one that multiplies
    assert skipping[0] is skipping[1]
    assert "+ 1 of 4], 0, 150)" in str(skipping[0].cond)
    assert str(skipping[0].b) == "0"


def test_several_outputs_of_the_same_tiles_skip_those_without_rows_too() -> None:
    with tf.Fusion("grouped") as fusion:
        a, b = tf.define_tensor((150, 128), dtype=tf.bfloat16), tf.define_tensor((3, 128, 64), dtype=tf.bfloat16)
        y = tf.grouped_matmul(a, b, tf.table("offsets", 4, 150, rising=True))
        fusion.add_output(y)
        fusion.add_output(tf.relu(y))
    tf.schedulers.matmul(fusion, tf.schedulers.MatmulConfig(128, 64, stages=2, blocks=2))
    kernel = tf.lower(fusion)
    skipping = [s.stop for s in walk(kernel) if isinstance(s, For) and isinstance(s.stop, Select) and "upper_bound" in str(s.stop)]
    assert len(skipping) == 2
    kernel.verify().require()


def test_tiles_that_blocks_take_one_by_one_skip_those_without_rows() -> None:
    with tf.Fusion("grouped") as fusion:
        a, b = tf.define_tensor((150, 64)), tf.define_tensor((3, 64, 16))
        fusion.add_output(tf.grouped_matmul(a, b, tf.table("offsets", 4, 150, rising=True)))
    tf.schedulers.simt_gemm(fusion, tf.schedulers.SimtGemmConfig(2, 2))
    kernel = tf.lower(fusion)
    assert len([s for s in walk(kernel) if isinstance(s, For) and isinstance(s.stop, Select) and "upper_bound" in str(s.stop)]) == 1
    kernel.verify().require()


def test_tiles_of_threads_run_their_trips_without_rows_too() -> None:
    """All threads of a ring wait and arrive as often."""
    with tf.Fusion() as fusion:
        a, b = tf.define_tensor((9, 3), name="a"), tf.define_tensor((3, 3, 2), name="b")
        fusion.add_output(tf.grouped_matmul(a, b, tf.table("offsets", 4, 9, rising=True), tile=4))
    (part,) = fusion.outputs[0].scatter()
    part.axis(0).parallelize(P.TIDy)
    others = [tv for tv in fusion.tensors() if tv.ndim == 3 and tv is not part and not tv.is_input and not fusion.is_view(tv)]
    tf.parallelize_like(part, others)
    fusion.inline_most()
    kernel = tf.lower(fusion)
    loops = [s for s in walk(kernel) if isinstance(s, For)]
    assert loops
    assert not any(lookups_of(s.stop) for s in loops)
