"""``tf.schedulers.one_walk``: products of functions of products, some of which sum over the columns of the first products and one over their rows, as one walk.

The gradients of attention are such products: those of keys and values sum over the queries, and that of the queries over the keys.
``tf.schedulers.back_to_back`` takes one kind in a walk, and computes the first products anew in each. Here blocks divide the rows among them, and walk over the
columns (FlashAttention-3, arXiv:2407.08608)::

    load       for a block's rows, once: the first factors of the first products; for each chunk of columns: TMA of the second factors, and of values of
               columns, into rings
    consumer   for each chunk, two warpgroups of 64 rows: the first products; elementwise math in registers; last products; the factor of the product beside
               them goes into a ring in Shared memory
    beside     for each chunk: the part of the other sum that the block's rows make, 64 columns at a time, which the copy engine adds in memory

Where masks start or end the terms of a block's rows, its walk has only the chunks between, and the sum beside it only their parts (:func:`taskfuse.cascade`,
``rows`` and ``beside``); blocks claim their tiles.

Both last products of a warpgroup need 128 registers of a thread, so the second one of the first products is made in two halves, which functions use up before
the next one begins. Blocks add their parts in no order: two runs may round differently (``kernel.is_deterministic``), so ``tf.compile`` does not try this
by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from taskfuse import tiles
from taskfuse.dtypes import float32
from taskfuse.ir import atoms
from taskfuse.ir.atoms import WGMMA_ROWS
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import MathExpr, Pointwise, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import ONE, Const, Expr, ceildiv, ge, is_multiple, le, prove, simplify
from taskfuse.ir.storage import needed, storage_operands, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.kir.declarations import CLAIM_BYTES
from taskfuse.schedule import layouts
from taskfuse.schedule.call import is_power_of_two
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.masked_ends import masked_start
from taskfuse.schedule.repairs import depends
from taskfuse.schedulers.back_to_back import BackToBackWalk, find, values_read, walk_factors
from taskfuse.schedulers.back_to_back_cost import BackToBack, BackToBackConfig
from taskfuse.schedulers.config import BARRIER_BYTES
from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.roofline import bytes_of
from taskfuse.schedulers.schedule import Chosen, Option, Sizes, check_call, check_wgmma, refuse, rehearse, tries_parameters
from taskfuse.schedulers.script import Recorded, Script, Spelled
from taskfuse.schedulers.walk_tiles import copied, matrices, multiply
from taskfuse.target import DEFAULT, Target

NAME = "one_walk"
ROWS, CHUNK, PART, HALF, STEP = 128, 64, 64, 32, 16
"""Rows of a block, columns of a chunk, columns of the product beside the walk at a time, columns of the second first product at a time, terms of an
instruction."""
LOADING, BESIDE, CONSUMING = 24, 72, 208
"""Registers of a thread by roles. ptxas (CUDA 13.0) places accumulators of wgmma from register 24 on, and wants some behind them: there are 176 of a
consumer, 32 beside."""
TOGETHER = 8
"""The most matrices of the batch whose tiles blocks claim one after another."""
MOST = 256
"""The most columns of all last products: 128 registers of sums."""


@dataclass(frozen=True, slots=True)
class OneWalkConfig(Parameters):
    """The parameters of one walk.

    Attributes:
        stages: chunks of each streamed factor in Shared memory.
        blocks: which take the tiles of rows in turn; all are resident at once, one on a multiprocessor.
        slots: chunks of the factor of the product beside the walk in Shared memory: how far that may be behind.
        in_turn: the warpgroups begin their chunks one after the other, so that one computes functions while the other multiplies.
        claimed: blocks claim tiles, where masks make walks of unequal length, not every ``blocks``-th of them.
    """

    stages: int = 2
    blocks: int = DEFAULT.sms
    slots: int = 3
    in_turn: bool = True
    claimed: bool = False

    def __post_init__(self) -> None:
        self.check_fields()

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        turn = ", warpgroups in turn" if self.in_turn else ""
        claims = ", which claim tiles" if self.claimed else ""
        return f"2 warpgroups of {WGMMA_ROWS} rows, chunks of {CHUNK}, {self.stages} stages, {self.slots} slots beside, {self.blocks} blocks{claims}{turn}"


@dataclass(frozen=True, slots=True, eq=False)
class OneWalk:
    """Products of functions of products: those of the walk, and the one beside it.

    Attributes:
        matrices, tiles: of the batch, and tiles of rows of each.
    """

    walk: BackToBack
    beside: TensorView
    matrices: Expr
    tiles: Expr

    def shared_bytes(self, config: OneWalkConfig) -> int:
        """Shared memory of a block: what it holds, rings of streamed factors, of the factor beside the walk, the tile that is added, and numbers of tiles."""
        factors = 2 * (ROWS * sum(self.walk.depths) + config.stages * CHUNK * sum(width for _, width in self.walk.factors))
        tiles = 2 * config.slots * CHUNK * ROWS + 4 * CHUNK * self.walk.depths[0]
        return factors + tiles + 8 * config.stages * CHUNK + (CLAIM_BYTES * (self.count + 1) if config.claimed else 0)

    @property
    def count(self) -> int:
        """Tiles of rows, if their number is constant; else 0."""
        found = simplify(self.matrices * self.tiles)
        return found.value if isinstance(found, Const) else 0

    @property
    def together(self) -> int:
        """Matrices whose tiles blocks claim one after another, the longest walks first. They divide the batch."""
        return next(n for n in (TOGETHER, 4, 2, 1) if is_multiple(self.matrices, n))


@tries_parameters
def one_walk(fusion: Fusion, config: OneWalkConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Chosen[OneWalkConfig]:
    """Schedule products of elementwise functions of two products as one warp-specialized kernel for Hopper (sm_90a).

    The fusion has two first products, whose factors are inputs, read as ``[..., M, D]`` and ``[..., N, D]``; last products, which sum over M elementwise
    functions of the first ones, each times an input ``[..., M, C]``; and one that sums over N a function of both, rounded to 16 bits, times one of the inputs
    ``[..., N, D]``, and is an output of the fusion in float32 as it is. Factors are 16-bit floats, sums float32. M is a constant multiple of 64, N of 128,
    D and C of 64, and the C of all sums over M are at most 256 together. There is at least one batch axis, which all factors have.

    Chunks that a mask excludes for all rows of a block are left out (:func:`taskfuse.cascade`, ``rows``): then unmasked values are assumed to be finite.

    The order in which blocks add to the sum over N is not that of the math, and differs from run to run.

    Args:
        fusion: it is changed: tensors, tasks and schedule are added.
        config: the parameters; ``None``: the fastest by the cost model.
        sizes: values of the fusion's dimensions for the cost model; by default 4096, clamped to the known bounds.
        target: the GPU.

    Raises:
        UnsupportedError: the fusion or the parameters do not fit this scheduler.
    """
    check_call(fusion, NAME, config, OneWalkConfig)
    check_wgmma(fusion, NAME, target)
    found, extent = _find(fusion), Sizes(fusion, sizes, target)
    alternatives = _planned(fusion, found, extent)
    chosen = alternatives[0].config if config is None else config
    if found.shared_bytes(chosen) + BARRIER_BYTES > target.limits.block_shared:
        raise refuse(fusion, NAME, f"with {chosen.words}: a block needs {found.shared_bytes(chosen)} bytes of Shared memory", "use fewer stages")
    if chosen.claimed and not found.count:
        raise refuse(fusion, NAME, f"with {chosen.words}: the number of tiles is not constant", "use claimed=False")
    trial = copy_fusion(fusion)[0]
    rehearse(fusion, NAME, _OneWalk(Script(trial), _find(trial), chosen).apply)
    script = Script(fusion)
    _OneWalk(script, found, chosen).apply()
    option = next((o for o in alternatives if o.config == chosen), Option(chosen, alternatives[0].us))
    names = ", ".join(tv.name for tv in found.walk.last)
    return Chosen(NAME, f"{names}, and beside them {found.beside.name}", option, alternatives, config is not None, script.text)


def _find(fusion: Fusion) -> OneWalk:
    """The products. Raises :class:`UnsupportedError`."""
    products = [e.output for e in needed(fusion) if isinstance(e, Reduction) and matrices(fusion, e) is not None]
    outputs = [tv for tv in products if tv.is_output and not tv.uses and tv.dtype is float32]
    for beside in outputs:
        walk = find(fusion, (beside,))
        two = walk_factors(fusion, beside)
        keys, one = Keys(fusion), walk.first[0]
        if len(two.summed) == 1 and keys.equal(beside.root[two.summed[0]], one.root[walk.row]):
            batch = simplify(prod((one.root[p].extent for p in walk.batch), start=ONE))
            return _checked(fusion, OneWalk(walk, beside, batch, simplify(ceildiv(one.root[walk.row].extent, ROWS))))
    raise refuse(fusion, NAME, "no product is a float32 output that sums over the rows of the others")


def _checked(fusion: Fusion, found: OneWalk) -> OneWalk:
    """What this walk takes of what :func:`~taskfuse.schedulers.back_to_back.find` takes. Raises :class:`UnsupportedError`."""
    walk, facts = found.walk, fusion.facts()
    one = walk.first[0]
    reasons = {
        "there are other first products than two": len(walk.first) != 2,
        "it has no batch axis": not walk.batch,
        f"its rows are no multiple of {ROWS}": not is_multiple(one.root[walk.row].extent, ROWS, facts),
        f"its columns are no multiple of {CHUNK}, or a single chunk": not is_multiple(one.root[walk.step].extent, CHUNK, facts)
        or prove(le(one.root[walk.step].extent, CHUNK), facts),
        f"widths are no multiples of {PART}": any(n % PART for n in (*walk.depths, *walk.columns)),
        f"the last products have {sum(walk.columns)} columns": sum(walk.columns) > MOST,
    }
    for reason, holds in reasons.items():
        if holds:
            raise refuse(fusion, NAME, reason)
    return found


def _planned(fusion: Fusion, found: OneWalk, extent: Sizes) -> tuple[Option[OneWalkConfig], ...]:
    """Parameters that fit, the fastest first. Raises :class:`UnsupportedError`: none do."""
    target, walk = extent.target, found.walk
    options: list[Option[OneWalkConfig]] = []
    chunks, tiles = extent(ceildiv(walk.first[0].root[walk.step].extent, CHUNK)), int(extent(found.tiles))
    count = int(extent(found.matrices)) * tiles
    blocks = int(min(target.sms, count))
    share = (sum(walk.depths) + sum(walk.columns) + walk.depths[0]) / (5 * ROWS)
    claims = (False, True) if _claim(fusion, found) else (False,)
    for claimed, (stages, slots) in product(claims, ((2, 3), (2, 2), (3, 2))):
        config = OneWalkConfig(stages, blocks, slots, claimed=claimed)
        if found.shared_bytes(config) + BARRIER_BYTES <= target.limits.block_shared:
            lengths = np.resize(np.ones(tiles) if walk.is_ended is None else 1 - np.arange(tiles) / tiles, count)
            longest = lengths.sum() / blocks if claimed else np.bincount(np.arange(count) % blocks, lengths).max()
            us = target.kernel_us(longest * chunks * target.attention.one_walk_cycles * share / target.clock_mhz, target.dram_us(bytes_of(fusion, extent)))
            options.append(Option(config, float(us), is_cooperative=True))
    if not options:
        raise refuse(fusion, NAME, f"tiles of {max(walk.depths)} terms and {sum(walk.columns)} columns do not fit a multiprocessor")
    return tuple(sorted(options, key=lambda o: o.us))


def _claim(fusion: Fusion, found: OneWalk) -> bool:
    """Whether blocks gain by claims: walks begin later and later. What a number says of its tile takes registers, unless quotients are shifts and no walk's
    start is cut off at the first chunk."""
    last = fusion.definition(found.walk.last[0])
    if found.walk.is_ended is not False or not found.count or not isinstance(last, Reduction):
        return False
    facts = fusion.facts()
    for k, a in enumerate(last.output.root):
        facts = facts.with_range(str(iteration_symbol(k)), 0, a.extent - 1)
    start = masked_start(fusion, last, next(k for k, a in enumerate(last.output.root) if a.is_reduction))
    return start is not None and prove(ge(start, 0), facts) and isinstance(found.tiles, Const) and is_power_of_two(found.tiles.value)


class _OneWalk(BackToBackWalk):
    """The calls. Axes stand [tiles of a block, blocks, chunk, warpgroup, half, | warp, row, pair, ...]."""

    def __init__(self, script: Script, found: OneWalk, config: OneWalkConfig) -> None:
        super().__init__(script, found.walk, BackToBackConfig(ROWS // WGMMA_ROWS, CHUNK, config.stages))
        self.blocks, self.slots, self.beside, self.in_turn = config.blocks, config.slots, found.beside, config.in_turn
        self.together = found.together if config.claimed else 0
        self.head = 2

    def _cascade(self) -> tuple[TensorView, ...]:
        script = self.script
        walk = script.cascade(self.found.last, CHUNK, rows=None if self.found.is_ended is None else ROWS, beside=[self.beside])
        sums = [tv for tv in walk if isinstance(tv.definition, Reduction)]
        (part,) = (tv for tv in sums if depends(self.fusion, tv, [other for other in sums if other is not tv]))
        script.comment("the sum over rows: blocks have parts of it, and add them in memory")
        over = next(p for p, a in enumerate(part.root) if a.is_reduction)
        script.on(part).split(over, ROWS)
        self.own = script.new(part, "rfactor", (over + 1,))
        self.zeros, self.sent = script.scatter(part)
        self.zero = script.new(self.zeros, "cache_before")
        self.apart += [self.own, self.zeros, self.sent, self.zero]
        return tuple(tv for tv in walk if tv is not part)

    def _outputs(self) -> list[TensorView]:
        return [tv for tv in super()._outputs() if tv is not self.beside]

    def _copies(self) -> None:
        """The factors as tiles, those of the product beside the walk among them; values of columns; functions of the second product in both halves."""
        super()._copies()
        fusion, script = self.fusion, self.script
        (_, element), row = self._walked(self.last[0]), self._row(self.first[0])
        for e in needed(fusion):
            for k in values_read(fusion, e, element, row) if isinstance(e, Pointwise) else ():
                o = storage_operands(fusion, e)[k]
                if isinstance(o, Read) and len(o.index[-1].free) == 2:  # consecutive in memory
                    tile = copied(script, e.output, k, self.values)
                    self.values += [] if among(tile, self.values) else [tile]
        place = self._place(self.own)
        if not among(copied(script, self.own, 1 - place, self.held), self.held):
            raise refuse(fusion, NAME, f"{self.beside.name} does not multiply a first factor of the others")
        self.turned = script.new(self._operand(self.own, place), "cache_after", self.own, place)
        self.staged = script.new(self.own, "cache_after", self.sent, 1)
        for tv in (*self.values, self.turned, self.staged):
            script.on(tv).set_memory_type(MemoryType.Shared)
        self.apart += [self.turned, self.staged]
        self.both: list[TensorView] = []
        for tv in self.last:
            place = self._place(tv)
            factor = self._operand(tv, place)
            if depends(fusion, factor, self.first[1:]):
                self.both.append(script.new(factor, "cache_after", tv, place))

    def _place(self, tv: TensorView) -> int:
        """The operand of a last product that is a function of the first ones."""
        return next(
            k for k, o in enumerate(storage_operands(self.fusion, self._expr(tv))) if isinstance(o, Read) and depends(self.fusion, o.tensor, self.first)
        )

    def _expr(self, tv: TensorView) -> MathExpr:
        expr = self.fusion.definition(tv)
        assert expr is not None
        return expr

    def _operand(self, tv: TensorView, place: int) -> TensorView:
        o = storage_operands(self.fusion, self._expr(tv))[place]
        assert isinstance(o, Read)
        return o.tensor

    def _classify(self) -> None:
        super()._classify()
        self.late = [tv for tv in self.chunks if depends(self.fusion, tv, self.first[1:]) and not among(tv, self.both)]
        """Functions of the second product, of half a chunk each."""

    # -- loops ------------------------------------------------------------------------------------------------------------------------

    def _tiles(self) -> None:
        super()._tiles()
        self.script.on(self.first[0]).propagate([self.turned], self.head + 3)

    def _blocks(self, call: Recorded) -> None:
        """[batch.., rows, ..] to [tiles of a block, blocks, rows of a tile, ..]."""
        for _ in range(1, len(self.found.batch)):
            call.merge(0)
        self._dealt(call.split(1, ROWS))

    def _dealt(self, call: Recorded) -> None:
        """[batch, tiles, ..] to [tiles of a block, blocks, ..]: blocks that run together have neighboring tiles of one batch, or claim those of a few, the
        longest walks first."""
        if self.together:
            call.rasterize((0, 1), Spelled(tiles.grouped(self.together), f"tf.tiles.grouped({self.together})")).split(0, self.blocks)
            call.rasterize((1,), Spelled(tiles.dynamic(), "tf.tiles.dynamic()"))
        else:
            call.rasterize((0, 1), Spelled(tiles.raster(), "tf.tiles.raster()")).split(0, self.blocks)
        call.bind(1, P.BIDx)

    def _fragments(self) -> None:
        tile = self.head + 2
        for tv in self.chunks:
            if not among(tv, (*self.late, *self.both)):
                self.script.on(tv).fragment((tile, tile + 1))
        for tv in (self.first[1], *self.late, *self.both):
            call = self.script.on(tv).split(tile + 1, HALF).reorder({tile + 1: tile})
            if tv is not self.first[1]:
                call.fragment((tile + 1, tile + 2))
            call.bind(tile, P.Unroll)

    def _registers(self) -> None:
        super()._registers()
        script, tile = self.script, self.head + 2
        script.comment("the factor beside the walk, and the product: [tiles of a block, blocks, chunk, part of its columns, | columns of the walk, ..]")
        script.parallelize_like(self.first[0], [self.turned])
        call = script.on(self.turned).set_allocation_domain(Spelled(layouts.swizzled(128), "tf.layouts.swizzled(128)"))
        call.split(tile + 1, HALF).reorder({tile + 1: tile}).split(tile + 2, STEP).split(tile + 1, STEP).reorder({tile + 3: tile + 2})
        call.set_atom(atoms.STMATRIX_X4, (tile + 3, tile + 4))
        for k, ptype in enumerate((P.Unroll, P.TIDx, P.Unroll)):
            call.bind(tile + k, ptype)
        self._part()

    def _part(self) -> None:
        """The product beside the walk, as tiles of 64 columns, of which bulk copies add pieces of 128 bytes; and the zeros that all blocks store before."""
        script, keys, (along, element) = self.script, Keys(self.fusion), self._walked(self.last[0])
        root = self.own.root  # [batch.., chunk, column, width, rows], of which the loops have tiles of rows and rows of a tile
        chunk, column = (next(p for p, a in enumerate(root) if keys.equal(a, x)) for x in (along, element))
        tile = len(root) - 1
        width = max(p for p in range(tile) if p not in (chunk, column))
        batch = [p for p in range(tile) if p not in (chunk, column, width)]
        for tv in (self.own, self.sent, self.staged):
            call = script.on(tv).reorder([*batch, tile, chunk, width, column, *range(tile + 1, len(tv.loop))])
            for _ in range(1, len(batch)):
                call.merge(0)
            self._dealt(call)
            call.split(3, PART).reorder({5: 4})
        multiply(script, self.own, 4, PART)
        for tv in (self.sent, self.staged):
            script.on(tv).split(5, HALF).reorder({5: 4}).bind(4, P.Unroll)
        script.on(self.sent).set_atom(atoms.TMA_STORE, (5, 6))
        script.on(self.staged).set_allocation_domain(Spelled(layouts.swizzled(128), "tf.layouts.swizzled(128)")).fragment((5, 6)).bind(-1, P.Vectorize)
        call = script.on(self.zeros)
        for _ in self.zeros.root[1:]:
            call.merge(0)
        call.split(0, 4).split(0, 128).split(0, 4).split(0, self.blocks).propagate([self.zero], 5)
        for k, ptype in enumerate((P.BIDx, P.TIDy, P.TIDx, P.Vectorize), 1):
            call.bind(k, ptype)
        script.parallelize_like(self.zeros, [self.zero])

    def _multiply_first(self) -> None:
        multiply(self.script, self.first[0], self.head + 2, CHUNK)
        multiply(self.script, self.first[1], self.head + 3, HALF)

    def _rings(self) -> None:
        super()._rings()
        for tv in self.values:
            self.script.on(tv).circular_buffer(self.config.stages).set_atom(atoms.TMA_LOAD, (-1,))
        self.script.on(self.turned).circular_buffer(self.slots)

    def _inside(self) -> list[TensorView]:
        return [*super()._inside(), self.turned, self.own, self.staged]

    def _share(self) -> None:
        super()._share()
        script, head = self.script, self.head
        script.inline_at([self.first[1], *self.late], head + 3)
        for tv in reversed(self.late):
            uses = storage_uses(self.fusion, tv)
            if len(uses) == 1 and among(uses[0].output, self.late):
                script.on(tv).inline_at(head + 9)
        script.on(self.own).inline_at(head + 2)
        script.on(self.zero).inline_at(4)

    def _roles(self) -> None:
        script, fusion = self.script, self.fusion
        before = [tv for tv in self.chunks if not among(tv, (*self.late, *self.both))]
        needed = [tv for tv in before if any(depends(fusion, late, (tv,)) for late in self.late)]
        rest = [tv for tv in before if not among(tv, needed)]
        soon = [tv for tv in self.last if any(among(use.output, [tv]) for one in self.both for use in one.uses)]  # while the others' factors are rounded
        code = [self.first[0], *needed, self.first[1], *self.late, self.turned, *self.both, *soon, *rest, *(tv for tv in self.last if not among(tv, soon))]
        script.order(code)
        for tv in (self.first[0], *needed[-1:]) if self.in_turn else ():
            script.on(tv).take_turns(P.TIDy)
        load = script.task([*self.held, *self.streamed, *self.values], "load")
        tasks = [*([script.task(self.rows, "rows")] if self.rows else []), script.task(code, "walk")]
        consumer = script.grouped([*tasks, script.task([tv for group in self.results for tv in group], "results")], "consumer")
        beside = script.task([self.own, self.staged, self.sent], "beside")
        script.task([self.zero, self.zeros], "start")
        script.group([load, consumer, beside], "roles").parallelize(P.TIDy)
        for node, count in ((load, LOADING), (consumer, CONSUMING), (beside, BESIDE)):
            script.node(node).registers(count)
