"""The witness of a kernel: the math that it computes, as definitions of tensors, and the claims of its statements about the values that they write.

A definition is that of the fusion with views composed away: one element of a tensor from elements of others, at a point of its iteration space, whose
indices are the symbols ``i0``, ``i1``, ... It knows nothing of schedules. Lowering writes it; :class:`taskfuse.kir.operands.Holds` refers to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from taskfuse.dtypes import DType
from taskfuse.ir.combine import Combine
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.scalar import ZERO, Expr, Sym, const
from taskfuse.kir.operands import Access, ChoiceCase, Content, Holds, Immediate, Operand
from taskfuse.location import Location

INDEXED = (Content.VALUE, Content.BODY, Content.TERM, Content.RESCALED)
"""Contents with an index: of an element, or of a point of an iteration space."""


@dataclass(frozen=True, slots=True)
class Apply:
    """``op(operands)``, computed in ``dtype``. An access names a tensor and one of its elements."""

    op: Elementwise
    operands: tuple[Operand, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Pick:
    """The operand of the first case whose condition holds."""

    cases: tuple[ChoiceCase, ...]


@dataclass(frozen=True, slots=True)
class Reduce:
    """``init`` and, for every point of the iteration space that belongs to the element, ``body(terms)``, combined in ``dtype``.

    Attributes:
        rescaled: an axis: at each index along it, in order, the partial sum is multiplied by a factor, the last operand, before the terms at this index.
        ends: axes, and where along each the terms of an element end, over the indices of the element: no point from there on is in the reduction.
        starts: the same of where they start: no point before is.
    """

    combine: Combine
    body: Elementwise
    operands: tuple[Operand, ...]
    init: Immediate
    dtype: DType
    rescaled: int | None = None
    ends: tuple[tuple[int, Expr], ...] = ()
    starts: tuple[tuple[int, Expr], ...] = ()

    @property
    def terms(self) -> tuple[Operand, ...]:
        """The operands of the body."""
        return self.operands if self.rescaled is None else self.operands[:-1]


@dataclass(frozen=True, slots=True)
class Accumulate:
    """The operands up to the element's own index along ``axis``, or, if exclusive, before it, combined in ``dtype``.

    Attributes:
        start: the first index that takes part, over the other indices of the element.
    """

    combine: Combine
    operand: Operand
    axis: int
    dtype: DType
    is_exclusive: bool = False
    start: Expr = ZERO


@dataclass(frozen=True, slots=True)
class Iterate:
    """The last state of ``state = op(state, operands)``, for each index along ``axis`` of the iteration space in order, from ``init`` on, in ``dtype``."""

    op: Elementwise
    operands: tuple[Operand, ...]
    axis: int
    init: Immediate
    dtype: DType


@dataclass(frozen=True, slots=True)
class Find:
    """An element of ``source`` at an index with the symbols ``v0``, ``v1``, ...: the integers ``values``, counted from the end if negative.

    0 where one of them is outside its extent.
    """

    source: Access
    values: tuple[Access, ...]
    extents: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Send:
    """``operand``, sent to the place that the tensor has as a part of a :class:`Whole`, whose elements are combined by ``combine``.

    The place may contain the symbols ``v0``, ``v1``, ...: the integers ``values``, counted from the end if negative. Nothing is sent if one is outside its
    extent.
    """

    combine: Combine
    operand: Operand
    values: tuple[Access, ...]
    extents: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """An assembly of parts: element ``i0, i1, ...`` of a part is the element at its place, if the part's condition holds; sent points for which it holds are
    combined with it.
    """

    parts: tuple[str, ...]
    places: tuple[tuple[Expr, ...], ...]
    conditions: tuple[Expr, ...]


Rule = Apply | Pick | Reduce | Accumulate | Iterate | Find | Send | Whole


def operands_of(rule: Rule) -> tuple[Operand, ...]:
    """The operands of a rule, in order, without a reduction's initial value; an assembly has parts instead."""
    match rule:
        case Apply(operands=operands) | Reduce(operands=operands) | Iterate(operands=operands):
            return operands
        case Pick(cases=cases):
            return tuple(c.operand for c in cases)
        case Accumulate(operand=operand):
            return (operand,)
        case Find(source=source, values=values):
            return (source, *values)
        case Send(operand=operand, values=values):
            return (operand, *values)
        case Whole():
            return ()


def tensors_of(rule: Rule) -> frozenset[str]:
    """The tensors whose elements a rule reads, the parts of an assembly included; not tables that its expressions read."""
    return frozenset(o.buffer for o in operands_of(rule) if isinstance(o, Access)) | frozenset(rule.parts if isinstance(rule, Whole) else ())


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of one tensor.

    Attributes:
        shape: its extents.
        space: extents of its iteration space: those of its shape, except for a reduction or a fold.
        place: the index of the element that a point of the iteration space belongs to.
        location: the user's line that made it, or that replaced its original definition. Not part of the text.
    """

    tensor: str
    dtype: DType
    shape: tuple[Expr, ...]
    space: tuple[Expr, ...]
    place: tuple[Expr, ...]
    rule: Rule
    location: Location | None = field(default=None, compare=False)

    def indexed(self, content: Content) -> tuple[Expr, ...]:
        """The extents that an index of this content ranges over: empty if it has no index."""
        match content:
            case Content.VALUE:
                return self.shape
            case Content.BODY | Content.TERM:
                return self.space
            case Content.RESCALED:
                kept = {e.name for e in self.place if isinstance(e, Sym)}
                axis = self.rule.rescaled if isinstance(self.rule, Reduce) else None
                return tuple(n if f"i{k}" in kept or k == axis else const(1) for k, n in enumerate(self.space))
            case Content.ZERO | Content.START | Content.PART:
                return ()


def wrong_index(holds: Holds, definition: Definition) -> str | None:
    """Why the number of indices of a claim is wrong; ``None`` if it is right."""
    wanted = len(definition.indexed(holds.content))
    if len(holds.index) == wanted:
        return None
    what = "the shape" if holds.content is Content.VALUE else "the iteration space"
    has = f"{what} of '{holds.tensor}' has {wanted} axes" if holds.content in INDEXED else f"'{holds.content.value}' has no index"
    return f"{has}, and '{holds.content.value} {holds.tensor}' has {len(holds.index)} indices"
