"""Clusters from a schedule: grids, guards and grid-stride loops with CIDx, multicast copies, what is refused; every kernel is proved."""

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P
from taskfuse.check import Verdict
from taskfuse.errors import TaskfuseError
from taskfuse.ir.scalar import const, simplify, sym
from taskfuse.kir import walk
from taskfuse.kir.declarations import TensorMapParam
from taskfuse.kir.nodes import TmaLoad
from taskfuse.kir.synchronization import Arrive, Barrier, BarrierScope, Expect, InitBarrier, MbarrierScope, Wait
from taskfuse.lowering.clusters import block_rank, cluster_blocks, spread_over_blocks
from tests.lowering.clustered import BX, CX, CY, TX, TY, S, grid, pointwise, shared
from tests.lowering.over_clusters import crossing, in_a_role, row_sums, shares, softmax
from tests.lowering.running import Array, Measured, agree, agrees, bind, numbers, refused

FEW = (tf.Interleaving.LOW_FIRST, tf.Interleaving.HIGH_FIRST, tf.Interleaving.ASYNC_LATE, tf.Interleaving.RANDOM)


def shape(kernel: tf.Kernel) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Grid and cluster."""
    return tuple(map(str, kernel.grid)), tuple(map(str, kernel.cluster))


def proved(fusion: tf.Fusion, *args: Array, interleavings: tuple[tf.Interleaving, ...] = FEW) -> tf.Kernel:
    """Lowered, right under some interleavings, and proved."""
    kernel = agrees(fusion, *args, interleavings=interleavings)
    assert kernel.verify().verdict is Verdict.PROVED, kernel.verify()
    assert tf.parse_kernel(str(kernel)) == kernel
    return kernel


# -- indices ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ptypes", "expected"),
    [
        ((BX, CX, TX), (("24", "1", "1"), ("4", "1", "1"))),
        ((BX, CY, TX), (("6", "4", "1"), ("1", "4", "1"))),
        ((CX, CY, TX), (("6", "4", "1"), ("6", "4", "1"))),
        ((S, CX, TX), (("4", "1", "1"), ("4", "1", "1"))),
        ((BX, CX, S), (("24", "1", "1"), ("4", "1", "1"))),
    ],
)
def test_the_grid_is_whole_clusters(ptypes: tuple[P, ...], expected: object) -> None:
    extents = (2, 4, 32) if ptypes[0] is CX else (6, 4, 32)
    kernel = proved(pointwise(*ptypes, extents=extents), numbers(*extents))
    if ptypes[0] is not CX:
        assert shape(kernel) == expected


def test_symbolic_blocks_of_clusters() -> None:
    fusion = pointwise(S, S, TX, extents=("N", 4, 32))
    (y,) = fusion.outputs
    y.split(0, 2)
    bind(y, BX, CX)
    kernel = tf.lower(fusion)
    assert shape(kernel) == (("2*max(ceildiv(N, 2), 1)", "1", "1"), ("2", "1", "1"))
    assert kernel.verify().verdict is Verdict.PROVED
    for n in (0, 1, 5, 8):
        agree(kernel, fusion, numbers(n, 4, 32), interleavings=FEW)


def test_digits_of_a_cluster_index() -> None:
    fusion = pointwise()
    (y,) = fusion.outputs
    y.split(0, 2)  # [3, 2, 4, 32]
    bind(y, BX, CX, CX, TX)
    assert shape(proved(fusion, numbers(6, 4, 32))) == (("24", "1", "1"), ("8", "1", "1"))


def two(extent: int, other: int, p: P = CX, group: P | None = None) -> tf.Fusion:
    """Two tensors of different extents on one type."""
    with tf.Fusion("two") as fusion:
        a, b = (tf.neg(tf.define_tensor([3, e, 32], name=n)) for e, n in ((extent, "x"), (other, "y")))
        for tv in (a, b):
            fusion.add_output(bind(tv, BX, p, TX))
    both = fusion.group([fusion.task([a], "a"), fusion.task([b], "b")], "both")
    if group is not None:
        both.parallelize(group)
    return fusion


@pytest.mark.parametrize(("group", "cluster"), [(None, "4"), (CX, "6"), (TY, "4")])
def test_members_of_different_extents(group: P | None, cluster: str) -> None:
    kernel = proved(two(4, 2, group=group), numbers(3, 4, 32), numbers(3, 2, 32))
    assert shape(kernel)[1] == (cluster, "1", "1")


def test_work_loops_around_clusters() -> None:
    """The cluster is given work; its blocks have equal trips."""
    fusion = pointwise(S, S, TX, extents=("N", 4, 32))
    (y,) = fusion.outputs
    y.split(0, 3)
    bind(y, S, BX, CX, TX)
    kernel = tf.lower(fusion)
    assert "0..ceildiv(N - blockIdx.x//4, 3)" in str(kernel)
    assert kernel.verify().verdict is Verdict.PROVED
    for n in (0, 1, 2, 7):
        agree(kernel, fusion, numbers(n, 4, 32), interleavings=FEW)


def test_a_remainder_over_the_blocks_of_a_cluster_is_a_guard() -> None:
    fusion = pointwise(S, S, TX, extents=("N", 4, 32))
    (y,) = fusion.outputs
    y.split(0, 2)
    bind(y, S, CX, S, TX)
    kernel = tf.lower(fusion)
    assert "0..ceildiv(N, 2)" in str(kernel)
    assert kernel.verify().verdict is Verdict.PROVED
    for n in (0, 1, 5):
        agree(kernel, fusion, numbers(n, 4, 32), interleavings=FEW)


def scopes(kernel: tf.Kernel) -> list[BarrierScope]:
    """Of its barriers."""
    return [s.scope for s in walk(kernel) if isinstance(s, Barrier)]


def memories(kernel: tf.Kernel) -> dict[str, MemoryType]:
    """Of its buffers that are not registers."""
    return {b.name: b.memory for b in kernel.buffers if b.memory is not MemoryType.Local}


def test_reductions_over_a_cluster_join_in_its_shared_memory() -> None:
    kernel = proved(row_sums(), numbers(3, 1000))
    assert memories(kernel) == {"tv1.part": MemoryType.Shared, "tv1.ranks": MemoryType.Cluster}
    assert not kernel.counters
    assert scopes(kernel) == [BarrierScope.BLOCK, BarrierScope.CLUSTER, BarrierScope.CLUSTER]  # the last one: no block exits too early
    text = str(kernel)
    assert "CLUSTER tv1.ranks: float32[4] align 16 @ 16" in text
    assert "tv1.ranks[clusterIdx.x] = copy(tv1.acc)" in text
    assert "tv1.acc = add(tv1.acc, tv1.ranks[part.CIDx])" in text


def test_sums_in_a_loop_wait_before_they_use_their_storage_again() -> None:
    kernel = proved(row_sums(2, 32, rows=3), numbers(7, 100))
    assert scopes(kernel) == [BarrierScope.CLUSTER] * 3


def test_a_result_of_all_blocks_is_known_to_all() -> None:
    kernel = proved(softmax(), numbers(3, 512))
    assert "CIDx" in str(kernel)
    assert MemoryType.Global not in memories(kernel).values()


def test_blocks_sum_shares_of_what_all_have_computed() -> None:
    kernel = proved(shares(), numbers(256, 64))
    assert "CLUSTER tv2: float32[4, 64] align 16 @ 0" in str(kernel)
    assert "tv2[clusterIdx.x, threadIdx.x] = copy(tv2.acc)" in str(kernel)
    assert "tv2[i0, 16*clusterIdx.x + threadIdx.x]" in str(kernel)


@pytest.mark.parametrize("types", [(CX, CY), (CX, CX)])
def test_reduced_and_kept_places_in_a_cluster(types: tuple[P, P]) -> None:
    """The rank of a partial result is that of all indices of its block in the cluster."""
    with tf.Fusion("kept") as fusion:
        y = tf.sum(tf.define_tensor([6, 128], name="x"), 1)
        fusion.add_output(y)
    y.split(1, 32).split(0, 2)
    bind(y, BX, *types, TX)
    kernel = proved(fusion, numbers(6, 128))
    assert str(next(b.shape[0] for b in kernel.buffers if b.memory is MemoryType.Cluster)) == "8"


def test_reductions_over_clusters_and_blocks_join_in_both_memories() -> None:
    with tf.Fusion("both") as fusion:
        y = tf.sum(tf.define_tensor([512], name="x"), 0)
        fusion.add_output(y)
    y.split(0, 64).split(0, 4)
    bind(y, BX, CX, TX)
    kernel = agrees(fusion, numbers(512), interleavings=FEW)
    assert {MemoryType.Cluster, MemoryType.Global} <= set(memories(kernel).values())
    assert BarrierScope.GRID in scopes(kernel)


def test_data_that_crosses_blocks_of_a_cluster() -> None:
    for memory in (None, MemoryType.Cluster, MemoryType.Global):
        kernel = proved(crossing(memory), numbers(4, 32))
        assert memories(kernel) == {"tv1": memory or MemoryType.Cluster}
        assert scopes(kernel) == [BarrierScope.CLUSTER] * (1 if memory is MemoryType.Global else 2)
    text = refused(lambda: tf.lower(crossing(MemoryType.Shared)))
    assert text.startswith("cannot lower tv1: it is set to Shared, but tv3 reads elements of tv1 that other indices of CIDx compute")
    assert text.endswith("help: set_memory_type(Cluster), leave it unset, or bind the axes alike")


def test_roles_meet_across_the_blocks_of_a_cluster() -> None:
    kernel = proved(in_a_role(), numbers(8, 4, 64))
    assert [(s.across, s.scope) for s in walk(kernel) if isinstance(s, Arrive) and s.across] == [((CX,), MbarrierScope.CLUSTER)]
    assert [s.scope for s in walk(kernel) if isinstance(s, Wait) and s.barrier.name == "sync0"] == [MbarrierScope.CLUSTER]
    assert [str(s.count) for s in walk(kernel) if isinstance(s, InitBarrier) and s.barrier.name == "sync0"] == ["4"] * 2  # one thread of each block


def test_what_other_blocks_access_has_bytes_of_its_own() -> None:
    kernel = tf.lower(row_sums(), tf.LoweringOptions(shared_limit=0))
    part, spread = (b for b in kernel.buffers if b.memory is not MemoryType.Local)
    assert str(part.offset) == "0"
    assert str(spread.offset) == "16"


def test_all_blocks_of_a_cluster_meet_or_none() -> None:
    with tf.Fusion("some") as fusion:
        x = tf.define_tensor([2, 32], name="x")
        sums = [tf.sum(x * k, axis=[0, 1]) for k in (2.0, 3.0)]
        for y in sums:
            fusion.add_output(y)
    nodes: list[tf.Task] = []
    for y in sums:
        bind(y, CX, TX)
        product = next(tv for tv in fusion.tensors() if any(use.output is y for use in tv.uses) and not tv.is_input)
        bind(product, CX, TX)
        product.inline_at(2)
        nodes.append(fusion.task([product, y]))
    fusion.group(nodes).parallelize(CX)
    assert "some of the blocks of a cluster would wait at a barrier that all of them must reach" in refused(lambda: tf.lower(fusion))


def test_a_ring_does_not_lie_in_other_blocks() -> None:
    fusion = crossing()
    next(tv for tv in fusion.tensors() if tv.name == "tv1").circular_buffer(2)
    assert "a ring of slots does not lie in Shared memory of other blocks of a cluster" in refused(lambda: tf.lower(fusion))


def test_clusters_have_a_constant_shape() -> None:
    fusion = pointwise(BX, S, TX, extents=(6, "N", 32))
    fusion.outputs[0].axis(1).parallelize(CX)
    assert refused(lambda: tf.lower(fusion)) == (
        "cannot lower pointwise: a cluster would have max(N, 1) blocks; their number is a constant, at most 16 of sm_90a\n"
        "help: split the axis that is bound to a cluster type by a small constant, and bind the outer part to a block type"
    )
    assert "would have 32 blocks" in refused(lambda: tf.lower(pointwise(S, S, CX)))


# -- multicast ----------------------------------------------------------------------------------------------------------------------


def arguments(n: int, heads: int, rows: int = 16, columns: int = 32, dtype: tf.DType = tf.float32) -> tuple[Array, Array]:
    return numbers(n, rows, columns).astype(dtype.numpy), numbers(heads, seed=1).astype(dtype.numpy)


@pytest.mark.parametrize(
    "build",
    [
        lambda: shared(),
        lambda: shared(4, 4, stages=3),
        lambda: shared(4, 2, stages=1),
        lambda: shared(store=True),
        lambda: shared(8, 8, stages=4, blocks=1),
        lambda: shared(on=CY),
        lambda: shared(columns=64, dtype=tf.float16, swizzle=128),
        lambda: shared(cluster=1),
    ],
)
@pytest.mark.parametrize("n", [0, 1, 5])
def test_multicast(build: Callable[[], tf.Fusion], n: int) -> None:
    fusion = build()
    x, w = fusion.inputs
    heads, columns = int(str(w.shape[0])), int(str(x.shape[2]))
    kernel = tf.lower(fusion)
    if n == 0:
        assert kernel.verify().verdict is Verdict.PROVED
        assert tf.parse_kernel(str(kernel)) == kernel
    agree(kernel, fusion, *arguments(n, heads, columns=columns, dtype=x.dtype), interleavings=FEW)


def test_what_a_multicast_is_made_of() -> None:
    kernel = tf.lower(shared(4, 4, stages=3))
    (load,) = (s for s in walk(kernel) if isinstance(s, TmaLoad))
    (box,) = (p.box for p in kernel.params if isinstance(p, TensorMapParam))
    assert box == (1, 4, 32)  # a quarter of the rows for each block
    assert load.across == (CX,)
    assert str(load.out.index[1]) == "4*clusterIdx.x"
    assert [str(s.bytes) for s in walk(kernel) if isinstance(s, Expect)] == [str(16 * 32 * 4)]  # of all four parts
    assert [s.across for s in walk(kernel) if isinstance(s, Arrive)] == [(CX,)]
    assert {s.barrier.name: str(s.count) for s in walk(kernel) if isinstance(s, InitBarrier)} == {"ch0.full": "1", "ch0.empty": "4"}
    assert [s.scope for s in walk(kernel) if isinstance(s, Barrier) and s.scope is not BarrierScope.WARP] == [BarrierScope.CLUSTER] * 2


def test_without_multicast_blocks_of_a_cluster_are_on_their_own() -> None:
    kernel = proved(shared(atom=atoms.TMA_LOAD), *arguments(5, 2))
    assert not any(isinstance(s, Barrier) and s.scope is BarrierScope.CLUSTER for s in walk(kernel))


@pytest.mark.parametrize(("multicast", "channels"), [((True, True), 2), ((True, False), 1), ((False, True), 1), ((False, False), 1)])
def test_operands_in_common_with_different_blocks(multicast: tuple[bool, bool], channels: int) -> None:
    """Copies across different types need rings of their own: their slots are free at different times."""
    kernel = proved(grid(*multicast), numbers(2, 3, 8, 32), numbers(2, 3, 8, 32, seed=1))
    assert len(kernel.mbarriers) == 2 * channels
    across = {s.across for s in walk(kernel) if isinstance(s, Arrive)}
    assert across == {t for t, m in zip(((CY,), (CX,)), multicast, strict=True) if m} or across == {()}


def test_blocks_share_equal_parts() -> None:
    assert refused(lambda: tf.lower(shared(3, 3))) == (
        "cannot lower tv5: 3 blocks cannot share its outermost Bulk axis of 16 elements, equal parts for each\n"
        "help: use a tile whose rows are a multiple of the cluster's blocks, or smaller clusters"
    )


def test_a_multicast_has_readers_in_several_blocks() -> None:
    fusion = shared()
    x_s = next(tv for tv in fusion.tensors() if tv.schedule.atom is not None)
    y = fusion.outputs[0]
    for tv in (x_s, y):
        tv.axis(3).parallelize(S)
        tv.axis(0).parallelize(CX)
    with pytest.raises(TaskfuseError, match="no two share tv5"):
        tf.lower(fusion)


@pytest.mark.parametrize("seed", range(3))
def test_every_interleaving_of_a_small_pipeline(seed: int) -> None:
    kernel = tf.lower(shared(rows=2, blocks=1, stages=1 + seed))
    found = kernel.explore(*arguments(2, 2, rows=2), limit=20_000)
    assert found.holds, found


@pytest.mark.parametrize("seed", range(10))
def test_random_pipelines(seed: int) -> None:
    pick = Random(seed)
    cluster = pick.choice((1, 2, 4))
    heads = cluster * pick.choice((1, 2))
    dtype, columns, swizzle = pick.choice(((tf.float32, 32, 0), (tf.float32, 32, 128), (tf.float16, 32, 64), (tf.float16, 64, 128), (tf.int8, 32, 32)))
    rows = cluster * pick.choice((1, 2, 8)) * (8 if swizzle else 1)  # parts are whole periods of the swizzle
    fusion = shared(
        heads,
        cluster,
        rows=rows,
        columns=columns,
        blocks=pick.choice((1, 2, 3)),
        stages=pick.choice((1, 2, 3)),
        store=pick.random() < 0.5,
        dtype=dtype,
        swizzle=swizzle,
        on=pick.choice((CX, CY)),
    )
    kernel = tf.lower(fusion)
    assert kernel.verify().verdict is Verdict.PROVED
    agree(kernel, fusion, *arguments(pick.choice((1, 2, 7)), heads, rows, columns, dtype), interleavings=(pick.choice(tuple(tf.Interleaving)),))


def test_results_do_not_depend_on_the_cluster() -> None:
    x, w = arguments(5, 4)
    outs = [tf.lower(shared(4, c)).simulate(x, w)[0] for c in (1, 2, 4)]
    assert all(np.array_equal(o, outs[0]) for o in outs)


# -- storage by rank -----------------------------------------------------------------------------------------------------------------


def in_clusters() -> tuple[Measured, tf.TensorView]:
    """A tensor in clusters of 2 x 3 blocks."""
    with tf.Fusion("f") as fusion:
        y = tf.abs(tf.define_tensor([2, 3, 8], name="x"))
        fusion.add_output(y)
    fusion.task([y], "t")
    bind(y, P.CIDx, P.CIDy, P.TIDx)
    return Measured(fusion), y


def test_ranks_run_over_x_first() -> None:
    found, _ = in_clusters()
    assert simplify(cluster_blocks(found.ranges)) is const(6)
    i, j = sym("i"), sym("j")
    assert simplify(block_rank(found.ranges, found.nodes["t"], {P.CIDx: i, P.CIDy: j})) is simplify(i + 2 * j)
    assert simplify(block_rank(found.ranges, found.nodes["t"], {P.CIDy: j})) is simplify(2 * j)  # of a type that is left out, the first


def test_axes_on_cluster_types_say_the_block() -> None:
    found, y = in_clusters()
    i, j, k = (sym(name) for name in "ijk")
    index = spread_over_blocks(found.ranges, found.nodes["t"], y, y.loop, (i, j, k))
    assert [simplify(e) for e in index] == [simplify(i + 2 * j), k]
