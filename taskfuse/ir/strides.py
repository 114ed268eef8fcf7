"""Strides of arrays: the order of their axes in memory, and whether elements share an address."""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.ir.scalar import Const, Expr, Facts, ge, prove


def order_of(shape: Sequence[Expr], strides: Sequence[Expr], facts: Facts) -> tuple[int, ...] | None:
    """The axes from the one with the greatest stride to the one with the least, if no two elements share an address; ``None`` if that is unknown.

    Each stride must step over all elements of the axes with smaller ones. Axes of extent 1 come last, but for their place among equals.
    """
    moving = [k for k, n in enumerate(shape) if not _is(n, 1)]
    left, order = list(moving), list[int]()
    while left:
        # the greatest is one that is at least as great as each other
        top = next((k for k in left if all(prove(ge(strides[k], strides[j]), facts) for j in left)), None)
        if top is None:
            return None
        left.remove(top)
        order.append(top)
    for position, k in enumerate(order):
        reach = sum(((shape[j] - 1) * strides[j] for j in order[position + 1 :]), start=strides[k] * 0)
        if not prove(ge(strides[k], reach + 1), facts):
            return None
    for k in range(len(shape)):
        if k not in moving:
            order.insert(k, k)
    return tuple(order)


def collides(shape: Sequence[Expr], strides: Sequence[Expr], facts: Facts) -> bool:
    """True if two elements provably share an address: all extents and strides are constants, and some stride is too small."""
    return all(isinstance(e, Const) for e in (*shape, *strides)) and not any(_is(n, 0) for n in shape) and order_of(shape, strides, facts) is None


def _is(e: Expr, value: int) -> bool:
    return isinstance(e, Const) and e.value == value
