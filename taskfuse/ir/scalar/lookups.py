"""Tables in expressions: elements that are read, and searches."""

from __future__ import annotations

from taskfuse.ir.scalar.expr import MEMORY, Element, Expr, Sym, UpperBound, children
from taskfuse.ir.scalar.memory import remembered

Lookup = Element | UpperBound
"""A read of, or a search in, a table."""


@remembered(MEMORY)
def lookups_of(e: Expr) -> tuple[Lookup, ...]:
    """The table reads and searches in ``e``; one nested in another comes after it."""
    found: dict[Lookup, None] = {e: None} if isinstance(e, Lookup) else {}
    for child in children(e):
        if child.free:
            found |= dict.fromkeys(lookups_of(child))
    return tuple(found)


def elements_of(e: Expr) -> tuple[Element, ...]:
    """The elements of tensors in ``e``; one nested in the index or range of another comes after it."""
    return tuple(found for found in lookups_of(e) if isinstance(found, Element))


@remembered(MEMORY)
def integers_of(e: Expr) -> frozenset[str]:
    """Names of the integer symbols of ``e``, without the tensors whose elements occur."""
    if not lookups_of(e):
        return e.free
    if isinstance(e, Lookup):
        return frozenset[str]().union(*(integers_of(part) for part in children(e)[1:]))  # without the tensor
    return frozenset((e.name,)) if isinstance(e, Sym) else frozenset[str]().union(*map(integers_of, children(e)))
