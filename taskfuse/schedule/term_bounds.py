"""Bounds of terms that are relative to the maximum of what they are computed of: ``x - max(x)`` is at most 0, and its exponential lies in [0, 1].

They hold for the maximum of all, and for a running one that takes an element in before its term is computed. So a clamp to the range of a type, as torch
puts before each conversion to ``float8_e4m3``, changes no exponential of a softmax.
"""

from __future__ import annotations

import math

from taskfuse.ir.axes import iteration_point, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Literal, Operand, Pointwise, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import TRUE, Expr, substitute
from taskfuse.ir.storage import storage_operands
from taskfuse.ir.tensor import TensorView

Bounds = tuple[float, float]
"""The least and the greatest number; NaN apart."""

ANY: Bounds = (-math.inf, math.inf)


def bounds_of(fusion: Fusion, operand: Operand, top: TensorView) -> Bounds:
    """Bounds of an operand, where ``top`` is the maximum."""
    match operand:
        case Literal(value=value):
            return float(value), float(value)
        case Read(tensor=tv, valid=valid) if valid is TRUE and tv.dtype.is_float and isinstance(expr := fusion.definition(tv), Pointwise):
            return _of_function(fusion, expr, top)
        case _:
            return ANY


def _of_function(fusion: Fusion, expr: Pointwise, top: TensorView) -> Bounds:
    operands = storage_operands(fusion, expr)
    found = [bounds_of(fusion, o, top) for o in operands]
    match expr.op.name, found:
        case "copy", [a]:
            return a
        case ("exp" | "exp2") as name, [(low, high)]:
            return _power(name, low), _power(name, high)
        case ("minimum" | "maximum") as name, [a, b]:
            pick = min if name == "minimum" else max
            return pick(a[0], b[0]), pick(a[1], b[1])
        case "mul", [(low, high), (factor, same)] if 0 < factor == same < math.inf:
            return low * factor, high * factor
        case "mul", [(factor, same), (low, high)] if 0 < factor == same < math.inf:
            return low * factor, high * factor
        case "add", [a, b]:
            return a[0] + b[0], a[1] + b[1]
        case "sub", [a, b]:
            distance = _below(fusion, operands[0], operands[1], top)
            return a[0] - b[1], a[1] - b[0] if distance is None else distance
        case _:
            return ANY


def _power(name: str, exponent: float) -> float:
    try:
        return math.exp(exponent) if name == "exp" else 2.0**exponent
    except OverflowError:
        return math.inf


def _below(fusion: Fusion, element: Operand, other: Operand, top: TensorView) -> float | None:
    """By how much an element exceeds the maximum of it and others, plus a constant, at most; ``None``: the other operand is no such sum."""
    if not isinstance(element, Read) or not isinstance(other, Read) or other.valid is not TRUE or element.valid is not TRUE:
        return None
    if other.tensor is top:
        return 0.0 if _takes_in(fusion, top, other.index, element) else None
    expr = fusion.definition(other.tensor)
    if not isinstance(expr, Pointwise) or expr.op not in (ELEMENTWISE["add"], ELEMENTWISE["sub"], ELEMENTWISE["copy"]):
        return None
    at = dict(zip(map(str, iteration_point(other.tensor.ndim)), other.index, strict=True))
    inner, *constant = storage_operands(fusion, expr)
    if not isinstance(inner, Read) or not all(isinstance(c, Literal) for c in constant):
        return None
    moved = Read(inner.tensor, tuple(substitute(e, at) for e in inner.index), inner.valid)
    distance = _below(fusion, element, moved, top)
    sign = 1 if expr.op is ELEMENTWISE["sub"] else -1
    return None if distance is None else distance + sum(sign * float(c.value) for c in constant if isinstance(c, Literal))


def _takes_in(fusion: Fusion, top: TensorView, at: tuple[Expr, ...], element: Read) -> bool:
    """Whether the maximum at an index is that of elements of which ``element`` is one."""
    expr = fusion.definition(top)
    if not isinstance(expr, Reduction) or expr.combine.name != "maximum" or expr.body is not ELEMENTWISE["copy"]:
        return False
    (term,) = storage_operands(fusion, expr)
    if not isinstance(term, Read) or term.tensor is not element.tensor or term.valid is not TRUE:
        return False
    kept = [p for p, a in enumerate(top.root) if not a.is_reduction]
    if len(kept) != len(at):
        return False
    point = dict(zip((str(iteration_symbol(p)) for p in kept), at, strict=True))
    for e, here in zip(term.index, element.index, strict=True):
        if str(e) not in point and any(e is iteration_symbol(p) for p, a in enumerate(top.root) if a.is_reduction):
            point[str(e)] = here
    return tuple(substitute(e, point) for e in term.index) == element.index
