"""Storage distributed over the blocks of a cluster: the rank of the block that has an element (docs/memory-model.md, "Clusters").

A block's rank is ``x + extent_x * (y + extent_y * z)`` of its index in the cluster (PTX ISA, ``%cluster_ctarank``).
"""

from __future__ import annotations

from collections.abc import Mapping

from taskfuse.ir.axes import Axis
from taskfuse.ir.scalar import Expr, const
from taskfuse.ir.tasks import Node
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import CLUSTER_TYPES, ParallelType
from taskfuse.lowering.domains import product
from taskfuse.lowering.thread_ranges import ThreadRanges


def blocks(ranges: ThreadRanges) -> Expr:
    """Blocks of a cluster."""
    return ranges.launch[CLUSTER_TYPES[0]] * ranges.launch[CLUSTER_TYPES[1]] * ranges.launch[CLUSTER_TYPES[2]]


def rank(ranges: ThreadRanges, node: Node, indices: Mapping[ParallelType, Expr]) -> Expr:
    """The rank of the block at some local indices of a node; at the node's first index of types that are left out."""
    total: Expr = const(0)
    for p in reversed(CLUSTER_TYPES):
        total = total * ranges.launch[p] + ranges.range(node, p).start + indices.get(p, const(0))
    return total


def spread(ranges: ThreadRanges, node: Node, tv: TensorView, axes: tuple[Axis, ...], values: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The index of an element in storage by rank: the rank of the block that its axes on cluster types determine, and the other axes."""
    indices: dict[ParallelType, Expr] = {}
    for p in CLUSTER_TYPES:
        own = [(a, v) for a, v in zip(axes, values, strict=True) if tv.schedule.ptype(a) is p]
        index: Expr = const(0)
        for k, (_, value) in enumerate(own):
            index = index + value * product(tuple(a for a, _ in own[k + 1 :]))
        indices[p] = index
    return (rank(ranges, node, indices), *(v for a, v in zip(axes, values, strict=True) if not tv.schedule.ptype(a).is_cluster))
