"""``tf.schedulers.matmul``: the schedule of a fusion with a matrix product, or with several that make one result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import NamedTuple

from taskfuse.dtypes import DType, float32
from taskfuse.errors import UnsupportedError
from taskfuse.ir.atoms import WGMMA_ROWS
from taskfuse.ir.elementwise_function import DTypeRule
from taskfuse.ir.expr import Pointwise
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.matrix_instructions import Family, accumulator_dtype, transposes
from taskfuse.ir.scalar import is_multiple
from taskfuse.ir.storage import reads_of
from taskfuse.ir.tensor import TensorView
from taskfuse.schedulers import half_tiles, ragged_tiles
from taskfuse.schedulers.config import BlockCounts, MatmulConfig, ProductCounts
from taskfuse.schedulers.contraction import MatrixProduct, find
from taskfuse.schedulers.cost import Estimate, MatmulProblem, estimate
from taskfuse.schedulers.factors import Operand, step_along, whole_span
from taskfuse.schedulers.first_rows import has_first_rows
from taskfuse.schedulers.instructions import cost, shares
from taskfuse.schedulers.loads import told
from taskfuse.schedulers.matmul_candidates import rank
from taskfuse.schedulers.ragged_tiles import RaggedTiles
from taskfuse.schedulers.schedule import Chosen, Offer, Sizes, check_call, check_flag, check_wgmma, refuse, tries_parameters
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.warp_specialized import WarpSpecialized, make_roles
from taskfuse.target import DEFAULT, Target

COMPUTED_SPANS = (1, 2)
"""Rows of the swizzle along k in a step whose factor is computed; longer ones were not measured."""
NOT_SWAPPED = "factors can be swapped only where one product of inputs makes each stored element"
"""Why factors are taken in one order alone: no reason that says what could be changed in the other."""


@tries_parameters
def matmul(
    fusion: Fusion, config: MatmulConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT, tf32: bool = False
) -> Chosen[MatmulConfig]:
    """Schedule a fusion with a matrix product and an elementwise epilogue: a persistent, warp-specialized kernel for Hopper (sm_90a).

    There may be several products of the same rows and columns, if the epilogue combines their elements. One factor of a single product may be computed by
    elementwise functions of an input of 8, 16 or 32 bits with k contiguous, an element of which may have several of the factor's neighbors along k, and of
    inputs beside it, such as scales.

    The product is any sum of products of two inputs, over one axis or several; all further axes are batch axes. One factor may be windows of an input with
    zeros around it, as in a convolution with channels last. Operands of 16-bit floats have k or their other axis contiguous, those of 8-bit floats, 8-bit
    integers and float32, and of sums over several axes, have k. Sums are float32, of integers int32. Products of 8-bit floats
    are accumulated with fewer bits than float32, a property of Hopper. The epilogue may read more inputs (bias, residual, scales) and have
    several outputs. Reductions of its results, over rows, columns or both, may be outputs or feed more elementwise math: such a kernel ends with a
    grid barrier. It has none where a tile has whole rows, and only results of rows are stored: reductions of these may read one another. All extents are
    supported; operands whose rows are provably multiples of 16 bytes are loaded by TMA, others by threads, which is slower: the schedule's ``explain`` says so.

    Args:
        fusion: it is changed: tensors, tasks and schedule are added.
        config: the parameters; ``None``: the fastest by the cost model.
        sizes: values of the fusion's dimensions for the cost model; by default 4096, clamped to the known bounds.
        target: the GPU.
        tf32: multiply float32 as tf32: tensor cores take sign, exponent and the first 10 bits of the fraction. Without it float32 is rejected.

    Returns:
        The parameters, why they were chosen, and the schedule as code.

    Raises:
        UnsupportedError: the fusion or the parameters do not fit this scheduler.
    """
    check_call(fusion, "matmul", config, MatmulConfig)
    check_flag(fusion, "matmul", "tf32", tf32)
    script = Script(fusion)
    ragged = ragged_tiles.find(fusion, Sizes(fusion, sizes, target))
    is_swapped = config is not None and config.is_swapped
    columns = None if config is None else config.tile_n
    if ragged is not None:
        copy = ragged_tiles.stored_by_tiles(fusion)  # what is refused leaves the fusion as it is
        _chosen(copy, _planned(copy, sizes, target, tf32, ragged, is_swapped=is_swapped, columns=columns), config)
        ragged_tiles.store_by_tiles(script)
        ragged_tiles.search_together(script)
    plan = _planned(fusion, sizes, target, tf32, ragged, is_swapped=is_swapped, columns=columns)
    chosen, product, problem = _chosen(fusion, plan, config)
    scheduled = WarpSpecialized(script, product, chosen, across=problem.shares_columns, box=problem.box(chosen))
    scheduled.apply()
    make_roles(script, [scheduled])
    if chosen.residents > 1:
        script.resident_blocks(chosen.residents)
    option = estimate(problem, chosen)
    size = size_of(plan.ways[0].problem)
    return Chosen("matmul", size, option, plan.alternatives, config is not None, script.text, _expected(problem, option), _notes(fusion, product))


def _chosen(fusion: Fusion, plan: MatmulPlan, config: MatmulConfig | None) -> tuple[MatmulConfig, MatrixProduct, MatmulProblem]:
    """The parameters, the given ones or else the fastest, with the product as they take it. Raises :class:`UnsupportedError` if it does not fit them."""
    chosen = plan.alternatives[0].config if config is None else config
    product, problem = plan.of(chosen)
    chosen.check_fits(
        problem.target,
        problem.itemsize,
        problem.staged,
        columns_contiguous=problem.columns_contiguous,
        columns_by_threads=problem.columns_by_threads,
        columns_mixed=problem.columns_mixed,
        is_reduced=problem.is_reduced,
        blocks=problem.blocks,
        counts=problem.counts,
        is_computed=problem.prologue is not None,
    )
    check_step(fusion, product, chosen)
    if chosen.layers and problem.shares_columns:
        raise chosen.error("layers, and matrices of the batch share the factor with the columns", "use layers=False")
    return chosen, product, problem


def offer(fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Offer:
    """The offer of :func:`matmul`.

    Raises:
        UnsupportedError: see :func:`matmul`; what the scheduling calls refuse is found when the offer is taken.
    """
    check_call(fusion, "matmul", None, MatmulConfig)
    ragged = ragged_tiles.find(fusion, Sizes(fusion, sizes, target))
    plan = _planned(fusion if ragged is None else ragged_tiles.stored_by_tiles(fusion), sizes, target, False, ragged)
    is_contested = plan.of(plan.alternatives[0].config).problem.prologue is not None  # of a vector, threads that multiply compute the factor as well
    return Offer(plan.alternatives[0].us, partial(matmul, sizes=sizes, target=target), is_contested=is_contested)


class Way(NamedTuple):
    """A product with its factors in one of two orders."""

    product: MatrixProduct
    problem: MatmulProblem


@dataclass(frozen=True, slots=True)
class MatmulPlan:
    """What may be scheduled.

    Attributes:
        ways: the product with its factors as they are, and swapped if that is asked for, or possible and the result has few rows.
        alternatives: the parameters of all with their estimates, the fastest first.
        refused: why there is no way with the factors as they are, if there is none.
    """

    ways: tuple[Way, ...]
    alternatives: tuple[Estimate, ...]
    refused: UnsupportedError | None = None

    def of(self, config: MatmulConfig) -> Way:
        """The product that parameters are for. Raises :class:`UnsupportedError` if it cannot have its factors in their order."""
        for way in self.ways:
            if way.problem.is_swapped is config.is_swapped:
                return way
        assert self.refused is not None, "swapped factors that cannot be are refused when they are planned"
        raise self.refused


def _planned(
    fusion: Fusion,
    sizes: Mapping[str, int] | None,
    target: Target,
    tf32: bool,
    ragged: RaggedTiles | None,
    *,
    is_swapped: bool = False,
    columns: int | None = None,
) -> MatmulPlan:
    """The product, and all parameters with their estimates; with its factors swapped, too, if that is asked for, may be faster, or is the only way."""
    try:
        usual, ranked = _way(fusion, sizes, target, tf32, ragged, columns=columns)
    except UnsupportedError as error:
        try:
            only, ranked = _way(fusion, sizes, target, tf32, ragged, is_swapped=True)
        except UnsupportedError as swapped:
            raise _of_both(fusion, error, swapped) from None
        refused = refuse(fusion, "matmul", f"with its factors as they are, {error.fields['reason']}", "use is_swapped=True")
        return MatmulPlan((only,), ranked, refused)
    if is_swapped:
        return MatmulPlan((usual, _way(fusion, sizes, target, tf32, ragged, is_swapped=True)[0]), ranked)
    if not usual.problem.has_few_rows:
        return MatmulPlan((usual,), ranked)
    try:
        swapped, others = _way(fusion, sizes, target, tf32, ragged, is_swapped=True)
    except UnsupportedError:
        return MatmulPlan((usual,), ranked)
    both = (*ranked, *others) if usual.problem.m >= WGMMA_ROWS else (*others, *ranked)  # of equals, what loads fewer rows outside
    return MatmulPlan((usual, swapped), tuple(sorted(both, key=lambda e: e.us)))


def _of_both(fusion: Fusion, usual: UnsupportedError, swapped: UnsupportedError) -> UnsupportedError:
    """The error of a product that is refused with its factors in either order: the reason of the usual one, and that of the other where it is another."""
    first, second = usual.fields["reason"], swapped.fields["reason"]
    if second in (first, NOT_SWAPPED):
        return usual
    helps = dict.fromkeys(help for help in (usual.help, swapped.help) if help)
    return refuse(fusion, "matmul", f"{first}; with its factors in the other order, {second}", "; or, swapped, ".join(helps) or None)


def _way(
    fusion: Fusion,
    sizes: Mapping[str, int] | None,
    target: Target,
    tf32: bool,
    ragged: RaggedTiles | None,
    *,
    is_swapped: bool = False,
    columns: int | None = None,
) -> tuple[Way, tuple[Estimate, ...]]:
    """The product with its factors in one order, and its parameters.

    Raises:
        UnsupportedError: see :func:`matmul`; swapped, more than one product makes the tiles, or what is made of them is no tile.
    """
    product = find(fusion, is_swapped=is_swapped, columns=columns if ragged is None else 0)
    check_types(fusion, product, tf32)
    if ragged is not None and product.beside and not product.shares_steps:
        reason = f"{product.beside[0].axes.result.name} walks along k after {product.axes.result.name}, and a tile of ragged rows may be empty"
        raise refuse(fusion, "matmul", reason, "move one of them to a separate fusion")
    if is_swapped and ((ragged is not None and ragged.is_scattered) or product.blocks is not None or product.reductions):
        raise refuse(fusion, "matmul", NOT_SWAPPED, "use is_swapped=False")
    problem = replace(problem_of(fusion, product, sizes, target, None if is_swapped else ragged), is_swapped=is_swapped)
    check_wgmma(fusion, "matmul", problem.target, "tf.schedulers.mma_gemm multiplies with mma.sync")
    ranked = rank(problem)
    if not ranked and problem.row_columns:
        return _way(fusion, sizes, target, tf32, ragged, columns=0)
    if not ranked and (is_swapped or problem.prologue is not None):
        reason = "no tile has registers for its factor, its columns and what the epilogue reads"
        raise refuse(fusion, "matmul", reason, "compute the factor in a separate fusion")
    if not ranked:
        reason = f"a tile has accumulators for each of {problem.counts.results} contractions, and no registers are left"
        raise refuse(fusion, "matmul", reason, "move some of them to a separate fusion")
    return Way(product, problem), ranked


def size_of(p: MatmulProblem) -> str:
    """Its extents, in words."""
    ragged = p.ragged if p.ragged is not None and p.ragged.is_scattered else None
    rows = [f"{ragged.rows} rows in {ragged.groups} groups"] if ragged is not None else [*([p.batch] if p.batch > 1 else []), p.m]
    size = " x ".join(map(str, [*rows, p.n, *([p.walks] if p.walks > 1 else []), p.k]))
    return f"{size}, operands of {p.itemsize} byte{'s' if p.itemsize > 1 else ''}"


def _expected(p: MatmulProblem, e: Estimate) -> str:
    is_scattered = p.ragged is not None and p.ragged.is_scattered
    tiles = f"{p.used(e.config)} tiles{' of groups of equal size' if is_scattered else ''}"
    if e.config.layers:
        tiles = f"{p.used(e.config)} tiles, of which data says which multiply,"
    if p.half is not None:
        tiles = f"of {p.tiles(e.config)} tiles the {p.used(e.config)} that have elements of the {p.half.half.value} triangle multiply,"
    return (
        f"{tiles} in {e.waves} wave{'s' if e.waves > 1 else ''}, {e.efficiency:.0%} full; a step of k waits for: {e.bound}; "
        f"{_shared_bytes(p, e.config) // 1024} KiB of Shared memory; expected: {e.us:.1f} us"
    )


def _shared_bytes(p: MatmulProblem, config: MatmulConfig) -> int:
    return config.shared_bytes(p.itemsize, p.staged, p.blocks, p.counts, columns_contiguous=p.columns_contiguous)


def _notes(fusion: Fusion, product: MatrixProduct) -> tuple[str, ...]:
    """Notes on the schedule: special cases, and facts that would make it faster."""
    notes = list(dict.fromkeys("" if operand.is_bulk else told(operand.tensor, fusion.facts()) for two in product.factors for operand in two))
    if product.reductions:
        notes.append(f"{', '.join(r.tensor.name for r in product.reductions)}: partial results of each tile in Global memory, added after a grid barrier")
    if product.rows is not None:
        notes.append(f"{', '.join(tv.name for tv in product.rows.reductions)}: of rows that a tile has whole, in registers; no element is stored")
    return tuple(filter(None, notes))


def check_types(fusion: Fusion, product: MatrixProduct, tf32: bool) -> None:
    """Raises :class:`UnsupportedError` if no instruction of the tensor cores multiplies such factors."""
    factor, result = product.b.tensor.dtype, product.multiplied.dtype
    sums = accumulator_dtype(factor, factor, Family.WGMMA)
    if sums is not result:
        raise refuse(fusion, "matmul", f"products of {factor.name} in {result.name}", _what_there_is(sums))
    if factor is float32 and not tf32:
        help = "if 10 bits of the factors' fractions are enough: tf.schedulers.matmul(fusion, tf32=True)"
        raise refuse(fusion, "matmul", "products of float32: tensor cores read its upper 19 bits", help)
    for operand in (operand for two in product.factors for operand in two):
        if not (operand.is_k_major or transposes(factor)):
            raise refuse(
                fusion,
                "matmul",
                f"k is not the last axis of {operand.tensor!r}: tensor cores take elements of {factor.itemsize} byte{'s' if factor.itemsize > 1 else ''} "
                "with k contiguous only",
                f"pass {operand.tensor.name} transposed, as an array of its own",
            )


def _what_there_is(sums: DType | None) -> str:
    if sums is None:
        return "tensor cores multiply bfloat16, float16, 8-bit floats, 8-bit integers, and float32 as tf32"
    return f"sum them in {sums.name}: tf.matmul(a, b, dtype=tf.{sums.name})"


def problem_of(fusion: Fusion, product: MatrixProduct, sizes: Mapping[str, int] | None, target: Target, ragged: RaggedTiles | None = None) -> MatmulProblem:
    """The product with numbers for its extents."""
    extent = Sizes(fusion, sizes, target)
    staged = sum(out.is_staged for out in product.outputs)
    axes = product.axes
    n, k = extent(axes.extent(axes.n)), extent(axes.extent(axes.k))
    rows_of = tuple(extent(axes.extent(p)) for p in axes.rows)
    m, walks = prod(rows_of), prod(extent(axes.extent(p)) for p in axes.summed)
    blocks = None
    if product.blocks is not None:
        k *= product.blocks.size
        inputs = product.blocks.inputs
        rows, columns = (sum(given.is_bulk and given.has_columns is by_columns for given in inputs) for by_columns in (False, True))
        each = sum(given.is_each_column for given in inputs)
        blocks = BlockCounts(each, rows, columns, sum(given.has_columns for given in inputs) - each)
    results = len(product.factors)
    offsets = extent.offsets
    itemsize = product.b.tensor.dtype.itemsize
    counts = ProductCounts(results, turns=results, offsets=offsets, row_bytes=product.a.tensor.dtype.itemsize / product.a.packed if product.a.prologue else 0)
    if product.shares_steps:
        counts = ProductCounts(results, *(len({two[side].tensor for two in product.factors}) for side in (0, 1)), offsets=offsets)
    elif product.beside:
        k += sum(extent(other.axes.extent(other.axes.k)) for other in product.beside)
    width, rows_alone = n, product.rows
    chunks = () if rows_alone is None or rows_alone.chunks is None else (rows_alone.chunks,)
    n *= prod(extent(axes.extent(p)) for p in chunks)
    batch = prod(extent(axes.extent(p)) for p in axes.batch if p not in chunks)
    scattered = sum(not out.is_staged and not out.is_paired for out in product.outputs)
    direct = len(product.outputs) - staged - scattered
    rows, columns = ([two[side] for two in product.factors] for side in (0, 1))
    access = _access(rows), _access(columns)
    over_columns = sum(axes.m in r.over for r in product.reductions)
    over_rows = len(product.reductions) - over_columns
    work = _work(fusion, product.epilogue) if rows_alone is None else rows_alone.work(fusion)  # conversions are part of storing a piece
    sides, wide = len(product.sides), sum(side.is_wide for side in product.sides)
    layouts = {b.is_k_major for _, b in product.factors}
    matrices = prod(extent(e) for e in product.b.tensor.shape) // max(1, n * k)
    return MatmulProblem(
        m,
        n,
        k,
        batch,
        itemsize,
        staged,
        direct,
        scattered,
        extent.target,
        False in layouts,
        access,
        over_rows,
        over_columns,
        sides,
        wide,
        product.held,
        work,
        matrices,
        by_threads=sum(out.is_staged and not out.is_bulk for out in product.outputs),
        one_by_one=sum(out.is_staged and out.chunk == 1 for out in product.outputs),
        ragged=ragged,
        blocks=blocks,
        counts=counts,
        prologue=_prologue_work(fusion, product.a, extent) if product.a.prologue else None,
        whole_steps=_whole_steps(fusion, product) if product.a.prologue else (),
        half=half_tiles.find(fusion, product, batch) if ragged is None and not axes.outer_rows else None,
        walks=walks,
        box_of=rows_of if axes.outer_rows else (),
        narrow=product.narrow,
        held_by_piece=product.held_by_piece,
        columns_mixed=len(layouts) > 1 and not product.shares_steps,
        has_first_rows=has_first_rows(fusion, product),
        row_columns=0 if rows_alone is None else width,
        has_masked_end=rows_alone is not None and product.b.is_padded,
    )


def check_step(fusion: Fusion, product: MatrixProduct, config: MatmulConfig) -> None:
    """Raise :class:`UnsupportedError` unless steps of k divide k, if a factor is computed: behind the end it is computed of zeros, and need not be zero.

    Steps of :data:`SPAN` bytes do.
    """
    k = product.axes.extent(product.axes.k)
    if product.a.prologue and not is_multiple(k, config.tile_k, fusion.facts()):
        reason = f"tile_k = {config.tile_k}, which does not divide k = {k}: a factor is computed, of zeros behind its end, too"
        raise config.error(reason, f"use {_span(product)}")


def _whole_steps(fusion: Fusion, product: MatrixProduct) -> tuple[int, ...]:
    """Steps of one or several spans of k that divide k."""
    k, span = product.axes.extent(product.axes.k), _span(product)
    return tuple(count * span for count in COMPUTED_SPANS if is_multiple(k, count * span, fusion.facts()))


def _span(product: MatrixProduct) -> int:
    """See :func:`whole_span`."""
    return whole_span(product.a.tensor.dtype.itemsize, product.a.packed, product.b.tensor.dtype.itemsize)


def _prologue_work(fusion: Fusion, factor: Operand, extent: Sizes) -> float:
    """Instructions for one element of a computed factor. One function of 16-bit floats takes two elements at a time, and no conversions.

    Of narrower inputs, functions of two elements at a time count half, copies and conversions between these not at all, and what only some elements need, such
    as those of the upper half of a byte, as often as it is needed: fitted on ``benchmarks/results/narrow_weights.txt``, as the rest is on
    ``benchmarks/results/computed_factor.txt``.
    """
    made = [fusion.definition(tv) for tv in factor.prologue]
    figures = extent.target.products
    around = _loads_beside(fusion, factor) * figures.fragment_element_cycles + figures.converted_instructions
    match made:
        case [Pointwise(op=op) as only] if op.cpp.pair is not None and only.output.dtype is factor.tensor.dtype:
            return cost(only) / 2
        case _ if factor.tensor.dtype.itemsize >= factor.packed * factor.prologue[-1].dtype.itemsize:
            return _work(fusion, factor.prologue) + around
        case _:
            parts = shares(fusion, extent)
            plain = [e for e in made if isinstance(e, Pointwise) and not e.op.cpp.moves]
            return sum(parts.get(e.output, 1.0) * cost(e) / (1 if e.op.cpp.pair is None else 2) for e in plain) + around


def _loads_beside(fusion: Fusion, factor: Operand) -> int:
    """Loads for each element of a computed factor: of inputs beside its own that have another element for its neighbor along k."""
    reads = [(r, tv) for tv in factor.prologue for r in reads_of(fusion, tv) if r.tensor.is_input and r.tensor is not factor.tensor]
    return sum(any(step_along(e, tv.ndim - 1, fusion.facts()) not in (0, None) for e in r.index) for r, tv in reads)


def _access(factors: Sequence[Operand]) -> int:
    """Bytes of one access where threads copy one of some factors; 0: the copy engine copies all."""
    return min((operand.size for operand in factors if not operand.is_bulk), default=0)


def _work(fusion: Fusion, tensors: Sequence[TensorView]) -> float:
    """Instructions for one element of some tensors, without conversions."""
    made = [e for tv in tensors if isinstance(e := fusion.definition(tv), Pointwise)]
    return float(sum(cost(e) for e in made if e.op.rule is not DTypeRule.CAST))
