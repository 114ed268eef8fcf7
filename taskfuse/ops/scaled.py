"""Products of factors whose elements have scales: one for a tensor, for each row or column, or for each block of 128 elements of k.

A scale that varies along k is not a factor of the sum: the terms are summed block by block, and the sums of the blocks are multiplied by their scales and added
(two levels of sums): the inner sums are matrix products, the outer one a sum over blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskfuse.dtypes import DType, DTypeLike, as_dtype, float32
from taskfuse.ir.axes import iteration_point
from taskfuse.ir.expr import Read
from taskfuse.ir.scalar import ONE, ZERO, Expr, ceildiv, eq, is_multiple, prove, shape_text, simplify, wrap
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import Shape, cast_tensor, check_tensor, common_fusion, described, dtype_error, shape_error, typed
from taskfuse.ops.elementwise import mul
from taskfuse.ops.linalg import matmul, sum_of_products
from taskfuse.ops.registry import OpKind, op
from taskfuse.ops.views import view

__all__ = ["scaled_matmul"]

BLOCK = 128
"""Elements of k, or rows, that share a scale."""


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """A scale and how many elements share it.

    Attributes:
        tensor: the values.
        units: rows (columns) and elements of k that share one; 0: all of them.
    """

    tensor: TensorView
    units: tuple[int, int]

    @property
    def is_blocked(self) -> bool:
        """Whether it varies along k."""
        return self.units[1] > 0

    def index(self, lead: Shape, row: Expr, block: Expr) -> Shape:
        """Where the scale of a row lies, and of a block of k: after ``lead``, k last."""
        rows, k = self.units
        return (*lead, ZERO if rows == 0 else row // rows, block if k else ZERO) if self.tensor.ndim else ()


def _result(dtypes: Sequence[DType]) -> DType | None:
    """The dtype of a product of factors of some dtypes, unless another is asked for."""
    return float32 if all(_is_factor(d) for d in dtypes) else None


def _is_factor(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits <= float32.bits


@op(OpKind.PRODUCT, _result, torch="_scaled_mm", numpy="")
def scaled_matmul(a: TensorView, b: TensorView, scale_a: TensorView, scale_b: TensorView, dtype: DTypeLike = float32) -> TensorView:
    """The product of ``a [M, K]`` and ``b [K, N]``, each of their elements times its scale: ``(a * scale_a) @ (b * scale_b)``, as ``torch._scaled_mm``.

    The shape of a scale says which elements share one: ``[]`` or ``[1, 1]`` all, ``[M, 1]`` those of a row of ``a``, ``[1, N]`` those of a column of ``b``;
    ``[M, K/128]`` 128 neighbors of a row, ``[K/128, N]`` of a column; ``[ceil(M/128), K/128]`` and ``[K/128, ceil(N/128)]`` blocks of 128 x 128. The forms of
    both may differ. If one varies along k, the products of each 128 elements of k are summed separately, in float32, multiplied by the product of their
    scales, and added in float32: where tensor cores add with fewer bits, as for 8-bit floats on Hopper, they add no more than 128 terms.

    Args:
        a, b: the factors, floats.
        scale_a, scale_b: their scales, float32.
        dtype: of the result; products, sums and scales are float32.

    Raises:
        ShapeError: the factors do not fit, a scale has another shape, or scales vary along k and K is not provably a multiple of 128.
        DTypeError: a factor is not a float below 64 bits, a scale is not float32, or ``dtype`` is not a float.
    """
    name = "scaled_matmul"
    tensors = [check_tensor(name, tv) for tv in (a, b, scale_a, scale_b)]
    fusion = common_fusion(name, tensors)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] is not b.shape[0]:
        raise shape_error(name, f"{described(a)} and {described(b)} are not matrices [M, K] and [K, N]", "transpose an operand with x.T")
    with fusion.call():
        return scaled_product(name, a, b, scale_a, scale_b, dtype)


def scaled_product(name: str, a: TensorView, b: TensorView, scale_a: TensorView, scale_b: TensorView, dtype: DTypeLike) -> TensorView:
    """:func:`scaled_matmul` of ``a [..., M, K]`` and ``b [..., K, N]`` with the same leading dimensions, which scales have, too, unless they are ``[]``.

    Args:
        name: of the op, for errors.
    """
    wanted = as_dtype(dtype)
    for tv in (a, b):
        if not _is_factor(tv.dtype):
            raise dtype_error(name, f"{typed(tv)} is not a float of 8, 16 or 32 bits", "integers have exact products: tf.matmul(a, b), times the scales")
    for tv in (scale_a, scale_b):
        if tv.dtype is not float32:
            raise dtype_error(name, f"the scale {typed(tv)} is not float32", f"{tv.name}.cast(tf.float32)")
    if not wanted.is_float:
        raise dtype_error(name, f"{typed(a)} and {typed(b)} have no scaled product in {wanted.name}", "ask for a float dtype, then cast")
    of_a, of_b = _scale(name, scale_a, a, rows=-2), _scale(name, scale_b, b, rows=-1)
    if of_a.is_blocked or of_b.is_blocked:
        if not is_multiple(a.shape[-1], BLOCK, a.fusion.facts()):
            reason = f"the last dimension of {described(a)} is not provably a multiple of {BLOCK}, the block of its scales"
            raise shape_error(name, reason, f'declare it with tf.dim("K", multiple_of={BLOCK}), and pad it with zeros')
        return cast_tensor(_blocked(a, b, of_a, of_b), wanted)
    *lead, rows, columns = iteration_point(a.ndim)
    shape = (*a.shape[:-1], b.shape[-1])
    found = matmul(a, b, float32)
    for given, s, row in ((scale_a, of_a, rows), (scale_b, of_b, columns)):
        found = mul(found, view(s.tensor, "scales", shape, s.index(tuple(lead), row, ZERO)) if s.units[0] == BLOCK else given)
    return cast_tensor(found, wanted)


def _scale(name: str, scale: TensorView, factor: TensorView, rows: int) -> Scale:
    """The form of a scale. ``rows``: which axis of the factor has its rows, or columns."""
    if scale.ndim == 0:
        return Scale(scale, (0, 0))
    facts = factor.fusion.facts()
    k = -3 - rows
    lead = factor.shape[:-2]
    if scale.ndim == factor.ndim and all(prove(eq(x, y), facts) for x, y in zip(scale.shape[:-2], lead, strict=True)):
        found: list[int] = []
        for place, units in ((rows, (1, BLOCK)), (k, (BLOCK,))):
            extent, own = factor.shape[place], scale.shape[place]
            found += [0] if own is ONE else [unit for unit in units if prove(eq(own, ceildiv(extent, unit)), facts)][:1]
        if len(found) == 2:
            by_k_last = scale if rows == -2 else _swapped(scale)
            return Scale(by_k_last, (found[0], found[1]))
    of_rows, of_k = factor.shape[rows], factor.shape[k]
    blocks = ceildiv(of_k, BLOCK)
    forms = ((ONE, ONE), (of_rows, ONE), (of_rows, blocks), (ceildiv(of_rows, BLOCK), blocks))
    texts = [shape_text((*lead, *(pair if rows == -2 else pair[::-1]))) for pair in forms]
    raise shape_error(name, f"{described(scale)} is not a scale of {described(factor)}", f"it is [] or {', '.join(dict.fromkeys(texts))}")


def _swapped(x: TensorView) -> TensorView:
    """The last two axes exchanged."""
    point = iteration_point(x.ndim)
    return view(x, "transpose", (*x.shape[:-2], x.shape[-1], x.shape[-2]), (*point[:-2], point[-1], point[-2]))


def _blocked(a: TensorView, b: TensorView, of_a: Scale, of_b: Scale) -> TensorView:
    """The sum over blocks of the product of each block times its scales."""
    fusion = a.fusion
    lead = a.shape[:-2]
    rows, columns, count = a.shape[-2], b.shape[-1], simplify(a.shape[-1] // BLOCK, fusion.facts())
    *at, i, j, block, k = iteration_point(len(lead) + 4)
    first = tuple(at)
    left = view(a, "blocks", (*lead, rows, count, wrap(BLOCK)), (*first, i, j * BLOCK + block))
    right = view(b, "blocks", (*lead, columns, count, wrap(BLOCK)), (*first, j * BLOCK + block, i))
    space = (*lead, rows, columns, count)
    reads = Read(left, (*first, i, block, k)), Read(right, (*first, j, block, k))
    product = sum_of_products(fusion, space, (wrap(BLOCK),), reads, float32)
    scales = [view(s.tensor, "scales", space, s.index(first, row, block)) for s, row in ((of_a, i), (of_b, j))]
    scale = mul(*scales)
    point = (*first, i, j, block)
    return sum_of_products(fusion, space[:-1], (count,), (Read(product, point), Read(scale, point)), float32)
