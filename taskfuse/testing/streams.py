"""Random streaming pipelines: bulk copies load tiles of inputs, threads compute, bulk copies store tiles of outputs.

Each block or cluster takes its share of the tiles. The blocks of a cluster have neighboring tiles along one dimension: an input without that
dimension is the same for all of them, and one multicast copy loads it. The generator skips calls that taskfuse refuses, such as bulk copies of
unsupported tile shapes.
"""

from __future__ import annotations

from collections.abc import Callable

import taskfuse as tf
from taskfuse.ir.atoms import TMA_LOAD, TMA_LOAD_MULTICAST, TMA_STORE
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import ONE, Const, Expr
from taskfuse.ir.storage import has_code
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import THREAD_TYPES, MemoryType, ParallelType
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.program import Recorder, SpelledArgument

THREADS = 64
OUTER = 2
"""Loops around a tile: trips, blocks."""


def stream(chooser: Chooser, recorder: Recorder, size: Callable[[Expr], int], clusters: int = 0) -> None:
    """Schedule the fusion as a stream: tasks, tiles, memory, rings.

    Args:
        size: the value of an extent.
        clusters: share of streams in which clusters take the tiles, in percent.
    """
    _Stream(chooser, recorder, size, clusters).run()


class _Stream:
    def __init__(self, chooser: Chooser, recorder: Recorder, size: Callable[[Expr], int], clusters: int) -> None:
        self.chooser = chooser
        self.recorder = recorder
        self.fusion = recorder.fusion
        self.size = size
        self.clusters = clusters
        self.outer = OUTER

    def run(self) -> None:
        inputs = [tv for tv in self.fusion.inputs if self.chooser.chance(80)]
        loads = [tv for x in inputs if (tv := self.recorder.attempt(x, "cache_after")) is not None]
        outputs = [tv for tv in self.fusion.outputs if self.chooser.chance(75)]
        ends = {y: tv for y in outputs if (tv := self.recorder.attempt(y, "cache_before")) is not None}
        tensors = [e.output for e in self.fusion.exprs() if has_code(self.fusion, e)]
        stores = [tv for tv in tensors if tv in ends]
        self._tiles(tensors, [*loads, *stores])
        computed = [tv for tv in tensors if not among(tv, (*loads, *stores))]
        for tv in computed:
            self._threads(tv)
        for tv in (*loads, *stores):
            atom = TMA_STORE if among(tv, stores) else TMA_LOAD_MULTICAST if self._is_common(tv) else TMA_LOAD
            self.recorder.attempt(tv, "set_atom", atom, list(range(self.outer, len(tv.loop))))
        rings = [*loads, *ends.values()]
        for tv in rings:
            self.recorder.attempt(tv, "set_memory_type", MemoryType.Shared)
            if self.chooser.chance(25):
                span = self.chooser.pick((32, 64, 128))
                layout = SpelledArgument(f"tf.layouts.swizzled({span})", tf.layouts.swizzled(span))
                self.recorder.attempt(tv, "set_allocation_domain", layout)
        self._tasks([loads, computed, stores])
        self.recorder.attempt(self.fusion, "inline_most")
        for tv in rings:
            if len(tv.loop) > self.outer:
                self.recorder.attempt(tv, "inline_at", self.chooser.pick((self.outer, self.outer, self.outer, 1)))
            self.recorder.attempt(tv, "circular_buffer", self.chooser.pick((2, 3, 1, 4)))

    def _is_common(self, tv: TensorView) -> bool:
        """True for tensors that the blocks of a cluster share."""
        return self.outer > OUTER and len(tv.loop) > self.outer and tv.loop[OUTER].is_foreign

    def _tiles(self, tensors: list[TensorView], moved: list[TensorView]) -> None:
        """Give every tensor the loops [trip, block, tile ...] of the tensor with most axes; tiles of bulk copies keep their axes.

        With clusters: [trip, cluster, block in it, tile ...].
        """
        columns, rows, blocks = self.chooser.pick((32, 16, 64)), self.chooser.pick((4, 8, 2)), self.chooser.pick((2, 3, 1, 4))
        reference = max(tensors, key=lambda tv: len(tv.loop))
        n = len(reference.loop)
        shared = self._cluster(reference)
        for k in reversed(range(n)):
            size = columns if k == n - 1 else rows if k == n - 2 else self.chooser.pick((1, 2))
            self.recorder.attempt(reference, "split", k, shared[1] if shared is not None and k == shared[0] else size)
        if len(reference.loop) == 2 * n:
            self.recorder.attempt(reference, "reorder", [*range(0, 2 * n, 2), *range(1, 2 * n, 2)])
            if shared is not None:  # after the merged axes
                self.recorder.attempt(reference, "reorder", [*(j for j in range(n) if j != shared[0]), shared[0], *range(n, 2 * n)])
                self.outer = OUTER + 1
        for _ in range(n - 1 - (self.outer - OUTER)):
            self.recorder.attempt(reference, "merge", 0)
        if n:
            self.recorder.attempt(reference, "split", 0, blocks)
        others = [tv for tv in tensors if tv is not reference]
        full = [tv for tv in others if not among(tv, moved)]
        if full:
            self.recorder.attempt(reference, "propagate", full)
        for tv in others:
            if among(tv, moved):
                self.recorder.attempt(reference, "propagate", [tv], min(self.outer, len(reference.loop)))
        for tv in tensors:
            if len(tv.loop) >= OUTER:
                self.recorder.attempt(tv.axis(1), "parallelize", ParallelType.BIDx)
            if len(tv.loop) > OUTER and self.outer > OUTER:
                self.recorder.attempt(tv.axis(OUTER), "parallelize", ParallelType.CIDx)

    def _cluster(self, tv: TensorView) -> tuple[int, int] | None:
        """An axis to distribute over the blocks of a cluster, mostly one that an input lacks, and the tile size; ``None``: no clusters."""
        sizes = {k: a.extent.value for k, a in enumerate(tv.loop) if isinstance(a.extent, Const) and a.extent.value > 1}
        if len(tv.loop) < 2 or not sizes or not self.chooser.chance(self.clusters):
            return None
        n = len(tv.loop)
        lacking = [k for k in sizes if any(x.ndim < n - k or x.shape[k - n] is ONE for x in self.fusion.inputs)]
        k = self.chooser.pick(lacking if lacking and self.chooser.chance(80) else list(sizes))
        return k, -(-sizes[k] // self.chooser.pick((2, 2, 4)))

    def _threads(self, tv: TensorView) -> None:
        """Bind the axes of a tile while threads remain."""
        left = THREADS
        for k, ptype in zip(range(len(tv.loop) - 1, self.outer - 1, -1), THREAD_TYPES[:2], strict=False):
            n = self.size(tv.loop[k].extent)
            if n <= left and not self.chooser.chance(15):
                self.recorder.attempt(tv.axis(k), "parallelize", ptype)
                left //= max(n, 1)

    def _tasks(self, parts: list[list[TensorView]]) -> None:
        members = [task for part in parts if part and (task := self.recorder.attempt(self.fusion, "task", part)) is not None]
        group = self.recorder.attempt(self.fusion, "group", members) if len(members) > 1 else None
        if group is not None:
            self.recorder.attempt(group, "parallelize", self.chooser.pick((THREAD_TYPES[1], THREAD_TYPES[2], THREAD_TYPES[0])))
