"""Epilogues of random products on tensor cores: elementwise math on registers, and stores.

Tensors that follow the product elementwise are computed in its registers; other tensors read them from Shared or Global memory. An output is stored
directly from registers, or through a tile in Shared memory: by ``stmatrix`` or by stores of the threads, and on by a bulk store or by copies of the
threads.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import taskfuse as tf
from taskfuse.ir.atoms import STMATRIX_X2, STMATRIX_X4, TMA_STORE
from taskfuse.ir.axes import Axis
from taskfuse.ir.identity import among, place_of
from taskfuse.ir.scalar import Const, Expr, is_multiple
from taskfuse.ir.shared_layouts import CHUNK, SPANS
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.schedule.layouts import FRAGMENT_COLUMNS, FRAGMENT_ROWS
from taskfuse.target import WARP
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.contractions import ContractionCase, epilogue, outside
from taskfuse.testing.loops import Loops
from taskfuse.testing.operands import MOST_BULK, is_copy
from taskfuse.testing.product_loops import Nest
from taskfuse.testing.program import Recorder, SpelledArgument

_P = ParallelType
MOST_BOX = 256
"""Elements of a box of the copy engine along an axis."""


@dataclass(slots=True, eq=False)
class EpilogueResult:
    """A product and the tensors computed in its loops.

    Attributes:
        tv: the product.
        registers: the tensors computed on its registers, in order; some of them are stored from there.
        matrices: tensors that ``stmatrix`` stores to Shared memory.
        staged: tiles in Shared memory that outputs are copied from.
        stores: these outputs.
    """

    tv: TensorView
    registers: list[TensorView] = field(default_factory=list[TensorView])
    matrices: list[TensorView] = field(default_factory=list[TensorView])
    staged: list[TensorView] = field(default_factory=list[TensorView])
    stores: list[TensorView] = field(default_factory=list[TensorView])

    @property
    def tensors(self) -> list[TensorView]:
        """All tensors except the product."""
        return [*self.registers, *self.matrices, *self.stores]


def cut(chooser: Chooser, recorder: Recorder, tv: TensorView) -> EpilogueResult:
    """Choose the tensors computed on the registers of a product; other readers get a copy."""
    fusion = recorder.fusion
    if tv.is_output and tv.uses and chooser.chance(50):
        forked: TensorView | None = recorder.attempt(tv, "cache_fork")
        tv = tv if forked is None else forked
    if tv.is_output:
        tv = recorder.call(tv, "cache_before")
    if not {use.output for use in tv.uses} <= set(epilogue(fusion, tv)) or chooser.chance(20):
        recorder.call(tv, "cache_after")
    return EpilogueResult(tv, epilogue(fusion, tv, lambda x: chooser.chance(15)))


def stage(chooser: Chooser, recorder: Recorder, result: EpilogueResult, c: ContractionCase) -> None:
    """Put tiles in Shared memory between some outputs and the registers."""
    for tv in list(result.registers):
        if tv.is_output and tv.uses and chooser.chance(60):
            forked: TensorView | None = recorder.attempt(tv, "cache_fork")
            if forked is not None:
                result.registers[place_of(tv, result.registers)] = forked
                result.registers.append(tv)
    for tv in list(result.registers):
        if not tv.is_output or tv.uses or not chooser.chance(60):
            continue
        staging: TensorView = recorder.call(tv, "cache_before")
        recorder.call(staging, "set_memory_type", MemoryType.Shared)
        result.stores.append(tv)
        result.staged.append(staging)
        place = place_of(tv, result.registers)
        if tv.dtype.itemsize == 2 and not c.is_turned and chooser.chance(65):
            result.registers[place] = recorder.call(staging, "cache_before")
            result.matrices.append(staging)
        else:
            result.registers[place] = staging


def schedule(chooser: Chooser, recorder: Recorder, result: EpilogueResult, c: ContractionCase, nest: Nest) -> None:
    """Schedule the tensors after a product, inside the loops of ``nest``."""
    _Epilogue(chooser, recorder, result, c, nest).run()


def share(chooser: Chooser, recorder: Recorder, result: EpilogueResult, nest: Nest) -> None:
    """Share loops: mostly all stored tensors share them; registers as deep as possible or not at all."""
    for tv in result.staged:
        recorder.attempt(tv, "inline_at", len(nest.head))
    if result.registers and chooser.chance(75):
        recorder.attempt(recorder.fusion, "inline_most", [tv for tv in result.registers if not among(tv, result.staged)])
    else:
        for tv in reversed(result.registers):
            if not among(tv, result.staged) and tv.uses:
                recorder.attempt(tv, "inline_at", len(nest.head) if chooser.chance(80) else chooser.integer(0, len(nest.head)))


class _Epilogue:
    def __init__(self, chooser: Chooser, recorder: Recorder, result: EpilogueResult, c: ContractionCase, nest: Nest) -> None:
        self.chooser = chooser
        self.recorder = recorder
        self.fusion = recorder.fusion
        self.result = result
        self.contraction = c
        self.nest = nest
        width = nest.shape.own[1]
        pieces = [n for n in (8, 16, 32, 64) if width % n == 0 and n < width]
        self.piece = chooser.pick(pieces) if pieces and chooser.chance(30) else width
        """Columns of a tile that are computed and stored at once."""

    def run(self) -> None:
        result, shared = self.result, (MemoryType.Global,) if self.nest.is_blocked else (MemoryType.Shared, MemoryType.Global)
        for tv in result.registers:
            if not tv.is_output and not among(tv, result.staged) and outside(self.fusion, tv, result.tensors):
                self.recorder.attempt(tv, "set_memory_type", self.chooser.pick(shared))
        whole: dict[TensorView, bool] = {}
        bulk: dict[TensorView, bool] = {}
        for tv, staging in zip(result.stores, result.staged, strict=True):
            whole[staging] = whole[tv] = self.chooser.chance(40)
            bulk[staging] = bulk[tv] = self._may_be_bulk(tv, whole[tv]) and self.chooser.chance(65)
        for tv in (*result.registers, *result.matrices):
            if among(tv, result.staged) and whole[tv]:
                self._lay_out(tv, bulk[tv])
            loops, m, n = self._warps(tv, in_own_order=among(tv, result.staged) and not whole[tv])
            if among(tv, result.staged) and not whole[tv]:
                self._lay_out(tv, bulk[tv])
                loops.last([m, n])
            if among(tv, result.staged) and self.chooser.chance(40):
                self.recorder.attempt(tv, "circular_buffer", self.chooser.pick((2, 3)))
            if among(tv, result.matrices) and self.piece % FRAGMENT_ROWS == 0:
                self._matrices(loops, m, n)
            else:
                self._fragment(loops, m, n)
        for tv in result.stores:
            self._store(tv, whole[tv], bulk[tv])

    def _own(self, tv: TensorView) -> tuple[Axis, Axis]:
        """Rows and columns of a tile."""
        first, second = tv.loop[-2:]
        return (second, first) if self.contraction.is_turned else (first, second)

    def _warps(self, tv: TensorView, in_own_order: bool = False) -> tuple[Loops, Axis, Axis]:
        """[head, warps, pieces, m, n], as the product has them; or the two in the order of the tensor."""
        loops, shape = Loops(self.recorder, tv), self.nest.shape
        outer: list[Axis] = []
        found: list[Axis] = []
        for axis, own, warps, ptype in zip(self._own(tv), shape.own, shape.warps, shape.types, strict=True):
            if warps > 1:
                part, axis = loops.split(axis, own)
                outer.append(part)
                loops.bind(part, ptype)
            found.append(axis)
        m, n = found
        if shape.each[0] > 1:
            part, m = loops.split(m, shape.unit[0])
            outer.append(part)
            loops.bind(part, self.chooser.pick((_P.Unroll, _P.Serial)))
        if self.piece < shape.own[1]:
            part, n = loops.split(n, self.piece)
            outer.append(part)
            loops.bind(part, _P.Unroll)
        loops.last([*outer, *((n, m) if in_own_order and self.contraction.is_turned else (m, n))])
        return loops, m, n

    def _fragment(self, loops: Loops, m: Axis, n: Axis) -> None:
        tv = loops.tv
        self.recorder.call(tv, "fragment", [loops.at(m), loops.at(n)])
        loops.done()
        last = not self.contraction.is_turned and self.contraction.tv.root[-2] is self.contraction.n
        if tv.is_output and is_copy(self.fusion, tv) and last and self.chooser.chance(50) and is_multiple(tv.shape[-1], 2, self.fusion.facts()):
            self.recorder.attempt(tv.axis(-1), "parallelize", _P.Vectorize)

    def _lay_out(self, tv: TensorView, bulk: bool) -> None:
        """The layout of a tile in Shared memory: by its axes as they are now, which are split further for the threads."""
        name = self.recorder.text(tv)
        kinds = [SpelledArgument(f"tf.allocation({name})", tf.allocation(tv))]
        width = _constant(tv.loop[-1]) * tv.dtype.itemsize
        spans = [s for s in SPANS if width and (width == s if bulk else width % s == 0)] if _constant(tv.loop[-2]) % 8 == 0 else []
        kinds += [SpelledArgument(f"tf.layouts.swizzled({s})", tf.layouts.swizzled(s)) for s in spans for _ in range(2)]
        if not bulk:
            pad = CHUNK // tv.dtype.itemsize
            kinds.append(SpelledArgument(f"tf.layouts.padded({pad})", tf.layouts.padded(pad)))
        self.recorder.attempt(tv, "set_allocation_domain", self.chooser.pick(kinds))

    def _matrices(self, loops: Loops, m: Axis, n: Axis) -> None:
        """``stmatrix``: a warp stores 16 x 16 or 16 x 8 elements."""
        atom, columns = self.chooser.pick(((STMATRIX_X4, FRAGMENT_ROWS), (STMATRIX_X2, FRAGMENT_COLUMNS)))
        high, m = loops.split(m, FRAGMENT_ROWS)
        step, n = loops.split(n, columns)
        loops.last([high, step, m, n])
        if self.nest.shape.lanes > WARP:
            loops.bind(high, _P.TIDx)
        loops.bind(step, self.chooser.pick((_P.Unroll, _P.Serial)))
        loops.done()
        self.recorder.call(loops.tv, "set_atom", atom, [-2, -1])

    def _may_be_bulk(self, tv: TensorView, whole: bool) -> bool:
        """True if the copy engine can store the tensor: its rows, and those of the box, are multiples of 16 bytes."""
        shape = self.nest.shape
        rows, columns = shape.tile[:2] if whole else (shape.unit[0], self.piece)
        inner = rows if self.contraction.is_turned else columns
        last = self.contraction.m if self.contraction.is_turned else self.contraction.n
        kept = [a for a in self.contraction.tv.root if not a.is_reduction]
        row: Expr = tv.shape[-1] * tv.dtype.itemsize
        fits = inner * tv.dtype.itemsize % CHUNK == 0 and max(rows, columns) <= MOST_BOX
        return kept[-1] is last and fits and tv.ndim <= MOST_BULK and is_multiple(row, CHUNK, self.fusion.facts())

    def _store(self, tv: TensorView, whole: bool, bulk: bool) -> None:
        """A bulk store of each piece, or copies of the threads."""
        if whole:
            loops, tile = Loops(self.recorder, tv), list(tv.loop[-2:])
        else:
            loops, m, n = self._warps(tv, in_own_order=True)
            tile = [n, m] if self.contraction.is_turned else [m, n]
        if bulk:
            loops.done()
            self.recorder.call(tv, "set_atom", TMA_STORE, [-2, -1])
            return
        inner = tile[1]
        vector: Axis | None = None
        width = self.chooser.pick([w for w in (2, 4, 8) if w * tv.dtype.itemsize <= CHUNK] or [1])
        size = _constant(inner)
        if self.chooser.chance(50) and size and size % width == 0 and self._may_be_bulk(tv, whole):
            inner, vector = loops.split(inner, width)
        merged = loops.merge(tile[0], inner)
        _, threads = loops.split(merged, self.nest.threads)
        loops.bind(threads, _P.TIDx)
        loops.done()
        if vector is not None:
            self.recorder.attempt(tv.axis(loops.at(vector)), "parallelize", _P.Vectorize)


def _constant(axis: Axis) -> int:
    """The extent of an axis; 0 for a symbolic one."""
    return axis.extent.value if isinstance(axis.extent, Const) else 0
