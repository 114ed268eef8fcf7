"""``tf.schedulers.attention``: a product, a softmax of its rows or another cascade of reductions, and a product of the result, as one walk over the keys.

    load       the queries of a block's rows, once; for each chunk of keys: TMA of keys, then of values, into a ring of each; into one ring if values are
               parts of their keys
    consumer   for each chunk: wgmma of queries and keys; its maximum, across the four lanes of a row; exponentials, which stay in registers as
               the first factor of the second product; the partial sums, rescaled for the new maximum; wgmma of exponentials and values, one chunk
               behind if the products are pipelined

Each warpgroup of ``consumer`` has 64 rows. Results of more columns than the registers of one hold are those of two, which have the same rows and a part of the
columns each. Both may compute the scores, or a warpgroup of its own does (FlashAttention-3 and FlashMLA hand them to the other warpgroup, too)::

    scores     for each chunk: wgmma of queries and keys, maximum and exponentials, which go into a ring in Shared memory; so do the factors of the sums
    consumer   for each chunk: the sums, rescaled; wgmma of exponentials and values, both from Shared memory

The scheduler has no notion of softmax: :func:`taskfuse.cascade` turns the reductions between the two products into one walk. Any elementwise math may stand
between the products: scale, mask, bias, softcap.

Everything is a public scheduling call; a :class:`~taskfuse.schedulers.script.Script` writes them down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from taskfuse import tiles
from taskfuse.ir import atoms
from taskfuse.ir.atoms import SUM_OF_PRODUCTS, WGMMA_ROWS
from taskfuse.ir.axes import Axis
from taskfuse.ir.contraction import computes
from taskfuse.ir.expr import Pointwise, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.storage import has_code, needed, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule import layouts
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.repairs import depends
from taskfuse.schedule.scatter import ragged_rows
from taskfuse.schedulers.attention_config import APART_COLUMNS, HOLDING, ITEMSIZE, LOADING, PIECE, SCORING, AttentionConfig
from taskfuse.schedulers.attention_cost import Attention, check_fits, planned
from taskfuse.schedulers.attention_math import find
from taskfuse.schedulers.config import STMATRIX
from taskfuse.schedulers.elementwise import stored
from taskfuse.schedulers.ragged_tiles import store_by_tiles, stored_by_tiles
from taskfuse.schedulers.schedule import Chosen, Offer, Option, Sizes, check_call, refuse, rehearse, tries_parameters
from taskfuse.schedulers.script import Recorded, Script, Spelled
from taskfuse.schedulers.walk_tiles import as_terms, copied, hold_results, hold_terms, multiply, share_results, share_walk, swizzle
from taskfuse.target import DEFAULT, Target

NO_MAXIMUM = "no maximum is taken between the products, or their result is not stored"


@tries_parameters
def attention(
    fusion: Fusion, config: AttentionConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT
) -> Chosen[AttentionConfig]:
    """Schedule ``softmax(q @ k.T) @ v`` and its variants as a warp-specialized kernel for Hopper (sm_90a) without scores in memory.

    The fusion has two products of 16-bit factors with float32 sums; factors of the first may have 8 bits, and are inputs, read as ``[..., M, D]`` and
    ``[..., N, D]``. The second sums over N: its factors are elementwise math and reductions over N of the first product, and an input ``[..., N, C]``, which
    may be columns of ``[..., N, D]``. The reductions form a cascade (:func:`taskfuse.cascade`). D and C are constants, as large as Shared memory and registers
    hold, and rows are multiples of 16 bytes; M and N are any; there are up to three batch axes, of which keys and values may lack some or have fewer elements
    (grouped queries), and queries may lack some (chunks of keys: :func:`taskfuse.chunk_cascade`).

    Args:
        fusion: it is changed: tensors, tasks and schedule are added.
        config: the parameters; ``None``: the fastest by the cost model.
        sizes: values of the fusion's dimensions for the cost model; by default 4096, clamped to the known bounds.
        target: the GPU.

    Raises:
        UnsupportedError: the fusion or the parameters do not fit this scheduler.
    """
    check_call(fusion, "attention", config, AttentionConfig)
    trial = stored_by_tiles(fusion) if ragged_rows(fusion) else copy_fusion(fusion)[0]
    found, extent = find(trial), Sizes(trial, sizes, target)
    alternatives = planned(trial, found, extent)
    chosen = alternatives[0].config if config is None else config
    check_fits(trial, found, chosen, extent)
    rehearse(fusion, "attention", _Walk(Script(trial), found, chosen).apply)
    script = Script(fusion)
    if ragged_rows(fusion):
        store_by_tiles(script)
    found = find(fusion)
    _Walk(script, found, chosen).apply()
    option = next((o for o in alternatives if o.config == chosen), Option(chosen, alternatives[0].us))
    names = ", ".join(r.name for r in found.reductions)
    return Chosen("attention", f"{found.scores.name}, then {names}", option, alternatives, config is not None, script.text)


def offer(fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Offer:
    """The offer of :func:`attention`. Raises :class:`UnsupportedError`: see there."""
    check_call(fusion, "attention", None, AttentionConfig)
    by_tiles = stored_by_tiles(fusion) if ragged_rows(fusion) else fusion
    alternatives = planned(by_tiles, find(by_tiles), Sizes(fusion, sizes, target))
    return Offer(alternatives[0].us, lambda trial: attention(trial, sizes=sizes, target=target))


def _place(fusion: Fusion, tv: TensorView, axes: Sequence[Axis], wanted: Axis, keys: Keys) -> int:
    """Where an axis of the products is among the axes of a tensor. Raises :class:`UnsupportedError`: it is not there."""
    found = next((k for k, a in enumerate(axes) if keys.equal(a, wanted)), None)
    if found is None:
        raise refuse(fusion, "attention", f"{tv.name} has other axes than the products", "move reshapes of scores and results to a separate fusion")
    return found


class _Walk:
    """The calls. Axes stand [batch.., rows of blocks, chunk, warpgroup, | warp, row, pair, ...]."""

    def __init__(self, script: Script, found: Attention, config: AttentionConfig) -> None:
        self.script, self.fusion, self.found, self.config = script, script.fusion, found, config
        self.is_clustered = config.cluster > 1
        self.batch = min(len(found.batch), 2)
        """Axes of blocks beside the rows."""
        self.head = (2 if config.blocks else self.batch + 1) + self.is_clustered
        """The place of the loop over the chunks."""

    def apply(self) -> None:
        """Make the calls."""
        script, fusion, found, config = self.script, self.fusion, self.found, self.config
        if config.residents > 1:
            script.resident_blocks(config.residents)
        self._spread()
        script.comment("one walk over the keys")
        keys = Keys(fusion)
        along = _place(fusion, found.reductions[0], found.reductions[0].logical, found.scores.root[found.m], keys)
        rows = config.rows * config.cluster if found.is_masked else None
        script.cascade(found.reductions, config.chunk, rows=rows, along=along if found.is_masked else None)
        self._find()
        script.comment("copies: queries, keys and values into Shared memory")
        self._copies()
        self._classify()
        script.comment("rows over the blocks, chunks of keys, warpgroups")
        self._tiles()
        self._registers()
        script.comment("products, from Shared memory and from registers")
        self._multiply()
        self._overlap()
        self._rings()
        script.comment("shared loops")
        self._share()
        script.comment("roles")
        self._roles()
        assert fusion is script.fusion

    def _spread(self) -> None:
        """What is computed of keys alone, such as their places: for each row that reads it, in the registers that have its scores."""
        fusion, found, keys = self.fusion, self.found, Keys(self.fusion)
        row, key = (found.scores.root[p] for p in (found.m, found.n))

        def has(tv: TensorView, a: Axis) -> bool:
            return any(x.extent is a.extent and keys.equal(x, a) for x in tv.root)

        for e in needed(fusion):
            tv = e.output
            if not isinstance(e, Pointwise) or not has(tv, key) or has(tv, row) or depends(fusion, tv, (found.scores,)):
                continue
            readers = [use.output for use in storage_uses(fusion, tv) if has(use.output, row)]
            if readers:
                self.script.comment(f"{tv.name} of the keys, for each row")
                self.script.recompute(tv, readers)

    def _find(self) -> None:
        """The products by chunks."""
        fusion = self.fusion
        products = [e for e in fusion.exprs() if computes(e, SUM_OF_PRODUCTS)]
        walks = [e.output for e in products if e.rescaled is not None]
        if not walks:
            raise refuse(fusion, "attention", NO_MAXIMUM)
        self.walk = walks[0]
        self.scores = next(e.output for e in products if e.rescaled is None and depends(fusion, self.walk, (e.output,)))

    def _copies(self) -> None:
        """Queries, keys and values as the products read them."""
        fusion, script = self.fusion, self.script
        first, second = (fusion.definition(t) for t in (self.scores, self.walk))
        assert isinstance(first, Reduction)
        assert isinstance(second, Reduction)
        last = next(k for k, o in enumerate(second.terms) if isinstance(o, Read) and not depends(fusion, o.tensor, (self.scores,)))
        for out in fusion.outputs:
            if out.uses:  # results that others read are copies of what these read
                script.new(out, "cache_fork")
        self.outs = [tv for tv in stored(fusion) if tv.dtype.itemsize == ITEMSIZE and not tv.is_input]
        bulk = [tv for tv in self.outs if self.config.staged and len(tv.root) > len(self.found.batch) + 1]
        self.stored = [(script.new(tv, "cache_before"), tv) for tv in self.outs]
        self.staged = [(script.new(made, "cache_after"), made, out) for made, out in self.stored if among(out, bulk)]
        self.queries = copied(script, self.scores, self.found.queries)
        self.keys = copied(script, self.scores, self.found.keys)
        self.values = copied(script, self.walk, last, [] if self.config.is_pipelined else [self.keys])
        if self.values is self.keys and self.config.is_pipelined:  # which are released before the values are
            self.values = script.duplicate(self.keys, [self.walk])
        self.streamed = [self.keys] if self.values is self.keys else [self.keys, self.values]
        self.exponentials: list[TensorView] = []
        self.factors: list[TensorView] = []
        self.totals: list[TensorView] = []
        if self.config.apart:
            self._hand_over(second, next(k for k, o in enumerate(second.terms) if isinstance(o, Read) and depends(fusion, o.tensor, (self.scores,))))
        for tv in (self.queries, *self.streamed, *self.exponentials, *self.factors[:1], *self.totals):
            script.on(tv).set_memory_type(MemoryType.Shared)

    def _hand_over(self, walk: Reduction, place: int) -> None:
        """Copies of what a warpgroup computes of the scores, for those that have the sums: the first factor of the second product, in Shared memory; the
        factors of the sums, in Shared memory and then in registers; and maximum and sum of a row, in Shared memory."""
        factor, keys = len(walk.terms), Keys(self.fusion)
        assert walk.rescaled is not None
        along = self.walk.root[walk.rescaled]
        given, decay = walk.operands[place], walk.operands[factor]
        assert isinstance(given, Read)
        assert isinstance(decay, Read)
        self.exponentials = [self.script.new(given.tensor, "cache_after", self.walk, place)]
        sent = self.script.new(decay.tensor, "cache_after", self.walk, factor)
        self.factors = [sent, self.script.new(sent, "cache_after", self.walk, factor)]
        for e in needed(self.fusion):
            if e.output is not self.walk and e.output.uses and any(a.is_reduction and keys.equal(a, along) for a in e.output.root):
                self.totals.append(self.script.new(e.output, "cache_after"))

    # -- kinds of tensors -------------------------------------------------------------------------------------------------------------

    def _classify(self) -> None:
        """Tensors by the axes that they have: chunks, elements of a chunk, columns of the result."""
        fusion, keys = self.fusion, Keys(self.fusion)
        walk = fusion.definition(self.walk)
        assert isinstance(walk, Reduction)
        assert walk.rescaled is not None
        along = self.walk.root[walk.rescaled]
        element = self.walk.root[walk.rescaled + 1]
        v = next(o for o in walk.terms if isinstance(o, Read) and o.tensor is self.values)
        p = next(o for o in walk.terms if isinstance(o, Read) and o.tensor is not self.values)
        used, theirs = ({name for e in o.index for name in e.free} for o in (v, p))
        self.column = next(k for k, a in enumerate(self.walk.root) if not a.is_reduction and f"i{k}" in used - theirs)
        columns = self.walk.root[self.column]

        def has(tv: TensorView, a: Axis) -> bool:
            return any(x.extent is a.extent and keys.equal(x, a) for x in tv.root)

        code = [e.output for e in needed(fusion) if has_code(fusion, e)]
        self.mine = [tv for tv in code if not among(tv, [self.queries, *self.streamed, self.scores, *self.exponentials, self.walk])]
        self.chunks = [tv for tv in self.mine if has(tv, along) and has(tv, element) and not any(a.is_reduction for a in tv.root)]
        self.terms = [p.tensor]  # the first factor, and what is computed for it alone
        for tv in reversed(self.chunks):
            if (uses := storage_uses(fusion, tv)) and all(among(use.output, self.terms) for use in uses):
                self.terms.append(tv)
        self.sums = [tv for tv in self.mine if any(a.is_reduction and keys.equal(a, element) for a in tv.root)]
        self.parts = [tv for tv in self.sums if not any(a.is_reduction and keys.equal(a, along) for a in tv.root)]
        self.sums = [tv for tv in self.sums if not among(tv, self.parts)]
        rest = [tv for tv in self.mine if not among(tv, [*self.chunks, *self.sums, *self.parts])]
        made = (*self.parts, *self.sums, self.walk)
        self.rows = [tv for tv in rest if has(tv, along) or not depends(fusion, tv, made)]  # also what the walk reads, such as positions
        rest = [tv for tv in rest if not among(tv, self.rows)]
        bulk = [tv for staging, _, out in self.staged for tv in (staging, out)]
        self.after = [tv for tv in rest if has(tv, columns) and not among(tv, bulk)]
        self.row_results = [tv for tv in rest if not has(tv, columns)]
        self.bulk = bulk
        if not self.after or not self.parts:
            raise refuse(fusion, "attention", NO_MAXIMUM)

    # -- loops ------------------------------------------------------------------------------------------------------------------------

    def _tiles(self) -> None:
        script, head = self.script, self.head
        self._by_blocks(self.scores, (self.found.m, *(p for p in range(len(self.scores.root)) if p not in (*self.found.batch, self.found.m))))
        call = script.on(self.scores)
        call.reorder({head: head + 1})
        call.propagate(self.streamed, head + 1)
        call.propagate([self.queries], head)
        call.split(head + 1, WGMMA_ROWS)
        if self.config.parts == 1:
            call.bind(head + 1, P.TIDy)
        call.propagate([*self.chunks, *self.parts, *self.sums, *self.exponentials, self.walk], head + 3)

    def _by_blocks(self, tv: TensorView, others: Sequence[int]) -> None:
        """[batch.., rows, others..] to [batch.., blocks, (rank,) rows of a block, others..]."""
        call = self.script.on(tv)
        batch = [p for p in range(len(tv.root)) if p not in others]
        order = [*batch, *others]
        if order != sorted(order):
            call.reorder(order)
        self._blocks(call)

    def _blocks(self, call: Recorded) -> None:
        """[batch.., rows, ..] to [batch.., blocks, (rank,) rows of a block, ..]; the last rows come first where masks leave them more keys than others."""
        rows = self.batch
        for _ in range(rows, len(self.found.batch)):
            call.merge(0)
        call.split(rows, self.config.rows)
        if self.is_clustered:
            call.split(rows, self.config.cluster)
        if self.found.row:
            call.rasterize((rows,), Spelled(tiles.descending(), "tf.tiles.descending()"))
        if self.config.blocks:
            call.rasterize(tuple(range(rows + 1)), Spelled(tiles.raster(), "tf.tiles.raster()")).split(0, self.config.blocks // self.config.cluster)
            if self.found.row:  # walks are unequally long
                call.rasterize((1,), Spelled(tiles.dynamic(), "tf.tiles.dynamic()"))
            call.bind(1, P.BIDx)
            if self.is_clustered:
                call.bind(2, P.CIDx)
            return
        for k, ptype in zip(range(rows - 1, -1, -1), (P.BIDy, P.BIDz), strict=False):
            call.bind(k, ptype)
        call.bind(rows, P.BIDx)
        if self.is_clustered:
            call.bind(rows + 1, P.CIDx)

    def _registers(self) -> None:
        """As the tensor cores hold sums: [.., warp, row, pair, columns / 8, half, element]; what has rows alone, without the columns."""
        script, tile = self.script, self.head + 2
        half, rows = tile + 3, tile + 4
        for tv in (*self.parts, *self.sums):
            script.on(tv).fragment((tile, tile + 1)).reorder({rows: half})
        script.on(self.parts[0]).propagate(self.rows, rows)
        for tv in self.chunks:
            call = script.on(tv).fragment((tile, tile + 1))
            if among(tv, self.terms):
                hold_terms(call, tile + 3, self.found.value_itemsize)
        for tv in self.exponentials:
            self._by_stmatrix(tv, self.config.chunk, tile)
        script.comment("results: [batch.., rows of blocks, warpgroup, | warp, row, pair, half, columns / 8, element]")
        ref = self.after[0]
        keys = Keys(self.fusion)
        scores = self.scores.root
        wanted = self.walk.root[self.column], scores[self.found.m], *(scores[p] for p in self.found.batch)
        column, row, *batch = (_place(self.fusion, ref, ref.root, x, keys) for x in wanted)
        call = script.on(ref)
        if [*batch, row, column] != sorted([*batch, row, column]):
            call.reorder([*batch, row, column])
        self._blocks(call)
        hold_results(script, self.after, self.head, self.row_results, self.bulk, self.config.parts)
        loaded = [self.queries, *self.streamed]
        script.parallelize_like(self.scores, [*loaded, *self.chunks, *self.parts, *self.sums, *self.exponentials, self.walk, *self.rows])
        script.parallelize_like(self.parts[0], self.rows)
        script.parallelize_like(ref, [*self.after, *self.row_results, *self.bulk])
        for _, out in self.stored:
            if among(out, self.after):
                script.on(out).bind(-1, P.Vectorize)
        for staging, _, out in self.staged:
            self._in_pieces(staging, out, self.head + 1)

    def _in_pieces(self, staging: TensorView, out: TensorView, tile: int) -> None:
        """[.., warpgroup, m64, columns] to [.., warpgroup, piece, | m64, columns of a piece]: by stmatrix into Shared memory, from there by the copy engine."""
        script = self.script
        script.on(out).split(tile + 1, PIECE).reorder({tile + 1: tile}).bind(tile, P.Unroll)
        script.on(staging).set_memory_type(MemoryType.Shared).circular_buffer(self.config.staged)
        self._by_stmatrix(staging, PIECE, tile)
        script.on(out).set_atom(atoms.TMA_STORE, (tile + 1, tile + 2))

    def _by_stmatrix(self, tv: TensorView, columns: int, tile: int) -> None:
        """[.., m64, columns] to [.., piece, | warp, column / 16, row, column], in pieces of rows of at most 128 bytes, swizzled."""
        span = next(s for s in (128, 64, 32) if columns * ITEMSIZE % s == 0)
        call = self.script.on(tv).split(tile + 1, span // ITEMSIZE).reorder({tile + 1: tile}).bind(tile, P.Unroll)
        call.set_allocation_domain(Spelled(layouts.swizzled(span), f"tf.layouts.swizzled({span})"))
        call.split(tile + 2, STMATRIX).split(tile + 1, STMATRIX).reorder({tile + 3: tile + 2})
        call.bind(tile + 1, P.TIDx).bind(tile + 2, P.Unroll)
        call.set_atom(atoms.STMATRIX_X4, (tile + 3, tile + 4))

    def _multiply(self) -> None:
        """The products as wgmma. Warpgroups that have the same rows have parts of the columns; beside a warpgroup of scores, in instructions of fewer."""
        script, config, head = self.script, self.config, self.head
        multiply(script, self.scores, head + 2, config.chunk, self.found.itemsize)
        columns = self.found.columns // config.parts
        if config.parts > 1:
            script.on(self.walk).split(head + 3, columns).reorder({head + 3: head + 2}).merge(head + 1).bind(head + 1, P.TIDy)
        if config.apart:
            columns = gcd(columns, APART_COLUMNS)
            script.on(self.walk).split(head + 3, columns).reorder({head + 3: head + 2}).bind(head + 2, P.Unroll)
        multiply(script, self.walk, head + 2 + config.apart, columns, self.found.value_itemsize, is_computed=True)

    def _overlap(self) -> None:
        """What runs beside the products of a warpgroup: its own exponentials, or those of others."""
        if self.config.is_pipelined:
            self.script.on(self.walk).pipeline_stage(1)
        for tv in (self.scores, self.walk) if self.config.in_turn else ():
            self.script.on(tv).take_turns(P.TIDy)

    def _rings(self) -> None:
        """Rows of at most 128 bytes, in pieces; one slot of queries, a ring of keys and one of values; one slot of what is handed over."""
        for tv in (*self.exponentials, *self.factors[:1]):
            self.script.on(tv).circular_buffer(1)
        for tv in (self.queries, *self.streamed):
            run = self.config.chunk if tv is self.queries else gcd(self.config.chunk, self.found.run)
            if tv is self.values is not self.keys:
                as_terms(self.script.on(tv), self.found.value_itemsize)
            call = swizzle(self.script, tv, run if run < self.config.chunk else None)  # a box for each page
            if tv is not self.queries:
                call.circular_buffer(self.config.stages)
            elif self.config.blocks:
                call.circular_buffer(self.config.query_stages)
            is_common = self.is_clustered and tv is not self.queries
            call.set_atom(atoms.TMA_LOAD_MULTICAST if is_common else atoms.TMA_LOAD, (-2, -1))

    def _share(self) -> None:
        script, head = self.script, self.head
        order = [e.output for e in self.fusion.exprs()]
        kept = [self.queries, *self.streamed, self.scores, *self.exponentials, self.walk, *self.mine]
        every = [tv for tv in order if among(tv, kept) and not tv.is_output]
        inside = [*self.streamed, self.scores, *self.parts, *self.chunks, *(tv for tv in self.rows if not any(a.is_reduction for a in tv.root))]
        inside += self.exponentials
        share_walk(script, every, inside, head)
        readers = {tv: [use.output for use in storage_uses(self.fusion, tv)] for tv in self.chunks}
        alone = [tv for tv, own in readers.items() if len(own) == 1 and among(own[0], self.chunks)]
        script.inline_at([tv for tv in alone if not among(tv, self.terms)], head + 8)
        script.inline_at([tv for tv in alone if among(tv, self.terms)], len(self.terms[0].loop))
        script.inline_at([tv for tv, *_ in self.staged], head + 2)
        made = [tv for _, tv, _ in self.staged]
        share_results(script, [tv for tv in self.after if not among(tv, made)], self.stored, head)

    def _roles(self) -> None:
        script = self.script
        results = [*self.after, *self.row_results, *self.bulk]
        load = script.task([self.queries, *self.streamed], "load")
        results = [tv for tv in results if not among(tv, self.totals)]
        softmax = [*(tv for tv in self.mine if not among(tv, [*results, *self.factors[1:]])), *self.exponentials]
        if not self.config.apart:
            tasks = [script.task([self.scores], "scores"), script.task(softmax, "softmax"), script.task([self.walk], "values"), script.task(results, "results")]
            script.make_roles(load, script.grouped(tasks, "consumer"))
            return
        scores = script.task([self.scores, *softmax], "scores")
        tasks = [script.task([*self.factors[1:], self.walk], "values"), script.task(results, "results")]
        consumer = script.grouped(tasks, "consumer")
        script.group([load, scores, consumer], "roles").parallelize(P.TIDy)
        for node, count in ((load, LOADING), (scores, SCORING), (consumer, HOLDING)):
            script.node(node).registers(count)
