"""Reading the fusion text: from tokens to the records of ``syntax``. docs/fusion-text.md has the grammar; each method is a rule of it."""

from __future__ import annotations

from dataclasses import replace

from taskfuse.dtypes import DTYPES, DType
from taskfuse.ir.axes import AxisKind, iteration_position, value_symbol
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.dims import Dim
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.expr import IndexValue, Literal
from taskfuse.ir.reader import PARALLEL_TYPES, FusionReader, by_value
from taskfuse.ir.scalar import TRUE, ZERO, Const, Expr, Token, TokenKind, const, sym
from taskfuse.ir.schedule_grammar import read_schedule
from taskfuse.ir.syntax import (
    AXIS_KINDS,
    CONSTANTS,
    EXCLUSIVE,
    INDEX,
    INTO,
    RESCALED,
    SINCE,
    STRIDES,
    TABLE,
    UNTIL,
    AssembleText,
    AxisText,
    DimText,
    FirstValidText,
    FoldText,
    FusionText,
    GatherText,
    GroupText,
    Keyword,
    Name,
    OperandText,
    PointwiseText,
    ReadText,
    ReductionText,
    ResultText,
    ScalarText,
    ScanText,
    TaskText,
    TensorText,
    UpdateText,
    ValueText,
    ValueWord,
    ViewText,
)
from taskfuse.ir.tables import BY, LENGTHS, RISING, SEARCHES, TableRange
from taskfuse.ir.tasks import CHOSEN
from taskfuse.ir.types import PlaceSearch

_DIM_FACTS = ("min", "max", "multiple_of")


def read_fusion(text: str) -> FusionText:
    """The lines of ``text``. Raises :class:`ParseError` where it leaves the grammar."""
    return _Grammar(text).fusion()


_KEYWORDS = by_value(Keyword)
_VALUE_WORDS = by_value(ValueWord)


class _Grammar(FusionReader):
    """Recursive descent over tokens."""

    # -- lines ----------------------------------------------------------------------------------------------------------------------

    def fusion(self) -> FusionText:
        self.expect(Keyword.FUSION.value)
        text = FusionText(self.name("fusion").text, [], [], [], [], [], None, None, [], [])
        self.end_line()
        while self.token.kind is not TokenKind.END:
            self.line(text)
            self.end_line()
        return text

    def line(self, text: FusionText) -> None:
        token = self.token
        keyword = _KEYWORDS.get(token.text) if token.kind is TokenKind.NAME else None
        if keyword is not None:
            self.position += 1
        match keyword:
            case None:
                text.tensors.append(self.definition())
            case Keyword.FUSION:
                raise token.error("a text holds one fusion")
            case Keyword.DIM:
                text.dims += self.some(self.dim)
            case Keyword.SCALAR:
                name = self.name("scalar")
                self.expect(":")
                text.scalars.append(ScalarText(name, self.dtype()))
            case Keyword.INTEGER:
                text.integers += self.some(lambda: self.name("dimension"))
            case Keyword.INPUT:
                text.tensors.append(self.provenance(self.declared(self.head())))
            case Keyword.OUTPUT:
                text.outputs += self.some(self.result)
            case Keyword.ORDER:
                if text.order is not None:
                    raise token.error("there is an ORDER line already")
                text.order = (token, self.some(self.tensor_name))
            case Keyword.RESIDENT:
                if text.resident is not None:
                    raise token.error("there is a RESIDENT line already")
                text.resident = (token, self.integer())
            case Keyword.SCHEDULE:
                text.schedules.append(read_schedule(self))
            case Keyword.TASK:
                name = self.name("task")
                self.expect("=")
                text.nodes.append(TaskText(name, self.some(self.tensor_name), self.budget()))
            case Keyword.GROUP:
                text.nodes.append(self.group())

    def dim(self) -> DimText:
        name = self.name("dimension")
        facts: dict[str, int] = {}
        bound: Expr | None = None
        while self.at(*_DIM_FACTS):
            token = self.advance()
            if token.text in facts or (token.text == "max" and bound is not None):
                raise token.error(f"'{token.text}' of dimension '{name.text}' is given twice")
            found = self.expression() if token.text == "max" else const(self.integer())
            if isinstance(found, Const):
                facts[token.text] = found.value
            else:
                bound = found
        return DimText(name, Dim(name.text, **facts, bound=bound))

    def group(self) -> GroupText:
        name = self.name("group")
        self.expect("=")
        members = self.some(lambda: self.name("task or group"))
        ptype = self.word("parallel type", PARALLEL_TYPES) if self.take("on") else None
        pingpong = self.axis_name() if self.take("pingpong") else None
        return GroupText(name, members, ptype, pingpong, self.budget())

    def budget(self) -> int | None:
        if not self.take("registers"):
            return None
        return CHOSEN if self.take("chosen") else self.integer()

    # -- tensors --------------------------------------------------------------------------------------------------------------------

    def dtype(self) -> DType:
        return self.word("dtype", DTYPES)

    def head(self) -> TensorText:
        name = self.tensor_name()
        self.expect(":")
        dtype = self.dtype()
        shape = self.bracketed(self.expression)
        root = self.bracketed(self.root_axis) if self.take("root") else None
        return TensorText(name, dtype, shape, root)

    def declared(self, text: TensorText) -> TensorText:
        """The clauses of an input after its shape."""
        strides = self.bracketed(self.expression) if self.take(STRIDES) else None
        return replace(text, strides=strides, table=self.table() if self.take(TABLE) else None)

    def table(self) -> TableRange:
        low = self.expression()
        self.expect("..")
        high, rises = self.expression(), self.take(RISING)
        lengths = not rises and self.take(LENGTHS)
        search = self.word("kind of search", SEARCHES) if self.take(BY) else PlaceSearch.BISECTION
        return TableRange(low, high, rises, search, self.expression() if self.take("=") else None, lengths)

    def result(self) -> ResultText:
        name = self.tensor_name()
        strides = self.bracketed(self.expression) if self.take(STRIDES) else None
        return ResultText(name, strides, self.tensor_name() if self.take(INTO) else None)

    def root_axis(self) -> AxisText:
        extent = self.expression()
        if self.token.kind is not TokenKind.NAME:
            return AxisText(extent, AxisKind.ITERATION, None)
        kind = self.word("kind of axis", AXIS_KINDS)
        return AxisText(extent, kind, self.source())

    def definition(self) -> TensorText:
        text = self.head()
        self.expect("=")
        return self.provenance(replace(text, value=self.value(text.dtype)))

    def provenance(self, text: TensorText) -> TensorText:
        origin = self.tensor_name() if self.take("from") else None
        owner = self.tensor_name() if self.take("for") else None
        return replace(text, origin=origin, owner=owner)

    def value(self, dtype: DType) -> ValueText:
        word = _VALUE_WORDS.get(self.token.text)
        if word is None:
            op = self.elementwise()
            return PointwiseText(op, self.arguments(op, dtype))
        self.position += 1
        match word:
            case ValueWord.SELECT:
                label = self.name("selection").text
                return FirstValidText(label, self.bracketed(lambda: self.operand(dtype), "(", ")"))
            case ValueWord.VIEW:
                label = self.name("view").text
                self.expect("(")
                read = self.read(self.tensor_name())
                self.expect(")")
                return ViewText(label, read)
            case ValueWord.ASSEMBLE:
                parts = self.bracketed(self.part, "(", ")")
                return AssembleText(tuple(read for read, _ in parts), tuple(place for _, place in parts))
            case ValueWord.GATHER:
                self.expect("(")
                table = self.read(self.tensor_name())
                return GatherText(table, *self.found())
            case ValueWord.UPDATE:
                combine = self.word("combining function", COMBINES)
                self.expect("(")
                target = self.read(self.tensor_name())
                self.expect(",")
                return UpdateText(combine, target, self.operand(dtype), *self.found())
            case ValueWord.SCAN:
                combine = self.word("combining function", COMBINES)
                self.expect("of")
                operand = self.operand(dtype)
                self.expect("along")
                position, token = self.iteration()
                is_exclusive = self.take(EXCLUSIVE)
                return ScanText(combine, operand, position, is_exclusive, token, self.expression() if self.take(SINCE) else ZERO)
            case ValueWord.FOLD:
                return self.fold(dtype)
            case ValueWord.REDUCE:
                combine = self.word("combining function", COMBINES)
                self.expect("of")
                body = self.elementwise()
                operands = self.arguments(body, dtype)
                over = self.some(self.reduced) if self.take("over") else ()
                self.expect("init")
                init, rescaled = self.literal(dtype), None
                if self.take(RESCALED):
                    position, token = self.iteration()
                    self.expect("by")
                    rescaled = position, self.operand(dtype), token
                starts = self.some(self.start) if self.take(SINCE) else ()
                ends = self.some(self.end) if self.take(UNTIL) else ()
                return ReductionText(combine, body, operands, over, init, rescaled, ends, starts)

    def fold(self, dtype: DType) -> FoldText:
        step = self.elementwise()
        self.expect("of")
        token = self.token
        operands = self.bracketed(lambda: self.operand(dtype), "(", ")")
        if len(operands) + 1 != step.arity:
            raise token.error(f"'{step.name}' takes {step.arity} operands, and the first one is the state: {step.arity - 1}, not {len(operands)}")
        self.expect("along")
        position, token = self.iteration()
        over = ((position, self.expression(), token),) if self.take(":") else ()
        self.expect("init")
        return FoldText(step, operands, position, over, self.literal(dtype), token)

    def found(self) -> tuple[tuple[ReadText, ...], tuple[Expr, ...]]:
        """The values that have symbols, and what each counts in, up to the end of the operands."""
        values: list[ReadText] = []
        extents: list[Expr] = []
        while self.take(","):
            self.expect(str(value_symbol(len(values))))
            self.expect("=")
            values.append(self.read(self.tensor_name()))
            self.expect("of")
            extents.append(self.expression())
        self.expect(")")
        return tuple(values), tuple(extents)

    def elementwise(self) -> Elementwise:
        return self.word("elementwise function", ELEMENTWISE)

    def arguments(self, op: Elementwise, dtype: DType) -> tuple[OperandText, ...]:
        token = self.token
        operands = self.bracketed(lambda: self.operand(dtype), "(", ")")
        if len(operands) != op.arity:
            raise token.error(f"'{op.name}' takes {op.arity} operand{'s' if op.arity != 1 else ''}, not {len(operands)}")
        return operands

    def part(self) -> tuple[ReadText, tuple[Expr, ...]]:
        read = self.read(self.tensor_name())
        self.expect("->")
        return read, self.bracketed(self.expression)

    def reduced(self) -> tuple[int, Expr, Token]:
        position, token = self.iteration()
        self.expect(":")
        return position, self.expression(), token

    def start(self) -> tuple[int, Expr, Token]:
        position, token = self.iteration()
        self.expect(">=")
        return position, self.expression(), token

    def end(self) -> tuple[int, Expr, Token]:
        position, token = self.iteration()
        self.expect("<")
        return position, self.expression(), token

    def iteration(self) -> tuple[int, Token]:
        """The position of an iteration symbol."""
        token = self.token
        position = iteration_position(sym(token.text)) if token.kind is TokenKind.NAME else None
        if position is None:
            raise token.error(f"expected an iteration symbol such as i1, found {token}")
        self.position += 1
        return position, token

    def operand(self, dtype: DType) -> OperandText:
        token = self.token
        if token.kind in (TokenKind.INT, TokenKind.FLOAT) or self.at("-", *CONSTANTS):
            return self.literal(dtype)
        if self.take(INDEX):
            self.expect("(")
            index = self.expression()
            self.expect(")")
            return IndexValue(index)
        return self.read(self.name("tensor or scalar"))

    def read(self, name: Name) -> ReadText:
        index = self.bracketed(self.expression) if self.at("[") else None
        return ReadText(name, index, self.expression() if self.take("if") else TRUE)

    def literal(self, dtype: DType) -> Literal:
        negative = self.take("-")
        token = self.token
        value: int | float | bool
        if token.kind is TokenKind.INT:
            value = token.integer
        elif token.kind is TokenKind.FLOAT:
            value = float(token.text)
        elif self.at(*CONSTANTS):
            value = CONSTANTS[token.text]
        else:
            raise token.error(f"expected a number, found {token}")
        self.position += 1
        if negative:
            if isinstance(value, bool):
                raise token.error(f"'{token.text}' cannot be negated")
            value = -value
        return Literal(value, self.dtype() if self.take(":") else dtype)
