"""The persistent, warp-specialized matmul: a ring of operand tiles between a role that loads and one that multiplies and stores.

    load       for each tile of this block, for each step of k: TMA of A and B into a slot
    consumer   for each tile of this block: for each step of k: wgmma from the slot; then, 64 x 64 at a time, the epilogue in registers,
               stmatrix to a staging slot, TMA store; while that goes on the role that loads is a ring ahead, in the next tile

Several contractions of one tile have accumulators each, which the epilogue takes together. If they have a factor in common, a slot holds the tiles of all
for a step of k; otherwise they walk along k one after another, and their tiles through one ring.

Where the result is the part of an output that lacks some rows of its tiles, no bulk copy can store a tile: each warp stores the rows that it staged, 16 bytes
of each thread, those that belong to the part.

Cooperative, the warpgroups of ``consumer`` share each tile by rows; ping-pong, they take tiles in turns: the loop over tiles is split by their
number, and in ``consumer`` the inner axis is a thread index. In a cluster the blocks compute tiles one above the other, and share one copy of B.
Loops of all kinds begin with *head* axes: [wave, (turn,) block, (rank)].

Everything is a public scheduling call; a :class:`~taskfuse.schedulers.script.Script` writes them down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from taskfuse import tiles
from taskfuse.ir import atoms
from taskfuse.ir.atoms import WGMMA_K_BYTES, WGMMA_ROWS
from taskfuse.ir.expr import Assemble
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Expr, const
from taskfuse.ir.storage import made_from, producers, storage_uses
from taskfuse.ir.tasks import Group, Node, Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule import layouts
from taskfuse.schedulers import loads
from taskfuse.schedulers.config import SPAN, STAGING_SLOTS, STMATRIX, MatmulConfig
from taskfuse.schedulers.contraction import MatrixProduct
from taskfuse.schedulers.epilogue import STAGED_ITEMSIZE
from taskfuse.schedulers.factors import Operand
from taskfuse.schedulers.prologue import Prologue
from taskfuse.schedulers.promotion import Promotion
from taskfuse.schedulers.reduction_epilogue import ProductReductions
from taskfuse.schedulers.script import Recorded, Script, Spelled
from taskfuse.schedulers.tile_rows import TileRowsSchedule
from taskfuse.target import WARP

FRAGMENT_AXES = 6
"""Loop axes that ``fragment`` makes of a tile."""
SWIZZLED = Spelled(layouts.swizzled(SPAN), f"tf.layouts.swizzled({SPAN})")
TURN = 1
"""Place of the axis over which warpgroups take turns."""


@dataclass(frozen=True, slots=True, eq=False)
class FactorCopy:
    """A copy of a factor.

    Attributes:
        tensor: the copy.
        operand: the factor.
        is_rows: it is the factor with the rows.
    """

    tensor: TensorView
    operand: Operand
    is_rows: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of a product in a list of several, which the blocks walk together.

    Attributes:
        number: of the products before it.
        first: the work item of this product that block 0 begins with: tiles are dealt to the blocks on and on through the list.
        is_dynamic: a block takes the next tile when it has finished one.
    """

    number: int
    first: Expr
    is_dynamic: bool = False


class WarpSpecialized:
    """The schedule of one product.

    Args:
        script: takes the calls.
        turn: its place in a list of products; their operands pass through one ring, and their results through one staging area.
        across: groups of tiles have rows of several matrices of the batch.
        box: rows of a tile along each axis of the rows, where these are several.
    """

    def __init__(
        self, script: Script, product: MatrixProduct, config: MatmulConfig, turn: Turn | None = None, *, across: bool = False, box: Sequence[int] = ()
    ) -> None:
        self.script = script
        self.turn = turn
        self.product = product
        self.config = config
        self.box = box
        self.itemsize = product.b.tensor.dtype.itemsize
        """Bytes of an element of a factor as it is multiplied."""
        self.shares_rows = not config.is_pingpong
        self.splits_rows = config.rows > WGMMA_ROWS
        self.clustered = config.cluster > 1
        self.head = 2 + config.is_pingpong + self.clustered
        self.piece = self.head + self.shares_rows + self.splits_rows
        """The epilogue's loops are [head, (warpgroup,) (rows of 64,) piece, m64, n64]: this is the piece's."""
        self.promotion = None if product.blocks is None else Promotion(script, config, product.blocks, self.head)
        how = f"{', across=True' * across}{', layers=True' * config.layers}"
        self.tiles = Spelled(tiles.grouped(config.group, across=across, layers=config.layers), f"tf.tiles.grouped({config.group}{how})")
        if config.half is not None:
            tile = config.tile_m * config.cluster, config.tile_n
            self.tiles = Spelled(tiles.halves(config.half, tile), f"tf.tiles.halves(tf.tiles.{config.half!s}, {tile})")

    def apply(self) -> None:
        """Make the calls, but for those of tasks and roles."""
        self._copies()
        self._tiles()
        self._operands()
        if self.promotion is not None:
            self.promotion.load()
            self.promotion.spread(self.result)
        self._contraction()
        if self.rows is None:
            self._epilogue()
        else:
            self._row_epilogue(self.rows)

    def _copies(self) -> None:
        script, fusion = self.script, self.script.fusion
        script.comment("copies: operands into Shared memory, outputs from Shared memory or registers")
        self.sources = self._sources()
        if self.promotion is not None:
            self.promotion.copies()
        rows, functions = self.sources[0][0], self.product.a.prologue
        turn = None if self.shares_rows else TURN
        self.prologue = Prologue(script, self.config, rows.tensor, rows.operand.packed, functions, self.head, turn) if functions else None
        self.rows = None if self.product.rows is None else TileRowsSchedule(script, self.config, self.product.rows, self.head, turn)
        product = self.product = self._forked() if self.rows is None else self.product
        self.result = product.axes.result
        axes = product.axes
        if self.rows is not None:
            self.rows.copies()
        self.beside = [other.axes.result for other in product.beside]
        self.parts = ProductReductions(script, self.config, (*axes.batch, axes.m, axes.n), self.tiles, product.reductions, product.finals)
        stored = [out.tensor for out in product.outputs]
        self.registers = [tv for tv in product.epilogue if not among(tv, stored) and not fusion.is_view(tv)]  # what an output was computed by may be a view
        if any(among(self.result, producers(fusion, r.tensor)) for r in product.reductions):
            # a sum omits elements past the end of the tensor, and no branch may enclose reads of accumulators
            self.registers.insert(0, script.new(self.result, "cache_after"))
        self.staged: list[tuple[TensorView, TensorView]] = []
        self.in_bulk: list[TensorView] = []
        self.direct: list[tuple[TensorView, bool]] = []
        for out in product.outputs:
            tv = out.tensor
            if out.is_staged:
                staging = script.new(tv, "cache_before")
                self.staged.append((staging, tv))
                self.in_bulk += [tv] if out.is_bulk else []
                tv = staging
            else:
                self.direct.append((tv, out.is_paired))
            if tv is product.axes.result:
                self.result = script.new(tv, "cache_before")
            made = script.new(tv, "cache_before")
            if fusion.is_view(made):
                script.on(made).set_memory_type(MemoryType.Local)  # of a transposed result: with memory of its own it is a copy
            self.registers.append(made)
        # only the copies are guarded: what computes on registers needs no guard, and the accumulators are read under no branch
        self.sides = [(self._side(side.tensor), side.is_paired) for side in product.sides]
        for tv in (*(s.tensor for own in self.sources for s in own), *(s for s, _ in self.staged)):
            script.on(tv).set_memory_type(MemoryType.Shared)

    def _sources(self) -> list[list[FactorCopy]]:
        """The copies of the factors of each contraction; of one that several have in common the first has it."""
        product = self.product
        found: list[list[FactorCopy]] = []
        results = [product.multiplied, *(other.axes.result for other in product.beside)]
        known: set[tuple[str, tuple[Expr, ...]]] = set()
        for k, (result, two) in enumerate(zip(results, product.factors, strict=True)):
            is_one = two[0].tensor is two[1].tensor
            own: list[FactorCopy] = []
            for side, operand in enumerate(two):
                if product.shares_steps and _held(operand) in known:
                    continue
                more = [(r, f[side].position) for r, f in zip(results[k + 1 :], product.factors[k + 1 :], strict=True) if _held(f[side]) == _held(operand)]
                own.append(FactorCopy(self._source(result, operand, is_one, more if product.shares_steps else []), operand, is_rows=side == 0))
            found.append(own)
            known.update(map(_held, two))
        return found

    def _source(self, result: TensorView, operand: Operand, is_one: bool, more: Sequence[tuple[TensorView, int]]) -> TensorView:
        """The copy of a factor that a contraction reads at its own axes.

        Args:
            is_one: the other factor is the same tensor.
            more: other contractions that read it, and which operand it is to them.
        """
        if operand.is_padded:
            return operand.tensor
        if not operand.is_whole:
            return self.script.through_view(result, operand.position, also=more)
        is_shared = is_one or (not operand.prologue and len(storage_uses(self.script.fusion, operand.tensor)) > 1 and not self.product.shares_steps)
        return self.script.new(operand.tensor, "cache_after", *([result, operand.position] if is_shared else []))

    def _side(self, tv: TensorView) -> TensorView:
        """The copy, in registers, of what the epilogue reads."""
        if not self.script.fusion.is_view(tv):
            return self.script.new(tv, "cache_after")
        self.script.on(tv).set_memory_type(MemoryType.Local)
        return tv

    def _forked(self) -> MatrixProduct:
        """The product with the outputs, or their parts, that are read apart from what their readers read, which is computed in their place."""
        product, fusion = self.product, self.script.fusion
        results = (product.axes.result, *(other.axes.result for other in product.beside))
        own = (*results, *product.epilogue, *(r.tensor for r in product.reductions), *product.finals)
        stored = dict.fromkeys(tv for out in fusion.outputs for tv in made_from(fusion, out))
        read = [tv for tv in stored if among(tv, own) and any(not isinstance(use, Assemble) for use in tv.uses)]
        forks = {tv: self.script.new(tv, "cache_fork") for tv in read}
        reductions = tuple(replace(r, tensor=forks.get(r.tensor, r.tensor)) for r in product.reductions)
        behind = {*product.finals, *(r.tensor for r in product.reductions)}
        return replace(
            product,
            axes=replace(product.axes, result=forks.get(product.axes.result, product.axes.result)),
            beside=tuple(replace(o, axes=replace(o.axes, result=forks.get(o.axes.result, o.axes.result))) for o in product.beside),
            epilogue=tuple(forks.get(tv, tv) for tv in product.epilogue),
            reductions=reductions,
            finals=(*(forks.get(tv, tv) for tv in product.finals), *(tv for tv in forks if tv in behind)),
        )

    def _tiles(self) -> None:
        """Tiles of the result, in the order of the work axis, over the blocks."""
        script, axes, config = self.script, self.product.axes, self.config
        names = [*(["wave"] if self.shares_rows else ["round", "turn"]), *(["cluster", "rank"] if self.clustered else ["block"])]
        script.comment(f"tiles: [{', '.join(names)}, m, n, k step, k]; the epilogue shares the loops over tiles, the operands those over k steps, too")
        acc = script.on(self.result)
        chunks = self.by_chunks
        batch, rank = len(axes.batch) - len(chunks), int(self.clustered)
        order = [*(p for p in axes.batch if p not in chunks), *axes.rows, *chunks, axes.n, *axes.summed, axes.k]
        if order != sorted(order):
            acc.reorder(order)
        self._tile_rows(acc, batch)
        if self.clustered:
            acc.split(batch, config.cluster)
        if self.rows is None:
            acc.split(batch + rank + 2, config.tile_n)
        if self.promotion is None:
            acc.split(-1, config.tile_k)
            for _ in axes.summed:
                acc.merge(batch + rank + 4)
        # [row of tiles, (rank,) m, column of tiles, n, k step, k] to [row, column, (rank,) m, n, k step, k]; k is that of a block if blocks are summed
        last = batch + rank + 5 + (self.promotion is None)
        if self.rows is None or chunks:
            acc.reorder([*range(batch + 1), batch + rank + 2, *range(batch + 1, batch + rank + 2), *range(batch + rank + 3, last)])
            acc.rasterize(tuple(range(batch + 2)), self.tiles)
        else:  # a tile has all columns
            for _ in range(batch):
                acc.merge(0)
        acc.split(0, config.blocks // config.cluster)
        if self.turn is not None and self.turn.is_dynamic:
            acc.rasterize((1,), Spelled(tiles.dynamic(), "tf.tiles.dynamic()"))
        elif self.turn is not None and self.turn.first is not const(0):
            acc.rasterize((1,), Spelled(tiles.rotated(self.turn.first), f"tf.tiles.rotated({self.turn.first})"))
        if config.is_pingpong:
            acc.split(0, config.warpgroups)
        acc.bind(self.head - 1 - rank, P.BIDx)
        if self.clustered:
            acc.bind(self.head - 1, P.CIDx)
        self.after = [*(t for t, _ in self.sides), *self.registers, *(t for pair in self.staged for t in pair), *(t for t, _ in self.direct)]
        if self.rows is not None:
            self.after = self.rows.by_columns
        acc.propagate([*self.after, *self.beside], self.head + 2)
        for other in self.beside:
            script.on(other).split(-1, config.tile_k)
        for tv in self.accumulators:
            script.on(tv).reorder({self.head + 2: self.head})
        packed, whole = ([s for s in self.sources[0] if (s.operand.packed > 1) is is_packed] for is_packed in (True, False))
        for source in packed:  # a step of k is one of its own last axis
            acc.propagate([source.tensor], self.head)
            script.on(source.tensor).split(-1, self._contiguous(source)).reorder({self.head + 1: self.head})
        acc.propagate([s.tensor for s in whole] + ([] if self.promotion is None else [*self.promotion.staged, self.multiplied]), self.head + 1)
        for other, own in zip(self.beside, self.sources[1:], strict=True):
            script.on(other).propagate([s.tensor for s in own], self.head + 1)
        if self.prologue is not None:
            acc.propagate(self.prologue.tensors, self.head + 1)
        computed = () if self.prologue is None else self.prologue.tensors
        shared = [*self.loaded, *computed, *([self.multiplied] if self.promotion is not None else [])]
        script.parallelize_like(self.result, [*self.beside, *shared, *self.after])
        self.parts.split_off()

    @property
    def by_chunks(self) -> list[int]:
        """The axis of the contraction whose elements are tiles side by side, where tiles have whole chunks of rows."""
        rows = self.product.rows
        return [] if rows is None or rows.chunks is None else [rows.chunks]

    def _tile_rows(self, acc: Recorded, first: int) -> None:
        """The axes of the rows, from loop axis ``first`` on, to the number of a tile and the row in it."""
        if not self.box:
            acc.split(first, self.config.tile_m)
            return
        count = len(self.box)
        for k, extent in enumerate(self.box):
            acc.split(first + 2 * k, extent)
        acc.reorder({first + 2 * k + i: first + count * i + k for k in range(count) for i in range(2)})
        for place in (first, first + 1):
            for _ in range(count - 1):
                acc.merge(place)

    def _operands(self) -> None:
        """The ring: [head, k step, (pieces,) rows, 128 bytes]; a bulk copy moves rows of 128 bytes, threads move them in pieces."""
        sources = [source for own in self.sources for source in own]
        kinds = {s.operand.is_bulk: "bulk copies" if s.operand.is_bulk else "threads" for s in sources}
        self.script.comment(f"operands: a ring of {self.config.stages} slots, filled by {' and '.join(kinds.values())}")
        for source in sources:
            tv, operand = source.tensor, source.operand
            call = self.script.on(tv)
            if source.is_rows:
                for count in range(len(self.box), 1, -1):
                    call.merge(-1 - count)
            if self._pieces(source) > 1 or self._overhangs(source):
                call.split(-1, SPAN // tv.dtype.itemsize).reorder({-2: -3})
                call.bind(-3, P.Unroll)
            call.set_allocation_domain(SWIZZLED).circular_buffer(self.config.stages, *self._ring("rows" if source.is_rows else "columns"))
            is_common = self.clustered and not source.is_rows
            if operand.is_bulk:
                call.set_atom(atoms.TMA_LOAD_MULTICAST if is_common else atoms.TMA_LOAD, (-2, -1))
            else:
                loads.by_threads(call, operand.size, tv.dtype.itemsize)

    def _ring(self, name: str) -> tuple[str, ...]:
        """The name of a ring of operands that the products of a list have together, or those of one tile that walk along k one after another."""
        return () if self.turn is None and (not self.beside or self.product.shares_steps) else (name,)

    def _pieces(self, source: FactorCopy) -> int:
        """Rows of the swizzle side by side in a slot."""
        return -(-self._contiguous(source) * source.tensor.dtype.itemsize // SPAN)

    def _overhangs(self, source: FactorCopy) -> bool:
        """Whether the last of them also has elements of the next tile."""
        return self._contiguous(source) * source.tensor.dtype.itemsize % SPAN > 0

    def _contiguous(self, source: FactorCopy) -> int:
        """Elements of a tile of a factor along its contiguous axis."""
        if source.operand.is_k_major:
            return self.config.tile_k // source.operand.packed
        return self.config.tile_m if source.is_rows else self.config.tile_n

    def _contraction(self) -> None:
        """[head, k step, (warpgroup,) (part of the step,) k16, (rows of 64) | m64, n, k16]."""
        if self.prologue is not None:
            self.prologue.spread(WGMMA_K_BYTES // self.itemsize)
        self.script.comment(f"contraction: each warpgroup has its own {'rows' if self.shares_rows else 'tiles'}")
        for tv in (self.multiplied, *self.beside):
            self._multiply(tv)

    def _multiply(self, tv: TensorView) -> None:
        config, acc = self.config, self.script.on(tv)
        inner = self.head + 1
        if self.shares_rows:
            acc.split(inner, config.rows)
            inner += 1
        if self.splits_rows:
            acc.split(inner, WGMMA_ROWS)
        acc.split(-1, WGMMA_K_BYTES // self.itemsize)
        acc.reorder({inner + 2 + self.splits_rows: inner})
        if self.prologue is not None and self.prologue.parts > 1:
            acc.split(inner, config.tile_k * self.itemsize // WGMMA_K_BYTES // self.prologue.parts)
            acc.bind(inner, P.Unroll)
            inner += 1
        acc.set_atom(atoms.wgmma(WGMMA_ROWS, config.tile_n, WGMMA_K_BYTES // self.itemsize), (-3, -2, -1))
        acc.bind(self.head + 1 if self.shares_rows else TURN, P.TIDy)
        acc.bind(inner, P.Unroll)
        if self.splits_rows:
            acc.bind(inner + 1, P.Unroll)
        if self.promotion is None:
            acc.in_flight(config.in_flight)

    @property
    def multiplied(self) -> TensorView:
        """What the tensor cores compute: the result, or the products of blocks that it sums."""
        return self.result if self.promotion is None else self.promotion.blocks.product

    @property
    def computed(self) -> list[TensorView]:
        """The factor with the rows in registers, as it is in memory and then as it is multiplied."""
        return [] if self.prologue is None else [*self.prologue.tensors, *self.prologue.sides]

    @property
    def accumulators(self) -> list[TensorView]:
        """The results of all contractions."""
        return [self.result, *self.beside]

    @property
    def loaded(self) -> list[TensorView]:
        """What the role that loads brings to Shared memory."""
        return [*(s.tensor for own in self.sources for s in own), *(self.promotion.staged if self.promotion else ())]

    def _epilogue(self) -> None:
        script, p = self.script, self.piece
        columns = self.config.columns
        script.comment(f"epilogue: {WGMMA_ROWS} x {columns} at a time, in registers, in the layout of the accumulators")
        for tv in self.after:
            call = script.on(tv)
            call.split(self.head + 1, columns)
            if self.shares_rows:
                call.split(self.head, self.config.rows)
            if self.splits_rows:
                call.split(p - 1, WGMMA_ROWS)
            call.reorder({p + 1: p})
            call.bind(self.head if self.shares_rows else TURN, P.TIDy)
            if self.splits_rows:
                call.bind(p - 1, P.Unroll)
            call.bind(p, P.Unroll)
        tile = (p + 1, p + 2)
        span = columns * STAGED_ITEMSIZE
        swizzled = Spelled(layouts.swizzled(span), f"tf.layouts.swizzled({span})")
        for tv in (*self.registers, *(t for t, _ in (*self.sides, *self.direct))):
            script.on(tv).fragment(tile)
        for tv, paired in (*self.sides, *self.direct):
            if paired:
                script.on(tv).bind(-1, P.Vectorize)
        for k, (staging, out) in enumerate(self.staged):
            call = script.on(staging)
            call.set_allocation_domain(swizzled).circular_buffer(STAGING_SLOTS, *(() if self.turn is None else (f"results {k}",)))
            call.split(tile[1], STMATRIX).split(tile[0], STMATRIX).reorder({tile[1] + 1: tile[0] + 1})
            call.bind(tile[0], P.TIDx)
            call.bind(tile[1], P.Unroll)
            call.set_atom(atoms.STMATRIX_X4, (tile[1] + 1, tile[1] + 2))
            if among(out, self.in_bulk):
                script.on(out).set_atom(atoms.TMA_STORE, tile)
            else:
                self._by_warps(out, next(o.chunk for o in self.product.outputs if o.tensor is out))
        self.parts.finish()
        self._share_loops()

    def _row_epilogue(self, rows: TileRowsSchedule) -> None:
        self.script.comment("epilogue: reductions of the rows of a tile, in the layout of the accumulators")
        rows.spread()
        self.after = rows.tensors
        self.script.comment("shared loops")
        self.script.inline_at([s.tensor for own in self.sources for s in own], self.head + 1)
        rows.share_loops()
        self.script.on(self.result).inline_at(self.head)

    def _by_warps(self, out: TensorView, chunk: int) -> None:
        """[.., m64, n] of a piece that threads store: [.., warp, rows at once, chunks, rows and chunks one after another, elements of a chunk]."""
        call, m = self.script.on(out), self.piece + 1
        call.split(m + 1, chunk).split(m, STMATRIX)  # [warp, row, chunk, element]
        lanes = self.config.columns // chunk
        if lanes > WARP:
            call.split(m + 2, WARP).reorder({m + 3: m + 1})  # [warp, chunk, row, others, element]
            for k in range(2):
                call.bind(m + k, P.TIDx)
            call.bind(m + 2, P.Unroll).bind(m + 3, P.Unroll)
        else:
            call.split(m + 1, WARP // lanes).reorder({m + 1: m + 3})
            for k in range(3):
                call.bind(m + k, P.TIDx)
            call.bind(m + 3, P.Unroll)
        call.bind(m + 4, P.Vectorize if chunk > 1 else P.Unroll)

    def _share_loops(self) -> None:
        script, p = self.script, self.piece
        script.comment("shared loops")
        script.inline_at([s.tensor for own in self.sources for s in own], self.head + 1)
        # what is stored is an array of a whole piece: reads of accumulators stand together, before all stores, or ptxas serializes wgmma
        stored = [*(s for s, _ in self.staged), *(t for t, _ in self.direct), *self.parts.tensors]
        pieces = {r for s in stored for r in producers(script.fusion, s)}
        inside = p + 1 + FRAGMENT_AXES
        script.inline_at([tv for tv in self.registers if tv in pieces], p + 1)
        script.inline_at([tv for tv in self.registers if tv not in pieces], inside)
        # all loads of a piece before the first use of one, where there is room for that: a thread waits once for memory, not for each of them
        at_once = self.config.holds(self.product.held, len(self.accumulators))
        wide = sum(side.is_wide for side in self.product.sides)
        is_whole = self.config.loads_whole(self.product.narrow, self.product.held_by_piece, wide, len(self.accumulators))
        for (tv, paired), side in zip(self.sides, self.product.sides, strict=True):
            if is_whole and not side.is_wide:
                script.on(tv).inline_at(p - self.splits_rows)
            else:
                script.on(tv).inline_at(p + 1 if at_once else inside - 1 if paired else inside)
        script.inline_at([staging for staging, _ in self.staged], p + 1)
        if self.promotion is not None:
            self.promotion.inline()
        if self.prologue is not None:
            self.prologue.inline()
        # after what reads them: two of these share loops only if they are inlined into one another
        if self.beside:
            script.inline_most(self.accumulators)  # one alone would be read in loops in which another is not complete
        else:
            script.on(self.result).inline_at(self.head)

    def tasks(self) -> tuple[Task, Group]:
        """What loads, and what multiplies and stores: the nodes that are to be roles."""
        script = self.script
        suffix = "" if self.turn is None else str(self.turn.number)
        load = script.task(self.loaded, f"load{suffix}")
        mma = script.task([*self.computed, self.multiplied, *self.beside], f"mma{suffix}")
        multiply: list[Node] = [mma] if self.promotion is None else self.promotion.members(mma, self.result, suffix)
        members = [*multiply, script.task([*self.after, *self.parts.tensors], f"epilogue{suffix}")]
        if self.parts.tensors:
            members.append(script.task(self.parts.finishing, f"finish{suffix}"))
        return load, script.grouped(members, f"consumer{suffix}")


def _held(operand: Operand) -> tuple[str, tuple[Expr, ...]]:
    """What tells a copy of a factor from others: the tensor, and where it is read, if that is not everywhere."""
    return operand.tensor.name, () if operand.is_whole else operand.index


def make_roles(script: Script, products: Sequence[WarpSpecialized]) -> None:
    """Let what loads and what multiplies and stores run side by side, for all products one after another, each with registers of its own."""
    script.comment("roles")
    made = [product.tasks() for product in products]
    load: Node
    consumer: Node
    if len(made) == 1:
        load, consumer = made[0]
    else:
        load, consumer = (script.grouped(nodes, name) for nodes, name in zip(zip(*made, strict=True), ("load", "consumer"), strict=True))
    script.make_roles(load, consumer)
