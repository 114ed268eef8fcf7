"""Storage and accesses: the axes of a tensor's storage, and the indices at which code writes and reads it."""

from __future__ import annotations

from itertools import takewhile
from typing import Protocol

from taskfuse.ir.axes import CLAIMED, Axis, iteration_position, value_symbol
from taskfuse.ir.expr import Assemble, Fold, Gather, Read, Reduction, Update
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Const, Expr, Facts, const, eq, prove, simplify, substitute, sym
from taskfuse.ir.storage import storage_operands, storage_uses
from taskfuse.ir.tasks import Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import BLOCK_TYPES, INDEX_TYPES, MemoryType, ParallelType
from taskfuse.kir.operands import Access
from taskfuse.lowering.clusters import spread_over_blocks
from taskfuse.lowering.domains import allocation_axes, forward, product, refused
from taskfuse.lowering.index_maps import IndexMap, IndexMaps, has_values
from taskfuse.lowering.plan import base_name
from taskfuse.schedule.allocation import default_allocation
from taskfuse.schedule.shared_loops import Loop

ZERO = const(0)


class Slots(Protocol):
    """The slots of rings."""

    def slot(self, tv: TensorView, task: Task) -> Expr | None:
        """The slot of the ring of ``tv`` that code of ``task`` uses; ``None`` if it has none."""
        ...

    def full(self, tv: TensorView) -> str | None:
        """The mbarriers at which a fill of the ring of ``tv`` is complete."""
        ...


class Indexer:
    """Storage and accesses of all tensors of a fusion, for one order of its nest.

    Attributes:
        index_maps: the indices around the code of each tensor.
        memory: tensor -> its memory.
        slots: the slots of rings; ``None`` until they are known.
        placed: a part of an assembly -> the whole, and the part's place in it.
    """

    def __init__(self, index_maps: IndexMaps, slots: Slots | None = None) -> None:
        self.index_maps = index_maps
        self.fusion = index_maps.fusion
        self.tree = index_maps.tree
        self.shared_loops = index_maps.shared_loops
        self.ranges = index_maps.ranges
        self.memory = index_maps.memory
        self.slots = slots
        self.placed = {
            part.tensor: (expr.output, place)
            for expr in self.fusion.exprs()
            if isinstance(expr, Assemble)
            for part, place in zip(expr.parts, expr.places, strict=True)
        }
        self._kept: dict[tuple[TensorView, MemoryType], tuple[Axis, ...]] = {}

    def slot(self, tv: TensorView, user: TensorView) -> Expr | None:
        """The slot of the ring of ``tv`` that code of ``user`` uses; ``None`` if it has no ring."""
        return None if self.slots is None else self.slots.slot(tv, self.tree.place[user])

    def full(self, tv: TensorView) -> str | None:
        """The mbarriers at which a fill of the ring of ``tv`` is complete; ``None`` if it has no ring."""
        return None if self.slots is None else self.slots.full(tv)

    def indexes_registers(self, tv: TensorView, loop: Loop) -> bool:
        """True if code of ``tv`` indexes elements of a Local tensor, or its accumulators, by a loop variable."""
        expr = self.fusion.definition(tv)
        assert expr is not None
        index_map = self.index_maps.reading(tv)
        operands = (o for o in storage_operands(self.fusion, expr) if isinstance(o, Read))
        found = [self.read(tv, index_map, o)[0] for o in operands if self.memory[o.tensor] is MemoryType.Local]
        if self.memory[tv] is MemoryType.Local or isinstance(expr, Reduction | Fold):
            found.append(self.write(tv, index_map, MemoryType.Local, tv.name))
        return any(self.index_maps.variables.name(loop) in e.free for access in found for e in access.index)

    # -- storage --------------------------------------------------------------------------------------------------------------------

    def kept_axes(self, tv: TensorView, memory: MemoryType | None = None) -> tuple[Axis, ...]:
        """The allocation axes in storage: not those fixed by a loop outside the inline position or by a private index."""
        memory = memory or self.memory[tv]
        if memory is MemoryType.Global and (tv.is_input or tv.is_output):
            return tv.logical
        known = self._kept.get((tv, memory))
        if known is not None:
            return known
        index_map = self.index_maps.of(tv) if memory is self.memory[tv] else self.index_maps.variant(tv, self.index_maps.loop_symbols(tv), memory)
        variables, fixed = self.index_maps.variables, set(self.fusion.dims)
        fixed |= {base_name(p, self.tree.place[tv]) for p in INDEX_TYPES if MEDIA[memory].is_private_to(p)}
        shared = list(zip(tv.loop, self.shared_loops.path[tv], strict=True))[: tv.schedule.inline]
        fixed |= {variables.name(loop) for a, loop in shared if tv.schedule.ptype(a).is_loop}
        if all(MEDIA[memory].is_private_to(p) for p in BLOCK_TYPES):
            fixed |= {CLAIMED, *(str(variables.item(loop)) for a, loop in shared if tv.schedule.ptype(a).is_loop)}
        if memory is not self.memory[tv]:  # an accumulator lives inside the loops that stand outside the reduction loops
            outer = takewhile(lambda pair: not pair[0].is_reduction, zip(tv.loop, self.shared_loops.path[tv], strict=True))
            fixed |= {str(s) for a, loop in outer if tv.schedule.ptype(a).is_loop for s in (variables.symbol(loop), variables.item(loop))}
        spreads = tv.schedule.atom is not None and tv.schedule.atom.spreads
        instances = tuple(a for a, _ in shared if tv.schedule.ptype(a).is_bound and not MEDIA[memory].is_private_to(tv.schedule.ptype(a)) and not a.is_foreign)
        inside = {tv.schedule.ptype(a) for a in tv.loop[tv.schedule.inline :]}  # an index with a digit inside says more than the shared loops
        bases = fixed | {base_name(p, self.tree.place[tv]) for a in instances if (p := tv.schedule.ptype(a)) not in inside}
        kept: list[Axis] = []
        for a in self.stored_axes(tv, memory):
            if a not in index_map.values:
                raise refused(tv, "its allocation domain is not determined by its loop domain", "derive both from the tensor's own axes")
            if spreads and memory is MemoryType.Local and a not in tv.loop and tv.schedule.ptype(a).is_bound:
                continue  # the atom puts an element into the registers of the index that the axis says
            if not index_map.values[a].free <= fixed:
                # what loops shared with all readers determine is one element per index that they are bound to
                kept += [x for x in instances if x not in kept] if a not in tv.loop and index_map.values[a].free <= bases else [a]
            elif memory is MemoryType.Local and tv.schedule.ptype(a).is_bound and a not in tv.loop:
                self._check_owner(tv, tv.schedule.ptype(a), index_map)
        self._kept[(tv, memory)] = tuple(kept)
        return tuple(kept)

    def stored_axes(self, tv: TensorView, memory: MemoryType) -> tuple[Axis, ...]:
        """The allocation domain of the result; accumulators in another memory have the default one."""
        return allocation_axes(tv) if memory is self.memory[tv] else default_allocation(tv)

    def _check_owner(self, tv: TensorView, p: ParallelType, index_map: IndexMap) -> None:
        """A scalar instruction writes registers of its own thread: the allocation's digits of ``p`` are the writer's index."""
        stored = tuple(a for a in allocation_axes(tv) if tv.schedule.ptype(a) is p)
        owner = ZERO
        for k, a in enumerate(stored):
            owner = owner + index_map.values[a] * product(stored[k + 1 :])
        if not prove(eq(owner, sym(base_name(p, self.tree.place[tv]))), index_map.facts):
            raise refused(
                tv,
                f"its allocation puts an element into the registers of index {simplify(owner, index_map.facts)} of {p.value}, which does not compute it",
                "bind loop and allocation axes alike",
            )

    def write(self, tv: TensorView, index_map: IndexMap, memory: MemoryType | None = None, name: str | None = None) -> Access:
        """The access that writes the element of ``tv`` at one of its index maps."""
        if tv in self.placed and name is None:
            return self._in_assembly(tv, tuple(index_map.values[a] for a in tv.logical), index_map.facts)
        slot = self._ring(tv, tv) if name is None else ()
        return Access(name or tv.name, self._stored(tv, slot, tuple(index_map.values[a] for a in self.kept_axes(tv, memory)), index_map.facts, memory))

    def in_order(self, tv: TensorView, memory: MemoryType | None = None) -> bool:
        """True if an atom names registers of ``tv`` by their first, so that they are numbered row-major."""
        if (memory or self.memory[tv]) is not MemoryType.Local:
            return False
        atoms = [u.output.schedule.atom for u in storage_uses(self.fusion, tv)]
        own = tv.schedule.atom
        return (own is not None and own.spreads) or any(a is not None and a.gathers for a in atoms)

    def _stored(self, tv: TensorView, slot: tuple[Expr, ...], index: tuple[Expr, ...], facts: Facts, memory: MemoryType | None = None) -> tuple[Expr, ...]:
        """The index in the storage of ``tv`` with what names a slot of it, if it is a ring, or the block of a cluster that has it."""
        if MEDIA[memory or self.memory[tv]].is_by_rank:
            found = spread_over_blocks(self.ranges, self.tree.place[tv], tv, self.kept_axes(tv, memory), index)
            return tuple(simplify(e, facts) for e in found)
        if not self.in_order(tv, memory):
            return (*slot, *(simplify(e, facts) for e in index))
        place = slot[0] if slot else ZERO
        for e, a in zip(index, self.kept_axes(tv, memory), strict=True):
            place = place * a.extent + e
        return (simplify(place, facts),)

    def _in_assembly(self, tv: TensorView, index: tuple[Expr, ...], facts: Facts) -> Access:
        """The element of a part of an assembly: a place in the storage of the whole."""
        values = {str(value_symbol(k)): s for k, s in enumerate(self.index_maps.value_symbols(tv))}
        while tv in self.placed:
            tv, place = self.placed[tv]
            point = {f"i{k}": e for k, e in enumerate(index)} | values
            index = tuple(simplify(substitute(e, point), facts) for e in place)
        return Access(tv.name, index)

    def _ring(self, tv: TensorView, user: TensorView) -> tuple[Expr, ...]:
        slot = self.slot(tv, user)
        return () if slot is None else (slot,)

    def read(self, consumer: TensorView, index_map: IndexMap, read: Read) -> tuple[Access, Expr]:
        """The access of one operand, and the condition under which the operand is valid."""
        tv = read.tensor
        point = self.index_maps.point(consumer, index_map)
        valid = simplify(substitute(read.valid, point), index_map.facts)
        facts = index_map.facts if isinstance(valid, Const) else index_map.facts.with_assumption(valid)
        expr = self.fusion.definition(consumer)
        if isinstance(expr, Gather | Update) and has_values(read):
            for symbol, extent in zip(self.index_maps.value_symbols(consumer), expr.extents, strict=True):
                facts = facts.with_range(str(symbol), 0, extent - 1)
        logical = tuple(simplify(substitute(e, point), facts) for e in read.index)
        if tv in self.placed:
            if tv in self.index_maps.belongs and self.index_maps.belongs[tv] is not self.index_maps.belongs.get(consumer):
                reason = f"{consumer.name} reads all of it, and it is stored in {self.placed[tv][0].name}, where some of its elements have no place"
                raise refused(tv, reason, f"let {consumer.name} read what {tv.name} is a copy of: {tv.name}.cache_before() makes it one")
            return self._in_assembly(tv, logical, facts), valid
        if tv.is_input or tv.is_output or isinstance(tv.definition, Assemble):
            return Access(tv.name, logical), valid
        if all(iteration_position(e) is not None for e in read.index):
            # what a condition says of an index, such as i == 0, would hide that the loops of both are the same
            facts = index_map.facts
            logical = tuple(simplify(substitute(e, point), facts) for e in read.index)
        values = forward(tv, logical, facts)
        for a, b in list(zip(tv.loop, consumer.loop, strict=False))[: tv.schedule.inline]:
            if b in index_map.values and a not in values:
                values[a] = index_map.values[b]
        missing = [a for a in self.kept_axes(tv) if a not in values]
        if missing:
            raise refused(tv, f"{consumer.name} cannot find its elements: the allocation domain has no forward map", "use split, merge or swizzle")
        return Access(tv.name, self._stored(tv, self._ring(tv, consumer), tuple(values[a] for a in self.kept_axes(tv)), facts)), valid
