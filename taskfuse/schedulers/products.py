"""``tf.schedulers.products``: several matrix products, of unlike extents, as one persistent kernel that walks one list of their tiles.

The tiles of all products stand in one list, product after product, and each block takes every ``blocks``-th of it: round-robin, as in CUTLASS's grouped
kernels. A block's items of one product are a loop, so the walk of a block is the loops of the products one after another; each begins with the
block after the last one of the product before: a rotation of the blocks (``tf.tiles.rotated``). No block searches for the problem of a tile.

One role loads and one multiplies and stores, for all products. Their operands pass through one ring that continues from product to product, so that the tiles
of the next product are loaded while the last one of this is stored. All results are staged in the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const, Expr, ceildiv, const, simplify
from taskfuse.ir.tensor import TensorView
from taskfuse.schedulers.contraction import MatrixProduct, apart, find
from taskfuse.schedulers.cost import MatmulProblem
from taskfuse.schedulers.matmul import check_step, check_types, problem_of, size_of
from taskfuse.schedulers.matmul_candidates import group_of
from taskfuse.schedulers.products_cost import (
    ListEstimate,
    ProductsConfig,
    claim_bytes,
    estimate_list,
    order_of,
    rank_lists,
    work_list,
)
from taskfuse.schedulers.schedule import Chosen, Offer, check_call, check_flag, check_wgmma, refuse, tries_parameters
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.warp_specialized import Turn, WarpSpecialized, make_roles
from taskfuse.target import DEFAULT, Target


@tries_parameters
def products(
    fusion: Fusion, config: ProductsConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT, tf32: bool = False
) -> Chosen[ProductsConfig]:
    """Schedule a fusion with two or more matrix products that do not depend on each other: one persistent, warp-specialized kernel for Hopper (sm_90a).

    Each product is as :func:`matmul` takes it, with any extents and an elementwise epilogue of its own. Their factors have one dtype, the same axes
    contiguous, and are copied in the same way, as all pass through one ring.

    Args:
        fusion: it is changed: tensors, tasks and schedule are added.
        config: the parameters; ``None``: the fastest by the cost model.
        sizes: values of the fusion's dimensions for the cost model; by default 4096, clamped to the known bounds.
        target: the GPU.
        tf32: multiply float32 as tf32.

    Returns:
        The parameters, why they were chosen, and the schedule as code.

    Raises:
        UnsupportedError: the fusion or the parameters do not fit this scheduler.
    """
    check_call(fusion, "products", config, ProductsConfig)
    check_flag(fusion, "products", "tf32", tf32)
    found, problems, alternatives = _planned(fusion, sizes, target, tf32)
    chosen = alternatives[0].config if config is None else config
    one = chosen.of_one(1)
    for product, problem in zip(found, problems, strict=True):
        is_computed = problem.prologue is not None
        one.check_fits(
            problem.target,
            problem.itemsize,
            problem.staged,
            columns_contiguous=problem.columns_contiguous,
            columns_by_threads=problem.columns_by_threads,
            is_computed=is_computed,
        )
        check_step(fusion, product, one)
    if chosen.is_dynamic:
        _check_claims(problems, chosen)
    script = Script(fusion)
    _apply(script, found, problems, chosen)
    option = estimate_list(problems, chosen)
    size = " + ".join(size_of(p).split(",")[0] for p in problems)
    return Chosen("products", size, option, alternatives, config is not None, script.text, _expected(problems, option))


def offer(fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Offer:
    """The offer of :func:`products`.

    Raises:
        UnsupportedError: see :func:`products`; what the scheduling calls refuse is found when the offer is taken.
    """
    check_call(fusion, "products", None, ProductsConfig)
    return Offer(_planned(fusion, sizes, target, False)[2][0].us, partial(products, sizes=sizes, target=target))


def _planned(
    fusion: Fusion, sizes: Mapping[str, int] | None, target: Target, tf32: bool
) -> tuple[list[MatrixProduct], list[MatmulProblem], tuple[ListEstimate, ...]]:
    """The products, their problems, and all parameters with their estimates, the fastest first."""
    found = [_from_registers(find(fusion, outputs, boxes=False)) for outputs in _parts(fusion)]
    for product in found:
        check_types(fusion, product, tf32)
    _check_alike(fusion, found)
    problems = [problem_of(fusion, product, sizes, target) for product in found]
    check_wgmma(fusion, "products", problems[0].target)
    may_claim = all(isinstance(_tiles(product, ProductsConfig()), Const) for product in found)
    return found, problems, rank_lists(tuple(problems), may_claim=may_claim)


def _from_registers(product: MatrixProduct) -> MatrixProduct:
    """The product without outputs that threads store from Shared memory: the staging area of a list is filled ahead of bulk stores alone."""
    return replace(product, outputs=tuple(out if out.is_bulk else replace(out, is_staged=False) for out in product.outputs))


def _check_claims(problems: Sequence[MatmulProblem], config: ProductsConfig) -> None:
    """A block has room for the numbers of all tiles, and that there are no more. Raises :class:`UnsupportedError`."""
    one, room = config.of_one(1), problems[0].target.limits.block_shared
    claims = claim_bytes(problems, config)
    needed = max(one.shared_bytes(p.itemsize, p.staged, counts=p.counts, columns_contiguous=p.columns_contiguous) for p in problems) + claims
    if needed > room:
        raise config.error(
            f"it takes {needed} bytes of Shared memory, {claims} of them for the tiles that a block claims, and a block has {room}", "use fewer stages"
        )


def _apply(script: Script, found: Sequence[MatrixProduct], problems: Sequence[MatmulProblem], config: ProductsConfig) -> None:
    """Make the calls, product after product in the order of the list."""
    scheduled: list[WarpSpecialized] = []
    start: Expr = const(0)
    for number, k in enumerate(order_of(problems, config)):
        script.comment(f"product {number}")
        tiles = _tiles(found[k], config)
        one = config.of_one(group_of(problems[k], config.of_one(1), config.blocks))
        turn = Turn(number, simplify(-start % config.blocks, script.fusion.facts()), config.is_dynamic)
        scheduled.append(WarpSpecialized(script, found[k], one, turn))
        scheduled[-1].apply()
        start = simplify(start + tiles, script.fusion.facts())
    make_roles(script, scheduled)


def _tiles(product: MatrixProduct, config: ProductsConfig) -> Expr:
    """The number of tiles of a product."""
    axes = product.axes
    total = ceildiv(axes.extent(axes.m), config.tile_m) * ceildiv(axes.extent(axes.n), config.tile_n)
    for p in axes.batch:
        total = total * axes.extent(p)
    return total


def _expected(problems: Sequence[MatmulProblem], e: ListEstimate) -> str:
    listed = work_list(problems, e.config)
    return (
        f"{e.tiles} tiles, {listed.waves} wave{'s' if listed.waves > 1 else ''}, the longest of {e.config.blocks} blocks {e.imbalance:.2f} times the mean; "
        f"expected: {e.us:.1f} us"
    )


def _parts(fusion: Fusion) -> list[list[TensorView]]:
    """The outputs that need something in common that is computed: a list for each product."""
    parts = [[tv for tv in part if among(tv, fusion.outputs)] for part in apart(fusion, fusion.exprs())]
    if len(parts) < 2:
        raise refuse(fusion, "products", "it takes several independent products", "tf.schedulers.matmul takes one")
    return parts


def _check_alike(fusion: Fusion, found: Sequence[MatrixProduct]) -> None:
    """One ring takes the operands of all, and one staging area their results."""
    first = found[0]
    for product in found:
        name = product.axes.result.name
        if product.blocks is not None:
            raise refuse(fusion, "products", f"{name} sums products of blocks", "move that product to a separate fusion")
        if product.beside:
            raise refuse(fusion, "products", f"{name} and another product make one result", "move them to a separate fusion")
        if product.reductions:
            raise refuse(fusion, "products", f"{product.reductions[0].tensor.name} reduces {name}", "move that product to a separate fusion")
        for mine, theirs in ((product.a, first.a), (product.b, first.b)):
            kinds = [(o.tensor.dtype, o.is_k_major, o.is_bulk, o.is_bulk or o.size) for o in (mine, theirs)]
            if kinds[0] != kinds[1]:
                reason = f"{mine.tensor!r} and {theirs.tensor!r} differ in dtype, in the axis that is contiguous, or in how they are copied"
                raise refuse(fusion, "products", reason, "pass them as arrays of one kind, or move these products to separate fusions")
        staged = zip(*([o.tensor.dtype for o in p.outputs if o.is_staged] for p in (product, first)), strict=False)
        if any(mine is not theirs for mine, theirs in staged):
            raise refuse(fusion, "products", f"{name} and {first.axes.result.name} are stored with different dtypes", "move it to a separate fusion")
        for side in product.sides:
            if any(among(side.tensor, [s.tensor for s in other.sides]) for other in found if other is not product):
                raise refuse(fusion, "products", f"{side.tensor.name} is read by several products", "define two inputs and pass the array twice")
