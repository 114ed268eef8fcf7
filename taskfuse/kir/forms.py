"""The words of the grammar of kernel text, the reserved ones among them, and the forms of statements.

A form is the parsed :attr:`FORM` of a class, which describes its line. Printer and parser follow it piece by piece.
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
    """Text that every statement of the class contains.

    Attributes:
        text: the printed text.
        tokens: its tokens.
    """

    text: str
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """A field.

    Attributes:
        type: its type, or its annotation if there is one: determines how the value is printed and parsed.
    """

    name: str
    type: object


@dataclass(frozen=True, slots=True)
class OptionalPart:
    """A word and a field, omitted if the field has the value ``default``."""

    word: Word
    slot: Slot
    default: object


Piece = Word | Slot | OptionalPart


@dataclass(frozen=True, slots=True)
class StatementForm:
    """The form of a class of statements.

    Attributes:
        head: its first word, such as ``COPY.async``; empty if it begins with a field.
    """

    statement: type[Stmt]
    head: str
    pieces: tuple[Piece, ...]

    @property
    def keyword(self) -> str:
        """The grammar's word that begins it."""
        return self.head.partition(".")[0]

    @property
    def words(self) -> tuple[str, ...]:
        """The words that every such statement contains."""
        return tuple(token for piece in self.pieces if isinstance(piece, Word) for token in piece.tokens)

    def made(self, values: Mapping[str, object]) -> Stmt:
        """A statement with these field values; omitted fields have their defaults."""
        return cast("Callable[..., Stmt]", self.statement)(**values)


@cache
def form_of(statement: type[Stmt]) -> StatementForm | None:
    """The form of a class; ``None`` if it has its own printer and parser."""
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
"""The words that begin them."""


class KernelKeyword(Enum):
    """A word that begins a line, or a part of one. The value is the printed word."""

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
    """The words that begin a rule, apart from the names of elementwise ops."""

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
"""Precedes the cluster types across which an arrival, or a copy, reaches other blocks."""
FROM = "@"
"""Precedes the file and line of a statement."""
INTO = "into"
"""Stands between an output and the input into whose array it is written."""
INTEGER = "integer"
HOLDS = "~"
"""Stands between a statement and its claim."""
VALUES: dict[str, float | bool] = {"true": True, "false": False, "inf": float("inf"), "nan": float("nan")}
EXPRESSION_FUNCTIONS = ("min", "max", "xor", "ceildiv", "select", "table")
TF32 = "tf32"  # how tensor cores multiply float32
OPERAND_WORDS = ("index", "otherwise", "if", "desc")

RESERVED: frozenset[str] = frozenset((*KEYWORDS, *STATEMENT_WORDS, *VALUES, *EXPRESSION_FUNCTIONS, *OPERAND_WORDS))
