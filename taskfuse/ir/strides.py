"""Strides of arrays: the order of their axes in memory, whether elements share an address, and strides that are declared."""

from __future__ import annotations

from collections.abc import Container, Sequence

from taskfuse.errors import FusionError, ParseError, shown
from taskfuse.ir.scalar import Const, Expr, Facts, IntLike, free_symbols, ge, lt, parse_expr, prove, shape_text, simplify, unsafe_divisor, wrap
from taskfuse.location import caller


def order_of(shape: Sequence[Expr], strides: Sequence[Expr], facts: Facts) -> tuple[int, ...] | None:
    """The axes by descending stride, if no two elements share an address; ``None`` if that is unknown.

    Each stride must be at least the span of the axes with smaller ones. Axes of extent 1 come last, but keep their position among equals.
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


def declared_strides(fusion: str, tensor: str, shape: Sequence[Expr], given: Sequence[IntLike | str], dims: Container[str], facts: Facts) -> tuple[Expr, ...]:
    """Strides as expressions of dimensions. Raises :class:`FusionError` if they do not fit the shape."""
    try:
        found = tuple(simplify(parse_expr(e) if isinstance(e, str) else wrap(e), facts) for e in given)
    except (TypeError, ParseError):
        found = ()
    text = shape_text(shape)
    if len(found) != len(shape):
        help = f"give {len(shape)} integers or expressions of dimensions, in elements"
        raise FusionError(fusion=fusion, reason=f"{shown(given)} are not strides of {tensor} {text}", help=help, location=caller())
    unknown = sorted(name for e in found for name in free_symbols(e) if name not in dims)
    if unknown:
        raise FusionError(fusion=fusion, reason=f"a stride of {tensor} uses '{unknown[0]}', which is not a dimension", location=caller())
    divisor = next((d for e in found if (d := unsafe_divisor(e, facts)) is not None), None)
    if divisor is not None:
        reason = f"a stride of {tensor} divides by {divisor}, which may be 0"
        raise FusionError(fusion=fusion, reason=reason, help="declare it with tf.dim(..., min=1)", location=caller())
    if any(prove(lt(e, 0), facts) for e in found) or collides(shape, found, facts):
        help = "each stride must be at least 1, and step over all elements of the axes with smaller strides"
        reason = f"with the strides {shape_text(found)}, elements of {tensor} {text} would share memory"
        raise FusionError(fusion=fusion, reason=reason, help=help, location=caller())
    return found


def may_be_equal(one: Sequence[Expr], two: Sequence[Expr], facts: Facts) -> bool:
    """True unless two shapes are known to differ; a call decides it otherwise."""
    return len(one) == len(two) and not any(prove(lt(a, b), facts) or prove(lt(b, a), facts) for a, b in zip(one, two, strict=True))


def _is(e: Expr, value: int) -> bool:
    return isinstance(e, Const) and e.value == value
