"""Where a horizontal dispatch stands among the loops that its members share (docs/tasks-and-groups.md, section 8)."""

from __future__ import annotations

from collections.abc import Iterable

from taskfuse.ir.tasks import Group
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.joins import Loop


def has_copies(group: Group, loop: Loop, tensors: Iterable[TensorView]) -> bool:
    """True if each arm of a horizontal dispatch has its own copy of a loop that the members share, and of all loops inside it.

    So it is where the members do not bind the loop alike, and where they bind it to the group's own type, which must stand inside of the
    dispatch, but other roles run it trip by trip: loops must not change places there, since all roles visit channels in one order.

    Args:
        tensors: those of the group with code in the loop.
    """
    types = {tv.schedule.ptype(loop.axes[tv]) for tv in tensors}
    if not any(p.is_bound for p in types):
        return False
    if len(types) > 1:
        return True
    return group.ptype in types and any(tv.schedule.ptype(a).is_loop for tv, a in loop.axes.items())
