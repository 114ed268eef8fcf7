"""Registers and lanes of an atom's operands and result, as index expressions."""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.ir.atoms import Atom
from taskfuse.ir.axes import Axis
from taskfuse.ir.contraction import axes_of
from taskfuse.ir.expr import Read
from taskfuse.ir.fragments import MATRIX_ROWS, Digit, Fragment, four_matrices, matrices
from taskfuse.ir.matrix_instructions import in_registers
from taskfuse.ir.scalar import Expr, const, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.lowering.domains import ancestors

ATOM = "v"


def atom_symbols(tv: TensorView) -> dict[Axis, str]:
    """The symbols of the axes that an atom covers: not loops, but points of one instruction."""
    return {a: ATOM if k == 0 else f"{ATOM}{k}" for k, a in enumerate(tv.schedule.atom_axes)}


@dataclass(frozen=True, slots=True)
class HeldTile:
    """A tile in registers.

    Attributes:
        fragment: its layout.
        row, column: the symbols of its axes.
    """

    fragment: Fragment
    row: str
    column: str

    def lane(self) -> Expr:
        """The lane that holds the element, of the first unit."""
        return self._number(self.fragment.lanes)

    def holder(self, thread: Expr) -> Expr:
        """The thread that holds the element, of the unit of ``thread``."""
        unit, below = thread // self.fragment.threads * self.fragment.threads, self.fragment.threads
        for d in self.fragment.lanes:
            below //= d.extent
            if d.is_unit:
                unit = unit + thread // below % d.extent * below
        return unit + self.lane()

    def register(self) -> Expr:
        """The register that holds it, counted in elements."""
        return self._number(self.fragment.registers)

    def _number(self, digits: tuple[Digit, ...]) -> Expr:
        number: Expr = const(0)
        for d in digits:
            value = const(0) if d.is_unit else sym(self.row) // d.row if d.row else sym(self.column) // d.column
            number = number * d.extent + value % d.extent
        return number


def factor(tv: TensorView, read: Read) -> int | None:
    """The factor of a contraction that a read is: 0 with the rows of the result, 1 with its columns; ``None``: neither."""
    positions = [{k for k, a in enumerate(tv.root) if a in ancestors(tv, (axis,))} for axis in tv.schedule.atom_axes[:2]]
    found = [k for k, roots in enumerate(positions) if roots & axes_of(read)]
    return found[0] if len(found) == 1 else None


def operand(tv: TensorView, read: Read) -> HeldTile | None:
    """The register layout of an operand tile of the atom of ``tv``; ``None`` if the operand is not in registers."""
    atom = tv.schedule.atom
    if atom is None or not atom.gathers:
        return None
    names = list(atom_symbols(tv).values())
    if atom.contraction is None:
        return HeldTile(_matrices(atom), names[0], names[1])
    assert atom.shape is not None
    assert atom.tile is not None
    side = factor(tv, read)
    fragment = None if side is None else in_registers(atom.shape, atom.tile[2], read.tensor.dtype)[side]
    return None if fragment is None else HeldTile(fragment, *((names[0], names[2]) if side == 0 else (names[2], names[1])))


def result(tv: TensorView) -> HeldTile:
    """The register layout of the result tile of the atom of ``tv``. The order of the matrices of ``ldmatrix`` is the allocation domain's."""
    atom = tv.schedule.atom
    assert atom is not None
    assert atom.tile is not None
    names = list(atom_symbols(tv).values())
    fragment = _matrices(atom) if atom.shape is None else atom.shape.accumulator(atom.tile[1])
    return HeldTile(fragment, names[0], names[1])


def _matrices(atom: Atom) -> Fragment:
    """How a lane holds its part of the tile of ``ldmatrix`` or ``stmatrix``: four matrices, or two, one above the other."""
    assert atom.tile is not None
    return four_matrices() if atom.tile[1] > MATRIX_ROWS else matrices(atom.tile[0] // MATRIX_ROWS)


def registers(tv: TensorView) -> int:
    """The accumulators of a thread for one tile of an atom; 1 if no atom computes tiles."""
    return result(tv).fragment.count if tv.schedule.atom is not None and tv.schedule.atom.spreads else 1


def register(tv: TensorView) -> Expr:
    """The index of an accumulator, in a loop over some or all of them."""
    return sym(f"{tv.name}.r")


def tile_of_register(tv: TensorView, lane: Expr) -> dict[Axis, Expr]:
    """The rows and the columns of an atom's tile for the accumulator :func:`register` of a lane; none if no atom computes tiles."""
    if registers(tv) == 1:
        return {}
    held = result(tv)
    row, column = held.fragment.position(lane % held.fragment.threads, register(tv))
    m, n, *_ = tv.schedule.atom_axes
    return {m: row, n: column}
