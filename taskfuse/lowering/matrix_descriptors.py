"""Matrix descriptors of wgmma: derived from an operand's allocation domain, and checked on every point of its tile.

An operand is a tile of rows (m or n) by k in Shared memory. The instruction computes the address of element (r, k) from the descriptor's two
strides and its swizzle (:func:`taskfuse.ir.shared_layouts.operand_offset`). So the strides are differences of addresses, and the layout
fits if all points agree. A tile that no layout fits is an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taskfuse.ir.scalar import Expr, Facts, bounds, const, evaluate, is_multiple, simplify, substitute, sym
from taskfuse.ir.shared_layouts import CHUNK, ROWS, SPANS, Ints, Major, operand_alignment, operand_offsets, swizzled

MN_ITEMSIZE = 2
"""Operands of 16 bits may be MN-major; all others are K-major."""
MAX_STARTS = 4096


class NoDescriptorError(Exception):
    """No descriptor addresses the elements of the tile: the reason, and a remedy."""

    def __init__(self, reason: str, help: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.help = help


@dataclass(frozen=True, slots=True)
class OperandTile:
    """The address of an operand tile.

    Attributes:
        start: index of the tile's first element, whose address is in the descriptor.
        swizzle, lbo, sbo, major: as in :class:`taskfuse.kir.operands.Descriptor`.
        align: required alignment of the buffer in bytes.
    """

    start: tuple[Expr, ...]
    swizzle: int
    lbo: int
    sbo: int
    major: Major
    align: int


def derive(place: Sequence[Expr], shape: Sequence[Expr], itemsize: int, rows: tuple[str, int], k: tuple[str, int], facts: Facts) -> OperandTile:
    """The descriptor of the tile of ``rows`` x ``k`` (symbol and extent) at index ``place`` of a buffer of ``shape`` (row-major).

    Raises:
        NoDescriptorError: no layout of the instruction fits.
    """
    atoms = {rows[0]: rows[1], k[0]: k[1]}
    zero = {name: const(0) for name in atoms}
    offset: Expr = const(0)
    for i, extent in zip(place, shape, strict=True):
        offset = offset * extent + i
    offset = simplify(offset * itemsize, facts)
    for swizzle in (0, *reversed(SPANS)):
        period = operand_alignment(swizzle)
        offsets = _offsets(offset, atoms, period, facts)
        if offsets is None:
            continue
        linear = [swizzled(p, swizzle) for p in offsets]  # undone: it is its own inverse
        relative = {(p - p[0, 0]).tobytes() for p in linear}
        if len(relative) != 1 or any(p[0, 0] != q[0, 0] for p, q in zip(linear, offsets, strict=True)):
            continue
        found = _fit(linear[0] - linear[0][0, 0], swizzle, itemsize)
        if found is not None:
            lbo, sbo, major = found
            return OperandTile(tuple(simplify(substitute(i, zero), facts) for i in place), swizzle, lbo, sbo, major, period)
    raise NoDescriptorError(
        f"no matrix descriptor finds its {rows[1]} x {k[1]} tile: they lie neither row-major nor column-major under a swizzle of 0, 32, 64 or 128 bytes",
        "set_allocation_domain(tf.layouts.swizzled(...)) of a tile whose rows are as long as the swizzle's span",
    )


def _offsets(offset: Expr, atoms: dict[str, int], period: int, facts: Facts) -> list[Ints] | None:
    """The bytes of the tile's elements, counted from the last multiple of ``period`` before its start, for each value of the symbols that move the start.

    ``None`` if that cannot be told: the offset has other symbols that do not move it by whole periods.
    """
    others = sorted(offset.free - atoms.keys())
    fixed = {name: const(0) for name in others if is_multiple(simplify(offset - substitute(offset, {name: const(0)}), facts), period, facts)}
    rest = simplify(substitute(offset, fixed), facts)
    free = sorted(rest.free - atoms.keys())
    ranges: list[range] = []
    for name in free:
        lo, hi = bounds(sym(name), facts)
        if lo is None or hi is None:
            return None
        ranges.append(range(lo, hi + 1))
    if int(np.prod([len(r) for r in ranges] or [1])) > MAX_STARTS:
        return None
    grid = dict(zip(atoms, np.meshgrid(*(np.arange(n, dtype=np.int64) for n in atoms.values()), indexing="ij"), strict=True))
    shape = tuple(atoms.values())
    found: list[Ints] = []
    for values in itertools.product(*ranges):
        point = dict(zip(free, values, strict=True))
        bytes_ = np.broadcast_to(np.asarray(evaluate(rest, {**grid, **point}), np.int64), shape)
        found.append(bytes_ - bytes_[0, 0] // period * period)
    return found


def _fit(linear: Ints, swizzle: int, itemsize: int) -> tuple[int, int, Major] | None:
    """(LBO, SBO, major) such that the instruction's address of every element is ``linear``, or ``None``."""
    rows, depth = linear.shape

    def step(row: int, column: int) -> int:
        return int(linear[row, column]) if row < rows and column < depth else 0

    def fits(lbo: int, sbo: int, major: Major) -> bool:
        return np.array_equal(operand_offsets(rows, depth, itemsize, swizzle, lbo, sbo, major), linear)

    lbo, sbo = 0 if swizzle else step(0, CHUNK // itemsize), step(ROWS, 0)
    if not (swizzle and depth * itemsize > swizzle) and fits(lbo, sbo, Major.K):
        return lbo, sbo, Major.K
    if swizzle and itemsize == MN_ITEMSIZE:
        lbo, sbo = step(swizzle // itemsize, 0), step(0, ROWS)
        if fits(lbo, sbo, Major.MN):
            return lbo, sbo, Major.MN
    return None
