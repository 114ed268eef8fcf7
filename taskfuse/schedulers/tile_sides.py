"""The sides of tiles that pass an input through Shared memory because it is contiguous along another axis than the outputs.

Axes of the outputs are taken by *digits*: an index such as ``7*(i0 % 8) + i1 % 7``, of windows whose pixels are those of an image, has several of one axis.
Each digit has a stride in the input. The rows of a tile are digits that follow one another in the memory of the input, from stride 1 on: ``i1 % 7``, then
``i0 % 8``, of stride 7, and so on. Its columns are the last digits of the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from taskfuse.ir.axes import Axis, iteration_symbol
from taskfuse.ir.expr import Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, ZERO, Const, Expr, FloorDiv, Mod, Sym, children, const, private, simplify, substitute
from taskfuse.schedulers.elementwise import Leaf, divides
from taskfuse.target import SECTOR_BYTES


class AxisDigit(NamedTuple):
    """A digit of an axis: ``axis // weight % extent``."""

    axis: int
    weight: Expr
    extent: Expr


class Sides(NamedTuple):
    """The sides of the tiles of some inputs.

    Attributes:
        digits: of all axes of the outputs, in their order.
        rows, columns: positions in ``digits``, the last one innermost.
    """

    digits: tuple[AxisDigit, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def extent(self, positions: Sequence[int]) -> Expr:
        """The number of values of some digits together."""
        total: Expr = ONE
        for p in positions:
            total = total * self.digits[p].extent
        return total


def turned_along(fusion: Fusion, leaf: Leaf) -> AxisDigit | None:
    """The digit along which an input is contiguous, if that is not the last one of the outputs, and the input has that one, too. Where axes have several
    digits, neighbors along the last one may be far apart, so that whole sectors must be neighbors along the others."""
    if len(leaf.reads) != 1 or leaf.values or not leaf.reads[0].index:
        return None
    sector = SECTOR_BYTES // leaf.reads[0].tensor.dtype.itemsize
    sides = tile_sides(fusion, [leaf], sector, 1)
    if sides is None:
        return None
    run = sides.extent(sides.rows)
    is_long = len(sides.digits) == len(leaf.tensor.root) or (isinstance(run, Const) and run.value >= sector)
    return sides.digits[sides.rows[-1]] if is_long else None


def tile_sides(fusion: Fusion, tiles: Sequence[Leaf], height: int, width: int) -> Sides | None:
    """The sides of the tiles of inputs; ``None`` if these are not contiguous along one digit, other than the last, or lack the last one.

    Args:
        height, width: rows and columns of a tile: no more digits are taken where whole tiles fill those that are there.
    """
    root, facts = tiles[0].tensor.root, fusion.facts()
    digits = tuple(d for axis in range(len(root)) for d in _digits(axis, root[axis], [leaf.reads[0] for leaf in tiles]))
    found = [_strides(fusion, leaf.reads[0], root, digits) for leaf in tiles]
    strides = [s for s in found if s is not None]
    inner = [[p for p, s in enumerate(own) if s is ONE] for own in strides]
    last = max((p for p, d in enumerate(digits) if d.extent is not ONE), default=0)
    if len(strides) < len(tiles) or any(len(own) != 1 or own != inner[0] for own in inner) or inner[0] == [last] or any(own[last] is ZERO for own in strides):
        return None
    sides = Sides(digits, (inner[0][0],), (last,))
    while not divides(width, sides.extent(sides.columns), facts) and _follows(sides, strides, before := sides.columns[0] - 1, sides.columns[0]):
        sides = sides._replace(columns=(before, *sides.columns))
    while not divides(height, length := sides.extent(sides.rows), facts):
        above = [p for p in range(len(digits)) if p not in (*sides.rows, *sides.columns) and all(simplify(own[p] - length, facts) is ZERO for own in strides)]
        if not above:
            break
        sides = sides._replace(rows=(above[0], *sides.rows))
    return sides


def _follows(sides: Sides, strides: Sequence[Sequence[Expr]], above: int, below: int) -> bool:
    """True if a digit before the columns, other than those of rows, is of their axis, or continues them in each input."""
    if above < 0 or above in sides.rows:
        return False
    return sides.digits[above].axis == sides.digits[below].axis or all(own[above] is own[below] * sides.digits[below].extent for own in strides)


def _digits(position: int, axis: Axis, reads: Sequence[Read]) -> Iterator[AxisDigit]:
    """The digits of an axis in the indices of reads, the first one outermost; the axis itself, if they are not one number's."""
    own, points = iteration_symbol(position), {1}
    stack = [e for read in reads for e in read.index if own.free & e.free]
    while stack:
        e = stack.pop()
        stack += children(e)
        match e:
            case FloorDiv(Sym() as x, Const(n)) if x is own:
                points.add(n)
            case Mod(Sym() as x, Const(n)) if x is own:
                points.add(n)
            case Mod(FloorDiv(Sym() as x, Const(n)), Const(m)) if x is own:
                points.add(n * m)
            case _:
                pass
    weights = sorted(points)
    ends = [*weights[1:], axis.extent.value if isinstance(axis.extent, Const) else 0]
    if len(weights) == 1 or any(end % weight or end <= weight for weight, end in zip(weights, ends, strict=True)):
        yield AxisDigit(position, ONE, axis.extent)
        return
    for weight, end in zip(reversed(weights), reversed(ends), strict=True):
        yield AxisDigit(position, const(weight), const(end // weight))


def _strides(fusion: Fusion, read: Read, root: Sequence[Axis], digits: Sequence[AxisDigit]) -> list[Expr] | None:
    """How far apart in the input neighbors along each digit lie; ``None`` if that is not the same everywhere."""
    facts, names = fusion.facts(), [private(f"digit{k}") for k in range(len(digits))]
    value: dict[str, Expr] = {str(iteration_symbol(k)): ZERO for k in range(len(root))}
    for name, digit in zip(names, digits, strict=True):
        facts = facts.with_range(str(name), 0, digit.extent - 1)
        value[str(iteration_symbol(digit.axis))] += name * digit.weight
    place = ZERO
    for e, n in zip(read.index, read.tensor.shape, strict=True):
        place = place * n + substitute(e, value)
    place = simplify(place, facts)
    nowhere: Mapping[str, Expr] = {str(name): ZERO for name in names}
    start = simplify(substitute(place, nowhere), facts)
    found = [ZERO if d.extent is ONE else simplify(substitute(place, {**nowhere, str(n): ONE}) - start, facts) for n, d in zip(names, digits, strict=True)]
    rest = place - sum((name * step for name, step in zip(names, found, strict=True)), start)
    return found if simplify(rest, facts) is ZERO else None
