"""Reading the fusion text: from tokens to the records of ``syntax``. docs/fusion-text.md has the grammar; each method is a rule of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import TypeVar

from taskfuse.dtypes import DTYPES, DType
from taskfuse.ir.atoms import Atom, find
from taskfuse.ir.axes import AxisKind, iteration_position, value_symbol
from taskfuse.ir.elementwise import COMBINES, ELEMENTWISE, Elementwise
from taskfuse.ir.expr import IndexValue, Literal
from taskfuse.ir.fusion import Dim
from taskfuse.ir.scalar import TRUE, Expr, Token, TokenKind, parse_tokens, sym, tokenize
from taskfuse.ir.syntax import (
    AXIS_KINDS,
    CONSTANTS,
    INDEX,
    AssembleText,
    AxisName,
    AxisText,
    BoundAxis,
    ClauseWord,
    DimText,
    FusionText,
    GatherText,
    GroupText,
    Keyword,
    Name,
    OperandText,
    OutputText,
    PointwiseText,
    ReadText,
    ReductionText,
    ScalarText,
    ScanText,
    ScheduleText,
    SelectText,
    TaskText,
    TensorText,
    TransformText,
    TransformWord,
    ValueText,
    ValueWord,
    ViewText,
)
from taskfuse.ir.tasks import CHOSEN
from taskfuse.ir.types import MemoryType, ParallelType

T = TypeVar("T")
W = TypeVar("W", bound=Enum)

_DIM_FACTS = ("min", "max", "multiple_of")
_INPUTS = {TransformWord.SPLIT: 1, TransformWord.MERGE: 2, TransformWord.SWIZZLE: 2, TransformWord.RESIZE: 1}
_ARGUMENTS = {TransformWord.SPLIT: 1, TransformWord.MERGE: 0, TransformWord.SWIZZLE: 0, TransformWord.RESIZE: 2}
_OUTPUTS = {TransformWord.SPLIT: 2, TransformWord.MERGE: 1, TransformWord.SWIZZLE: 2, TransformWord.RESIZE: 1, TransformWord.RASTERIZE: 1}


def read_fusion(text: str) -> FusionText:
    """The lines of ``text``. Raises :class:`ParseError` where it leaves the grammar."""
    return _Reader(tokenize(text)).fusion()


def _values(words: type[W]) -> dict[str, W]:
    return {w.value: w for w in words}


_KEYWORDS = _values(Keyword)
_VALUE_WORDS = _values(ValueWord)
_CLAUSES = _values(ClauseWord)
_TRANSFORMS = _values(TransformWord)
_PARALLEL_TYPES = _values(ParallelType)
_MEMORY_TYPES = _values(MemoryType)


class _Reader:
    """Recursive descent over tokens."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0

    # -- tokens ---------------------------------------------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.position]

    def at(self, *texts: str) -> bool:
        """True if the next token is one of these words or punctuations."""
        return self.token.kind in (TokenKind.NAME, TokenKind.PUNCT) and self.token.text in texts

    def take(self, *texts: str) -> bool:
        """Consume the next token if it is one of these."""
        found = self.at(*texts)
        self.position += found
        return found

    def advance(self) -> Token:
        token = self.token
        self.position += 1
        return token

    def expect(self, text: str) -> Token:
        if not self.at(text):
            raise self.token.error(f"expected '{text}', found {self.token}")
        return self.advance()

    def end_line(self) -> None:
        if self.token.kind not in (TokenKind.NEWLINE, TokenKind.END):
            raise self.token.error(f"expected the end of the line, found {self.token}")
        while self.token.kind is TokenKind.NEWLINE:
            self.position += 1

    def word(self, what: str, table: Mapping[str, T]) -> T:
        """The row of ``table`` that the next token names."""
        token = self.token
        if token.kind is not TokenKind.NAME:
            raise token.error(f"expected a {what}, found {token}")
        if token.text not in table:
            raise token.error(f"there is no {what} '{token.text}'")
        self.position += 1
        return table[token.text]

    def atom(self) -> Atom:
        """The row of the atom that the next token names."""
        token = self.token
        atom = find(token.text) if token.kind is TokenKind.NAME else None
        if atom is None:
            raise token.error(f"there is no atom '{token.text}'" if token.kind is TokenKind.NAME else f"expected a atom, found {token}")
        self.position += 1
        return atom

    def name(self, what: str) -> Name:
        """A name, plain or in quotes."""
        token = self.token
        match token.kind:
            case TokenKind.NAME:
                self.position += 1
                return Name(token.text, token)
            case TokenKind.STRING:
                self.position += 1
                return Name(_unquoted(token), token)
            case _:
                raise token.error(f"expected the name of a {what}, found {token}")

    def integer(self) -> int:
        if self.token.kind is not TokenKind.INT:
            raise self.token.error(f"expected an integer, found {self.token}")
        return _integer(self.advance())

    def expr(self) -> Expr:
        found, self.position = parse_tokens(self.tokens, self.position)
        return found

    def some(self, item: Callable[[], T]) -> tuple[T, ...]:
        """One or more, separated by commas."""
        found = [item()]
        while self.take(","):
            found.append(item())
        return tuple(found)

    def bracketed(self, item: Callable[[], T], opening: str = "[", closing: str = "]") -> tuple[T, ...]:
        """None or more in brackets, separated by commas."""
        self.expect(opening)
        found = () if self.at(closing) else self.some(item)
        self.expect(closing)
        return found

    # -- lines ----------------------------------------------------------------------------------------------------------------------

    def fusion(self) -> FusionText:
        while self.token.kind is TokenKind.NEWLINE:
            self.position += 1
        self.expect(Keyword.FUSION.value)
        text = FusionText(self.name("fusion").text, [], [], [], [], None, None, [], [])
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
            case Keyword.INPUT:
                text.tensors.append(self.provenance(self.head()))
            case Keyword.OUTPUT:
                text.outputs += self.some(self.tensor_name)
            case Keyword.ORDER:
                if text.order is not None:
                    raise token.error("there is an ORDER line already")
                text.order = (token, self.some(self.tensor_name))
            case Keyword.RESIDENT:
                if text.resident is not None:
                    raise token.error("there is a RESIDENT line already")
                text.resident = (token, self.integer())
            case Keyword.SCHEDULE:
                text.schedules.append(self.schedule())
            case Keyword.TASK:
                name = self.name("task")
                self.expect("=")
                text.nodes.append(TaskText(name, self.some(self.tensor_name), self.budget()))
            case Keyword.GROUP:
                text.nodes.append(self.group())

    def dim(self) -> DimText:
        name = self.name("dimension")
        facts: dict[str, int] = {}
        while self.at(*_DIM_FACTS):
            token = self.advance()
            if token.text in facts:
                raise token.error(f"'{token.text}' of dimension '{name.text}' is given twice")
            facts[token.text] = self.integer()
        return DimText(name, Dim(name.text, **facts))

    def group(self) -> GroupText:
        name = self.name("group")
        self.expect("=")
        members = self.some(lambda: self.name("task or group"))
        ptype = self.word("parallel type", _PARALLEL_TYPES) if self.take("on") else None
        turns = self.axis_name() if self.take("turns") else None
        return GroupText(name, members, ptype, turns, self.budget())

    def budget(self) -> int | None:
        if not self.take("registers"):
            return None
        return CHOSEN if self.take("chosen") else self.integer()

    # -- tensors --------------------------------------------------------------------------------------------------------------------

    def tensor_name(self) -> Name:
        return self.name("tensor")

    def dtype(self) -> DType:
        return self.word("dtype", DTYPES)

    def head(self) -> TensorText:
        name = self.tensor_name()
        self.expect(":")
        dtype = self.dtype()
        shape = self.bracketed(self.expr)
        root = self.bracketed(self.root_axis) if self.take("root") else None
        return TensorText(name, dtype, shape, root)

    def root_axis(self) -> AxisText:
        extent = self.expr()
        if self.token.kind is not TokenKind.NAME:
            return AxisText(extent, AxisKind.ITERATION, None)
        kind = self.word("kind of axis", AXIS_KINDS)
        return AxisText(extent, kind, self.source())

    def source(self) -> AxisName | None:
        return self.axis_name() if self.take("of") else None

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
                return SelectText(label, self.bracketed(lambda: self.operand(dtype), "(", ")"))
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
                return self.gather()
            case ValueWord.SCAN:
                combine = self.word("combining function", COMBINES)
                self.expect("of")
                operand = self.operand(dtype)
                self.expect("along")
                position, token = self.iteration()
                return ScanText(combine, operand, position, token)
            case ValueWord.REDUCE:
                combine = self.word("combining function", COMBINES)
                self.expect("of")
                body = self.elementwise()
                operands = self.arguments(body, dtype)
                over = self.some(self.reduced) if self.take("over") else ()
                self.expect("init")
                return ReductionText(combine, body, operands, over, self.literal(dtype))

    def gather(self) -> GatherText:
        self.expect("(")
        table = self.read(self.tensor_name())
        values: list[ReadText] = []
        extents: list[Expr] = []
        while self.take(","):
            self.expect(str(value_symbol(len(values))))
            self.expect("=")
            values.append(self.read(self.tensor_name()))
            self.expect("of")
            extents.append(self.expr())
        self.expect(")")
        return GatherText(table, tuple(values), tuple(extents))

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
        return read, self.bracketed(self.expr)

    def reduced(self) -> tuple[int, Expr, Token]:
        position, token = self.iteration()
        self.expect(":")
        return position, self.expr(), token

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
            index = self.expr()
            self.expect(")")
            return IndexValue(index)
        return self.read(self.name("tensor or scalar"))

    def read(self, name: Name) -> ReadText:
        index = self.bracketed(self.expr) if self.at("[") else None
        return ReadText(name, index, self.expr() if self.take("if") else TRUE)

    def literal(self, dtype: DType) -> Literal:
        negative = self.take("-")
        token = self.token
        value: int | float | bool
        if token.kind is TokenKind.INT:
            value = _integer(token)
        elif token.kind is TokenKind.FLOAT:
            value = float(token.text)
        elif self.at(*CONSTANTS):
            value = CONSTANTS[token.text]
        else:
            raise token.error(f"expected a number, found {token}")
        self.position += 1
        if negative:
            if isinstance(value, bool):
                raise token.error(f"'{token.text}' has no negative")
            value = -value
        return Literal(value, self.dtype() if self.take(":") else dtype)

    # -- schedules ------------------------------------------------------------------------------------------------------------------

    def axis_name(self) -> AxisName:
        """``tv7.a1``, ``"a tensor".a1``, or ``x0``."""
        token = self.token
        name = self.name("tensor's axis")
        if token.kind is TokenKind.STRING:
            self.expect(".")
            return AxisName(name, self.axis())
        tensor, _, axis = name.text.rpartition(".")
        return AxisName(Name(tensor, token) if tensor else None, Name(axis, token))

    def axis(self) -> Name:
        if self.token.kind is not TokenKind.NAME:
            raise self.token.error(f"expected an axis, found {self.token}")
        token = self.advance()
        if "." in token.text:
            raise token.error(f"'{token.text}' is no name of an axis: it has a dot")
        return Name(token.text, token)

    def bound_axis(self) -> BoundAxis:
        name = self.axis()
        return BoundAxis(name, self.word("parallel type", _PARALLEL_TYPES) if self.take(":") else ParallelType.Serial)

    def schedule(self) -> ScheduleText:
        schedule = ScheduleText(self.tensor_name(), [], [])
        self.expect(":")
        given: set[ClauseWord] = set()
        while True:
            token = self.token
            transform = _TRANSFORMS.get(token.text)
            if transform is not None:
                schedule.transforms.append(self.transform(transform))
            else:
                clause = self.word("clause of SCHEDULE", _CLAUSES)
                if clause in given and clause is not ClauseWord.FOREIGN:
                    raise token.error(f"'{clause.value}' is given twice")
                given.add(clause)
                self.clause(schedule, clause)
            if not self.take(";"):
                return schedule

    def clause(self, schedule: ScheduleText, clause: ClauseWord) -> None:
        match clause:
            case ClauseWord.FOREIGN:
                name = self.axis()
                self.expect(":")
                extent = self.expr()
                schedule.foreign.append((name, AxisText(extent, AxisKind.FOREIGN, self.source())))
            case ClauseWord.LOGICAL:
                schedule.logical = self.bracketed(self.axis)
            case ClauseWord.LOOP:
                schedule.loop, schedule.inline = self.loop()
            case ClauseWord.BIND:
                schedule.bind = self.bracketed(self.bound_axis)
            case ClauseWord.MEMORY:
                schedule.memory = self.word("memory type", _MEMORY_TYPES)
            case ClauseWord.ALLOCATION:
                schedule.allocation = self.bracketed(self.bound_axis)
            case ClauseWord.STAGES:
                schedule.stages = self.integer()
            case ClauseWord.ATOM:
                schedule.atom = self.atom()
                schedule.atom_axes = self.bracketed(self.axis, "(", ")")
            case ClauseWord.IN_FLIGHT:
                schedule.in_flight = self.integer()

    def loop(self) -> tuple[tuple[BoundAxis, ...], int]:
        """The loop axes, and how many of them stand left of the bar."""
        self.expect("[")
        head = () if self.at("|", "]") else self.some(self.bound_axis)
        if not self.take("|"):
            self.expect("]")
            return head, 0
        tail = () if self.at("]") else self.some(self.bound_axis)
        self.expect("]")
        return head + tail, len(head)

    def transform(self, word: TransformWord) -> TransformText:
        token = self.advance()
        self.expect("(")
        arguments: list[Expr] = []
        if word is TransformWord.RASTERIZE:
            inputs = self.some(self.axis)
            self.expect("by")
            arguments += self.some(self.expr)
            if len(arguments) != len(inputs):
                raise token.error(f"'rasterize' of {len(inputs)} axes takes as many maps, not {len(arguments)}")
        else:
            inputs = (self.axis(),)
            for _ in range(_INPUTS[word] - 1):
                self.expect(",")
                inputs = (*inputs, self.axis())
            for _ in range(_ARGUMENTS[word]):
                self.expect(",")
                arguments.append(self.expr())
        inner = not (word is TransformWord.SPLIT and self.take("outer"))
        self.expect(")")
        arrow = self.expect("->")
        outputs = self.some(self.transform_output)
        if len(outputs) != _OUTPUTS[word]:
            count = _OUTPUTS[word]
            raise arrow.error(f"'{word.value}' makes {count} {'axis' if count == 1 else 'axes'}, not {len(outputs)}")
        return TransformText(word, token, inputs, tuple(arguments), inner, outputs)

    def transform_output(self) -> OutputText:
        name = self.axis()
        if not self.take("as"):
            return OutputText(name, None)
        kind = self.word("kind of axis", AXIS_KINDS)
        self.expect(":")
        return OutputText(name, (self.expr(), kind))


def _unquoted(token: Token) -> str:
    try:
        return str(json.loads(token.text))
    except json.JSONDecodeError:
        raise token.error(f"{token} is no string: the escapes are those of JSON") from None


def _integer(token: Token) -> int:
    return int(token.text, 16 if token.text[:2] in ("0x", "0X") else 10)
