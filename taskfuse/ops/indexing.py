"""Slicing and indexing: views with the bounds of NumPy, also for symbolic extents."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, cast

from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.scalar import ONE, Expr, Facts, IntLike, and_, ge, le, lt, maximum, minimum, prove, simplify, wrap
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import check_tensor, described, dtype_error, shape_error
from taskfuse.ops.views import view

_HELP = "index with integers, slices, None and Ellipsis"


@dataclass(frozen=True, slots=True)
class _Range:
    """Positions ``start, start + step, ...`` of a dimension, ``length`` of them."""

    start: Expr
    step: int
    length: Expr


def slice(
    x: TensorView,
    starts: Sequence[IntLike | None],
    stops: Sequence[IntLike | None],
    steps: Sequence[int | None] | None = None,
) -> TensorView:
    """``x[starts[0]:stops[0]:steps[0], ...]``: a view.

    Each list has at most one entry per dimension; ``None``, and what is missing at the end, is as in a Python slice. Negative integers count
    from the end, bounds are clamped as in NumPy; a symbolic bound counts from the start.

    Raises :class:`ShapeError` if there are too many entries, the lists differ in length, or a step is 0.
    """
    check_tensor("slice", x)
    strides: Sequence[int | None] = [None] * len(starts) if steps is None else steps
    if not len(starts) == len(stops) == len(strides):
        raise shape_error("slice", f"{len(starts)} starts, {len(stops)} stops and {len(strides)} steps", "give one of each per dimension")
    return _index("slice", x, tuple(builtins.slice(a, b, c) for a, b, c in zip(starts, stops, strides, strict=True)))


def getitem(x: TensorView, key: object) -> TensorView:
    """``x[key]`` for integers, slices, ``None`` and ``...``: a view.

    Raises:
        ShapeError: for too many indices, more than one ``...``, a step of 0, or an integer that is not provably in range.
        DTypeError: for any other key.
    """
    return _index("index", x, cast("tuple[object, ...]", key) if isinstance(key, tuple) else (key,))


def _index(op: str, x: TensorView, keys: tuple[object, ...]) -> TensorView:
    facts = x.fusion.facts()
    shape: list[Expr] = []
    index: list[Expr] = []
    for key in _without_ellipsis(op, x, keys):
        match key:
            case None:
                shape.append(ONE)
            case builtins.slice():
                found = _resolve(op, cast("builtins.slice[Any, Any, Any]", key), x.shape[len(index)], facts)
                index.append(found.start + iteration_symbol(len(shape)) * found.step)
                shape.append(found.length)
            case int() | Expr() if not isinstance(key, bool):
                index.append(_position(op, x, len(index), key, facts))
            case _:
                raise dtype_error(op, f"{described(x)} cannot be indexed with {type(key).__name__}", _HELP)
    return view(x, "slice", shape, index)


def _without_ellipsis(op: str, x: TensorView, keys: tuple[object, ...]) -> list[object]:
    """``keys`` with ``...`` (or the end) replaced by full slices, one key per dimension of ``x`` besides ``None``."""
    places = [i for i, key in enumerate(keys) if isinstance(key, EllipsisType)]
    if len(places) > 1:
        raise shape_error(op, "more than one ... in the index")
    used = sum(key is not None and not isinstance(key, EllipsisType) for key in keys)
    if used > x.ndim:
        raise shape_error(op, f"{used} indices for the {x.ndim} dimensions of {described(x)}")
    at = places[0] if places else len(keys)
    return [*keys[:at], *[builtins.slice(None)] * (x.ndim - used), *keys[at + 1 :]]


def _position(op: str, x: TensorView, d: int, key: IntLike, facts: Facts) -> Expr:
    size = x.shape[d]
    place = size + key if isinstance(key, int) and key < 0 else wrap(key)
    if not prove(and_(le(0, place), lt(place, size)), facts):
        raise shape_error(
            op,
            f"index {key} is not provably in range for dimension {d} of {described(x)}",
            "give facts about the extent, such as tf.dim('S', min=4)" if size.free else None,
        )
    return place


def _resolve(op: str, key: builtins.slice[Any, Any, Any], size: Expr, facts: Facts) -> _Range:
    """The positions of a slice in a dimension of extent ``size``: the rules of ``slice.indices``, symbolically."""
    step = 1 if key.step is None else key.step
    for bound in (key.start, key.stop):
        if not (bound is None or isinstance(bound, int | Expr)):
            raise dtype_error(op, f"slice bound {bound!r} is no integer", _HELP)
    if not isinstance(step, int):
        raise dtype_error(op, f"slice step {step!r} is no integer constant", _HELP)
    if step == 0:
        raise shape_error(op, "slice step is 0")
    least, most = (wrap(0), size) if step > 0 else (wrap(-1), size - 1)
    start = (least if step > 0 else most) if key.start is None else _bound(key.start, size, least, most, facts)
    stop = (most if step > 0 else least) if key.stop is None else _bound(key.stop, size, least, most, facts)
    distance = stop - start if step > 0 else start - stop
    return _Range(start, step, simplify(maximum(distance.ceildiv(abs(step)), 0), facts))


def _bound(bound: IntLike, size: Expr, least: Expr, most: Expr, facts: Facts) -> Expr:
    place = size + bound if isinstance(bound, int) and bound < 0 else wrap(bound)
    if prove(and_(le(least, place), ge(most, place)), facts):
        return place
    return simplify(maximum(minimum(place, most), least), facts)
