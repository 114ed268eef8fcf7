"""Math expressions: how one tensor is computed from others.

Every expression states its **op map**: its iteration space is the root domain of its output (result axes and, for a reduction, reduction
axes), and each operand says which element of its tensor an iteration reads, as integer expressions over the iteration symbols
``i0, i1, ...`` (one per root axis, in order). Lowering uses these maps and never asks which op it is. Only the maps of :class:`Gather` and :class:`Update`
depend on
data: they also contain symbols ``v0, v1, ...`` for values that they read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from taskfuse.dtypes import DType, int64
from taskfuse.ir.combine import Combine
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.scalar import TRUE, ZERO, Expr, elements_of, substitute
from taskfuse.location import Location

if TYPE_CHECKING:
    from taskfuse.ir.axes import Axis
    from taskfuse.ir.tensor import Scalar, TensorView


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """The element of ``tensor`` at ``index`` (one expression per logical axis).

    ``valid`` says for which iterations that element exists; elsewhere it is not read (only in :class:`FirstValid`).
    """

    tensor: TensorView
    index: tuple[Expr, ...]
    valid: Expr = TRUE


def is_same_number(a: float, b: float) -> bool:
    """True for equal values: NaN equals NaN, and 0.0 differs from -0.0."""
    return (a == b and (a != 0 or math.copysign(1, a) == math.copysign(1, b))) or (a != a and b != b)


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant. Equality treats NaN as equal to NaN, and ``-0.0`` as different from ``0.0``."""

    value: int | float | bool
    dtype: DType

    def __post_init__(self) -> None:
        if self.value != self.value:
            object.__setattr__(self, "value", math.nan)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and type(other) is type(self) and self.dtype is other.dtype and is_same_number(self.value, other.value)

    def __hash__(self) -> int:
        return hash((self.value, self.dtype))

    @staticmethod
    def zero(dtype: DType) -> Literal:
        """The neutral value of a sum of a dtype: False for bool."""
        return Literal(False if dtype.is_bool else 0.0 if dtype.is_float else 0, dtype)


@dataclass(frozen=True, slots=True, eq=False)
class ScalarRead:
    """A run-time scalar argument of the kernel."""

    scalar: Scalar


@dataclass(frozen=True, slots=True)
class IndexValue:
    """The value of an integer expression over the iteration symbols, as int64 (``iota``)."""

    index: Expr


Leaf = Literal | ScalarRead | IndexValue
"""An operand that reads no tensor."""
Operand = Read | Leaf


@dataclass(frozen=True, slots=True, eq=False)
class Pointwise:
    """``output[i...] = op(operands...)``."""

    output: TensorView
    op: Elementwise
    operands: tuple[Operand, ...]
    location: Location | None = None


@dataclass(frozen=True, slots=True, eq=False)
class FirstValid:
    """``output[i...]`` = the first operand that is valid at ``i...`` (``cat`` in gather form, ``pad``); ``label`` is its printed name."""

    output: TensorView
    label: str
    operands: tuple[Operand, ...]
    location: Location | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """``output[result axes] = combine over reduction axes of body(operands...)``, computed in the output's dtype, starting at ``init``.

    A sum that starts at -0.0 starts at 0.0, the neutral element: only then may other threads join partial results, and terms of 0.0 be left out.

    A sum from 0 may be rescaled along one of its axes: for each index of it, in order, what has been summed up is multiplied by a factor before the terms at
    that index are added. The factor is the last operand, at the element and that index.

    Terms may start behind the first index of a reduction axis and end before its extent, where integers say that depend on the element alone. What comes before
    and what follows is not part of the reduction.

    Attributes:
        rescaled: position of that axis in the iteration space; ``None``: the sum is not rescaled.
        ends: positions of reduction axes, and where along each the terms of an element end, over the symbols of the other axes; in rising order.
        starts: the same of the first index with a term.
    """

    output: TensorView
    combine: Combine
    body: Elementwise
    operands: tuple[Operand, ...]
    init: Literal
    location: Location | None = None
    rescaled: int | None = None
    ends: tuple[tuple[int, Expr], ...] = ()
    starts: tuple[tuple[int, Expr], ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all points of the iteration space are part of it: terms neither start late nor end early."""
        return not self.ends and not self.starts

    @property
    def terms(self) -> tuple[Operand, ...]:
        """The operands of the body."""
        return self.operands if self.rescaled is None else self.operands[:-1]

    @property
    def starts_neutral(self) -> bool:
        """Whether it starts at the neutral element, with which it may start any number of times."""
        return self.init.value == self.combine.neutral(self.output.dtype.compute)

    def __post_init__(self) -> None:
        neutral = self.combine.neutral(self.output.dtype.compute)
        if neutral == 0 and self.init.value == 0 and not is_same_number(self.init.value, abs(self.init.value)):
            object.__setattr__(self, "init", replace(self.init, value=abs(self.init.value)))


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """``output[i...] = operand``: a map, no storage and no code (unless the output has storage of its own: then a copy)."""

    output: TensorView
    label: str
    operand: Read
    location: Location | None = None

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True, eq=False)
class Assemble:
    """The scatter form of ``cat``: each operand tensor *is* a slice of the output's storage; nothing is executed.

    Parts that are an :class:`Update` come last, after one part that is the whole output: each of their points is combined with the element at its place,
    which contains the symbols of its values, or with none if a value is outside or the point is not valid. Several may have one place. All other parts have
    different places.

    Attributes:
        parts: reads of the parts, each at its own index symbols ``i0...``; elements that are not valid there belong to no element of the output.
        places: per part, the output's index from the part's index symbols.
    """

    output: TensorView
    parts: tuple[Read, ...]
    places: tuple[tuple[Expr, ...], ...]
    location: Location | None = None

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.parts


@dataclass(frozen=True, slots=True, eq=False)
class Gather:
    """``output[i...]`` = the element of a table at an index that contains values (``take``).

    A negative value v counts from the end: it means v + n for its extent n. If a value is outside [-n, n), there is no element,
    and the output is 0.

    Attributes:
        operands: the table, at an index over ``i0, i1, ...`` and ``v0, v1, ...``; then the integer that each ``v`` is.
        extents: per value, the extent that it indexes: the symbol is in ``[0, extent)``.
    """

    output: TensorView
    operands: tuple[Operand, ...]
    extents: tuple[Expr, ...]
    location: Location | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """``output[i...]`` = a value, sent to an element of another tensor that data selects: a part of an :class:`Assemble` (``scatter_add``).

    Its code combines the value atomically with that element in place. Values have the meaning of those of a :class:`Gather`;
    if one is outside, there is no such element, and nothing is updated.

    Attributes:
        operands: the element that it is combined with, of the first part of the assembly, over ``i0, i1, ...`` and ``v0, v1, ...``; the value; then the
            integer that each ``v`` is.
        extents: per ``v``, the extent that it indexes.
    """

    output: TensorView
    combine: Combine
    operands: tuple[Operand, ...]
    extents: tuple[Expr, ...]
    location: Location | None = None

    @property
    def target(self) -> Read:
        """The element that it is combined with."""
        first = self.operands[0]
        assert isinstance(first, Read)
        return first


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """``output[..., i, ...] = combine over all j <= i of operand[..., j, ...]``, computed in the output's dtype.

    Attributes:
        operands: the one operand.
        axis: position of i in the iteration space.
        is_exclusive: over all j < i; the first is the neutral element.
        start: over no j before it, an integer over the symbols of the other axes.
    """

    output: TensorView
    combine: Combine
    operands: tuple[Operand, ...]
    axis: int
    location: Location | None = None
    is_exclusive: bool = False
    start: Expr = ZERO


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """``output[result axes]`` = the last state of ``s = step(s, operands...)`` for each index of one axis, in order, from ``init`` on; in the output's dtype.

    The steps run along one axis, the only reduced one. No two of them may be exchanged: threads divide it only
    after :mod:`taskfuse.schedule.split_fold` has composed them.

    Attributes:
        step: its first operand is the state.
        operands: the others.
        axis: position of the axis in the iteration space.
    """

    output: TensorView
    step: Elementwise
    operands: tuple[Operand, ...]
    axis: int
    init: Literal
    location: Location | None = None


MathExpr = Pointwise | FirstValid | Reduction | View | Assemble | Gather | Update | Scan | Fold
Finder = Gather | Update
"""Expressions whose maps contain symbols of values."""


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """The first definition of a tensor.

    Attributes:
        root, logical, dtype: those of the tensor at that time.
    """

    expr: MathExpr
    root: tuple[Axis, ...]
    logical: tuple[Axis, ...]
    dtype: DType


def misplaced_factor(expr: Reduction) -> str | None:
    """Why a sum cannot be rescaled as declared; ``None`` if it can."""
    root, factor = expr.output.root, expr.operands[-1]
    if expr.combine.name != "add" or expr.init.value != 0:
        return "it is not a sum that starts at 0"
    if expr.rescaled not in range(len(root)) or not root[expr.rescaled or 0].is_reduction:
        return "that is not one of its reduction axes"
    index = {name for e in factor.index for name in e.free} if isinstance(factor, Read) else set[str]()
    others = (k for k, a in enumerate(root) if a.is_reduction and k != expr.rescaled)
    if not isinstance(factor, Read) or factor.valid is not TRUE or any(f"i{k}" in index for k in others):
        return "its factor is not an element of a tensor, the same for all terms at one index of that axis"
    return None


def misplaced_bound(expr: Reduction) -> str | None:
    """Why the terms of a reduction cannot start and end as declared; ``None`` if they can."""
    root = expr.output.root
    for bounds in (expr.starts, expr.ends):
        positions = [k for k, _ in bounds]
        if positions != sorted(set(positions)) or not all(k in range(len(root)) and root[k].is_reduction for k in positions):
            return "these are not its reduction axes, in order"
    reduced = {f"i{k}" for k, a in enumerate(root) if a.is_reduction}
    if any(not reduced.isdisjoint(e.free) or elements_of(e) for _, e in (*expr.starts, *expr.ends)):
        return "a bound is not a function of the element alone"
    if expr.output.logical != tuple(a for a in root if not a.is_reduction):
        return "its result has other axes than those that are left"
    return None


def reads(expr: MathExpr) -> tuple[Read, ...]:
    """The operands of ``expr`` that are tensors."""
    return tuple([o for o in expr.operands if isinstance(o, Read)])


def operand_dtype(operand: Operand) -> DType:
    """The dtype of an operand's values."""
    match operand:
        case Read():
            return operand.tensor.dtype
        case Literal():
            return operand.dtype
        case ScalarRead():
            return operand.scalar.dtype
        case IndexValue():
            return int64


def op_text(expr: MathExpr) -> str:
    """A short description of ``expr``."""
    match expr:
        case Pointwise():
            return expr.op.name
        case Reduction():
            return f"reduce {expr.combine.name}" if len(expr.operands) == 1 else f"reduce {expr.combine.name} of {expr.body.name}"
        case FirstValid() | View():
            return expr.label
        case Assemble():
            return "assemble"
        case Gather():
            return "gather"
        case Update():
            return f"update {expr.combine.name}"
        case Scan():
            return f"scan {expr.combine.name}"
        case Fold():
            return f"fold {expr.step.name}"


def is_copy(expr: MathExpr) -> bool:
    """True if ``expr`` copies elements of one tensor."""
    match expr:
        case View():
            return True
        case Pointwise(op=op, operands=(Read(),)):
            return op is ELEMENTWISE["copy"]
        case _:
            return False


def padded_read(expr: MathExpr | None) -> Read | None:
    """The element that a copy takes where it exists, if it copies elements of one tensor, and is 0 where they do not exist."""
    match expr:
        case FirstValid(operands=(Read() as read, Literal(value=value))) if is_same_number(value, 0):
            return read
        case _:
            return None


def map_exprs(expr: MathExpr) -> Iterator[Expr]:
    """The integer expressions in the op map of ``expr``."""
    for operand in expr.operands:
        match operand:
            case Read():
                yield from operand.index
                yield operand.valid
            case IndexValue():
                yield operand.index
            case Literal() | ScalarRead():
                pass
    match expr:
        case Assemble():
            for place in expr.places:
                yield from place
        case Gather() | Update():
            yield from expr.extents
        case Reduction():
            yield from (bound for _, bound in (*expr.starts, *expr.ends))
        case Scan():
            yield expr.start
        case _:
            pass


def at_point(operand: Operand, point: Mapping[str, Expr]) -> Operand:
    """An operand at another point of the iteration space: its element, its condition, and the value of an index.

    Args:
        point: replacements of the iteration symbols, by name.
    """
    match operand:
        case Read():
            return replace(operand, index=tuple(substitute(e, point) for e in operand.index), valid=substitute(operand.valid, point))
        case IndexValue():
            return IndexValue(substitute(operand.index, point))
        case Literal() | ScalarRead():
            return operand


def _same_leaf(leaf: Leaf) -> Leaf:
    return leaf


def _same_index(index: Expr) -> Expr:
    return index


def rebuilt(
    expr: MathExpr,
    read: Callable[[Read], Read],
    *,
    leaf: Callable[[Leaf], Leaf] = _same_leaf,
    index: Callable[[Expr], Expr] = _same_index,
    output: TensorView | None = None,
) -> MathExpr:
    """``expr`` with parts replaced.

    Args:
        read: replaces a read.
        leaf: replaces an operand that reads no tensor.
        index: replaces the integer expressions outside the operands: places in an assembly, extents of a gather's values, starts and
            ends of terms.
        output: the new output; ``None``: the same.
    """

    def operand(o: Operand) -> Operand:
        return read(o) if isinstance(o, Read) else leaf(o)

    made = expr.output if output is None else output
    match expr:
        case Pointwise():  # the most frequent: `replace` takes as long as all the rest
            return Pointwise(made, expr.op, tuple([read(o) if isinstance(o, Read) else leaf(o) for o in expr.operands]), expr.location)
        case View():
            return View(made, expr.label, read(expr.operand), expr.location)
        case Assemble():
            return replace(expr, output=made, parts=tuple(map(read, expr.parts)), places=tuple(tuple(map(index, place)) for place in expr.places))
        case Gather() | Update():
            return replace(expr, output=made, operands=tuple(map(operand, expr.operands)), extents=tuple(map(index, expr.extents)))
        case Reduction():
            starts, ends = (tuple((k, index(e)) for k, e in bounds) for bounds in (expr.starts, expr.ends))
            return replace(expr, output=made, operands=tuple(map(operand, expr.operands)), starts=starts, ends=ends)
        case Scan():
            return replace(expr, output=made, operands=tuple(map(operand, expr.operands)), start=index(expr.start))
        case FirstValid() | Fold():
            return replace(expr, output=made, operands=tuple(map(operand, expr.operands)))
