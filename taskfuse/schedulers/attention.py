"""``tf.schedulers.attention``: a product, a softmax of its rows or another cascade of reductions, and a product of the result, as one walk over the keys.

    load       the queries of a block's rows, once; for each chunk of keys: TMA of keys, then of values, into a ring of each
    consumer   for each chunk: wgmma of queries and keys; its maximum, across the four lanes of a row; exponentials, which stay in registers as
               the first factor of the second product; the partial sums, rescaled for the new maximum; wgmma of exponentials and values, one chunk
               behind if the products are pipelined

Each warpgroup of ``consumer`` has 64 rows. The scheduler has no notion of softmax: :func:`taskfuse.cascade` turns the
reductions between the two products into one walk. Any elementwise math may stand between the products: scale, mask, bias, softcap.

Everything is a public scheduling call; a :class:`~taskfuse.schedulers.script.Script` writes them down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd

from taskfuse import tiles
from taskfuse.ir import atoms
from taskfuse.ir.atoms import SUM_OF_PRODUCTS, WGMMA_ROWS
from taskfuse.ir.axes import Axis, iteration_point, iteration_symbol
from taskfuse.ir.contraction import axes_of_index, computes
from taskfuse.ir.expr import Pointwise, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import ZERO, Const, Expr, FloorDiv, Mod, children, integers_of, le, prove, simplify, substitute
from taskfuse.ir.storage import has_code, needed, resolve, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule import layouts
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.masked_ends import masked_end, masked_start
from taskfuse.schedule.repairs import depends
from taskfuse.schedule.scatter import ragged_rows
from taskfuse.schedulers.attention_cost import ITEMSIZE, PIECE, Attention, AttentionConfig, check_fits, planned
from taskfuse.schedulers.config import STMATRIX
from taskfuse.schedulers.elementwise import stored
from taskfuse.schedulers.loads import is_bulk
from taskfuse.schedulers.ragged_tiles import store_by_tiles, stored_by_tiles
from taskfuse.schedulers.schedule import Chosen, Offer, Option, Sizes, check_call, refuse, rehearse, tries_parameters
from taskfuse.schedulers.script import Recorded, Script, Spelled
from taskfuse.schedulers.walk_tiles import check_product, copied, hold_results, is_given, matrices, multiply, share_results, share_walk, swizzle
from taskfuse.target import DEFAULT, Target

NO_MAXIMUM = "no maximum is taken between the products, or their result is not stored"
SWIZZLED_ROWS = 8
"""The period of a swizzle in Shared memory, in rows."""


@tries_parameters
def attention(
    fusion: Fusion, config: AttentionConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT
) -> Chosen[AttentionConfig]:
    """Schedule ``softmax(q @ k.T) @ v`` and its variants as a warp-specialized kernel for Hopper (sm_90a) without scores in memory.

    The fusion has two products of 16-bit factors with float32 sums; factors of the first may have 8 bits, and are inputs, read as ``[..., M, D]`` and
    ``[..., N, D]``. The second sums over N: its factors are elementwise math and reductions over N of the first product, and an input ``[..., N, C]``. The
    reductions form a cascade (:func:`taskfuse.cascade`). D and C are constant multiples of 32, up to 256; M and N are any; there are up to three batch axes,
    of which keys and values may lack some or have fewer elements (grouped queries), and queries may lack some (chunks of keys: :func:`taskfuse.chunk_cascade`).

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


# -- what is found ------------------------------------------------------------------------------------------------------------------


def find(fusion: Fusion) -> Attention:
    """The two products and the math between them. Raises :class:`UnsupportedError`."""
    exprs = needed(fusion)
    products = [e for e in exprs if isinstance(e, Reduction) and matrices(fusion, e) is not None]
    if len(products) != 2:
        raise refuse(fusion, "attention", f"the number of matrix products is {len(products)}, not 2", "tf.compile cuts other fusions")
    first, second = products
    assert isinstance(first, Reduction)
    assert isinstance(second, Reduction)
    if not depends(fusion, second.output, (first.output,)):
        raise refuse(fusion, "attention", f"{second.output.name} does not depend on {first.output.name}")
    one, two = matrices(fusion, first), matrices(fusion, second)
    assert one is not None
    assert two is not None
    check_product(fusion, "attention", first, one, (1, ITEMSIZE))
    check_product(fusion, "attention", second, two)
    if not all(is_given(fusion, o) for o in first.operands) or len(one.summed) != 1 or len(two.summed) != 1:
        raise refuse(fusion, "attention", f"the factors of {first.output.name} are not inputs, or it sums over several axes")
    key = second.output.root[two.summed[0]]
    wanted = key.extent
    reductions = tuple(e.output for e in exprs if isinstance(e, Reduction) and e is not first and depends(fusion, e.output, (first.output,)))
    for r in reductions:
        reduced = [a.extent for a in r.root if a.is_reduction]
        if len(reduced) != 1 or reduced[0] is not wanted:
            raise refuse(fusion, "attention", f"{r.name} and {second.output.name} reduce different axes")
    keys = Keys(fusion)
    along = [p for p, a in enumerate(first.output.root) if keys.equal(a, key)]
    sides = one if one.columns.intersection(along) else one.swapped()
    other = two if is_given(fusion, two.b) else two.swapped()
    own = [p for p in sides.columns if p in along]
    if len(sides.rows) != 1 or len(own) != 1 or len(other.columns) != 1 or not is_given(fusion, other.b):
        raise refuse(fusion, "attention", "a product has more than one axis of rows or columns, or the last factor is not an input")
    (m,), (n,), (c,) = sides.rows, own, other.columns
    if sum(f"i{m}" in e.free for e in sides.a.index) > 1:
        raise refuse(
            fusion, "attention", f"rows of {first.output.name} are digits of several axes of {sides.a.tensor.name}", "pass the reshaped tensor as an input"
        )
    batch = tuple(sorted((*one.batch, *(p for p in sides.columns if p != n))))  # chunks of keys are such an axis, which queries lack
    sizes = [first.output.root[one.summed[0]].extent, second.output.root[c].extent]
    for e in sizes:
        if not isinstance(e, Const) or e.value % 32 or e.value < 32:
            raise refuse(fusion, "attention", f"heads of {e} elements", "use constant multiples of 32")
    if len(batch) > 3:
        raise refuse(fusion, "attention", f"it has {len(batch)} batch axes", "merge them, with a reshape")
    assert isinstance(sizes[1], Const)
    top = fusion.definition(reductions[0])
    assert isinstance(top, Reduction)
    along_keys = next(k for k, a in enumerate(top.output.root) if a.is_reduction)

    def used(bound: Expr) -> list[int]:
        return [p for p, s in enumerate(iteration_point(len(top.output.root))) if str(s) in integers_of(bound)]

    def known(bound: Expr | None) -> Expr | None:
        """A bound that depends on rows and batch axes alone."""
        is_known = bound is not None and all(p in (*batch, m) and keys.equal(top.output.root[p], first.output.root[p]) for p in used(bound))
        return bound if is_known else None

    start, end = known(masked_start(fusion, top, along_keys)), known(masked_end(fusion, top, along_keys))
    run = gcd(*(size for r, p in ((sides.b, n), (other.b, two.summed[0])) for e in r.index for size in _divisors(e, f"i{p}")))
    if run % SWIZZLED_ROWS:
        raise refuse(fusion, "attention", f"runs of {run} keys of {other.b.tensor.name} are contiguous", f"use pages of a multiple of {SWIZZLED_ROWS} keys")
    is_padded = not all(resolve(fusion, o).tensor.is_input for o in (*first.operands, other.b) if isinstance(o, Read))
    row = str(iteration_symbol(m)) if end is not None and m in used(end) else ""
    itemsize = sides.a.tensor.dtype.itemsize
    inside = _start_in_keys(keys, first.output, sides.b, second.output, other.b, {c: one.summed[0]})
    with_columns = [tv for tv in stored(fusion) if len(tv.root) > len(batch) + 1]
    has_bulk = sizes[1].value % PIECE == 0 and not ragged_rows(fusion)
    for tv in with_columns:
        is_row_major = tv.is_output and keys.equal(tv.root[-1], second.output.root[c])
        has_bulk = has_bulk and is_row_major and tv.dtype.itemsize == ITEMSIZE and is_bulk(tv, fusion.facts())
    return Attention(
        first.output, reductions, batch, m, n, one.summed[0], sizes[1].value, *sides.places, is_padded, start, end, row, run, itemsize, inside, has_bulk
    )


def _start_in_keys(keys: Keys, scores: TensorView, key: Read, walk: TensorView, value: Read, along: Mapping[int, int]) -> int | None:
    """Where the elements of a value begin among those of its key; ``None`` if it is not a part of it.

    Args:
        keys: of the axes.
        scores, walk: the products, by whose axes a key and a value are read.
        along: from the columns of ``walk`` to the axis that ``scores`` sums.
    """
    at: dict[str, Expr] = {}
    for p, a in enumerate(walk.root):
        place = along.get(p, next((q for q, b in enumerate(scores.root) if keys.equal(a, b)), None))
        if place is not None:
            at[str(iteration_symbol(p))] = iteration_symbol(place)
    facts = keys.fusion.facts()
    if key.tensor is not value.tensor or any(str(iteration_symbol(p)) not in at for p in axes_of_index(value.index)):
        return None
    begins = [simplify(substitute(b, at) - a, facts) for a, b in zip(key.index, value.index, strict=True)]
    ((column, element),) = along.items()
    inner = [begin for a, begin in zip(key.index, begins, strict=True) if a is iteration_symbol(element)]
    others = [begin for a, begin in zip(key.index, begins, strict=True) if a is not iteration_symbol(element)]
    if len(inner) != 1 or not isinstance(inner[0], Const) or any(begin is not ZERO for begin in others):
        return None
    start = inner[0].value
    return start if start >= 0 and prove(le(start + walk.root[column].extent, scores.root[element].extent), facts) else None


def _divisors(e: Expr, name: str) -> Iterator[int]:
    """The constants by which a symbol is divided, or of which the remainder is taken: indices that are a multiple of one apart lie in different places."""
    if isinstance(e, FloorDiv | Mod) and name in e.a.free:
        yield e.b.value if isinstance(e.b, Const) else 1
    for part in children(e):
        if name in part.free:
            yield from _divisors(part, name)


# -- the schedule -------------------------------------------------------------------------------------------------------------------


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
        if config.parts > 1:
            call = script.on(self.walk).split(self.head + 3, found.columns // config.parts).reorder({self.head + 3: self.head + 2})
            call.merge(self.head + 1).bind(self.head + 1, P.TIDy)
        if config.apart:
            multiply(script, self.scores, self.head + 2, config.chunk, found.itemsize)
            call = script.on(self.walk).split(self.head + 3, 128).reorder({self.head + 3: self.head + 2})
            call.bind(self.head + 2, P.Unroll)
            multiply(script, self.walk, self.head + 3, 128)
        for tv, columns in ((self.scores, config.chunk), (self.walk, found.columns // config.parts)) if not config.apart else ():
            multiply(script, tv, self.head + 2, columns, found.itemsize if tv is self.scores else ITEMSIZE)
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
        self.loaded = [self.queries, self.keys, *([] if self.values is self.keys else [self.values])]
        self.sent: list[TensorView] = []
        if self.config.apart:
            place = next(k for k, o in enumerate(second.terms) if isinstance(o, Read) and depends(fusion, o.tensor, (self.scores,)))
            walk = fusion.definition(self.walk)
            p, f = walk.operands[place].tensor, walk.operands[len(second.terms)].tensor
            self.exponentials = script.new(p, "cache_after", self.walk, place)
            self.factor = script.new(f, "cache_after", self.walk, len(second.terms))
            self.taken = script.new(self.factor, "cache_after", self.walk, len(second.terms))
            self.sent = [self.exponentials, self.factor]
        for tv in (*self.loaded, *self.sent):
            script.on(tv).set_memory_type(MemoryType.Shared)

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
        self.mine = [tv for tv in code if not among(tv, [*self.loaded, self.scores, self.walk])]
        self.chunks = [tv for tv in self.mine if not among(tv, self.sent) and has(tv, along) and has(tv, element) and not any(a.is_reduction for a in tv.root)]
        self.sums = [tv for tv in self.mine if any(a.is_reduction and keys.equal(a, element) for a in tv.root)]
        self.parts = [tv for tv in self.sums if not any(a.is_reduction and keys.equal(a, along) for a in tv.root)]
        self.sums = [tv for tv in self.sums if not among(tv, self.parts)]
        rest = [tv for tv in self.mine if not among(tv, [*self.chunks, *self.sums, *self.parts, *self.sent[:1]])]
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
        script, head, rows = self.script, self.head, self.config.rows
        self._by_blocks(self.scores, (self.found.m, *(p for p in range(len(self.scores.root)) if p not in (*self.found.batch, self.found.m))))
        call = script.on(self.scores)
        call.reorder({head: head + 1})
        call.propagate(self.loaded[1:], head + 1)
        call.propagate([self.queries], head)
        call.split(head + 1, WGMMA_ROWS)
        if self.config.parts == 1:
            call.bind(head + 1, P.TIDy)
        call.propagate([*self.chunks, *self.parts, *self.sums, self.walk, *self.sent[:1]], head + 3)
        assert rows == self.config.warpgroups // self.config.parts * WGMMA_ROWS

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
            script.on(tv).fragment((tile, tile + 1))
        for tv in self.sent[:1]:
            call = script.on(tv)
            span = 128
            call.split(tile + 1, 64).reorder({tile + 1: tile}).bind(tile, P.Unroll)
            call.set_allocation_domain(Spelled(layouts.swizzled(span), f"tf.layouts.swizzled({span})")).circular_buffer(1)
            call.split(tile + 2, STMATRIX).split(tile + 1, STMATRIX).reorder({tile + 3: tile + 2})
            call.bind(tile + 1, P.TIDx).bind(tile + 2, P.Unroll)
            call.set_atom(atoms.STMATRIX_X4, (tile + 3, tile + 4))
            script.on(self.factor).circular_buffer(2)
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
        script.parallelize_like(self.scores, [*self.loaded, *self.sent[:1], *self.chunks, *self.parts, *self.sums, self.walk, *self.rows])
        script.parallelize_like(self.parts[0], self.rows)
        script.parallelize_like(ref, [*self.after, *self.row_results, *self.bulk])
        for _, out in self.stored:
            if among(out, self.after):
                script.on(out).bind(-1, P.Vectorize)
        for staging, _, out in self.staged:
            self._in_pieces(staging, out, self.head + 1)

    def _in_pieces(self, staging: TensorView, out: TensorView, tile: int) -> None:
        """[.., warpgroup, m64, columns] to [.., warpgroup, piece, | m64, columns of a piece]: by stmatrix into Shared memory, from there by the copy engine."""
        script, span = self.script, PIECE * ITEMSIZE
        for tv in (staging, out):
            script.on(tv).split(tile + 1, PIECE).reorder({tile + 1: tile}).bind(tile, P.Unroll)
        call = script.on(staging)
        call.set_memory_type(MemoryType.Shared)
        call.set_allocation_domain(Spelled(layouts.swizzled(span), f"tf.layouts.swizzled({span})")).circular_buffer(self.config.staged)
        call.split(tile + 2, STMATRIX).split(tile + 1, STMATRIX).reorder({tile + 3: tile + 2})
        call.bind(tile + 1, P.TIDx).bind(tile + 2, P.Unroll)
        call.set_atom(atoms.STMATRIX_X4, (tile + 3, tile + 4))
        script.on(out).set_atom(atoms.TMA_STORE, (tile + 1, tile + 2))

    def _overlap(self) -> None:
        """What runs beside the products of a warpgroup: its own exponentials, or those of others."""
        if self.config.is_pipelined:
            self.script.on(self.walk).pipeline_stage(1)
        for tv in (self.scores, self.walk) if self.config.in_turn else ():
            self.script.on(tv).take_turns(P.TIDy)

    def _rings(self) -> None:
        """Rows of at most 128 bytes, in pieces; one slot of queries, a ring of keys and one of values."""
        for tv in self.loaded:
            run = self.config.chunk if tv is self.queries else gcd(self.config.chunk, self.found.run)
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
        kept = [*self.loaded, self.scores, self.walk, *self.mine]
        every = [tv for tv in order if among(tv, kept) and not tv.is_output]
        inside = [*self.loaded[1:], self.scores, *self.sent[:1], *self.parts, *self.chunks, *(tv for tv in self.rows if not any(a.is_reduction for a in tv.root))]
        share_walk(script, every, inside, head)
        readers = {tv: [use.output for use in storage_uses(self.fusion, tv)] for tv in self.chunks}
        script.inline_at([tv for tv, own in readers.items() if len(own) == 1 and among(own[0], self.chunks)], head + 8)
        script.inline_at([tv for tv, *_ in self.staged], head + 2)
        made = [tv for _, tv, _ in self.staged]
        share_results(script, [tv for tv in self.after if not among(tv, made)], self.stored, head)

    def _roles(self) -> None:
        script = self.script
        results = [*self.after, *self.row_results, *self.bulk]
        load = script.task(self.loaded, "load")
        if self.config.apart:
            mine = [tv for tv in self.mine if not among(tv, [*results, self.taken])]
            scores = script.task([self.scores, *mine], "scores")
            tasks = [script.task([self.taken], "factor"), script.task([self.walk], "values"), script.task(results, "results")]
            consumer = script.grouped(tasks, "consumer")
            script.group([load, scores, consumer], "roles").parallelize(P.TIDy)
            for node, count in ((load, 24), (scores, 152), (consumer, 168)):
                script.node(node).registers(count)
            return
        tasks = [
            script.task([self.scores], "scores"),
            script.task([tv for tv in self.mine if not among(tv, results)], "softmax"),
            script.task([self.walk], "values"),
            script.task(results, "results"),
        ]
        script.make_roles(load, script.grouped(tasks, "consumer"))
