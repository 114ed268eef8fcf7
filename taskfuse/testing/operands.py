"""How random products on tensor cores load their operands.

Bulk copies, ``cp.async`` or threads copy a factor to Shared memory, tile by tile, in any layout that the instruction can read; or threads compute it
there. ``ldmatrix`` or loads of the threads may move it from Shared or Global memory to registers, where math may follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import gcd

import taskfuse as tf
from taskfuse.ir.atoms import CP_ASYNC, LDMATRIX_X4, TMA_LOAD, TMA_LOAD_MULTICAST, Instruction
from taskfuse.ir.axes import Axis
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Pointwise, Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import alike
from taskfuse.ir.scalar import TRUE, Const, Expr, const, is_multiple, simplify, substitute, sym
from taskfuse.ir.shared_layouts import CHUNK, SPANS
from taskfuse.ir.storage import has_code, storage_reads, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.schedule.layouts import FRAGMENT_HALF, FRAGMENT_ROWS
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.contractions import ContractionCase, Factor, positions, read_in_place
from taskfuse.testing.loops import Loops
from taskfuse.testing.product_loops import Nest
from taskfuse.testing.program import Recorder, SpelledArgument

_P = ParallelType
WORD = 4
MOST_BULK = 5
LDMATRIX_ITEMSIZE = TURNED_ITEMSIZE = 2
"""Bytes of the elements that ``ldmatrix`` loads and that ``wgmma`` reads with contiguous rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Stop:
    """One tensor between a factor and the instruction.

    Attributes:
        tv: the tensor.
        rows, depth: its axes along the rows of the operand and along the summed axis.
    """

    tv: TensorView
    rows: int
    depth: int


@dataclass(slots=True)
class Feed:
    """The tensors between a factor and the instruction that share the loops of the product, in order.

    Attributes:
        shared: tensors in Shared memory, copied or computed there.
        registers: tensors in registers.
        matrices: ``ldmatrix`` loads the first of the registers.
        whole: no tile overhangs the factor.
    """

    shared: list[Stop] = field(default_factory=list[Stop])
    registers: list[Stop] = field(default_factory=list[Stop])
    matrices: bool = False
    whole: bool = True

    @property
    def tensors(self) -> list[TensorView]:
        """All tensors of the feed."""
        return [s.tv for s in (*self.shared, *self.registers)]

    @property
    def loads(self) -> list[TensorView]:
        """The tensors in Shared memory."""
        return [s.tv for s in self.shared]


@dataclass(frozen=True, slots=True)
class OperandNeeds:
    """Requirements of an instruction on an operand.

    Attributes:
        instruction: WGMMA or MMA.
        which: 0 for the factor with the rows of the result, 1 for the one with its columns.
        ends_inside: the summed axis may end inside an instruction; copies into Shared memory must then pad with zeros.
        overhangs: a tile may have rows past the end of the factor, which must be written, too.
    """

    instruction: Instruction
    which: int
    ends_inside: bool
    overhangs: bool


def feed(chooser: Chooser, recorder: Recorder, factor: Factor, c: ContractionCase, needs: OperandNeeds) -> Feed:
    """Choose how a factor is loaded, and create the tensors for it."""
    found = Feed()
    in_registers = needs.instruction is Instruction.MMA or (needs.which == 0 and chooser.chance(35))
    if needs.ends_inside and factor.tensor.dtype.itemsize != LDMATRIX_ITEMSIZE:
        in_registers = False
    found.whole = not needs.ends_inside and not needs.overhangs
    made = _computed(recorder.fusion, factor, c) if found.whole and chooser.chance(60) else None
    if made is None:
        made = _copied(recorder, factor, c)
    if not in_registers:
        found.shared.append(made)
        return found
    found.registers.append(made)
    if needs.ends_inside or chooser.chance(75):
        before = _before(recorder, made)
        if before is not None:
            found.shared.append(before)
            if not is_copy(recorder.fusion, made.tv) and chooser.chance(60):
                own = _before(recorder, made)
                found.registers[:0] = [] if own is None else [own]
    first = found.registers[0].tv
    loads = found.shared and first.dtype.itemsize == LDMATRIX_ITEMSIZE and is_copy(recorder.fusion, first)
    found.matrices = bool(loads) and (needs.ends_inside or chooser.chance(70))
    return found


def _copied(recorder: Recorder, factor: Factor, c: ContractionCase) -> Stop:
    """A copy of a factor for one product."""
    made: TensorView = recorder.call(factor.tensor, "cache_after", *([] if factor.place is None else [c.tv, factor.place]))
    return Stop(made, factor.rows, factor.depth)


def _computed(fusion: Fusion, factor: Factor, c: ContractionCase) -> Stop | None:
    """The factor itself, if it is computed elementwise and only this product reads it."""
    tv = factor.tensor
    expr = fusion.definition(tv)
    alone = expr is not None and has_code(fusion, expr) and isinstance(expr, Pointwise) and not tv.is_output
    return Stop(tv, factor.rows, factor.depth) if alone and alike([u.output for u in storage_uses(fusion, tv)], [c.tv]) else None


def is_copy(fusion: Fusion, tv: TensorView) -> bool:
    """True for copies that scheduling calls created."""
    expr = fusion.definition(tv)
    return isinstance(expr, Pointwise) and expr.op is ELEMENTWISE["copy"] and tv.origin is not None


def copied(fusion: Fusion, tv: TensorView) -> Read | None:
    """The tensor in storage that a copy reads, if each of its axes follows one of the copy's axes from some offset; ``None`` for other tensors."""
    expr = fusion.definition(tv)
    if expr is None or not is_copy(fusion, tv):
        return None
    (read,) = storage_reads(fusion, expr)
    free = [e.free for e in read.index]
    moves = all(len(names) == 1 and isinstance(simplify(e - sym(next(iter(names)))), Const) for e, names in zip(read.index, free, strict=True))
    return read if moves and len(set(free)) == len(free) else None


def _before(recorder: Recorder, stop: Stop) -> Stop | None:
    """Insert a copy of the operand of a tensor; ``None`` if it reads several tensors, or elements at other indices."""
    expr = recorder.fusion.definition(stop.tv)
    reads = read_in_place(recorder.fusion, expr) if isinstance(expr, Pointwise) else []
    whole = [(k, r, p) for k, r in reads for p in (positions(r),) if p is not None and len(p) == stop.tv.ndim]
    if not whole:
        return None
    place, read, found = whole[0]
    made: TensorView | None = recorder.attempt(read.tensor, "cache_after", *([] if place is None else [stop.tv, place]))
    return None if made is None else Stop(made, found.index(stop.rows), found.index(stop.depth))


def schedule(chooser: Chooser, recorder: Recorder, feed: Feed, nest: Nest, which: int, size: Callable[[Expr], int]) -> None:
    """Schedule the producers of one factor, after the loops of ``nest``."""
    _Operand(chooser, recorder, nest, which, size).run(feed)


class _Operand:
    def __init__(self, chooser: Chooser, recorder: Recorder, nest: Nest, which: int, size: Callable[[Expr], int]) -> None:
        self.chooser = chooser
        self.recorder = recorder
        self.fusion = recorder.fusion
        self.nest = nest
        self.which = which
        self.size = size
        self.wgmma = nest.shape.instruction is Instruction.WGMMA

    def run(self, feed: Feed) -> None:
        for stop in feed.shared:
            self._shared(stop, feed)
        for stop in feed.registers:
            self._registers(stop, feed.matrices and stop is feed.registers[0])

    def _own(self, stop: Stop) -> tuple[Axis, Axis]:
        """The loop axes of a tile: along its rows, and along its depth."""
        first, second = stop.tv.loop[-2:]
        return (first, second) if stop.rows < stop.depth else (second, first)

    # -- Shared memory --------------------------------------------------------------------------------------------------------------

    def _shared(self, stop: Stop, feed: Feed) -> None:
        tv = stop.tv
        self.recorder.call(tv, "set_memory_type", MemoryType.Shared)
        loops = Loops(self.recorder, tv)
        rows, depth = self._own(stop)
        contiguous = self._contiguous(stop)
        described = not feed.registers
        may_turn = not feed.matrices
        if described:
            wide = self.nest.shape.unit[self.which] * tv.dtype.itemsize % SPANS[0] == 0 and self.size(depth.extent) % 8 == 0
            may_turn = tv.dtype.itemsize == TURNED_ITEMSIZE and wide
        bulk = self._is_bulk(tv, contiguous) and (self.nest.in_roles or not described) and (contiguous is depth or may_turn) and self.chooser.chance(65)
        inner = contiguous if bulk and contiguous is not None else rows if may_turn and self.chooser.chance(35) else depth
        outer = rows if inner is depth else depth
        loops.last([outer, inner])
        self._lay_out(stop, loops, outer, inner, bulk, described, described and inner is depth)
        if not bulk:
            self._by_threads(loops, inner is contiguous, feed.whole)
        if bulk or self.chooser.chance(60):
            self.recorder.attempt(tv, "circular_buffer", self.chooser.pick((2, 3, 4)))

    def _contiguous(self, stop: Stop) -> Axis | None:
        """The axis of a tile along which the copied elements are contiguous; ``None`` if there is no such axis."""
        read = copied(self.fusion, stop.tv)
        if read is None or not read.index:
            return None
        rows, depth = self._own(stop)
        names = read.index[-1].free
        return rows if f"i{stop.rows}" in names else depth if f"i{stop.depth}" in names else None

    def _is_bulk(self, tv: TensorView, contiguous: Axis | None) -> bool:
        """True if the copy engine can load the tensor."""
        read = copied(self.fusion, tv)
        if read is None or contiguous is None or not read.tensor.is_input or read.valid is not TRUE:
            return False
        row: Expr = read.tensor.shape[-1] * read.tensor.dtype.itemsize
        return read.tensor.ndim <= MOST_BULK and is_multiple(row, CHUNK, self.fusion.facts())

    def _lay_out(self, stop: Stop, loops: Loops, outer: Axis, inner: Axis, bulk: bool, described: bool, cores: bool) -> None:
        """A layout, and the atom of a bulk copy whose box fits it.

        Args:
            described: an instruction reads the tile through a descriptor.
            cores: a layout without a swizzle is possible, too.
        """
        tv, item = loops.tv, loops.tv.dtype.itemsize
        width = self.size(inner.extent) * item
        unit = self.nest.shape.unit[self.which] * item if described and not cores else width
        spans = [s for s in SPANS if width % s == 0 and unit % s == 0] if self.size(outer.extent) % 8 == 0 else []
        kinds = ["swizzled"] * 6 * bool(spans) + ["cores"] * 2 * cores + ([] if described else ["none", "none", "padded", "rowmajor"])
        kind = self.chooser.pick(kinds)
        outer_first = (stop.depth if inner is self._own(stop)[1] else stop.rows) == tv.ndim - 1
        match kind:
            case "swizzled":
                span = self.chooser.pick(spans[::-1])
                if bulk and width > span:
                    piece, inner = loops.split(inner, span // item)
                    loops.last([piece, outer, inner])
                    loops.bind(piece, self.chooser.pick((_P.Unroll, _P.Serial)))
                self.recorder.call(tv, "set_allocation_domain", SpelledArgument(f"tf.layouts.swizzled({span})", tf.layouts.swizzled(span)))
            case "cores":  # 8 rows of 16 bytes, consecutive
                piece, inner = loops.split(inner, CHUNK // item)
                loops.last([piece, outer, inner])
                if not bulk and self.chooser.chance(50):
                    self.recorder.call(tv, "set_allocation_domain", self._by_hand(tv))
            case "padded" if not bulk:
                pad = max(CHUNK // item, 1) if self.chooser.chance(60) else 1
                self.recorder.call(tv, "set_allocation_domain", SpelledArgument(f"tf.layouts.padded({pad})", tf.layouts.padded(pad)))
            case "rowmajor" if not bulk and not self.nest.ends_inside and outer_first and all(isinstance(e, Const) for e in tv.shape):
                self.recorder.call(tv, "set_allocation_domain", SpelledArgument("tf.layouts.rowmajor()", tf.layouts.rowmajor()))
            case _:
                pass
        if bulk:
            loops.done()
            common = any(a.is_foreign and tv.schedule.ptype(a).is_cluster for a in tv.loop)
            self.recorder.call(tv, "set_atom", TMA_LOAD_MULTICAST if common and self.chooser.chance(80) else TMA_LOAD, [-2, -1])

    def _by_hand(self, tv: TensorView) -> SpelledArgument:
        """The same layout, as an allocation domain."""
        return SpelledArgument(f"tf.allocation({self.recorder.text(tv)})", tf.allocation(tv))

    def _by_threads(self, loops: Loops, along: bool, whole_tiles: bool) -> None:
        """Copies by threads, scalar or vectorized, synchronous or asynchronous."""
        tv, item = loops.tv, loops.tv.dtype.itemsize
        pieces = list(loops.tv.loop[len(self.nest.head) + len(self.nest.steps) :])
        inner = pieces[-1]
        read = copied(self.fusion, tv)
        widths = [w for w in (2, 4, 8, 16) if self.size(inner.extent) % w == 0 and w * item <= CHUNK and along and self._vectors(read, w * item)]
        width = self.chooser.pick(widths) if widths and self.chooser.chance(60) else 1
        if width > 1:
            pieces[-1] = loops.split(inner, width)[0]
        whole = pieces[0]
        if self.chooser.chance(75):
            for axis in pieces[1:]:
                whole = loops.merge(whole, axis)
        else:
            whole = self.chooser.pick(pieces)
        threads = self.chooser.pick((32, 64, 128)) if self.nest.in_roles else self.nest.threads
        size = self.size(whole.extent)
        if size > threads:
            fitting = threads if whole_tiles else gcd(size, threads)
            _, whole = loops.split(whole, fitting)
        loops.bind(whole, _P.TIDx)
        loops.done()
        is_global = read is not None and read.tensor.is_input and width * item >= CP_ASYNC.min_bytes
        if is_global and self.chooser.chance(50):
            self.recorder.attempt(tv, "set_atom", CP_ASYNC, [-1] if width > 1 else [])
        elif width > 1 and whole_tiles and self.chooser.chance(70):
            self.recorder.attempt(tv.axis(-1), "parallelize", _P.Vectorize)

    def _vectors(self, read: Read | None, width: int) -> bool:
        """True if the rows of the read tensor start at multiples of ``width`` bytes."""
        if read is None or not all(is_multiple(substitute(e, dict.fromkeys(e.free, const(0))) * read.tensor.dtype.itemsize, width) for e in read.index[-1:]):
            return False
        row: Expr = (read.tensor.shape[-1] if read.tensor.shape else const(1)) * read.tensor.dtype.itemsize
        return is_multiple(row, width, self.fusion.facts())

    # -- registers ------------------------------------------------------------------------------------------------------------------

    def _registers(self, stop: Stop, is_loaded: bool) -> None:
        """[..., warps, step | as the instruction takes a matrix]."""
        shape, tv = self.nest.shape, stop.tv
        loops = Loops(self.recorder, tv)
        rows, depth = self._own(stop)
        loops.last([rows, depth])
        outer: list[Axis] = []
        own, unit = shape.own[self.which], shape.unit[self.which]
        if shape.warps[self.which] > 1:
            part, rows = loops.split(rows, own)
            outer.append(part)
            loops.bind(part, shape.types[self.which])
        if is_loaded and (self.which == 0 or own % FRAGMENT_ROWS == 0):
            self._matrices(loops, rows, depth, outer)
            return
        if own > unit:
            part, rows = loops.split(rows, unit)
            outer.append(part)
        part, depth = loops.split(depth, shape.unit[2])
        outer.append(part)
        word = WORD // self.nest_itemsize
        if self.which == 0 and self.nest_itemsize == 2 and self.chooser.chance(60):
            loops.last([*outer, rows, depth])
            self.recorder.call(tv, "fragment", [-2, -1])
            loops.done()
            return
        lanes: list[Axis] = []
        high: list[Axis] = []
        if self.which == 0:
            if unit > FRAGMENT_ROWS:
                warp, rows = loops.split(rows, FRAGMENT_ROWS)
                lanes.append(warp)
            half, rows = loops.split(rows, FRAGMENT_HALF)
            high.append(half)
        lanes.append(rows)
        four, pair = loops.split(depth, 4 * word)
        quad, element = loops.split(pair, word)
        lanes.append(quad)
        loops.last([*outer, *lanes, four, *high, element])
        for axis in lanes:
            loops.bind(axis, _P.TIDx)
        loops.done()

    @property
    def nest_itemsize(self) -> int:
        """Bytes of an element of the operand."""
        return 32 // self.nest.shape.unit[2]

    def _matrices(self, loops: Loops, rows: Axis, depth: Axis, outer: list[Axis]) -> None:
        """``ldmatrix``: a warp loads 16 x 16 elements."""
        high, low = loops.split(rows, FRAGMENT_ROWS)
        step, k = loops.split(depth, FRAGMENT_ROWS)
        loops.last([*outer, high, step, low, k])
        if self.wgmma:
            if self.nest.shape.each[0] > 1:
                part, high = loops.split(high, 4)
                loops.last([*outer, part, high, step, low, k])
            loops.bind(high, _P.TIDx)
        if self.chooser.chance(60):
            loops.bind(step, _P.Unroll)
        loops.done()
        self.recorder.call(loops.tv, "set_atom", LDMATRIX_X4, [-2, -1])
        if self.which == 1:
            layout = SpelledArgument("tf.layouts.fragment(halves_first=True)", tf.layouts.fragment(halves_first=True))
            self.recorder.call(loops.tv, "set_allocation_domain", layout)
