"""How far a result may lie from NumPy's: as far as NumPy's own results move when its inexact functions are off by a few ulp.

A GPU's ``sin`` and NumPy's differ in the last places, and what a fusion makes of that difference depends on the fusion: ``exp(exp(x))``
magnifies it, ``floor`` and ``x < y`` turn it into nothing or into a whole step. So the reference is evaluated several times, each time
with the results of every inexact function and of every float reduction moved: all up, all down, and at random. The range of the results,
widened by its own width and two ulp, is what is accepted. Everything else (IEEE arithmetic, integers, comparisons, moves) is exact, and
where a fusion has nothing inexact and no reduction the range is one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import taskfuse as tf
from taskfuse.dtypes import DType, float64
from taskfuse.ir.combine import COMBINES, Combine
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.expr import Pointwise
from taskfuse.ir.values import Native
from taskfuse.testing.accuracy import BOUNDS, bound

Array = npt.NDArray[Any]

NUMPY_ULP = 4
"""What NumPy's own functions may be off by, in units in the last place."""

EXACT = frozenset(row for name, row in ELEMENTWISE.items() if name not in BOUNDS)
"""Functions with one right result, which IEEE 754 or integer arithmetic fixes."""

_CANCELLING = frozenset({ELEMENTWISE["gelu_tanh"], ELEMENTWISE["gelu"]})  # NumPy's formula loses places where x is far below 0


class Moved(Native):
    """Ordinary numbers, where what an inexact function gives is moved by ``move(shape)``, in [-1, 1], times the greatest error."""

    name = "moved"

    def __init__(self, rng: np.random.Generator | None, sign: float = 0.0) -> None:
        self._rng = rng
        self._sign = sign

    def _move(self, shape: tuple[int, ...]) -> Array:
        return np.full(shape, self._sign) if self._rng is None else self._rng.uniform(-1, 1, shape)

    def _moved(self, result: Array, error: Array, dtype: DType) -> Array:
        with np.errstate(all="ignore"):
            moved = np.where(np.isfinite(result), result.astype(np.float64) + self._move(result.shape) * error, result)
            return moved.astype(dtype.numpy)

    def apply(self, op: Elementwise, args: Sequence[Array], arg_dtypes: Sequence[DType], compute: DType, out: DType) -> Array:
        if op in EXACT or not compute.is_float:
            return super().apply(op, args, arg_dtypes, compute, out)
        result = super().apply(op, args, arg_dtypes, compute, compute)
        with np.errstate(all="ignore"):
            size = np.abs(result.astype(np.float64))
            if op in _CANCELLING:
                size = np.maximum(size, np.abs(args[0].astype(np.float64)))
            error = (bound(op.name, compute) + NUMPY_ULP) * _eps(compute) * np.where(np.isfinite(size), size, 0)
        return self.cast(self._moved(result, error, compute), compute, out)

    def reduce(self, combine: Combine, array: Array, axis: tuple[int, ...], dtype: DType) -> Array:
        result = super().reduce(combine, array, axis, dtype)
        if not dtype.is_float or combine not in (COMBINES["add"], COMBINES["mul"]):
            return result
        with np.errstate(all="ignore"):
            wide = np.abs(array.astype(np.float64))
            size = wide.sum(axis=axis) if combine is COMBINES["add"] else wide.prod(axis=axis)
            terms = int(np.prod([array.shape[k] for k in axis]))
        return self._moved(result, terms * _eps(dtype) * size, dtype)

    def accumulate(self, combine: Combine, array: Array, axis: int, dtype: DType) -> Array:
        result = super().accumulate(combine, array, axis, dtype)
        if not dtype.is_float or combine not in (COMBINES["add"], COMBINES["mul"]):
            return result
        with np.errstate(all="ignore"):
            size = super().accumulate(combine, np.abs(array.astype(np.float64)), axis, float64)
        return self._moved(result, array.shape[axis] * _eps(dtype) * size, dtype)

    def matmul(self, a: Array, b: Array, dtype: DType) -> Array:
        result = super().matmul(a, b, dtype)
        if not dtype.is_float:
            return result
        with np.errstate(all="ignore"):
            size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
        return self._moved(result, a.shape[-1] * _eps(dtype) * size, dtype)


def _eps(dtype: DType) -> float:
    return 2.0 ** (1 - dtype.precision)


def is_exact(fusion: tf.Fusion) -> bool:
    """True if every function of the fusion has one right result. Reductions count as exact: a kernel states their order, but for tensor cores."""
    atoms = [tv.schedule.atom for tv in fusion.tensors()]
    if any(atom is not None and atom.contraction is not None for atom in atoms):
        return False
    return all(not isinstance(e, Pointwise) or e.op in EXACT or not e.output.dtype.is_float for e in fusion.exprs())


@dataclass(frozen=True)
class Accepted:
    """What is accepted of one output: the range ``[low, high]`` where ``known``, else anything."""

    dtype: DType
    low: Array
    high: Array
    known: Array

    def wrong(self, found: Array) -> Array:
        """The indices of the elements of ``found`` that are not accepted."""
        wide = _wide(found)
        with np.errstate(all="ignore"):
            inside = ((self.low <= wide) & (wide <= self.high)) | ((wide != wide) & (self.low != self.low))
        return np.argwhere(~np.asarray(inside, np.bool_) & self.known)


def _wide(array: Array) -> Array:
    """As float64, or for 64-bit integers as Python integers, which float64 cannot hold."""
    return array.astype(object) if array.dtype.kind in "iu" and array.dtype.itemsize == 8 else array.astype(np.float64)


def accepted(fusion: tf.Fusion, arguments: Sequence[Any], trials: int = 3) -> tuple[Accepted, ...]:
    """What is accepted of each output of ``fusion``, from NumPy's own results and ``trials`` + 2 moved evaluations."""
    modes = [Moved(None), Moved(None, 1.0), Moved(None, -1.0), *(Moved(np.random.default_rng(k)) for k in range(trials))]
    runs = [evaluate(fusion, arguments, mode) for mode in modes]
    return tuple(_range(tv.dtype, [_wide(run[k]) for run in runs]) for k, tv in enumerate(fusion.outputs))


def _range(dtype: DType, results: Sequence[Array]) -> Accepted:
    stack = np.stack(results)
    with np.errstate(all="ignore"):
        if not dtype.is_float:
            return Accepted(dtype, stack.min(axis=0), stack.max(axis=0), np.ones(stack.shape[1:], np.bool_))
        finite = np.isfinite(stack)
        agree = (stack == stack[0]).all(axis=0) | np.isnan(stack).all(axis=0)
        low, high = stack.min(axis=0), stack.max(axis=0)
        ulp = 2 * np.maximum(np.abs(low), np.abs(high)) * _eps(dtype) + float(np.finfo(np.float32).tiny)
        slack = np.where(finite.all(axis=0), np.where(low != high, high - low, 0) + ulp, 0)
        return Accepted(dtype, low - slack, high + slack, finite.all(axis=0) | agree)
