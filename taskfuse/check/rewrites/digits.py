"""Numbers with digits: sums of variables of which the first counts ones, and each other one as many as there are values of those before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from taskfuse.check.rewrites.elements import is_equal
from taskfuse.ir.scalar import ONE, ZERO, Expr, Facts, simplify, substitute, sym


class Digits(NamedTuple):
    """Where an expression of digits is a number: at most at one value of each in its range, and there if the rest is from 0 to ``size - 1``.

    Attributes:
        values: by variable.
        rest: the number without what the expression is for digits of 0.
        size: how many numbers the digits make.
    """

    values: dict[str, Expr]
    rest: Expr
    size: Expr


def digits_of(e: Expr, number: Expr, extents: Mapping[str, Expr], facts: Facts) -> Digits | None:
    """The values of variables at which ``e``, of which they are digits, is ``number``; ``None`` if they are no digits of it.

    Args:
        extents: of all variables: how many values they have from 0 on.
    """
    names = [n for n in extents if n in e.free]
    start = substitute(e, dict.fromkeys(names, ZERO))
    left = {name: simplify(substitute(e, {**dict.fromkeys(names, ZERO), name: ONE}) - start, facts) for name in names}
    total: Expr = start
    for name, weight in left.items():
        total = total + weight * sym(name)
    if not is_equal(total, e, facts):
        return None
    rest = number - simplify(start, facts)
    values = dict[str, Expr]()
    size: Expr = ONE
    while left:
        name = next((n for n, weight in left.items() if is_equal(weight, size, facts)), None)
        if name is None:
            return None
        digit = rest // left.pop(name)
        values[name] = digit % extents[name] if left else digit
        size = size * extents[name]
    return Digits(values, rest, size)
