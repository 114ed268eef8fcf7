"""The syntax of the fusion text: its words, and its lines as records (docs/fusion-text.md has the grammar).

``printer`` writes the text, ``grammar`` parses it into these records, ``parser`` makes the fusion from them. The parser resolves names,
so records hold names, with the token for errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from taskfuse.dtypes import DType
from taskfuse.ir.atoms import Atom
from taskfuse.ir.axes import Axis, AxisKind, Merge, Rasterize, Resize, Split, Swizzle, Transform
from taskfuse.ir.combine import Combine
from taskfuse.ir.dims import Dim
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.expr import IndexValue, Literal
from taskfuse.ir.scalar import ZERO, Expr, Token, ceildiv
from taskfuse.ir.tables import TableRange
from taskfuse.ir.types import MemoryType, ParallelType


class Keyword(Enum):
    """The words that start a line."""

    FUSION = "FUSION"
    DIM = "DIM"
    SCALAR = "SCALAR"
    INTEGER = "INTEGER"
    INPUT = "INPUT"
    OUTPUT = "OUTPUT"
    ORDER = "ORDER"
    RESIDENT = "RESIDENT"
    SCHEDULE = "SCHEDULE"
    TASK = "TASK"
    GROUP = "GROUP"


class ValueWord(Enum):
    """The words that start a definition other than a call of an elementwise function."""

    SELECT = "select"
    REDUCE = "reduce"
    VIEW = "view"
    ASSEMBLE = "assemble"
    GATHER = "gather"
    UPDATE = "update"
    SCAN = "scan"
    FOLD = "fold"


class ClauseWord(Enum):
    """The words that start a clause of a SCHEDULE line other than a transform."""

    FOREIGN = "foreign"
    LOGICAL = "logical"
    LOOP = "loop"
    BIND = "bind"
    MEMORY = "memory"
    ALLOCATION = "allocation"
    STAGES = "stages"
    RING = "ring"
    ATOM = "atom"
    IN_FLIGHT = "in_flight"
    PIPELINE_STAGE = "pipeline_stage"
    TURNS = "turns"


class TransformWord(Enum):
    """The words that start a transform."""

    SPLIT = "split"
    MERGE = "merge"
    SWIZZLE = "swizzle"
    RESIZE = "resize"
    RASTERIZE = "rasterize"


CONSTANTS: dict[str, bool | float] = {"true": True, "false": False, "inf": float("inf"), "nan": float("nan")}
INDEX = "index"
STRIDES = "strides"
EXCLUSIVE = "exclusive"
RESCALED = "rescaled"
SINCE = "since"
UNTIL = "until"
TABLE = "table"
INTO = "into"
RESERVED = frozenset({*(k.value for k in Keyword), *CONSTANTS, INDEX})
AXIS_KINDS = {"iteration": AxisKind.ITERATION, "reduction": AxisKind.REDUCTION, "foreign": AxisKind.FOREIGN}
KIND_WORDS = {kind: word for word, kind in AXIS_KINDS.items()}


@dataclass(frozen=True, slots=True)
class Name:
    """A name, unquoted; ``token`` is its place."""

    text: str
    token: Token


@dataclass(frozen=True, slots=True)
class AxisName:
    """``tv7.a1``: an axis of a tensor; without a tensor, an axis that belongs to no tensor any more."""

    tensor: Name | None
    axis: Name


@dataclass(frozen=True, slots=True)
class AxisText:
    """An axis that no transform makes: ``extent [kind [of source]]``."""

    extent: Expr
    kind: AxisKind
    source: AxisName | None


@dataclass(frozen=True, slots=True)
class OutputText:
    """An axis that a transform makes; ``made`` if it is not what :func:`default_outputs` says."""

    name: Name
    made: tuple[Expr, AxisKind] | None


@dataclass(frozen=True, slots=True)
class TransformText:
    """A transform. ``arguments``: see :func:`arguments_of`."""

    word: TransformWord
    token: Token
    inputs: tuple[Name, ...]
    arguments: tuple[Expr, ...]
    inner: bool
    outputs: tuple[OutputText, ...]


@dataclass(frozen=True, slots=True)
class BoundAxis:
    """``a3:TIDx``."""

    name: Name
    ptype: ParallelType


@dataclass(slots=True)
class ScheduleText:
    """A SCHEDULE line; ``None``: the clause is absent."""

    tensor: Name
    foreign: list[tuple[Name, AxisText]]
    transforms: list[TransformText]
    logical: tuple[Name, ...] | None = None
    loop: tuple[BoundAxis, ...] | None = None
    inline: int = 0
    bind: tuple[BoundAxis, ...] = ()
    memory: MemoryType | None = None
    allocation: tuple[BoundAxis, ...] | None = None
    stages: int = 1
    ring: str = ""
    atom: Atom | None = None
    atom_axes: tuple[Name, ...] = ()
    in_flight: int = 0
    pipeline_stage: int = 0
    turns: ParallelType | None = None


@dataclass(frozen=True, slots=True)
class ReadText:
    """A tensor at an index (``None``: each axis at its own iteration symbol), or a run-time scalar."""

    name: Name
    index: tuple[Expr, ...] | None
    valid: Expr


OperandText = ReadText | Literal | IndexValue


@dataclass(frozen=True, slots=True)
class PointwiseText:
    """``op(operands...)``."""

    op: Elementwise
    operands: tuple[OperandText, ...]


@dataclass(frozen=True, slots=True)
class FirstValidText:
    """``select label(operands...)``."""

    label: str
    operands: tuple[OperandText, ...]


@dataclass(frozen=True, slots=True)
class ReductionText:
    """``reduce combine of body(operands...) [over i1: T, ...] init literal [rescaled i1 by operand]
    [since i1 >= e, ...] [until i1 < e, ...]``; ``over``, ``starts``, ``ends``: position, extent or bound, and where it stands."""

    combine: Combine
    body: Elementwise
    operands: tuple[OperandText, ...]
    over: tuple[tuple[int, Expr, Token], ...]
    init: Literal
    rescaled: tuple[int, OperandText, Token] | None = None
    ends: tuple[tuple[int, Expr, Token], ...] = ()
    starts: tuple[tuple[int, Expr, Token], ...] = ()


@dataclass(frozen=True, slots=True)
class ViewText:
    """``view label(read)``."""

    label: str
    operand: ReadText


@dataclass(frozen=True, slots=True)
class AssembleText:
    """``assemble(part -> [place], ...)``."""

    parts: tuple[ReadText, ...]
    places: tuple[tuple[Expr, ...], ...]


@dataclass(frozen=True, slots=True)
class GatherText:
    """``gather(table, v0 = value of extent, ...)``."""

    table: ReadText
    values: tuple[ReadText, ...]
    extents: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class UpdateText:
    """``update combine(target, operand, v0 = value of extent, ...)``."""

    combine: Combine
    target: ReadText
    operand: OperandText
    values: tuple[ReadText, ...]
    extents: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class ScanText:
    """``scan combine of operand along i1 [exclusive] [since e]``."""

    combine: Combine
    operand: OperandText
    axis: int
    is_exclusive: bool
    token: Token
    start: Expr = ZERO


@dataclass(frozen=True, slots=True)
class FoldText:
    """``fold step of (operands...) along i1[: T] init literal``; ``over``: position, extent, and where it stands."""

    step: Elementwise
    operands: tuple[OperandText, ...]
    axis: int
    over: tuple[tuple[int, Expr, Token], ...]
    init: Literal
    token: Token


ValueText = PointwiseText | FirstValidText | ReductionText | ViewText | AssembleText | GatherText | UpdateText | ScanText | FoldText


@dataclass(frozen=True, slots=True)
class TensorText:
    """A tensor; ``value`` is ``None`` for an input, ``root`` for a root domain that follows from the shape."""

    name: Name
    dtype: DType
    shape: tuple[Expr, ...]
    root: tuple[AxisText, ...] | None = None
    strides: tuple[Expr, ...] | None = None
    table: TableRange | None = None
    value: ValueText | None = None
    origin: Name | None = None
    owner: Name | None = None


@dataclass(frozen=True, slots=True)
class DimText:
    """Facts about a symbol."""

    name: Name
    dim: Dim


@dataclass(frozen=True, slots=True)
class ScalarText:
    """A run-time scalar."""

    name: Name
    dtype: DType


@dataclass(frozen=True, slots=True)
class TaskText:
    """A task and the tensors it claims."""

    name: Name
    tensors: tuple[Name, ...]
    budget: int | None


@dataclass(frozen=True, slots=True)
class GroupText:
    """A group, its members, and how it is parallelized."""

    name: Name
    members: tuple[Name, ...]
    ptype: ParallelType | None
    pingpong: AxisName | None
    budget: int | None


@dataclass(frozen=True, slots=True)
class ResultText:
    """A result of a call."""

    tensor: Name
    strides: tuple[Expr, ...] | None
    into: Name | None


@dataclass(slots=True)
class FusionText:
    """A whole text; each list in the order of its lines."""

    name: str
    dims: list[DimText]
    scalars: list[ScalarText]
    integers: list[Name]
    tensors: list[TensorText]
    outputs: list[ResultText]
    order: tuple[Token, tuple[Name, ...]] | None
    resident: tuple[Token, int] | None
    schedules: list[ScheduleText]
    nodes: list[TaskText | GroupText]


# -- transforms -------------------------------------------------------------------------------------------------------------------------


def arguments_of(t: Transform) -> tuple[TransformWord, tuple[Expr, ...], bool]:
    """The text of a transform: its word, its arguments other than axes, and false for a split by an outer factor.

    The arguments are the factor of a split, ``left`` and ``right`` of a resize, the maps of a rasterization.
    """
    match t:
        case Split(source=source, outer=outer, inner=inner):
            if outer.extent is not ceildiv(source.extent, inner.extent) and inner.extent is ceildiv(source.extent, outer.extent):
                return TransformWord.SPLIT, (outer.extent,), False
            return TransformWord.SPLIT, (inner.extent,), True
        case Merge():
            return TransformWord.MERGE, (), True
        case Swizzle():
            return TransformWord.SWIZZLE, (), True
        case Resize():
            return TransformWord.RESIZE, (t.left, t.right), True
        case Rasterize():
            return TransformWord.RASTERIZE, t.maps, True


def default_outputs(word: TransformWord, inputs: Sequence[Axis], arguments: Sequence[Expr], inner: bool) -> tuple[tuple[Expr, AxisKind], ...]:
    """Extent and kind of the axes that a transform makes, unless the text overrides them."""
    kind = next((a.kind for a in inputs if not a.is_foreign), AxisKind.FOREIGN)
    match word:
        case TransformWord.SPLIT:
            factor, rest = arguments[0], ceildiv(inputs[0].extent, arguments[0])
            return ((rest, kind), (factor, kind)) if inner else ((factor, kind), (rest, kind))
        case TransformWord.MERGE | TransformWord.RASTERIZE:
            extent = inputs[0].extent
            for a in inputs[1:]:
                extent = extent * a.extent
            return ((extent, kind),)
        case TransformWord.SWIZZLE:
            return tuple((a.extent, a.kind) for a in inputs)
        case TransformWord.RESIZE:
            return ((inputs[0].extent + arguments[0] + arguments[1], kind),)


def make_transform(word: TransformWord, inputs: tuple[Axis, ...], arguments: tuple[Expr, ...], outputs: tuple[Axis, ...]) -> Transform:
    """The transform between given axes."""
    match word:
        case TransformWord.SPLIT:
            return Split(*inputs, *outputs)
        case TransformWord.MERGE:
            return Merge(*inputs, *outputs)
        case TransformWord.SWIZZLE:
            return Swizzle(*inputs, *outputs)
        case TransformWord.RESIZE:
            return Resize(inputs[0], arguments[0], arguments[1], outputs[0])
        case TransformWord.RASTERIZE:
            return Rasterize(inputs, outputs[0], arguments)
