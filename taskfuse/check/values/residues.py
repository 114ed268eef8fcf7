"""The part of a reduction's point that its element leaves open: the reduced axes, and the remaining digits of axes of which the element fixes some."""

from __future__ import annotations

from taskfuse.check.values.solve import Open
from taskfuse.ir.scalar import Const, Expr, Facts, FloorDiv, Mod, Sym, const, simplify
from taskfuse.kir.witness import Definition


def residues(definition: Definition, axes: list[int], values: list[Expr], facts: Facts) -> tuple[list[Expr], list[Expr]]:
    """The reduced axes of a point and their extents: of an axis of which the element fixes some digits, the others."""
    point: list[Expr] = []
    extents: list[Expr] = []
    for k in axes:
        name, value, extent = f"i{k}", values[k], definition.space[k]
        fixed = [_digit(e) for e in definition.place if name in e.free]
        if not fixed:
            point.append(simplify(value, facts))
            extents.append(simplify(extent, facts))
        low: Expr = const(1)
        for _ in range(len(fixed)):
            weight, modulus = next(((w, m) for w, m in fixed if w is low), None) or min(fixed, key=lambda d: d[0].value if isinstance(d[0], Const) else 0)
            fixed.remove((weight, modulus))
            if weight is not low:
                _append(point, extents, value // low % (weight // low), weight // low, extent if low is const(1) else None, facts)
            if modulus is None:
                break
            low = weight * modulus
        else:
            if definition.place and any(name in e.free for e in definition.place):
                _append(point, extents, value // low, (extent + low - 1) // low, None, facts)
    return point, extents


def _append(point: list[Expr], extents: list[Expr], value: Expr, extent: Expr, most: Expr | None, facts: Facts) -> None:
    """Append a digit; its extent is at most that of its axis."""
    if isinstance(most, Const) and isinstance(extent, Const):
        extent = const(min(most.value, extent.value))
    point.append(simplify(value, facts))
    extents.append(simplify(extent, facts))


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
