"""The part of a reduction's point that its element leaves open: the reduced axes, and the remaining digits of axes of which the element fixes some."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from taskfuse.check.values.solve import Open
from taskfuse.ir.scalar import NO_FACTS, Const, Expr, Facts, FloorDiv, Max, Min, Mod, Sym, children, const, eq, evaluate, maximum, minimum, prove, simplify, sym
from taskfuse.kir.witness import Definition

NONE: Mapping[int, Expr] = {}


def residues(
    definition: Definition, axes: list[int], values: list[Expr], facts: Facts, ends: Mapping[int, Expr] = NONE, always: Facts | None = None
) -> tuple[list[Expr], list[Expr]]:
    """The reduced axes of a point and their extents: for an axis of which the element fixes some digits, the others.

    Args:
        facts: what holds at the point.
        ends: of reduced axes, simplified: the points behind need not be visited. Digits of several axes together do not use it.
        always: what holds whether or not a point is visited, for the extents; ``None``: the facts.
    """
    always = facts if always is None else always
    point: list[Expr] = []
    extents: list[Expr] = []
    together = _rows(definition, axes)
    for k in axes:
        name, value, extent = f"i{k}", values[k], ends.get(k, definition.space[k])
        if together is not None and k in together.axes:
            if k == together.axes[0]:
                _append(point, extents, together.number(values) % together.low, const(together.low), None, facts, always)
            continue
        fixed = [_digit(e) for e in definition.place if name in e.free]
        if not fixed:
            point.append(simplify(value, facts))
            extents.append(extent if k in ends else simplify(extent, always))
        low: Expr = const(1)
        for _ in range(len(fixed)):
            weight, modulus = next(((w, m) for w, m in fixed if w is low), None) or min(fixed, key=lambda d: d[0].value if isinstance(d[0], Const) else 0)
            fixed.remove((weight, modulus))
            if weight is not low:
                most = extent if low is const(1) and (k in ends or isinstance(extent, Const)) else None
                _append(point, extents, value // low % (weight // low), weight // low, most, facts, always)
            if modulus is None:
                break
            low = weight * modulus
        else:
            if definition.place and any(name in e.free for e in definition.place):
                _append(point, extents, value // low, _quotient(extent, low), None, facts, always)
    return point, extents


class _Rows(NamedTuple):
    """Axes whose points are numbered in row-major order, and the element says the number's high digit.

    Attributes:
        axes: the outermost first.
        extents: theirs.
        low: the number of values of the low digit, which the element leaves open.
    """

    axes: tuple[int, ...]
    extents: tuple[int, ...]
    low: int

    def number(self, values: Sequence[Expr]) -> Expr:
        """The number of a point."""
        found: Expr = const(0)
        for k, extent in zip(self.axes, self.extents, strict=True):
            found = found * extent + values[k]
        return found


def _rows(definition: Definition, axes: Sequence[int]) -> _Rows | None:
    """Several reduced axes of constant extents, of which one index of the element says a digit together; ``None`` if none does.

    Points of these axes and their numbers ``n`` are in bijection, and so are these and ``(n // low, n % low)``. The index is compared with ``n // low``
    at all points by the prover of equations. Past the end of the numbers are those of points past the end of the outermost axis.
    """
    for e in definition.place:
        own = tuple(k for k in axes if f"i{k}" in e.free)
        extents = [x.value for k in own if isinstance(x := definition.space[k], Const)]
        if len(own) < 2 or len(extents) < len(own) or any(f"i{k}" in other.free for k in own for other in definition.place if other is not e):
            continue
        facts = NO_FACTS
        for k, extent in zip(own, extents, strict=True):
            facts = facts.with_range(f"i{k}", 0, extent - 1)
        low, width = _first(e, own, extents), _width(e, own[-1])
        if low % width or extents[-1] % width:
            continue
        vectors = _Rows(own, (*extents[:-1], extents[-1] // width), low // width)  # the number of a vector is that of its elements, divided by its width
        points: list[Expr] = [sym(f"i{k}") for k in range(len(definition.space))]
        points[own[-1]] = points[own[-1]] // width
        if prove(eq(vectors.number(points) // vectors.low, e), facts):
            return _Rows(own, tuple(extents), low)
    return None


def _width(e: Expr, axis: int) -> int:
    """The divisor of an axis in an index, before it is joined with others; 1 without one."""
    match e:
        case FloorDiv(a=Sym(name=name), b=Const(value=width)) if name == f"i{axis}":
            return width
        case _:
            return max((_width(child, axis) for child in children(e)), default=1)


def _first(e: Expr, axes: Sequence[int], extents: Sequence[int]) -> int:
    """The number of the first point at which an index that does not fall is not 0; of the points, if there is none."""

    def is_zero(number: int) -> bool:
        values: dict[str, int] = {}
        for k, extent in zip(reversed(axes), reversed(extents), strict=True):
            number, values[f"i{k}"] = divmod(number, extent)
        return evaluate(e, values) == 0

    return bisect_left(range(prod(extents)), True, key=lambda number: not is_zero(number))


def _append(point: list[Expr], extents: list[Expr], value: Expr, extent: Expr, most: Expr | None, facts: Facts, always: Facts) -> None:
    """Append a digit; its extent is at most that of its axis."""
    if most is not None:
        extent = minimum(extent, most)
    point.append(simplify(value, facts))
    extents.append(simplify(extent, always))


def _quotient(extent: Expr, low: Expr) -> Expr:
    """``ceildiv(extent, low)``. Of a minimum or maximum it is that of the quotients, as a quotient by a positive number does not fall."""
    if isinstance(low, Const) and isinstance(extent, Min | Max):
        parts = [_quotient(e, low) for e in extent.args]
        return minimum(*parts) if isinstance(extent, Min) else maximum(*parts)
    return (extent + low - 1) // low


def _digit(e: Expr) -> tuple[Expr, Expr | None]:
    """A digit of an index: its weight, and its modulus, unless it is the first one."""
    match e:
        case FloorDiv(a=Sym(), b=n):
            return n, None
        case Mod(a=Sym(), b=m):
            return const(1), m
        case Mod(a=FloorDiv(a=Sym(), b=n), b=m):
            return n, m
        case FloorDiv(a=Mod(a=Sym(), b=m), b=n):
            return n, m // n
        case _:
            raise Open(f"its elements are those of points by {e}")
