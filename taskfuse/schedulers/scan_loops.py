"""The schedule of scans: rows over blocks and threads, chunks of a row over threads, elements and vectors of a thread.

    inner (the last axis is scanned)    [rows: BIDx, TIDy | chunk: TIDx, element of the chunk (, vector)]
    outer (another one is)              [rows: BIDx | chunk: TIDy | row: TIDx | element of the chunk (, vector of rows)]

The totals of the chunks are scanned in Shared memory, themselves in chunks if they are many (:meth:`~taskfuse.ir.tensor.TensorView.chunk_scan`). A scan that
is read at other points than its own is stored in Shared memory, and its readers have loops of their own there; so are inputs whose neighbors belong to
different rows, where those of a reader do not.

    readers of inner ones               [rows: BIDx, TIDy | element: trip, TIDx]
    readers of outer ones               [rows: BIDx | element: TIDy | row: TIDx | trips] or, where elements lie side by side, TIDy and TIDx the other way round
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from taskfuse.ir.expr import Scan
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const
from taskfuse.ir.storage import needed
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.allocation import allocation
from taskfuse.schedulers.elementwise import Leaf, bind_vectors, is_coalesced, registers
from taskfuse.schedulers.scan_cost import ScanConfig
from taskfuse.schedulers.scan_spaces import ScanSpaces, find_spaces
from taskfuse.schedulers.script import Recorded, Script, Spelled


class ScanLoops(NamedTuple):
    """What a schedule of scans is made of.

    Attributes:
        config: the parameters.
        longest: the most elements of a row.
        vector: elements of a vector: of a row, or of neighboring rows.
        held: the most totals that one thread scans.
        totals: how many it has of more.
    """

    config: ScanConfig
    longest: int
    vector: int
    held: int
    totals: int

    @property
    def threads(self) -> int:
        """The most threads of a row."""
        return ceil(self.longest / self.config.chunk)


class ScanSchedule:
    """The calls for a fusion in which all is computed at its readers' points.

    Args:
        leaves: what it loads.
        beside: see :func:`~taskfuse.schedulers.scan_spaces.find_spaces`.
    """

    def __init__(self, script: Script, plan: ScanLoops, leaves: Sequence[Leaf], beside: int | None) -> None:
        self.script = script
        self.fusion = script.fusion
        self.plan = plan
        self.leaves = leaves
        self.loads = [leaf.tensor for leaf in leaves]
        registers(script, self.fusion.outputs, self.loads, plan.vector)
        self.spaces = find_spaces(self.fusion, beside)
        self.axis = self.spaces.axis
        self.is_inner = self.spaces.is_inner
        length = self.spaces.axes[self.axis].extent
        is_whole = not self.is_inner and plan.longest <= plan.config.chunk and isinstance(length, Const) and not self.spaces.shared
        self.is_whole = is_whole  # a thread has all of a row

    def apply(self) -> int:
        """Make the calls. Returns the number of levels of totals."""
        script, fusion, vector, spaces = self.script, self.fusion, self.plan.vector, self.spaces
        levels, chunked = 0, set[TensorView]()
        if not self.is_whole:
            script.comment("rows in chunks; the totals of chunks in chunks, too")
            for tv in [e.output for e in needed(fusion) if isinstance(e, Scan)]:
                levels = max(levels, self._chunk(tv, chunked))
        rowwise = [e.output for e in needed(fusion) if e.output not in chunked]
        if self.is_inner:
            script.comment("[row block, row, chunk: thread, element, vector]")
        else:
            script.comment("[row block, row, element, vector of rows]" if self.is_whole else "[row block, chunk: thread, row, element, vector of rows]")
        for tv in [tv for tv in rowwise if tv not in spaces.others]:
            loops = self._loops(tv, 1, 0 if self.is_whole else self.plan.config.chunk)
            if self.is_inner:
                loops.split(-1, vector)
        shared = self._elsewhere([tv for tv in rowwise if tv in spaces.others]) if spaces.shared else []
        script.comment("vectors; everything inlined as deep as possible")
        own = [leaf for leaf in self.leaves if leaf.tensor not in spaces.others]
        bind_vectors(script, own, [tv for tv in fusion.outputs if tv not in spaces.others], vector)
        inner = [e.output for e in needed(fusion) if not among(e.output, fusion.outputs) and not among(e.output, shared)]
        if self.is_whole:  # all elements of a thread are loaded before it adds the first
            script.inline_most([tv for tv in inner if not among(tv, self.loads)])
            script.inline_at([tv for tv in inner if among(tv, self.loads)], 1 + (self.plan.config.rows > 1))
        else:
            script.inline_most(inner)
            script.inline_at(shared, min(1, len(spaces.own.kept)))
        return levels

    def _chunk(self, tv: TensorView, chunked: set[TensorView]) -> int:
        """Chunks, and chunks of the totals, added to ``chunked``. Returns how many levels there are."""
        script, elements, extent, levels = self.script, self.plan.longest, self.plan.config.chunk, 0
        while True:
            terms, local, totals, sums, before = made = script.chunk_scan(tv, extent)
            chunked.update(made)
            for new, tail in ((terms, 2), (local, 2), (totals, 1), (before, 1)):
                self._loops(new, tail)
            if levels:
                self._loops(tv, 1, extent)
            elements, extent, tv, levels = ceil(elements / extent), self.plan.totals, sums, levels + 1
            if elements <= self.plan.held:
                self._loops(sums, 1, is_bound=False)
                script.on(sums).set_memory_type(MemoryType.Shared)
                return levels

    def _loops(self, tv: TensorView, tail: int, split: int = 0, *, is_bound: bool = True) -> Recorded:
        """All axes but the ``tail`` of a row over blocks and threads; the first of these, or chunks of it, over other threads, if ``is_bound``. Neighboring
        threads have neighbors in memory."""
        call, kept = self.script.on(tv), tv.ndim - tail
        if not self.is_inner:
            call.reorder([*(k if k < self.axis else k + tail - 1 for k in self.spaces.own.kept), *range(self.axis, self.axis + tail)])
            if self.plan.vector > 1:
                call.split(kept - 1, self.plan.vector).reorder({kept: -1})
        types = self._rows(call, kept)
        position = len(types)
        if split:
            call.split(position, split)
        if self.is_inner:
            types += [P.TIDx] * is_bound
        elif not self.is_whole:
            call.reorder({1: 2} if position > 1 else {})
            types.insert(1, P.TIDy if is_bound else P.Serial)
        return _bind(call, types)

    def _rows(self, call: Recorded, kept: int) -> list[P]:
        """The first ``kept`` axes as rows of blocks. Returns what they are to be bound to."""
        for _ in range(kept - 1):
            call.merge(0)
        if kept and self.plan.config.rows > 1:
            call.split(0, self.plan.config.rows)
            return [P.BIDx, P.TIDy if self.is_inner else P.TIDx]
        return [P.BIDx] * (kept > 0)

    # -- readers at other points ------------------------------------------------------------------------------------------------------

    def _elsewhere(self, readers: Sequence[TensorView]) -> list[TensorView]:
        """Loops of ``readers`` with other axes than the scans. Returns what they find in Shared memory."""
        script, fusion, spaces = self.script, self.fusion, self.spaces
        shared = [e.output for e in needed(fusion) if e.output in spaces.shared]
        staged = [leaf.tensor for leaf in self.leaves if is_turned(fusion, leaf, spaces)]
        script.comment("what threads read of one another in Shared memory; neighboring threads in different banks")
        for tv in readers:
            self._walk(tv, is_along=spaces.of(tv).is_along and not among(tv, staged))
        for tv in (*shared, *staged):
            script.on(tv).set_memory_type(MemoryType.Shared)
            self._layout(tv, tv in spaces.others)
        return [*shared, *staged]

    def _walk(self, tv: TensorView, *, is_along: bool) -> None:
        """Rows over blocks and threads as those of the scans are, and the elements of each over threads.

        Args:
            is_along: neighboring threads have neighboring elements of a row.
        """
        space, call = self.spaces.of(tv), self.script.on(tv)
        order = [*space.kept, *(() if space.walk is None else (space.walk,))]
        if order != sorted(order):
            call.reorder(order)
        types = self._rows(call, len(space.kept))
        last = len(types)
        if space.walk is None:
            pass
        elif self.is_inner:
            call.split(last, self.plan.threads).reorder({last + 1: last})
            types.append(P.TIDx)
        elif last > 1 and is_along:
            call.split(2, self.plan.config.rows).split(1, self.plan.threads).reorder([0, 2, 4, 1, 3])
            types = [P.BIDx, P.TIDy, P.TIDx]
        else:
            call.split(last, self.plan.threads).reorder({last + 1: 1})
            types.insert(1, P.TIDy)
        _bind(call, types)

    def _layout(self, tv: TensorView, is_walked: bool) -> None:
        """Elements of neighboring rows side by side, where these are those of neighboring threads; and places more where the next ones begin."""
        call, builder, walk = self.script.on(tv), allocation(tv), self.spaces.of(tv).walk
        text = f"tf.allocation({call.name})"
        if self.is_inner:  # [rows, chunk, element, vector]: threads store elements of their chunks at a time
            builder.merge(-2)
            text += ".merge(-2)"
        elif self.plan.config.rows > 1:  # [row block, chunk, row, element (, vector of rows)]
            order = [0, 3, 1, 2] if is_walked else [0, 1, 3, 2, *range(4, len(builder.axes))]
            builder.reorder(order)
            text += f".reorder({order})"
            if walk is not None and isinstance(tv.root[walk].extent, Const):  # else the parts of an index stay apart, which is what is proved of them
                builder.merge(1)
                text += ".merge(1)"
        else:
            return
        if self.is_inner or self.plan.vector == 1:
            builder.pad(-1, self.plan.vector)  # vectors begin at multiples of their length
            text += f".pad(-1, {self.plan.vector})"
        call.set_allocation_domain(Spelled(builder, text))


def is_turned(fusion: Fusion, leaf: Leaf, spaces: ScanSpaces) -> bool:
    """True if neighbors in memory of what a tensor loads belong to different rows, and those of its reader do not."""
    tv, space = leaf.tensor, spaces.of(leaf.tensor)
    if spaces.is_inner or space.is_own or not space.is_along:
        return False
    return all(not is_coalesced(fusion, r, tv) and is_coalesced(fusion, r, tv, space.kept[-1]) for r in leaf.reads)


def _bind(call: Recorded, types: Sequence[P]) -> Recorded:
    """Bind the first loops, but those that stay serial."""
    for axis, p in enumerate(types):
        if p is not P.Serial:
            call.bind(axis, p)
    return call
