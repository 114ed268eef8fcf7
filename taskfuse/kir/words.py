"""The words of the grammar of kernel text, and which of them cannot be names."""

from __future__ import annotations

from enum import Enum

from taskfuse.kir.forms import STATEMENT_WORDS


class Keyword(Enum):
    """What begins a line, or a part of one. The value is the printed word."""

    KERNEL = "KERNEL"
    DIM = "DIM"
    HOST = "HOST"
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
    DEFINE = "DEFINE"
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
    """What begins the rule of a definition that is no elementwise op."""

    PICK = "pick"
    REDUCE = "reduce"
    SCAN = "scan"
    FIND = "find"
    WHOLE = "whole"


KEYWORDS: dict[str, Keyword] = {k.value: k for k in Keyword}
RULE_WORDS: dict[str, RuleWord] = {w.value: w for w in RuleWord}
ACROSS = "across"
"""Before the cluster types across which an arrival, or a copy, reaches other blocks."""
FROM = "@"
"""Before the file and line that a statement comes from."""
HOLDS = "~"
"""Between a statement and what its results stand for."""
VALUES: dict[str, float | bool] = {"true": True, "false": False, "inf": float("inf"), "nan": float("nan")}
EXPRESSION_FUNCTIONS = ("min", "max", "xor", "ceildiv", "select", "table")
TF32 = "tf32"  # how tensor cores multiply float32
OPERAND_WORDS = ("index", "otherwise", "if", "desc")

RESERVED: frozenset[str] = frozenset((*KEYWORDS, *STATEMENT_WORDS, *VALUES, *EXPRESSION_FUNCTIONS, *OPERAND_WORDS))
