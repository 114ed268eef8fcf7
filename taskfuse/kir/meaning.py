"""Interpreter of a kernel's definitions: computes its outputs from the witness alone, element by element.

It reads neither the fusion nor the schedule nor the statements. If its outputs equal those of ``fusion.evaluate``, the definitions agree with the fusion,
and a proof of the kernel's values is a proof against the fusion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import cast

import numpy as np

from taskfuse.ir.offsets import offsets, offsets_name
from taskfuse.ir.scalar import ZERO, Expr, evaluate
from taskfuse.ir.values import MODULAR, Values
from taskfuse.kir.declarations import ScalarParam
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.point_values import Array, Ints, Point, PointValues, UndefinedElementError, existing
from taskfuse.kir.walk import looked_up
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Send, Whole, tensors_of


def meaning(kernel: Kernel, arguments: Sequence[Array | int | float], sizes: Mapping[str, int], values: Values = MODULAR) -> tuple[Array, ...]:
    """The outputs of a kernel by its definitions. A tensor that no element of an output needs has no elements here.

    Args:
        arguments: one array per input, then one number per scalar argument, as for ``kernel.simulate``.
        sizes: the values of its extents.

    Raises:
        UndefinedElementError: a definition reads an element that does not exist, has a negative extent, or no case of a choice holds.
        TableIndexError, ZeroDivisionError: an expression of a definition has no value.
    """
    found = _Meaning(kernel, arguments, sizes, values)
    needed = found.needed(kernel)
    for d in kernel.definitions:
        found.tensors[d.tensor] = found.computed(d) if d.tensor in needed else np.zeros((0,) * len(d.shape), values.storage(d.dtype))
        found.dtypes[d.tensor] = d.dtype
        if isinstance(d.rule, Send):
            found.sent[d.tensor] = d.rule
    return tuple(found.tensors[p.name] for p in kernel.outputs)


class _Meaning(PointValues):
    """The tensors computed so far."""

    def __init__(self, kernel: Kernel, arguments: Sequence[Array | int | float], sizes: Mapping[str, int], values: Values) -> None:
        scalars = [p for p in kernel.params if isinstance(p, ScalarParam)]
        tables = {p.name: np.asarray(arguments[k]).astype(np.int64) for k, p in enumerate(kernel.inputs) if p.name in looked_up(kernel)}
        super().__init__({**sizes, **tables}, values, {p.name: p.dtype for p in (*kernel.inputs, *scalars)})
        self.sent: dict[str, Send] = {}
        for p in kernel.table_inputs:
            if p.lengths is not None and p.name in tables:
                self.sizes[offsets_name(p.name)] = offsets(tables[p.name], int(evaluate(p.lengths, sizes)))
        given = list(arguments)
        self.tensors = {p.name: values.encode(given[k], p.dtype) for k, p in enumerate(kernel.inputs)}
        self.scalars = {p.name: values.encode(np.asarray(given[len(kernel.inputs) + k], p.dtype.numpy), p.dtype) for k, p in enumerate(scalars)}

    def elements(self, name: str, index: tuple[Ints, ...], count: int) -> Array:
        array = self.tensors[name]
        return array[existing(index, array.shape)]

    def scalar(self, name: str) -> Array:
        return self.scalars[name]

    def needed(self, kernel: Kernel) -> set[str]:
        """The outputs, and the tensors that one with elements reads, except at no point."""
        outputs = {p.name for p in kernel.outputs}
        empty = {d.tensor for d in kernel.definitions if 0 in (*self.extents(d.shape), *self.extents(d.space))}
        found = set(outputs)
        for d in reversed(kernel.definitions):
            if d.tensor in found - empty:
                found |= tensors_of(d.rule)
        return found

    def computed(self, d: Definition) -> Array:
        """A tensor, from its definition."""
        shape, space = self.extents(d.shape), self.extents(d.space)
        if min((*shape, *space), default=0) < 0:
            raise UndefinedElementError(f"an extent of {d.tensor} is negative")
        point = self._points(space)
        v, count = self.values, prod(space)
        match d.rule:
            case Apply() | Pick() | Find() | Send() as rule:
                return self.at_points(d, rule, point, count).reshape(shape)
            case Reduce() as rule:
                owner = np.ravel_multi_index(self._index(d.place, shape, point, count), shape) if shape and count else np.zeros(count, np.int64)
                return v.cast(self.reduced(rule, point, owner, prod(shape)).reshape(shape), rule.dtype, d.dtype)
            case Accumulate(combine=combine, operand=operand, axis=axis, dtype=dtype):
                terms = v.cast(self.operand(operand, point, count), self.dtype(operand), dtype)
                if d.rule.start is not ZERO:
                    terms = np.where(point[f"i{axis}"] >= evaluate(d.rule.start, point), terms, v.literal(combine.neutral(dtype), dtype))
                terms = np.broadcast_to(terms, count).reshape(space)
                totals = v.accumulate(combine, terms, axis, dtype)
                if d.rule.is_exclusive and totals.shape[axis]:
                    totals = np.roll(totals, 1, axis)
                    totals[(slice(None),) * axis + (0,)] = v.literal(combine.neutral(dtype), dtype)
                return v.cast(totals, dtype, d.dtype)
            case Iterate() as rule:
                args = [np.broadcast_to(self.operand(o, point, count), count).reshape(space) for o in rule.operands]
                steps = space[rule.axis]
                by_step = [np.moveaxis(a, rule.axis, -1).reshape(prod(shape), steps) for a in args]
                return v.cast(self.folded(rule, by_step, prod(shape), steps).reshape(shape), rule.dtype, d.dtype)
            case Whole(parts=parts, places=places, conditions=conditions):
                found = np.zeros(shape, v.storage(d.dtype))
                for part, place, condition in zip(parts, places, conditions, strict=True):
                    array, points = self.tensors[part], self._points(self.tensors[part].shape)
                    sent = self.sent.get(part)
                    if sent is not None:
                        found = self._combined(found, array.reshape(-1), sent, place, condition, points)
                        continue
                    mine = np.flatnonzero(self.holds(condition, points, array.size))
                    found[self._index(place, shape, self.some(points, mine), len(mine))] = array.reshape(-1)[mine]
                return found

    def _combined(self, whole: Array, terms: Array, rule: Send, place: tuple[Expr, ...], condition: Expr, point: Point) -> Array:
        """Every term that meets the condition, combined with the element that it is sent to. Floats are summed in float64 and rounded once."""
        symbols, inside = self.inside(rule, point, terms.size)
        mine = np.flatnonzero(inside & self.holds(condition, symbols, terms.size))
        to = self._index(place, whole.shape, self.some(symbols, mine), len(mine))
        wide = whole.astype(np.float64 if whole.dtype.kind not in "biu" else whole.dtype)
        with np.errstate(all="ignore"):
            cast(np.ufunc, rule.combine.op.function).at(wide, to, terms[mine].astype(wide.dtype))
            return wide.astype(whole.dtype)

    def _points(self, space: tuple[int, ...]) -> Point:
        """The symbols of a space, and its indices at all points in order."""
        return self.point(list(np.indices(space, np.int64).reshape(len(space), prod(space))))

    def _index(self, index: tuple[Expr, ...], shape: tuple[int, ...], point: Point, count: int) -> tuple[Ints, ...]:
        return existing([np.broadcast_to(np.asarray(evaluate(e, point), np.int64), count) for e in index], shape)
