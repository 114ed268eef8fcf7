"""Products other than those of matrices: inner, vdot, tensordot, kron, cross; sums with products; distances."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from taskfuse.dtypes import float64, result_type
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.activations import wide
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, described, dtype_error, listed, normalize_axis, shape_error, typed
from taskfuse.ops.elementwise import abs, add, div, mul, pow, sqrt, square, sub
from taskfuse.ops.keywords import axial
from taskfuse.ops.linalg import matmul
from taskfuse.ops.rearrange import ravel, roll
from taskfuse.ops.reduce import max, sum
from taskfuse.ops.registry import OpKind, floating, numeric, op, promoted, promoted_float
from taskfuse.ops.views import expand_dims, permute, reshape

__all__ = ["addcdiv", "addcmul", "addmm", "baddbmm", "cdist", "cross", "inner", "kron", "linear", "tensordot", "vdot"]


def _two(op: str, a: TensorView, b: TensorView) -> None:
    check_tensor(op, a)
    check_tensor(op, b)
    common_fusion(op, (a, b))


@op(OpKind.PRODUCT, promoted)
def inner(a: TensorView, b: TensorView) -> TensorView:
    """The sums of products over the last dimensions of both, as in NumPy; with a 0-d tensor, the elementwise product."""
    _two("inner", a, b)
    if not a.ndim or not b.ndim:
        return mul(a, b)
    return tensordot(a, b, ([a.ndim - 1], [b.ndim - 1]))


@op(OpKind.PRODUCT, promoted)
def vdot(a: TensorView, b: TensorView) -> TensorView:
    """The sum of the products of the elements of both in row-major order. Raises :class:`ShapeError` if they have different numbers of elements."""
    _two("vdot", a, b)
    with a.fusion.call():
        return matmul(ravel(a), ravel(b))


@op(OpKind.PRODUCT, promoted)
def tensordot(a: TensorView, b: TensorView, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> TensorView:
    """The sums of products over ``axes``: the last n of ``a`` and the first n of ``b``, or those of a pair of lists, as in NumPy.

    Raises :class:`ShapeError` if the axes are not of one extent each.
    """
    _two("tensordot", a, b)
    if isinstance(axes, int):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise shape_error("tensordot", f"{described(a)} and {described(b)} do not have {axes} axes", "give at most the number that both have")
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        pairs = [listed("tensordot", given, "axes") for given in axes]
        left, right = ([normalize_axis("tensordot", d, tv.ndim, described(tv)) for d in row] for tv, row in zip((a, b), pairs, strict=True))
    if len(left) != len(right) or any(a.shape[i] is not b.shape[j] for i, j in zip(left, right, strict=True)):
        raise shape_error("tensordot", f"axes {left} of {described(a)} and {right} of {described(b)} differ in extent", "extents must be the same expression")
    with a.fusion.call():
        rows, columns = ([d for d in range(tv.ndim) if d not in summed] for tv, summed in ((a, left), (b, right)))
        depth = [a.shape[d] for d in left]
        m, n = [a.shape[d] for d in rows], [b.shape[d] for d in columns]
        whole = math.prod(depth)
        x = reshape(permute(a, [*rows, *left]), [math.prod(m), whole])
        y = reshape(permute(b, [*right, *columns]), [whole, math.prod(n)])
        return reshape(matmul(x, y), [*m, *n])


@op(OpKind.PRODUCT, promoted)
def kron(a: TensorView, b: TensorView) -> TensorView:
    """The Kronecker product: ``b`` in the place of each element of ``a``, multiplied by it."""
    _two("kron", a, b)
    with a.fusion.call():
        n = a.ndim if a.ndim > b.ndim else b.ndim
        left, right = (expand_dims(tv, tuple(range(n - tv.ndim))) if tv.ndim < n else tv for tv in (a, b))
        x = expand_dims(left, tuple(2 * d + 1 for d in range(n))) if n else left
        y = expand_dims(right, tuple(2 * d for d in range(n))) if n else right
        return reshape(mul(x, y), [p * q for p, q in zip(left.shape, right.shape, strict=True)])


@op(OpKind.PRODUCT, numeric, torch="cross linalg_cross")
@axial
def cross(a: TensorView, b: TensorView, axis: int = -1) -> TensorView:
    """The vector product of vectors of three elements along ``axis``; the other dimensions broadcast. Not for bool.

    Raises :class:`ShapeError` for other extents.
    """
    _two("cross", a, b)
    places = [normalize_axis("cross", axis, tv.ndim, described(tv)) for tv in (a, b)]
    for tv, place in zip((a, b), places, strict=True):
        if str(tv.shape[place]) != "3":
            raise shape_error("cross", f"dimension {place} of {described(tv)} is not 3", "only vectors of three elements have a product")
    dtype = result_type(a.dtype, b.dtype)
    if dtype.is_bool:
        raise dtype_error("cross", f"{typed(a)} and {typed(b)} are not numbers", "cast to an integer or float dtype first")
    with a.fusion.call():
        x, y = (cast_tensor(tv, dtype.compute) for tv in (a, b))
        first = mul(roll(x, -1, places[0]), roll(y, -2, places[1]))
        return cast_tensor(sub(first, mul(roll(x, -2, places[0]), roll(y, -1, places[1]))), dtype)


def _added(op: str, x: TensorView, a: TensorView, b: TensorView, beta: float, alpha: float, dims: int) -> TensorView:
    for tv in (x, a, b):
        check_tensor(op, tv)
    common_fusion(op, (x, a, b))
    if a.ndim != dims or b.ndim != dims:
        raise shape_error(op, f"{described(a)} and {described(b)} are not of {dims} dimensions", "use tf.matmul, and add")
    with x.fusion.call():
        dtype = result_type(x.dtype, a.dtype, b.dtype)
        made = matmul(a, b, dtype=dtype.compute)
        made = made if alpha == 1 else mul(made, alpha)
        if beta == 0:
            return cast_tensor(made, dtype)
        term = cast_tensor(x, made.dtype)
        return cast_tensor(add(made, term if beta == 1 else mul(term, beta)), dtype)


@op(OpKind.PRODUCT, promoted, numpy="")
def addmm(x: TensorView, a: TensorView, b: TensorView, beta: float = 1, alpha: float = 1) -> TensorView:
    """``beta * x + alpha * (a @ b)`` of matrices, rounded once; ``x`` broadcasts, and is not read if ``beta`` is 0."""
    return _added("addmm", x, a, b, beta, alpha, 2)


@op(OpKind.PRODUCT, promoted, numpy="")
def baddbmm(x: TensorView, a: TensorView, b: TensorView, beta: float = 1, alpha: float = 1) -> TensorView:
    """:func:`addmm` of two batches of matrices."""
    return _added("baddbmm", x, a, b, beta, alpha, 3)


@op(OpKind.PRODUCT, floating, numpy="")
def cdist(a: TensorView, b: TensorView, p: float = 2) -> TensorView:
    """The distances of all pairs of rows of ``a [..., M, K]`` and ``b [..., N, K]``, by the norm of order ``p``: ``[..., M, N]``, a float.

    Sums of differences, not differences of products: no cancellation. Raises :class:`ShapeError` unless p > 0, or for other shapes.
    """
    _two("cdist", a, b)
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] is not b.shape[-1] or not p > 0:
        raise shape_error("cdist", f"{described(a)} and {described(b)} do not have distances of order {p}", "give rows of one length, and p > 0")
    with a.fusion.call():
        x, dtype = wide(a)
        y, _ = wide(b)
        terms = abs(sub(expand_dims(x, -2), expand_dims(y, -3)))
        if math.isinf(p):
            found = max(terms, -1)
        elif p == 1:
            found = sum(terms, -1)
        elif p == 2:
            found = sqrt(sum(square(terms), -1))
        else:
            found = pow(sum(pow(terms, float(p)), -1), 1 / p)
        return cast_tensor(found, dtype)


def _scaled_sum(op: str, x: TensorView, a: TensorView, b: TensorView, value: float, body: Callable[[TensorView, TensorView], TensorView]) -> TensorView:
    for tv in (x, a, b):
        check_tensor(op, tv)
    with common_fusion(op, (x, a, b)).call():
        dtype = result_type(x.dtype, a.dtype, b.dtype)
        dtype = dtype if dtype.is_float else float64
        base, left, right = (cast_tensor(tv, dtype.compute) for tv in (x, a, b))
        return cast_tensor(add(base, body(left if value == 1 else mul(left, float(value)), right)), dtype)


@op(OpKind.COMPOSITE, promoted_float, numpy="")
def addcmul(x: TensorView, a: TensorView, b: TensorView, value: float = 1) -> TensorView:
    """``x + value * a * b``, a float, rounded once."""
    return _scaled_sum("addcmul", x, a, b, value, mul)


@op(OpKind.COMPOSITE, promoted_float, numpy="")
def addcdiv(x: TensorView, a: TensorView, b: TensorView, value: float = 1) -> TensorView:
    """``x + value * a / b``, a float, rounded once."""
    return _scaled_sum("addcdiv", x, a, b, value, div)


@op(OpKind.PRODUCT, promoted, numpy="")
def linear(x: TensorView, weight: TensorView, bias: TensorView | None = None) -> TensorView:
    """``x [..., K]`` times ``weight [N, K]`` transposed, plus ``bias [N]``: rounded once."""
    _two("linear", x, weight)
    if weight.ndim != 2 or not x.ndim or x.shape[-1] is not weight.shape[1]:
        raise shape_error("linear", f"{described(x)} cannot be multiplied by {described(weight)}", "give x [..., K] and a weight [N, K]")
    with x.fusion.call():
        dtype = result_type(x.dtype, weight.dtype)
        made = matmul(x, permute(weight, [1, 0]), dtype=dtype.compute)
        return cast_tensor(made if bias is None else add(made, cast_tensor(check_tensor("linear", bias), made.dtype)), dtype)
