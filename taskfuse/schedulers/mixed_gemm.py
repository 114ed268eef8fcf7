"""``tf.schedulers.mixed_gemm``: a matrix product of few columns, whose factor with the rows is computed of narrower elements, such as weights of 4 bits.

    result   [row tile, column tile: blocks | k tile | part of k, rows of warps | k group, rows / 16, k step, columns / 8 | 16, 8, 16: the atom]
    tiles    [the same blocks | k tile | elements over all threads, vector]: each factor in a ring of Shared memory, filled ahead by ``cp.async``
    elements [as the result, k group included | rows / 16, lanes, rows / 8, vector]: neighbors along k in registers, as they are in memory
    factors  [as the result, k step included | lanes, registers]: what the tensor cores multiply
    epilogue [row tile, column tile: blocks | rows of warps | rows / 16, columns / 8 | lanes, registers]

A sum has no order, so each lane takes a run of neighbors along k of both factors, by one load, where the layout of ``mma.sync`` gives it pairs 8 elements
apart: a group of k is four runs, and a step multiplies the next pairs of each. Where several elements share a byte, the pairs are of elements with the same
place in both halves of a word, which one instruction takes out of it together. Warps divide rows, and each group of warps its own part of every tile along k:
the parts are added after the last tile. So a block has warps enough to hide the latency of what computes the factor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf

from taskfuse.errors import UnsupportedError
from taskfuse.ir import atoms
from taskfuse.ir.atoms import SUM_OF_PRODUCTS
from taskfuse.ir.contraction import computes
from taskfuse.ir.expr import Pointwise, Read, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.storage import needed, resolve, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule import layouts
from taskfuse.schedulers.computed_factors import computed_for
from taskfuse.schedulers.contraction import MatrixProduct, find
from taskfuse.schedulers.elementwise import is_aligned
from taskfuse.schedulers.matmul import offer as matmul_offer
from taskfuse.schedulers.mixed_gemm_cost import COLUMNS, LANES_OF_K, PAIR, ROWS, STEP, MixedGemmConfig, MixedProblem, check, problem_of, ranked
from taskfuse.schedulers.schedule import Chosen, Offer, Option, Sizes, check_call, refuse, tries_parameters
from taskfuse.schedulers.script import Recorded, Script, Spelled
from taskfuse.target import ASYNC_BYTES, DEFAULT, VECTOR_BYTES, WARP, Target

NAME = "mixed_gemm"


@tries_parameters
def mixed_gemm(
    fusion: Fusion, config: MixedGemmConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT
) -> Chosen[MixedGemmConfig]:
    """Schedule one product of few columns, a factor of which elementwise functions make of narrower elements, on tensor cores (``mma.sync``, sm_80 and newer).

    Args:
        fusion: it is changed.
        config: the parameters; ``None``: the fastest by the cost model.
        sizes: values of the fusion's dimensions for the cost model.
        target: the GPU.

    Raises:
        UnsupportedError: the fusion is not such a product of at most 64 columns, with an elementwise epilogue of its rows and columns; it has a schedule; or
            no tile divides the sum.
    """
    check_call(fusion, NAME, config, MixedGemmConfig)
    product, problem, options = _planned(fusion, Sizes(fusion, sizes, target))
    chosen = options[0] if config is None else check(fusion, NAME, problem, config)
    script = Script(fusion)
    _MixedGemm(script, product, problem, chosen.config).apply()
    return Chosen(NAME, f"{problem.m} x {problem.n} x {problem.k}", chosen, tuple(options), config is not None, script.text)


def offer(fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Offer:
    """The offer of :func:`mixed_gemm`, if that is expected to be faster than :func:`~taskfuse.schedulers.matmul.matmul`.

    Raises:
        UnsupportedError: it is not, or see :func:`mixed_gemm`; what the scheduling calls refuse is found when the offer is taken.
    """
    check_call(fusion, NAME, None, MixedGemmConfig)
    _, _, options = _planned(fusion, Sizes(fusion, sizes, target))
    try:
        other = matmul_offer(fusion, sizes=sizes, target=target).us
    except UnsupportedError:
        other = inf
    if options[0].us >= other:
        raise refuse(fusion, NAME, f"it is expected to take {options[0].us:.1f} us, and matmul {other:.1f}", "tf.schedulers.matmul")
    return Offer(options[0].us, partial(mixed_gemm, sizes=sizes, target=target), is_contested=True)


def _planned(fusion: Fusion, extent: Sizes) -> tuple[MatrixProduct, MixedProblem, list[Option[MixedGemmConfig]]]:
    """The product with the computed factor's rows as rows, and all parameters that fit with their estimates, the fastest first."""
    if not extent.target.has(80):
        raise refuse(fusion, NAME, f"{extent.target.name} has no mma.sync of {ROWS} x {COLUMNS} x {STEP}", "tf.schedulers.simt_gemm")
    product = _product(fusion)
    problem = problem_of(fusion, NAME, product, extent)
    options = ranked(problem)
    if not options:
        raise refuse(fusion, NAME, f"no tile along k divides {problem.k}, or fits Shared memory", "tf.schedulers.matmul")
    return product, problem, options


def _product(fusion: Fusion) -> MatrixProduct:
    """The product, of a computed factor and an input, with its epilogue at its rows and columns. Raises :class:`UnsupportedError`: it is another."""
    if not any(computes(e, SUM_OF_PRODUCTS) and computed_for(fusion, e) for e in needed(fusion)):
        raise refuse(fusion, NAME, "it multiplies no factor that is computed of inputs", "tf.schedulers.matmul")
    product: MatrixProduct | None = None
    reason = "the factor that is computed has no rows of its own"
    for is_swapped in (True, False):
        try:
            found = find(fusion, is_swapped=is_swapped)
        except UnsupportedError as error:
            reason = str(error.fields["reason"])
            continue
        product = found if found.a.prologue else product
    if product is None:
        raise refuse(fusion, NAME, reason, "tf.schedulers.matmul")
    axes, result = product.axes, product.axes.result
    if not product.b.tensor.is_input or not product.b.is_whole or not product.b.is_k_major:
        raise refuse(fusion, NAME, f"{product.b.tensor.name} is no input with k contiguous", "tf.schedulers.matmul")
    others = product.beside or product.blocks or product.reductions or product.rows or product.finals
    if others or axes.batch or axes.summed or len(axes.rows) > 1:
        raise refuse(fusion, NAME, f"{result.name} is not one matrix, or reductions follow", "tf.schedulers.matmul")
    for expr in needed(fusion):
        if among(expr.output, product.epilogue):
            inside = [read for read in storage_reads(fusion, expr) if not read.tensor.is_input]
            if not isinstance(expr, Pointwise | View) or not all(is_aligned(read, expr.output) for read in inside):
                raise refuse(fusion, NAME, f"{expr.output.name} reads the product at other points than its own", "tf.schedulers.matmul")
    return product


class _MixedGemm:
    """The calls."""

    def __init__(self, script: Script, product: MatrixProduct, problem: MixedProblem, config: MixedGemmConfig) -> None:
        self.script = script
        self.fusion = script.fusion
        self.product = product
        self.problem = problem
        self.config = config
        self.atom = atoms.mma(ROWS, COLUMNS, STEP)

    def apply(self) -> None:
        script, (a, b) = self.script, (self.product.a, self.product.b)
        script.comment("factors in Shared memory and, from there, in registers; results in registers")
        result = self.product.axes.result
        acc = script.new(result, "cache_fork" if result.uses else "cache_before") if result.is_output else result
        tiles = [script.new(factor.tensor, "cache_after") for factor in (a, b)]
        elements, columns = (script.new(tile, "cache_after") for tile in tiles)
        functions = list(a.prologue)
        sides = [script.through_view(tv, k) for tv, k in self._read_beside(functions)]
        for tv in (*sides, elements, columns):
            script.on(tv).set_memory_type(MemoryType.Local)
        for tv in tiles:
            script.on(tv).set_memory_type(MemoryType.Shared)
        inside = (acc, *tiles, elements, columns, *functions, *sides)
        behind = [e.output for e in needed(self.fusion) if not among(e.output, inside)]
        self._tiles(acc, tiles, elements, behind)
        self._warps(acc, functions, columns)
        script.parallelize_like(acc, [*tiles, elements, columns, *functions, *behind])
        for tile, rows, packed in zip(tiles, (self.config.tile_m, self.config.tile_n), (self.problem.packed, 1), strict=True):
            self._copies(tile, rows, packed)
        self._elements(elements)
        self._columns(columns)
        self._functions(functions, sides)
        self._epilogue(acc, behind)

    def _read_beside(self, functions: Sequence[TensorView]) -> list[tuple[TensorView, int]]:
        """Operands of the functions that are of inputs, such as scales."""
        found: list[tuple[TensorView, int]] = []
        for tv in functions:
            expr = self.fusion.definition(tv)
            assert expr is not None
            found += [(tv, k) for k, o in enumerate(expr.operands) if isinstance(o, Read) and resolve(self.fusion, o).tensor.is_input]
        return found

    def _tiles(self, acc: TensorView, tiles: Sequence[TensorView], elements: TensorView, behind: Sequence[TensorView]) -> None:
        """[row tile, column tile | k tile | rows, columns, k]."""
        script, c, axes = self.script, self.config, self.product.axes
        script.comment("[row tile, column tile: blocks | k tile | rows, columns, k]")
        call = script.on(acc)
        if (order := [axes.m, axes.n, axes.k]) != sorted(order):
            call.reorder(order)
        call.split(2, c.tile_k).split(1, c.tile_n).split(0, c.tile_m).reorder([0, 2, 4, 1, 3, 5])
        call.bind(0, P.BIDx).bind(1, P.BIDx)
        call.propagate(list(behind), 2).propagate([tiles[1]], 3).propagate([tiles[0], elements], 2)
        for tv in (tiles[0], elements):
            script.on(tv).split(-1, c.tile_k // self.problem.packed).reorder({3: 2})

    def _warps(self, acc: TensorView, functions: Sequence[TensorView], columns: TensorView) -> None:
        script, c, p = self.script, self.config, self.problem
        script.comment("[.. | part of k, rows of warps | k group, rows / 16, k step, columns / 8 | the atom]")
        call = script.on(acc)
        call.split(5, c.tile_k // c.parts).split(6, p.group)  # [.., k tile, rows, columns, part, group]
        half, lane, element, step = self._split_group(call, 7)
        call.split(4, COLUMNS).split(3, c.warp_m).split(4, ROWS)  # [.., k tile, warp, rows / 16, 16, columns / 8, 8, part, group, ..]
        half, lane, element, step = (axis + 3 for axis in (half, lane, element, step))
        call.reorder([0, 1, 2, 8, 3, 9, 4, step, 6, 5, 7, half, lane, element]).merge(11).merge(11)
        call.set_atom(self.atom, (-3, -2, -1))
        call.bind(3, P.TIDz).bind(4, P.TIDy)
        for axis in range(5, 9):
            call.bind(axis, P.Unroll)
        call.propagate(list(functions), 8).propagate([columns], 6)

    def _split_group(self, call: Recorded, at: int) -> tuple[int, int, int, int]:
        """Split a group of k. Returns where the digits of an element of a step, and the steps, are: half, lane, element; step."""
        call.split(at, self.problem.run)
        if self.problem.apart > 1:
            call.split(at + 1, self.problem.apart).split(at + 2, PAIR)  # [.., lane, element, step, half]
            return at + 3, at, at + 1, at + 2
        call.split(at + 1, LANES_OF_K).split(at + 2, PAIR)  # [.., lane, step, half, element]
        return at + 2, at, at + 3, at + 1

    def _copies(self, tile: TensorView, rows: int, packed: int) -> None:
        """[.., elements of a tile] to [.., one after another, parts, warps, lanes, vector]."""
        script, c, p, size = self.script, self.config, self.problem, tile.dtype.itemsize
        script.comment(f"{tile.name}: elements of a tile over all threads; the lanes of a warp read runs of several rows from different banks")
        vector = VECTOR_BYTES // size
        while rows * c.tile_k // packed // vector < c.threads and vector * size > min(ASYNC_BYTES):
            vector //= 2
        call, pad = script.on(tile), LANES_OF_K * p.run // packed
        call.set_allocation_domain(Spelled(layouts.padded(pad), f"tf.layouts.padded({pad})"))
        call.merge(3).split(3, vector).split(3, c.threads).split(4, c.warps * WARP).split(5, WARP)
        call.bind(3, P.Unroll).bind(4, P.TIDz).bind(5, P.TIDy).bind(6, P.TIDx)
        call.set_atom(atoms.CP_ASYNC, [7])
        call.inline_at(3)
        call.circular_buffer(c.stages)

    def _elements(self, tv: TensorView) -> None:
        """[.., k tile, rows, k] to [.., k tile, part, warp, group, rows / 16 | row, lane | row / 8, vector]."""
        script, c, p = self.script, self.config, self.problem
        script.comment("each lane loads runs of neighbors along k")
        call, run = script.on(tv), p.run // p.packed
        call.split(4, c.tile_k // c.parts // p.packed).split(5, LANES_OF_K * run).split(6, run)
        call.split(3, c.warp_m).split(4, ROWS).split(5, COLUMNS)  # [.., warp, rows / 16, row / 8, row, part, group, lane, run]
        call.reorder([0, 1, 2, 7, 3, 8, 4, 6, 9, 5, 10])
        call.bind(3, P.TIDz).bind(4, P.TIDy).bind(5, P.Unroll).bind(6, P.Unroll).bind(7, P.TIDx).bind(8, P.TIDx).bind(9, P.Unroll)
        call.bind(10, P.Vectorize if run > 1 else P.Unroll)
        call.inline_at(6)

    def _columns(self, tv: TensorView) -> None:
        """[.., group | columns, k] to [.., group | columns / 8, k step | lanes, registers]."""
        self.script.comment("the other factor in the atom's layout")
        call = self.script.on(tv)
        half, lane, element, step = self._split_group(call, 7)
        call.split(6, COLUMNS)
        half, lane, element, step = (axis + 1 for axis in (half, lane, element, step))
        call.reorder([*range(7), step, 7, half, lane, element]).merge(9).merge(9)
        call.bind(5, P.Unroll).bind(6, P.Unroll).bind(7, P.Unroll)
        call.fragment((8, 9), self.atom, "b")
        self._unroll(call, 8)
        call.inline_at(6)

    def _functions(self, functions: Sequence[TensorView], sides: Sequence[TensorView]) -> None:
        script = self.script
        script.comment("the computed factor")
        for tv in functions:
            call = script.on(tv)
            self._paired(call, 9)
            for axis in range(5, 8):
                call.bind(axis, P.Unroll)
            call.fragment((8, 9))
            self._unroll(call, 10)
        last = functions[-1]
        if sides:
            script.on(last).propagate(list(sides), len(last.loop))
            script.parallelize_like(last, list(sides))
        script.inline_at([last], 8)
        if rest := [*reversed(functions[:-1]), *sides]:
            script.inline_at(rest, len(last.loop))

    def _paired(self, call: Recorded, lane: int) -> None:
        """[.., lane, element, half], or [.., lane, elements of a step], to the 16 elements of a step."""
        if self.problem.apart > 1:
            call.reorder({lane: lane + 1, lane + 1: lane + 2, lane + 2: lane})
        else:
            call.split(lane + 1, PAIR).reorder({lane: lane + 1, lane + 1: lane})
        call.merge(lane).merge(lane)

    def _unroll(self, call: Recorded, first: int) -> None:
        """The axes from ``first`` on that no thread index has."""
        for axis in range(first, len(call.tensor.loop)):
            if call.tensor.schedule.ptype(call.tensor.loop[axis]) is P.Serial:
                call.bind(axis, P.Unroll)

    def _epilogue(self, acc: TensorView, behind: Sequence[TensorView]) -> None:
        script, c, axes = self.script, self.config, self.product.axes
        script.comment("epilogue in registers, in the layout of the accumulators")
        for tv in behind:
            call = script.on(tv)
            if axes.m > axes.n:
                call.reorder({3: 2})
            call.split(3, COLUMNS).split(2, c.warp_m).split(3, ROWS).reorder({5: 4})  # [.., warp, rows / 16, columns / 8, 16, 8]
            call.bind(2, P.TIDy).bind(3, P.Unroll).bind(4, P.Unroll)
            call.fragment((5, 6))
            self._unroll(call, 5)
        if between := [tv for tv in behind if not tv.is_output]:
            script.inline_most(between)
        script.on(acc).inline_at(2)
