"""Reductions of a matrix product's result: found after its epilogue, and scheduled with it.

The contribution of a tile to a sum is a **part**, computed where the tile lies in registers: each thread adds up its elements, the lanes of a quad
(along a row) or of a warp (along a column) combine these by shuffles, and a warp stores its part to Global memory. When all blocks have
stored theirs, the threads that multiplied add up the parts, always in the same order: there are no atomics, so results do not depend on timing.

    part     of rows: one per tile along n;  of columns: one per 16 rows, which a warp holds
    finish   after the loop over tiles and a grid barrier: [wave, block, parts over TIDx and TIDy, 32 elements over TIDx, parts]
"""

from __future__ import annotations

from taskfuse.ir.atoms import WGMMA_ROWS
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import const
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule import layouts
from taskfuse.schedulers.config import MatmulConfig
from taskfuse.schedulers.epilogue import Reduced
from taskfuse.schedulers.script import Recorded, Script, Spelled
from taskfuse.target import WARP

WARP_ROWS = 16
"""Rows of a tile that a warp holds together."""
FINISHING_WARPS = 4
ROWMAJOR = Spelled(layouts.rowmajor(), "tf.layouts.rowmajor()")


class ProductReductions:
    """The schedule of the reductions of one product.

    Args:
        order: the places of the contraction's batch axes, of m and of n.
        finals: elementwise tensors computed from reductions.
    """

    def __init__(
        self, script: Script, config: MatmulConfig, order: tuple[int, ...], tiles: Spelled, reductions: tuple[Reduced, ...], finals: tuple[TensorView, ...]
    ) -> None:
        self.script = script
        self.config = config
        self.order = order
        self.tiles = tiles
        self.reductions = reductions
        self.finals = finals
        self.tensors: list[TensorView] = []

    @property
    def finishing(self) -> list[TensorView]:
        """The tensors computed after all parts are complete."""
        return [*(r.tensor for r in self.reductions), *self.finals]

    def split_off(self) -> None:
        """Split off the parts by tiles: [wave, block, m, n] with the rows of a warp apart: [wave, block, warpgroup, (rows of 64,) piece, warp, 16, 64]."""
        if not self.reductions:
            return
        self.script.comment("partial results of the reductions: those of each warp, stored by tiles")
        self.tensors = [self._part(r) for r in self.reductions]

    def _part(self, reduced: Reduced) -> TensorView:
        script, batch = self.script, len(self.order) - 2
        m, n = batch, batch + 1
        call = script.on(reduced.tensor)
        order = [reduced.places.index(p) for p in self.order]
        if order != sorted(order):
            call.reorder(order)
        over = [self.order[m] in reduced.over, self.order[n] in reduced.over]
        inside: list[int] = []
        if over[1]:
            call.split(n, self.config.tile_n)
            inside.append(n + 1)
        if over[0]:
            steps = self._split_rows(call, m)
            inside = [m + steps, *(d + steps for d in inside)]
        part = script.new(reduced.tensor, "rfactor", inside)
        call = script.on(part)
        if not over[0]:
            self._split_rows(call, m)
        rows = self._row_axes  # [batch.., m tile, warpgroup, (rows of 64,) warp, 16, n..]
        if not over[1]:
            call.split(m + rows + 1, self.config.tile_n)
        tile = m + rows + 1
        call.reorder([*range(batch), m, tile, *range(m + 1, tile), tile + 1])
        call.rasterize(tuple(range(batch + 2)), self.tiles).split(0, self.config.blocks)
        call.split(-1, self.config.columns).reorder({-2: rows})
        call.bind(1, P.BIDx)
        call.bind(2, P.TIDy)
        for axis in range(3, rows + 1):
            call.bind(axis, P.Unroll)
        call.bind(rows + 1, P.TIDx)
        call.fragment((rows + 2, rows + 3))
        call.set_memory_type(MemoryType.Global).set_allocation_domain(ROWMAJOR)
        return part

    @property
    def _row_axes(self) -> int:
        """Axes of a tile's rows: warpgroup, (rows of 64,) warp, 16."""
        return 3 if self.config.rows == WGMMA_ROWS else 4

    def _split_rows(self, call: Recorded, m: int) -> int:
        """Split rows by tile, warpgroup, 64 and warp. Returns how many axes there are more."""
        call.split(m, self.config.tile_m).split(m + 1, self.config.rows)
        at = m + 2
        if self._row_axes == 4:
            call.split(at, WGMMA_ROWS)
            at += 1
        call.split(at, WARP_ROWS)
        return at + 1 - m

    def finish(self) -> None:
        """Distribute the sums of the parts over all threads that multiplied."""
        if not self.reductions:
            return
        self.script.comment("finish: sums of the partial results, distributed over warps")
        for reduced in self.reductions:
            self._spread_sums(reduced)
        for tv in self.finals:
            call = self.script.on(tv)
            if self._spread_elements(call, tv):
                call.bind(1, P.BIDx)
                call.bind(2, P.TIDx)
        for tv in self.finishing:
            if tv.uses and any(tv.schedule.ptype(a) is P.BIDx for a in tv.loop):
                self.script.on(tv).inline_at(3 if among(tv, self.finals) else 2)

    def _spread_elements(self, call: Recorded, tv: TensorView) -> bool:
        """Bring the elements of ``tv`` into [wave, block, 32, axes of extent 1, parts]. False if it has but one."""
        parts = [d for d, a in enumerate(tv.loop) if a.is_reduction]
        ones = [d for d, a in enumerate(tv.loop) if not a.is_reduction and a.extent is const(1)]
        kept = [d for d in range(len(tv.loop)) if d not in parts and d not in ones]
        order = [*kept, *ones, *parts]
        if order != sorted(order):
            call.reorder(order)
        for _ in kept[1:]:
            call.merge(0)
        if kept:
            call.split(0, WARP).split(0, self.config.blocks)
        return bool(kept)

    def _spread_sums(self, reduced: Reduced) -> None:
        """[wave, block, parts over TIDx, 32 elements over TIDx, parts]: parts of a warp by the same warp, those along n by four warps or by lanes."""
        call, tv = self.script.on(reduced.tensor), reduced.tensor
        is_spread = self._spread_elements(call, tv)
        over_m, over_n = (p in reduced.over for p in self.order[-2:])
        first = next(d for d, a in enumerate(tv.loop) if a.is_reduction)
        tile = first + sum(p in reduced.over for p in self.order[:-2])  # [batch.., m tile, warpgroup, (rows of 64,) warp, n tile], as far as they are reduced
        lanes = [tile + self._row_axes - 1] if over_m else []
        if over_n and not (is_spread and over_m):
            call.split(-1, FINISHING_WARPS if is_spread else WARP)
            lanes.append(len(tv.loop) - 1)
        if is_spread:
            call.reorder({lanes[0]: 2})
            call.bind(1, P.BIDx)
            tile, lanes = tile + 1, [2, 3]
        if over_m:
            call.bind(tile + 1, P.TIDy)
        for axis in lanes:
            call.bind(axis, P.TIDx)
