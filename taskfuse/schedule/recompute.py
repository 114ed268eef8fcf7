"""recompute: elements that a reader reads of a tensor, computed in the reader's own loops.

Two loops are one only if op maps identify their axes. If a reader reads at another index (a flipped, shifted, transposed, padded or
concatenated tensor) they never are. But an elementwise function commutes with any index map: the element of ``exp(x)`` at ``e`` is ``exp`` of
the element of ``x`` at ``e``. So elementwise ancestors are computed once more, at the reader's points, gathers with their indices; inputs, tables, and
results of reductions and scans are read in place. If the tensor itself is a reduction, it is computed again for each of the reader's points; so is a
scan, if these are its own points.

A gather is also an index map, with values in it: the element of ``exp(x)`` at ``v`` is ``exp`` of the element of ``x`` at ``v`` if there is one,
and 0 otherwise. So of a table that is computed elementwise only the gathered elements are computed, and inputs are gathered instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.dtypes import bool_
from taskfuse.ir.axes import Axis, axis, is_value_symbol, iteration_point, iteration_symbol, value_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Assemble, FirstValid, Fold, Gather, IndexValue, Literal, MathExpr, Operand, Pointwise, Read, Reduction, Scan, at_point, reads
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, TRUE, ZERO, Const, Expr, and_, conjuncts, ge, lt, prove, simplify, substitute
from taskfuse.ir.storage import resolve, storage_operands, storage_reads, storage_uses, table, with_reads_at
from taskfuse.ir.tensor import TensorView
from taskfuse.location import OneCall, caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, inlined_producers
from taskfuse.target import VECTOR_BYTES

FEW = 8
"""An eighth of the points along an axis, and no more than :data:`VECTOR_BYTES`, are few: rows that end within a vector."""
Point = tuple[tuple[Expr, ...], Expr]
"""Where an element is read, over the reader's iteration symbols, and for which iterations there is one."""


def recompute(tv: TensorView, readers: Sequence[TensorView], stored: Sequence[TensorView] = ()) -> tuple[TensorView, ...]:
    """See :meth:`TensorView.recompute`.

    Raises:
        ScheduleError: if a reader does not read ``tv``, gathers its elements without being elementwise, is an assembly of parts, shares loops already,
            or differs in extents from the first.
        TaskError: if a law of tasks and groups is broken.
    """
    call = Call("recompute", tv)
    fusion = tv.fusion
    chosen = call.readers(readers, [use.output for use in storage_uses(fusion, tv)])
    definitions = [_definition(call, reader, chosen[0], stored) for reader in chosen]
    fusion.check()
    clones = _Clones(chosen[0], tv, frozenset(stored))
    gathers = [d for d in definitions if isinstance(d, Gather) and table(fusion, d) is tv]
    others = [d for d in definitions if d not in gathers]
    points = dict.fromkeys((r.index, r.valid) for d in others for r in storage_reads(fusion, d) if r.tensor is tv)
    with OneCall():
        made = {point: clones.of(tv, *point) for point in points}
        for definition in others:
            fusion.define(with_reads_at(fusion, definition, tv, made))
        gathered = [clones.gathered(definition) for definition in gathers]
    for definition in definitions:
        fusion.remove_unread([r.tensor for r in reads(definition)])
    return (*made.values(), *gathered)


def reduces_one(fusion: Fusion, expr: MathExpr) -> bool:
    """True for a reduction with axes of one element, and no others unless its body can stand alone: recomputed, it loses them."""
    if not isinstance(expr, Reduction) or not expr.starts_neutral:
        return False
    reduced = [a for a in expr.output.root if a.is_reduction]
    dtypes = {r.tensor.dtype for r in storage_reads(fusion, expr)}
    is_alone = expr.body is ELEMENTWISE["copy"] or (dtypes == {expr.output.dtype} and len(reads(expr)) == len(expr.operands))
    return any(a.extent is ONE for a in reduced) and (is_alone or any(a.extent is not ONE for a in reduced))


def is_gathered_elementwise(fusion: Fusion, expr: MathExpr, stored: Sequence[TensorView] = ()) -> bool:
    """True for a gather whose table is computed elementwise of what can be gathered in its place: inputs, ``stored`` tensors, and what is read at no computed
    index."""
    if not isinstance(expr, Gather):
        return False
    source, *_ = storage_reads(fusion, expr)
    return isinstance(fusion.definition(source.tensor), Pointwise) and _follows(fusion, source, frozenset(stored))


def _follows(fusion: Fusion, read: Read, stored: frozenset[TensorView]) -> bool:
    """True if what is read at an index with values in it can be computed of inputs, or ``stored`` tensors, that are read so."""
    seen, stack = {(read.tensor, read.index)}, [read]
    while stack:
        here = stack.pop()
        if not _is_computed(here.index):
            if here.valid is not TRUE:
                return False
            continue
        expr = fusion.definition(here.tensor)
        if expr is None or here.tensor in stored:
            continue
        if not isinstance(expr, Pointwise):
            return False
        at = {f"i{k}": e for k, e in enumerate(here.index)}
        if _is_computed([substitute(o.index, at) for o in expr.operands if isinstance(o, IndexValue)]):
            return False
        for r in storage_reads(fusion, expr):
            inner = Read(r.tensor, tuple(substitute(e, at) for e in r.index), r.valid)
            if inner.valid is not TRUE:
                return False
            if (inner.tensor, inner.index) not in seen:
                seen.add((inner.tensor, inner.index))
                stack.append(inner)
    return True


def is_place_everywhere(fusion: Fusion, definition: Gather, index: Sequence[Expr], reader: TensorView) -> bool:
    """True if the table of a gather, read at an index over the axes of a reader, has an element at each point of the reader and for any values: also where the
    gather itself has none, so that it can be computed there, of any values."""
    source, place = _place(fusion, definition, index)
    ranges = {str(iteration_symbol(k)): (0, a.extent - 1) for k, a in enumerate(reader.root)}
    ranges |= {str(value_symbol(k)): (0, n - 1) for k, n in enumerate(definition.extents)}
    facts = fusion.facts().with_ranges(ranges)
    return all(prove(and_(ge(e, 0), lt(e, n)), facts) for e, n in zip(place, source.shape, strict=True))


def _place(fusion: Fusion, definition: Gather, index: Sequence[Expr]) -> tuple[TensorView, tuple[Expr, ...]]:
    """The table of a gather, and where the gather reads it for its element at ``index``."""
    source = definition.operands[0]
    assert isinstance(source, Read)
    source = resolve(fusion, source)
    at = {f"i{k}": e for k, e in enumerate(index)}
    return source.tensor, tuple(substitute(e, at) for e in source.index)


def _is_computed(index: Sequence[Expr]) -> bool:
    """True for an index that contains values."""
    return any(is_value_symbol(name) for e in index for name in e.free)


def _definition(call: Call, reader: TensorView, first: TensorView, stored: Sequence[TensorView]) -> MathExpr:
    """The definition of a reader, if :func:`recompute` may change its operands."""
    definition = call.tv.fusion.definition(reader)
    assert definition is not None
    if isinstance(definition, Assemble):
        raise call.error(f"{reader.name} is assembled from its parts and executes nothing", "leave it to the readers of the result")
    if table(call.tv.fusion, definition) is call.tv and not is_gathered_elementwise(call.tv.fusion, definition, stored):
        raise call.error(f"{reader.name} reads it at computed indices: every element may be needed", "leave it in memory; recompute its readers")
    for producer in inlined_producers(reader):
        raise call.error(f"{producer.name} is inlined into {reader.name} at {producer.schedule.inline}", f"recompute first, or {producer.name}.inline_at(0)")
    if [a.extent for a in reader.root] != [a.extent for a in first.root]:
        raise call.error(f"{first.name} and {reader.name} do not run over the same extents", "call it once for each")
    return definition


class _Clones:
    """Tensors over the iteration space of a reader."""

    def __init__(self, reader: TensorView, asked: TensorView, stored: frozenset[TensorView]) -> None:
        self.reader = reader
        self.asked = asked
        self._stored = stored - {asked}
        self.fusion: Fusion = reader.fusion
        self.here = iteration_point(len(reader.root))
        self._made: dict[tuple[TensorView, Point], TensorView] = {}
        self._values: tuple[Operand, ...] = ()
        self._extents: tuple[Expr, ...] = ()

    def gathered(self, definition: Gather) -> TensorView:
        """Let a gather of a computed table be what its tensor is of gathered inputs, 0 where there is no element. Returns that tensor."""
        source, *values = storage_operands(self.fusion, definition)
        assert isinstance(source, Read)
        self._made, self._values, self._extents = {}, tuple(values), definition.extents
        found = self.of(source.tensor, source.index, TRUE)
        conditions: list[TensorView] = []
        for value, extent in zip(values, definition.extents, strict=True):
            for op, bound in (("ge", -extent), ("lt", extent)):
                conditions.append(self._condition(op, (value, IndexValue(bound))))
        exists = conditions[0]
        for other in conditions[1:]:
            exists = self._condition("logical_and", (Read(exists, self.here), Read(other, self.here)))
        chosen = (Read(exists, self.here), Read(found, self.here), _nothing(source.tensor))
        self.fusion.define(Pointwise(definition.output, ELEMENTWISE["where"], chosen, definition.location))
        return found

    def _condition(self, op: str, operands: tuple[Operand, ...]) -> TensorView:
        new = self.fusion.new_tensor([axis(a.extent) for a in self.reader.root], bool_, location=caller(), origin=self.reader)
        join_task(new, self.reader)
        return self.fusion.define(Pointwise(new, ELEMENTWISE[op], operands, new.location))

    def _picked(self, tv: TensorView, place: tuple[Expr, ...]) -> TensorView:
        """The elements of a table at the values of the gather."""
        key = (tv, (place, TRUE))
        if key not in self._made:
            self._made[key] = self.fusion.define(Gather(self._new(tv), (Read(tv, place), *self._values), self._extents, caller()))
        return self._made[key]

    def of(self, tv: TensorView, index: tuple[Expr, ...], valid: Expr) -> TensorView:
        """A tensor whose element at each point of the reader is that of ``tv`` at ``index``, if ``valid``; anything otherwise."""
        key = (tv, (index, valid))
        if key not in self._made:
            definition = self.fusion.definition(tv)
            operands: tuple[Operand, ...]
            match definition:
                case _ if tv in self._stored:
                    made = self._leaf(tv, index, valid)
                case Pointwise(operands=given) | FirstValid(operands=given):
                    operands = tuple(self._operand(o, index, valid) for o in given)
                    if isinstance(definition, FirstValid) and valid is not TRUE and isinstance(given[-1], Read):
                        operands = (*operands, _nothing(tv))  # where the element does not exist, no part has it
                    made = self._define(tv, definition, operands)
                case Gather() if valid is TRUE or is_place_everywhere(self.fusion, definition, index, self.reader):
                    made = self._gather(tv, definition, index, valid)
                case Scan() if tv is self.asked and valid is TRUE and self._is_here(tv, index):
                    made = self._scan(tv, definition)
                case Reduction() | Fold() if tv is self.asked:
                    made = self._reduction(tv, definition, index, valid)
                case _:
                    made = self._leaf(tv, index, valid)
            self._made[key] = made
        return self._made[key]

    def _gather(self, tv: TensorView, definition: Gather, index: tuple[Expr, ...], valid: Expr) -> TensorView:
        """The elements that belong to the reader's points, of whatever values where there are none."""
        _, *values = definition.operands
        source, place = _place(self.fusion, definition, index)
        new, operands = self._new(tv), tuple(self._operand(o, index, valid) for o in values)
        return self.fusion.define(Gather(new, (Read(source, place), *operands), definition.extents, caller()))

    def _is_here(self, tv: TensorView, index: tuple[Expr, ...]) -> bool:
        """True if the reader's points are those of ``tv``, each at its own."""
        return index == self.here and all(a.extent is b.extent for a, b in zip(tv.root, self.reader.root, strict=True))

    def _scan(self, tv: TensorView, definition: Scan) -> TensorView:
        new, operands = self._new(tv), tuple(self._operand(o, self.here, TRUE) for o in definition.operands)
        return self.fusion.define(Scan(new, definition.combine, operands, definition.axis, caller(), definition.is_exclusive, definition.start))

    def _reduction(self, tv: TensorView, definition: Reduction | Fold, index: tuple[Expr, ...], valid: Expr) -> TensorView:
        """The same reduction or fold for each point of the reader; of anything, where its result does not exist.

        A reduction loses axes of one element if others remain.
        """
        if isinstance(definition, Reduction):
            Call("recompute", tv).reduction()
        every = [a for a in tv.root if a.is_reduction]
        reduced = [a for a in every if a.extent is not ONE]
        if isinstance(definition, Fold) or (not reduced and not reduces_one(self.fusion, definition)):
            reduced = every
        new, location = self._new(tv, tuple(axis(a.extent, a.kind) for a in reduced)), caller()
        results, own = iter(index), iter(iteration_symbol(len(self.reader.root) + k) for k in range(len(reduced)))
        at = tuple(next(results) if not a.is_reduction else next(own) if a in reduced else ZERO for a in tv.root)
        operands = tuple(self._moved(o, at, new, valid) for o in definition.operands)
        if isinstance(definition, Fold):
            return self.fusion.define(Fold(new, definition.step, operands, len(self.reader.root), definition.init, location))
        if not reduced:
            is_cast = definition.body is ELEMENTWISE["copy"]
            return self.fusion.define(Pointwise(new, ELEMENTWISE["cast"] if is_cast else definition.body, operands, location))
        return self.fusion.define(Reduction(new, definition.combine, definition.body, operands, definition.init, location))

    def _moved(self, operand: Operand, index: tuple[Expr, ...], reduction: TensorView, valid: Expr) -> Operand:
        at = {f"i{k}": e for k, e in enumerate(index)}
        match operand:
            case Read():
                read = resolve(self.fusion, operand)
                facts = self.fusion.facts().with_ranges({str(iteration_symbol(k)): (0, a.extent - 1) for k, a in enumerate(reduction.root)})
                moved = Read(read.tensor, tuple(simplify(substitute(e, at), facts) for e in read.index), valid)
                return moved if valid is TRUE else Read(self._padded(moved, reduction), iteration_point(len(reduction.root)))
            case _:
                return at_point(operand, at)

    def _padded(self, read: Read, reader: TensorView) -> TensorView:
        """A tensor with what ``reader`` reads, padded with 0."""
        new = self.fusion.new_tensor([axis(a.extent) for a in reader.root], read.tensor.dtype, location=caller(), origin=read.tensor)
        join_task(new, reader)
        return self.fusion.define(FirstValid(new, "pad", (read, _nothing(read.tensor)), new.location))

    def _operand(self, operand: Operand, index: tuple[Expr, ...], valid: Expr) -> Operand:
        at = {f"i{k}": e for k, e in enumerate(index)}
        match operand:
            case Read():
                read = resolve(self.fusion, operand)
                own = substitute(read.valid, at)
                place, exists = tuple(substitute(e, at) for e in read.index), and_(valid, own)
                if self._is_leaf(read.tensor) and _is_computed(place):
                    return Read(self._picked(read.tensor, place), self.here)
                if self._is_leaf(read.tensor) and exists is own:
                    return Read(read.tensor, place, own)
                return Read(self.of(read.tensor, place, exists), self.here, own)
            case _:
                return at_point(operand, at)

    def _is_leaf(self, tv: TensorView) -> bool:
        return tv in self._stored or not isinstance(self.fusion.definition(tv), Pointwise | FirstValid | Gather)

    def _leaf(self, tv: TensorView, index: tuple[Expr, ...], valid: Expr) -> TensorView:
        """A copy; of nothing, where the element does not exist."""
        new, location, valid = self._new(tv), caller(), self._existing(tv, index, valid)
        if valid is TRUE:
            return self.fusion.define(Pointwise(new, ELEMENTWISE["copy"], (Read(tv, index),), location))
        return self.fusion.define(FirstValid(new, "pad", (Read(tv, index, valid), _nothing(tv)), location))

    def _existing(self, tv: TensorView, index: tuple[Expr, ...], valid: Expr) -> Expr:
        """A weaker condition under which the element exists: without those that leave out few points, the last ones along an axis, if elements exist at these,
        too. They are loaded, and nothing reads them."""
        extents = {str(iteration_symbol(k)): a.extent for k, a in enumerate(self.reader.root)}
        facts = self.fusion.facts().with_ranges({name: (0, extent - 1) for name, extent in extents.items()})
        left = conjuncts(valid) if tv.is_input else ()
        for condition in left:
            others = [c for c in left if c is not condition]
            (name, *more) = [*condition.free & extents.keys()] or [""]
            extent = extents.get(name)
            if more or not isinstance(extent, Const) or condition.free & frozenset().union(*(c.free for c in others)):
                continue
            met = extent.value - min(VECTOR_BYTES, extent.value // FEW)
            moving = [(e, n) for e, n in zip(index, tv.shape, strict=True) if name in e.free]
            if prove(condition, facts.with_range(name, 0, met - 1)) and all(prove(and_(ge(e, 0), lt(e, n)), facts) for e, n in moving):
                left = tuple(others)
        return and_(*left) if tv.is_input else valid

    def _define(self, tv: TensorView, definition: Pointwise | FirstValid, operands: tuple[Operand, ...]) -> TensorView:
        new, location = self._new(tv), caller()
        expr: MathExpr
        match definition:
            case Pointwise():
                expr = Pointwise(new, definition.op, operands, location)
            case FirstValid():
                expr = FirstValid(new, definition.label, operands, location)
        return self.fusion.define(expr)

    def _new(self, tv: TensorView, reduced: tuple[Axis, ...] = ()) -> TensorView:
        new = self.fusion.new_tensor([*(axis(a.extent) for a in self.reader.root), *reduced], tv.dtype, location=caller(), origin=tv)
        join_task(new, self.reader)
        return new


def _nothing(tv: TensorView) -> Literal:
    return Literal(False if tv.dtype.is_bool else 0, tv.dtype)
