"""Tables in expressions: elements that are read, and places that are looked up."""

from __future__ import annotations

from functools import lru_cache

from taskfuse.ir.scalar.expr import MEMORY, Element, Expr, Sym, UpperBound, children

Lookup = Element | UpperBound
"""What is read in a table."""


@lru_cache(MEMORY)
def lookups_of(e: Expr) -> tuple[Lookup, ...]:
    """What ``e`` reads in tables; a lookup inside another one comes after it."""
    found: dict[Lookup, None] = {e: None} if isinstance(e, Lookup) else {}
    for child in children(e):
        if child.free:
            found |= dict.fromkeys(lookups_of(child))
    return tuple(found)


def elements_of(e: Expr) -> tuple[Element, ...]:
    """The elements of tensors that occur in ``e``, those in the index or range of another one after it."""
    return tuple(found for found in lookups_of(e) if isinstance(found, Element))


def integers_of(e: Expr) -> frozenset[str]:
    """Names of the symbols of ``e`` that are integers: not those of tensors whose elements occur."""
    if not lookups_of(e):
        return e.free
    if isinstance(e, Lookup):
        return frozenset[str]().union(*(integers_of(part) for part in children(e)[1:]))  # without the tensor
    return frozenset((e.name,)) if isinstance(e, Sym) else frozenset[str]().union(*map(integers_of, children(e)))
