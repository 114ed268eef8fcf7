"""Clusters: their shape, the blocks of a grid in terms of them, and copies that serve all blocks of one.

An index on CIDx is a digit of the block's place: with E blocks of a cluster along x, block ``b`` of the grid has index ``b // E`` on BIDx and
``b % E`` on CIDx. Lowering uses both indices; the kernel's grid has their product, and its ``blockIdx.x`` counts blocks.

A block's **rank** is ``x + extent_x * (y + extent_y * z)`` of its index in the cluster (PTX ISA, ``%cluster_ctarank``). Storage by rank is distributed over the
blocks of a cluster: the first index of an element is the rank of the block that has it (docs/memory-model.md, "Clusters").

A **multicast** copy loads a tile that all blocks of a cluster share once for all of them: each block issues a slice of the box along its
outermost axis, and the engine writes every slice to the same offset of each block's Shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskfuse.errors import LoweringError
from taskfuse.ir.axes import Axis
from taskfuse.ir.scalar import Const, Expr, const, substitute, sym
from taskfuse.ir.tasks import Node, Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import BLOCK_TYPES, CLUSTER_TYPES, ParallelType
from taskfuse.kir import map_expressions, map_stmts
from taskfuse.kir.declarations import Dim3
from taskfuse.kir.nodes import Stmt
from taskfuse.lowering.domains import ancestors, digits, product, refused
from taskfuse.lowering.plan import base_name
from taskfuse.lowering.thread_ranges import ThreadRanges
from taskfuse.target import Target

ONE = const(1)


def cluster_shape(ranges: ThreadRanges, target: Target) -> Dim3:
    """Blocks of a cluster (x, y, z): constants, at most the target's limit. Raises :class:`LoweringError`."""
    x, y, z = (ranges.launch[p] for p in CLUSTER_TYPES)
    blocks = x * y * z
    if not isinstance(blocks, Const) or not 1 <= blocks.value <= target.limits.cluster:
        raise LoweringError(
            what=ranges.fusion.name,
            reason=f"a cluster would have {blocks} blocks; their number is a constant, at most {target.limits.cluster} of {target.arch}",
            help="split the axis that is bound to a cluster type by a small constant, and bind the outer part to a block type",
        )
    return x, y, z


def grid_shape(ranges: ThreadRanges) -> Dim3:
    """Blocks of the grid (x, y, z): whole clusters."""
    x, y, z = (ranges.launch[p] * ranges.launch[q] for p, q in zip(BLOCK_TYPES, CLUSTER_TYPES, strict=True))
    return x, y, z


def in_grid(body: tuple[Stmt, ...], cluster: Dim3) -> tuple[Stmt, ...]:
    """Statements that speak of the index of the cluster, in terms of the index of the block."""
    places = {p.index_name: sym(p.index_name) // e for p, e in zip(BLOCK_TYPES, cluster, strict=True) if e is not ONE}
    if not places:
        return body
    return map_stmts(body, lambda s: map_expressions(s, lambda e: substitute(e, places)))


def cluster_blocks(ranges: ThreadRanges) -> Expr:
    """Blocks of a cluster."""
    return ranges.launch[CLUSTER_TYPES[0]] * ranges.launch[CLUSTER_TYPES[1]] * ranges.launch[CLUSTER_TYPES[2]]


def block_rank(ranges: ThreadRanges, node: Node, indices: Mapping[ParallelType, Expr]) -> Expr:
    """The rank of the block at some local indices of a node; at the node's first index of types that are left out."""
    total: Expr = const(0)
    for p in reversed(CLUSTER_TYPES):
        total = total * ranges.launch[p] + ranges.range(node, p).start + indices.get(p, const(0))
    return total


def spread_over_blocks(ranges: ThreadRanges, node: Node, tv: TensorView, axes: tuple[Axis, ...], values: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The index of an element in storage by rank: the rank of the block that its axes on cluster types determine, and the other axes."""
    indices: dict[ParallelType, Expr] = {}
    for p in CLUSTER_TYPES:
        own = [(a, v) for a, v in zip(axes, values, strict=True) if tv.schedule.ptype(a) is p]
        index: Expr = const(0)
        for k, (_, value) in enumerate(own):
            index = index + value * product(tuple(a for a, _ in own[k + 1 :]))
        indices[p] = index
    return (block_rank(ranges, node, indices), *(v for a, v in zip(axes, values, strict=True) if not tv.schedule.ptype(a).is_cluster))


def shared_types(ranges: ThreadRanges, node: Node, tv: TensorView) -> tuple[ParallelType, ...]:
    """The cluster types whose blocks all have the same elements of ``tv``, computed by code of ``node``.

    It has no axis on these types, and the node runs in all blocks of the cluster.
    """
    found: list[ParallelType] = []
    for p in CLUSTER_TYPES:
        index_range = ranges.range(node, p)
        foreign = all(x.is_foreign for x in ancestors(tv, digits(tv, p)))
        if ranges.launch[p] is not ONE and index_range.extent is ranges.launch[p] and foreign:
            found.append(p)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a multicast copy that one block of a cluster issues.

    Attributes:
        coords, place: index in Global and in Shared memory.
        atoms: the Bulk axes: symbol and extent.
        across: the cluster types whose blocks share the copy.
        blocks: the number of these blocks.
    """

    coords: tuple[Expr, ...]
    place: tuple[Expr, ...]
    atoms: dict[str, int]
    across: tuple[ParallelType, ...]
    blocks: int


def part(ranges: ThreadRanges, tv: TensorView, task: Task, coords: Sequence[Expr], place: Sequence[Expr], atoms: dict[str, int]) -> Part:
    """A block's part of a copy, in local indices: an equal share of its outermost Bulk axis; the whole copy if clusters have one block.

    Args:
        coords, place, atoms: of the whole copy.

    Raises:
        LoweringError: no two blocks have the same copy, or the axis is not a multiple of their number.
    """
    atom = tv.schedule.atom
    assert atom is not None
    across = shared_types(ranges, task, tv)
    if all(ranges.launch[p] is ONE for p in CLUSTER_TYPES):
        return Part(tuple(coords), tuple(place), atoms, (), 1)
    if not across:
        raise refused(
            tv,
            f"the atom {atom.name} copies data that several blocks of a cluster share, but no two share {tv.name}",
            "bind an axis to a cluster type that only its readers have (propagate makes it foreign), or use the atom tma_load",
        )
    rank: Expr = const(0)
    blocks = 1
    for p in reversed(across):
        extent = ranges.launch[p]
        assert isinstance(extent, Const)
        rank = rank * extent + sym(base_name(p, task))
        blocks *= extent.value
    name, size = next(((n, e) for n, e in atoms.items() if e > 1), next(iter(atoms.items())))
    if size % blocks:
        raise refused(
            tv,
            f"{blocks} blocks cannot share its outermost Bulk axis of {size} elements, equal parts for each",
            "use a tile whose rows are a multiple of the cluster's blocks, or smaller clusters",
        )
    share = {name: rank * (size // blocks) + sym(name)}
    moved = [tuple(substitute(e, share) for e in index) for index in (coords, place)]
    return Part(moved[0], moved[1], {**atoms, name: size // blocks}, across, blocks)


def is_multicast(tv: TensorView) -> bool:
    """True for a tensor that one copy writes in several blocks."""
    return tv.schedule.atom is not None and tv.schedule.atom.multicast
