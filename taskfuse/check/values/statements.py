"""A write is right: the statement computes its tensor's definition at the claimed element, from operands that hold what the definition reads."""

from __future__ import annotations

from taskfuse.check.statement_tree import Node
from taskfuse.check.values.checked_terms import CheckedTerms, only_along
from taskfuse.check.values.choices import CheckedChoices, is_plus_zero, is_zero
from taskfuse.check.values.claims import ClaimedWrite, Instructions, Place
from taskfuse.check.values.operands import COPY, CheckedOperands, element_of
from taskfuse.check.values.questions import equal, inside, known_at, proves
from taskfuse.check.values.reaching_writes import ReachingWrites
from taskfuse.check.values.reductions import Reductions
from taskfuse.check.values.scans import Scans
from taskfuse.check.values.solve import Open
from taskfuse.check.values.writes import Writes
from taskfuse.dtypes import DType, converts_once
from taskfuse.ir.scalar import TRUE, Expr, conjuncts, ge, lt, simplify, substitute, sym
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Choose, Compute, GatherCopy, TmaLoad, TmaStore
from taskfuse.kir.operands import Access, ChoiceCase, Content, GatherValue, Immediate
from taskfuse.kir.witness import Accumulate, Apply, Find, Iterate, Pick, Reduce, Send


class CheckedStatements:
    """The writes of a kernel, one by one. Methods raise :class:`Open` if a write is not proved right."""

    def __init__(self, kernel: Kernel, writes: Writes, reads: ReachingWrites, instructions: Instructions, reductions: Reductions, scans: Scans) -> None:
        self.writes = writes
        self.instructions = instructions
        self.reductions = reductions
        self.scans = scans
        self.operands = CheckedOperands(writes, reads, instructions, reductions, self)
        self.choices = CheckedChoices(self.operands)
        self.terms = CheckedTerms(self.operands)
        self.dtypes: dict[str, DType] = {b.name: b.dtype for b in kernel.buffers} | {p.name: p.dtype for p in kernel.params if isinstance(p, TensorParam)}
        self.written: dict[Node, ClaimedWrite] = {}
        self._zeros: dict[tuple[Node, frozenset[int] | None], Open | None] = {}

    def check(self, w: ClaimedWrite) -> None:
        """A write is right wherever its element exists and is read."""
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
                self.terms.term(w)
            case Content.RESCALED:
                if isinstance(definition.rule, Reduce):
                    self._accumulated(w, definition.rule)
                self.terms.rescaled(w, definition)
            case Content.ZERO:
                if not (isinstance(node.stmt, Compute) and node.stmt.op is COPY and is_zero(node.stmt.operands[0])):
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

    def _accumulated(self, w: ClaimedWrite, rule: Reduce | Accumulate | Iterate) -> None:
        """Partial results have the dtype of their reduction."""
        if self.dtypes[w.place.buffer] is not rule.dtype:
            raise Open(f"it accumulates in {self.dtypes[w.place.buffer]}, not in {rule.dtype}", w.node)

    @staticmethod
    def _computed(w: ClaimedWrite, *dtypes: DType) -> None:
        """A partial result is copied as it is, not through another dtype; a result may be rounded to its own, and a number to the one that it has."""
        stmt = w.node.stmt
        if isinstance(stmt, Compute) and stmt.dtype not in dtypes:
            raise Open(f"it computes in {stmt.dtype}, not in {dtypes[0]}", w.node)

    # -- elements -------------------------------------------------------------------------------------------------------------------

    def _value(self, w: ClaimedWrite) -> None:
        definition = self.writes.definitions[w.holds.tensor]
        stmt = w.node.stmt
        read = self.writes.read_elements.conditions(w.holds.tensor, w.holds.index)
        exists = (*inside(w.holds.index, definition.shape), *(simplify(c, w.node.context.facts) for c in read))
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
                    self._identical(w, rule, definition.dtype)
                    self.choices.padded(w, stmt, rule, exists)
                elif isinstance(stmt, Compute):
                    if stmt.op is not rule.op or stmt.dtype is not rule.dtype:
                        raise Open(f"it computes {stmt.op.name} in {stmt.dtype}; {w.holds.tensor} is {rule.op.name} in {rule.dtype}", w.node)
                    self.operands.match(w.node, rule.op, stmt.operands, rule.operands, w.holds.index, exists)
                else:
                    self._copied(w, rule, exists)
            case Pick() as rule:
                self.choices.picked(w, rule, exists)
            case Find() as rule:
                self._found(w, rule, exists)
            case Send() as rule:
                self._sent(w, rule, exists)
            case _:
                raise Open("its tensor is made of parts", w.node)

    def _copied(self, w: ClaimedWrite, rule: Apply, given: tuple[Expr, ...]) -> None:
        """A copy by an instruction of its own."""
        if rule.op is not COPY or not isinstance(rule.operands[0], Access):
            raise Open(f"it is a copy, and {w.holds.tensor} is {rule.op.name}", w.node)
        self._identical(w, rule, self.writes.definitions[w.holds.tensor].dtype)
        self.operands.copied(w, rule.operands[0], given, past=False)

    def _identical(self, w: ClaimedWrite, rule: Apply, dtype: DType) -> None:
        """Check that a copy of an element needs no computation in a dtype that would change it."""
        source = rule.operands[0]
        if isinstance(source, Access) and not converts_once(rule.dtype, self.writes.dtype(source.buffer), dtype):
            raise Open(f"it copies, and {w.holds.tensor} is {rule.op.name} in {rule.dtype}", w.node)

    # -- values that say an index -----------------------------------------------------------------------------------------------------

    def _found(self, w: ClaimedWrite, rule: Find, exists: tuple[Expr, ...]) -> None:
        stmt = w.node.stmt
        if not isinstance(stmt, GatherCopy) or len(stmt.values) != len(rule.values):
            raise Open("it is not a gather of as many values", w.node)
        point = {f"i{k}": e for k, e in enumerate(w.holds.index)}
        self._values(w, stmt.values, rule, exists)
        symbols = {f"v{k}": sym(v.symbol) for k, v in enumerate(stmt.values)}
        there = (c for v in stmt.values for c in (ge(sym(v.symbol), 0), lt(sym(v.symbol), v.extent)))  # elsewhere both find 0
        element = tuple(substitute(e, {**point, **symbols}) for e in rule.source.index)
        want = self.instructions.vector(w.node, stmt.source, stmt.width, rule.source.buffer, element)
        self.operands.read(want, (*exists, *there))

    def _values(self, w: ClaimedWrite, values: tuple[GatherValue, ...], rule: Find | Send, exists: tuple[Expr, ...]) -> None:
        """The integers that say an index are those of the definition."""
        for k, (value, want, extent) in enumerate(zip(values, rule.values, rule.extents, strict=True)):
            if value.extent is not extent and not equal(w.node.context.constraints, value.extent, extent):
                raise Open(f"value {k} counts in {value.extent}, not in {extent}", w.node)
            self.operands.match_one(w.node, value.source, want, w.holds.index, exists)

    def _sent(self, w: ClaimedWrite, rule: Send, exists: tuple[Expr, ...]) -> None:
        """An update combines what the definition does, with the element that it names (:mod:`taskfuse.check.values.updates`)."""
        stmt = w.node.stmt
        values = stmt.values if isinstance(stmt, AtomicUpdate) else ()
        if not isinstance(stmt, AtomicUpdate | TmaStore) or stmt.combine is None or len(values) != len(rule.values):
            raise Open("it is not an update at as many values", w.node)
        if stmt.combine is not rule.combine:
            raise Open(f"it combines by {stmt.combine}, and {w.holds.tensor} is combined by {rule.combine}", w.node)
        if w.place.buffer not in self.writes.updated:
            raise Open(f"{w.place.buffer} is not a tensor that something is sent to", w.node)
        self._values(w, values, rule, exists)
        if isinstance(stmt, AtomicUpdate) and stmt.width == 1:
            self.operands.match_one(w.node, stmt.source, rule.operand, w.holds.index, exists)
            return
        if not isinstance(rule.operand, Access):
            raise Open("it sends elements of an array, and its definition none", w.node)
        element = element_of(rule.operand, w.holds)
        if isinstance(stmt, AtomicUpdate):
            want = self.instructions.vector(w.node, stmt.source, stmt.width, rule.operand.buffer, element)
        else:
            want = self.instructions.stored_box(w.node, stmt, w.holds, rule.operand.buffer, element)
        self.operands.read(want, inside(want.element, self.writes.shape(rule.operand.buffer)))

    # -- zeros past the end -----------------------------------------------------------------------------------------------------------

    def zero(self, place: Place, along: frozenset[int] | None = None) -> None:
        """A write leaves a zero wherever its element, or the point of its body, does not exist.

        Args:
            along: only where its index is out of bounds on some of these axes, and in bounds on all others.
        """
        key = place.node, along
        if key not in self._zeros:
            self._zeros[key] = None  # a copy of itself, if it comes back here
            try:
                self._zero(self.written[place.node], along)
            except Open as error:
                self._zeros[key] = error.again()
        error = self._zeros[key]
        if error is not None:
            raise error.again()

    def _zero(self, w: ClaimedWrite, along: frozenset[int] | None) -> None:
        stmt, node = w.node.stmt, w.node
        if w.holds.content is Content.BODY:
            self.terms.neutral(w)
            return
        definition = self.writes.definitions[w.holds.tensor]
        rule = definition.rule
        axes = [inside((e,), (n,)) for e, n in zip(w.place.element, self.writes.shape(w.place.tensor), strict=True)]
        exists = tuple(c for k, own in enumerate(axes) if along is None or k in along for c in own)
        around = known_at(w.place)
        if along is not None:
            around = around.given(*(c for k, own in enumerate(axes) if k not in along for c in own))
        if all(proves(around, c) for c in exists):
            return
        match stmt:
            case AsyncCopy() if all(proves(around.given(*conjuncts(stmt.valid)), c) for c in exists):
                return
            case Choose(cases=(ChoiceCase(cond=cond), ChoiceCase(operand=zero))) if is_zero(zero) and all(
                proves(around.given(*conjuncts(cond)), c) for c in exists
            ):
                return
            case _:
                pass
        match stmt, rule:
            case _, Apply(operands=(source, *_)) if rule.op is COPY:
                pass
            case TmaLoad(), Pick(cases=(ChoiceCase(operand=source), ChoiceCase(cond=other, operand=zero))) if other is TRUE and is_plus_zero(zero):
                pass  # a bulk copy brings what the first case says: :meth:`CheckedChoices.picked`
            case _:
                source = None
        if not isinstance(source, Access):
            raise Open(f"what it writes past the end of {w.holds.tensor} may be other than zero", node)
        shape = self.writes.shape(source.buffer)
        ends: set[int] = set()
        for k, n in enumerate(definition.shape):
            if (along is not None and k not in along) or all(proves(around, c) for c in axes[k]):
                continue  # what does not exist lies past the end of another axis
            found = [d for d, (e, m) in enumerate(zip(source.index, shape, strict=True)) if e is sym(f"i{k}") and equal(around, n, m)]
            if not found:
                raise Open(f"{source.buffer} does not end where {w.holds.tensor} does on axis {k}", node)
            ends.update(found)
        self.operands.copied(w, source, (), past=True, along=None if along is None else only_along(source.index, ends))
