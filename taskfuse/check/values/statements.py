"""A write is right: the statement computes its tensor's definition at the claimed element, from operands that hold what the definition reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from taskfuse.check.bounded_variables import BoundedElement
from taskfuse.check.constraints import Constraints
from taskfuse.check.statement_tree import Node
from taskfuse.check.values.choices import case_that_holds, one_holds
from taskfuse.check.values.claims import Instructions, Place, taken
from taskfuse.check.values.neutral_terms import is_signed_zero
from taskfuse.check.values.questions import equal, inside, known_at, proves
from taskfuse.check.values.reaching_writes import ReachingWrites
from taskfuse.check.values.reductions import Reductions
from taskfuse.check.values.scans import Scans
from taskfuse.check.values.solve import Open
from taskfuse.check.values.term_bodies import body_of
from taskfuse.check.values.writes import Writes
from taskfuse.dtypes import DType
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.expr import is_same_number
from taskfuse.ir.scalar import TRUE, Expr, conjuncts, ge, lt, not_, substitute, sym
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.nodes import AsyncCopy, Choose, Compute, Gather, TmaLoad, TmaStore, Update, VectorCopy
from taskfuse.kir.operands import Access, ChoiceCase, Content, GatherValue, Holds, Immediate, IndexOf, Operand, ScalarValue
from taskfuse.kir.products import LdMatrix, Mma, StMatrix, Wgmma
from taskfuse.kir.witness import Accumulate, Apply, Find, Iterate, Pick, Reduce, Send

COPY, MUL = ELEMENTWISE["copy"], ELEMENTWISE["mul"]


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """A statement and what it claims."""

    node: Node
    holds: Holds
    place: Place


class CheckedStatements:
    """The writes of a kernel, one by one. Methods raise :class:`Open` for what is not known to be right."""

    def __init__(self, kernel: Kernel, writes: Writes, reads: ReachingWrites, instructions: Instructions, reductions: Reductions, scans: Scans) -> None:
        self.writes = writes
        self.reads = reads
        self.instructions = instructions
        self.reductions = reductions
        self.scans = scans
        self.dtypes: dict[str, DType] = {b.name: b.dtype for b in kernel.buffers} | {p.name: p.dtype for p in kernel.params if isinstance(p, TensorParam)}
        self.written: dict[Node, Written] = {}
        self._zeros: dict[Node, Open | None] = {}

    def check(self, w: Written) -> None:
        """A write is right wherever its element exists."""
        node, holds = w.node, w.holds
        definition = self.writes.definitions[holds.tensor]
        match holds.content:
            case Content.VALUE:
                if self.dtypes[w.place.buffer] is not definition.dtype:
                    raise Open(f"{w.place.buffer} has elements of {self.dtypes[w.place.buffer]}, {holds.tensor} of {definition.dtype}", node)
                self._value(w)
            case Content.BODY | Content.TERM:
                if not isinstance(definition.rule, Reduce | Accumulate | Iterate):
                    raise Open(f"{holds.tensor} is not a reduction", node)
                self._accumulated(w, definition.rule)
                self._term(w)
            case Content.RESCALED:
                self._rescaled(w, definition)
            case Content.ZERO:
                if not (isinstance(node.stmt, Compute) and node.stmt.op is COPY and _is_zero(node.stmt.operands[0])):
                    raise Open("it writes no zero", node)
            case Content.START | Content.PART:
                if not isinstance(definition.rule, Reduce | Accumulate | Iterate):
                    raise Open(f"{holds.tensor} is not a reduction", node)
                if holds.content is Content.PART and isinstance(definition.rule, Iterate):
                    raise Open(f"{holds.tensor} is a fold: its states are not joined", node)
                self._accumulated(w, definition.rule)
                stmt = node.stmt
                constant = isinstance(stmt, Compute) and stmt.op is COPY and isinstance(stmt.operands[0], Immediate)
                if holds.content is Content.START and not constant:
                    raise Open("an accumulator does not start with a constant", node)
                given = [o.dtype for o in stmt.operands if isinstance(o, Immediate)] if isinstance(stmt, Compute) else []
                self._computed(w, definition.rule.dtype, *given)

    def _accumulated(self, w: Written, rule: Reduce | Accumulate | Iterate) -> None:
        """Partial results have the dtype of their reduction."""
        if self.dtypes[w.place.buffer] is not rule.dtype:
            raise Open(f"it accumulates in {self.dtypes[w.place.buffer]}, not in {rule.dtype}", w.node)

    @staticmethod
    def _computed(w: Written, *dtypes: DType) -> None:
        """A partial result is copied as it is, not through another dtype; a result may be rounded to its own, and a number to the one that it has."""
        stmt = w.node.stmt
        if isinstance(stmt, Compute) and stmt.dtype not in dtypes:
            raise Open(f"it computes in {stmt.dtype}, not in {dtypes[0]}", w.node)

    # -- elements -------------------------------------------------------------------------------------------------------------------

    def _value(self, w: Written) -> None:
        definition = self.writes.definitions[w.holds.tensor]
        stmt = w.node.stmt
        exists = inside(w.holds.index, definition.shape)
        match definition.rule:
            case Reduce() | Iterate():
                if not (isinstance(stmt, Compute) and stmt.op is COPY and isinstance(stmt.operands[0], Access)):
                    raise Open("it is not a copy of an accumulator", w.node)
                self._computed(w, definition.rule.dtype, definition.dtype)
                self.reductions.complete(Place(w.node, stmt.operands[0].buffer, stmt.operands[0].index, w.holds.tensor, w.holds.index), exists)
            case Accumulate():
                if not (isinstance(stmt, Compute) and stmt.op is COPY and isinstance(stmt.operands[0], Access)):
                    raise Open("it is not a copy of a total", w.node)
                self._computed(w, definition.rule.dtype, definition.dtype)
                self.scans.complete(w.node, stmt.operands[0], w.holds)
            case Apply() as rule:
                if isinstance(stmt, Choose):
                    self._padded(w, stmt, rule, exists)
                elif isinstance(stmt, Compute):
                    if stmt.op is not rule.op or stmt.dtype is not rule.dtype:
                        raise Open(f"it computes {stmt.op.name} in {stmt.dtype}; {w.holds.tensor} is {rule.op.name} in {rule.dtype}", w.node)
                    self._operands(w.node, rule.op, stmt.operands, rule.operands, w.holds.index, exists)
                else:
                    self._copied(w, rule, exists, past=False)
            case Pick() as rule:
                self._picked(w, rule, exists)
            case Find() as rule:
                self._found(w, rule, exists)
            case Send() as rule:
                self._sent(w, rule, exists)
            case _:
                raise Open("its tensor is made of parts", w.node)

    def _operands(
        self,
        node: Node,
        op: Elementwise,
        operands: tuple[Operand, ...],
        wanted: tuple[Operand, ...],
        index: tuple[Expr, ...],
        given: Iterable[Expr],
        *,
        past: bool = False,
    ) -> None:
        """Operands are what the definition takes at an index: in its order, or the first two of a commutative function exchanged."""
        if len(operands) != len(wanted):
            raise Open(f"it has {len(operands)} operands in the place of {len(wanted)}", node)
        given = tuple(given)
        try:
            self._each(node, operands, wanted, index, given, past=past)
        except Open as error:
            if not op.commutative:
                raise
            try:
                self._each(node, (operands[1], operands[0], *operands[2:]), wanted, index, given, past=past)
            except Open:
                raise error from None

    def _each(
        self, node: Node, operands: tuple[Operand, ...], wanted: tuple[Operand, ...], index: tuple[Expr, ...], given: tuple[Expr, ...], *, past: bool
    ) -> None:
        for have, want in zip(operands, wanted, strict=True):
            self._operand(node, have, want, index, given, past=past)

    def _operand(self, node: Node, have: Operand, want: Operand, index: tuple[Expr, ...], given: tuple[Expr, ...], *, past: bool = False) -> None:
        """An operand is what the definition takes at an index."""
        point = {f"i{k}": e for k, e in enumerate(index)}
        match have, want:
            case Access(), Access():
                element = tuple(substitute(e, point) for e in want.index)
                self.read(self.instructions.read(node, have, want.buffer, element), given, past=past)
            case Immediate(), Immediate() if have == want:
                pass
            case ScalarValue(), ScalarValue() if have.name == want.name:
                pass
            case IndexOf(), IndexOf():
                wanted = substitute(want.value, point)
                if not equal(node.context.constraints.given(*given), have.value, wanted):
                    raise Open(f"it takes the index {have.value}, where {wanted} is wanted", node)
            case _:
                raise Open("an operand is another than its definition's", node)

    def read(self, want: Place, given: tuple[Expr, ...], *, past: bool = False) -> None:
        """A read finds what it must find; ``past``: or a zero where there is no such element."""
        if want.buffer in self.reductions.terms and self._is_reduction(want.tensor):
            if past:
                raise Open("an accumulator is read past the end", want.node)
            self.reductions.complete(want, given)
            return
        for hit in self.reads.found(want, given, past=past):
            if past:
                self.zero(hit)

    def _is_reduction(self, tensor: str) -> bool:
        definition = self.writes.definitions.get(tensor)
        return definition is not None and isinstance(definition.rule, Reduce | Iterate)

    # -- copies ---------------------------------------------------------------------------------------------------------------------

    def _copied(self, w: Written, rule: Apply, given: tuple[Expr, ...], *, past: bool) -> None:
        """A copy by an instruction of its own."""
        if rule.op is not COPY or not isinstance(rule.operands[0], Access):
            raise Open(f"it is a copy, and {w.holds.tensor} is {rule.op.name}", w.node)
        self._moved(w, rule.operands[0], given, past=past)

    def _moved(self, w: Written, source: Access, given: tuple[Expr, ...], *, past: bool) -> None:
        node, stmt, i = w.node, w.node.stmt, self.instructions
        element = self._element(source, w.holds)
        given = given if not past else ()
        match stmt:
            case Compute():
                self._operand(node, stmt.operands[0], source, w.holds.index, given, past=past)
                return
            case VectorCopy():
                want = i.vector(node, stmt.source, stmt.width, source.buffer, element)
            case AsyncCopy():
                if not past:
                    around = known_at(w.place).given(*inside(w.place.element, self.writes.shape(w.place.tensor)))
                    if not all(proves(around, c) for c in conjuncts(stmt.valid)):
                        raise Open(f"it writes a zero where {stmt.valid} fails, and elements exist there", node)
                want = i.vector(node, stmt.source, stmt.width, source.buffer, element)
            case TmaLoad():
                want = i.loaded_box(node, stmt, w.holds, element, source.buffer)
            case TmaStore():
                want = i.stored_box(node, stmt, Holds(source.buffer, w.holds.index, tile=w.holds.tile), element)
            case LdMatrix():
                want = i.matrix_rows(node, stmt, source.buffer, element)
            case StMatrix():
                want = i.matrix_registers(node, stmt, source.buffer, element)
            case _:
                raise Open("it is not a copy", node)
        if not past:  # in the terms of what the instruction touches
            given = inside(want.element, self.writes.shape(source.buffer))
        self.read(want, given, past=past)

    @staticmethod
    def _element(source: Access, holds: Holds) -> tuple[Expr, ...]:
        point = {f"i{k}": e for k, e in enumerate(holds.index)}
        return tuple(substitute(e, point) for e in source.index)

    def _padded(self, w: Written, stmt: Choose, rule: Apply, exists: tuple[Expr, ...]) -> None:
        """A copy with zeros in the place of elements that do not exist."""
        match stmt.cases:
            case (ChoiceCase(cond=cond, operand=operand), ChoiceCase(cond=other, operand=zero)) if rule.op is COPY and other is TRUE and _is_zero(zero):
                around = w.node.context.constraints.given(*exists)
                if not all(proves(around, c) for c in conjuncts(cond)):
                    raise Open(f"it writes a zero where {cond} fails, and elements exist there", w.node)
                self._operand(w.node, operand, rule.operands[0], w.holds.index, (*exists, cond))
            case _:
                raise Open("its cases are not those of a copy with zeros past the end", w.node)

    # -- choices and gathers ----------------------------------------------------------------------------------------------------------

    def _picked(self, w: Written, rule: Pick, exists: tuple[Expr, ...]) -> None:
        """Each case is the case of the definition that holds wherever it does."""
        stmt = w.node.stmt
        if isinstance(stmt, AsyncCopy):
            self._copied_or_zero(w, stmt, rule)
            return
        if isinstance(stmt, TmaLoad):
            self._first_case(w, rule)
            return
        if not isinstance(stmt, Choose):
            raise Open("it is not a choice", w.node)
        point = {f"i{k}": e for k, e in enumerate(w.holds.index)}
        conditions = [substitute(c.cond, point) for c in rule.cases]
        around = w.node.context.constraints.given(*exists)
        before: list[Expr] = []
        for case in stmt.cases:
            mine = (*before, *conjuncts(case.cond))
            here = around.given(*mine)
            before.append(not_(case.cond))
            if here.empty or proves(around.given(*before[:-1]), not_(case.cond)):
                continue
            self._operand(w.node, case.operand, case_that_holds(w.node, rule, conditions, here, {*mine}), w.holds.index, (*exists, *mine))
        if not one_holds(w.node.context.constraints, [c.cond for c in stmt.cases]):
            raise Open("in some place no case of its choice may hold", w.node)

    def _copied_or_zero(self, w: Written, stmt: AsyncCopy, rule: Pick) -> None:
        """A copy of the elements of one case, with zeros where it does not hold."""
        own, around = self._own(w)
        held = conjuncts(stmt.valid)
        source = self._source(own, rule, around, held)
        if not isinstance(source, Access):
            raise Open(f"it is a copy, and {w.holds.tensor} is a constant there", w.node)
        for k, c in enumerate(held):
            failing = (*held[:k], not_(c))
            here = around.given(*failing)
            if not here.empty and not proves(around.given(*held[:k]), c) and not _is_plus_zero(self._source(own, rule, around, failing)):
                raise Open(f"it writes a zero where {stmt.valid} fails, and elements exist there", w.node)
        want = self.instructions.vector(w.node, stmt.source, stmt.width, source.buffer, self._element(source, w.holds))
        self.read(want, (*held, *inside(want.element, self.writes.shape(source.buffer))), past=False)

    def _own(self, w: Written) -> tuple[Place, Constraints]:
        """What is written as elements of the tensor that the claim names, which its definition is about, and not of one that it is a part of."""
        own = self.instructions.written(w.node, w.holds)
        return own, known_at(own).given(*inside(own.element, self.writes.shape(own.tensor)))

    @staticmethod
    def _source(own: Place, rule: Pick, around: Constraints, given: Sequence[Expr]) -> Operand:
        """The operand of the case that holds where some conditions do."""
        point = {f"i{k}": e for k, e in enumerate(own.element)}
        conditions = [substitute(c.cond, point) for c in rule.cases]
        return case_that_holds(own.node, rule, conditions, around.given(*given), {*given})

    def _first_case(self, w: Written, rule: Pick) -> None:
        """A bulk copy brings what the first case of the definition says, which holds for all elements of the box that exist.

        Where that is an element behind the end of what is copied, the engine writes 0, which must be the other case.
        """
        match rule.cases:
            case (ChoiceCase(cond=cond, operand=Access() as source), ChoiceCase(cond=other, operand=zero)) if other is TRUE and _is_plus_zero(zero):
                pass
            case _:
                raise Open("its tensor is not a part of another one, and zeros", w.node)
        own, around = self._own(w)
        point = {f"i{k}": e for k, e in enumerate(own.element)}
        ends = {lt(e, n) for e, n in zip(source.index, self.writes.shape(source.buffer), strict=True)}
        for c in conjuncts(cond):
            if c not in ends and not proves(around, substitute(c, point)):
                raise Open(f"it copies whole boxes, and {w.holds.tensor} is zero where {substitute(c, point)} fails", w.node)
        self._moved(w, source, (), past=False)

    def _found(self, w: Written, rule: Find, exists: tuple[Expr, ...]) -> None:
        stmt = w.node.stmt
        if not isinstance(stmt, Gather) or len(stmt.values) != len(rule.values):
            raise Open("it is not a gather of as many values", w.node)
        point = {f"i{k}": e for k, e in enumerate(w.holds.index)}
        self._values(w, stmt.values, rule, exists)
        symbols = {f"v{k}": sym(v.symbol) for k, v in enumerate(stmt.values)}
        there = (c for v in stmt.values for c in (ge(sym(v.symbol), 0), lt(sym(v.symbol), v.extent)))  # elsewhere both find 0
        element = tuple(substitute(e, {**point, **symbols}) for e in rule.source.index)
        want = self.instructions.vector(w.node, stmt.source, stmt.width, rule.source.buffer, element)
        self.read(want, (*exists, *there))

    def _values(self, w: Written, values: tuple[GatherValue, ...], rule: Find | Send, exists: tuple[Expr, ...]) -> None:
        """The integers that say an index are those of the definition."""
        for k, (value, want, extent) in enumerate(zip(values, rule.values, rule.extents, strict=True)):
            if value.extent is not extent and not equal(w.node.context.constraints, value.extent, extent):
                raise Open(f"value {k} counts in {value.extent}, not in {extent}", w.node)
            self._operand(w.node, value.source, want, w.holds.index, exists)

    def _sent(self, w: Written, rule: Send, exists: tuple[Expr, ...]) -> None:
        """An update combines what the definition does, with the element that it names (:mod:`taskfuse.check.values.updates`)."""
        stmt = w.node.stmt
        if not isinstance(stmt, Update) or len(stmt.values) != len(rule.values):
            raise Open("it is not an update at as many values", w.node)
        if stmt.combine is not rule.combine:
            raise Open(f"it combines by {stmt.combine}, and {w.holds.tensor} is combined by {rule.combine}", w.node)
        if w.place.buffer not in self.writes.updated:
            raise Open(f"{w.place.buffer} is no tensor that something is sent to", w.node)
        self._values(w, stmt.values, rule, exists)
        self._operand(w.node, stmt.source, rule.operand, w.holds.index, exists)

    # -- terms ------------------------------------------------------------------------------------------------------------------------

    def _term(self, w: Written) -> None:
        """A term of a reduction or a scan, or one that is added."""
        definition = self.writes.definitions[w.holds.tensor]
        rule, stmt, node = definition.rule, w.node.stmt, w.node
        point = {f"i{k}": e for k, e in enumerate(w.holds.index)}
        exists = (*inside(w.holds.index, definition.space), *inside((substitute(e, point) for e in definition.place), definition.shape))
        if isinstance(rule, Accumulate):
            step = taken(stmt, rule.combine)
            if step is None or not isinstance(stmt, Compute) or stmt.dtype is not rule.dtype:
                raise Open("it is not a step of its scan", node)
            self._operand(node, step, rule.operand, w.holds.index, exists)
            return
        if isinstance(rule, Iterate):
            if w.holds.content is Content.BODY or not isinstance(stmt, Compute) or stmt.op is not rule.op or stmt.dtype is not rule.dtype:
                raise Open("it is not a step of its fold", node)
            if stmt.operands[0] != stmt.out:
                raise Open("it takes a step from another state than the one that it writes", node)
            self._operands(node, rule.op, (Immediate(0, rule.dtype), *stmt.operands[1:]), (Immediate(0, rule.dtype), *rule.operands), w.holds.index, exists)
            return
        assert isinstance(rule, Reduce)
        match body_of(w.node, w.holds, rule):
            case Place() as body:
                self.reads.found(body)
            case tuple() as operands:
                self._operands(node, rule.body, operands, rule.terms, w.holds.index, exists)
            case product:
                for side in self._sides(node, product, rule, w.holds):
                    self.read(side, ())

    def _rescaled(self, w: Written, definition: Definition) -> None:
        """What is summed up is multiplied, where it is, by the factor at the index."""
        rule, stmt, node = definition.rule, w.node.stmt, w.node
        if not isinstance(rule, Reduce) or rule.rescaled is None:
            raise Open(f"{w.holds.tensor} is not rescaled", node)
        self._accumulated(w, rule)
        if not isinstance(stmt, Compute) or stmt.op is not MUL or stmt.dtype is not rule.dtype or stmt.out not in stmt.operands:
            raise Open(f"it does not multiply an accumulator in {rule.dtype}", node)
        factor = stmt.operands[1] if stmt.operands[0] == stmt.out else stmt.operands[0]
        self._operand(node, factor, rule.operands[-1], w.holds.index, inside(w.holds.index, definition.indexed(Content.RESCALED)))

    def neutral(self, node: Node) -> None:
        """A term, or the body of one, adds nothing at a point past the end of its reduction: all factors of a sum of products are zeros there.

        None is taken at a point in front of the first.
        """
        w = self.written[node]
        definition = self.writes.definitions[w.holds.tensor]
        rule = definition.rule
        point = {f"i{k}": e for k, e in enumerate(w.holds.index)}
        kept = inside((substitute(e, point) for e in definition.place), definition.shape)
        around = known_at(w.place)
        points = (BoundedElement(sym(f"tile.{k}"), (0, n - 1)) for k, n in enumerate(w.holds.tile))
        front = around.given(*kept, *points)
        if not all(proves(front, ge(e, 0)) for e in w.holds.index):
            raise Open("terms before the first may be taken", node)
        beyond = [k for k, (e, n) in enumerate(zip(w.holds.index, definition.space, strict=True)) if not proves(around.given(*kept), lt(e, n))]
        if not beyond:
            return
        if not isinstance(rule, Reduce) or rule.combine.op is not ELEMENTWISE["add"] or rule.body not in (MUL, COPY):
            raise Open("terms past the end may be taken, and it is not a sum of products", node)
        if is_signed_zero(rule):
            raise Open("terms past the end may be taken: they add 0.0 to a sum that begins with -0.0", node)
        for want in rule.terms:
            if not isinstance(want, Access):
                raise Open("terms past the end may be taken, and a factor is not a tensor", node)
            shape = self.writes.shape(want.buffer)
            for k in beyond:
                if not any(e is sym(f"i{k}") and equal(around, n, definition.space[k]) for e, n in zip(want.index, shape, strict=True)):
                    raise Open(f"terms past the end of axis {k} may be taken, and {want.buffer} does not end there", node)
        match body_of(w.node, w.holds, rule):
            case Place() as body:
                for hit in self.reads.found(body, kept, past=True):
                    self.zero(hit)
            case tuple() as operands:
                self._operands(node, rule.body, operands, rule.terms, w.holds.index, kept, past=True)
            case product:
                for side in self._sides(node, product, rule, w.holds):
                    self.read(side, (), past=True)

    def _sides(self, node: Node, stmt: Wgmma | Mma, rule: Reduce, holds: Holds) -> Iterator[Place]:
        """The factors of a product of matrices: the one with its rows and the one with its columns."""
        factors = [o for o in rule.terms if isinstance(o, Access)]
        if len(factors) != 2 or len(rule.terms) != 2:
            raise Open("its factors are not tensors", node)
        elements = [self._element(f, holds) for f in factors]
        rows = next((k for k, e in enumerate(elements) if any("tile.0" in x.free for x in e)), 0)
        for side, k in ((0, rows), (1, 1 - rows)):
            yield self.instructions.fragment(node, stmt, side, factors[k].buffer, elements[k])

    # -- zeros past the end -----------------------------------------------------------------------------------------------------------

    def zero(self, place: Place) -> None:
        """A write leaves a zero wherever its element, or the point of its body, does not exist."""
        node = place.node
        if node not in self._zeros:
            self._zeros[node] = None  # a copy of itself, if it comes back here
            try:
                self._zero(self.written[node])
            except Open as error:
                self._zeros[node] = error
        error = self._zeros[node]
        if error is not None:
            raise error

    def _zero(self, w: Written) -> None:
        stmt, node = w.node.stmt, w.node
        if w.holds.content is Content.BODY:
            self.neutral(node)
            return
        definition = self.writes.definitions[w.holds.tensor]
        rule = definition.rule
        exists = inside(w.place.element, self.writes.shape(w.place.tensor))
        around = known_at(w.place)
        if all(proves(around, c) for c in exists):
            return
        match stmt:
            case AsyncCopy() if all(proves(around.given(*conjuncts(stmt.valid)), c) for c in exists):
                return
            case Choose(cases=(ChoiceCase(cond=cond), ChoiceCase(operand=zero))) if _is_zero(zero) and all(
                proves(around.given(*conjuncts(cond)), c) for c in exists
            ):
                return
            case _:
                pass
        source = rule.operands[0] if isinstance(rule, Apply) and rule.op is COPY else None
        if not isinstance(source, Access):
            raise Open(f"what it writes past the end of {w.holds.tensor} may be other than zero", node)
        shape = self.writes.shape(source.buffer)
        for k, n in enumerate(definition.shape):
            if not any(e is sym(f"i{k}") and equal(around, n, m) for e, m in zip(source.index, shape, strict=True)):
                raise Open(f"{source.buffer} does not end where {w.holds.tensor} does on axis {k}", node)
        self._moved(w, source, (), past=True)


def _is_plus_zero(operand: Operand) -> bool:
    """True for the bits that copies write in the place of what does not exist."""
    return isinstance(operand, Immediate) and is_same_number(operand.value, 0)


def _is_zero(operand: Operand) -> bool:
    return isinstance(operand, Immediate) and not operand.value
