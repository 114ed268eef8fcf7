"""Which registers of which lanes an atom takes an operand from, and puts its result into, as index expressions."""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.ir.atoms import Instruction
from taskfuse.ir.axes import Axis
from taskfuse.ir.expr import Read
from taskfuse.ir.scalar import Expr, const, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.kir.fragments import Digit, Fragment, mma_a, mma_accumulator, mma_b, wgmma_a, wgmma_accumulator
from taskfuse.lowering.domains import ancestors

ATOM = "v"
_HALF_WORD = 2


def atom_symbols(tv: TensorView) -> dict[Axis, str]:
    """The symbols of the axes that an atom covers: not loops, but points of one instruction."""
    return {a: ATOM if k == 0 else f"{ATOM}{k}" for k, a in enumerate(tv.schedule.atom_axes)}


@dataclass(frozen=True, slots=True)
class Held:
    """A tile in registers.

    Attributes:
        fragment: where its elements lie.
        row, column: the symbols of its axes.
    """

    fragment: Fragment
    row: str
    column: str

    def lane(self) -> Expr:
        """The lane that holds the element."""
        return self._number(self.fragment.lanes)

    def register(self) -> Expr:
        """The register that holds it, counted in elements."""
        return self._number(self.fragment.registers)

    def _number(self, digits: tuple[Digit, ...]) -> Expr:
        number: Expr = const(0)
        for d in digits:
            value = sym(self.row) // d.row if d.row else sym(self.column) // d.column
            number = number * d.extent + value % d.extent
        return number


def factor(tv: TensorView, read: Read) -> int | None:
    """Which factor of a contraction a read is: 0 with the rows of the result, 1 with its columns; ``None``: neither."""
    positions = [{k for k, a in enumerate(tv.root) if a in ancestors(tv, (axis,))} for axis in tv.schedule.atom_axes[:2]]
    used = {name for e in read.index for name in e.free}
    found = [k for k, roots in enumerate(positions) if any(f"i{r}" in used for r in roots)]
    return found[0] if len(found) == 1 else None


def operand(tv: TensorView, read: Read) -> Held | None:
    """How the atom of ``tv`` takes a tile of an operand from registers; ``None`` if it takes it from none."""
    atom = tv.schedule.atom
    if atom is None or not atom.gathers:
        return None
    names = list(atom_symbols(tv).values())
    size = read.tensor.dtype.itemsize
    match atom.instruction, factor(tv, read) if atom.contraction is not None else None:
        case Instruction.STMATRIX, _:
            return Held(mma_a(_HALF_WORD), names[0], names[1])
        case Instruction.WGMMA, 0:
            return Held(wgmma_a(size), names[0], names[2])
        case Instruction.MMA, 0:
            return Held(mma_a(size), names[0], names[2])
        case Instruction.MMA, 1:
            return Held(mma_b(size), names[2], names[1])
        case _:
            return None


def result(tv: TensorView) -> Held:
    """How the atom of ``tv`` leaves its tile in registers. The order of the matrices of ``ldmatrix`` is the allocation domain's."""
    atom = tv.schedule.atom
    assert atom is not None
    assert atom.tile is not None
    names = list(atom_symbols(tv).values())
    match atom.instruction:
        case Instruction.WGMMA:
            return Held(wgmma_accumulator(atom.tile[1]), names[0], names[1])
        case Instruction.MMA:
            return Held(mma_accumulator(), names[0], names[1])
        case _:
            return Held(mma_a(_HALF_WORD), names[0], names[1])
