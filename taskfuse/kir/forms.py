"""The words of the grammar of kernel text, which of them cannot be names, and the forms of statements.

A form is what :attr:`FORM` of a class says about its line, taken apart once. Printer and parser follow it piece by piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from functools import cache
from typing import cast, get_args

from taskfuse.kir.fields import types_of
from taskfuse.kir.nodes import Stmt

_PIECE = re.compile(r"\{(\w+)\}|\[([^\]]*)\]|([^{\[]+)")
_TOKEN = re.compile(r"<-|[\w.]+|[^\s\w]")


@dataclass(frozen=True, slots=True)
class Word:
    """Text that stands in every statement of the class.

    Attributes:
        text: as it is printed.
        tokens: as it is read.
    """

    text: str
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """A field.

    Attributes:
        type: its type, or what is said of it if that is more: the kind of value that is printed and read.
    """

    name: str
    type: object


@dataclass(frozen=True, slots=True)
class OptionalPart:
    """A word and a field, left out where the field is ``default``."""

    word: Word
    slot: Slot
    default: object


Piece = Word | Slot | OptionalPart


@dataclass(frozen=True, slots=True)
class StatementForm:
    """The form of a class of statements.

    Attributes:
        head: the word that it begins with, such as ``COPY.async``; empty if that is a field.
    """

    statement: type[Stmt]
    head: str
    pieces: tuple[Piece, ...]

    @property
    def keyword(self) -> str:
        """The word of the grammar that it begins with."""
        return self.head.partition(".")[0]

    @property
    def words(self) -> tuple[str, ...]:
        """What is read in every such statement."""
        return tuple(token for piece in self.pieces if isinstance(piece, Word) for token in piece.tokens)

    def made(self, values: Mapping[str, object]) -> Stmt:
        """A statement with these values of its fields, of which those left out have their defaults."""
        return cast("Callable[..., Stmt]", self.statement)(**values)


@cache
def form_of(statement: type[Stmt]) -> StatementForm | None:
    """The form of a class; ``None`` if it has a printer and a parser of its own."""
    text: str | None = getattr(statement, "FORM", None)
    if text is None:
        return None
    pieces = tuple(_piece(statement, *found) for found in _PIECE.findall(text))
    first = pieces[0]
    return StatementForm(statement, first.tokens[0] if isinstance(first, Word) else "", pieces)


def _piece(statement: type[Stmt], field: str, option: str, text: str) -> Piece:
    if field:
        kind, said = types_of(statement)[field]
        return Slot(field, next((s for s in said if isinstance(s, str)), kind))
    if option:
        word, slot = (_piece(statement, *found) for found in _PIECE.findall(option))
        assert isinstance(word, Word)
        assert isinstance(slot, Slot)
        (default,) = (f.default for f in fields(statement) if f.name == slot.name)
        assert default is not MISSING
        return OptionalPart(word, slot, default)
    return Word(text, tuple(_TOKEN.findall(text)))


FORMS: tuple[StatementForm, ...] = tuple(form for statement in get_args(Stmt) if (form := form_of(statement)) is not None)
"""Every form."""
STATEMENT_WORDS: frozenset[str] = frozenset(form.keyword for form in FORMS if form.keyword)
"""The words that they begin with."""


class KernelKeyword(Enum):
    """What begins a line, or a part of one. The value is the printed word."""

    KERNEL = "KERNEL"
    DIM = "DIM"
    TENSORMAP = "TENSORMAP"
    GRID = "GRID"
    BLOCK = "BLOCK"
    CLUSTER = "CLUSTER"
    RESIDENT = "RESIDENT"
    LOCAL = "LOCAL"
    SHARED = "SHARED"
    GLOBAL = "GLOBAL"
    MBARRIER = "MBARRIER"
    COUNTER = "COUNTER"
    SEMAPHORE = "SEMAPHORE"
    QUEUE = "QUEUE"
    DEFINE = "DEFINE"
    WRITTEN = "WRITTEN"
    PASS = "PASS"
    FOR = "FOR"
    UNROLL = "UNROLL"
    IF = "IF"
    ELSE = "ELSE"
    CURSOR = "CURSOR"
    SYNC = "SYNC"
    FENCE = "FENCE"
    TMA = "TMA"
    WAIT_GROUP = "WAIT_GROUP"
    WGMMA = "WGMMA"
    MMA = "MMA"
    LDMATRIX = "LDMATRIX"
    STMATRIX = "STMATRIX"


class RuleWord(Enum):
    """The words that begin a rule other than an elementwise op."""

    PICK = "pick"
    REDUCE = "reduce"
    SCAN = "scan"
    FOLD = "fold"
    FIND = "find"
    SEND = "send"
    WHOLE = "whole"


KEYWORDS: dict[str, KernelKeyword] = {k.value: k for k in KernelKeyword}
RULE_WORDS: dict[str, RuleWord] = {w.value: w for w in RuleWord}
ACROSS = "across"
"""Before the cluster types across which an arrival, or a copy, reaches other blocks."""
FROM = "@"
"""Before the file and line that a statement comes from."""
INTO = "into"
"""Between an output and the input whose array it is written into."""
INTEGER = "integer"
HOLDS = "~"
"""Between a statement and what its results stand for."""
VALUES: dict[str, float | bool] = {"true": True, "false": False, "inf": float("inf"), "nan": float("nan")}
EXPRESSION_FUNCTIONS = ("min", "max", "xor", "ceildiv", "select", "table")
TF32 = "tf32"  # how tensor cores multiply float32
OPERAND_WORDS = ("index", "otherwise", "if", "desc")

RESERVED: frozenset[str] = frozenset((*KEYWORDS, *STATEMENT_WORDS, *VALUES, *EXPRESSION_FUNCTIONS, *OPERAND_WORDS))
