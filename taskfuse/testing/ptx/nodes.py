"""A function of PTX: instructions over registers, and the data declared by its module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


class PtxError(Exception):
    """PTX that this reader does not support, or that does what it must not; ``line`` counts from 1."""

    def __init__(self, line: int, what: str) -> None:
        self.line = line
        self.what = what
        super().__init__(f"PTX line {line}: {what}")


@dataclass(frozen=True, slots=True)
class Register:
    """A register; predicates and special registers (``%tid.x``) are registers, too.

    Attributes:
        bits: its width; 64 if no declaration says it.
    """

    name: str
    bits: int = field(default=64, compare=False)


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer constant."""

    value: int


@dataclass(frozen=True, slots=True)
class Float:
    """A floating-point constant, by its bits in hexadecimal; never computed with."""

    bits: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name that is not a register: of a parameter, of data, of a function; ``_``: nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class PtxAddress:
    """``[base + offset]``; ``[base, {coordinates}]`` of a tensor map."""

    base: Operand
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, ...}``."""

    parts: tuple[Operand, ...]


Operand = Register | Integer | Float | Symbol | PtxAddress | Vector


@dataclass(frozen=True, slots=True)
class PtxInstruction:
    """One instruction.

    Attributes:
        guard: the predicate under which it is executed; ``negated``: under its negation.
        opcode: with all its modifiers, in parts: ``("add", "s32")``.
        used: for a vector load, a bit for each byte that is used; the others are arbitrary (``.pragma "used_bytes_mask"``).
    """

    line: int
    opcode: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None = None
    negated: bool = False
    used: int | None = None

    def __str__(self) -> str:
        return f"line {self.line}: {'.'.join(self.opcode)}"


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of the function: its size and alignment in bytes."""

    name: str
    size: int
    align: int


@dataclass(frozen=True, slots=True)
class Data:
    """An array that the module or a function declares.

    Attributes:
        size: bytes of an element.
        values: the elements of an array that has some, floating-point numbers by their bits.
        count: the number of elements; 0: the launch decides it.
    """

    space: str
    size: int
    values: tuple[int, ...] | None
    count: int = 1

    @property
    def bytes(self) -> int:
        """Bytes of the whole array."""
        return self.size * self.count


@dataclass(frozen=True, slots=True)
class PtxFunction:
    """A kernel, or a device function that it calls.

    Attributes:
        params: the parameters; of a device function, its results come first.
        labels: the position in ``code`` at which each label stands.
        limits: directives of the launch: ``maxntid``, ``minnctapersm``.
        data: arrays of the module and of the function.
        callees: the device functions that are called.
    """

    name: str
    params: tuple[Param, ...]
    code: tuple[PtxInstruction, ...]
    labels: Mapping[str, int]
    limits: Mapping[str, tuple[int, ...]]
    data: Mapping[str, Data]
    target: str
    callees: Mapping[str, PtxFunction]


SIZES = {f"{kind}{bits}": bits // 8 for kind in "busf" for bits in (8, 16, 32, 64)} | {"b128": 16}
"""Bytes of the types of PTX."""
