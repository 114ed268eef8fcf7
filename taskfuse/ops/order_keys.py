"""Order keys: unsigned integers in the order that elements are sorted in, no two of one row the same.

A key holds, from its highest bits on, the *rank bits* of the element, its index along the sorted dimension, and whether it is -0.0. Rank bits are an
unsigned integer, smaller for the element that comes first: NaN comes last among ascending elements and first among descending ones, -0.0 is equal to 0.0.
Equal elements differ by their index, so the least key is the first of the least, and whatever orders keys orders elements stably. A key
contains the element and its index. So only keys move, which are combined, compared and chosen like any integers.

Keys have 32 bits where that is enough, else 64. Elements of 64 bits have no key: their rank bits alone fill it.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.dtypes import DType, int64, uint8, uint16, uint32, uint64
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import IndexValue
from taskfuse.ir.scalar import Const, Expr
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import cast_tensor, define_pointwise, elementwise

_INDEX_BITS = 31


def _unsigned(bits: int) -> DType:
    return {8: uint8, 16: uint16, 32: uint32, 64: uint64}[bits]


def index_values(like: TensorView, index: Expr, dtype: DType) -> TensorView:
    """An expression over the iteration symbols of a tensor, for each of its elements."""
    return define_pointwise(like.fusion, ELEMENTWISE["copy" if dtype is int64 else "cast"], like.shape, (IndexValue(index),), dtype)


def index_along(like: TensorView, axis: int, dtype: DType) -> TensorView:
    """The index of each element of a tensor along a dimension."""
    return index_values(like, iteration_symbol(axis), dtype)


def rank_dtype(dtype: DType) -> DType:
    """The dtype of the rank bits of elements of a dtype: an unsigned integer."""
    if dtype.is_float:
        return uint64 if dtype.bits == 64 else uint32
    return uint8 if dtype.is_bool else _unsigned(dtype.bits)


def rank_width(dtype: DType) -> int:
    """How many rank bits elements of a dtype have: of narrow floats only those that differ between their values as float32."""
    if not dtype.is_float:
        return 1 if dtype.is_bool else dtype.bits
    return 64 if dtype.bits == 64 else dtype.precision + 8


def rank_bits(x: TensorView, descending: bool) -> TensorView:
    """Unsigned integers in the order of the elements: smaller for an element that comes first, equal for equal elements."""
    made, width = rank_dtype(x.dtype), rank_width(x.dtype)
    sign = 1 << (width - 1)
    if x.dtype.is_float:
        bits = _float_bits(x)
        plain = elementwise("where", elementwise("eq", bits, sign), 0, bits)
        found = elementwise("where", elementwise("ge", plain, sign), elementwise("bitwise_xor", plain, 2 * sign - 1), elementwise("bitwise_xor", plain, sign))
    elif x.dtype.min_value < 0:
        found = elementwise("bitwise_xor", cast_tensor(x, made), sign)
    else:
        found = cast_tensor(x, made)
    return elementwise("bitwise_xor", found, 2 * sign - 1) if descending else found


def _float_bits(x: TensorView) -> TensorView:
    """The bits of floats, without those that are 0 in every element; -0.0 is the highest bit alone, and NaN is greater than infinity."""
    wide = elementwise("float_bits", cast_tensor(x, x.dtype.compute))
    unused = wide.dtype.bits - rank_width(x.dtype)
    return elementwise("right_shift", wide, unused) if unused else wide


def is_negative_zero(x: TensorView) -> TensorView:
    """Which floats are -0.0."""
    return elementwise("eq", _float_bits(x), 1 << (rank_width(x.dtype) - 1))


def of_rank_bits(rank: TensorView, dtype: DType, descending: bool) -> TensorView:
    """The elements with given rank bits: 0.0 of both zeros."""
    width = rank_width(dtype)
    sign = 1 << (width - 1)
    found = elementwise("bitwise_xor", rank, 2 * sign - 1) if descending else rank
    if dtype.is_float:
        bits = elementwise("where", elementwise("ge", found, sign), elementwise("bitwise_xor", found, sign), elementwise("bitwise_xor", found, 2 * sign - 1))
        unused = rank.dtype.bits - width
        return cast_tensor(elementwise("float_of_bits", elementwise("left_shift", bits, unused) if unused else bits), dtype)
    return cast_tensor(elementwise("bitwise_xor", found, sign) if dtype.min_value < 0 else found, dtype)


@dataclass(frozen=True, slots=True)
class KeyLayout:
    """The layout of the keys of one tensor.

    Attributes:
        dtype: of the elements.
        axis: the sorted dimension.
        index_bits: how many bits an index takes.
        descending: true: the greatest element comes first.
    """

    dtype: DType
    axis: int
    index_bits: int
    descending: bool

    @classmethod
    def of(cls, x: TensorView, axis: int, descending: bool) -> KeyLayout | None:
        """The layout of the keys of ``x`` along ``axis``; ``None`` if its elements and indices do not fit one."""
        if rank_dtype(x.dtype).bits == 64:
            return None
        extent: Expr = x.shape[axis]
        bits = max(extent.value - 1, 0).bit_length() if isinstance(extent, Const) else _INDEX_BITS
        return cls(x.dtype, axis, bits, descending) if bits <= _INDEX_BITS else None

    @property
    def key(self) -> DType:
        """The dtype of the keys."""
        return uint32 if rank_width(self.dtype) + self.index_bits + 1 <= 32 else uint64

    def keys(self, x: TensorView, index: Expr | None = None) -> TensorView:
        """The keys of all elements: no two along the dimension are equal. ``index`` is another index than that along the dimension, over iteration symbols."""
        places = index_values(x, iteration_symbol(self.axis) if index is None else index, self.key)
        return self.packed(rank_bits(x, self.descending), places, is_negative_zero(x) if x.dtype.is_float else None)

    def packed(self, rank: TensorView, index: TensorView, negative: TensorView | None = None) -> TensorView:
        """The keys of elements with given rank bits and indices; ``negative``: which of them are -0.0."""
        key = self.key
        lower = elementwise("left_shift", cast_tensor(index, key), 1)
        if negative is not None:
            lower = elementwise("bitwise_or", lower, cast_tensor(negative, key))
        return elementwise("bitwise_or", elementwise("left_shift", cast_tensor(rank, key), self.index_bits + 1), lower)

    def values(self, keys: TensorView) -> TensorView:
        """The elements that keys belong to."""
        rank = cast_tensor(elementwise("right_shift", keys, self.index_bits + 1), rank_dtype(self.dtype))
        found = of_rank_bits(rank, self.dtype, self.descending)
        if not self.dtype.is_float:
            return found
        return elementwise("where", elementwise("eq", elementwise("bitwise_and", keys, 1), 0), found, -0.0)

    def indices(self, keys: TensorView) -> TensorView:
        """Their indices, int64."""
        mask = (1 << (self.index_bits + 1)) - 1
        return cast_tensor(elementwise("right_shift", elementwise("bitwise_and", keys, mask), 1), int64)
