"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.dtypes import DType, DTypeLike, as_dtype, result_type
from taskfuse.ir.axes import AxisKind, axis, iteration_symbol
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Literal, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, ZERO, Expr
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import Shape, cast_tensor, check_tensor, common_fusion, described, dtype_error, shape_error, typed
from taskfuse.ops.elementwise import mul
from taskfuse.ops.registry import OpKind, op, promoted
from taskfuse.ops.views import expand_dims, reshape

__all__ = ["bmm", "dot", "matmul", "outer"]


@op(OpKind.PRODUCT, promoted, torch="matmul mm mv")
def matmul(a: TensorView, b: TensorView, dtype: DTypeLike | None = None) -> TensorView:
    """The matrix product of ``a [..., M, K]`` and ``b [..., K, N]``, as in NumPy: leading dimensions broadcast, a 1-d operand is a vector.

    The iteration space is (batch..., m, n, k). Products of floats below 32 bits are computed and summed in float32.

    Args:
        a: the left operand.
        b: the right operand.
        dtype: dtype of the result, and of the products and sums (float32 for floats below 32 bits); by default the
            promoted dtype.

    Raises:
        ShapeError: if an operand is 0-d, K differs, or the leading dimensions do not broadcast.
        DTypeError: if ``dtype`` is not a float although an operand is one.
    """
    check_tensor("matmul", a)
    check_tensor("matmul", b)
    fusion = common_fusion("matmul", (a, b))
    promoted = result_type(a.dtype, b.dtype)
    wanted = promoted if dtype is None else as_dtype(dtype)
    if promoted.is_float and not wanted.is_float:
        raise dtype_error("matmul", f"{typed(a)} and {typed(b)} cannot be multiplied in {wanted.name}", "ask for a float dtype, then cast")
    for tv in (a, b):
        if tv.ndim == 0:
            raise shape_error("matmul", f"{described(tv)} is 0-d", "multiply by a number with *")
    if a.shape[-1] is not b.shape[max(b.ndim - 2, 0)]:
        raise shape_error(
            "matmul",
            f"the last dimension of {described(a)} is {a.shape[-1]}, the {'only' if b.ndim == 1 else 'last but one'} of {described(b)} is "
            f"{b.shape[max(b.ndim - 2, 0)]}",
            "transpose an operand with x.T or tf.permute",
        )
    batch = _batch(a, b)
    with fusion.call():
        return cast_tensor(_product(a, b, batch, wanted.compute), wanted)


@op(OpKind.PRODUCT, promoted)
def dot(a: TensorView, b: TensorView) -> TensorView:
    """The product of two vectors, of two matrices, or of a matrix and a vector, as in NumPy; with a 0-d tensor, the elementwise product.

    Raises :class:`ShapeError` as :func:`matmul` does, and for more than two dimensions, where NumPy sums over other dimensions than :func:`matmul`.
    """
    for tv in (a, b):
        check_tensor("dot", tv)
    common_fusion("dot", (a, b))
    if a.ndim == 0 or b.ndim == 0:
        return mul(a, b)
    if max(a.ndim, b.ndim) > 2:
        raise shape_error("dot", f"{described(a)} and {described(b)} are not both matrices or vectors", "use tf.matmul for batches, tf.einsum for other sums")
    return matmul(a, b)


@op(OpKind.PRODUCT, promoted, numpy="")
def bmm(a: TensorView, b: TensorView) -> TensorView:
    """:func:`matmul` of two batches of matrices ``[B, M, K]`` and ``[B, K, N]``. Raises :class:`ShapeError` for anything else."""
    for tv in (a, b):
        check_tensor("bmm", tv)
    if a.ndim != 3 or b.ndim != 3 or a.shape[0] is not b.shape[0]:
        raise shape_error("bmm", f"{described(a)} and {described(b)} are not batches of matrices of one length", "use tf.matmul, which broadcasts")
    return matmul(a, b)


@op(OpKind.PRODUCT, promoted, torch="outer ger")
def outer(a: TensorView, b: TensorView) -> TensorView:
    """``a[i] * b[j]`` of two vectors; other tensors are flattened in row-major order."""
    for tv in (a, b):
        check_tensor("outer", tv)
    fusion = common_fusion("outer", (a, b))
    with fusion.call():
        left, right = (tv if tv.ndim == 1 else reshape(tv, [-1]) for tv in (a, b))
        return mul(expand_dims(left, 1), expand_dims(right, 0))


def _batch(a: TensorView, b: TensorView) -> Shape:
    """The leading dimensions of both, broadcast."""
    left, right = a.shape[:-2], b.shape[:-2]
    ndim = max(len(left), len(right))
    found: list[Expr] = []
    for d in range(-ndim, 0):
        x = left[d] if -d <= len(left) else ONE
        y = right[d] if -d <= len(right) else ONE
        if x is not y and x is not ONE and y is not ONE:
            raise shape_error("matmul", f"leading dimensions do not broadcast: {x} in {described(a)} but {y} in {described(b)}")
        found.append(y if x is ONE else x)
    return tuple(found)


def _product(a: TensorView, b: TensorView, batch: Shape, dtype: DType) -> TensorView:
    """The reduction over k of ``a * b``, computed in ``dtype``."""
    rows = a.shape[-2:-1]
    columns = b.shape[-1:] if b.ndim > 1 else ()
    kept = (*batch, *rows, *columns)
    k = iteration_symbol(len(kept))
    m = tuple(iteration_symbol(len(batch)) for _ in rows)
    n = tuple(iteration_symbol(len(batch) + len(rows)) for _ in columns)
    left = Read(a, (*_lead(a.shape[:-2], batch), *m, k))
    right = Read(b, (*_lead(b.shape[:-2], batch), k, *n))
    return sum_of_products(a.fusion, kept, a.shape[-1:], (left, right), dtype)


def sum_of_products(fusion: Fusion, kept: Shape, summed: Shape, reads: Sequence[Read], dtype: DType) -> TensorView:
    """The product of two ``reads`` in the space (kept..., summed...), summed over the latter: a disjunction of conjunctions for bool."""
    location = caller()
    root = [axis(e) for e in kept] + [axis(e, AxisKind.REDUCTION) for e in summed]
    combine = COMBINES["logical_or" if dtype.is_bool else "add"]
    body = ELEMENTWISE["logical_and" if dtype.is_bool else "mul"]
    out = fusion.new_tensor(root, dtype, location=location)
    return fusion.define(Reduction(out, combine, body, tuple(reads), Literal(combine.neutral(dtype), dtype), location))


def _lead(extents: Shape, batch: Shape) -> tuple[Expr, ...]:
    """The index of an operand's leading dimensions, broadcast to ``batch``."""
    skip = len(batch) - len(extents)
    return tuple(iteration_symbol(skip + d) if e is batch[skip + d] else ZERO for d, e in enumerate(extents))
