"""The box of a bulk copy: coordinates and swizzle of a TMA transfer, derived from the domains of both sides.

The axes bound to Bulk are no loops: one instruction moves all their points. What it does is read off the two index maps by evaluating them
on every point of the constant tile and comparing with what the instruction does (PTX ISA, "cp.async.bulk.tensor" and "Tensor swizzling
modes"): a dense box of the tensor in Global memory, row-major in Shared memory under the swizzle. A tile that no instruction moves is an
error that says which point disagrees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taskfuse.ir.scalar import Const, Expr, Facts, const, evaluate, is_multiple, simplify, substitute
from taskfuse.ir.shared_layouts import SWIZZLES, swizzle_period, swizzled

MAX_BOX = 256
"""Elements of a box along one axis (CUDA driver API, ``cuTensorMapEncodeTiled``)."""
MAX_RANK = 5
INNER_BYTES = 16
"""The innermost axis of a box is a multiple of this many bytes."""


class NoBulkCopyError(Exception):
    """The instruction cannot make this copy: why, and what would help."""

    def __init__(self, reason: str, help: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.help = help


@dataclass(frozen=True, slots=True)
class Box:
    """One transfer.

    Attributes:
        coords: of the box's first element in Global memory, outermost axis first.
        box: elements per axis of the tensor, outermost axis first.
        start: index of the box's first element in Shared memory, the swizzle undone.
        swizzle: 0, 32, 64 or 128: bytes of the swizzle's span.
        bytes: of the full box, which is what arrives, also where the box overhangs the tensor.
        align: of the box's first byte in Shared memory.
    """

    coords: tuple[Expr, ...]
    box: tuple[int, ...]
    start: tuple[Expr, ...]
    swizzle: int
    bytes: int
    align: int


def derive(coords: Sequence[Expr], place: Sequence[Expr], shape: Sequence[Expr], itemsize: int, atoms: Mapping[str, int], facts: Facts) -> Box:
    """The transfer that copies the tile of ``atoms``.

    Args:
        coords: the index in Global memory.
        place: the index in Shared memory, of a buffer of ``shape`` (row-major).
        atoms: the Bulk axes: symbol and extent.

    Raises:
        NoBulkCopyError: no instruction makes this copy.
    """
    zero = {name: const(0) for name in atoms}
    grid = dict(zip(atoms, np.meshgrid(*(np.arange(n, dtype=np.int64) for n in atoms.values()), indexing="ij"), strict=True))
    points = int(np.prod(list(atoms.values())))
    if not 1 <= len(coords) <= MAX_RANK:
        raise NoBulkCopyError(f"the tensor in Global memory has {len(coords)} axes", f"a bulk copy takes 1 to {MAX_RANK}: merge axes with reshape")

    def values(e: Expr, what: str) -> NDArray[np.int64]:
        delta = simplify(e - substitute(e, zero), facts)
        if not delta.free <= atoms.keys():
            raise NoBulkCopyError(f"{what} moves by {delta} along its Bulk axes", "a tile has one shape: split the axes by constants first")
        return np.broadcast_to(np.asarray(evaluate(delta, grid), np.int64), tuple(atoms.values()))

    moves = [values(e, f"axis {d} of the tensor in Global memory") for d, e in enumerate(coords)]
    box = tuple(int(m.max()) + 1 for m in moves)
    linear = np.zeros_like(moves[0])
    for m, n in zip(moves, box, strict=True):
        linear = linear * n + m
    if any(m.min() < 0 for m in moves) or int(np.prod(box)) != points or not np.array_equal(np.sort(linear, axis=None), np.arange(points)):
        raise NoBulkCopyError(
            f"its {points} Bulk points span a box of {' x '.join(map(str, box))} elements in Global memory",
            "bind to Bulk whole inner parts of splits, so that the tile is a dense box",
        )
    if max(box) > MAX_BOX:
        raise NoBulkCopyError(f"its box is {' x '.join(map(str, box))} elements", f"an axis of a box has at most {MAX_BOX}: split it")
    if box[-1] * itemsize % INNER_BYTES:
        raise NoBulkCopyError(f"the innermost axis of its box is {box[-1] * itemsize} bytes", f"it must be a multiple of {INNER_BYTES} bytes: use a wider tile")
    linear = np.zeros_like(moves[0])
    for m, n in zip(moves, box, strict=True):
        linear = linear * n + m
    offset: Expr = const(0)
    for i, extent in zip(place, shape, strict=True):
        offset = offset * extent + i
    bytes_ = values(offset, "the place in Shared memory") * itemsize
    for swizzle in SWIZZLES:
        if (not swizzle or box[-1] * itemsize == swizzle) and np.array_equal(swizzled(linear * itemsize, swizzle), bytes_):
            break
    else:
        k = int(np.argmax((linear * itemsize != bytes_).ravel()))
        raise NoBulkCopyError(
            f"element {int(linear.ravel()[k])} of its box would lie at byte {int(bytes_.ravel()[k])} of the tile in Shared memory",
            "a bulk copy writes boxes row-major, or under a swizzle of 32, 64 or 128 bytes that is a row of the box: "
            "set_allocation_domain(tf.layouts.swizzled(...)), or none",
        )
    first = tuple(simplify(substitute(i, zero), facts) for i in place)
    align = swizzle_period(swizzle)
    start = simplify(substitute(offset, zero) * itemsize, facts)
    if not (isinstance(start, Const) and start.value % align == 0) and not is_multiple(start, align, facts):
        raise NoBulkCopyError(
            f"its tile starts at byte {start} of its buffer", f"a box must start at a multiple of {align} bytes: make the slots and tiles multiples of it"
        )
    corner = tuple(simplify(substitute(c, zero), facts) for c in coords)
    if not is_multiple(corner[-1] * itemsize, INNER_BYTES, facts):
        # not in the PTX ISA's list of restrictions, but an H200 calls such a copy an illegal instruction
        raise NoBulkCopyError(
            f"its box starts at element {corner[-1]} of the innermost axis, which is not provably a multiple of {INNER_BYTES} bytes",
            f"slice and tile the innermost axis at multiples of {INNER_BYTES} bytes",
        )
    return Box(corner, box, first, swizzle, points * itemsize, align)
