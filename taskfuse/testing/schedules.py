"""Random schedules: transforms, parallel types, inline positions, memory, rings.

Tensors are scheduled as users do: all by position, like a reference of their task, or individually. The generator skips calls that
taskfuse refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import taskfuse as tf
from taskfuse.ir.atoms import CP_ASYNC
from taskfuse.ir.axes import Axis, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Pointwise, Read, Scan
from taskfuse.ir.scalar import Const, Expr, const
from taskfuse.ir.storage import has_code, storage_reads, storage_uses
from taskfuse.ir.tasks import Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import BLOCK_TYPES, CLUSTER_TYPES, GRID_TYPES, THREAD_TYPES, MemoryType, ParallelType
from taskfuse.lowering.scans import accumulates
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.layouts import layout
from taskfuse.testing.options import CaseOptions
from taskfuse.testing.partitions import is_vertical
from taskfuse.testing.program import Recorder, SpelledArgument

FACTORS = (2, 3, 4, 4, 5, 8)
BLOCKS_PER_TENSOR = 16
CLUSTER = 8
"""Most blocks of a cluster along one dimension."""
UNROLLED = 8
CLAIMING = 2
"""Loops over items that blocks claim: trips, and blocks."""
LEAST = CP_ASYNC.min_bytes

_X, _Y, _Z = THREAD_TYPES
BLOCKS = (
    ((_X, 32),),
    ((_X, 64),),
    ((_X, 32), (_Y, 4)),
    ((_X, 8), (_Y, 8)),
    ((_X, 128),),
    ((_X, 16), (_Y, 2), (_Z, 3)),
    ((_X, 4), (_X, 8)),
    ((_X, 8), (_Y, 2), (_X, 4)),
    ((_X, 96),),
    ((_Y, 8), (_X, 4)),
    ((_X, 2), (_Y, 32), (_Z, 2)),
    ((_X, 48), (_Y, 2)),
    ((_X, 12), (_Y, 8)),
    ((_X, 20),),
    ((_X, 40),),
)
"""Blocks of threads as (type, factor) per split: mostly whole warps; some repeat a type, and some need only a part of a warp."""


class CaseScheduler:
    """Schedules one fusion.

    Args:
        size: the value of an extent.
    """

    def __init__(self, chooser: Chooser, options: CaseOptions, recorder: Recorder, size: Callable[[Expr], int]) -> None:
        self.chooser = chooser
        self.options = options
        self.recorder = recorder
        self.fusion = recorder.fusion
        self.size = size
        self._block_share = options.block_types
        self._rings = False
        self._clusters = False
        self._claims = False
        self._widest: dict[ParallelType, int] = {}
        self._threads = chooser.pick(options.tensor_threads)

    def computed(self) -> list[TensorView]:
        """The computed tensors."""
        return [e.output for e in self.fusion.exprs() if has_code(self.fusion, e)]

    # -- new tensors ----------------------------------------------------------------------------------------------------------------

    def cache(self) -> None:
        """Put copies between tensors and their readers, or between tensors and their definitions."""
        if self.options.copies and self.chooser.chance(self.options.copies):
            for tv in self.chooser.some(self.fusion.inputs, 70):
                self.recorder.attempt(tv, "cache_after")
        if not self.chooser.chance(self.options.caches):
            return
        for tv in self.chooser.some(self.fusion.tensors(), 30):
            self.recorder.attempt(tv, "cache_after" if tv.is_input or self.chooser.chance(50) else "cache_before")

    def rows(self) -> None:
        """Copies of inputs in Shared memory, each in some layout."""
        for tv in self.chooser.some(self.fusion.inputs, self.options.rows):
            made: TensorView | None = self.recorder.attempt(tv, "cache_after")
            if made is not None:
                self.recorder.attempt(made, "set_memory_type", MemoryType.Shared)

    def rfactor(self) -> None:
        """Split a reduction axis and reduce one part in a tensor of its own."""
        for tv in self.computed():
            axes = [k for k, a in enumerate(tv.loop) if a.is_reduction]
            if not axes or not self.chooser.chance(self.options.rfactors):
                continue
            axis = self.chooser.pick(axes)
            if len(axes) == 1 or self.chooser.chance(50):
                self.recorder.attempt(tv, "split", axis, self.chooser.pick(FACTORS))
                axis += self.chooser.integer(0, 1)
            self.recorder.attempt(tv, "rfactor", [axis])

    # -- loops and what executes them -----------------------------------------------------------------------------------------------

    def loops(self) -> None:
        """Transform and bind loop axes, per task or for the whole fusion.

        Vertical groups on threads cannot pass data between blocks, so fusions with such groups bind blocks less often. Their outer loops
        mostly stay Serial, so that rings have several iterations.
        """
        self._rings = any(is_vertical(g) for g in self.fusion.tasks.groups())
        if self._rings and not self.options.block_roles and self.chooser.chance(75):
            self._block_share = 0
        self._clusters = self.chooser.chance(self.options.clusters)
        if self._clusters:
            self._block_share = 60
        if self.chooser.chance(self.options.persistent):
            self._persistent(self.computed())
            return
        if self.chooser.chance(self.options.nests):
            self._nested(self.computed())
            return
        block = self.chooser.pick(BLOCKS) if self.chooser.chance(self.options.warps) else None
        for scope in self._scopes():
            if block is not None:
                self._by_block(scope, block)
                continue
            match self.chooser.integer(0, 5):
                case 0 | 1 | 2:
                    self._by_position(scope)
                case 3 | 4:
                    self._by_reference(scope)
                case _:
                    for tv in scope:
                        if self.chooser.chance(self.options.transforms):
                            self._transform(tv)
                        self._reduce_last(tv)
                        self._bind(tv)

    def _reduce_last(self, tv: TensorView) -> None:
        """Mostly put reduction axes innermost: a loop inside a reduction loop needs a register per iteration."""
        order = sorted(range(len(tv.loop)), key=lambda k: tv.loop[k].is_reduction)
        if order != list(range(len(order))) and self.chooser.chance(80):
            self.recorder.attempt(tv, "reorder", order)

    def _scopes(self) -> list[list[TensorView]]:
        tensors = self.computed()
        if self.chooser.chance(75):
            return [tensors]
        scopes: dict[object, list[TensorView]] = {}
        for tv in tensors:
            scopes.setdefault(self.fusion.tasks.home(tv), []).append(tv)
        return list(scopes.values())

    def _by_position(self, scope: Sequence[TensorView]) -> None:
        """Schedule every tensor alike: the same split, and the same type for the axis at a position."""
        types = self._types(4)
        at = self.chooser.integer(0, 2) if self.chooser.chance(self.options.transforms) else None
        factor = self.chooser.pick(FACTORS)
        merged = self.chooser.chance(self.options.transforms // 4)
        order = self._order() if self.chooser.chance(self.options.varied) else None
        for tv in scope:
            if merged and len(tv.loop) > 1:
                self.recorder.attempt(tv, "merge", 0)
            if at is not None and at < len(tv.loop):
                self.recorder.attempt(tv, "split", at, factor)
            if order is not None and order[0] < len(tv.loop):
                self.recorder.attempt(tv, "rasterize", [order[0]], order[1])
            self._reduce_last(tv)
            for k, (axis, ptype) in enumerate(zip(tv.loop, types, strict=False)):
                if ptype is not ParallelType.Serial and self._affordable(tv, axis, ptype):
                    self.recorder.attempt(tv.axis(k), "parallelize", ptype)

    def _order(self) -> tuple[int, SpelledArgument]:
        """A loop axis, and an order of its values."""
        first = self.chooser.pick((1, -1, 2))
        orders = (("descending()", tf.tiles.descending()), (f"rotated({first})", tf.tiles.rotated(first)), ("raster()", tf.tiles.raster()))
        text, order = self.chooser.pick(orders)
        return self.chooser.integer(0, 2), SpelledArgument(f"tf.tiles.{text}", order)

    def _by_block(self, scope: Sequence[TensorView], block: Sequence[tuple[ParallelType, int]]) -> None:
        """Schedule every tensor for one block shape: an axis (a reduction axis if there is one) is split by each factor."""
        for tv in scope:
            self._reduce_last(tv)
            for ptype, factor in block:
                free = [k for k, a in enumerate(tv.loop) if tv.schedule.ptype(a) is ParallelType.Serial]
                if not free or self.chooser.chance(10):
                    continue
                reduced = [k for k in free if tv.loop[k].is_reduction]
                axis = self.chooser.pick(reduced if reduced and self.chooser.chance(75) else free)
                if self.recorder.attempt(tv, "split", axis, factor) is not None and self._affordable(tv, tv.loop[axis + 1], ptype):
                    self.recorder.attempt(tv.axis(axis + 1), "parallelize", ptype)

    def _persistent(self, scope: Sequence[TensorView]) -> None:
        """Schedule every tensor alike: a few blocks share the rows or tiles, and each loops over its share."""
        tiles = self.chooser.pick((2, 3, 4)) if self.chooser.chance(40) else None
        merged = self.chooser.integer(0, 2)
        blocks, ptype = self.chooser.pick((2, 3, 5, 4)), self.chooser.pick(BLOCK_TYPES)
        threads = self.chooser.pick(THREAD_TYPES)
        place = self.chooser.integer(2, 4)
        self._claims = self.chooser.chance(self.options.claims) and self._shares(scope, 2 if tiles is not None else 1 + merged)
        if self._claims:
            ptype = BLOCK_TYPES[0]
        for tv in scope:
            self._reduce_last(tv)
            kept = sum(not a.is_reduction for a in tv.loop)
            if tiles is not None and kept > 1:
                self.recorder.attempt(tv, "split", 1, tiles)
                self.recorder.attempt(tv, "split", 0, tiles)
                self.recorder.attempt(tv, "reorder", [0, 2, 1, *range(3, len(tv.loop))])
                self.recorder.attempt(tv, "merge", 0)
            for _ in range(0 if tiles is not None else min(merged, kept - 1)):
                self.recorder.attempt(tv, "merge", 0)
            split = tv.loop and self.recorder.attempt(tv, "split", 0, blocks) is not None
            if split and self._claims:
                self.recorder.attempt(tv, "rasterize", [1], SpelledArgument("tf.tiles.dynamic()", tf.tiles.dynamic()))
            if split and self._affordable(tv, tv.loop[1], ptype):
                self.recorder.attempt(tv.axis(1), "parallelize", ptype)
            if place < len(tv.loop) and not self.chooser.chance(10) and self._affordable(tv, tv.loop[place], threads):
                self.recorder.attempt(tv.axis(place), "parallelize", threads)

    def _shares(self, scope: Sequence[TensorView], axes: int) -> bool:
        """True if tensors read one another at their own place along some outer axes: one block may compute all of an item of work."""
        for tv in scope:
            expr = self.fusion.definition(tv)
            reads = [] if expr is None else [r for r in storage_reads(self.fusion, expr) if not r.tensor.is_input]
            if len(tv.root) < axes or any(a.is_reduction for a in tv.root[:axes]):
                return False
            if any(len(r.index) < axes or any(e is not iteration_symbol(k) for k, e in enumerate(r.index[:axes])) for r in reads):
                return False
        return True

    def _nested(self, scope: Sequence[TensorView]) -> None:
        """Schedule every tensor alike: split an axis and one of its parts again, mostly by a non-divisor, and bind some of the parts."""
        first = self.chooser.pick(range(max(1, *(len(tv.loop) for tv in scope))))
        splits = [(first, self.chooser.pick(FACTORS), not self.chooser.chance(25))]
        for _ in range(self.chooser.integer(1, 2)):
            splits.append((first + self.chooser.integer(0, 1), self.chooser.pick(FACTORS), not self.chooser.chance(25)))
        types = self._types(first + len(splits) + 1)
        for tv in scope:
            self._reduce_last(tv)
            for at, factor, inner in splits:
                if at < len(tv.loop):
                    self.recorder.attempt(tv, "split", at, factor, **({} if inner else {"inner": False}))
            for k, (axis, ptype) in enumerate(zip(tv.loop, types, strict=False)):
                if ptype is not ParallelType.Serial and not self.chooser.chance(10) and self._affordable(tv, axis, ptype):
                    self.recorder.attempt(tv.axis(k), "parallelize", ptype)

    def _by_reference(self, scope: Sequence[TensorView]) -> None:
        """Propagate one tensor's transforms to the others."""
        reference = self.chooser.pick([tv for tv in scope if len(tv.loop) == max(len(t.loop) for t in scope)])
        self._transform(reference)
        self._reduce_last(reference)
        others = [tv for tv in scope if tv is not reference]
        if not others:
            self._bind(reference)
            return
        upto = self.chooser.integer(1, max(len(reference.loop), 1)) if self.chooser.chance(40) and reference.loop else None
        if upto is None:
            self.recorder.attempt(reference, "propagate", others)
        else:
            self.recorder.attempt(reference, "propagate", others, upto)
        self._bind(reference)
        self.recorder.attempt(tf, "parallelize_like", reference, others)

    def _transform(self, tv: TensorView) -> None:
        for _ in range(self.chooser.integer(1, 3)):
            n = len(tv.loop)
            if n == 0:
                return
            axis = self.chooser.integer(0, n - 1)
            match self.chooser.integer(0, 7):
                case 0 | 1 | 2 | 3:
                    self.recorder.attempt(tv, "split", axis, self.chooser.pick(FACTORS), **({"inner": False} if self.chooser.chance(25) else {}))
                case 4 | 5 if n > 1:
                    other = self.chooser.integer(0, n - 2)
                    self.recorder.attempt(tv, "merge", other, *([self.chooser.integer(0, n - 1)] if self.chooser.chance(25) else []))
                case 6 if n > 1:
                    self._swizzle(tv)
                case _:
                    self.recorder.attempt(tv, "reorder", self.chooser.order(range(n)))

    def _swizzle(self, tv: TensorView) -> None:
        """Split two axes to a power of two and swizzle the inner parts."""
        n = len(tv.loop)
        first = self.chooser.integer(0, n - 2)
        factor = self.chooser.pick((2, 4))
        if self.recorder.attempt(tv, "split", first + 1, factor) is None or self.recorder.attempt(tv, "split", first, factor) is None:
            return
        self.recorder.attempt(tv, "swizzle", first + 1, first + 3)

    def _types(self, count: int) -> list[ParallelType]:
        """Types for ``count`` axes, outermost first; Serial is common, a repeated type is rare."""
        blocks = [ParallelType.Serial, *self.chooser.order(BLOCK_TYPES)]
        threads = [ParallelType.Serial, *self.chooser.order(THREAD_TYPES)]
        found: list[ParallelType] = []
        for k in range(count):
            if k == 0 and self._rings and self.chooser.chance(65):
                found.append(ParallelType.Serial)
                continue
            ptype = self.chooser.pick(blocks[:2] if self.chooser.chance(self._block_share) else threads[:3])
            if ptype.is_block and self._clusters and self.chooser.chance(60):
                ptype = CLUSTER_TYPES[BLOCK_TYPES.index(ptype)]
            if ptype in found and not self.chooser.chance(12):
                ptype = ParallelType.Serial
            found.append(ptype)
        return found

    def _bind(self, tv: TensorView) -> None:
        for k, ptype in enumerate(self._types(len(tv.loop))):
            axis = tv.loop[k]
            if ptype is ParallelType.Serial:
                constant = isinstance(axis.extent, Const) and axis.extent.value <= UNROLLED
                if not constant or not self.chooser.chance(20):
                    continue
                ptype = ParallelType.Unroll
            elif not self._affordable(tv, axis, ptype):
                continue
            self.recorder.attempt(tv.axis(k), "parallelize", ptype)

    def _affordable(self, tv: TensorView, axis: Axis, ptype: ParallelType) -> bool:
        """True if the axis may be bound within the limits on threads and blocks, per tensor and in total; it then counts as bound."""
        if isinstance(tv.definition, Scan) and accumulates(tv.definition, axis):
            return False
        kind = THREAD_TYPES if ptype.is_thread else GRID_TYPES
        size = self.size(axis.extent)
        bound = math.prod(self.size(a.extent) for a in tv.loop if tv.schedule.ptype(a) in kind)
        own = math.prod(self.size(a.extent) for a in tv.loop if tv.schedule.ptype(a) is ptype) * size
        widest = math.prod(max(self._widest.get(p, 1), own if p is ptype else 1) for p in kind)
        most, together = (self._threads, self.options.bound_threads) if ptype.is_thread else (BLOCKS_PER_TENSOR, self.options.blocks)
        if ptype.is_cluster and not (isinstance(axis.extent, Const) and own <= CLUSTER):
            return False
        if bound * size > most or widest > together:
            return False
        self._widest[ptype] = max(self._widest.get(ptype, 1), own)
        return True

    def vectorize(self) -> None:
        """Vectorize some copies."""
        for tv in self.computed():
            match self.fusion.definition(tv):
                case Pointwise(op=op, operands=(Read(tensor=source),)) if (
                    op is ELEMENTWISE["copy"] and source.is_input and not self._claims and self.options.copies and self.chooser.chance(self.options.copies)
                ):
                    self._copy_asynchronously(tv)
                case Pointwise(op=op) if op is ELEMENTWISE["copy"] and tv.loop and self.chooser.chance(40):
                    width = self.chooser.pick((2, 4))
                    last = tv.loop[-1].extent
                    if isinstance(last, Const) and last.value and last.value % width == 0:
                        self.recorder.attempt(tv, "split", -1, width)
                        self.recorder.attempt(tv.axis(-1), "parallelize", ParallelType.Vectorize)
                case _:
                    pass

    def _copy_asynchronously(self, tv: TensorView) -> None:
        """A copy of an input to Shared memory by ``cp.async``, of 4, 8 or 16 bytes."""
        size = tv.dtype.itemsize
        width = max(self.chooser.pick((4, 8, 16)) // size, 1)
        last = tv.loop[-1].extent if tv.loop else const(1)
        if width > 1 and isinstance(last, Const) and last.value and last.value % width == 0:
            self.recorder.attempt(tv, "split", -1, width)
        elif size < LEAST:
            return
        else:
            width = 1
        if self.recorder.attempt(tv, "set_atom", CP_ASYNC, [-1] if width > 1 else []) is not None:
            self.recorder.attempt(tv, "set_memory_type", MemoryType.Shared)

    # -- sharing loops --------------------------------------------------------------------------------------------------------------

    def inline(self) -> None:
        """Share loops: as deep as possible, at random, or not at all."""
        match self.chooser.integer(0, 15):
            case 0:
                return
            case 1 | 2 | 3 if self.chooser.chance(self.options.varied):
                some = [tv for tv in self.chooser.some(self.computed(), 60) if tv.loop and tv.uses]
                for group in (some, some[:2], some[1:]):
                    if group:
                        self.recorder.attempt(self.fusion, "inline_at", group, self.chooser.integer(1, min(len(tv.loop) for tv in group)))
            case 1 | 2:
                for tv in self.chooser.some(self.computed(), 60):
                    if tv.loop and tv.uses:
                        self.recorder.attempt(tv, "inline_at", self.chooser.integer(1, len(tv.loop)))
            case _:
                self.recorder.attempt(self.fusion, "inline_most")
                for tv in self.chooser.some(self.computed(), 12):
                    if tv.schedule.inline:
                        self.recorder.attempt(tv, "inline_at", self.chooser.integer(0, tv.schedule.inline))

    def distribute(self) -> None:
        """Bind an outer axis of one task to threads and leave it Serial in the producers that share its loop: the channel is then distributed."""
        if not self._rings or not self.chooser.chance(self.options.distributed):
            return
        tasks: dict[Task, None] = {}
        for tv in self.computed():
            if tv.schedule.inline and tv.schedule.ptype(tv.loop[0]) is ParallelType.Serial:
                homes = [self.fusion.tasks.home(u.output) for u in storage_uses(self.fusion, tv)]
                tasks.update({home: None for home in homes if home is not None and home is not self.fusion.tasks.home(tv)})
        if not tasks:
            return
        task = self.chooser.pick(list(tasks))
        ptype = self.chooser.pick(THREAD_TYPES)
        for tv in self.computed():
            serial = tv.loop and tv.schedule.ptype(tv.loop[0]) is ParallelType.Serial
            if serial and self.fusion.tasks.home(tv) is task and self._affordable(tv, tv.loop[0], ptype):
                self.recorder.attempt(tv.axis(0), "parallelize", ptype)

    # -- memory ---------------------------------------------------------------------------------------------------------------------

    def rings(self) -> None:
        """Add circular buffers: mostly between tasks, and within tasks in Shared memory or registers; none whose slots follow items that blocks claim."""
        for tv in self.computed():
            if self._claims and tv.schedule.inline <= CLAIMING:
                continue
            home = self.fusion.tasks.home(tv)
            crosses = any(self.fusion.tasks.home(u.output) is not home for u in storage_uses(self.fusion, tv))
            if self.chooser.chance(self.options.stages if crosses else self.options.prefetch):
                self.recorder.attempt(tv, "circular_buffer", self.chooser.pick((2, 3, 4, 1, 2)))
                if not crosses and tv.uses and self.chooser.chance(60):
                    self.recorder.attempt(tv, "set_memory_type", MemoryType.Shared)

    def memory(self) -> None:
        """Memory types and allocation domains. Most tensors whose size per thread is not a constant go to memory, as no register array can hold them."""
        for tv in self.computed():
            rest = [a for a in tv.loop[tv.schedule.inline :] if tv.schedule.ptype(a).is_loop and not a.is_reduction]
            if tv.uses and any(not isinstance(a.extent, Const) for a in rest) and self.chooser.chance(80):
                self.recorder.attempt(tv, "set_memory_type", MemoryType.Shared)
        for tv in self.computed():
            if self.options.rows and tv.schedule.memory is MemoryType.Shared and tv.logical and self.chooser.chance(60):
                self._lay_out(tv)
        for tv in self.chooser.some(self.computed(), self.options.memory):
            self.recorder.attempt(tv, "set_memory_type", self.chooser.pick((MemoryType.Shared, MemoryType.Global, MemoryType.Local)))
            if tv.logical and self.chooser.chance(30):
                self._lay_out(tv)

    def _lay_out(self, tv: TensorView) -> None:
        if self.chooser.chance(self.options.varied):
            k = self.chooser.integer(0, tv.ndim - 1)
            turned = SpelledArgument(f"tf.layouts.turned({k})", tf.layouts.turned(k))
            by_threads = SpelledArgument("tf.layouts.by_threads()", tf.layouts.by_threads())
            self.recorder.attempt(tv, "set_allocation_domain", self.chooser.pick((turned, by_threads)))
            return
        self.recorder.attempt(tv, "set_allocation_domain", layout(self.chooser, tv, self.recorder.text(tv)))
