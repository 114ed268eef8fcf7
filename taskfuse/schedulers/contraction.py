"""The contraction of a fusion, recognized by its structure: axes, operands, and epilogue.

:mod:`taskfuse.ir.contraction` defines a matrix product, with rows m, columns n and batch axes. Its combining function and body are
compared with what the tensor-core atom computes, whichever op made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskfuse.ir.atoms import SUM_OF_PRODUCTS
from taskfuse.ir.axes import iteration_position
from taskfuse.ir.connectivity import components
from taskfuse.ir.contraction import MatrixAxes, computes, factors
from taskfuse.ir.expr import FirstValid, MathExpr, Pointwise, Read, Reduction, View, reads
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const, const, ge, is_multiple, prove
from taskfuse.ir.storage import has_code, made_from, producers, reads_of, resolve, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.schedulers.block_sums import BlockSums, between, block_sums, outer_sum
from taskfuse.schedulers.factors import Operand, factor, padded_source, prologue_of
from taskfuse.schedulers.loads import BULK_BYTES, copy_bytes, is_bulk
from taskfuse.schedulers.schedule import refuse

NOWHERE, SEVERAL = -1, -2
"""The place of an axis that the result lacks, and of one with several places: the tensor is read in several ways."""
STAGED_ITEMSIZE = 2
"""Bytes of the elements that ``stmatrix`` stores."""


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """An output of the fusion, or the part that one is made of.

    Attributes:
        tensor: the output.
        is_staged: ``stmatrix`` makes tiles of it in Shared memory, of which rows are stored 16 bytes at a time: 16-bit elements, n contiguous, strides of
            multiples of 16 bytes.
        is_bulk: the copy engine stores these; else threads do. It stores whole tiles, and the part that an output is made of may lack some of their rows.
        is_paired: two neighbors along n are one access: n contiguous, and even.
    """

    tensor: TensorView
    is_staged: bool
    is_bulk: bool
    is_paired: bool


@dataclass(frozen=True, slots=True, eq=False)
class EpilogueInput:
    """An input that the epilogue reads.

    Attributes:
        tensor: the input, or the view through which it is read elsewhere than at axes of the product.
        is_paired: two neighbors along n are one access.
        is_wide: it has rows and columns: an element is read once.
    """

    tensor: TensorView
    is_paired: bool
    is_wide: bool


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """A reduction of the product's elements.

    Attributes:
        tensor: its result.
        places: for each axis of its iteration space, the place in that of the contraction.
        over: the places that it reduces.
    """

    tensor: TensorView
    places: tuple[int, ...]
    over: frozenset[int]

    @property
    def kept(self) -> tuple[int, ...]:
        """The places that it does not reduce, in the order of its logical axes."""
        return tuple(p for p in self.places if p not in self.over)


@dataclass(frozen=True, slots=True, eq=False)
class Accumulated:
    """A further contraction of the same rows and columns, with accumulators of its own.

    Attributes:
        axes: of the contraction.
        a, b: as those of :class:`MatrixProduct`.
    """

    axes: MatrixAxes
    a: Operand
    b: Operand


@dataclass(frozen=True, slots=True, eq=False)
class MatrixProduct:
    """A fusion with one contraction, or with several of the same rows and columns.

    Attributes:
        axes: of the contraction, which sums over one; of the outer sum, where blocks are summed first: k are the blocks.
        a, b: the factor with rows m and the one with columns n.
        epilogue: the elementwise tensors computed from the contraction, with the outputs among them except ``result``.
        outputs: those that have every element of the product, in the fusion's order.
        sides: the inputs of the epilogue, of which a thread reads only the element at its own point.
        reductions: of results of the epilogue or the contraction.
        finals: elementwise tensors computed from reductions.
        blocks: the products of blocks of k that the contraction sums; ``None``: it multiplies.
        beside: the other contractions, whose elements the epilogue takes together with those of the first.
    """

    axes: MatrixAxes
    a: Operand
    b: Operand
    epilogue: tuple[TensorView, ...]
    outputs: tuple[Output, ...]
    sides: tuple[EpilogueInput, ...]
    reductions: tuple[Reduced, ...] = ()
    finals: tuple[TensorView, ...] = ()
    blocks: BlockSums | None = None
    beside: tuple[Accumulated, ...] = ()

    @property
    def factors(self) -> tuple[tuple[Operand, Operand], ...]:
        """Those of each contraction."""
        return (self.a, self.b), *((other.a, other.b) for other in self.beside)

    @property
    def shares_steps(self) -> bool:
        """All contractions walk along k together, as they read one factor at the same places."""
        all_axes = [self.axes, *(other.axes for other in self.beside)]
        is_alike = all((x.batch, x.m, x.n, x.k) == (self.axes.batch, self.axes.m, self.axes.n, self.axes.k) for x in all_axes)
        return bool(self.beside) and is_alike and any(self._has_in_common(side) for side in (0, 1))

    def _has_in_common(self, side: int) -> bool:
        mine = self.factors[0][side]
        return mine.is_whole and all(two[side].tensor is mine.tensor and two[side].index == mine.index for two in self.factors)

    @property
    def multiplied(self) -> TensorView:
        """The tensor that the tensor cores compute."""
        return self.axes.result if self.blocks is None else self.blocks.product

    @property
    def held(self) -> tuple[int, ...]:
        """Bytes of an element of each tensor of which a thread may hold a piece besides the accumulators: inputs and outputs of the epilogue."""
        return tuple(tv.dtype.itemsize for tv in (*(side.tensor for side in self.sides), *(out.tensor for out in self.outputs)))


def find(fusion: Fusion, outputs: Sequence[TensorView] | None = None, *, is_swapped: bool = False) -> MatrixProduct:
    """The contraction of ``fusion`` and its surroundings.

    Args:
        outputs: look at what these need alone; ``None``: at all outputs.
        is_swapped: rows are the axis that columns otherwise are: of a result with few rows that is the long one.

    Raises:
        UnsupportedError: there is not exactly one, an operand is computed, rows or columns may be empty, or the epilogue is not elementwise.
    """
    asked = fusion.outputs if outputs is None else outputs
    exprs = needed(fusion, asked)
    products = _contractions(fusion, exprs)
    expr = products[0]
    outer = outer_sum(fusion, exprs, expr) if len(products) == 1 else None
    result = expr.output if outer is None else outer.output
    inside = [] if outer is None else [expr.output, *between(fusion, expr.output, result)]
    made_by = products if outer is None else [outer]
    epilogue, reductions, finals = _behind(fusion, [e for e in exprs if not among(e.output, inside)], made_by)
    places = _places(fusion, [e.output for e in made_by], epilogue)
    behind = [*(e.output for e in reductions), *finals]
    parts = [part for tv in asked for part in made_from(fusion, tv)]
    for tv in parts:
        if tv not in places and not among(tv, behind):
            raise refuse(fusion, "matmul", f"the output {tv.name} does not need the product", "leave it to a fusion of its own")
    stored = [tv for tv in parts if tv is result or among(tv, epilogue)]
    others = [e for e in exprs if e not in products]
    last = places[stored[0]].get(stored[0].ndim - 1) if stored else None
    axes, a, b = _multiplied(fusion, expr, others, last, in_blocks=outer is not None, is_alone=len(products) == 1, is_swapped=is_swapped)
    blocks = None if outer is None else block_sums(fusion, expr, outer, axes.m, axes.n)
    if blocks is not None:
        axes = MatrixAxes(result, tuple(p for p in axes.batch if p != blocks.axis), axes.m, axes.n, blocks.axis)
    beside = tuple(_beside(fusion, e, others, axes, a) for e in products[1:])
    made = tuple(_output(fusion, tv, places[tv], result, axes.n) for tv in stored)
    reduced = tuple(_reduced_by(fusion, e, places, result, (axes.m, axes.n)) for e in reductions)
    _check_finals(fusion, finals, reduced)
    return MatrixProduct(axes, a, b, epilogue, made, _sides(fusion, epilogue, places, axes), reduced, finals, blocks, beside)


def _multiplied(
    fusion: Fusion,
    expr: Reduction,
    others: Sequence[MathExpr],
    last: int | None,
    *,
    in_blocks: bool = False,
    is_alone: bool = False,
    is_swapped: bool = False,
) -> tuple[MatrixAxes, Operand, Operand]:
    """The axes of a contraction and its factors, that with the rows first.

    Args:
        others: what is computed beside contractions.
        last: the axis that is contiguous in the output, if that is known.
        in_blocks: it multiplies blocks of k.
        is_alone: there is one contraction.
        is_swapped: see :func:`find`.
    """
    two, result = factors(fusion, expr), expr.output
    if two is None:
        raise refuse(fusion, "matmul", f"{result.name} multiplies a tensor by a number", "scale the product instead")
    if not two.make_a_matrix:
        raise refuse(fusion, "matmul", f"{result.name} has no rows or no columns", "each factor needs an axis that the other lacks: reshape a vector to [1, K]")
    for axis in (result.root[p] for p in sorted(two.rows | two.columns)):
        if not prove(ge(axis.extent, 1), fusion.facts()):  # the factor that lacks it shares its loop
            raise refuse(fusion, "matmul", f"the extent {axis.extent} of {result.name} may be 0", "declare it with tf.dim(..., min=1)")
    if last in two.rows or (last not in two.columns and max(two.rows) > max(two.columns)):
        two = two.swapped()
    if is_swapped:
        two = two.swapped()
    axes = two.as_matrices(result, last if last in two.columns else None)
    sources = zip(two.places, (two.a, two.b), (axes.m, axes.n), strict=True)
    a, b = (factor(fusion, expr, others, place, read, row, axes, in_blocks=in_blocks, is_alone=is_alone) for place, read, row in sources)
    mine, theirs = (o.prologue[-1] if o.prologue else o.tensor for o in (a, b))
    if mine.dtype is not theirs.dtype:
        raise refuse(fusion, "matmul", f"{mine!r} and {theirs!r} have two dtypes", "convert one of them before")
    return axes, a, b


def _beside(fusion: Fusion, expr: Reduction, others: Sequence[MathExpr], first: MatrixAxes, like: Operand) -> Accumulated:
    """A further contraction; its axes are those of the first but for k."""
    result, tile = expr.output, f"the tiles of {first.result.name}"
    if result.dtype is not first.result.dtype or result.shape != first.result.shape:
        raise refuse(fusion, "matmul", f"{result!r} has other elements than {tile}", "leave it to a fusion of its own")
    at = {place: p for p, place in enumerate(_logical(result))}
    place = _logical(first.result)
    axes, a, b = _multiplied(fusion, expr, others, at[place[first.n]])
    if (axes.m, axes.n) != (at[place[first.m]], at[place[first.n]]):
        raise refuse(fusion, "matmul", f"rows and columns of {result.name} are not those of {tile}", "leave it to a fusion of its own")
    if a.tensor.dtype is not like.tensor.dtype:
        raise refuse(fusion, "matmul", f"{like.tensor!r} and {a.tensor!r} have two dtypes", "convert one of them before")
    return Accumulated(axes, a, b)


def _logical(result: TensorView) -> tuple[int | None, ...]:
    """For each axis of the iteration space of a result, its place among the result's axes."""
    kept = iter(range(result.ndim))
    return tuple(None if a.is_reduction else next(kept) for a in result.root)


def needed(fusion: Fusion, outputs: Sequence[TensorView]) -> tuple[MathExpr, ...]:
    """What some outputs are computed by, producers first."""
    if list(outputs) == list(fusion.outputs):
        return fusion.exprs()
    wanted = set(outputs)
    for expr in reversed(fusion.exprs()):
        if expr.output in wanted:
            wanted.update(read.tensor for read in reads(expr))
    return tuple(e for e in fusion.exprs() if e.output in wanted)


def _contractions(fusion: Fusion, exprs: Sequence[MathExpr]) -> list[Reduction]:
    """The products whose elements the epilogue takes together."""
    found = [e for e in exprs if isinstance(e, Reduction)]
    products = [e for e in found if computes(e, SUM_OF_PRODUCTS)]
    if len(products) > 1:
        products = [e for e in products if (two := factors(fusion, e)) is not None and two.make_a_matrix]
    if not found:
        raise refuse(fusion, "matmul", "it takes one contraction, and there are 0", "give each contraction a fusion of its own")
    for expr in products or found[:1]:
        if not products or sum(a.is_reduction for a in expr.output.root) != 1:
            what = f"{expr.output.name} is a reduction by {expr.combine.name} of {expr.body.name}, not a sum of products over one axis"
            raise refuse(fusion, "matmul", what, "write the product as tf.matmul(a, b)")
    if len(products) > 1 and len(apart(fusion, exprs)) > 1:
        raise refuse(fusion, "matmul", f"it takes one tile of the result at a time, and {len(products)} contractions do not meet", "tf.schedulers.products")
    return products


def apart(fusion: Fusion, exprs: Sequence[MathExpr]) -> list[list[TensorView]]:
    """What is computed, in parts that need nothing of each other."""
    code = [e for e in exprs if has_code(fusion, e)]
    computed = [e.output for e in code]
    edges = [(t, e.output) for e in code for read in storage_reads(fusion, e) for t in made_from(fusion, read.tensor) if among(t, computed)]
    return components(computed, edges)


def _behind(
    fusion: Fusion, exprs: Sequence[MathExpr], products: Sequence[Reduction]
) -> tuple[tuple[TensorView, ...], tuple[Reduction, ...], tuple[TensorView, ...]]:
    """What else is computed, producers first: the tensors of the epilogue, reductions of them, and what is computed from these.

    Args:
        products: what makes the elements that the epilogue takes.
    """
    multiplied = [r.tensor for e in products for r in storage_reads(fusion, e)]
    factors_made = [tv for tv in multiplied if padded_source(fusion, tv) is not None]
    factors_made += [made for tv in multiplied for made in prologue_of(fusion, tv)]
    results = [e.output for e in products]
    epilogue: list[TensorView] = []
    reductions: list[Reduction] = []
    finals: list[TensorView] = []
    for expr in exprs:
        tv = expr.output
        if among(tv, results) or not has_code(fusion, expr) or among(tv, factors_made):
            continue
        sources = [read.tensor for read in storage_reads(fusion, expr)]
        after = [t for t in sources if among(t, finals) or any(t is r.output for r in reductions)]
        if isinstance(expr, Reduction) and not after and len(sources) == 1 and among(sources[0], [*results, *epilogue]):
            reductions.append(expr)
        elif not isinstance(expr, Pointwise | View | FirstValid):
            raise refuse(fusion, "matmul", f"{tv.name} is not computed element by element", "leave it to a fusion of its own")
        elif not after:
            epilogue.append(tv)
        else:
            whole = next((t for t in sources if among(t, [*results, *epilogue])), None)
            if whole is not None:
                reason = f"{tv.name} reads {whole.name} and {after[0].name}, a reduction of all tiles, which are complete when their registers are gone"
                raise refuse(fusion, "matmul", reason, f"leave {tv.name} to a fusion of its own")
            finals.append(tv)
    used = {t for tv in epilogue for t in _inputs_of(fusion, tv)}
    twice = next((t for tv in finals for t in _inputs_of(fusion, tv) if t in used), None)
    if twice is not None:
        raise refuse(fusion, "matmul", f"{twice.name} is read by the epilogue and after a reduction", "define two inputs and pass the array twice")
    return tuple(epilogue), tuple(reductions), tuple(finals)


def _inputs_of(fusion: Fusion, tv: TensorView) -> list[TensorView]:
    return [p for p in producers(fusion, tv) if p.is_input]


def _reduced_by(fusion: Fusion, expr: Reduction, places: dict[TensorView, dict[int, int]], result: TensorView, tile: tuple[int, int]) -> Reduced:
    """The axes of a reduction of the epilogue, in terms of the contraction's."""
    (read,) = storage_reads(fusion, expr)
    found: dict[int, int] = {}
    for axis, e in enumerate(read.index):
        position = iteration_position(e)
        if position is not None and axis in places.get(read.tensor, {}):
            found[position] = places[read.tensor][axis]
    tv = expr.output
    if len(found) != result.ndim or sorted(found) != list(range(len(tv.root))) or min(found.values()) < 0:
        raise refuse(
            fusion, "matmul", f"{tv.name} reduces {read.tensor.name}, which does not have every axis of the product", "leave it to a fusion of its own"
        )
    over = frozenset(found[position] for position, a in enumerate(tv.root) if a.is_reduction)
    if not over & set(tile):
        raise refuse(fusion, "matmul", f"{tv.name} reduces batch axes, and neither rows nor columns", "leave it to a fusion of its own")
    return Reduced(tv, tuple(found[position] for position in range(len(tv.root))), over)


def _check_finals(fusion: Fusion, finals: tuple[TensorView, ...], reductions: tuple[Reduced, ...]) -> None:
    """What is computed from reductions has their axes, in their order: it shares their loops."""
    kept = {r.tensor: r.kept for r in reductions}
    for tv in finals:
        for read in reads_of(fusion, tv):
            if read.tensor.is_input:
                continue
            mine = kept[read.tensor]
            wide = [position for position, a in enumerate(tv.root) if a.extent is not const(1)]  # a kept dimension of 1 changes nothing
            read_at = [iteration_position(e) for e, extent in zip(read.index, read.tensor.shape, strict=True) if extent is not const(1)]
            if read_at != wide or kept.setdefault(tv, mine) != mine:
                raise refuse(fusion, "matmul", f"{tv.name} reads {read.tensor.name} along axes other than its own", "leave it to a fusion of its own")


def _places(fusion: Fusion, results: Sequence[TensorView], epilogue: tuple[TensorView, ...]) -> dict[TensorView, dict[int, int]]:
    """For each tensor of the epilogue, inputs included: which axis of the result's iteration space each of its logical axes is, as far as known.

    From the result to what reads it, then from readers back to the rest of what they read: a bias gets its place from the sum that it is in.
    """
    first = {d: p for p, d in enumerate(_logical(results[0])) if d is not None}
    found = {result: dict(first) for result in results}
    for tv, read in _reads(fusion, epilogue):
        if read.tensor not in found:
            continue
        for axis, e in enumerate(read.index):
            position = iteration_position(e)
            if position is None:
                raise refuse(fusion, "matmul", f"{tv.name} reads {read.tensor.name} at {e}", "an epilogue reads each element of the product in its place")
            place = found[read.tensor].get(axis, NOWHERE)
            if found.setdefault(tv, {}).setdefault(position, place) != place:
                raise refuse(fusion, "matmul", f"{tv.name} reads products at two places", "an epilogue reads each element of the product in its place")
    flowed = set(found)
    for tv, read in reversed(_reads(fusion, epilogue)):
        if read.tensor in flowed or tv not in found:
            continue
        places = found.setdefault(read.tensor, {})
        for axis, e in enumerate(read.index):
            position = iteration_position(e)
            place = NOWHERE if position is None else found[tv].get(position, NOWHERE)
            places[axis] = place if places.get(axis, place) == place else SEVERAL
    for tv in epilogue:
        if SEVERAL in found.get(tv, {}).values():
            raise refuse(fusion, "matmul", f"{tv.name} is read in two ways, such as at its place and transposed", "compute it twice")
    _check_exchanged(fusion, epilogue, found)
    return found


def _check_exchanged(fusion: Fusion, epilogue: tuple[TensorView, ...], places: dict[TensorView, dict[int, int]]) -> None:
    """Loops over axes that an input exchanges have one key: a tensor that has only some of these axes takes the first loops, which must be its own."""
    seen: dict[TensorView, dict[int, set[int]]] = {}
    for tv, read in _reads(fusion, epilogue):
        for axis, e in enumerate(read.index):
            place = places.get(tv, {}).get(position, NOWHERE) if (position := iteration_position(e)) is not None else NOWHERE
            if place != NOWHERE:
                seen.setdefault(read.tensor, {}).setdefault(axis, set()).add(place)
    for source, axes in seen.items():
        exchanged = set[int]().union(*(a for a in axes.values() if len(a) > 1))
        for tv, at in places.items():
            own = exchanged.intersection(at.values())
            if own and any(p < max(own) for p in exchanged - own):
                raise refuse(
                    fusion,
                    "matmul",
                    f"{source.name} is read in two ways, such as at its place and transposed, and {tv.name} lacks an axis that differs in them",
                    f"define two inputs and pass the array of {source.name} twice",
                )


def _reads(fusion: Fusion, epilogue: tuple[TensorView, ...]) -> list[tuple[TensorView, Read]]:
    """The operands of the epilogue, producers first."""
    return [(tv, read) for tv in epilogue for read in reads_of(fusion, tv)]


def _output(fusion: Fusion, tv: TensorView, places: dict[int, int], result: TensorView, n: int) -> Output:
    if tv.ndim != result.ndim or len(places) != result.ndim:
        raise refuse(fusion, "matmul", f"the output {tv.name} does not have every axis of the product", "leave it to a fusion of its own")
    row_major = places[tv.ndim - 1] == n
    facts = fusion.facts()
    staged = row_major and tv.dtype.itemsize == STAGED_ITEMSIZE and copy_bytes(tv, facts) == BULK_BYTES
    return Output(tv, staged, staged and tv.is_output and is_bulk(tv, facts), row_major and is_multiple(tv.shape[-1], 2, facts))


def _sides(fusion: Fusion, epilogue: tuple[TensorView, ...], places: dict[TensorView, dict[int, int]], axes: MatrixAxes) -> tuple[EpilogueInput, ...]:
    found: dict[TensorView, dict[int, int]] = {}
    several: set[TensorView] = set()  # read in two ways: as they lie
    for tv in epilogue:
        expr = fusion.definition(tv)
        for given in () if expr is None else reads(expr):
            read = resolve(fusion, given)
            if not read.tensor.is_input:
                continue
            if fusion.is_view(given.tensor) and not all(isinstance(e, Const) or iteration_position(e) is not None for e in read.index):
                own = ((axis, iteration_position(e)) for axis, e in enumerate(given.index))
                at = {axis: NOWHERE if p is None else places.get(tv, {}).get(p, NOWHERE) for axis, p in own}
                if found.setdefault(given.tensor, at) != at:
                    several.add(given.tensor)
            elif SEVERAL not in (at := places.get(read.tensor, {})).values():
                found[read.tensor] = at
    facts = fusion.facts()
    return tuple(
        EpilogueInput(tv, at.get(tv.ndim - 1) == axes.n and is_multiple(tv.shape[-1], 2, facts), {axes.m, axes.n} <= {*at.values()})
        for tv, at in found.items()
        if tv not in several
    )
