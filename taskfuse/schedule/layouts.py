"""Layouts: allocation domains by name. Each is given to ``set_allocation_domain``, after the splits that make the tile."""

from __future__ import annotations

from taskfuse.ir.atoms import Atom
from taskfuse.ir.axes import Axis
from taskfuse.ir.calls import AllocationLayout
from taskfuse.ir.fragments import Fragment
from taskfuse.ir.shared_layouts import CHUNK, LINE, ROWS, SPANS
from taskfuse.ir.signatures import checked_first
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType
from taskfuse.schedule.allocation import allocation
from taskfuse.schedule.call import Call, constant, described

LANES = (ParallelType.TIDz, ParallelType.TIDy, ParallelType.TIDx)
"""The indices of a thread, from the one that differs least between neighbors."""
FRAGMENT_ROWS, FRAGMENT_HALF, FRAGMENT_COLUMNS, FRAGMENT_PAIR = 16, 8, 8, 2


@checked_first
def rowmajor() -> AllocationLayout:
    """The logical axes in their order, the last one contiguous."""

    def layout(tensor: TensorView) -> tuple[Axis, ...]:
        return tensor.logical

    return layout


@checked_first
def padded(elements: int) -> AllocationLayout:
    """The tile's axes in their order with ``elements`` unused places after each run of the innermost: rows start in different banks."""

    def layout(tensor: TensorView) -> tuple[Axis, ...]:
        builder = allocation(tensor)
        return builder.pad(-1, elements)(tensor)

    return layout


@checked_first
def by_threads() -> AllocationLayout:
    """Contiguous elements of neighboring threads: the tile's axes in their order, then those on TIDz, TIDy and TIDx, then the innermost, if no thread
    index is bound to it. A warp that accesses vectors along the innermost axis then has no bank conflicts."""

    def layout(tensor: TensorView) -> tuple[Axis, ...]:
        builder = allocation(tensor)
        bound = [tensor.schedule.ptype(a) for a in builder.axes]
        own = [k for k, p in enumerate(bound) if p not in LANES]
        vector = own[-1:] if own and own[-1] == len(bound) - 1 else []
        lanes = sorted((k for k, p in enumerate(bound) if p in LANES), key=lambda k: LANES.index(bound[k]))
        return builder.reorder([*(k for k in own if k not in vector), *lanes, *vector])(tensor)

    return layout


@checked_first
def turned(axis: int, elements: int = 0) -> AllocationLayout:
    """The tile's axes in their order, but one of them last: threads along it access neighbors.

    Args:
        axis: its position; a negative one counts from the end.
        elements: unused places after each run of it (:func:`padded`).
    """

    def layout(tensor: TensorView) -> tuple[Axis, ...]:
        builder = allocation(tensor).reorder({axis: -1})
        return (builder.pad(-1, elements) if elements else builder)(tensor)

    return layout


@checked_first
def swizzled(span_bytes: int) -> AllocationLayout:
    """The swizzle of TMA and wgmma: chunks of 16 bytes, permuted by XOR with the row inside each span.

    For the two innermost axes (rows r, columns c) and span_bytes = 128 the axes are [..., c/span, r/8, r%8, (c%span/chunk)^(r%8), c%chunk].
    A shorter span lets several rows share one value of the XOR: (r%8)/(128/span_bytes) takes the place of r%8 in it.

    Args:
        span_bytes: 32, 64 or 128. The innermost axis must be a constant multiple of it, the one before a constant multiple of 8.
    """

    def layout(tensor: TensorView) -> tuple[Axis, ...]:
        call = Call("layouts.swizzled", tensor)
        if span_bytes not in SPANS:
            raise call.error(f"there is no swizzle with a span of {span_bytes} bytes", "use 32, 64 or 128")
        builder = allocation(tensor)
        n = len(builder.axes)
        if n < 2:
            raise call.error(f"it needs two axes, rows and columns, but there are {n}")
        _check_multiple(call, n - 2, builder.axes[-2], ROWS, "rows")
        span = 8 * span_bytes // tensor.dtype.bits
        _check_multiple(call, n - 1, builder.axes[-1], span, "elements")
        if constant(builder.axes[-1]) != span:
            builder.split(-1, span).reorder({-2: -3})
        builder.split(-2, ROWS)
        shared_rows = LINE // span_bytes
        if shared_rows > 1:
            builder.split(-2, shared_rows)
        builder.split(-1, 8 * CHUNK // tensor.dtype.bits)
        builder.swizzle(-3 if shared_rows == 1 else -4, -2)
        return builder(tensor)

    return layout


@checked_first
def fragment(halves_first: bool = False, atom: Atom | None = None) -> AllocationLayout:
    """How tensor cores hold an m x n matrix in registers: the last two axes, spread over TIDx.

    Rows go 16 to a warp; there, lane 4 * (m % 8) + n % 8 / 2 holds of row m % 8 and of row m % 8 + 8 two columns of every 8 (PTX ISA, "Matrix
    Fragments for wgmma.mma_async.m64nNk16"). So the element (m, n) lies with thread 32 * (m / 16) + 4 * (m % 8) + n % 8 / 2 in register
    4 * (n / 8) + 2 * (m % 16 / 8) + n % 2. m must be a constant multiple of 16, n of 8.

    Args:
        halves_first: the two halves of 8 rows lie one after the other, each with all of its columns: as ``mma.sync`` takes two tiles of its
            second factor, which has 8 rows.
        atom: an atom of quad pairs, or of 8 rows: the layout of its result, whose last two axes are one tile.
    """
    if atom is not None and atom.shape is not None and (atom.units > 1 or atom.shape.m < FRAGMENT_ROWS):
        return _as_held(atom.shape.accumulator(atom.shape.widths[0]))

    def layout(tensor: TensorView) -> tuple[Axis, ...]:
        builder = allocation(tensor)
        call = Call("layouts.fragment", tensor)
        for k, unit, what in ((-2, FRAGMENT_ROWS, "rows"), (-1, FRAGMENT_COLUMNS, "columns")):
            _check_multiple(call, len(builder.axes) + k, builder.axes[k], unit, what)
        builder.split(-2, FRAGMENT_ROWS).split(-2, FRAGMENT_HALF).split(-1, FRAGMENT_COLUMNS).split(
            -1, FRAGMENT_PAIR
        )  # [..., w, half, row, column/8, pair, element]
        # from [..., w, half, row, column/8, pair, element] to [..., w, row, pair, column/8, half, element], or with the halves before the columns
        builder.reorder({-5: -3, -4: -5, -3: -2, -2: -4} if halves_first else {-5: -2, -4: -5, -3: -3, -2: -4})
        for k in (-6, -5, -4):
            builder.parallelize(k, ParallelType.TIDx)
        return builder(tensor)

    return layout


def _as_held(held: Fragment) -> AllocationLayout:
    """The last two axes as the digits of a fragment: of the lane, bound to TIDx, then of the register."""

    def layout(tensor: TensorView) -> tuple[Axis, ...]:
        builder = allocation(tensor)
        first = len(builder.axes) - 2
        steps = held.steps()
        for axis, along in reversed(list(enumerate(steps, first))):
            for step in along[:-1]:
                builder.split(axis + along.index(step), step)
        whole = 0
        for axis, along, size in ((first + len(steps[0]), steps[1], held.shape[1]), (first, steps[0], held.shape[0])):
            if len(along) == 1:  # a loop axis that is not split is none of the allocation's own: one of extent 1 is split off
                builder.split(axis + whole, size).reorder({axis + whole: first})
                whole += 1
        first += whole
        order = held.places()
        builder.reorder({first + old: first + new for new, old in enumerate(order)})
        for k in range(sum(not d.is_unit for d in held.lanes)):
            builder.parallelize(first + k, ParallelType.TIDx)
        return builder(tensor)

    return layout


def _check_multiple(call: Call, position: int, axis: Axis, factor: int, what: str) -> None:
    size = constant(axis)
    if size is None or size % factor:
        raise call.error(f"{described(position, axis)} is not a constant multiple of {factor} {what}", "split the loop axes into tiles first")
