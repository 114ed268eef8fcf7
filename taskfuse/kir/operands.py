"""The parts of kernel IR statements: operands, places of barriers, matrix descriptors, and claims.

The type of a field determines its content (:mod:`taskfuse.kir.fields`); types that several statements use are here, with the bases of all statements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from taskfuse.dtypes import DType, int64
from taskfuse.ir.expr import Literal
from taskfuse.ir.scalar import Expr
from taskfuse.ir.shared_layouts import Major
from taskfuse.location import Location

# -- operands -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Access:
    """An element of a buffer or tensor argument."""

    buffer: str
    index: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Immediate(Literal):
    """A constant of kernel IR."""


@dataclass(frozen=True, slots=True)
class ScalarValue:
    """The value of a scalar argument."""

    name: str


@dataclass(frozen=True, slots=True)
class IndexOf:
    """The value of an integer expression, as int64."""

    value: Expr


Operand = Access | Immediate | ScalarValue | IndexOf


def dtype_of(operand: Operand, named: Callable[[str], DType]) -> DType:
    """The dtype of an operand before conversion. ``named``: the dtype of a buffer, a tensor, or a scalar argument."""
    match operand:
        case Access(buffer=name) | ScalarValue(name=name):
            return named(name)
        case Immediate(dtype=dtype):
            return dtype
        case IndexOf():
            return int64


@dataclass(frozen=True, slots=True)
class BarrierSlot:
    """One mbarrier of an array."""

    name: str
    slot: Expr


@dataclass(frozen=True, slots=True)
class SemaphoreSlot:
    """One counter of an array."""

    name: str
    index: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A wgmma matrix descriptor (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout").

    Attributes:
        base: the first element of the tile (address before the swizzle).
        offset: bytes added to the address of ``base``.
        swizzle: 0, 32, 64 or 128 bytes; applied to the final address bits: 128: [4:7) ^= [7:10), 64: [4:6) ^= [7:9), 32: [4] ^= [7].
        lbo: leading byte offset. K-major, no swizzle: between the two 16-byte core matrices along k; MN-major: between spans along m or n.
            MN-major without swizzle: the two offsets change places.
        sbo: stride byte offset. K-major: between groups of 8 rows; MN-major: between groups of 8 along k.
        major: the contiguous axis.
    """

    base: Access
    offset: Expr
    swizzle: int
    lbo: int
    sbo: int
    major: Major


# -- the witness --------------------------------------------------------------------------------------------------------------------


class Content(Enum):
    """The content of a written element, of the tensor that :class:`Holds` names.

    - VALUE: its element at an index of its shape.
    - ZERO: 0, where an element may not exist; existing elements are written later.
    - START: the initial or the neutral element of its reduction or scan.
    - BODY: one term of its reduction, at a point of its iteration space.
    - TERM: the previous content, combined with the term of a point of its iteration space.
    - PART: the terms that some threads or blocks have combined.
    - RESCALED: the previous content, times the factor of its reduction at an index along the rescaled axis; the index of other reduced axes is 0.
    """

    VALUE = "value"
    ZERO = "zero"
    START = "start"
    BODY = "body"
    TERM = "term"
    PART = "part"
    RESCALED = "rescaled"
    __hash__ = object.__hash__  # of the identity: claims are looked up often


@dataclass(frozen=True, slots=True)
class Holds:
    """The claim of lowering about the values that a statement writes. The proof checks it (docs/proof.md).

    Attributes:
        tensor: a tensor that the kernel's definitions define.
        index: one expression per axis of its shape (VALUE), or of its iteration space (BODY, TERM, RESCALED); empty for the others. The symbols ``tile.0``,
            ``tile.1``, ... number the elements that one instruction moves: along a vector; by rows, columns and terms of a product; by rows of all matrices of
                an
            ldmatrix or stmatrix and elements of a row; of a bulk copy in any order, which its box determines.
        tile: the number of values of each of these symbols.
    """

    tensor: str
    index: tuple[Expr, ...] = ()
    content: Content = Content.VALUE
    tile: tuple[int, ...] = ()


# -- statements ---------------------------------------------------------------------------------------------------------------------
# What a field holds is its type (taskfuse.kir.fields). FORM is the line of a statement: fields in braces, and in brackets what is left out where
# its fields have their defaults (taskfuse.kir.forms). Statements without one have a printer and a parser of their own.


class FieldUse(Enum):
    """How a statement uses the element, or the elements from it on, that a field names."""

    READ = "read"
    WRITTEN = "written"
    UPDATED = "updated"


Written = Annotated[Access, FieldUse.WRITTEN]
Updated = Annotated[Access, FieldUse.UPDATED]
MapName = Annotated[str, "map"]
CursorName = Annotated[str, "cursor"]


@dataclass(frozen=True, slots=True)
class Located:
    """The base of all statements: the user's line that a statement comes from, which errors name (docs/kernel-ir.md, "Locations").

    It is not compared, hashed or part of ``repr``, and printed only on request.
    """

    location: Location | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class WritingStmt(Located):
    """A statement that writes elements, and may claim their content (:class:`Holds`)."""

    holds: Holds | None = field(default=None, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class ChoiceCase:
    """An operand and where it is valid."""

    cond: Expr
    operand: Operand


@dataclass(frozen=True, slots=True)
class GatherValue:
    """A symbol with the value of ``source``, an integer; plus ``extent`` if it is negative."""

    symbol: str
    source: Access
    extent: Expr


class Queue(Enum):
    """An asynchronous FIFO: wgmma (per warpgroup), bulk copies from Shared or copies to Shared (per thread)."""

    WGMMA = "wgmma"
    BULK = "bulk"
    COPY = "copy"
    __hash__ = object.__hash__  # of the identity: queues are looked up often
