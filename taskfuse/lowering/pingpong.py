"""Ping-pong: the instances of a consumer share a distributed channel in turns (docs/channels.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from taskfuse.errors import LoweringError, TaskError
from taskfuse.ir.axes import Axis
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Const, Expr, const, eq, ge, lt, maximum, prove, select, simplify, substitute
from taskfuse.ir.tasks import Group, Node, leaves
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import THREAD_TYPES, ParallelType
from taskfuse.lowering.domains import digit_values, digits, product
from taskfuse.lowering.plan import LoopVariables, item_name
from taskfuse.lowering.thread_ranges import ThreadRanges, hardware_index
from taskfuse.schedule.shared_loops import Loop

Trips = Callable[[Loop, Expr, TensorView], Expr]
"""The trips of a loop of an extent around code of a tensor, in hardware indices and the variables of loops around it."""
MOST_ADDED = 64
"""An instance's slots are added over so many trips of a loop at most: the sum is part of the text."""


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


@dataclass(slots=True, eq=False)
class Pingpong:
    """How the instances of a consumer share a distributed channel: each reads its own slots and advances past the others'.

    Attributes:
        loop: the distributing loop: Serial in the producer, bound in the consumer.
        ptype: the parallel type of the loop in the consumer.
        outer: the innermost loop with code outside the distributing one, or ``None``.
        instance: the instance of a thread, in hardware indices.
        count: number of instances.
        depth: number of loops of slots inside the distributing one.
        trips: slots of this instance in one iteration of ``outer``.
        before, after: slots of the instances before and after it.
        width: least number of threads with consecutive linear ids in one instance.
        threads: threads of one instance.
        guard: the threads of the endpoint's thread range that are in an instance; ``None``: all.
        late: pass the turn after all of the consumer's code of an iteration (``pingpong``).
    """

    loop: Loop
    ptype: ParallelType
    outer: Loop | None
    instance: Expr
    count: Expr
    depth: int
    trips: Expr
    before: Expr
    after: Expr
    width: Expr
    threads: Expr
    guard: Expr | None
    late: bool

    @property
    def slots(self) -> Expr:
        """The slots of all instances in one iteration of ``outer``."""
        return simplify(self.before + self.trips + self.after)


def find_pingpong(
    fusion: Fusion, ranges: ThreadRanges, trips_of: Trips, variables: LoopVariables, serial: list[Loop], node: Node, users: set[TensorView]
) -> Pingpong | None:
    """How a consumer shares the channel, if an axis that is Serial in the producer is thread-bound in the consumer.

    Args:
        serial: the loops with code in the producer that both share, outermost first.
        node: the consumer.
        users: its tensors that read the channel.

    Raises:
        LoweringError: the readers bind the axis differently, or take unequal numbers of slots whose sum is unknown; an instance may have no thread; its slots
            in a trip of a loop inside its own depend on the trip, and there are many trips.
    """
    bound = [loop for loop in serial if any(u.schedule.ptype(loop.axes[u]).is_bound for u in users)]
    if not bound:
        return None
    at = bound[0]
    user = min(users, key=lambda u: u.id)
    ptype = user.schedule.ptype(at.axes[user])
    help = "bind the axis of all of the consumer's tensors to one thread index type, and to the whole of the consumer's extent"
    if len(bound) > 1 or not ptype.is_thread or any(u.schedule.ptype(at.axes[u]) is not ptype for u in users):
        raise LoweringError(
            what=user.name,
            reason=f"axis {at.depth} is Serial in its producer and not bound alike in all of its readers",
            help=help,
            location=user.location,
        )
    index_range = ranges.range(node, ptype)
    own = digits(user, ptype)
    count = simplify(maximum(at.axes[user].extent, 1), ranges.facts)
    threads = simplify(maximum(ranges.count(node) // index_range.extent * product(own) // count, 1), ranges.facts)
    index = hardware_index(ptype) - index_range.start
    other = next((u for u in users if not _is_alike(digits(u, ptype), at.axes[u], own, at.axes[user])), None)
    if other is not None:
        raise LoweringError(
            what=user.name,
            reason=f"threads along {ptype.value} are of other instances of axis {at.depth} in it than in {other.name}, which reads the same slots",
            help="bind the same axes of all readers to the thread index type, in the same order",
            location=user.location,
        )
    empty = next((a for a in own if a is not at.axes[user] and not prove(ge(a.extent, 1), ranges.facts)), None)
    if empty is not None:
        never = isinstance(empty.extent, Const)
        raise LoweringError(
            what=user.name,
            reason=f"an instance that takes turns has no thread{'' if never else f' where {empty.extent} is 0'}, and its producer waits for it",
            help=f"{'' if never else f'declare that {empty.extent} is at least 1, or '}bind its empty axis to another type than axis {at.depth}",
            location=user.location,
        )
    guard = None if prove(eq(product(own), index_range.extent), ranges.facts) else lt(index, product(own))
    values = digit_values(own, index, ranges.facts.with_assumption(ge(hardware_index(ptype), index_range.start)))
    trips = _slots(serial[serial.index(at) + 1 :], trips_of, variables, user, ranges)
    outer = serial[serial.index(at) - 1] if at is not serial[0] else None
    late = any(g.pingpong_axis is not None and g.pingpong_axis in at.axes.values() for g in fusion.tasks.groups())
    width = product(own[own.index(at.axes[user]) + 1 :])
    for p in THREAD_TYPES[: THREAD_TYPES.index(ptype)]:
        width = width * ranges.launch[p]
    instance = values[at.axes[user]]
    before, after = instance * trips, (count - 1 - instance) * trips
    if ptype.index_name in trips.free:  # how many slots an instance takes depends on which it is
        if not isinstance(count, Const):
            raise LoweringError(what=user.name, reason=f"{count} instances share a ring and take unequal numbers of slots", help="their number is a constant")
        place = index_range.start + product(own[own.index(at.axes[user]) + 1 :])
        each = [simplify(substitute(trips, {ptype.index_name: index_range.start + (place - index_range.start) * v}), ranges.facts) for v in range(count.value)]
        before = sum((select(ge(instance, v + 1), t, 0) for v, t in enumerate(each[:-1])), const(0))
        after = sum((select(lt(instance, v), t, 0) for v, t in enumerate(each) if v), const(0))
    depth = len(serial) - serial.index(at) - 1
    return Pingpong(at, ptype, outer, instance, count, depth, simplify(trips), simplify(before), simplify(after), width, threads, guard, late)


def _slots(inside: Sequence[Loop], trips_of: Trips, variables: LoopVariables, user: TensorView, ranges: ThreadRanges) -> Expr:
    """The slots that one instance takes in loops inside its own, outermost first; see :func:`find_pingpong` for the error."""
    slots = const(1)
    for loop in reversed(inside):
        trips = trips_of(loop, loop.axes[user].extent, user)
        if not variables.is_in(loop, slots):
            slots = trips * slots
        elif isinstance(trips, Const) and trips.value <= MOST_ADDED and item_name(variables.name(loop)) not in slots.free:
            each = (substitute(slots, {variables.name(loop): const(v)}) for v in range(trips.value))
            slots = sum((simplify(e, ranges.facts) for e in each), const(0))
        else:
            raise LoweringError(
                what=user.name,
                reason=f"its instances share a ring, and how many slots one takes in a trip of a loop of {trips} depends on the trip",
                help=f"make the loop's trips a constant of at most {MOST_ADDED}, or keep the axis Serial in all roles",
                location=user.location,
            )
    return slots


def _is_alike(one: tuple[Axis, ...], axis: Axis, other: tuple[Axis, ...], other_axis: Axis) -> bool:
    """Whether an axis among the digits of a thread index has one value in each thread for two tensors, and as many threads for each value."""
    if product(one) is not product(other):
        return False
    return product(one[one.index(axis) + 1 :]) is product(other[other.index(other_axis) + 1 :])


def check_bindings(tv: TensorView, users: list[TensorView], paths: Mapping[TensorView, tuple[Loop, ...]]) -> None:
    """A loop that roles share is bound alike in both, or has code in the producer and is thread-bound in the consumer (distributed)."""
    for loop, a in zip(paths[tv], tv.loop[: tv.schedule.inline], strict=False):
        mine = tv.schedule.ptype(a)
        for u in users:
            theirs = u.schedule.ptype(loop.axes[u])
            if mine is not theirs and not (mine.is_loop and (theirs.is_loop or theirs.is_thread)):
                raise LoweringError(
                    what=tv.name,
                    reason=f"it shares a loop with {u.name}, but its axis {loop.depth} is {mine.value} and that of {u.name} is {theirs.value}",
                    help=f"bind both alike, or inline {tv.name} at {loop.depth} or less",
                    location=tv.location,
                )
