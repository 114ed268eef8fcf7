"""Writes at indices held by tensors: scatter, scatter_add, scatter_reduce, index_add, index_put, segment_sum, bincount.

A point i of the indices writes the element of the result that its values name; every other element is that of the base. Several points may name one
element: their values are combined, and where nothing combines them, the last point's is taken. So a result does not depend on who writes first.

An index counts from the end where it is negative, and a point whose index is outside [-n, n) writes nothing: a kernel never writes outside a tensor.
Numbers of segments and bins count from 0 only.

There are two forms. In *gather form* every element of the result looks at every point, a reduction in which points that name another element
contribute the neutral element (:mod:`taskfuse.ops.points`). In *scatter form* every point is combined with its element where that lies, in one step
(:class:`~taskfuse.ir.expr.Update`). Sums, and all that the GPU combines atomically, are made in scatter form, which ``tv.unscatter()`` turns into the
other; so is the number of the last point that writes an element, or a row of elements that the same points write.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from taskfuse.dtypes import DType, bool_, int64, result_type
from taskfuse.errors import FusionError, shown
from taskfuse.ir.axes import axis as new_axis
from taskfuse.ir.axes import iteration_symbol, value_symbol
from taskfuse.ir.combine import COMBINES, Combine, is_atomic
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Assemble, IndexValue, Literal, Operand, Read, Update
from taskfuse.ir.expr import operand_dtype as operand_type
from taskfuse.ir.scalar import ONE, ZERO, Expr, Facts, IntLike, le, prove, shape_text, substitute
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import (
    Shape,
    broadcast_read,
    broadcast_shape,
    cast_tensor,
    check_tensor,
    common_fusion,
    define_pointwise,
    described,
    dtype_error,
    listed,
    literal,
    normalize_axis,
    plain,
    pointwise,
    shape_error,
    total_dtype,
)
from taskfuse.ops.create import extent
from taskfuse.ops.gather import check_along, check_indices, define_gather
from taskfuse.ops.jagged import jagged_to_padded_dense
from taskfuse.ops.keywords import axial
from taskfuse.ops.known_places import box_of, known_spans, with_box
from taskfuse.ops.points import Points, from_the_start, gathered, is_named
from taskfuse.ops.reduce import reduce_axes
from taskfuse.ops.registry import OpKind, indexed, op
from taskfuse.ops.select import pad
from taskfuse.ops.views import broadcast_to, permute, reshape

__all__ = ["bincount", "index_add", "index_put", "scatter", "scatter_add", "scatter_reduce", "segment_sum"]

Source = TensorView | int | float | bool


class ScatterReduce(Enum):
    """The functions by which :func:`scatter_reduce` combines, by their names in torch."""

    SUM = "sum"
    PROD = "prod"
    AMAX = "amax"
    AMIN = "amin"

    @property
    def combine(self) -> Combine:
        """The row of the table."""
        return COMBINES[{"sum": "add", "prod": "mul", "amax": "maximum", "amin": "minimum"}[self.value]]


def _points(whole: Shape, indices: Sequence[TensorView], axes: Sequence[int], space: Shape, along: Sequence[int]) -> Points:
    """The points of indices, one for each written axis of the whole.

    Args:
        indices: over the axes of the points, of extent 1 where they do not depend on one.
        axes: the axes of the whole that they say.
        space: extents of the points.
        along: the axes of the points that no axis of the whole follows. Its other axes are those of the whole that are not written, in order.
    """
    others = iter([a for a in range(len(space)) if a not in along])
    place = tuple(value_symbol(axes.index(d)) if d in axes else iteration_symbol(next(others)) for d in range(len(whole)))
    values = (Read(tv, tuple(ZERO if e is ONE else iteration_symbol(a) for a, e in enumerate(tv.shape))) for tv in indices)
    return Points(space, place, tuple(values), tuple(whole[d] for d in axes))


def _combined(base: TensorView, points: Points, source: Operand, combine: Combine) -> TensorView:
    """``base`` combined with the source at the points."""
    wide = base.dtype.compute
    if is_atomic(combine, wide):
        return cast_tensor(_sent(base, points, source, combine, wide), base.dtype)
    neutral = Literal(combine.neutral(wide), wide)
    found = gathered(base.fusion, base.shape, points, combine, source, neutral)
    return cast_tensor(pointwise(combine.op, (cast_tensor(base, wide), found)), base.dtype)


def _sent(base: TensorView, points: Points, source: Operand, combine: Combine, wide: DType) -> TensorView:
    """The same in scatter form: a copy of ``base``, and the source on its way to it."""
    fusion = base.fusion
    row = ELEMENTWISE["copy" if base.dtype is wide else "cast"]
    start = define_pointwise(fusion, row, base.shape, (broadcast_read(base, base.shape),), wide)
    match source:
        case Read(tensor, index):
            value = Read(cast_tensor(tensor, wide), index)
        case _:
            term = define_pointwise(fusion, ELEMENTWISE["copy" if operand_type(source) is wide else "cast"], points.space, (source,), wide)
            value = broadcast_read(term, term.shape)
    location = caller()
    sent = fusion.new_tensor([new_axis(e) for e in points.space], wide, location=location)
    update = fusion.define(Update(sent, combine, (Read(start, points.place), value, *points.values), points.extents, location))
    whole = fusion.new_tensor([new_axis(e) for e in base.shape], wide, location=location)
    parts = broadcast_read(start, start.shape), broadcast_read(update, update.shape)
    return fusion.define(Assemble(whole, parts, (_first(base.shape), points.place), location))


def _chosen(base: TensorView, points: Points, source: Operand, along: int, combine: Combine | None) -> TensorView:
    """``base`` with the source of the last point along an axis that names an element: if there is one point along it, a choice between the two.

    Args:
        combine: of the element and the source, if there is one point; ``None``: the source replaces the element.
    """
    fusion, reached = base.fusion, points.reached(base.shape)
    behind = [(ZERO, n - e) for n, e in zip(base.shape, reached, strict=True)]

    def whole(found: TensorView) -> TensorView:
        return found if all(n is ZERO for _, n in behind) else pad(found, behind, 0)

    if points.space[along] is ONE:
        last, written = None, whole(is_named(fusion, reached, from_the_start(fusion, points))) if points.values else None
    else:
        alike = points.alike(fusion)  # rows of elements, for instance: which point writes them is found once
        few = points.at_first({a for d in alike if (a := points.follows[d]) is not None})
        rows = tuple(ONE if d in alike else e for d, e in enumerate(base.shape))
        none = define_pointwise(fusion, ELEMENTWISE["copy"], rows, (Literal(-1, int64),), int64)
        last = _sent(none, few, IndexValue(iteration_symbol(along)), COMBINES["maximum"], int64)
        written = pointwise(ELEMENTWISE["ge"], (last, 0))
        if alike:
            beside = [n if d in alike else e for d, (e, n) in enumerate(zip(rows, reached, strict=True))]
            outside = [(ZERO, n - e) if d in alike else (ZERO, ZERO) for d, (e, n) in enumerate(zip(reached, base.shape, strict=True))]
            written = broadcast_to(written, beside)
            written = written if all(n is ZERO for _, n in outside) else pad(written, outside, False)
    match source:
        case Read(tensor, index):
            at = {str(iteration_symbol(a)): iteration_symbol(d) for d, a in enumerate(points.follows) if a is not None}
            at[str(iteration_symbol(along))] = ZERO if last is None else value_symbol(0)
            places = [substitute(e, at) for e in index]
            if last is None:
                value = whole(define_pointwise(fusion, ELEMENTWISE["copy"], reached, (Read(tensor, tuple(places)),), base.dtype))
            else:
                value = whole(define_gather(tensor, reached, places, [(broadcast_read(last, reached), points.space[along])]))
        case _:
            value = define_pointwise(fusion, ELEMENTWISE["copy"], base.shape, (source,), base.dtype)
    if combine is not None:
        value = cast_tensor(pointwise(combine.op, (cast_tensor(base, base.dtype.compute), cast_tensor(value, base.dtype.compute))), base.dtype)
    return value if written is None else pointwise(ELEMENTWISE["where"], (written, value, base))


def _first(shape: Shape) -> Shape:
    return tuple(map(iteration_symbol, range(len(shape))))


def _source(op: str, base: TensorView, source: Source) -> Operand:
    """``source`` in the dtype of ``base``. Raises :class:`DTypeError` if that does not hold it."""
    if not isinstance(source, TensorView):
        number = plain(source)
        if not isinstance(number, bool | int | float):
            raise dtype_error(op, f"{shown(number)} is neither a tensor nor a number", "make constants with tf.full")
        if result_type(base.dtype, number) is not base.dtype:
            raise dtype_error(op, f"{shown(number)} is not a value of {base.dtype.name}", "cast the tensor first")
        return literal(op, number, base.dtype)
    if result_type(base.dtype, source.dtype) is not base.dtype:
        raise dtype_error(op, f"{base.name} ({base.dtype.name}) does not hold values of {source.name} ({source.dtype.name})", "cast one of them first")
    moved = cast_tensor(source, base.dtype)
    return broadcast_read(moved, moved.shape)


def _combining(dtypes: Sequence[DType]) -> DType | None:
    return None if dtypes[0].is_bool else indexed(dtypes)


def _counting(dtypes: Sequence[DType]) -> DType | None:
    x, *weights = dtypes
    if indexed((x, x)) is None or bool_ in weights:
        return None
    return total_dtype(weights[0]) if weights else int64


def _check_arithmetic(op: str, combine: Combine | None, base: TensorView) -> None:
    if combine is not None and combine.op.name in ("add", "mul") and base.dtype.is_bool:
        raise dtype_error(op, "bool elements do not support arithmetic", "cast to an integer or float dtype first")


def _scatter(op: str, x: TensorView, dim: int, indices: TensorView, source: Source, combine: Combine | None) -> TensorView:
    """The scatters of torch: the points are those of ``indices``, each at its own place besides ``dim``."""
    place = check_along(op, x, indices, dim)
    tensors = [tv for tv in (x, indices, source) if isinstance(tv, TensorView)]
    facts = common_fusion(op, tensors).facts()
    _check_arithmetic(op, combine, x)
    for d, n in enumerate(indices.shape):
        if d != place and not prove(le(n, x.shape[d]), facts):
            raise shape_error(op, f"dimension {d} of {described(indices)} is not provably within that of {described(x)}", "slice the indices")
    if isinstance(source, TensorView) and not _is_within(indices, source, facts):
        raise shape_error(op, f"{described(indices)} is not provably within {described(source)}", "slice the indices")
    with x.fusion.call():
        points = _points(x.shape, (indices,), (place,), indices.shape, (place,))
        value = _source(op, x, source)
        is_one = indices.shape[place] is ONE
        return _chosen(x, points, value, place, combine) if combine is None or is_one else _combined(x, points, value, combine)


def _is_within(a: TensorView, b: TensorView, facts: Facts) -> bool:
    return a.ndim == b.ndim and all(prove(le(n, e), facts) for n, e in zip(a.shape, b.shape, strict=True))


@op(OpKind.SCATTER, indexed, numpy="")
@axial
def scatter(x: TensorView, dim: int, indices: TensorView, src: Source) -> TensorView:
    """``x`` with ``src`` at ``indices`` along ``dim``, each at its own position in the other dimensions, as ``torch.scatter``.

    Of several that write one element, the last along ``dim`` does. Negative indices count from the end; one outside the extent writes nothing.

    Args:
        x: the values of all other elements.
        dim: the dimension of the indices.
        indices: integers (not uint64); in the other dimensions they may be smaller than ``x``.
        src: the written values: a number, or a tensor that may be larger than the indices.

    Raises:
        ShapeError: if the numbers of dimensions differ, ``dim`` is out of range, or ``indices`` is not provably within ``x`` and ``src``.
        DTypeError: if ``indices`` is not a tensor of integers, or the dtype of ``x`` does not hold ``src``.
    """
    return _scatter("scatter", x, dim, indices, src, None)


@op(OpKind.SCATTER, _combining, numpy="")
@axial
def scatter_add(x: TensorView, dim: int, indices: TensorView, src: Source) -> TensorView:
    """``x`` with ``src`` added at ``indices`` along ``dim``, as ``torch.scatter_add``; otherwise as :func:`scatter`. Duplicates are summed."""
    return _scatter("scatter_add", x, dim, indices, src, COMBINES["add"])


@op(OpKind.SCATTER, indexed, numpy="")
@axial
def scatter_reduce(x: TensorView, dim: int, indices: TensorView, src: Source, reduce: ScatterReduce | str) -> TensorView:
    """``x`` combined with ``src`` at ``indices`` along ``dim`` by ``reduce``: "sum", "prod", "amax" or "amin", as ``torch.scatter_reduce``.

    The element of ``x`` takes part (torch's ``include_self=True``). Otherwise as :func:`scatter_add`.
    """
    try:
        kind = ScatterReduce(reduce)
    except ValueError:
        raise dtype_error("scatter_reduce", f"{shown(reduce)} is not a reduction", 'use "sum", "prod", "amax" or "amin"') from None
    return _scatter("scatter_reduce", x, dim, indices, src, kind.combine)


@op(OpKind.SCATTER, _combining, numpy="")
@axial
def index_add(x: TensorView, dim: int, index: TensorView, source: TensorView) -> TensorView:
    """``x`` with slices of ``source`` along ``dim`` added at ``index``, as ``torch.index_add``: the gradient of :func:`take`.

    Args:
        x: what is added to.
        dim: the dimension that the indices count in.
        index: integers (not uint64) in one dimension, as in :func:`scatter`; several for one slice all count.
        source: as ``x``, but along ``dim`` as many as there are indices.

    Raises:
        ShapeError: if ``dim`` is out of range, ``index`` is not 1-d, or ``source`` has another shape.
        DTypeError: if ``index`` is not a tensor of integers, or the dtype of ``x`` does not hold ``source``.
    """
    check_tensor("index_add", x)
    check_indices("index_add", index)
    check_tensor("index_add", source)
    common_fusion("index_add", (x, index, source))
    place = normalize_axis("index_add", dim, x.ndim, described(x))
    if index.ndim != 1:
        raise shape_error("index_add", f"{described(index)} is not 1-d", "use tf.scatter_add, or tf.index_put")
    return _put("index_add", x, (*(None,) * place, index), source, COMBINES["add"])


@op(OpKind.SCATTER, indexed, numpy="")
def index_put(x: TensorView, indices: Sequence[TensorView | None], values: Source, accumulate: bool = False) -> TensorView:
    """``x`` after ``x[indices] = values``, or with ``accumulate`` ``x[indices] += values`` in which duplicates accumulate, as ``torch.index_put``.

    Args:
        x: what stands where nothing is written.
        indices: one for each of the first dimensions: integers (not uint64) that broadcast together, next to each other; ``None`` is the whole dimension.
            Negative ones count from the end; one outside the extent writes nothing.
        values: broadcast to ``x[indices]``.
        accumulate: add. Otherwise the last of several for one element, in row-major order, is taken.

    Raises:
        ShapeError: if there are too many indices or none, they are apart, or shapes do not broadcast.
        DTypeError: if an index is not a tensor of integers, or the dtype of ``x`` does not hold the values.
    """
    check_tensor("index_put", x)
    given = [tv if tv is None else check_indices("index_put", tv) for tv in listed("index_put", indices, "tensors")]
    tensors = [*(tv for tv in given if tv is not None), *([values] if isinstance(values, TensorView) else [])]
    common_fusion("index_put", (x, *tensors))
    return _put("index_put", x, given, values, COMBINES["add"] if accumulate else None)


def _put(op: str, x: TensorView, given: Sequence[TensorView | None], values: Source, combine: Combine | None) -> TensorView:
    axes = tuple(d for d, tv in enumerate(given) if tv is not None)
    indices = [tv for tv in given if tv is not None]
    if not axes or len(given) > x.ndim or axes[-1] - axes[0] + 1 != len(axes):
        reason = f"{len(given)} indices, of which {len(axes)} are tensors, for {described(x)}"
        raise shape_error(op, reason, "give one for each of the first dimensions; those that are tensors stand next to each other")
    _check_arithmetic(op, combine, x)
    common = broadcast_shape(op, indices)
    before, after = x.shape[: axes[0]], x.shape[axes[-1] + 1 :]
    whole = (*before, *common, *after)
    if isinstance(values, TensorView) and not _broadcasts(values.shape, whole):
        reason = f"{described(values)} does not broadcast to {shape_text(whole)}, which the indices of {described(x)} reach"
        raise shape_error(op, reason, "each extent must be 1 or the wanted one")
    with x.fusion.call():
        value = _source(op, x, values)
        spans = known_spans(x.fusion, x.shape, axes, indices, common)
        ahead = [span.axis for span in spans.values()]
        left = [a for a in range(len(common)) if a not in ahead]
        summed = None if spans and all(common[a] is ONE for a in left) else combine
        count = tuple(common[a] for a in left)
        if summed is None:  # one axis, along which the last point is taken
            total: Expr = ONE
            for e in count:
                total = total * e
            count = (total,)
        points_shape = (*(common[a] for a in ahead), *count)
        space = (*before, *points_shape, *after)

        def over_points(tv: TensorView, first: int, shape: Shape) -> TensorView:
            """What is over the common axes, over those of the points: known ones first."""
            order = [*range(first), *(first + a for a in (*ahead, *left)), *range(first + len(common), tv.ndim)]
            return _flat(tv if order == sorted(order) else permute(tv, order), shape)

        named = [d for d in axes if d not in spans]
        alone = (*(ONE,) * len(before), *points_shape, *(ONE,) * len(after))
        flat = [over_points(broadcast_to(tv, list(common)), 0, alone) for d, tv in zip(axes, indices, strict=True) if d in named]
        if isinstance(value, Read):
            moved = over_points(broadcast_to(value.tensor, list(whole)), len(before), space)
            value = broadcast_read(moved, moved.shape)
        box, first = box_of(x, spans), len(before) + len(ahead)
        points = _points(box.shape, flat, named, space, range(first, first + len(count)))
        if summed is not None:
            return with_box(x, spans, _combined(box, points, value, summed))
        return with_box(x, spans, _chosen(box, points, value, first, combine))


def _broadcasts(shape: Shape, whole: Shape) -> bool:
    return len(shape) <= len(whole) and all(e is ONE or e is n for e, n in zip(reversed(shape), reversed(whole), strict=False))


def _flat(x: TensorView, shape: Shape) -> TensorView:
    return x if x.shape == shape else reshape(x, list(shape))


@op(OpKind.SCATTER, _combining, torch="", numpy="")
def segment_sum(values: TensorView, segments: TensorView, count: IntLike | str | None = None) -> TensorView:
    """The sum of each segment of ``values`` along its first axis: ``[count, ...]``, 0 for an empty segment, as ``jax.ops.segment_sum``.

    Args:
        values: numbers.
        segments: of each slice of ``values`` the number of its segment, in any order; a number outside [0, count) counts nowhere. Or a table
            (``tf.table``) of offsets, one more than there are segments: segment ``g`` is then the slices ``segments[g]`` to ``segments[g + 1]``; or of
            lengths (``lengths=True``).
        count: how many segments there are; with a table, it is known.

    Raises:
        FusionError: if there is no count, or one beside offsets.
        ShapeError: if ``segments`` does not have one number per slice, or offsets may lie outside ``values``.
        DTypeError: if ``segments`` is not a tensor of integers, or ``values`` is bool.
    """
    check_tensor("segment_sum", values)
    check_indices("segment_sum", segments)
    fusion = common_fusion("segment_sum", (values, segments))
    is_offsets = segments in fusion.tables
    if is_offsets == (count is not None):
        reason = f"a count of segments beside offsets, {described(segments)}" if is_offsets else "no count of segments"
        raise FusionError(fusion=fusion.name, reason=f"segment_sum has {reason}", help="give count= for numbers of segments only", location=caller())
    _check_arithmetic("segment_sum", COMBINES["add"], values)
    if is_offsets:
        if not values.ndim:
            raise shape_error("segment_sum", f"{described(values)} is 0-d", "give slices, one after another")
        with fusion.call():
            rows = jagged_to_padded_dense(values, segments, values.shape[0])
            return cast_tensor(reduce_axes(rows, (1,), COMBINES["add"], values.dtype.compute, keepdims=False), values.dtype)
    if segments.ndim != 1 or not values.ndim or segments.shape[0] is not values.shape[0]:
        reason = f"{described(segments)} is not one number for each slice of {described(values)}"
        raise shape_error("segment_sum", reason, "give a 1-d tensor as long as the first axis of the values")
    return _segmented("segment_sum", values, segments, count)


def _segmented(op: str, values: TensorView, segments: TensorView, count: object) -> TensorView:
    """The sums of segments by their numbers."""
    fusion = values.fusion
    numbers = extent(op, fusion, count)
    with fusion.call():
        if segments.dtype.min_value < 0:
            inside = pointwise(ELEMENTWISE["ge"], (segments, 0))
            segments = pointwise(ELEMENTWISE["where"], (inside, cast_tensor(segments, int64), numbers))
        index = _flat(segments, (segments.shape[0], *(ONE,) * (values.ndim - 1)))
        base = define_pointwise(fusion, ELEMENTWISE["copy"], (numbers, *values.shape[1:]), (_neutral(values.dtype),), values.dtype)
        points = _points(base.shape, (index,), (0,), values.shape, (0,))
        return _combined(base, points, broadcast_read(values, values.shape), COMBINES["add"])


def _neutral(dtype: DType) -> Literal:
    return Literal(COMBINES["add"].neutral(dtype), dtype)


@op(OpKind.SCATTER, _counting, torch="")
def bincount(x: TensorView, length: IntLike | str, weights: TensorView | None = None) -> TensorView:
    """The number of occurrences of each of 0 to ``length - 1`` in ``x``, int64; with ``weights``, the sum of their weights, as ``np.bincount``.

    Unlike NumPy's, the result has ``length`` elements, whatever ``x`` holds, as ``jnp.bincount`` with ``length``: other numbers are not counted.

    Raises:
        ShapeError: if ``x`` is not 1-d, or ``weights`` has another shape.
        DTypeError: if ``x`` is not a tensor of integers, or ``weights`` is bool.
    """
    check_indices("bincount", x)
    fusion = common_fusion("bincount", (x,) if weights is None else (x, check_tensor("bincount", weights)))
    if x.ndim != 1 or (weights is not None and weights.shape != x.shape):
        beside = "" if weights is None else f", and weights {described(weights)}"
        raise shape_error("bincount", f"counts in {described(x)}{beside}", "give a 1-d tensor, and weights of its shape")
    if weights is not None:
        _check_arithmetic("bincount", COMBINES["add"], weights)
    with fusion.call():
        ones = define_pointwise(fusion, ELEMENTWISE["copy"], x.shape, (Literal(1, int64),), int64) if weights is None else weights
        wide = total_dtype(ones.dtype)
        return _segmented("bincount", cast_tensor(ones, wide), x, length)
