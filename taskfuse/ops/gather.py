"""Reads at indices that tensors hold (take, take_along_axis, gather), and one-hot rows.

A value v of an index tensor that is negative counts from the end, as in NumPy. A value outside [-n, n), for which NumPy raises, gives 0: a
kernel never reads outside a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.dtypes import DType, DTypeLike, as_dtype, bool_, float32, uint64
from taskfuse.ir.axes import axis as new_axis
from taskfuse.ir.axes import iteration_symbol, value_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Gather, IndexValue, Read, View
from taskfuse.ir.index_values import index_value
from taskfuse.ir.scalar import ONE, ZERO, Expr, IntLike, and_, ge, le, lt, prove, substitute
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import Shape, cast_tensor, check_tensor, common_fusion, define_pointwise, described, dtype_error, normalize_axis, shape_error, typed
from taskfuse.ops.create import extent
from taskfuse.ops.keywords import axial
from taskfuse.ops.registry import OpKind, indexed, op
from taskfuse.ops.views import reshape

__all__ = ["gather", "one_hot", "take", "take_along_axis"]


def check_indices(op: str, indices: TensorView) -> TensorView:
    """``indices`` if it is a tensor of integers other than uint64. Raises :class:`DTypeError`."""
    check_tensor(op, indices)
    if not indices.dtype.is_integer or indices.dtype is uint64:
        help = "select with tf.where: the shape of a masked selection depends on data" if indices.dtype.is_bool else "cast them to int64"
        raise dtype_error(op, f"{typed(indices)} are not indices", help)
    return indices


def read_shifted(tv: TensorView, shape: Shape, first: int) -> Read:
    """The read of ``tv`` broadcast to ``shape``, whose iteration symbols begin at ``first``."""
    lead = first + len(shape) - tv.ndim
    return Read(tv, tuple(iteration_symbol(lead + d) if e is shape[len(shape) - tv.ndim + d] else ZERO for d, e in enumerate(tv.shape)))


def define_gather(x: TensorView, shape: Sequence[Expr], index: Sequence[Expr], values: Sequence[tuple[Read, Expr]]) -> TensorView:
    """The elements of ``x`` at ``index``, over the iteration symbols of ``shape`` and ``v0, v1, ...``: the values, each with the extent that it indexes.

    Values that are functions of their index (of ``arange``), and within their extent, need no data.
    """
    fusion, location = x.fusion, caller()
    facts = fusion.facts()
    for k, e in enumerate(shape):
        facts = facts.with_range(str(iteration_symbol(k)), 0, e - 1)
    at: dict[str, Expr] = {}
    unknown: list[tuple[Read, Expr]] = []
    for k, (read, most) in enumerate(values):
        value = index_value(fusion, read, facts)
        places = () if value is None else (value, value + most)  # one that is negative counts from the end
        place = next((e for e in places if prove(and_(ge(e, 0), lt(e, most)), facts)), None)
        if place is not None:
            at[str(value_symbol(k))] = place
        else:
            at[str(value_symbol(k))] = value_symbol(len(unknown))
            unknown.append((read, most))
    read = Read(x, tuple(substitute(e, at) for e in index))
    out = fusion.new_tensor([new_axis(e) for e in shape], x.dtype, location=location)
    if not unknown:
        view = fusion.define(View(out, "gather", read, location))
        return define_pointwise(fusion, ELEMENTWISE["copy"], tuple(shape), (Read(view, tuple(map(iteration_symbol, range(len(shape))))),), x.dtype)
    return fusion.define(Gather(out, (read, *(read for read, _ in unknown)), tuple(most for _, most in unknown), location))


@op(OpKind.GATHER, indexed, torch="take index_select")
@axial
def take(x: TensorView, indices: TensorView, axis: int | None = None) -> TensorView:
    """The elements of ``x`` along ``axis`` (of all its elements in row-major order if ``None``) at ``indices``, as ``np.take``.

    The dimensions of ``indices`` replace ``axis``: an embedding is ``take(table, tokens, 0)``. Negative indices count from
    the end; one that is outside the extent n, less than -n or at least n, gives 0.

    Args:
        x: the table.
        indices: integers (not uint64).
        axis: the dimension of ``x``.

    Raises:
        ShapeError: if ``axis`` is out of range.
        DTypeError: if ``indices`` is not a tensor of integers.
    """
    check_tensor("take", x)
    check_indices("take", indices)
    fusion = common_fusion("take", (x, indices))
    with fusion.call():
        table = reshape(x, [-1]) if axis is None else x
        place = 0 if axis is None else normalize_axis("take", axis, x.ndim, described(x))
        shape = (*table.shape[:place], *indices.shape, *table.shape[place + 1 :])
        behind = place + indices.ndim
        index = [*map(iteration_symbol, range(place)), value_symbol(0), *map(iteration_symbol, range(behind, len(shape)))]
        return define_gather(table, shape, index, [(read_shifted(indices, indices.shape, place), table.shape[place])])


@op(OpKind.GATHER, indexed, torch="take_along_dim")
@axial
def take_along_axis(x: TensorView, indices: TensorView, axis: int = -1) -> TensorView:
    """``x`` at ``indices`` along ``axis``, each at its own position in the other dimensions, as ``np.take_along_axis``.

    The indices may be a result of ``argmax``. The other dimensions broadcast. Indices as in :func:`take`.

    Raises:
        ShapeError: if the numbers of dimensions differ, ``axis`` is out of range, or the other dimensions do not broadcast.
        DTypeError: if ``indices`` is not a tensor of integers.
    """
    op = "take_along_axis"
    place = check_along(op, x, indices, axis)
    shape = list(indices.shape)
    for d, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if d != place and a is not b:
            if a is not ONE and b is not ONE:
                raise shape_error(
                    op, f"dimension {d} is {a} in {described(x)} but {b} in {described(indices)}", "extents must be the same expression, or the constant 1"
                )
            shape[d] = a if b is ONE else b
    index = [iteration_symbol(d) if e is shape[d] else ZERO for d, e in enumerate(x.shape)]
    index[place] = value_symbol(0)
    return define_gather(x, shape, index, [(read_shifted(indices, tuple(shape), 0), x.shape[place])])


@op(OpKind.GATHER, indexed, numpy="")
@axial
def gather(x: TensorView, dim: int, indices: TensorView) -> TensorView:
    """``x`` at ``indices`` along ``dim``, each at its own position in the other dimensions, as ``torch.gather``.

    The result has the shape of ``indices``, which may be smaller than ``x`` in the other dimensions. Indices as in :func:`take`.

    Raises:
        ShapeError: if the numbers of dimensions differ, ``dim`` is out of range, or ``indices`` is not provably within ``x`` in another dimension.
        DTypeError: if ``indices`` is not a tensor of integers.
    """
    place = check_along("gather", x, indices, dim)
    facts = common_fusion("gather", (x, indices)).facts()
    for d, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if d != place and not prove(le(b, a), facts):
            raise shape_error("gather", f"dimension {d} of {described(indices)} is not provably within that of {described(x)}", "slice the indices")
    index = [value_symbol(0) if d == place else iteration_symbol(d) for d in range(x.ndim)]
    return define_gather(x, indices.shape, index, [(read_shifted(indices, indices.shape, 0), x.shape[place])])


def _row(dtypes: Sequence[DType]) -> DType | None:
    return float32 if dtypes[0].is_integer and dtypes[0] is not uint64 else None


@op(OpKind.GATHER, _row, numpy="")
def one_hot(indices: TensorView, count: IntLike | str, dtype: DTypeLike = float32) -> TensorView:
    """Rows of zeros with a one at each index: ``[..., count]``, as ``torch.nn.functional.one_hot``. An index outside [0, count) gives a row of zeros.

    Raises:
        ShapeError: if ``count`` is not an extent.
        DTypeError: if ``indices`` is not a tensor of integers.
    """
    check_indices("one_hot", indices)
    fusion = indices.fusion
    shape = (*indices.shape, extent("one_hot", fusion, count))
    operands = (Read(indices, tuple(map(iteration_symbol, range(indices.ndim)))), IndexValue(iteration_symbol(indices.ndim)))
    with fusion.call():
        return cast_tensor(define_pointwise(fusion, ELEMENTWISE["eq"], shape, operands, bool_), as_dtype(dtype))


def check_along(op: str, x: TensorView, indices: TensorView, axis: int) -> int:
    """The position of ``axis`` in ``x``, along which ``indices`` of as many dimensions count. Raises :class:`ShapeError` and :class:`DTypeError`."""
    check_tensor(op, x)
    check_indices(op, indices)
    common_fusion(op, (x, indices))
    place = normalize_axis(op, axis, x.ndim, described(x))
    if indices.ndim != x.ndim:
        raise shape_error(op, f"{described(indices)} and {described(x)} differ in the number of dimensions", "reshape the indices, or use tf.take")
    return place
