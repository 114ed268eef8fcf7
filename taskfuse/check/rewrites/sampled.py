"""Single elements of definitions, each computed from those that it needs: at extents at which whole tensors are too many numbers.

What an input holds is a hash of its name and of the place, so that only elements that are read exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.drawn_launches import drawn_tables
from taskfuse.check.refuted import TooLarge
from taskfuse.dtypes import DType, DTypeKind, int64
from taskfuse.ir.combine import Combine
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.modular import WORD, hash_words, mix
from taskfuse.ir.scalar import Expr, Sym, evaluate
from taskfuse.ir.values import Array, Values
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import ScalarParam
from taskfuse.kir.operands import Access, Immediate, IndexOf, Operand, ScalarValue
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Send, Whole

Ints = NDArray[np.int64]
Point = dict[str, Any]
"""Symbols with their values at some points."""

ANY = 7
"""Integers that are no places are below it."""


class Inputs:
    """What the inputs and scalar arguments of a kernel hold at some extents: floats in -2..2, integers a little outside of what they are places in."""

    def __init__(self, kernel: Kernel, extents: Mapping[str, int]) -> None:
        self.tables = drawn_tables(kernel, extents)
        self.dtypes = {p.name: p.dtype for p in (*kernel.inputs, *(p for p in kernel.params if isinstance(p, ScalarParam)))}
        self.shapes = {p.name: tuple(int(evaluate(n, extents)) for n in p.shape) for p in kernel.inputs}
        self._places = {
            o.buffer: int(evaluate(n, extents))
            for d in (*kernel.written, *kernel.definitions)
            if isinstance(d.rule, Find | Send)
            for o, n in zip(d.rule.values, d.rule.extents, strict=True)
        }

    def at(self, name: str, places: Ints) -> Array:
        """The elements of an input, or the values of a scalar, at row-major places."""
        dtype = self.dtypes[name]
        if name in self.tables:
            return self.tables[name][places].astype(dtype.numpy)
        words = mix(hash_words(name) ^ places.astype(WORD))
        if dtype.is_bool:
            return np.asarray(words % 2 == 1)
        if dtype.is_float:
            return np.asarray((words >> np.uint64(11)) * 2.0**-51 - 2.0).astype(dtype.numpy)
        extent = self._places.get(name, ANY)
        least = 0 if dtype.kind is DTypeKind.UINT else max(-extent - 2, int(dtype.min_value))
        most = min(extent + 2, int(dtype.max_value))
        return np.asarray((words % np.uint64(most - least)).astype(np.int64) + least).astype(dtype.numpy)


class SampledElements:
    """The elements that one list of definitions says.

    Attributes:
        left: points that may still be looked at.
    """

    def __init__(self, kernel: Kernel, definitions: Sequence[Definition], extents: Mapping[str, int], inputs: Inputs, values: Values, left: int) -> None:
        self.definitions = {d.tensor: d for d in definitions}
        self.inputs = inputs
        self.sizes: Point = {**extents, **inputs.tables}
        self.values = values
        self.left = left
        self._known: dict[tuple[str, bytes], Array] = {}
        self.dtypes = inputs.dtypes | {d.tensor: d.dtype for d in definitions}
        self.shapes = inputs.shapes | {d.tensor: self._extents(d.shape) for d in definitions}

    def at(self, name: str, index: Sequence[Ints]) -> Array:
        """Elements of a tensor.

        Args:
            index: for each axis the indices of all elements.

        Raises:
            IndexError: an element does not exist.
            TooLarge: they need more points than are left.
        """
        shape = self.shapes[name]
        for k, (e, n) in enumerate(zip(index, shape, strict=True)):
            if e.size and (e.min() < 0 or e.max() >= n):
                raise IndexError(f"index {e.min()} to {e.max()} of axis {k} is outside 0..{n}")
        count = len(index[0]) if index else 1
        places = np.ravel_multi_index(tuple(index), shape) if shape else np.zeros(count, np.int64)
        each, back = np.unique(places, return_inverse=True)
        if name in self.inputs.shapes:
            return self.values.encode(self.inputs.at(name, each), self.dtypes[name])[back]
        found = self._known.get((name, each.tobytes()))
        if found is None:
            self._take(each.size)
            axes = [np.asarray(a, np.int64) for a in np.unravel_index(each, shape)] if shape else []
            found = np.broadcast_to(self._computed(self.definitions[name], axes, each.size), each.size)
            self._known[name, each.tobytes()] = found
        return found[back]

    def _take(self, points: int) -> None:
        self.left -= points
        if self.left < 0:
            raise TooLarge

    def _computed(self, d: Definition, index: list[Ints], count: int) -> Array:
        v, point = self.values, self._point(index)
        match d.rule:
            case Apply(op=op, operands=operands, dtype=dtype):
                args = [self._operand(o, point, count) for o in operands]
                return v.apply(op, args, [self._dtype(o) for o in operands], dtype, d.dtype)
            case Pick(cases=cases):
                found, free = np.zeros(count, v.storage(d.dtype)), np.ones(count, np.bool_)
                for case in cases:
                    mine = np.flatnonzero(free & np.broadcast_to(np.asarray(evaluate(case.cond, point), np.bool_), count))
                    if mine.size:
                        found[mine] = v.cast(self._operand(case.operand, self._some(point, mine), mine.size), self._dtype(case.operand), d.dtype)
                    free[mine] = False
                if free.any():
                    raise IndexError(f"no case of {d.tensor} holds")
                return found
            case Reduce() as rule:
                return self._reduced(d, rule, index, count)
            case Accumulate(combine=combine, operand=operand, axis=axis, dtype=dtype):
                place = tuple(Sym(f"i{k}") for k in range(len(index)) if k != axis)
                here, owner = self._spread(self._extents(d.space), place, [e for k, e in enumerate(index) if k != axis], count)
                own, along = index[axis][owner], here[f"i{axis}"]
                mine = np.flatnonzero(along < own if d.rule.is_exclusive else along <= own)
                terms = v.cast(self._operand(operand, self._some(here, mine), mine.size), self._dtype(operand), dtype)
                return v.cast(self._combined(combine, dtype, combine.neutral(dtype), count, owner[mine], terms), dtype, d.dtype)
            case Iterate() as rule:
                return self._iterated(d, rule, index, count)
            case Find(source=source) as rule:
                symbols, inside = self._inside(rule, point, count)
                found, mine = np.zeros(count, v.storage(d.dtype)), np.flatnonzero(inside)
                if mine.size:
                    found[mine] = self._operand(source, self._some(symbols, mine), mine.size)
                return found
            case Send(operand=operand):
                return v.cast(self._operand(operand, point, count), self._dtype(operand), d.dtype)
            case Whole() as rule:
                return self._whole(d, rule, index, count)

    def _whole(self, d: Definition, rule: Whole, index: list[Ints], count: int) -> Array:
        found = np.zeros(count, self.values.storage(d.dtype))
        for part, place, condition in zip(rule.parts, rule.places, rule.conditions, strict=True):
            sent = self.definitions[part].rule
            here, owner = self._spread(self.shapes[part], place, index, count, sent if isinstance(sent, Send) else None)
            if isinstance(sent, Send):
                terms = self._operand(Access(part, self._own(part)), here, owner.size)
                wide = found.astype(np.float64 if found.dtype.kind not in "biu" else found.dtype)
                with np.errstate(all="ignore"):
                    cast(np.ufunc, sent.combine.op.function).at(wide, owner, terms.astype(wide.dtype))
                    found = wide.astype(found.dtype)
                continue
            mine = np.flatnonzero(np.broadcast_to(np.asarray(evaluate(condition, here), np.bool_), owner.size))
            found[owner[mine]] = self._operand(Access(part, self._own(part)), self._some(here, mine), mine.size)
        return found

    def _own(self, tensor: str) -> tuple[Expr, ...]:
        return tuple(Sym(f"i{k}") for k in range(len(self.shapes[tensor])))

    def _reduced(self, d: Definition, rule: Reduce, index: list[Ints], count: int) -> Array:
        v = self.values
        here, owner = self._spread(self._extents(d.space), d.place, index, count)
        for k, end in rule.ends:
            if k != rule.rescaled:
                mine = np.flatnonzero(here[f"i{k}"] < evaluate(end, here))
                here, owner = self._some(here, mine), owner[mine]
        args = [np.broadcast_to(self._operand(o, here, owner.size), owner.size) for o in rule.operands]
        body = np.broadcast_to(v.apply(rule.body, args[: len(rule.terms)], [self._dtype(o) for o in rule.terms], rule.dtype, rule.dtype), owner.size)
        if rule.rescaled is None:
            total = self._combined(rule.combine, rule.dtype, float(rule.init.value), count, owner, body, rule.init)
            return v.cast(total, rule.dtype, d.dtype)
        along = np.broadcast_to(here[f"i{rule.rescaled}"], owner.size)
        ends = dict(rule.ends)
        is_before = along < evaluate(ends[rule.rescaled], here) if rule.rescaled in ends else np.ones(owner.size, np.bool_)
        factor = v.cast(args[-1], self._dtype(rule.operands[-1]), rule.dtype)
        total = np.zeros(count, v.storage(rule.dtype))
        for i in range(int(along.max(initial=-1)) + 1):
            mine = np.flatnonzero((along == i) & is_before)
            scaled = total.copy()
            scaled[owner[mine]] = v.apply(ELEMENTWISE["mul"], [total[owner[mine]], factor[mine]], [rule.dtype, rule.dtype], rule.dtype, rule.dtype)
            with np.errstate(all="ignore"):
                cast(np.ufunc, rule.combine.op.function).at(scaled, owner[mine], body[mine].astype(total.dtype))
            total = scaled
        return v.cast(total, rule.dtype, d.dtype)

    def _combined(self, combine: Combine, dtype: DType, start: float, count: int, owner: Ints, terms: Array, init: Immediate | None = None) -> Array:
        """The terms of each of some elements, in float64 or in words."""
        v = self.values
        storage = v.storage(dtype)
        wide = np.dtype(np.float64) if storage.kind not in "biu" else storage
        first = v.literal(start, dtype) if init is None else v.cast(v.literal(init.value, init.dtype), init.dtype, dtype)
        found = np.full(count, first.astype(wide), wide)
        with np.errstate(all="ignore"):
            cast(np.ufunc, combine.op.function).at(found, owner, terms.astype(wide))
            return found.astype(storage)

    def _iterated(self, d: Definition, rule: Iterate, index: list[Ints], count: int) -> Array:
        v, steps = self.values, self._extents(d.space)[rule.axis]
        at = list(index)
        at.insert(rule.axis, np.zeros(count, np.int64))
        state = np.broadcast_to(v.cast(v.literal(rule.init.value, rule.init.dtype), rule.init.dtype, rule.dtype), count)
        dtypes = [rule.dtype, *(self._dtype(o) for o in rule.operands)]
        self._take(steps * count)
        every = self._point([np.repeat(e, steps) for e in at]) | {f"i{rule.axis}": np.tile(np.arange(steps), count)}
        args = [np.broadcast_to(self._operand(o, every, steps * count), steps * count).reshape(count, steps) for o in rule.operands]
        for i in range(steps):
            state = v.apply(rule.op, [state, *(a[:, i] for a in args)], dtypes, rule.dtype, rule.dtype)
        return v.cast(state, rule.dtype, d.dtype)

    # -- points ---------------------------------------------------------------------------------------------------------------------

    def _spread(self, space: tuple[int, ...], place: Sequence[Expr], index: Sequence[Ints], count: int, sent: Send | None = None) -> tuple[Point, Ints]:
        """The points of a space whose places are some indices, and the number of the index that each is of."""
        fixed: dict[int, Ints] = {}
        for e, at in zip(place, index, strict=True):
            axis = next((k for k in range(len(space)) if isinstance(e, Sym) and e.name == f"i{k}" and k not in fixed), None)
            if axis is not None:
                fixed[axis] = at
        free = [k for k in range(len(space)) if k not in fixed]
        size = prod(space[k] for k in free)
        self._take(count * size)
        owner = np.repeat(np.arange(count), size)
        own = dict(zip(free, (a.reshape(-1) for a in np.indices(tuple(space[k] for k in free), np.int64)), strict=True))
        point = self._point([fixed[k][owner] if k in fixed else np.tile(own[k], count) for k in range(len(space))])
        inside = np.ones(owner.size, np.bool_)
        for k, n in enumerate(space):
            inside &= (point[f"i{k}"] >= 0) & (point[f"i{k}"] < n)
        if sent is not None:
            point, there = self._inside(sent, self._some(point, np.flatnonzero(inside)), int(inside.sum()))
            owner, inside = owner[np.flatnonzero(inside)], there
        mine = np.flatnonzero(inside)
        point, owner = self._some(point, mine), owner[mine]
        kept = np.ones(owner.size, np.bool_)
        for e, at in zip(place, index, strict=True):
            kept &= np.broadcast_to(np.asarray(evaluate(e, point)), owner.size) == at[owner]
        mine = np.flatnonzero(kept)
        return self._some(point, mine), owner[mine]

    def _point(self, index: Sequence[Ints]) -> Point:
        return {**self.sizes, **{f"i{k}": e for k, e in enumerate(index)}}

    def _some(self, point: Point, mine: Ints) -> Point:
        return {n: p if n in self.sizes else p[mine] for n, p in point.items()}

    def _extents(self, extents: Sequence[Expr]) -> tuple[int, ...]:
        return tuple(int(np.asarray(evaluate(e, self.sizes))) for e in extents)

    def _inside(self, rule: Find | Send, point: Point, count: int) -> tuple[Point, NDArray[np.bool_]]:
        """The symbols of a rule with values, and where all of these are inside; they are 0 elsewhere."""
        inside = np.ones(count, np.bool_)
        symbols = dict(point)
        for k, (value, extent) in enumerate(zip(rule.values, rule.extents, strict=True)):
            (n,) = self._extents((extent,))
            at = self._operand(value, point, count).astype(np.int64)
            at = np.where(at < 0, at + n, at)
            good = (at >= 0) & (at < n)
            inside &= good
            symbols[f"v{k}"] = np.where(good, at, 0)
        return symbols, inside

    def _operand(self, operand: Operand, point: Point, count: int) -> Array:
        match operand:
            case Access(buffer=name, index=index):
                at = [np.broadcast_to(np.asarray(evaluate(e, point), np.int64), count) for e in index]
                return np.broadcast_to(self.at(name, at), count)
            case Immediate(value=value, dtype=dtype):
                return np.broadcast_to(self.values.literal(value, dtype), count)
            case ScalarValue(name=name):
                return np.broadcast_to(self.values.encode(self.inputs.at(name, np.zeros(1, np.int64)), self.dtypes[name]), count)
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
