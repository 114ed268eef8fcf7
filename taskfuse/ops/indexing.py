"""Slicing and indexing: views with the bounds of NumPy, also for symbolic extents; gathers where tensors are among the indices."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, cast

from taskfuse.errors import shown
from taskfuse.ir.axes import iteration_symbol, value_symbol
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, Expr, Facts, IntLike, and_, ge, le, lt, maximum, minimum, prove, simplify, wrap
from taskfuse.ir.tensor import Scalar, TensorView
from taskfuse.ops.build import broadcast_shape, check_symbols, check_tensor, common_fusion, described, dtype_error, listed, plain, shape_error
from taskfuse.ops.gather import check_indices, define_gather, read_shifted
from taskfuse.ops.registry import OpKind, op, same
from taskfuse.ops.views import view

__all__ = ["slice"]

_HELP = "index with integers, slices, None, Ellipsis and tensors of integers"
_IN_TENSOR = "read at positions that a tensor holds: tf.take(x, tf.arange(n) + s, axis), whose extent n is known"
_RUN_TIME = f"declare it as a run-time integer, tf.define_integer('i'), which may be a bound; or {_IN_TENSOR}"


@dataclass(frozen=True, slots=True)
class _Range:
    """Positions ``start, start + step, ...`` of a dimension, ``length`` of them."""

    start: Expr
    step: int
    length: Expr


@op(OpKind.VIEW, same, torch="slice", numpy="")
def slice(
    x: TensorView,
    starts: Sequence[IntLike | None],
    stops: Sequence[IntLike | None],
    steps: Sequence[int | None] | None = None,
) -> TensorView:
    """``x[starts[0]:stops[0]:steps[0], ...]``: a view.

    Each list has at most one entry per dimension; ``None``, or an entry omitted at the end, is as in a Python slice. Negative integers count
    from the end, bounds are clamped as in NumPy; a symbolic bound counts from the start, and must not be one that is never positive.

    Raises :class:`ShapeError` if there are too many entries, the lists differ in length, or a step is 0.
    """
    check_tensor("slice", x)
    starts, stops = (listed("slice", bounds, "bounds") for bounds in (starts, stops))
    strides: Sequence[int | None] = [None] * len(starts) if steps is None else listed("slice", steps, "steps")
    if not len(starts) == len(stops) == len(strides):
        raise shape_error("slice", f"{len(starts)} starts, {len(stops)} stops and {len(strides)} steps", "give one of each per dimension")
    return _index("slice", x, tuple(builtins.slice(a, b, c) for a, b, c in zip(starts, stops, strides, strict=True)))


def getitem(x: TensorView, key: object) -> TensorView:
    """``x[key]`` for integers, slices, ``None`` and ``...``: a view. Tensors of integers among them make it a gather, with the shape of NumPy.

    Indices in a tensor are those of :func:`~taskfuse.ops.gather.take`.

    Raises:
        ShapeError: for too many indices, more than one ``...``, a step of 0, an integer that is not provably in range, or tensors that do not
            broadcast.
        DTypeError: for any other key.
    """
    return _index("index", x, cast("tuple[object, ...]", key) if isinstance(key, tuple) else (key,))


def _index(op: str, x: TensorView, keys: tuple[object, ...]) -> TensorView:
    facts = x.fusion.facts()
    shape: list[Expr] = []
    index: list[Expr] = []
    given = _without_ellipsis(op, x, tuple(plain(key) for key in keys))
    tensors = {k: check_indices(op, key) for k, key in enumerate(given) if isinstance(key, TensorView)}
    common_fusion(op, (x, *tensors.values()))
    broadcast_shape(op, list(tensors.values()))
    places: dict[int, int] = {}
    for k, key in enumerate(given):
        if not isinstance(key, int | Expr):
            places[k] = len(shape)
        match key:
            case None:
                shape.append(ONE)
            case builtins.slice():
                found = _resolve(op, x.fusion, cast("builtins.slice[Any, Any, Any]", key), x.shape[len(index)], facts)
                index.append(found.start + iteration_symbol(len(shape)) * found.step)
                shape.append(found.length)
            case TensorView():
                shape.append(x.shape[len(index)])
                index.append(iteration_symbol(places[k]))
            case int() | Expr() if not isinstance(key, bool):
                check_symbols(op, x.fusion, key)
                index.append(_position(op, x, len(index), key, facts))
            case Scalar():
                raise dtype_error(op, f"{described(x)} cannot be indexed with the run-time scalar {shown(key)}", _RUN_TIME)
            case _:
                raise dtype_error(op, f"{described(x)} cannot be indexed with {type(key).__name__}", _HELP)
    if not tensors:
        return view(x, "slice", shape, index)
    is_whole = len(shape) == x.ndim and all(index[d] is iteration_symbol(d) and shape[d] is x.shape[d] for d in range(x.ndim))
    with x.fusion.call():
        return _gathered(x if is_whole else view(x, "slice", shape, index), given, tensors, places)


def _gathered(table: TensorView, keys: Sequence[object], tensors: Mapping[int, TensorView], places: Mapping[int, int]) -> TensorView:
    """``table`` at the values of tensors, whose dimensions replace the adjacent indices that are integers or tensors; if these are not adjacent, they lead.

    Args:
        tensors: the tensors among ``keys``, by position.
        places: the dimension of ``table`` of each key that has one.
    """
    common = broadcast_shape("index", list(tensors.values()))
    advanced = [k for k, key in enumerate(keys) if isinstance(key, int | Expr | TensorView)]
    together = advanced[-1] - advanced[0] + 1 == len(advanced)
    kept = [k for k in places if k not in tensors]
    before = [k for k in kept if together and k < advanced[0]]
    after = [k for k in kept if k not in before]
    index: list[Expr] = [value_symbol(0)] * table.ndim
    for symbol, k in enumerate(before):
        index[places[k]] = iteration_symbol(symbol)
    for symbol, k in enumerate(after, start=len(before) + len(common)):
        index[places[k]] = iteration_symbol(symbol)
    for number, k in enumerate(tensors):
        index[places[k]] = value_symbol(number)
    shape = [*(table.shape[places[k]] for k in before), *common, *(table.shape[places[k]] for k in after)]
    values = [(read_shifted(tv, common, len(before)), table.shape[places[k]]) for k, tv in tensors.items()]
    return define_gather(table, shape, index, values)


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


def _resolve(op: str, fusion: Fusion, key: builtins.slice[Any, Any, Any], size: Expr, facts: Facts) -> _Range:
    """The positions of a slice in a dimension of extent ``size``: the rules of ``slice.indices``, symbolically."""
    start, stop, step = (plain(bound) for bound in (key.start, key.stop, 1 if key.step is None else key.step))
    for bound in (start, stop):
        if not (bound is None or isinstance(bound, int | Expr)):
            help = _RUN_TIME if isinstance(bound, Scalar) else _IN_TENSOR if isinstance(bound, TensorView) else _HELP
            raise dtype_error(op, f"slice bound {shown(bound)} is {'no run-time integer' if isinstance(bound, Scalar) else 'not an integer'}", help)
        check_symbols(op, fusion, bound)
    if not isinstance(step, int):
        raise dtype_error(op, f"slice step {shown(step)} is not an integer constant", _HELP)
    if step == 0:
        raise shape_error(op, "slice step is 0")
    least, most = (wrap(0), size) if step > 0 else (wrap(-1), size - 1)
    first = (least if step > 0 else most) if start is None else _bound(op, cast("IntLike", start), size, least, most, facts)
    last = (most if step > 0 else least) if stop is None else _bound(op, cast("IntLike", stop), size, least, most, facts)
    distance = last - first if step > 0 else first - last
    return _Range(first, step, simplify(maximum(distance.ceildiv(abs(step)), 0), facts))


def _bound(op: str, bound: IntLike, size: Expr, least: Expr, most: Expr, facts: Facts) -> Expr:
    if isinstance(bound, Expr) and prove(le(bound, 0), facts) and not prove(ge(bound, 0), facts):
        raise shape_error(op, f"the slice bound {bound} counts from the start, and is never positive", f"to count from the end write {size + bound}")
    place = size + bound if isinstance(bound, int) and bound < 0 else wrap(bound)
    if prove(and_(le(least, place), ge(most, place)), facts):
        return place
    return simplify(maximum(minimum(place, most), least), facts)
