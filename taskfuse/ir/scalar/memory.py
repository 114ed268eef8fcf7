"""What is remembered about expressions, and how a process forgets it.

Nodes are interned, and results of operations on them are kept, as long as the process lives: a program has few expressions, and asks the same of them again. A
process that makes many programs, such as a campaign of random cases, forgets in between (:func:`taskfuse.ir.scalar.expr.forget`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_KEPT: list[Callable[[], object]] = []


def remembered(most: int) -> Callable[[F], F]:
    """A decorator of a function of expressions: its last ``most`` results are kept until they are forgotten."""

    def keep(function: F) -> F:
        kept = lru_cache(most)(function)
        _KEPT.append(kept.cache_clear)
        return cast("F", kept)

    return keep


def forgotten_by(clear: Callable[[], object]) -> None:
    """``clear`` empties a memory whose keys or values have expressions."""
    _KEPT.append(clear)


def forget_results() -> None:
    """Empty all these memories."""
    for clear in _KEPT:
        clear()
