"""The elements of a kernel's tensors as terms, at given extents.

Elements that are equal by definition have one term: a copy has that of what it copies, an element of a pad or a concatenation that of its operand, one
of an assembly that of its part, if their dtypes are equal: a converted element is another one. The terms that remain are elements of inputs, and computed
and converted elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from taskfuse.check.flags import all_of
from taskfuse.check.refuted import TooLarge
from taskfuse.check.values.terms import ELEMENT, NOTHING, SCALAR, Bools, Ints, Terms, constant, constants, converted, tensor_tag
from taskfuse.dtypes import DType, converts_once, int64
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import Expr, compile_expr, evaluate
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import ScalarParam
from taskfuse.kir.operands import Access, Immediate, IndexOf, Operand, ScalarValue, dtype_of
from taskfuse.kir.witness import Apply, Definition, Pick, Send, Whole

Symbols = Mapping[str, int | Ints]
MOVES = (ELEMENTWISE["copy"], ELEMENTWISE["cast"])
MOST = 1 << 22
"""The most elements of a tensor, or of an iteration space."""


def value(e: Expr, symbols: Symbols) -> int | Ints:
    """The value of an expression over integers or arrays that broadcast."""
    names = sorted(e.free)
    found: Any = compile_expr(e, names)(*(symbols[n] for n in names))
    return np.asarray(found, np.int64) if np.ndim(found) else int(found)


@dataclass(slots=True, eq=False)
class Tensor:
    """An input or a defined tensor.

    Attributes:
        extents: of its shape; ``space``: of its iteration space.
    """

    name: str
    number: int
    dtype: DType
    extents: tuple[int, ...]
    space: tuple[int, ...]
    definition: Definition | None = None

    @property
    def size(self) -> int:
        return prod(self.extents)

    @property
    def is_sent(self) -> bool:
        """True if its elements are sent to another tensor."""
        return self.definition is not None and isinstance(self.definition.rule, Send)

    @property
    def element(self) -> int:
        """The tag of its elements."""
        return tensor_tag(self.number, ELEMENT)


class Elements:
    """Tensors by name, and the term of each element."""

    def __init__(self, kernel: Kernel, symbols: Symbols) -> None:
        self.symbols = symbols
        self.scalars = {p.name: (k, p.dtype) for k, p in enumerate(p for p in kernel.params if isinstance(p, ScalarParam))}
        self.tensors: dict[str, Tensor] = {}
        for p in kernel.inputs:
            extents = tuple(int(evaluate(e, symbols)) for e in p.shape)
            self.tensors[p.name] = Tensor(p.name, len(self.tensors), p.dtype, extents, extents)
        for d in kernel.definitions:
            extents, space = (tuple(max(0, int(evaluate(e, symbols))) for e in of) for of in (d.shape, d.space))
            self.tensors[d.tensor] = Tensor(d.tensor, len(self.tensors), d.dtype, extents, space, d)
        self.by_number = list(self.tensors.values())
        self._tables: dict[str, Terms | None] = {}

    # -- elements -----------------------------------------------------------------------------------------------------------------------

    def at(self, tensor: Tensor, places: Ints) -> Terms:
        """The terms of elements, at row-major offsets."""
        table = self._table(tensor)
        return Terms(np.full(places.shape, tensor.element, np.int64), places) if table is None else table[places]

    def everything(self, tensor: Tensor) -> Terms:
        """The terms of all elements, flat."""
        return self.at(tensor, np.arange(tensor.size))

    def are_its_own(self, tensor: Tensor) -> bool:
        """True if the elements of a tensor are terms of their own, not elements of others."""
        return self._table(tensor) is None

    def place(self, tensor: Tensor, index: tuple[Expr, ...], at: Symbols, count: int) -> tuple[Ints, Bools]:
        """Row-major offsets of an index at ``count`` points, and a mask of those in the tensor's shape; an offset outside it is 0."""
        return row_major([value(e, at) for e in index], tensor.extents, count)

    def operand(self, operand: Operand, at: Symbols, count: int) -> Terms:
        """The terms of a definition's operand at ``count`` points: the symbols of the iteration space are in ``at``."""
        match operand:
            case Access(buffer=name, index=index):
                tensor = self.tensors[name]
                places, inside = self.place(tensor, index, at, count)
                found = self.at(tensor, places) if tensor.size else Terms.full((count,), NOTHING)
                return found if all_of(inside) else Terms(np.where(inside, found.tag, NOTHING), np.where(inside, found.data, 0))
            case _:
                return self.leaf(operand, at, count)

    def leaf(self, operand: Immediate | ScalarValue | IndexOf, at: Symbols, count: int) -> Terms:
        """The terms of an operand other than an element of a tensor."""
        match operand:
            case Immediate(value=number, dtype=dtype):
                found = constant(number, dtype)
                return Terms.full((count,), int(found.tag[0]), int(found.data[0]))
            case ScalarValue(name=name):
                return Terms.full((count,), SCALAR, self.scalars[name][0])
            case IndexOf(value=e):
                return constants(np.broadcast_to(np.asarray(value(e, at), np.int64), (count,)), int64)

    def operand_dtype(self, operand: Operand) -> DType:
        """The dtype of a definition's operand."""
        return dtype_of(operand, lambda name: self.tensors[name].dtype if isinstance(operand, Access) else self.scalars[name][1])

    def points(self, extents: tuple[int, ...]) -> dict[str, int | Ints]:
        """The symbols of all points of an iteration space, flat."""
        if prod(extents) > MOST:
            raise TooLarge
        grid = np.indices(extents).reshape(len(extents), prod(extents))
        return {**self.symbols, **{f"i{k}": axis for k, axis in enumerate(grid)}}

    def _table(self, tensor: Tensor) -> Terms | None:
        """The terms of all elements of a tensor that are elements of others; ``None`` if they are its own."""
        if tensor.name not in self._tables:
            self._tables[tensor.name] = self._made(tensor)
        return self._tables[tensor.name]

    def _made(self, tensor: Tensor) -> Terms | None:
        if tensor.definition is None:
            return None
        match tensor.definition.rule:
            case Apply(op=op, operands=(operand,), dtype=dtype) if (
                op in MOVES and self.operand_dtype(operand) is tensor.dtype and converts_once(dtype, tensor.dtype, tensor.dtype)
            ):
                return self.operand(operand, self.points(tensor.extents), tensor.size)
            case Apply(op=op, operands=(Immediate() | IndexOf() as operand,), dtype=dtype) if op in MOVES:
                return converted(converted(self.operand(operand, self.points(tensor.extents), tensor.size), dtype), tensor.dtype)
            case Pick() as rule if all(isinstance(c.operand, Immediate | IndexOf) or self.operand_dtype(c.operand) is tensor.dtype for c in rule.cases):
                return converted(self.chosen(tensor, rule), tensor.dtype)
            case Whole() as rule:
                updated = any(self.tensors[part].size for part in rule.parts if self.tensors[part].is_sent)
                return None if updated else self.stored(tensor, rule)
            case _:
                return None

    def chosen(self, tensor: Tensor, rule: Pick) -> Terms:
        """The terms that a choice chooses for its elements, flat, before they are converted to its dtype."""
        found, left = Terms.full((tensor.size,), NOTHING), np.ones(tensor.size, np.bool_)
        points = self.points(tensor.extents)
        for case in rule.cases:
            mine = np.flatnonzero(left & np.asarray(value(case.cond, points), np.bool_))
            there = {name: v if isinstance(v, int) or name in self.symbols else v[mine] for name, v in points.items()}
            found[mine] = self.operand(case.operand, there, len(mine))
            left[mine] = False
        return found

    def stored(self, tensor: Tensor, rule: Whole) -> Terms:
        """The terms that the parts of a tensor give its elements, flat; without parts that are sent to it."""
        found = Terms.full((tensor.size,), NOTHING)
        for name, place, condition in zip(rule.parts, rule.places, rule.conditions, strict=True):
            part = self.tensors[name]
            if part.is_sent:
                continue
            points = self.points(part.extents)
            where, inside = self.place(tensor, place, points, part.size)
            inside = inside & np.asarray(value(condition, points), np.bool_)
            found[where[inside]] = self.everything(part)[inside]
        return found


def row_major(index: list[int | Ints], extents: tuple[int, ...], count: int) -> tuple[Ints, Bools]:
    """Row-major offsets of an index, one value or array per axis, and a mask of those in bounds; an offset outside is 0."""
    shared: int | Ints = 0
    inside = np.ones(count, np.bool_)
    for v, extent in zip(index, extents, strict=True):  # common numbers are broadcast once
        shared = shared * extent + v
        if not isinstance(v, int):
            inside &= (v >= 0) & (v < extent)
        elif not 0 <= v < extent:
            inside[:] = False
    place: Ints = np.full(count, shared, np.int64) if np.ndim(shared) == 0 else np.asarray(shared)
    return (place, inside) if all_of(inside) else (np.where(inside, place, 0), inside)
