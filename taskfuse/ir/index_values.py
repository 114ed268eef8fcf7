"""Integers that depend only on their index, as index expressions.

A tensor that ops make from ``arange`` equals an expression of the index. Gathers at such elements become reads with known indices, and
comparisons of them become conditions on indices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from taskfuse.dtypes import DType, int64
from taskfuse.ir.expr import IndexValue, Literal, Operand, Pointwise, Read, View, at_point
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import TRUE, Expr, Facts, bounds, const, ge, maximum, minimum, prove, simplify

_ARITHMETIC: Final[Mapping[str, Callable[..., Expr]]] = MappingProxyType(
    {
        "copy": simplify,
        "cast": simplify,
        "neg": Expr.__neg__,
        "add": Expr.__add__,
        "sub": Expr.__sub__,
        "mul": Expr.__mul__,
        "maximum": maximum,
        "minimum": minimum,
    }
)
_DIVISIONS: Final[Mapping[str, Callable[[Expr, Expr], Expr]]] = MappingProxyType(
    {"floor_divide": Expr.__floordiv__, "remainder": Expr.__mod__, "fmod": Expr.__mod__}
)
"""Functions with divisors of at least 1; ``fmod`` if its dividend is not negative."""


def index_value(fusion: Fusion, operand: Operand, facts: Facts) -> Expr | None:
    """The value of an operand as a function of its index; ``None`` if it depends on elements, or on integers that may wrap.

    Extents and expressions of them are assumed to fit in int64.

    Args:
        facts: about the symbols of the operand's index.
    """
    match operand:
        case IndexValue():
            return operand.index
        case Literal(value=int() as value) if not isinstance(value, bool):
            return const(value)
        case Read() if operand.valid is TRUE and operand.tensor.dtype.is_integer:
            expr = fusion.definition(operand.tensor)
            point = {f"i{k}": e for k, e in enumerate(operand.index)}
            if isinstance(expr, View):
                return index_value(fusion, at_point(expr.operand, point), facts)
            if not isinstance(expr, Pointwise):
                return None
            made = _ARITHMETIC.get(expr.op.name) or _DIVISIONS.get(expr.op.name)
            known = [] if made is None else [e for o in expr.operands if (e := index_value(fusion, at_point(o, point), facts)) is not None]
            if made is None or len(known) < len(expr.operands) or (expr.op.name in _DIVISIONS and not _divides(expr.op.name, *known, facts=facts)):
                return None
            found = simplify(made(*known), facts)
            return found if _holds(operand.tensor.dtype, found, facts) else None
        case _:
            return None


def _divides(name: str, a: Expr, b: Expr, facts: Facts) -> bool:
    return prove(ge(b, 1), facts) and (name != "fmod" or prove(ge(a, 0), facts))


def _holds(dtype: DType, value: Expr, facts: Facts) -> bool:
    """True if a dtype has all the values."""
    low, high = bounds(value, facts)
    if dtype is int64 and (low is None or high is None):
        return True
    return low is not None and high is not None and dtype.min_value <= low and high <= dtype.max_value
