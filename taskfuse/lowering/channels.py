"""Channels of vertical groups: endpoints, rings, and the waits and arrivals of each role (docs/channels.md).

A boundary tensor is made in one member of a parallelized vertical group and read in others. Boundary tensors with the same endpoints and
loop form one channel: a ring of ``stages`` slots with a ``full`` and an ``empty`` mbarrier each (between blocks: semaphore, see
:mod:`taskfuse.lowering.semaphores`). All threads of an endpoint's thread range wait, arrive and carry its cursor, whether or not they access data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from taskfuse.errors import LoweringError
from taskfuse.ir.expr import Assemble, Update
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const, Expr, const, eq, is_multiple, maximum, prove, simplify
from taskfuse.ir.storage import has_code, made_from, storage_uses
from taskfuse.ir.tasks import Group, Node, Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import BLOCK_TYPES, GRID_TYPES, THREAD_TYPES, MemoryType, ParallelType
from taskfuse.kir.synchronization import Cursor
from taskfuse.lowering.clusters import is_multicast, shared_types
from taskfuse.lowering.completion import has_copies_of_threads, is_transfer
from taskfuse.lowering.pingpong import Pingpong, Trips, check_bindings, find_pingpong
from taskfuse.lowering.plan import LoopVariables
from taskfuse.lowering.ring_instances import check_between_blocks, own_rings
from taskfuse.lowering.thread_ranges import ThreadRanges
from taskfuse.schedule.order import Item, Tree, is_vertical, positions
from taskfuse.schedule.shared_loops import Loop, has_copies
from taskfuse.target import WARP


@dataclass(slots=True, eq=False)
class ChannelEndpoint:
    """One end of a channel: the node whose thread range waits and arrives, and the name of its cursor."""

    node: Node
    cursor: str
    pingpong: Pingpong | None = None


@dataclass(slots=True, eq=False)
class Channel:
    """A ring between members of a vertical group.

    Attributes:
        group: the vertical group.
        loop: each iteration fills one slot; ``None``: one trip.
        copies: the tensors whose asynchronous copies an arrival of each thread waits for, so that the thread need not. Tensors that an atom reads
            through the asynchronous proxy are excluded: their writers wait for their copies, and fence them.
        across: the cluster types whose blocks share a copy into it; a slot is then empty when it is empty in all of them.
        instances: for a ring between blocks, the block types along which each index has its own ring.
        follows: the channel whose slots, barriers and cursors it reuses after that channel's last position.
    """

    name: str
    group: Group
    tensors: list[TensorView]
    loop: Loop | None
    producer: ChannelEndpoint
    consumers: list[ChannelEndpoint]
    stages: int
    copies: list[TensorView] = field(default_factory=lambda: list[TensorView]())
    across: tuple[ParallelType, ...] = ()
    instances: tuple[ParallelType, ...] = ()
    follows: Channel | None = None

    @property
    def subject(self) -> str:
        """Its name in errors, made of the user's names."""
        return f"the ring of {', '.join(tv.name for tv in self.tensors)}"

    @property
    def is_between_blocks(self) -> bool:
        """True if the ring is in Global memory, guarded by semaphores."""
        return self.group.ptype in BLOCK_TYPES

    @property
    def transfers(self) -> list[TensorView]:
        """The tensors that an asynchronous engine fills, which completes bytes at the barrier."""
        return [tv for tv in self.tensors if is_transfer(tv)]

    @property
    def stores(self) -> list[TensorView]:
        """The tensors that threads store, or whose copies they wait for, before they arrive."""
        return [tv for tv in self.tensors if not among(tv, self.transfers) and not among(tv, self.copies)]

    @property
    def is_filled_by_threads(self) -> bool:
        """True if the producer's threads arrive, and so must wait; false if only the copy engine fills the slots."""
        return bool(self.stores or self.copies)


def boundary(tree: Tree, fusion: Fusion, tv: TensorView) -> Group | None:
    """The innermost parallelized vertical group that has ``tv`` as a boundary: a reader is in another member."""
    path = tree.path(tv)
    users = [u.output for u in storage_uses(fusion, tv) if has_code(fusion, u)]
    for group, member in reversed(list(pairwise(path))):
        if isinstance(group, Group) and is_vertical(group):
            for u in users:
                other = tree.path(u)
                if group in other and member not in other:
                    return group
    return None


class Channels:
    """The channels of a fusion and the slot expressions of the tensors in them.

    Args:
        trips: the trips of a loop of an extent, in hardware indices and the variables of loops around it.
        variables: those of loops.
    """

    def __init__(
        self,
        fusion: Fusion,
        tree: Tree,
        ranges: ThreadRanges,
        order: tuple[Item, ...],
        trips: Trips,
        variables: LoopVariables,
    ) -> None:
        """None yet: see :meth:`of`."""
        self.fusion = fusion
        self._trips = trips
        self._variables = variables
        self.tree = tree
        self.ranges = ranges
        self.channels: list[Channel] = []
        self._of: dict[TensorView, Channel] = {}
        self._positions = positions(order)
        self._entered: set[Node] = set()

    @staticmethod
    def of(
        fusion: Fusion,
        tree: Tree,
        ranges: ThreadRanges,
        paths: Mapping[TensorView, tuple[Loop, ...]],
        order: tuple[Item, ...],
        trips: Trips,
        variables: LoopVariables,
    ) -> Channels:
        """Those of a fusion. Raises :class:`LoweringError` where no ring can carry a boundary."""
        channels = Channels(fusion, tree, ranges, order, trips, variables)
        channels._check_assemblies()
        channels._find(paths)
        while not (around := channels._around()) <= channels._entered:
            channels._entered |= around
            channels._find(paths)
        channels._join_rings()
        return channels

    def _around(self) -> set[Node]:
        """The nodes with an endpoint below them."""
        ends = [end.node for ch in self.channels for end in (ch.producer, *ch.consumers)]
        return {n for node in ends for n in self._ancestors(node)[1:]}

    def _find(self, paths: Mapping[TensorView, tuple[Loop, ...]]) -> None:
        self.channels.clear()
        self._of.clear()
        found: dict[tuple[object, ...], Channel] = {}
        for tv in self.tree.place:
            group = boundary(self.tree, self.fusion, tv)
            if group is None:
                continue
            self._add(tv, group, paths, found)

    def _check_assemblies(self) -> None:
        """The parts of an assembly lie in Global memory, which no ring orders."""
        for expr in self.fusion.exprs():
            if not isinstance(expr, Assemble):
                continue
            updates = [p.tensor for p in expr.parts if isinstance(self.fusion.definition(p.tensor), Update)]
            for part in made_from(self.fusion, expr.output):
                readers = [use.output for use in storage_uses(self.fusion, expr.output) if has_code(self.fusion, use)]
                for reader in (*readers, *(u for u in updates if u is not part)):
                    if part not in self.tree.place:
                        continue
                    made, read = self.tree.path(part), self.tree.path(reader)
                    group = [n for n in made if n in read][-1]
                    if isinstance(group, Group) and is_vertical(group):
                        raise LoweringError(
                            what=expr.output.name,
                            reason=f"{part.name} stores its part in Global memory, and {reader.name} uses it in another member of {group.name}",
                            help="use the gather form there (unscatter), or put the parts and their readers into one member",
                            location=expr.location,
                        )

    def _add(self, tv: TensorView, group: Group, paths: Mapping[TensorView, tuple[Loop, ...]], found: dict[tuple[object, ...], Channel]) -> None:
        path = self.tree.path(tv)
        mine = path[path.index(group) + 1]
        users = [u.output for u in storage_uses(self.fusion, tv) if has_code(self.fusion, u)]
        members: dict[Node, set[TensorView]] = {}
        for u in users:
            other = self.tree.path(u)
            members.setdefault(other[other.index(group) + 1], set()).add(u)
        serial = [loop for loop, a in zip(paths[tv], tv.loop[: tv.schedule.inline], strict=False) if tv.schedule.ptype(a).is_loop]
        shared = paths[tv][: tv.schedule.inline]
        source = self._descend(mine, {tv}, shared, serial, paths)[0]
        ends = [e for m, touched in members.items() for e in self._descend(m, touched, shared, serial, paths)]
        check_bindings(tv, users, paths)
        between_blocks = group.ptype in BLOCK_TYPES
        if between_blocks:
            check_between_blocks(tv, serial, users)
        else:
            for end in ends:
                self._check_blocks(tv, source, end)
        instances = own_rings(self.ranges, tv, users, [source, *ends], paths[tv][: tv.schedule.inline]) if between_blocks else ()
        loop = serial[-1] if serial else None
        pingpong = [
            find_pingpong(self.fusion, self.ranges, self._trips, self._variables, serial, e, {u for u in users if e in self.tree.path(u)}) for e in ends
        ]
        key = (group, source, tuple(ends), loop, tuple(None if t is None else (t.loop, t.instance, t.guard) for t in pingpong), instances)
        channel = found.get(key)
        across = shared_types(self.ranges, source, tv) if is_multicast(tv) else ()
        apart = channel is not None and bool(across) and bool(channel.across) and across != channel.across
        if channel is None or apart or not self._fills_first([*channel.tensors, tv]):
            name = f"ch{len(self.channels)}"
            consumers = [ChannelEndpoint(e, f"{name}.c" if len(ends) == 1 else f"{name}.c{k}", t) for k, (e, t) in enumerate(zip(ends, pingpong, strict=True))]
            channel = found[key] = Channel(name, group, [], loop, ChannelEndpoint(source, f"{name}.p"), consumers, 1, instances=instances)
            self.channels.append(channel)
        channel.tensors.append(tv)
        if has_copies_of_threads(tv) and not any(u.schedule.atom is not None and u.schedule.atom.is_async for u in users):
            channel.copies.append(tv)
        channel.across = channel.across or across
        channel.stages = max(channel.stages, tv.schedule.stages if loop is not None else 1)
        self._of[tv] = channel

    def _join_rings(self) -> None:
        """Let channels whose tensors have rings of the same names be one ring, in the order of the code: the first has it, the others go on with it."""
        first: dict[tuple[str, ...], Channel] = {}
        for ch in self.channels:
            rings = tuple(sorted(tv.schedule.ring for tv in ch.tensors))
            if not any(rings):
                continue
            held = first.setdefault(rings, ch)
            if held is ch:
                continue
            reason = self._cannot_follow(ch, held)
            if reason is not None:
                raise LoweringError(
                    what=ch.subject,
                    reason=f"by the names of their rings ({', '.join(filter(None, rings))}) it goes on with {held.subject}, but {reason}",
                    help="give circular_buffer another name, or leave it out",
                    location=ch.tensors[0].location,
                )
            ch.follows, ch.name, ch.producer.cursor = held, held.name, held.producer.cursor
            for end, other in zip(ch.consumers, held.consumers, strict=True):
                end.cursor = other.cursor
        for ring in {tv.schedule.ring for ch in self.channels for tv in ch.tensors} - {""}:
            holders = {(ch.follows or ch).name: tv for ch in self.channels for tv in ch.tensors if tv.schedule.ring == ring}
            if len(holders) > 1:
                one, two, *_ = holders.values()
                raise LoweringError(
                    what=two.name,
                    reason=f"it has the ring '{ring}' together with {one.name}, but what is filled with it is not in the rings that are filled with {one.name}",
                    help="name the rings of all tensors that are filled together",
                    location=two.location,
                )

    def _cannot_follow(self, ch: Channel, first: Channel) -> str | None:
        """Why a channel cannot go on with the ring of another one; ``None`` if it can."""
        if ch.group is not first.group:
            return f"one is of {first.group.name}, the other of {ch.group.name}"
        if ch.stages != first.stages:
            return f"one has {first.stages} slots, the other {ch.stages}"
        if ch.is_between_blocks or ch.across or first.across or any(e.pingpong is not None for c in (ch, first) for e in c.consumers):
            return "rings between blocks, of copies for several blocks, and of consumers that take turns are not shared"
        if len(ch.consumers) != len(first.consumers):
            return "they are read in different roles"
        for mine, theirs in zip((ch.producer, *ch.consumers), (first.producer, *first.consumers), strict=True):
            if any(self.ranges.range(mine.node, p) != self.ranges.range(theirs.node, p) for p in THREAD_TYPES):
                return f"{mine.node.name} and {theirs.node.name} run on different threads"
        if (bool(ch.stores), bool(ch.copies), bool(ch.transfers)) != (bool(first.stores), bool(first.copies), bool(first.transfers)):
            return "they are filled in different ways"
        return None

    def _fills_first(self, tensors: list[TensorView]) -> bool:
        """True if one fill can hold some tensors: in their shared loops, all items that make one of them stand before all that use one."""
        depth = min(tv.schedule.inline for tv in tensors)
        uses = (self._positions[u.output][depth] for tv in tensors for u in storage_uses(self.fusion, tv) if has_code(self.fusion, u))
        return max(self._positions[tv][depth] for tv in tensors) < min(uses)

    def _check_blocks(self, tv: TensorView, source: Node, end: Node) -> None:
        """A ring is one block's: both ends run in the same blocks."""
        for p in GRID_TYPES:
            mine, theirs = self.ranges.range(source, p), self.ranges.range(end, p)
            if not (prove(eq(mine.start, theirs.start), self.ranges.facts) and prove(eq(mine.extent, theirs.extent), self.ranges.facts)):
                raise LoweringError(
                    what=tv.name,
                    reason=f"{source.name} makes it on {mine.extent} indices of {p.value}, {end.name} reads it on {theirs.extent}: a ring belongs to one block",
                    help="bind block indices alike on both sides",
                    location=tv.location,
                )

    def _encloses_others(
        self, node: Group, member: Node, touched: set[TensorView], shared: tuple[Loop, ...], paths: Mapping[TensorView, tuple[Loop, ...]]
    ) -> bool:
        """True if ``member``'s code stands in a loop of ``node`` that the channel's other end does not share: one fill serves all its trips.

        The loops of a group in parallel are those that all its members share; the others are copied into its arms.
        """
        if is_vertical(node):
            return False
        everything = self.ranges.tensors(node) if node.ptype is not None else []
        for u in touched:
            for loop, a in zip(paths[u], u.loop, strict=True):
                if self._has_copies(node, loop):
                    break
                if loop not in shared and u.schedule.ptype(a).is_loop and all(t in loop.axes for t in everything):
                    for x in loop.axes:
                        path = self.tree.path(x)
                        if node in path and member not in path:
                            return True
        return False

    def _descend(
        self, node: Node, touched: set[TensorView], shared: tuple[Loop, ...], serial: list[Loop], paths: Mapping[TensorView, tuple[Loop, ...]]
    ) -> list[Node]:
        """The endpoint at or below a member: one member that holds all tasks which touch the tensor is enough.

        A parallelized horizontal group stops the descent, and so does a loop of a group that the other end does not share. In a
        parallelized vertical group each role that touches the tensor is an endpoint; so is each member of another group with endpoints of
        other channels below it (a wait for those must not hold up this one), and each arm of a horizontal one that has arms without the
        channel's loop, or a copy of it in each arm.
        """
        while isinstance(node, Group):
            holders = {m: part for m in self.tree.members[node] if (part := {t for t in touched if m in self.tree.path(t)})}
            spread = is_vertical(node) or node in self._entered
            arms = [m for m in self.tree.members[node] if self.ranges.tensors(m)]
            if node.ptype is not None and not is_vertical(node) and len(arms) > 1:
                whole = not serial or all(t in serial[-1].axes for t in self.ranges.tensors(node))
                whole = whole and not any(self._has_copies(node, loop) for loop in serial)
                if whole and node not in self._entered:
                    break
                spread = True
            if any(self._encloses_others(node, m, part, shared, paths) for m, part in holders.items()):
                break
            if len(holders) > 1:
                return [e for m, part in holders.items() for e in self._descend(m, part, shared, serial, paths)] if spread else [node]
            node = next(iter(holders))
        return [node]

    def _has_copies(self, group: Group, loop: Loop) -> bool:
        return group.ptype is not None and has_copies(group, loop, [t for t in self.ranges.tensors(group) if t in loop.axes])

    def check_memory(self, memory: dict[TensorView, MemoryType]) -> None:
        """A boundary of a vertical group on threads is in Shared memory, one of a group on blocks in Global memory. Raises :class:`LoweringError`."""
        for tv, channel in self._of.items():
            if not channel.is_between_blocks and memory[tv] is not MemoryType.Shared:
                raise LoweringError(
                    what=tv.name,
                    reason=f"it is a boundary of vertical group {channel.group.name} on threads and would live in {memory[tv].value} memory",
                    notes=("the blocks that make it are not those that read it",) if tv.schedule.memory is None else (),
                    help="bind block indices alike on both sides, and leave its memory type unset",
                    location=tv.location,
                )

    # -- slots ----------------------------------------------------------------------------------------------------------------------

    def channel(self, tv: TensorView) -> Channel | None:
        """The channel that carries ``tv``."""
        return self._of.get(tv)

    def full(self, tv: TensorView) -> str | None:
        """The mbarriers at which a fill of the ring of ``tv`` is complete."""
        channel = self._of.get(tv)
        return None if channel is None else f"{channel.name}.full"

    def names(self) -> set[str]:
        """The names of the tensors whose accesses channels order."""
        return {tv.name for tv in self._of}

    def copied(self) -> set[str]:
        """The names of the tensors whose asynchronous copies no thread waits for."""
        return {tv.name for ch in self.channels for tv in ch.copies}

    def slot(self, tv: TensorView, task: Task) -> Expr | None:
        """The slot of ``tv`` that code of ``task`` uses; ``None`` if ``tv`` has no ring of slots."""
        channel = self._of.get(tv)
        if channel is None:
            return None
        if task is self.tree.place[tv]:
            return Cursor(channel.producer.cursor).slot
        for end in channel.consumers:
            if task is end.node or (isinstance(end.node, Group) and self._below(task, end.node)):
                return Cursor(end.cursor).slot
        return None

    def _below(self, task: Task, group: Group) -> bool:
        node: Node = task
        while node in self.tree.parent:
            node = self.tree.parent[node]
            if node is group:
                return True
        return False

    # -- arrivals -------------------------------------------------------------------------------------------------------------------

    def arrivals(self, end: ChannelEndpoint) -> Expr:
        """The arrivals of an endpoint per phase: one per warp if its thread range is made of whole warps, else one per thread; of one instance."""
        threads = self.ranges.count(end.node) if end.pingpong is None else end.pingpong.threads
        return simplify(maximum(threads // WARP, 1), self.ranges.facts) if self.by_warp(end) else threads

    def by_warp(self, end: ChannelEndpoint) -> bool:
        """True if one lane arrives for each warp of the endpoint."""
        if not self.ranges.is_aligned(end.node) or any(self._shares_warps(end.node, other) for ch in self.channels for other in ch.consumers):
            return False
        return end.pingpong is None or is_multiple(end.pingpong.width, WARP, self.ranges.facts)

    def _shares_warps(self, node: Node, other: ChannelEndpoint) -> bool:
        """True if warps of a node hold several instances of a distributed endpoint, which do not run together."""
        if other.pingpong is None or is_multiple(other.pingpong.width, WARP, self.ranges.facts):
            return False
        return node in self._ancestors(other.node) or other.node in self._ancestors(node)

    def _ancestors(self, node: Node) -> list[Node]:
        found = [node]
        while found[-1] in self.tree.parent:
            found.append(self.tree.parent[found[-1]])
        return found

    def barriers(self) -> list[tuple[str, int, Expr]]:
        """The mbarrier arrays: name, slots, arrivals per phase."""
        found: list[tuple[str, int, Expr]] = []
        for ch in self.channels:
            if ch.is_between_blocks or ch.follows is not None:
                continue
            empty = const(0)
            for end in ch.consumers:
                empty = empty + self.arrivals(end) * self.ranges.count(end.node, ch.across)
            full = (self.arrivals(ch.producer) if ch.stores else const(0)) + (1 if ch.transfers else 0)
            if ch.copies:
                full = full + self.ranges.count(ch.producer.node)
            found += [(f"{ch.name}.full", ch.stages, simplify(full, self.ranges.facts)), (f"{ch.name}.empty", ch.stages, simplify(empty, self.ranges.facts))]
            for end in ch.consumers:
                if end.pingpong is not None:
                    if not isinstance(end.pingpong.count, Const):
                        raise LoweringError(
                            what=ch.subject,
                            reason=f"it is distributed over {end.pingpong.count} instances",
                            help="their number is a constant: split the axis by one",
                            location=ch.tensors[0].location,
                        )
                    found.append((f"{end.cursor}.order", end.pingpong.count.value, self.arrivals(end)))
        return found
