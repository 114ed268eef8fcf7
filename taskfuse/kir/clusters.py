"""Clusters: their blocks and threads, and the blocks that an arrival or a copy reaches (PTX ISA, "Cluster of cooperative thread arrays")."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from itertools import product

from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Const, Expr, const, sym
from taskfuse.ir.types import CLUSTER_TYPES, ParallelType
from taskfuse.kir.declarations import Dim3
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.nodes import Stmt, TmaLoad
from taskfuse.kir.synchronization import Arrive, Barrier, BarrierScope
from taskfuse.kir.walk import accesses, walk

Int3 = tuple[int, int, int]


def cluster_blocks(cluster: Dim3) -> Expr:
    """Blocks of a cluster."""
    return cluster[0] * cluster[1] * cluster[2]


def cluster_threads(block: Dim3, cluster: Dim3) -> Expr:
    """Threads of a cluster: how many arrive at a cluster barrier."""
    return block[0] * block[1] * block[2] * cluster_blocks(cluster)


def reached(cluster: Dim3, across: tuple[ParallelType, ...]) -> Expr:
    """The number of blocks that an arrival or a copy across some cluster types reaches."""
    total: Expr = const(1)
    for ptype, extent in zip(CLUSTER_TYPES, cluster, strict=True):
        if ptype in across:
            total = total * extent
    return total


def constant_shape(cluster: Dim3) -> Int3 | None:
    """The extents of a cluster, if they are constants."""
    x, y, z = cluster
    if isinstance(x, Const) and isinstance(y, Const) and isinstance(z, Const):
        return x.value, y.value, z.value
    return None


def peers(place: Int3, cluster: Int3, across: tuple[ParallelType, ...]) -> tuple[int, ...]:
    """The ranks of the blocks that the block at ``place`` in its cluster reaches across some types, its own included, in ascending order.

    A rank is ``%cluster_ctarank``: x + extent_x * (y + extent_y * z).
    """
    axes = [range(n) if p in across else (i,) for i, n, p in zip(place, cluster, CLUSTER_TYPES, strict=True)]
    return tuple(x + cluster[0] * (y + cluster[1] * z) for z, y, x in product(axes[2], axes[1], axes[0]))


def ranks(cluster: Dim3, across: tuple[ParallelType, ...]) -> tuple[Expr, tuple[int, ...]]:
    """The ranks of the blocks that a block reaches across some types: the first one, as an expression in the block's indices, and the offsets of all from it.

    The extents of the cluster are constants: the verifier requires this of kernels that reach across it.
    """
    shape = constant_shape(cluster)
    assert shape is not None
    x, y, z = (const(0) if p in across or n == 1 else sym(p.index_name) for p, n in zip(CLUSTER_TYPES, shape, strict=True))
    return x + shape[0] * (y + shape[1] * z), peers((0, 0, 0), shape, across)


def needs_cluster(stmt: Stmt) -> bool:
    """True for a statement that reaches other blocks of the cluster, or waits for them."""
    match stmt:
        case Arrive(across=across) | TmaLoad(across=across):
            return bool(across)
        case Barrier(scope=scope):
            return scope is BarrierScope.CLUSTER
        case _:
            return False


def reaches(stmt: Stmt, spread: AbstractSet[str]) -> bool:
    """True for a statement that arrives or copies in other blocks of the cluster, or accesses buffers by rank (``spread``)."""
    if isinstance(stmt, (Arrive, TmaLoad)) and stmt.across:
        return True
    return bool(spread) and any(a.buffer in spread for side in accesses(stmt) for a in side)


def is_of_clusters(kernel: Kernel) -> bool:
    """True for a kernel whose blocks reach others of their cluster, or wait for them."""
    return any(MEDIA[b.memory].is_by_rank for b in kernel.buffers) or any(map(needs_cluster, walk(kernel)))


def remote_barriers(stmts: Iterable[Stmt]) -> frozenset[str]:
    """The names of the mbarriers at which other blocks of the cluster arrive, or complete bytes."""
    return frozenset(s.barrier.name for s in stmts if isinstance(s, (Arrive, TmaLoad)) and s.across)
