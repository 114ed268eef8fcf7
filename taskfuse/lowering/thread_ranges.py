"""Extents, boxes and thread ranges of nodes (laws 5, 6 and 9, docs/tasks-and-groups.md).

The *box* of a node is its range of indices, its *thread range* the part where it runs: the first E indices if it is bound, the whole box if it is
replicated, otherwise the first index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from taskfuse.errors import LoweringError
from taskfuse.ir.expr import Assemble
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Const, Expr, Facts, bounds, ceildiv, const, maximum, simplify, sym
from taskfuse.ir.storage import storage_uses
from taskfuse.ir.tasks import Group, Node, Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import INDEX_TYPES, THREAD_TYPES, MemoryType, ParallelType
from taskfuse.lowering.domains import digits, product
from taskfuse.schedule.order import Tree, is_vertical
from taskfuse.target import MAX_BLOCK, MAX_THREADS, WARP, WARPGROUP

ONE = const(1)
Z = THREAD_TYPES[2]


@dataclass(frozen=True, slots=True)
class IndexRange:
    """A range of indices of one type."""

    start: Expr
    extent: Expr


def tensor_extent(tv: TensorView, ptype: ParallelType) -> Expr | None:
    """The number of indices of a type that a tensor's loop (or allocation) axes are bound to; ``None`` if unbound."""
    own = digits(tv, ptype)
    extent = product(own) if own else None
    if tv.schedule.allocation is not None:
        stored = tuple(a for a in tv.schedule.allocation if tv.schedule.ptype(a) is ptype)
        if stored and extent is None:
            extent = product(stored)
    return extent


class ThreadRanges:
    """Extents, boxes and ranges of all nodes of a fusion.

    Attributes:
        launch: index type -> number of indices in the launch.
        facts: facts about extents and about the hardware indices.
    """

    def __init__(self, fusion: Fusion, tree: Tree) -> None:
        """Without the ranges of nodes: see :meth:`of`."""
        self.fusion = fusion
        self.tree = tree
        self.facts: Facts = fusion.facts()
        self.launch: dict[ParallelType, Expr] = {}
        self.threads: Expr = ONE
        self._padded = THREAD_TYPES
        self._extent: dict[tuple[Node, ParallelType], Expr | None] = {}
        self._box: dict[tuple[Node, ParallelType], IndexRange] = {}
        self._range: dict[tuple[Node, ParallelType], IndexRange] = {}
        self._uses: dict[TensorView, tuple[TensorView, ...]] = {}

    @staticmethod
    def of(fusion: Fusion, tree: Tree) -> ThreadRanges:
        """Those of a fusion. Raises :class:`LoweringError` if no block has the threads of the launch."""
        ranges = ThreadRanges(fusion, tree)
        ranges._uses = {tv: tuple(u.output for u in storage_uses(fusion, tv) if not isinstance(u, Assemble)) for tv in tree.place}
        ranges._measure_all()
        return ranges

    def _measure_all(self) -> None:
        for kept in range(len(THREAD_TYPES), -1, -1):
            self._padded = THREAD_TYPES[:kept]
            self._measure_launch()
            if self._excess() is None and not (Z in self._padded and self._may_exceed(Z)):
                break
        for ptype in INDEX_TYPES:
            self._place(self.tree.root, ptype, IndexRange(const(0), self.launch[ptype]))
        for ptype in INDEX_TYPES:
            last = self.launch[ptype] - 1
            limit = simplify(last, self.facts)
            self.facts = self.facts.with_range(ptype.index_name, 0, limit)
        self._check_threads()
        self.threads = self.launch[THREAD_TYPES[0]] * self.launch[THREAD_TYPES[1]] * self.launch[THREAD_TYPES[2]]

    def _measure_launch(self) -> None:
        """Extents of all nodes, and the launch shape, with members rounded up to whole warps on the types of ``_padded`` only.

        What is rounded up must not be why a launch is refused: a block has few threads along z, and 1024 together.
        """
        below = ONE
        for ptype in INDEX_TYPES:
            if ptype is THREAD_TYPES[0]:
                below = ONE
            root = self._measure(self.tree.root, ptype, below if ptype in self._padded else None)
            self.launch[ptype] = ONE if root is None else root
            below = simplify(below * self.launch[ptype], self.facts)

    def _excess(self) -> str | None:
        """Why no block has the threads of the launch, for any extents; ``None`` if one may."""
        for p, limit in zip(THREAD_TYPES, MAX_BLOCK, strict=True):
            least = bounds(self.launch[p], self.facts)[0]
            if least is not None and least > limit:
                return f"a block would have {self.launch[p]} threads along {p.value}, at least {least}; {limit} are possible"
        x, y, z = (self.launch[p] for p in THREAD_TYPES)
        least = bounds(x * y * z, self.facts)[0]
        if least is not None and least > MAX_THREADS:
            return f"a block would have {x} * {y} * {z} threads, at least {least}; {MAX_THREADS} are possible"
        return None

    def _may_exceed(self, p: ParallelType) -> bool:
        """True unless the launch is known to have few enough threads along a type."""
        most = bounds(self.launch[p], self.facts)[1]
        return most is None or most > MAX_BLOCK[THREAD_TYPES.index(p)]

    def _check_threads(self) -> None:
        reason = self._excess()
        if reason is None:
            return
        wide = [p for p in THREAD_TYPES if p.value in reason] or list(THREAD_TYPES)
        raise LoweringError(
            what=self.fusion.name,
            reason=reason,
            notes=tuple(note for p in wide for note in self._bindings(p)),
            help=f"bind fewer or smaller axes to {wide[0].value if len(wide) == 1 else 'thread indices'}: split them, and leave the outer part Serial",
        )

    def _bindings(self, p: ParallelType) -> Iterator[str]:
        """Who is bound to a type: the groups in parallel on it, and the widest tensor of each task."""
        for group in self.fusion.tasks.groups():
            if group.ptype is p:
                parts = [f"{m.name} {ONE if (e := self._extent[(m, p)]) is None else e}" for m in self.tree.members[group] if self._tensors_below(m)]
                yield f"{group.name} is parallel on {p.value}: {', '.join(parts)}"
        for task, tensors in self.tree.tensors.items():
            extents = [(tv.name, e) for tv in tensors if (e := tensor_extent(tv, p)) is not None]
            if extents:
                name, extent = max(extents, key=lambda found: bounds(found[1], self.facts)[0] or 0)
                yield f"{name} of {task.name} binds {extent} to {p.value}"

    # -- extents --------------------------------------------------------------------------------------------------------------------

    def _tensors_below(self, node: Node) -> list[TensorView]:
        if isinstance(node, Task):
            return self.tree.tensors.get(node, [])
        return [tv for m in self.tree.members[node] for tv in self._tensors_below(m)]

    def tensors(self, node: Node) -> list[TensorView]:
        """The tensors with code below ``node``."""
        return self._tensors_below(node)

    def _measure(self, node: Node, ptype: ParallelType, below: Expr | None) -> Expr | None:
        match node:
            case Task():
                found = [e for tv in self.tree.tensors.get(node, []) if (e := tensor_extent(tv, ptype)) is not None]
                extent = simplify(maximum(1, *found), self.facts) if found else None
            case Group():
                inner = [self._measure(m, ptype, below) for m in self.tree.members[node]]
                if node.ptype is ptype:
                    unit = self._unit(node, below)
                    padded = [simplify(ceildiv(ONE if e is None else e, unit) * unit, self.facts) for e in inner]
                    for m, e, p in zip(self.tree.members[node], inner, padded, strict=True):
                        if e is not None or unit > 1:
                            self._extent[(m, ptype)] = p
                    extent = simplify(sum(padded, const(0)), self.facts)
                else:
                    found = [e for e in inner if e is not None]
                    extent = simplify(maximum(*found), self.facts) if found else None
        self._extent[(node, ptype)] = extent
        return extent

    def _unit(self, group: Group, below: Expr | None) -> int:
        """Law 9: what starts and extents of a group's members are rounded up to, so that no two of them share a warp (or warpgroup)."""
        members = self.tree.members[group]
        if below is None or not isinstance(below, Const) or not (is_vertical(group) or any(self._waits(m) for m in members)):
            return 1
        k = WARPGROUP if any(m.budget is not None for m in members) else WARP
        return k // below.value if k % below.value == 0 else 1

    def _waits(self, node: Node) -> bool:
        """True if code below a node certainly waits for other threads: a channel, a reduction across threads, a Shared tensor."""
        if isinstance(node, Group):
            inner = node.ptype is not None and node.ptype.is_thread and is_vertical(node)
            return inner or any(self._waits(m) for m in self.tree.members[node])
        for tv in self.tree.tensors.get(node, []):
            if tv.schedule.memory is MemoryType.Shared or any(a.is_reduction for p in THREAD_TYPES for a in digits(tv, p)):
                return True
        return False

    def extent(self, node: Node, ptype: ParallelType) -> Expr | None:
        """E_p of a node; ``None``: unbound."""
        return self._extent[(node, ptype)]

    # -- boxes ----------------------------------------------------------------------------------------------------------------------

    def _place(self, node: Node, ptype: ParallelType, box: IndexRange) -> None:
        extent = self._extent[(node, ptype)]
        if extent is not None:
            index_range = IndexRange(box.start, extent)
        elif node is self.tree.root or self._is_replicated(node, ptype):
            index_range = box
        else:
            index_range = IndexRange(box.start, ONE)
        self._box[(node, ptype)] = box
        self._range[(node, ptype)] = index_range
        if isinstance(node, Task):
            return
        start = index_range.start
        for m in self.tree.members[node]:
            if node.ptype is ptype:
                inner = self._extent[(m, ptype)]
                span = IndexRange(start, ONE if inner is None else inner)
                start = simplify(start + span.extent, self.facts)
            else:
                span = index_range
            self._place(m, ptype, span)

    def _is_replicated(self, node: Node, ptype: ParallelType) -> bool:
        """An unbound node runs on all of its box if another node reads one of its tensors from memory private to ``ptype``."""
        inside = set(self._tensors_below(node))
        for tv in inside:
            memory = MemoryType.Global if tv.is_output else (tv.schedule.memory or MemoryType.Local)
            if tv.schedule.memory is None and self._is_boundary(tv, ptype):
                continue
            if MEDIA[memory].is_private_to(ptype) and any(u not in inside for u in self._uses[tv]):
                return True
        return False

    def _is_boundary(self, tv: TensorView, ptype: ParallelType) -> bool:
        path = self.tree.path(tv)
        for group, member in pairwise(path):
            if isinstance(group, Group) and group.ptype is ptype and is_vertical(group):
                inside = set(self._tensors_below(member))
                if any(u not in inside for u in self._uses[tv]):
                    return True
        return False

    def box(self, node: Node, ptype: ParallelType) -> IndexRange:
        """The box of a node."""
        return self._box[(node, ptype)]

    def range(self, node: Node, ptype: ParallelType) -> IndexRange:
        """The thread range of a node."""
        return self._range[(node, ptype)]

    def count(self, node: Node, types: tuple[ParallelType, ...] = THREAD_TYPES) -> Expr:
        """The number of threads (or indices of ``types``) of a node's thread range."""
        total = ONE
        for p in types:
            total = total * self._range[(node, p)].extent
        return simplify(total, self.facts)

    def is_whole_block(self, node: Node) -> bool:
        """True if the thread range is every thread of the block."""
        return all(self._range[(node, p)].extent is self.launch[p] for p in THREAD_TYPES)

    def may_share_block(self, a: Node, b: Node) -> bool:
        """False if no block runs both nodes: they are in different members of a group that is parallelized on a block index type."""
        group = next((n for n in self._above(a) if n in set(self._above(b))), None)
        return group is None or group is a or group is b or not isinstance(group, Group) or group.ptype is None or group.ptype.is_thread

    def _above(self, node: Node) -> Iterator[Node]:
        """The node and those around it, inwards to outwards."""
        yield node
        while (parent := self.tree.parent.get(node)) is not None:
            node = parent
            yield node

    def is_aligned(self, node: Node, k: int = WARP) -> bool:
        """Law 9: the thread range is made of whole groups of ``k`` threads with consecutive linear ids."""
        return self.are_aligned(tuple(self._range[(node, p)] for p in THREAD_TYPES), k)

    def frame(self, group: Group, member: Node) -> tuple[IndexRange, ...]:
        """The threads of a member's arm in the dispatch of its group, x, y, z: its whole box, before its guard."""
        return tuple(self._box[(member, p)] if p is group.ptype else self._range[(group, p)] for p in THREAD_TYPES)

    def threads_of(self, spans: tuple[IndexRange, ...]) -> Expr:
        """The number of threads of a box."""
        total = ONE
        for span in spans:
            total = total * span.extent
        return simplify(total, self.facts)

    def are_aligned(self, spans: tuple[IndexRange, ...], k: int) -> bool:
        """True if the threads of a box (x, y, z) are whole groups of ``k`` with consecutive linear ids."""
        q = next((i for i, p in enumerate(THREAD_TYPES) if spans[i].extent is not self.launch[p]), 2)
        s = ONE
        for p in THREAD_TYPES[:q]:
            s = s * self.launch[p]
        higher = any(self.launch[p] is not ONE for p in THREAD_TYPES[q + 1 :])
        values = [spans[q].start * s, spans[q].extent * s] + ([self.launch[THREAD_TYPES[q]] * s] if higher else [])
        return all(isinstance(v, Const) and v.value % k == 0 for v in (simplify(v, self.facts) for v in values))


def hardware_index(ptype: ParallelType) -> Expr:
    """The symbol of an index type."""
    return sym(ptype.index_name)


def linear_thread(ranges: ThreadRanges) -> Expr:
    """The linear thread id x + Dx * (y + Dy * z)."""
    x, y, z = (hardware_index(p) for p in THREAD_TYPES)
    return x + ranges.launch[THREAD_TYPES[0]] * (y + ranges.launch[THREAD_TYPES[1]] * z)
