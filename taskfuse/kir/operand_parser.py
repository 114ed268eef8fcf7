"""Readers of kernel text that all parts of its parser share: words, numbers, lists; operands, slots, matrix descriptors, and the declared names."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from taskfuse.dtypes import DTYPES, DType
from taskfuse.errors import ParseError
from taskfuse.ir.combine import COMBINES, Combine
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.reader import TokenReader
from taskfuse.ir.scalar import TRUE, Expr, Token, TokenKind, const
from taskfuse.ir.shared_layouts import Major
from taskfuse.ir.types import ParallelType
from taskfuse.kir.clusters import cluster_threads
from taskfuse.kir.declarations import Buffer, Counter, Dim3, Mbarrier, Param, ScalarParam, Semaphore, TensorMapParam, TensorParam
from taskfuse.kir.forms import KEYWORDS, RESERVED, VALUES, KernelKeyword
from taskfuse.kir.operands import Access, BarrierSlot, ChoiceCase, Descriptor, GatherValue, Immediate, IndexOf, Operand, Queue, ScalarValue, SemaphoreSlot
from taskfuse.kir.printer import block_threads
from taskfuse.kir.synchronization import MbarrierScope

T = TypeVar("T")


class KernelReader(TokenReader):
    """The tokens of a kernel's text."""

    def keyword(self) -> KernelKeyword | None:
        """The keyword that the next token is, or begins with (``WGMMA.m64n64k16.bfloat16``); the token is not consumed."""
        return KEYWORDS.get(self.token.text.partition(".")[0]) if self.token.kind is TokenKind.NAME else None

    def word(self, what: str) -> Token:
        """Take a word, reserved or not."""
        if self.token.kind is not TokenKind.NAME:
            raise self.fail(what)
        return self.advance()

    def name(self, what: str) -> str:
        """Take the name of a declaration."""
        token = self.word(what)
        if token.text in RESERVED:
            raise token.error(f"'{token.text}' is a word of the grammar, not a name")
        return token.text

    def integer(self) -> int:
        """Take an integer with its sign."""
        sign = -1 if self.take("-") else 1
        return sign * super().integer()

    def string(self, what: str) -> str:
        """Take a text in quotes, written as in JSON."""
        if self.token.kind is not TokenKind.STRING:
            raise self.fail(f"{what} in quotes")
        try:
            text = str(json.loads(self.token.text))
        except ValueError:
            raise self.token.error(f"{self.token} is not text") from None
        self.advance()
        return text

    def number(self, word: str) -> int:
        """Take a word and an integer: ``width 4``."""
        self.expect(word)
        return self.integer()

    def sequence(self, item: Callable[[], T], close: str) -> tuple[T, ...]:
        """Take items between commas, up to and with the closing punctuation."""
        items: list[T] = []
        while not self.take(close):
            if items:
                self.expect(",")
            items.append(item())
        return tuple(items)

    def expressions(self, opening: str, close: str) -> tuple[Expr, ...]:
        """Take ``(a, b)`` or ``[a, b]``."""
        self.expect(opening)
        return self.sequence(self.expression, close)

    def dtype(self) -> DType:
        """Take the name of a dtype."""
        token = self.word("a dtype")
        return known(token, token.text, DTYPES, "dtype")

    def literal(self) -> int | float | bool:
        """Take a constant: ``3``, ``-0.5``, ``inf``, ``nan``, ``true``."""
        negative = self.take("-")
        token = self.token
        value: int | float | bool
        match token.kind:
            case TokenKind.INT:
                value = token.integer
            case TokenKind.FLOAT:
                value = float(token.text)
            case TokenKind.NAME if token.text in VALUES:
                value = VALUES[token.text]
            case _:
                raise self.fail("a constant")
        if negative and isinstance(value, bool):
            raise self.fail("a number")
        self.advance()
        return -value if negative and not math.isnan(value) else value

    def at_literal(self) -> bool:
        """True if a constant begins here."""
        return self.token.kind in (TokenKind.INT, TokenKind.FLOAT) or self.at("-") or self.token.text in VALUES


def known(token: Token, name: str, names: dict[str, T], what: str) -> T:
    """The object called ``name``, which ``token`` mentions. Raises :class:`ParseError` at the token if it does not exist."""
    found = names.get(name)
    if found is None:
        raise ParseError(line=token.line, column=token.column, reason=f"there is no {what} '{name}'", help=suggestion(name, names))
    return found


def suggestion(name: str, names: Iterable[str]) -> str | None:
    """The name that the author may have meant."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f"did you mean '{close[0]}'?" if close else None


MAJORS = {m.value: m for m in Major}
INDEX_TYPES = {p.value: p for p in ParallelType}
QUEUES = {q.value: q for q in Queue}
SCOPES = {s.value: s for s in MbarrierScope}


@dataclass(frozen=True, slots=True)
class DeclaredNames:
    """The declared names by kind, and the number of threads of a block and of a cluster."""

    storage: dict[str, TensorParam | Buffer]
    scalars: dict[str, ScalarParam]
    maps: dict[str, TensorMapParam]
    mbarriers: dict[str, Mbarrier]
    counters: dict[str, Counter]
    semaphores: dict[str, Semaphore]
    threads: Expr
    cluster_threads: Expr

    @staticmethod
    def of(
        params: Sequence[Param],
        buffers: Sequence[Buffer],
        mbarriers: Sequence[Mbarrier],
        counters: Sequence[Counter],
        semaphores: Sequence[Semaphore],
        block: Dim3,
        cluster: Dim3,
    ) -> DeclaredNames:
        """The names of these declarations."""
        storage: dict[str, TensorParam | Buffer] = {p.name: p for p in params if isinstance(p, TensorParam)}
        return DeclaredNames(
            storage | {b.name: b for b in buffers},
            {p.name: p for p in params if isinstance(p, ScalarParam)},
            {p.name: p for p in params if isinstance(p, TensorMapParam)},
            {m.name: m for m in mbarriers},
            {c.name: c for c in counters},
            {s.name: s for s in semaphores},
            block_threads(block),
            cluster_threads(block, cluster),
        )


class OperandParser:
    """One method per kind of operand."""

    def __init__(self, reader: KernelReader, names: DeclaredNames) -> None:
        self.reader = reader
        self.names = names
        # how the value of a field is read, by what the field holds: the counterpart of the printer's
        self.values: dict[object, Callable[[], object]] = {
            int: reader.integer,
            Expr: reader.expression,
            "map": self.map,
            "cursor": lambda: reader.name("a cursor"),
            tuple[Expr, ...]: lambda: reader.expressions("(", ")"),
            tuple[ParallelType, ...]: self.across,
            tuple[GatherValue, ...]: self.found,
            Access: self.access,
            BarrierSlot: self.slot,
            SemaphoreSlot: self.semaphore,
            Queue: self.queue,
            MbarrierScope: self.scope,
            Combine: self.combine,
            Combine | None: self.combine,
        }

    def operand(self, dtype: DType) -> Operand:
        """An operand; a constant without a dtype has ``dtype``."""
        reader = self.reader
        if reader.at_literal():
            return self.immediate(dtype)
        if reader.take("index"):
            reader.expect("(")
            value = reader.expression()
            reader.expect(")")
            return IndexOf(value)
        if reader.token.text in self.names.scalars:
            return ScalarValue(reader.advance().text)
        return self.access()

    def immediate(self, dtype: DType) -> Immediate:
        """A constant, of ``dtype`` unless it names another."""
        value = self.reader.literal()
        return Immediate(value, self.reader.dtype() if self.reader.take(":") else dtype)

    def operands(self, dtype: DType) -> tuple[Operand, ...]:
        """Operands up to, and with, the closing parenthesis."""
        return self.reader.sequence(lambda: self.operand(dtype), ")")

    def cases(self, dtype: DType) -> tuple[ChoiceCase, ...]:
        """Operands with their conditions, up to and with the closing parenthesis."""
        return self.reader.sequence(lambda: self.case(dtype), ")")

    def case(self, dtype: DType) -> ChoiceCase:
        if self.reader.take("otherwise"):
            return ChoiceCase(TRUE, self.operand(dtype))
        operand = self.operand(dtype)
        self.reader.expect("if")
        return ChoiceCase(self.reader.expression(), operand)

    def access(self) -> Access:
        reader = self.reader
        token = reader.word("a buffer")
        storage = known(token, token.text, self.names.storage, "buffer or argument")
        if reader.at("["):
            return Access(token.text, reader.expressions("[", "]"))
        if storage.shape:
            raise token.error(f"'{token.text}' has {len(storage.shape)} axes and needs as many indices")
        return Access(token.text, ())

    def slot(self) -> BarrierSlot:
        reader = self.reader
        token = reader.word("an mbarrier")
        name = known(token, token.text, self.names.mbarriers, "mbarrier").name
        reader.expect("[")
        slot = reader.expression()
        reader.expect("]")
        return BarrierSlot(name, slot)

    def transfer(self) -> tuple[Access, Access]:
        """A keyword, then ``out <- source``."""
        self.reader.advance()
        out = self.access()
        self.arrow()
        return out, self.access()

    def arrow(self) -> None:
        reader = self.reader
        if not (reader.at("<") and reader.tokens[reader.position + 1].text == "-"):
            raise reader.fail("'<-'")
        reader.position += 2

    def map(self) -> str:
        token = self.reader.word("a tensor map")
        return known(token, token.text, self.names.maps, "tensor map").name

    def combine(self) -> Combine:
        token = self.reader.word("a function that combines")
        return known(token, token.text, COMBINES, "function that combines")

    def queue(self) -> Queue:
        token = self.reader.word("a queue")
        return known(token, token.text, QUEUES, "queue")

    def scope(self) -> MbarrierScope:
        token = self.reader.word("a scope")
        return known(token, token.text, SCOPES, "scope")

    def across(self) -> tuple[ParallelType, ...]:
        """``CIDx, CIDy``: index types."""
        found: list[ParallelType] = []
        while not found or self.reader.take(","):
            token = self.reader.word("a cluster type")
            found.append(known(token, token.text, INDEX_TYPES, "cluster type"))
        return tuple(found)

    def found(self) -> tuple[GatherValue, ...]:
        """Symbols and their values."""
        values: list[GatherValue] = []
        while not values or self.reader.take(","):
            symbol = self.reader.name("a symbol")
            self.reader.expect("=")
            source = self.access()
            self.reader.expect("of")
            values.append(GatherValue(symbol, source, self.reader.expression()))
        return tuple(values)

    def semaphore(self) -> SemaphoreSlot:
        reader = self.reader
        token = reader.word("a semaphore")
        name = known(token, token.text, self.names.semaphores, "semaphore").name
        return SemaphoreSlot(name, reader.expressions("[", "]"))

    def descriptor(self) -> Descriptor:
        reader = self.reader
        reader.expect("desc")
        reader.expect("(")
        base = self.access()
        offset = reader.expression() if reader.take("+") else const(0)
        reader.expect(",")
        swizzle = reader.number("swizzle")
        reader.expect(",")
        lbo = reader.number("lbo")
        reader.expect(",")
        sbo = reader.number("sbo")
        reader.expect(",")
        reader.expect("major")
        token = reader.word("K or MN")
        major = known(token, token.text, MAJORS, "major")
        reader.expect(")")
        return Descriptor(base, offset, swizzle, lbo, sbo, major)


def operation(token: Token, stored: DType) -> tuple[Elementwise, DType]:
    """``op`` or ``op.dtype``, the text of ``token``: the op, and its compute dtype, by default that of the result."""
    name, _, suffix = token.text.partition(".")
    return known(token, name, ELEMENTWISE, "operation"), known(token, suffix, DTYPES, "dtype") if suffix else stored
