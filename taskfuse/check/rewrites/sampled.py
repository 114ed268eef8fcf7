"""Single elements of definitions, each computed from those that it needs, at extents too large for whole tensors.

An element of an input is a hash of the input's name and the index, so inputs are never stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from taskfuse.check.drawn_launches import drawn_tables
from taskfuse.check.refuted import TooLarge
from taskfuse.dtypes import DTypeKind
from taskfuse.ir.modular import WORD, hash_words, mix
from taskfuse.ir.scalar import Expr, Sym, evaluate, sym
from taskfuse.ir.values import Values
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import ScalarParam
from taskfuse.kir.operands import Access
from taskfuse.kir.point_values import Array, Ints, Point, PointValues, existing
from taskfuse.kir.witness import Accumulate, Apply, Definition, Find, Iterate, Pick, Reduce, Send, Whole

ANY = 7
"""Upper bound of integers that are not indices."""


class Inputs:
    """The contents of inputs and scalar arguments of a kernel at some extents: floats in -2..2, integers slightly beyond their axes.

    Args:
        draw: each number has other values; except for 0, integers that are not used as indices take all values of their dtype, so that their sums wrap.

    Attributes:
        extents: these.
    """

    def __init__(self, kernel: Kernel, extents: Mapping[str, int], draw: int = 0) -> None:
        self._draw = draw
        self.extents = extents
        self.tables = drawn_tables(kernel, extents)
        self.dtypes = {p.name: p.dtype for p in (*kernel.inputs, *(p for p in kernel.params if isinstance(p, ScalarParam)))}
        self.shapes = {p.name: tuple(int(evaluate(n, extents)) for n in p.shape) for p in kernel.inputs}
        self._places = {
            o.buffer: int(evaluate(n, extents))
            for d in (*kernel.written, *kernel.definitions)
            if isinstance(d.rule, Find | Send)
            for o, n in zip(d.rule.values, d.rule.extents, strict=True)
        }

    def arguments(self) -> list[Array | float | int]:
        """All of them: whole arrays, then the numbers."""
        arrays: list[Array | float | int] = [self.at(name, np.arange(prod(shape))).reshape(shape) for name, shape in self.shapes.items()]
        return arrays + [self.at(name, np.zeros(1, np.int64))[0].item() for name in self.dtypes if name not in self.shapes]

    def at(self, name: str, places: Ints) -> Array:
        """The elements of an input, or the values of a scalar, at row-major places."""
        dtype = self.dtypes[name]
        if name in self.tables:
            return self.tables[name][places].astype(dtype.numpy)
        words = mix(hash_words(name if not self._draw else f"{name} {self._draw}") ^ places.astype(WORD))
        if dtype.is_bool:
            return np.asarray(words % 2 == 1)
        if dtype.is_float:
            return np.asarray((words >> np.uint64(11)) * 2.0**-51 - 2.0).astype(dtype.numpy)
        if self._draw and name not in self._places:
            return words.astype(dtype.numpy)
        extent = self._places.get(name, ANY)
        least = 0 if dtype.kind is DTypeKind.UINT else max(-extent - 2, int(dtype.min_value))
        most = min(extent + 2, int(dtype.max_value))
        return np.asarray((words % np.uint64(most - least)).astype(np.int64) + least).astype(dtype.numpy)


class SampledElements(PointValues):
    """The elements that one list of definitions computes.

    Attributes:
        left: the number of points that may still be evaluated.
    """

    def __init__(self, kernel: Kernel, definitions: Sequence[Definition], extents: Mapping[str, int], inputs: Inputs, values: Values, left: int) -> None:
        super().__init__({**extents, **inputs.tables}, values, inputs.dtypes | {d.tensor: d.dtype for d in definitions})
        self.definitions = {d.tensor: d for d in definitions}
        self.inputs = inputs
        self.left = left
        self.shapes = inputs.shapes | {d.tensor: self.extents(d.shape) for d in definitions}
        self._known: dict[tuple[str, bytes], Array] = {}

    def elements(self, name: str, index: tuple[Ints, ...], count: int) -> Array:
        """See :meth:`PointValues.elements`.

        Raises:
            TooLarge: they need more points than are left.
        """
        shape = self.shapes[name]
        existing(index, shape)
        places = np.ravel_multi_index(index, shape) if shape and count else np.zeros(count, np.int64)
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

    def scalar(self, name: str) -> Array:
        return self.values.encode(self.inputs.at(name, np.zeros(1, np.int64)), self.dtypes[name])

    def _take(self, points: int) -> None:
        self.left -= points
        if self.left < 0:
            raise TooLarge

    def _computed(self, d: Definition, index: list[Ints], count: int) -> Array:
        v = self.values
        match d.rule:
            case Apply() | Pick() | Find() | Send() as rule:
                return self.at_points(d, rule, self.point(index), count)
            case Reduce() as rule:
                here, owner = self._spread(self.extents(d.space), d.place, index, count)
                return v.cast(self.reduced(rule, here, owner, count), rule.dtype, d.dtype)
            case Accumulate(combine=combine, operand=operand, axis=axis, dtype=dtype):
                place = tuple(sym(f"i{k}") for k in range(len(index)) if k != axis)
                here, owner = self._spread(self.extents(d.space), place, [e for k, e in enumerate(index) if k != axis], count)
                own, along = index[axis][owner], here[f"i{axis}"]
                begun = along >= evaluate(d.rule.start, here)
                mine = np.flatnonzero(begun & (along < own if d.rule.is_exclusive else along <= own))
                terms = v.cast(self.operand(operand, self.some(here, mine), mine.size), self.dtype(operand), dtype)
                return v.cast(self.combined(combine, dtype, v.literal(combine.neutral(dtype), dtype), count, owner[mine], terms), dtype, d.dtype)
            case Iterate() as rule:
                steps = self.extents(d.space)[rule.axis]
                self._take(steps * count)
                at = [np.repeat(e, steps) for e in index]
                at.insert(rule.axis, np.tile(np.arange(steps), count))
                args = [self.operand(o, self.point(at), steps * count).reshape(count, steps) for o in rule.operands]
                return v.cast(self.folded(rule, args, count, steps), rule.dtype, d.dtype)
            case Whole() as rule:
                return self._whole(d, rule, index, count)

    def _whole(self, d: Definition, rule: Whole, index: list[Ints], count: int) -> Array:
        found = np.zeros(count, self.values.storage(d.dtype))
        for part, place, condition in zip(rule.parts, rule.places, rule.conditions, strict=True):
            sent = self.definitions[part].rule
            own = Access(part, tuple(sym(f"i{k}") for k in range(len(self.shapes[part]))))
            if isinstance(sent, Send):
                here, owner = self._spread(self.shapes[part], place, index, count, sent)
                mine = np.flatnonzero(self.holds(condition, here, owner.size))
                here, owner = self.some(here, mine), owner[mine]
                found = self.combined(sent.combine, d.dtype, found, count, owner, self.operand(own, here, owner.size))
                continue
            here, owner = self._spread(self.shapes[part], place, index, count)
            mine = np.flatnonzero(self.holds(condition, here, owner.size))
            found[owner[mine]] = self.operand(own, self.some(here, mine), mine.size)
        return found

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
        point = self.point([fixed[k][owner] if k in fixed else np.tile(own[k], count) for k in range(len(space))])
        inside = np.ones(owner.size, np.bool_)
        for k, n in enumerate(space):
            inside &= (point[f"i{k}"] >= 0) & (point[f"i{k}"] < n)
        point, owner = self.some(point, np.flatnonzero(inside)), owner[inside]
        if sent is not None:
            point, inside = self.inside(sent, point, owner.size)
            point, owner = self.some(point, np.flatnonzero(inside)), owner[inside]
        kept = np.ones(owner.size, np.bool_)
        for e, at in zip(place, index, strict=True):
            kept &= np.broadcast_to(np.asarray(evaluate(e, point)), owner.size) == at[owner]
        return self.some(point, np.flatnonzero(kept)), owner[kept]
