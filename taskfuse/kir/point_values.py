"""The values of definitions at some points of their iteration spaces, for :mod:`taskfuse.kir.meaning`, which computes whole tensors, and for callers that
compute some elements only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from taskfuse.dtypes import DType
from taskfuse.ir.combine import Combine
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import Expr, evaluate
from taskfuse.ir.values import Values
from taskfuse.kir.operands import Access, Immediate, IndexOf, Operand, ScalarValue, dtype_of
from taskfuse.kir.witness import Apply, Definition, Find, Iterate, Pick, Reduce, Send

Array = NDArray[Any]
Ints = NDArray[np.int64]
Point = dict[str, Any]
"""Symbols with their values at some points; extents and tables have the same value at all of them."""


class UndefinedElementError(IndexError):
    """The definitions determine no value: one reads an element that does not exist, or no case of a choice holds."""


class PointValues(ABC):
    """The values of operands and rules at points.

    Attributes:
        sizes: the values of extents, and the elements of tables.
        values: the arithmetic.
        dtypes: of all tensors and scalar arguments.
    """

    def __init__(self, sizes: Mapping[str, Any], values: Values, dtypes: Mapping[str, DType]) -> None:
        self.sizes: Point = dict(sizes)
        self.values = values
        self.dtypes = dict(dtypes)

    @abstractmethod
    def elements(self, name: str, index: tuple[Ints, ...], count: int) -> Array:
        """Elements of a tensor, at ``count`` indices.

        Raises:
            UndefinedElementError: one does not exist.
        """

    @abstractmethod
    def scalar(self, name: str) -> Array:
        """The value of a scalar argument."""

    # -- rules ------------------------------------------------------------------------------------------------------------------------

    def at_points(self, d: Definition, rule: Apply | Pick | Find | Send, point: Point, count: int) -> Array:
        """The elements of a definition that is computed point by point; a gather outside its source is 0."""
        v = self.values
        match rule:
            case Apply(op=op, operands=operands, dtype=dtype):
                args = [self.operand(o, point, count) for o in operands]
                return v.apply(op, args, [self.dtype(o) for o in operands], dtype, d.dtype)
            case Pick(cases=cases):
                found, free = np.zeros(count, v.storage(d.dtype)), np.ones(count, np.bool_)
                for case in cases:
                    mine = np.flatnonzero(free & self.holds(case.cond, point, count))
                    here = self.some(point, mine)
                    found[mine] = v.cast(self.operand(case.operand, here, mine.size), self.dtype(case.operand), d.dtype)
                    free[mine] = False
                if free.any():
                    raise UndefinedElementError(f"no case of {d.tensor} holds")
                return found
            case Find(source=source):
                symbols, inside = self.inside(rule, point, count)
                found, mine = np.zeros(count, v.storage(d.dtype)), np.flatnonzero(inside)
                found[mine] = self.operand(source, self.some(symbols, mine), mine.size)
                return found
            case Send(operand=operand):
                return np.broadcast_to(v.cast(self.operand(operand, point, count), self.dtype(operand), d.dtype), count)

    def reduced(self, rule: Reduce, point: Point, owner: Ints, count: int) -> Array:
        """``count`` results of a reduction, in its compute dtype. Floats are summed in float64 and rounded once.

        Args:
            point: points with terms, or outside their bounds.
            owner: the number of the result that each belongs to.
        """
        v, n = self.values, owner.size
        args = [np.broadcast_to(self.operand(o, point, n), n) for o in rule.operands]
        body = np.broadcast_to(v.apply(rule.body, args[: len(rule.terms)], [self.dtype(o) for o in rule.terms], rule.dtype, rule.dtype), n)
        within = [(k, np.broadcast_to(point[f"i{k}"] >= evaluate(start, point), n)) for k, start in rule.starts]
        within += [(k, np.broadcast_to(point[f"i{k}"] < evaluate(end, point), n)) for k, end in rule.ends]
        everywhere = np.ones(n, np.bool_)
        inside = np.logical_and.reduce([everywhere, *(among for _, among in within)])
        if rule.rescaled is None:
            first = v.cast(v.literal(rule.init.value, rule.init.dtype), rule.init.dtype, rule.dtype)
            return self.combined(rule.combine, rule.dtype, first, count, owner[inside], body[inside])
        factor = v.cast(args[-1], self.dtype(rule.operands[-1]), rule.dtype)
        along = np.broadcast_to(point[f"i{rule.rescaled}"], n)
        total = np.zeros(count, v.storage(rule.dtype))
        stepping = np.logical_and.reduce([everywhere, *(among for k, among in within if k == rule.rescaled)])
        for i in range(int(along.max(initial=-1)) + 1):  # what there is is multiplied by the factor, and the terms are added
            mine = np.flatnonzero((along == i) & stepping)
            scaled = total.copy()
            scaled[owner[mine]] = v.apply(ELEMENTWISE["mul"], [total[owner[mine]], factor[mine]], [rule.dtype, rule.dtype], rule.dtype, rule.dtype)
            mine = np.flatnonzero((along == i) & inside)
            with np.errstate(all="ignore"):
                cast(np.ufunc, rule.combine.op.function).at(scaled, owner[mine], body[mine].astype(total.dtype))
            total = scaled
        return total

    def combined(self, combine: Combine, dtype: DType, first: Array, count: int, owner: Ints, terms: Array) -> Array:
        """The terms of ``count`` elements, from ``first`` on; ``owner`` is the number of the element that each belongs to."""
        storage = self.values.storage(dtype)
        wide = np.dtype(np.float64) if storage.kind not in "biu" else storage
        found = np.broadcast_to(first.astype(wide), count).copy()
        with np.errstate(all="ignore"):
            cast(np.ufunc, combine.op.function).at(found, owner, terms.astype(wide))
            return found.astype(storage)

    def folded(self, rule: Iterate, args: Sequence[Array], count: int, steps: int) -> Array:
        """``count`` states after all steps; ``args`` has the operands, ``[count, steps]``, in their dtypes."""
        v = self.values
        dtypes = [rule.dtype, *(self.dtype(o) for o in rule.operands)]
        state = np.broadcast_to(v.cast(v.literal(rule.init.value, rule.init.dtype), rule.init.dtype, rule.dtype), count)
        for i in range(steps):
            state = v.apply(rule.op, [state, *(a[:, i] for a in args)], dtypes, rule.dtype, rule.dtype)
        return state

    # -- operands and points ----------------------------------------------------------------------------------------------------------

    def operand(self, operand: Operand, point: Point, count: int) -> Array:
        """The values of an operand."""
        match operand:
            case Access(buffer=name, index=index):
                at = tuple(np.broadcast_to(np.asarray(evaluate(e, point), np.int64), count) for e in index)
                return np.broadcast_to(self.elements(name, at, count), count)
            case Immediate(value=value, dtype=dtype):
                return np.broadcast_to(self.values.literal(value, dtype), count)
            case ScalarValue(name=name):
                return np.broadcast_to(self.scalar(name), count)
            case IndexOf(value=value):
                return np.broadcast_to(np.asarray(evaluate(value, point), np.int64), count)

    def dtype(self, operand: Operand) -> DType:
        """The dtype of an operand."""
        return dtype_of(operand, self.dtypes.__getitem__)

    def inside(self, rule: Find | Send, point: Point, count: int) -> tuple[Point, NDArray[np.bool_]]:
        """The symbols of a gather with their values, counted from 0, and a mask of where all of them are inside; elsewhere they are 0."""
        inside = np.ones(count, np.bool_)
        symbols = dict(point)
        for k, (value, extent) in enumerate(zip(rule.values, rule.extents, strict=True)):
            (n,) = self.extents((extent,))
            at = self.operand(value, point, count).astype(np.int64)
            at = np.where(at < 0, at + n, at)
            good = (at >= 0) & (at < n)
            inside &= good
            symbols[f"v{k}"] = np.where(good, at, 0)
        return symbols, inside

    def holds(self, condition: Expr, point: Point, count: int) -> NDArray[np.bool_]:
        """Where a condition holds."""
        return np.broadcast_to(np.asarray(evaluate(condition, point), np.bool_), count)

    def extents(self, extents: Sequence[Expr]) -> tuple[int, ...]:
        """Extents as numbers."""
        return tuple(int(np.asarray(evaluate(e, self.sizes))) for e in extents)

    def point(self, index: Sequence[Ints]) -> Point:
        """The symbols at points with some indices."""
        return {**self.sizes, **{f"i{k}": e for k, e in enumerate(index)}}

    def some(self, point: Point, mine: Ints) -> Point:
        """Some of the points."""
        return {n: p if n in self.sizes else p[mine] for n, p in point.items()}


def existing(index: Sequence[Ints], shape: Sequence[int]) -> tuple[Ints, ...]:
    """Indices that are all inside a shape.

    Raises:
        UndefinedElementError: one is outside.
    """
    for k, (at, n) in enumerate(zip(index, shape, strict=True)):
        if at.size and (at.min() < 0 or at.max() >= n):
            raise UndefinedElementError(f"index {at.min()} to {at.max()} of axis {k} is outside 0..{n}")
    return tuple(index)
