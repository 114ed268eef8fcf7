"""The contraction of a fusion, recognized by its structure: axes, operands, and epilogue.

:mod:`taskfuse.ir.contraction` defines a matrix product, with rows m, columns n and batch axes. Its combining function and body are
compared with what the tensor-core atom computes, whichever op made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskfuse.ir.atoms import SUM_OF_PRODUCTS
from taskfuse.ir.axes import iteration_position, iteration_symbol
from taskfuse.ir.contraction import MatrixAxes, axes_of_index, computes, factors
from taskfuse.ir.expr import FirstValid, MathExpr, Pointwise, Read, Reduction, View, padded_read, reads
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import ONE, TRUE, Const, const, ge, is_multiple, prove, simplify
from taskfuse.ir.storage import has_code, made_from, producers, reads_of, resolve, storage_reads, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.schedulers.block_sums import SPAN, BlockSums, between, block_sums, outer_sum
from taskfuse.schedulers.loads import BULK_BYTES, copy_bytes, is_bulk
from taskfuse.schedulers.schedule import refuse

NOWHERE, SEVERAL = -1, -2
"""The place of an axis that the result lacks, and of one with several places: the tensor is read in several ways."""
STAGED_ITEMSIZE = 2
"""Bytes of the elements that ``stmatrix`` stores."""


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A factor.

    Attributes:
        tensor: the input that contains it: that of the other factor, too, in ``x @ x.T``. Or the padded copy of one.
        position: its position among the operands of the contraction.
        is_whole: it is read at axes of the contraction alone. Else batch axes decide, by any expression, which matrix of the tensor is read, or where
            its rows begin, or where k does.
        is_k_major: k, not m or n, is the last, contiguous axis of the tensor.
        is_bulk: the copy engine can read it.
        size: bytes of one access if threads copy it.
        is_padded: it is a copy of rows of an input, some of which are zeros instead: threads make it.
    """

    tensor: TensorView
    position: int
    is_whole: bool
    is_k_major: bool
    is_bulk: bool
    size: int
    is_padded: bool = False


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
class MatrixProduct:
    """A fusion with one contraction.

    Attributes:
        axes: of the contraction, which sums over one; of the outer sum, where blocks are summed first: k are the blocks.
        a, b: the factor with rows m and the one with columns n.
        epilogue: the elementwise tensors computed from the contraction, with the outputs among them except ``result``.
        outputs: those that have every element of the product, in the fusion's order.
        sides: the inputs of the epilogue, of which a thread reads only the element at its own point.
        reductions: of results of the epilogue or the contraction.
        finals: elementwise tensors computed from reductions.
        blocks: the products of blocks of k that the contraction sums; ``None``: it multiplies.
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

    @property
    def multiplied(self) -> TensorView:
        """The tensor that the tensor cores compute."""
        return self.axes.result if self.blocks is None else self.blocks.product

    @property
    def held(self) -> tuple[int, ...]:
        """Bytes of an element of each tensor of which a thread may hold a piece besides the accumulators: inputs and outputs of the epilogue."""
        return tuple(tv.dtype.itemsize for tv in (*(side.tensor for side in self.sides), *(out.tensor for out in self.outputs)))


def find(fusion: Fusion, outputs: Sequence[TensorView] | None = None) -> MatrixProduct:
    """The contraction of ``fusion`` and its surroundings.

    Args:
        outputs: look at what these need alone; ``None``: at all outputs.

    Raises:
        UnsupportedError: there is not exactly one, an operand is computed, rows or columns may be empty, or the epilogue is not elementwise.
    """
    asked = fusion.outputs if outputs is None else outputs
    exprs = needed(fusion, asked)
    expr = _contraction(fusion, exprs)
    outer = outer_sum(fusion, exprs, expr)
    result = expr.output if outer is None else outer.output
    inside = [] if outer is None else [expr.output, *between(fusion, expr.output, result)]
    epilogue, reductions, finals = _behind(fusion, [e for e in exprs if not among(e.output, inside)], result)
    places = _places(fusion, result, epilogue)
    behind = [*(e.output for e in reductions), *finals]
    parts = [part for tv in asked for part in made_from(fusion, tv)]
    for tv in parts:
        if tv not in places and not among(tv, behind):
            raise refuse(fusion, "matmul", f"the output {tv.name} does not need the product", "leave it to a fusion of its own")
    two = factors(fusion, expr)
    if two is None:
        raise refuse(fusion, "matmul", f"{result.name} multiplies a tensor by a number", "scale the product instead")
    if not two.make_a_matrix:
        raise refuse(fusion, "matmul", f"{result.name} has no rows or no columns", "each factor needs an axis that the other lacks: reshape a vector to [1, K]")
    for axis in (result.root[p] for p in sorted(two.rows | two.columns)):
        if not prove(ge(axis.extent, 1), fusion.facts()):  # the factor that lacks it shares its loop
            raise refuse(fusion, "matmul", f"the extent {axis.extent} of {result.name} may be 0", "declare it with tf.dim(..., min=1)")
    stored = [tv for tv in parts if tv is result or among(tv, epilogue)]
    last = places[stored[0]].get(stored[0].ndim - 1) if stored else None
    if last in two.rows or (last not in two.columns and max(two.rows) > max(two.columns)):
        two = two.swapped()
    axes = two.as_matrices(expr.output, last if last in two.columns else None)
    sources = zip(two.places, (two.a, two.b), (axes.m, axes.n), strict=True)
    a, b = (_operand(fusion, exprs, expr, place, read, row, axes, in_blocks=outer is not None) for place, read, row in sources)
    if a.tensor.dtype is not b.tensor.dtype:
        raise refuse(fusion, "matmul", f"{a.tensor!r} and {b.tensor!r} have two dtypes", "convert one of them before")
    blocks = None if outer is None else block_sums(fusion, expr, outer, axes.m, axes.n)
    if blocks is not None:
        axes = MatrixAxes(result, tuple(p for p in axes.batch if p != blocks.axis), axes.m, axes.n, blocks.axis)
    made = tuple(_output(fusion, tv, places[tv], result, axes.n) for tv in stored)
    reduced = tuple(_reduced_by(fusion, e, places, result, (axes.m, axes.n)) for e in reductions)
    _check_finals(fusion, finals, reduced)
    return MatrixProduct(axes, a, b, epilogue, made, _sides(fusion, epilogue, places, axes), reduced, finals, blocks)


def needed(fusion: Fusion, outputs: Sequence[TensorView]) -> tuple[MathExpr, ...]:
    """What some outputs are computed by, producers first."""
    if list(outputs) == list(fusion.outputs):
        return fusion.exprs()
    wanted = set(outputs)
    for expr in reversed(fusion.exprs()):
        if expr.output in wanted:
            wanted.update(read.tensor for read in reads(expr))
    return tuple(e for e in fusion.exprs() if e.output in wanted)


def _contraction(fusion: Fusion, exprs: Sequence[MathExpr]) -> Reduction:
    found = [e for e in exprs if isinstance(e, Reduction)]
    products = [e for e in found if computes(e, SUM_OF_PRODUCTS)]
    if len(products) > 1:
        products = [e for e in products if (two := factors(fusion, e)) is not None and two.make_a_matrix]
    if not found or len(products) > 1:
        raise refuse(fusion, "matmul", f"it takes one contraction, and there are {len(products)}", "give each contraction a fusion of its own")
    expr = products[0] if products else found[0]
    if not products or sum(a.is_reduction for a in expr.output.root) != 1:
        what = f"{expr.output.name} is a reduction by {expr.combine.name} of {expr.body.name}, not a sum of products over one axis"
        raise refuse(fusion, "matmul", what, "write the product as tf.matmul(a, b)")
    return expr


def _behind(fusion: Fusion, exprs: Sequence[MathExpr], result: TensorView) -> tuple[tuple[TensorView, ...], tuple[Reduction, ...], tuple[TensorView, ...]]:
    """The other tensors that are computed, producers first: those of the epilogue, reductions of them, and what is computed from these."""
    made_by = fusion.definition(result)
    factors_made = [r.tensor for r in storage_reads(fusion, made_by) if _padded_source(fusion, r.tensor) is not None] if made_by is not None else []
    epilogue: list[TensorView] = []
    reductions: list[Reduction] = []
    finals: list[TensorView] = []
    for expr in exprs:
        tv = expr.output
        if tv is result or not has_code(fusion, expr) or among(tv, factors_made):
            continue
        sources = [read.tensor for read in storage_reads(fusion, expr)]
        after = [t for t in sources if among(t, finals) or any(t is r.output for r in reductions)]
        if isinstance(expr, Reduction) and not after and len(sources) == 1 and (sources[0] is result or among(sources[0], epilogue)):
            reductions.append(expr)
        elif not isinstance(expr, Pointwise | View | FirstValid):
            raise refuse(fusion, "matmul", f"{tv.name} is not computed element by element", "leave it to a fusion of its own")
        elif not after:
            epilogue.append(tv)
        else:
            whole = next((t for t in sources if t is result or among(t, epilogue)), None)
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


def _places(fusion: Fusion, result: TensorView, epilogue: tuple[TensorView, ...]) -> dict[TensorView, dict[int, int]]:
    """For each tensor of the epilogue, inputs included: which axis of the result's iteration space each of its logical axes is, as far as known.

    From the result to what reads it, then from readers back to the rest of what they read: a bias gets its place from the sum that it is in.
    """
    found = {result: {d: d if d < _reduced(result) else d + 1 for d in range(result.ndim)}}
    for tv, read in _reads(fusion, epilogue):
        if read.tensor not in found:
            continue
        for axis, e in enumerate(read.index):
            position = iteration_position(e)
            if position is None:
                raise refuse(fusion, "matmul", f"{tv.name} reads {read.tensor.name} at {e}", "an epilogue reads each element of the product in its place")
            found.setdefault(tv, {})[position] = found[read.tensor].get(axis, NOWHERE)
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


def _reduced(result: TensorView) -> int:
    return next(p for p, a in enumerate(result.root) if a.is_reduction)


def _operand(fusion: Fusion, exprs: Sequence[MathExpr], expr: Reduction, place: int, read: Read, row: int, axes: MatrixAxes, *, in_blocks: bool) -> Operand:
    tv = read.tensor
    facts = fusion.facts()
    source = _padded_source(fusion, tv)
    if not tv.is_input and source is None:
        raise refuse(fusion, "matmul", f"the factor {tv.name} is computed", "compute it in a fusion of its own, or pass it as an input")
    if any(u is not expr and u in exprs for u in storage_uses(fusion, tv)):
        raise refuse(fusion, "matmul", f"{tv.name} is read by more than the contraction", "define two inputs and pass the array twice")
    whole = at_axes(expr.output, read)
    chosen = chosen_by_batch(read, row, axes)
    start = simplify(read.index[-1] - iteration_symbol(axes.k), facts)
    steps = (axes.extent(axes.k), SPAN), (start, BULK_BYTES)
    is_block = in_blocks and bool(start.free) and axes_of_index([start]).issubset(axes.batch)
    is_block = is_block and all(is_multiple(e, size // tv.dtype.itemsize, facts) for e, size in steps)
    if not all(w or (c and source is None) for w, c in zip(whole[:-1], chosen, strict=False)) or not (whole[-1] or is_block) or read.valid is not TRUE:
        index = ", ".join(map(str, read.index))
        raise refuse(fusion, "matmul", f"{expr.output.name} reads {tv.name} at [{index}]", "pass slices and reshaped arrays as inputs")
    last = axes.k if is_block else iteration_position(read.index[-1])
    if last not in (row, axes.k):
        raise refuse(fusion, "matmul", f"the last axis of {tv.name} is a batch axis", "make rows, columns or k contiguous")
    if source is not None:
        return Operand(tv, place, True, last == axes.k, False, copy_bytes(source, facts), is_padded=True)
    return Operand(tv, place, all(whole), last == axes.k, is_bulk(tv, facts), copy_bytes(tv, facts))


def at_axes(result: TensorView, read: Read) -> list[bool]:
    """For each axis of a factor, whether the contraction reads it at an axis of its own, or as its one element."""
    positions = [iteration_position(e) for e in read.index]
    return [
        result.root[p].extent is n if p is not None else isinstance(e, Const) and n is ONE
        for e, p, n in zip(read.index, positions, read.tensor.shape, strict=True)
    ]


def chosen_by_batch(read: Read, row: int, axes: MatrixAxes) -> list[bool]:
    """For each axis of a factor, whether batch axes alone decide where it is read, or from where on along the axis ``row`` of the contraction."""
    return [axes_of_index([e]).issubset(axes.batch) or axes_of_index([e - iteration_symbol(row)]).issubset(axes.batch) for e in read.index]


def _padded_source(fusion: Fusion, tv: TensorView) -> TensorView | None:
    """The input of which threads can copy what a padded tensor takes, several elements at once: whether they exist does not depend on the last axis."""
    padded = padded_read(fusion.definition(tv))
    if padded is None or tv.is_output:
        return None
    read, last = resolve(fusion, padded), iteration_symbol(tv.ndim - 1)
    facts = fusion.facts()
    is_copied = read.tensor.is_input and copy_bytes(read.tensor, facts) > read.tensor.dtype.itemsize
    is_row = read.index[-1:] == (last,) and read.tensor.shape[-1] is tv.shape[-1]
    return read.tensor if is_copied and is_row and str(last) not in read.valid.free else None


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
