"""Rings between blocks: the boundaries that cannot have one, and the blocks that have separate rings.

A ring in Global memory serves the blocks of all its ends. If both ends bind only shared loops to a block type, the block
with index k of one end exchanges elements only with that of the other end: such blocks are paired, and each pair has a ring.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.errors import LoweringError
from taskfuse.ir.scalar import eq, prove
from taskfuse.ir.tasks import Node
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import BLOCK_TYPES, ParallelType
from taskfuse.lowering.domains import digits
from taskfuse.lowering.thread_ranges import ThreadRanges
from taskfuse.schedule.shared_loops import Loop


def check_between_blocks(tv: TensorView, serial: Sequence[Loop], users: Sequence[TensorView]) -> None:
    """Reject boundaries that no ring between blocks can carry.

    Args:
        serial: the loops with code that ``tv`` shares with its readers.
        users: the readers.

    Raises:
        LoweringError: the copy engine fills ``tv``; or instances of a reader would take turns at the slots.
    """
    if tv.schedule.atom is not None and tv.schedule.atom.is_async:
        raise LoweringError(
            what=tv.name,
            reason=f"it is a boundary between blocks, which lies in Global memory; its atom {tv.schedule.atom.name} copies to Shared memory",
            help="let the atom fill another tensor of the producer, and copy that one to the boundary",
            location=tv.location,
        )
    for loop in serial:
        for u in users:
            ptype = u.schedule.ptype(loop.axes[u])
            if ptype.is_bound:
                raise LoweringError(
                    what=u.name,
                    reason=f"its axis {loop.depth} is bound to {ptype.value} and Serial in {tv.name}, which other blocks make: instances of a role"
                    " cannot take turns at a ring between blocks",
                    help=f"bind the axis alike on both sides, or make it Serial in {u.name}",
                    location=u.location,
                )


def own_rings(ranges: ThreadRanges, tv: TensorView, users: Sequence[TensorView], ends: Sequence[Node], shared: Sequence[Loop]) -> tuple[ParallelType, ...]:
    """The block types along which the blocks of all ends of a ring are paired.

    Args:
        ends: the nodes of the endpoints.
        shared: the loops that ``tv`` shares with its readers.
    """
    return tuple(p for p in BLOCK_TYPES if _are_paired(ranges, tv, users, ends, [loop for loop in shared if tv.schedule.ptype(loop.axes[tv]) is p], p))


def _are_paired(ranges: ThreadRanges, tv: TensorView, users: Sequence[TensorView], ends: Sequence[Node], loops: list[Loop], p: ParallelType) -> bool:
    first, *others = (ranges.range(node, p).extent for node in ends)
    if not loops or prove(eq(first, 1), ranges.facts) or any(not prove(eq(first, e), ranges.facts) for e in others):
        return False
    if any(loop.axes[tv].is_foreign for loop in loops):  # one of its blocks makes what all read
        return False
    return all(digits(t, p) == tuple(loop.axes[t] for loop in loops) for t in (tv, *users))
