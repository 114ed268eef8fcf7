"""``tf.schedulers.back_to_back``: products whose first factors are elementwise functions of other products, as one walk over the summed axis.

    load       for a block's rows, once: the first factors of the first products; for each chunk of the axis: TMA of the second factors into rings
    consumer   for each chunk: wgmma of the first products; elementwise math in registers, whose results are the first factors of the last
               products; wgmma of these

Each warpgroup of ``consumer`` has 64 rows. The gradients of attention are such products: that of the queries sums, over the keys, a function of the scores and
of the gradients of their exponentials; those of keys and values sum two functions of these over the queries, in one walk. Chunks that a mask
excludes entirely are skipped (:func:`taskfuse.cascade`, ``rows``).

Everything is a public scheduling call; a :class:`~taskfuse.schedulers.script.Script` writes them down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from taskfuse import tiles
from taskfuse.ir import atoms
from taskfuse.ir.atoms import WGMMA_ROWS
from taskfuse.ir.axes import Axis
from taskfuse.ir.contraction import Factors
from taskfuse.ir.expr import FirstValid, Pointwise, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import ONE, Const
from taskfuse.ir.storage import needed, storage_operands, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.masked_ends import masked_end, masked_start
from taskfuse.schedule.repairs import depends
from taskfuse.schedulers.back_to_back_cost import ITEMSIZE, NAME, WIDEST, BackToBack, BackToBackConfig, check_fits, planned
from taskfuse.schedulers.schedule import Chosen, Offer, Option, Sizes, check_call, refuse, rehearse, tries_parameters
from taskfuse.schedulers.script import Recorded, Script, Spelled
from taskfuse.schedulers.walk_tiles import check_product, copied, hold_results, is_given, matrices, multiply, share_results, share_walk, swizzle
from taskfuse.target import DEFAULT, Target


@tries_parameters
def back_to_back(
    fusion: Fusion, config: BackToBackConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT
) -> Chosen[BackToBackConfig]:
    """Schedule products of elementwise functions of products as a warp-specialized kernel for Hopper (sm_90a) without these functions in memory.

    The fusion has first products, whose factors are inputs, read as ``[..., M, D]`` and ``[..., N, D]``, and last products, which sum over N elementwise
    functions of the first ones, each times an input ``[..., N, C]``. Factors are 16-bit floats, sums float32. Extents D and C are constant
    multiples of 32, up to 256; M and N are any; there are up to three batch axes, of which factors may lack some or have fewer elements.

    Args:
        fusion: it is changed: tensors, tasks and schedule are added.
        config: the parameters; ``None``: the fastest by the cost model.
        sizes: values of the fusion's dimensions for the cost model; by default 4096, clamped to the known bounds.
        target: the GPU.

    Raises:
        UnsupportedError: the fusion or the parameters do not fit this scheduler.
    """
    check_call(fusion, NAME, config, BackToBackConfig)
    found = find(fusion)
    alternatives = planned(fusion, found, Sizes(fusion, sizes, target))
    chosen = alternatives[0].config if config is None else config
    check_fits(fusion, found, chosen, target)
    trial = copy_fusion(fusion)[0]
    rehearse(fusion, NAME, BackToBackWalk(Script(trial), find(trial), chosen).apply)
    script = Script(fusion)
    BackToBackWalk(script, found, chosen).apply()
    option = next((o for o in alternatives if o.config == chosen), Option(chosen, alternatives[0].us))
    first, last = (", ".join(tv.name for tv in tvs) for tvs in (found.first, found.last))
    return Chosen(NAME, f"{first}, then {last}", option, alternatives, config is not None, script.text)


def offer(fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Offer:
    """The offer of :func:`back_to_back`. Raises :class:`UnsupportedError`: see there."""
    check_call(fusion, NAME, None, BackToBackConfig)
    alternatives = planned(fusion, find(fusion), Sizes(fusion, sizes, target))
    return Offer(alternatives[0].us, lambda trial: back_to_back(trial, sizes=sizes, target=target))


# -- what is found ------------------------------------------------------------------------------------------------------------------


def find(fusion: Fusion, beside: Sequence[TensorView] = ()) -> BackToBack:
    """The products and their axes.

    Args:
        beside: last products that are left out, and so are the outputs that depend on them.

    Raises:
        UnsupportedError: this is another fusion.
    """
    exprs = needed(fusion)
    reductions = [e for e in exprs if isinstance(e, Reduction)]
    products = [e for e in reductions if matrices(fusion, e) is not None]
    if len(products) < 2 or len(products) < len(reductions):
        raise refuse(
            fusion,
            NAME,
            f"the number of matrix products is {len(products)}, of other reductions {len(reductions) - len(products)}",
            "tf.compile cuts other fusions",
        )
    for e in products:
        check_product(fusion, NAME, e, walk_factors(fusion, e.output))
    first = tuple(e.output for e in products if all(is_given(fusion, o) for o in e.operands))
    last = tuple(e.output for e in products if not among(e.output, (*first, *beside)))
    if not first or not last or not all(depends(fusion, tv, first, [t for t in last if t is not tv]) for tv in last):
        raise refuse(fusion, NAME, "it has no products of inputs, or another product does not depend on them")
    if not all(depends(fusion, out, (*last, *beside)) for out in fusion.outputs):
        raise refuse(fusion, NAME, "an output does not depend on a last product", "move it to a separate fusion")
    found = {tv: walk_factors(fusion, tv) for tv in (*first, *last)}
    several = next((tv for tv, two in found.items() if len(two.summed) != 1), None)
    if several is not None:
        raise refuse(fusion, NAME, f"{several.name} sums over several axes")
    keys = Keys(fusion)
    walked = last[0].root[found[last[0]].summed[0]]
    if not all(keys.equal(tv.root[found[tv].summed[0]], walked) for tv in last):
        raise refuse(fusion, NAME, "the last products sum over different axes")
    if walked.extent is ONE:
        raise refuse(fusion, NAME, "the last products sum over one element", "without tensor cores such products are as fast")
    known = {tv: walk_sides(keys, tv, found[tv], walked) for tv in first}
    if not all(len(s.rows) == 1 and len(s.columns) == 1 and keys.equal(tv.root[next(iter(s.columns))], walked) for tv, s in known.items()):
        raise refuse(fusion, NAME, "a first product has more than one axis of rows, or lacks the axis that the last ones sum")
    rows = {tv: next(iter(known[tv].rows)) for tv in first}
    row = first[0].root[rows[first[0]]]
    if not all(keys.equal(tv.root[rows[tv]], row) for tv in first):
        raise refuse(fusion, NAME, "the first products have different rows")
    given = {tv: found[tv] if is_given(fusion, found[tv].b) else found[tv].swapped() for tv in last}
    for tv, two in given.items():
        if not is_given(fusion, two.b) or len(two.columns) != 1 or not any(keys.equal(tv.root[p], row) for p in two.rows) or len(two.rows) != 1:
            raise refuse(fusion, NAME, f"{tv.name} is not the product of rows and of an input with columns")
    sizes = [tv.root[found[tv].summed[0]].extent for tv in first] + [tv.root[next(iter(given[tv].columns))].extent for tv in last]
    for e in sizes:
        if not isinstance(e, Const) or e.value % 32 or not 32 <= e.value <= WIDEST:
            raise refuse(fusion, NAME, f"factors of {e} elements", f"use constant multiples of 32 up to {WIDEST}")
    numbers = [e.value for e in sizes if isinstance(e, Const)]
    one = first[0]
    batch = tuple(p for p in range(len(one.root)) if p not in (rows[one], known[one].summed[0]) and not keys.equal(one.root[p], walked))
    if len(batch) > 3:
        raise refuse(fusion, NAME, f"it has {len(batch)} batch axes", "merge them, with a reshape")
    step = next(p for p, a in enumerate(one.root) if keys.equal(a, walked))
    depths, columns = tuple(numbers[: len(first)]), tuple(numbers[len(first) :])
    streamed = {known[tv].b.tensor: n for tv, n in zip(first, depths, strict=True)} | {given[tv].b.tensor: n for tv, n in zip(last, columns, strict=True)}
    has_columns = any(values_read(fusion, e, walked, row) for e in exprs if isinstance(e, Pointwise))
    return BackToBack(first, last, batch, rows[one], step, depths, columns, tuple(streamed.items()), _end(fusion, last), has_columns)


def values_read(fusion: Fusion, expr: Pointwise, one: Axis, other: Axis) -> list[int]:
    """The operands of a function with two axes that have the first of them, and not the second, and are given."""
    keys = Keys(fusion)
    names = [next((f"i{p}" for p, a in enumerate(expr.output.root) if keys.equal(a, x)), "") for x in (one, other)]
    if not all(names):
        return []
    reads = [(k, {name for x in o.index for name in x.free}) for k, o in enumerate(storage_operands(fusion, expr)) if isinstance(o, Read) and o.tensor.is_input]
    return [k for k, free in reads if names[0] in free and names[1] not in free]


def _end(fusion: Fusion, last: Sequence[TensorView]) -> bool | None:
    """True if masks end the terms of all last products, false if they begin them; ``None``: neither is known."""
    exprs = [(e, next(k for k, a in enumerate(tv.root) if a.is_reduction)) for tv in last if isinstance(e := fusion.definition(tv), Reduction)]
    if all(masked_end(fusion, e, k) is not None for e, k in exprs):
        return True
    return False if all(masked_start(fusion, e, k) is not None for e, k in exprs) else None


def walk_factors(fusion: Fusion, tv: TensorView) -> Factors:
    """The factors of a product."""
    expr = fusion.definition(tv)
    found = matrices(fusion, expr) if isinstance(expr, Reduction) else None
    assert found is not None
    return found


def walk_sides(keys: Keys, tv: TensorView, two: Factors, along: Axis) -> Factors:
    """The factors of a first product, that with the rows first: columns are along an axis that is walked."""
    return two if any(keys.equal(tv.root[p], along) for p in two.columns) else two.swapped()


# -- the schedule -------------------------------------------------------------------------------------------------------------------


class BackToBackWalk:
    """The calls. Axes stand [batch.., rows of blocks, chunk, warpgroup, | warp, row, pair, ...]."""

    def __init__(self, script: Script, found: BackToBack, config: BackToBackConfig) -> None:
        self.script, self.fusion, self.found, self.config = script, script.fusion, found, config
        self.batch = min(len(found.batch), 2)
        """Axes of blocks beside the rows."""
        self.head = self.batch + 1
        """The place of the loop over the chunks."""
        self.apart: list[TensorView] = []
        """Tensors that a derived walk places by itself."""

    def apply(self) -> None:
        """Make the calls."""
        script = self.script
        script.comment("one walk")
        names = [tv.name for tv in self.found.first]
        walk = self._cascade()
        self.last = self.found.last
        self.first = tuple(tv for tv in walk if isinstance(tv.definition, Reduction) and not among(tv, self.last))
        assert len(self.first) == len(names)
        script.comment("copies: factors into Shared memory, values of rows into registers")
        self._copies()
        self._classify()
        script.comment("rows over the blocks, chunks, warpgroups")
        self._tiles()
        self._registers()
        script.comment("products, from Shared memory and from registers")
        self._multiply_first()
        for tv, columns in zip(self.last, self.found.columns, strict=True):
            multiply(script, tv, self.head + 2, columns)
        self._rings()
        script.comment("shared loops")
        self._share()
        script.comment("roles")
        self._roles()

    def _cascade(self) -> tuple[TensorView, ...]:
        return self.script.cascade(self.found.last, self.config.chunk, rows=self.config.rows)

    def _multiply_first(self) -> None:
        for tv in self.first:
            multiply(self.script, tv, self.head + 2, self.config.chunk)

    def _outputs(self) -> list[TensorView]:
        """The outputs that depend on the last products."""
        return [tv for tv in self.fusion.outputs if not tv.is_input]

    def _copies(self) -> None:
        """Factors as the products read them, and what chunks read of rows alone."""
        fusion, script = self.fusion, self.script
        outs = self._outputs()
        made = {out: script.new(out, "cache_fork") for out in outs if out.uses}  # results that others read are copies of what these read
        made |= {out: script.new(out, "cache_before") for out in self.last if out.is_output and out not in made}
        self.last = tuple(made.get(tv, tv) for tv in self.last)
        self.stored = [(script.new(tv, "cache_before"), tv) for tv in outs if tv.dtype.itemsize == ITEMSIZE]
        self.wide = [tv for tv in outs if tv.dtype.itemsize != ITEMSIZE]
        self.values: list[TensorView] = []  # what chunks read along the walked axis alone, as tiles
        self.held: list[TensorView] = []
        self.streamed: list[TensorView] = []
        keys, (_, element) = Keys(fusion), self._walked(self.last[0])
        for tv in self.first:
            sides = walk_sides(keys, tv, walk_factors(fusion, tv), element)
            self.held.append(copied(script, tv, sides.places[0]))
            self._stream(tv, sides.places[1])
        for tv in self.last:
            two = walk_factors(fusion, tv)
            place = next(k for k, r in zip(two.places, (two.a, two.b), strict=True) if not depends(fusion, r.tensor, self.first))
            self._stream(tv, place)
        for tv in (*self.held, *self.streamed):
            script.on(tv).set_memory_type(MemoryType.Shared)
        row = self._row(self.first[0])
        for e in needed(fusion):
            for k in values_read(fusion, e, row, element) if isinstance(e, Pointwise) and not among(e.output, self.held) else ():
                o = storage_operands(fusion, e)[k]
                assert isinstance(o, Read)
                script.new(o.tensor, "cache_after", e.output, k)

    def _walked(self, tv: TensorView) -> list[Axis]:
        """The axes of chunks, and of elements of a chunk, of a last product."""
        return [a for a in tv.root if a.is_reduction]

    def _stream(self, reader: TensorView, operand: int) -> None:
        made = copied(self.script, reader, operand, self.streamed)
        if not among(made, self.streamed):
            self.streamed.append(made)

    # -- kinds of tensors -------------------------------------------------------------------------------------------------------------

    def _classify(self) -> None:
        """Tensors by the axes that they have: chunks, rows, results."""
        fusion, keys = self.fusion, Keys(self.fusion)
        along, element = self._walked(self.last[0])

        def has(tv: TensorView, a: Axis) -> bool:
            return any(x.extent is a.extent and keys.equal(x, a) for x in tv.root)

        code = [e.output for e in needed(fusion) if not fusion.is_view(e.output) and not among(e.output, self.apart)]
        factors = [*self.held, *self.streamed, *self.values]
        mine = [tv for tv in code if not among(tv, [*factors, *self.first, *self.last])]
        self.chunks = [tv for tv in mine if has(tv, along) and has(tv, element)]
        self.results = [[tv for tv in mine if depends(fusion, tv, (last,))] for last in self.last]
        every = [tv for results in self.results for tv in results]
        self.rows = [tv for tv in mine if not among(tv, [*self.chunks, *every])]
        wide = [tv for tv in self.chunks if not any(keys.equal(a, r) for a in tv.root for r in [self._row(self.first[0])])]
        if wide or not all(self.results) or len(every) > len(dict.fromkeys(every)):
            raise refuse(fusion, NAME, "a last product is not stored, an output depends on two of them, or a tensor depends on the columns alone")

    def _row(self, tv: TensorView) -> Axis:
        """The axis of the rows of a first product."""
        _, element = self._walked(self.last[0])  # of one chunk alone there is no axis of chunks
        sides = walk_sides(Keys(self.fusion), tv, walk_factors(self.fusion, tv), element)
        return tv.root[next(iter(sides.rows))]

    # -- loops ------------------------------------------------------------------------------------------------------------------------

    def _tiles(self) -> None:
        script, head, ref = self.script, self.head, self.first[0]
        keys, (along, element), row = Keys(self.fusion), self._walked(self.last[0]), self._row(ref)
        depth = next(p for p, a in enumerate(ref.root) if a.is_reduction)
        places = [next(p for p, a in enumerate(ref.root) if keys.equal(a, x)) for x in (row, along, element)]
        order = [*(p for p in range(len(ref.root)) if p not in (*places, depth)), *places, depth]
        call = script.on(ref)
        if order != sorted(order):
            call.reorder(order)
        self._blocks(call)
        call.reorder({head: head + 1})
        call.propagate([*self.streamed, *self.values], head + 1)
        call.propagate(self.held, head)
        call.split(head + 1, WGMMA_ROWS)
        call.bind(head + 1, P.TIDy)
        call.propagate([*self.first[1:], *self.chunks, *self.last], head + 3)

    def _blocks(self, call: Recorded) -> None:
        """[batch.., rows, ..] to [batch.., blocks, rows of a block, ..]; the longest walks come first where masks make some longer than others."""
        rows = self.batch
        for _ in range(rows, len(self.found.batch)):
            call.merge(0)
        call.split(rows, self.config.rows)
        if self.found.is_ended:
            call.rasterize((rows,), Spelled(tiles.descending(), "tf.tiles.descending()"))
        for k, ptype in zip(range(rows - 1, -1, -1), (P.BIDy, P.BIDz), strict=False):
            call.bind(k, ptype)
        call.bind(rows, P.BIDx)

    def _registers(self) -> None:
        """As the tensor cores hold sums: [.., warp, row, pair, columns / 8, half, element]; what has rows alone, without the columns."""
        script, tile, keys = self.script, self.head + 2, Keys(self.fusion)
        self._fragments()
        row, ref = self._row(self.first[0]), self.first[0]
        script.comment("results: [batch.., rows of blocks, warpgroup, | warp, row, pair, half, columns / 8, element]")
        arranged: list[TensorView] = []
        for results in self.results:
            one = results[0]
            place = next(k for k, a in enumerate(one.root) if keys.equal(a, row))
            batch = [next(k for k, a in enumerate(one.root) if keys.equal(a, ref.root[p])) for p in self._batch(ref)]
            order = [*batch, place, *(k for k in range(len(one.root)) if k not in (*batch, place))]
            call = script.on(one)
            if order != sorted(order):
                call.reorder(order)
            self._blocks(call)
            hold_results(script, results, self.head)
            script.parallelize_like(one, results)
            arranged.append(one)
        script.on(arranged[0]).propagate(self.rows, tile + 3)
        script.parallelize_like(ref, [*self.held, *self.streamed, *self.values, *self.first, *self.chunks, *self.last])
        script.parallelize_like(arranged[0], self.rows)
        for out in (*(out for _, out in self.stored), *self.wide):
            script.on(out).bind(-1, P.Vectorize)

    def _fragments(self) -> None:
        for tv in self.chunks:
            self.script.on(tv).fragment((self.head + 2, self.head + 3))

    def _batch(self, ref: TensorView) -> list[int]:
        """Positions of the batch axes of a first product by chunks."""
        keys, (along, element), row = Keys(self.fusion), self._walked(self.last[0]), self._row(ref)
        others = [a for a in ref.root if a.is_reduction or any(keys.equal(a, x) for x in (along, element, row))]
        return [p for p, a in enumerate(ref.root) if a not in others]

    def _rings(self) -> None:
        """Rows of at most 128 bytes, in pieces; one slot of what is held, a ring of each factor that is streamed."""
        for tv in (*self.held, *self.streamed):
            call = swizzle(self.script, tv)
            if among(tv, self.streamed):
                call.circular_buffer(self.config.stages)
            call.set_atom(atoms.TMA_LOAD, (-2, -1))

    def _inside(self) -> list[TensorView]:
        """What is computed for each chunk, apart from the sums."""
        return [*self.streamed, *self.values, *self.first, *self.chunks]

    def _share(self) -> None:
        script, head = self.script, self.head
        results = [tv for group in self.results for tv in group]
        inside = self._inside()
        kept = [*self.held, *inside, *self.last, *self.rows, *results]
        every = [e.output for e in self.fusion.exprs() if among(e.output, kept) and not e.output.is_output]
        share_walk(script, every, inside, head)
        for tv in reversed(self.chunks):
            uses = storage_uses(self.fusion, tv)
            if len(uses) != 1 or not among(uses[0].output, self.chunks):
                continue
            is_masked = any(isinstance(e, FirstValid) for e in (tv.definition, *uses))  # apart from loads, masks are left out of whole tiles
            is_early = self._latest(tv) < self._latest(uses[0].output)  # it is computed while a later product is in flight
            if not is_masked and not is_early:
                script.on(tv).inline_at(head + 8)
        share_results(script, results, self.stored, head)

    def _latest(self, tv: TensorView) -> int:
        """The number of the last of the first products that a tensor depends on."""
        return max((k for k, first in enumerate(self.first) if depends(self.fusion, tv, (first,))), default=-1)

    def _roles(self) -> None:
        """Where first and last products read all that is streamed, all first products are issued before anything is computed of them. Elsewhere, as tasks of
        their own would wait for, and release, what only they read between two products, the code of a walk is one task."""
        script = self.script
        load = script.task([*self.held, *self.streamed], "load")
        is_common = all(any(among(use.output, self.last) for use in storage_uses(self.fusion, tv)) for tv in self.streamed)
        parts = {"first": self.first, "elementwise": self.chunks, "last": self.last} if is_common else {"walk": (*self.first, *self.chunks, *self.last)}
        tasks = [
            *([script.task(self.rows, "rows")] if self.rows else []),
            *(script.task(tvs, name) for name, tvs in parts.items()),
            script.task([tv for group in self.results for tv in group], "results"),
        ]
        script.make_roles(load, script.grouped(tasks, "consumer"))
