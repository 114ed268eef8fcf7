"""Ping-pong: the axis over which the instances of a distributed channel take turns."""

from __future__ import annotations

from taskfuse.errors import TaskError
from taskfuse.ir.tasks import Group, leaves


def check_pingpong(group: Group) -> None:
    """Check the axis of ``group.pingpong``.

    Raises:
        TaskError: if it is not a loop axis of a tensor of the group, or is bound to no thread index.
    """
    if group.pingpong_axis is None:
        return
    tasks, tree = set(leaves(group)), group.tree
    holder = next((tv for tv in tree.fusion.tensors() if group.pingpong_axis in tv.schedule.loop and tree.home(tv) in tasks), None)
    if holder is None:
        raise TaskError(
            node=group.name,
            reason=f"it takes turns over an axis of extent {group.pingpong_axis.extent}, which is not a loop axis of its tensors",
            help=f"{group.name}.pingpong(tensor.axis(k)) with a tensor of the group",
            location=group.location,
        )
    ptype = holder.schedule.ptype(group.pingpong_axis)
    if not ptype.is_thread:
        raise TaskError(
            node=group.name,
            reason=f"it takes turns over axis {holder.schedule.loop.index(group.pingpong_axis)} of {holder.name}, which is bound to {ptype.value}",
            help="instances that take turns differ in a thread index: bind the axis to one",
            location=group.location,
        )
