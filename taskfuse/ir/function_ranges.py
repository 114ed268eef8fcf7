"""Ranges of results of integer functions, by interval arithmetic: for a column of the table of elementwise functions.

Each takes the least and the greatest value of every operand (of a choice, of what it chooses from), and gives those of the result as an integer without
bounds: whether it wraps is for the reader to ask. ``None``: any value.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from taskfuse.ir.elementwise_function import Range, RangeRule

IntegerFunction = Callable[[int], int] | Callable[[int, int], int] | Callable[[int, int, int], int]


def same(a: Range) -> Range:
    """Of a function that changes no integer."""
    return a


def join(*ranges: Range) -> Range:
    """Of one of the operands."""
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def corners(made: IntegerFunction) -> RangeRule:
    """Of a function that is monotonic in each operand, whatever the others are: its extremes are at those of the operands."""

    function: Callable[..., int] = made

    def found(*ranges: Range) -> Range:
        values = [function(*corner) for corner in product(*ranges)]
        return min(values), max(values)

    return found


def magnitude(a: Range) -> Range:
    """Of the absolute value."""
    low, high = a
    return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def square(a: Range) -> Range:
    """Of the square."""
    low, high = magnitude(a)
    return low * low, high * high


def masked(a: Range, b: Range) -> Range | None:
    """Of the bits that are set in both: no more than those of one that is not negative."""
    highest = [high for low, high in (a, b) if low >= 0]
    return (0, min(highest)) if highest else None


def either(a: Range, b: Range) -> Range | None:
    """Of the bits that are set in either: no less than one of two that are not negative, and as many as the longer has."""
    return (max(a[0], b[0]), _ones(a, b)) if a[0] >= 0 and b[0] >= 0 else None


def differing(a: Range, b: Range) -> Range | None:
    """Of the bits that are set in one of two that are not negative."""
    return (0, _ones(a, b)) if a[0] >= 0 and b[0] >= 0 else None


def _ones(a: Range, b: Range) -> int:
    return (1 << max(a[1], b[1]).bit_length()) - 1


def shifted(a: Range, b: Range) -> Range | None:
    """Of a shift to the right."""
    return corners(lambda x, y: x >> y)(a, b) if b[0] >= 0 and b[1] < 64 else None


def divided(a: Range, b: Range) -> Range | None:
    """Of a quotient that is rounded down."""
    return corners(lambda x, y: x // y)(a, b) if b[0] > 0 else None


def remaining(a: Range, b: Range) -> Range | None:
    """Of a remainder that has the sign of its divisor."""
    return None if b[0] <= 0 else a if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)


def remaining_of(a: Range, b: Range) -> Range | None:
    """Of a remainder that has the sign of its dividend."""
    return (0, min(a[1], b[1] - 1)) if a[0] >= 0 and b[0] > 0 else None
