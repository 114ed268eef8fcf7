"""Choosing memory types: the memory type that the readers of each tensor need.

The owner of an element follows from the allocation domain. Writer, owner and reader are functions from elements to threads, compared as index
expressions, never by parallel type (docs/loop-nests.md).
"""

from __future__ import annotations

from functools import cached_property

from taskfuse.ir.axes import Axis
from taskfuse.ir.expr import Assemble, Fold, MathExpr, Read, Reduction, Scan
from taskfuse.ir.medium import MEDIA, nearest
from taskfuse.ir.scalar import ONE, Expr, Facts, const, eq, ge, lt, prove, simplify, substitute, sym
from taskfuse.ir.storage import has_code, storage_operands, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import INDEX_TYPES, THREAD_TYPES, MemoryType, ParallelType
from taskfuse.lowering.domains import ancestors, digit_values, digits, forward, owner_digits, product, refused
from taskfuse.lowering.fragments import operand
from taskfuse.lowering.index_maps import IndexMap, IndexMaps, has_values
from taskfuse.lowering.plan import base_name
from taskfuse.lowering.scans import check_in_order, check_rescaled, first_accumulated
from taskfuse.lowering.thread_ranges import IndexRange

ZERO = const(0)


def assign_memory(index_maps: IndexMaps) -> None:
    """Assign a memory type to every tensor with storage, readers first, since it depends on them.

    Raises:
        LoweringError: the user's memory type does not reach the readers, or the loops would accumulate an element more than once.
    """
    fusion, memory = index_maps.fusion, index_maps.memory
    exprs = fusion.exprs()
    parts = {part.tensor for expr in exprs if isinstance(expr, Assemble) for part in expr.parts}
    for tv in fusion.inputs:
        memory[tv] = MemoryType.Global
    for expr in reversed(exprs):
        tv = expr.output
        if isinstance(expr, Assemble) or tv.is_output or tv in parts:
            memory[tv] = MemoryType.Global
        elif has_code(fusion, expr):
            memory[tv] = _follow(index_maps, tv)
            _check_mixed(tv, memory[tv])
        if isinstance(expr, Scan | Fold):
            check_in_order(expr)
        if isinstance(expr, Reduction):
            check_rescaled(expr)
        if isinstance(expr, Reduction | Scan | Fold):
            _check_accumulation(tv, expr, index_maps.ranges.facts)


def _check_accumulation(tv: TensorView, expr: Reduction | Scan | Fold, facts: Facts) -> None:
    """A loop over a foreign axis inside the loops that accumulate would accumulate every element again in each of its trips."""
    what = "reduction" if isinstance(expr, Reduction) else "scan" if isinstance(expr, Scan) else "fold"
    for p in INDEX_TYPES:
        own = digits(tv, p)
        if len(own) > 1 and any(a.is_reduction and not prove(ge(a.extent, 1), facts) for a in own):
            raise refused(
                tv,
                f"a reduction axis that shares {p.value} with another axis may be empty",
                "declare its extent with tf.dim(..., min=1), or bind the axes to different index types",
            )
    first = first_accumulated(expr)
    for a in () if first is None else tv.loop[first:]:
        if any(x.is_foreign for x in ancestors(tv, (a,))) and tv.schedule.ptype(a).is_loop:
            raise refused(
                tv,
                f"loop axis {tv.loop.index(a)} runs over an axis of a consumer inside the {what}: each element would be accumulated more than once",
                f"reorder that axis before the {what} axes, or do not merge it with one",
            )


def _check_mixed(tv: TensorView, memory: MemoryType) -> None:
    """An index of an axis that mixes own and foreign ones neither computes the tensor's element alone nor replicates it, unless the foreign have one value."""
    for a in tv.loop:
        p = tv.schedule.ptype(a)
        if p.is_bound and not MEDIA[memory].is_private_to(p) and not a.is_foreign and any(x.is_foreign and x.extent is not ONE for x in ancestors(tv, (a,))):
            raise refused(
                tv,
                f"axis {tv.loop.index(a)} merges own axes with a consumer's and is bound to {p.value}, which shares {memory.value} memory",
                "bind the axis in Local memory only, or do not merge what the tensor lacks",
            )


def _follow(index_maps: IndexMaps, tv: TensorView) -> MemoryType:
    """The memory type that the readers of ``tv`` need, or the explicit one if it serves them."""
    given = tv.schedule.memory
    needed = MemoryType.Local
    why = ""
    order = list(MEDIA)
    for use in storage_uses(index_maps.fusion, tv):
        if not has_code(index_maps.fusion, use):
            continue
        operands = storage_operands(index_maps.fusion, use)
        for k, read in enumerate(operands):
            if isinstance(read, Read) and read.tensor is tv:
                is_factor = isinstance(use, Reduction) and k >= len(use.terms)
                if needed is MemoryType.Local and has_values(read):
                    needed, why = MemoryType.Shared, f"{use.output.name} reads it at an index that it computes: registers have no addresses"
                reading = _Reading(index_maps, tv, use, read, is_factor=is_factor)
                for p in INDEX_TYPES:
                    if reading.crosses(p):
                        reached = nearest(p)
                        if order.index(reached) > order.index(needed):
                            needed, why = reached, f"{use.output.name} reads elements of {tv.name} that other indices of {p.value} compute"
    if MEDIA[given or needed].is_by_rank and tv.schedule.stages > 1:
        raise refused(tv, "a ring of slots does not lie in Shared memory of other blocks of a cluster", "leave out circular_buffer, or set_memory_type(Global)")
    if given is None:
        return needed
    if order.index(given) < order.index(needed):
        raise refused(tv, f"it is set to {given.value}, but {why}", f"set_memory_type({needed.value}), leave it unset, or bind the axes alike")
    return given


class _Reading:
    """A read of a tensor by the code of a reader, which may rescale its sum by it."""

    def __init__(self, index_maps: IndexMaps, tv: TensorView, use: MathExpr, read: Read, *, is_factor: bool) -> None:
        self.tv, self.consumer, self.read, self.is_factor = tv, use.output, read, is_factor
        self.index_maps = index_maps

    @cached_property
    def index_map(self) -> IndexMap:
        """Where the reader reads."""
        return self.index_maps.rescaling(self.consumer) if self.is_factor else self.index_maps.reading(self.consumer)

    @cached_property
    def values(self) -> dict[Axis, Expr]:
        """The indices of the axes of the tensor's element that is read."""
        tv, index_map = self.tv, self.index_map
        values = forward(tv, _logical(self.index_maps, self.consumer, index_map, self.read), index_map.facts)
        shared = list(zip(tv.loop, self.consumer.loop, strict=False))[: tv.schedule.inline]
        values.update((a, index_map.values[b]) for a, b in shared if b in index_map.values)  # a shared loop has one index, also where the map back has none
        return values

    def crosses(self, p: ParallelType) -> bool:
        """True if a value in memory private to ``p`` would not be where the reader reads it."""
        tv, consumer, ranges = self.tv, self.consumer, self.index_maps.ranges
        task, other = self.index_maps.tree.place[tv], self.index_maps.tree.place[consumer]
        mine, theirs = ranges.range(task, p), ranges.range(other, p)
        own = owner_digits(tv, p)
        if not own and not digits(consumer, p) and mine == theirs:
            return False
        facts, base = self.index_map.facts, sym(base_name(p, other))
        index = theirs.start + (base if self.is_factor else _lane(consumer, self.read, p, base))
        kept = [a for a in own if not a.is_reduction]
        if not kept:
            reach = IndexRange(mine.start, mine.extent)
            return not (prove(ge(index, reach.start), facts) and prove(lt(index, reach.start + reach.extent), facts))
        values = self.values
        if len(kept) == len(own) and all(a in values for a in own):
            total = ZERO
            for k, a in enumerate(own):
                total = total + values[a] * product(own[k + 1 :])
            if prove(eq(total + mine.start, index), facts):
                return False
        delta = index - mine.start
        if not (prove(ge(delta, 0), facts) and prove(lt(delta, product(own)), facts)):
            return True
        for a, value in digit_values(own, delta, facts).items():
            if not a.is_reduction and not a.is_foreign and not (a in values and prove(eq(values[a], value), facts)):
                return True
        return any(a.is_reduction for a in own) and not prove(eq(theirs.start, mine.start), facts)


def _lane(consumer: TensorView, read: Read, p: ParallelType, base: Expr) -> Expr:
    """The index that reads registers: the thread's own, or the lane that an atom takes the element from."""
    held = operand(consumer, read) if p is THREAD_TYPES[0] else None
    return base if held is None else held.holder(base)


def _logical(index_maps: IndexMaps, consumer: TensorView, index_map: IndexMap, read: Read) -> tuple[Expr, ...]:
    point = index_maps.point(consumer, index_map)
    return tuple(simplify(substitute(e, point), index_map.facts) for e in read.index)
