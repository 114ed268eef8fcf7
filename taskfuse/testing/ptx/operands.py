"""The effect of one instruction, and its operands as Python: unsigned integers in the width of their type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from taskfuse.testing.ptx.events import Kind
from taskfuse.testing.ptx.nodes import Float, Integer, Operand, PtxAddress, PtxError, PtxInstruction, Register, Symbol, Vector


@dataclass(frozen=True, slots=True)
class FloatMeaning:
    """A function of bits, applied to operands, which are Python expressions."""

    function: Callable[..., int]
    operands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PtxComputation:
    """``out`` = a Python expression over registers.

    Attributes:
        value: the expression; ``None``: it is no integer arithmetic.
        meaning: in its place, of floating point; ``None``: it is not known.
        reads: the registers of either.
    """

    out: Register
    value: str | None
    reads: frozenset[str]
    meaning: FloatMeaning | None = None


@dataclass(frozen=True, slots=True)
class PtxAccess:
    """A load or a store of ``size`` bytes.

    Attributes:
        outs: the results of a load.
        reads: the registers of the address.
        constant: of bytes that nothing writes during the launch.
        values: what is stored, as Python expressions.
        places: which elements the results are.
        element: bytes of an element.
        signed: the loaded elements are extended by their signs.
    """

    store: bool
    space: str
    address: str
    size: int
    outs: tuple[Register, ...]
    reads: frozenset[str]
    constant: bool = False
    values: tuple[str, ...] = ()
    places: tuple[int, ...] = ()
    element: int = 1
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Happening:
    """An event.

    Attributes:
        operands: integers, as Python expressions; ``reads``: their registers.
        out: the register of its result that decides what a thread does; ``lost``: those of other results.
        data: values that it passes on, as Python expressions.
    """

    kind: Kind
    operands: tuple[str, ...]
    out: Register | None
    lost: tuple[Register, ...]
    reads: frozenset[str]
    data: tuple[str, ...] = ()

    @property
    def results(self) -> tuple[Register, ...]:
        """All registers that it writes."""
        return (*((self.out,) if self.out else ()), *self.lost)


Operation = PtxComputation | PtxAccess | Happening


@cache
def identifier(r: Register) -> str:
    """The name of a register in Python."""
    return "r_" + re.sub(r"\W", "_", r.name)


def registers(operand: Operand) -> Iterator[Register]:
    """The registers in an operand."""
    match operand:
        case Register():
            yield operand
        case PtxAddress():
            yield from registers(operand.base)
            for c in operand.coordinates:
                yield from registers(c)
        case Vector():
            for part in operand.parts:
                yield from registers(part)
        case Integer() | Float() | Symbol():
            return


def read_by(*texts: str) -> frozenset[str]:
    """The registers in Python expressions."""
    return frozenset(name for text in texts for name in re.findall(r"\br_\w+", text))


def names(*operands: Operand) -> frozenset[str]:
    """The names of all registers in operands."""
    return frozenset(identifier(r) for o in operands for r in registers(o))


@dataclass(frozen=True, slots=True)
class OperandReader:
    """Reads the operands of one instruction as Python."""

    i: PtxInstruction

    def error(self, what: str) -> PtxError:
        return PtxError(self.i.line, f"{'.'.join(self.i.opcode)}: {what}")

    def value(self, operand: Operand, bits: int = 64) -> str:
        match operand:
            case Register():
                return identifier(operand)
            case Integer(value):
                return str(value & (1 << bits) - 1)
            case Symbol("_"):
                return "0"
            case Symbol(name):
                return f"at[{name!r}]"
            case Float(text):
                return str(int(text[2:], 16))
            case PtxAddress() | Vector():
                raise self.error("a plain operand is expected")

    def signed(self, operand: Operand, bits: int) -> str:
        if isinstance(operand, Integer):
            return f"({((operand.value + (1 << bits - 1)) & (1 << bits) - 1) - (1 << bits - 1)})"
        half = 1 << bits - 1
        return f"(({self.value(operand)} ^ {half}) - {half})"

    def address(self, operand: Operand) -> str:
        if not isinstance(operand, PtxAddress):
            raise self.error("an address is expected")
        base = self.value(operand.base)
        if not operand.offset:
            return base
        if isinstance(operand.base, Register) and operand.base.bits == 32:
            return f"({base} + {operand.offset} & {0xFFFFFFFF})"
        return f"{base} + {operand.offset}"

    def register(self, operand: Operand) -> Register:
        if not isinstance(operand, Register):
            raise self.error("a register is expected")
        return operand

    def values(self, operand: Operand, bits: int = 64) -> tuple[str, ...]:
        """The parts of a vector, or the one operand."""
        return tuple(self.value(part, bits) for part in (operand.parts if isinstance(operand, Vector) else (operand,)))

    def outs(self, operand: Operand) -> tuple[Register, ...]:
        return tuple(registers(operand))
