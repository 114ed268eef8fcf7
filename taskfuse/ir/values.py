"""Value modes: the representation of elements while a fusion is evaluated or a kernel is simulated.

``NATIVE`` computes on ordinary numbers. ``MODULAR`` replaces floats by modular words (:mod:`taskfuse.ir.modular`), so that
results do not depend on the order of a sum and can be compared for equality. The reference evaluator and the simulator support both and
share the functions here. These functions emit no warnings: division by zero, overflow and invalid operands give the results of IEEE 754 for floats,
and of NumPy for integers (division by zero gives 0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import DType, DTypeKind, bool_
from taskfuse.ir.combine import Combine
from taskfuse.ir.elementwise_function import Array, DTypeRule, Elementwise, Function
from taskfuse.ir.modular import WORD, embed, hash_words

Scalar = bool | int | float


@runtime_checkable
class Values(Protocol):
    """A value mode. Its functions take and return arrays of :meth:`storage` dtype."""

    name: str

    def storage(self, dtype: DType) -> np.dtype[Any]:
        """The NumPy dtype that stores elements of ``dtype``."""
        ...

    def encode(self, array: npt.ArrayLike, dtype: DType) -> Array:
        """A user's array of ``dtype``, in its stored form; the same array if it has the dtype of the storage."""
        ...

    def literal(self, value: Scalar, dtype: DType) -> Array:
        """A constant, rounded to ``dtype``, as a 0-d array."""
        ...

    def cast(self, array: Array, source: DType, target: DType) -> Array:
        """Elements of ``source`` converted to ``target``: rounded to nearest even into a float, truncated into an integer, != 0 into bool."""
        ...

    def apply(self, op: Elementwise, args: Sequence[Array], arg_dtypes: Sequence[DType], compute: DType, out: DType) -> Array:
        """``op`` on broadcast arrays: operands are cast to ``compute`` (a selector to bool), the result to ``out``."""
        ...

    def combine(self, combine: Combine, a: Array, b: Array, dtype: DType) -> Array:
        """Combine two arrays of ``dtype``, rounding to it once."""
        ...

    def reduce(self, combine: Combine, array: Array, axis: tuple[int, ...], dtype: DType) -> Array:
        """Combine the elements of ``array`` over axes; the neutral element if the axes are empty."""
        ...

    def accumulate(self, combine: Combine, array: Array, axis: int, dtype: DType) -> Array:
        """Combine each element of ``array`` with all those before it along an axis."""
        ...

    def matmul(self, a: Array, b: Array, dtype: DType) -> Array:
        """Sums of products over the last axis of ``a`` and the last but one of ``b``, both of ``dtype``; leading axes broadcast."""
        ...


def _operand_dtype(op: Elementwise, position: int, compute: DType) -> DType:
    return bool_ if op.rule is DTypeRule.SELECT and position == 0 else compute


def _reduce(function: Function, array: Array, axis: tuple[int, ...], dtype: np.dtype[Any], initial: object) -> Array:
    return np.asarray(cast(np.ufunc, function).reduce(array, axis=axis, dtype=dtype, initial=initial))


def _accumulate(function: Function, array: Array, axis: int, dtype: np.dtype[Any]) -> Array:
    return np.asarray(cast(np.ufunc, function).accumulate(array, axis=axis, dtype=dtype))


def _modular(combine: Combine, dtype: DType) -> Function:
    """The function that combines stored elements of ``dtype``: words have one of their own."""
    return combine.op.modular if dtype.is_float and combine.op.modular is not None else combine.op.function


class Native:
    """Ordinary numbers. Sums and products of floats are accumulated in float64 and rounded once."""

    name = "native"

    def storage(self, dtype: DType) -> np.dtype[Any]:
        return dtype.numpy

    def encode(self, array: npt.ArrayLike, dtype: DType) -> Array:
        return np.asarray(array, dtype.numpy)

    def literal(self, value: Scalar, dtype: DType) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(value).astype(dtype.numpy)

    def cast(self, array: Array, source: DType, target: DType) -> Array:
        if source is target:
            return array
        with np.errstate(all="ignore"):
            if target.is_bool:
                return np.asarray(array != 0)
            if source.is_float and not target.is_float:
                return _float_to_integer(np.asarray(array.astype(np.float64)), target)
            return np.asarray(array).astype(target.numpy)

    def apply(self, op: Elementwise, args: Sequence[Array], arg_dtypes: Sequence[DType], compute: DType, out: DType) -> Array:
        if op.rule is DTypeRule.CAST:
            return self.cast(args[0], arg_dtypes[0], out)
        operands = [self.cast(a, d, _operand_dtype(op, i, compute)) for i, (a, d) in enumerate(zip(args, arg_dtypes, strict=True))]
        wide = compute.compute
        if wide is not compute:  # in kernel IR alone: steps are not rounded
            operands = [self.cast(a, compute, wide) if a.dtype == compute.numpy else a for a in operands]
        with np.errstate(all="ignore"):
            result = np.asarray(op.function(*operands))
        made = op.result_dtype(compute)
        return self.cast(self.cast(result, wide, compute) if made is compute else result, made, out)

    def combine(self, combine: Combine, a: Array, b: Array, dtype: DType) -> Array:
        return self.apply(combine.op, (a, b), (dtype, dtype), dtype.compute, dtype)

    def reduce(self, combine: Combine, array: Array, axis: tuple[int, ...], dtype: DType) -> Array:
        neutral = combine.neutral(dtype)
        with np.errstate(all="ignore"):
            if dtype.is_float:
                return _reduce(combine.op.function, array.astype(np.float64), axis, np.dtype(np.float64), neutral).astype(self.storage(dtype))
            return _reduce(combine.op.function, array, axis, dtype.numpy, neutral)

    def accumulate(self, combine: Combine, array: Array, axis: int, dtype: DType) -> Array:
        with np.errstate(all="ignore"):
            if dtype.is_float:
                return _accumulate(combine.op.function, array.astype(np.float64), axis, np.dtype(np.float64)).astype(self.storage(dtype))
            return _accumulate(combine.op.function, array, axis, dtype.numpy)

    def matmul(self, a: Array, b: Array, dtype: DType) -> Array:
        with np.errstate(all="ignore"):
            if dtype.is_float:
                return np.asarray(np.matmul(a.astype(np.float64), b.astype(np.float64))).astype(self.storage(dtype))
            return np.asarray(np.matmul(a, b))


def _float_to_integer(array: npt.NDArray[np.float64], target: DType) -> Array:
    """Truncated and clamped to the range, NaN to 0, as the conversion instructions do; plain conversion would be undefined."""
    whole = np.where(np.isnan(array), 0.0, np.trunc(array))
    # float64 does not have the greatest 64-bit integers: values that reach the float above them are clamped here
    above = whole >= float(target.max_value)
    below = whole <= float(target.min_value)
    inside = np.where(above | below, 0.0, whole).astype(target.numpy)
    clamped = np.where(below, np.asarray(target.min_value, target.numpy), inside)
    return np.asarray(np.where(above, np.asarray(target.max_value, target.numpy), clamped))


class Modular:
    """modular words instead of floats; integers and bool are unchanged.

    Casts between floats change nothing, an integer becomes the word that it is modulo 2^64, and a float becomes an integer by a hash.
    """

    name = "modular"

    def storage(self, dtype: DType) -> np.dtype[Any]:
        return WORD if dtype.kind is DTypeKind.FLOAT else dtype.numpy

    def encode(self, array: npt.ArrayLike, dtype: DType) -> Array:
        given = np.asarray(array)
        if not dtype.is_float:
            return given.astype(dtype.numpy)
        return given if given.dtype == WORD else embed(given, dtype)

    def literal(self, value: Scalar, dtype: DType) -> Array:
        stored = NATIVE.literal(value, dtype)
        return embed(stored, dtype) if dtype.is_float else stored

    def cast(self, array: Array, source: DType, target: DType) -> Array:
        if source is target or (source.is_float and target.is_float):
            return array
        if target.is_bool:
            return np.asarray(array != 0)
        if target.is_float:
            wide = array.astype(np.int64) if source.kind is DTypeKind.INT else array
            return wide.astype(WORD)
        return (hash_words("cast", array) if source.is_float else array).astype(target.numpy)

    def apply(self, op: Elementwise, args: Sequence[Array], arg_dtypes: Sequence[DType], compute: DType, out: DType) -> Array:
        if op.rule is DTypeRule.CAST:
            return self.cast(args[0], arg_dtypes[0], out)
        operands = [self.cast(a, d, _operand_dtype(op, i, compute)) for i, (a, d) in enumerate(zip(args, arg_dtypes, strict=True))]
        with np.errstate(all="ignore"):
            made = op.result_dtype(compute)
            if not (compute.is_float or made.is_float):
                result = np.asarray(op.function(*operands))
            elif op.modular is not None:
                result = np.asarray(op.modular(*operands))
            else:
                result = hash_words(op.name, *operands).astype(self.storage(made))
        return self.cast(result, made, out)

    def combine(self, combine: Combine, a: Array, b: Array, dtype: DType) -> Array:
        return self.apply(combine.op, (a, b), (dtype, dtype), dtype, dtype)

    def reduce(self, combine: Combine, array: Array, axis: tuple[int, ...], dtype: DType) -> Array:
        neutral = self.literal(combine.neutral(dtype), dtype)
        with np.errstate(all="ignore"):
            return _reduce(_modular(combine, dtype), array, axis, self.storage(dtype), neutral[()])

    def accumulate(self, combine: Combine, array: Array, axis: int, dtype: DType) -> Array:
        with np.errstate(all="ignore"):
            return _accumulate(_modular(combine, dtype), array, axis, self.storage(dtype))

    def matmul(self, a: Array, b: Array, dtype: DType) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(np.matmul(a, b))


NATIVE: Values = Native()
MODULAR: Values = Modular()
