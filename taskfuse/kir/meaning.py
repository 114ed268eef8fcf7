"""Interpreter of a kernel's definitions: computes its outputs from the witness alone, element by element.

It reads neither the fusion nor the schedule nor the statements. If its outputs equal those of ``fusion.evaluate``, the definitions agree with the fusion,
and a proof of the kernel's values is a proof against the fusion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from taskfuse.dtypes import DType, int64
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.offsets import offsets, offsets_name
from taskfuse.ir.scalar import Expr, evaluate
from taskfuse.ir.values import MODULAR, Values
from taskfuse.kir.declarations import ScalarParam
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.operands import Access, Immediate, IndexOf, Operand, ScalarValue
from taskfuse.kir.walk import looked_up
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Send, Whole

Array = NDArray[Any]
Ints = NDArray[np.int64]


class UndefinedElementError(IndexError):
    """The definitions say no value: one reads an element that does not exist, or no case of a choice holds."""


def meaning(kernel: Kernel, arguments: Sequence[Array | int | float], sizes: Mapping[str, int], values: Values = MODULAR) -> tuple[Array, ...]:
    """The outputs of a kernel by its definitions.

    Args:
        arguments: one array per input, then one number per scalar argument, as for ``kernel.simulate``.
        sizes: the values of its extents.

    Raises:
        UndefinedElementError: a definition reads an element that does not exist, or no case of a choice holds.
        TableIndexError, ZeroDivisionError: an expression of a definition has no value.
    """
    found = _Meaning(kernel, arguments, sizes, values)
    for d in kernel.definitions:
        found.tensors[d.tensor] = found.computed(d)
        found.dtypes[d.tensor] = d.dtype
        if isinstance(d.rule, Send):
            found.sent[d.tensor] = d.rule
    return tuple(found.tensors[p.name] for p in kernel.outputs)


class _Meaning:
    """The tensors computed so far."""

    def __init__(self, kernel: Kernel, arguments: Sequence[Array | int | float], sizes: Mapping[str, int], values: Values) -> None:
        self.values = values
        self.sent: dict[str, Send] = {}
        tables = {p.name: np.asarray(arguments[k]).astype(np.int64) for k, p in enumerate(kernel.inputs) if p.name in looked_up(kernel)}
        self.sizes: dict[str, Any] = {**sizes, **tables}
        for p in kernel.table_inputs:
            if p.lengths is not None and p.name in tables:
                self.sizes[offsets_name(p.name)] = offsets(tables[p.name], int(evaluate(p.lengths, sizes)))
        scalars = [p for p in kernel.params if isinstance(p, ScalarParam)]
        given = list(arguments)
        self.tensors = {p.name: values.encode(given[k], p.dtype) for k, p in enumerate(kernel.inputs)}
        self.scalars = {p.name: values.encode(np.asarray(given[len(kernel.inputs) + k], p.dtype.numpy), p.dtype) for k, p in enumerate(scalars)}
        self.dtypes: dict[str, DType] = {p.name: p.dtype for p in (*kernel.inputs, *scalars)}

    def computed(self, d: Definition) -> Array:
        """A tensor, from its definition."""
        shape, space = self._extents(d.shape), self._extents(d.space)
        point = self._points(space)
        v, count = self.values, int(np.prod(space))
        match d.rule:
            case Apply(op=op, operands=operands, dtype=dtype):
                args = [self._operand(o, point, count) for o in operands]
                return v.apply(op, args, [self._dtype(o) for o in operands], dtype, d.dtype).reshape(shape)
            case Pick(cases=cases):
                found, free = np.zeros(count, v.storage(d.dtype)), np.ones(count, np.bool_)
                for case in cases:
                    mine = np.flatnonzero(free & np.broadcast_to(np.asarray(evaluate(case.cond, point), np.bool_), count))
                    here = self._some(point, mine)
                    found[mine] = v.cast(self._operand(case.operand, here, len(mine)), self._dtype(case.operand), d.dtype)
                    free[mine] = False
                if free.any():
                    raise UndefinedElementError(f"no case of {d.tensor} holds")
                return found.reshape(shape)
            case Reduce() as rule:
                return self._reduced(d, rule, shape, point, count)
            case Accumulate(combine=combine, operand=operand, axis=axis, dtype=dtype):
                terms = v.cast(self._operand(operand, point, count), self._dtype(operand), dtype).reshape(space)
                totals = v.accumulate(combine, terms, axis, dtype)
                if d.rule.is_exclusive and totals.shape[axis]:
                    totals = np.roll(totals, 1, axis)
                    totals[(slice(None),) * axis + (0,)] = v.literal(combine.neutral(dtype), dtype)
                return v.cast(totals, dtype, d.dtype)
            case Iterate() as rule:
                return self._iterated(d, rule, space, point, count)
            case Find() as rule:
                return self._found(d, rule, point, count).reshape(shape)
            case Send(operand=operand):
                return np.broadcast_to(v.cast(self._operand(operand, point, count), self._dtype(operand), d.dtype), count).reshape(shape)
            case Whole(parts=parts, places=places, conditions=conditions):
                found = np.zeros(shape, v.storage(d.dtype))
                for part, place, condition in zip(parts, places, conditions, strict=True):
                    array, points = self.tensors[part], self._points(self.tensors[part].shape)
                    sent = self.sent.get(part)
                    if sent is not None:
                        found = self._combined(found, array.reshape(-1), sent, place, points)
                        continue
                    mine = np.flatnonzero(np.broadcast_to(np.asarray(evaluate(condition, points), np.bool_), array.size))
                    found[self._index(place, shape, self._some(points, mine), len(mine))] = array.reshape(-1)[mine]
                return found

    def _iterated(self, d: Definition, rule: Iterate, space: tuple[int, ...], point: dict[str, Any], count: int) -> Array:
        """The steps along the axis one after another, for all elements at once."""
        v = self.values
        args = [np.broadcast_to(self._operand(o, point, count), count).reshape(space) for o in rule.operands]
        dtypes = [rule.dtype, *(self._dtype(o) for o in rule.operands)]
        shape = (*space[: rule.axis], *space[rule.axis + 1 :])
        state = np.broadcast_to(v.cast(v.literal(rule.init.value, rule.init.dtype), rule.init.dtype, rule.dtype), shape)
        for i in range(space[rule.axis]):
            state = v.apply(rule.op, [state, *(np.take(a, i, rule.axis) for a in args)], dtypes, rule.dtype, rule.dtype)
        return v.cast(state, rule.dtype, d.dtype)

    def _reduced(self, d: Definition, rule: Reduce, shape: tuple[int, ...], point: dict[str, Any], count: int) -> Array:
        """Every term goes to the element that its point belongs to. Floats are summed in float64 and rounded once."""
        v = self.values
        args = [self._operand(o, point, count) for o in rule.terms]
        body = v.apply(rule.body, args, [self._dtype(o) for o in rule.terms], rule.dtype, rule.dtype)
        before = {k: np.broadcast_to(point[f"i{k}"] < evaluate(end, point), count) for k, end in rule.ends}
        if rule.rescaled is not None:
            return self._rescaled(d, rule, rule.rescaled, np.broadcast_to(body, count), shape, point, before)
        storage = v.storage(rule.dtype)
        wide = np.dtype(np.float64) if v.storage(rule.dtype).kind not in "biu" else storage
        init = v.cast(v.literal(rule.init.value, rule.init.dtype), rule.init.dtype, rule.dtype)
        found = np.full(shape or (1,), init.astype(wide), wide)
        place = self._index(d.place, shape, point, count) if shape else (np.zeros(count, np.int64),)
        with np.errstate(all="ignore"):
            mine = np.flatnonzero(np.logical_and.reduce([np.ones(count, np.bool_), *before.values()]))
            cast(np.ufunc, rule.combine.op.function).at(found, tuple(p[mine] for p in place), np.broadcast_to(body, count)[mine].astype(wide))
            total = found.astype(storage).reshape(shape)
        return v.cast(total, rule.dtype, d.dtype)

    def _rescaled(self, d: Definition, rule: Reduce, axis: int, body: Array, shape: tuple[int, ...], point: dict[str, Any], before: dict[int, Array]) -> Array:
        """One index along the axis after another: what there is is multiplied by the factor, and the terms are added."""
        v, count = self.values, body.size
        factor = v.cast(np.broadcast_to(self._operand(rule.operands[-1], point, count), count), self._dtype(rule.operands[-1]), rule.dtype)
        place = self._index(d.place, shape, point, count) if shape else (np.zeros(count, np.int64),)
        total = np.zeros(shape or (1,), v.storage(rule.dtype))
        along = np.broadcast_to(point[f"i{axis}"], count)
        for i in range(int(along.max(initial=-1)) + 1):
            mine = np.flatnonzero((along == i) & before.get(axis, True))
            here = tuple(p[mine] for p in place)
            scaled = total.copy()
            scaled[here] = v.apply(ELEMENTWISE["mul"], [total[here], factor[mine]], [rule.dtype, rule.dtype], rule.dtype, rule.dtype)
            mine = np.flatnonzero(np.logical_and.reduce([along == i, *before.values()]))
            with np.errstate(all="ignore"):
                cast(np.ufunc, rule.combine.op.function).at(scaled, tuple(p[mine] for p in place), body[mine].astype(total.dtype))
            total = scaled
        return v.cast(total.reshape(shape), rule.dtype, d.dtype)

    def _combined(self, whole: Array, terms: Array, rule: Send, place: tuple[Expr, ...], point: dict[str, Any]) -> Array:
        """Every term combined with the element that it is sent to. Floats are summed in float64 and rounded once."""
        symbols, inside = self._values(rule, point, terms.size)
        mine = np.flatnonzero(inside)
        to = self._index(place, whole.shape, self._some(symbols, mine), len(mine))
        wide = whole.astype(np.float64 if whole.dtype.kind not in "biu" else whole.dtype)
        with np.errstate(all="ignore"):
            cast(np.ufunc, rule.combine.op.function).at(wide, to, terms[mine].astype(wide.dtype))
            return wide.astype(whole.dtype)

    def _values(self, rule: Find | Send, point: dict[str, Any], count: int) -> tuple[dict[str, Any], Array]:
        """The symbols of a rule with values, and where all of these are inside; they are 0 elsewhere."""
        inside = np.ones(count, np.bool_)
        symbols = dict(point)
        for k, (value, extent) in enumerate(zip(rule.values, rule.extents, strict=True)):
            n = int(np.asarray(evaluate(extent, self.sizes)))
            at = self._operand(value, point, count).astype(np.int64)
            at = np.where(at < 0, at + n, at)
            good = (at >= 0) & (at < n)
            inside &= good
            symbols[f"v{k}"] = np.where(good, at, 0)
        return symbols, inside

    def _found(self, d: Definition, rule: Find, point: dict[str, Any], count: int) -> Array:
        """An element at the integers that are found, counted from the end where negative; 0 where one is outside."""
        symbols, inside = self._values(rule, point, count)
        found = np.zeros(count, self.values.storage(d.dtype))
        mine = np.flatnonzero(inside)
        here = self._some(symbols, mine)
        found[mine] = self._operand(rule.source, here, len(mine))
        return found

    # -- operands and points ----------------------------------------------------------------------------------------------------------

    def _extents(self, extents: tuple[Expr, ...]) -> tuple[int, ...]:
        return tuple(int(np.asarray(evaluate(e, self.sizes))) for e in extents)

    def _points(self, space: tuple[int, ...]) -> dict[str, Any]:
        """The symbols of a space, and its indices at all points in order."""
        axes = np.indices(space, np.int64).reshape(len(space), int(np.prod(space)))
        return {**self.sizes, **{f"i{k}": axis for k, axis in enumerate(axes)}}

    def _some(self, point: dict[str, Any], mine: Ints) -> dict[str, Any]:
        """Some of the points."""
        return {n: p if n in self.sizes else p[mine] for n, p in point.items()}

    def _index(self, index: tuple[Expr, ...], shape: tuple[int, ...], point: dict[str, Any], count: int) -> tuple[Ints, ...]:
        found = tuple(np.broadcast_to(np.asarray(evaluate(e, point), np.int64), count) for e in index)
        for k, (at, n) in enumerate(zip(found, shape, strict=True)):
            if at.size and (at.min() < 0 or at.max() >= n):
                raise UndefinedElementError(f"index {at.min()} to {at.max()} of axis {k} is outside 0..{n}")
        return found

    def _operand(self, operand: Operand, point: dict[str, Any], count: int) -> Array:
        match operand:
            case Access(buffer=name, index=index):
                array = self.tensors[name]
                return np.broadcast_to(array[self._index(index, array.shape, point, count)], count)
            case Immediate(value=value, dtype=dtype):
                return np.broadcast_to(self.values.literal(value, dtype), count)
            case ScalarValue(name=name):
                return np.broadcast_to(self.scalars[name], count)
            case IndexOf(value=value):
                return np.broadcast_to(np.asarray(evaluate(value, point), np.int64), count)

    def _dtype(self, operand: Operand) -> DType:
        match operand:
            case Access(buffer=name) | ScalarValue(name=name):
                return self.dtypes[name]
            case Immediate(dtype=dtype):
                return dtype
            case IndexOf():
                return int64
