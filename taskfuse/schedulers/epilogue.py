"""The epilogue of a contraction: the tensors computed from its elements, their axes, and their reads and stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskfuse.ir.axes import iteration_position
from taskfuse.ir.contraction import MatrixAxes
from taskfuse.ir.expr import FirstValid, MathExpr, Pointwise, Read, Reduction, View, reads
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const, const, is_multiple
from taskfuse.ir.storage import has_code, producers, reads_of, resolve, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.schedulers.factors import padded_source, prologue_of
from taskfuse.schedulers.loads import copy_bytes, is_bulk
from taskfuse.schedulers.schedule import refuse
from taskfuse.target import TMA_BYTES

NOWHERE, SEVERAL = -1, -2
"""The place of an axis that the result lacks, and of one with several places: the tensor is read in several ways."""
STAGED_ITEMSIZE = 2
"""Bytes of the elements that ``stmatrix`` stores."""


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """An output of the fusion, or the part that one is made of.

    Attributes:
        tensor: the output.
        is_staged: ``stmatrix`` makes tiles of it in Shared memory: 16-bit elements, n contiguous, and rows of multiples of 16 bytes or of an odd number of
            elements. Others are as fast from registers, two elements at a time.
        is_bulk: the copy engine stores these; else threads do, neighbors along a row. It stores whole tiles, and the part that an output is made of may lack
            some of their rows.
        is_paired: two neighbors along n are one access: n contiguous, and even.
        chunk: elements that a thread stores together of a staged row.
    """

    tensor: TensorView
    is_staged: bool
    is_bulk: bool
    is_paired: bool
    chunk: int = TMA_BYTES // STAGED_ITEMSIZE


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


def logical_places(result: TensorView) -> tuple[int | None, ...]:
    """For each axis of the iteration space of a result, its place among the result's axes."""
    kept = iter(range(result.ndim))
    return tuple(None if a.is_reduction else next(kept) for a in result.root)


def behind(
    fusion: Fusion, exprs: Sequence[MathExpr], products: Sequence[Reduction]
) -> tuple[tuple[TensorView, ...], tuple[Reduction, ...], tuple[TensorView, ...]]:
    """The other computed tensors, producers first: those of the epilogue, reductions of them, and functions of these.

    Args:
        products: the contractions that the epilogue reads.
    """
    multiplied = [r.tensor for e in products for r in storage_reads(fusion, e)]
    factors_made = [tv for tv in multiplied if padded_source(fusion, tv, whole=False) is not None]
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
            raise refuse(fusion, "matmul", f"{tv.name} is not computed element by element", "move it to a separate fusion")
        elif not after:
            epilogue.append(tv)
        else:
            whole = next((t for t in sources if among(t, [*results, *epilogue])), None)
            if whole is not None:
                reason = f"{tv.name} reads {whole.name} and {after[0].name}, a reduction of all tiles, which are complete when their registers are gone"
                raise refuse(fusion, "matmul", reason, f"move {tv.name} to a separate fusion")
            finals.append(tv)
    used = {t for tv in epilogue for t in _inputs_of(fusion, tv)}
    twice = next((t for tv in finals for t in _inputs_of(fusion, tv) if t in used), None)
    if twice is not None:
        raise refuse(fusion, "matmul", f"{twice.name} is read by the epilogue and after a reduction", "define two inputs and pass the array twice")
    return tuple(epilogue), tuple(reductions), tuple(finals)


def _inputs_of(fusion: Fusion, tv: TensorView) -> list[TensorView]:
    return [p for p in producers(fusion, tv) if p.is_input]


def reduced_by(fusion: Fusion, expr: Reduction, places: dict[TensorView, dict[int, int]], result: TensorView, tile: tuple[int, int]) -> Reduced:
    """The axes of a reduction of the epilogue, in terms of the contraction's."""
    (read,) = storage_reads(fusion, expr)
    found: dict[int, int] = {}
    for axis, e in enumerate(read.index):
        position = iteration_position(e)
        if position is not None and axis in places.get(read.tensor, {}):
            found[position] = places[read.tensor][axis]
    tv = expr.output
    if len(found) != result.ndim or sorted(found) != list(range(len(tv.root))) or min(found.values()) < 0:
        raise refuse(fusion, "matmul", f"{tv.name} reduces {read.tensor.name}, which does not have every axis of the product", "move it to a separate fusion")
    over = frozenset(found[position] for position, a in enumerate(tv.root) if a.is_reduction)
    if not over & set(tile):
        raise refuse(fusion, "matmul", f"{tv.name} reduces batch axes, and neither rows nor columns", "move it to a separate fusion")
    return Reduced(tv, tuple(found[position] for position in range(len(tv.root))), over)


def check_finals(fusion: Fusion, finals: tuple[TensorView, ...], reductions: tuple[Reduced, ...]) -> None:
    """Functions of reductions have their axes, in their order, and share their loops."""
    kept = {r.tensor: r.kept for r in reductions}
    for tv in finals:
        for read in reads_of(fusion, tv):
            if read.tensor.is_input:
                continue
            mine = kept[read.tensor]
            wide = [position for position, a in enumerate(tv.root) if a.extent is not const(1)]  # a kept dimension of 1 changes nothing
            read_at = [iteration_position(e) for e, extent in zip(read.index, read.tensor.shape, strict=True) if extent is not const(1)]
            if read_at != wide or kept.setdefault(tv, mine) != mine:
                raise refuse(fusion, "matmul", f"{tv.name} reads {read.tensor.name} along axes other than its own", "move it to a separate fusion")


def places_of(fusion: Fusion, results: Sequence[TensorView], epilogue: tuple[TensorView, ...]) -> dict[TensorView, dict[int, int]]:
    """For each tensor of the epilogue, inputs included: which axis of the result's iteration space each of its logical axes is, as far as known.

    From the result to what reads it, then from readers back to the rest of what they read: a bias gets its place from the sum that it is in.
    """
    first = {d: p for p, d in enumerate(logical_places(results[0])) if d is not None}
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
    _check_exchanged(fusion, results, epilogue, found)
    return found


def _check_exchanged(fusion: Fusion, results: Sequence[TensorView], epilogue: tuple[TensorView, ...], places: dict[TensorView, dict[int, int]]) -> None:
    """Loops over axes that an input exchanges have one key: a tensor that has only some of these axes takes the first loops, which must be its own.

    An epilogue exchanges axes where it reads an input in two ways, products where one takes as rows what another takes as columns.
    """
    seen: dict[TensorView, dict[int, set[int]]] = {}
    for tv, read in _reads(fusion, (*results, *epilogue)):
        axis_at = logical_places(tv)
        for axis, e in enumerate(read.index):
            position = iteration_position(e)
            own = None if position is None else axis_at[position]
            place = NOWHERE if own is None else places.get(tv, {}).get(own, NOWHERE)
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


def output_of(fusion: Fusion, tv: TensorView, places: dict[int, int], result: TensorView, n: int) -> Output:
    """How an output is stored, whose axes are at ``places`` of the product; ``n``: the place of its columns."""
    if tv.ndim != result.ndim or len(places) != result.ndim:
        raise refuse(fusion, "matmul", f"the output {tv.name} does not have every axis of the product", "move it to a separate fusion")
    row_major = places[tv.ndim - 1] == n
    facts = fusion.facts()
    is_paired = row_major and is_multiple(tv.shape[-1], 2, facts)
    size = copy_bytes(tv, facts)
    staged = row_major and tv.dtype.itemsize == STAGED_ITEMSIZE and (size == TMA_BYTES or not is_paired)
    return Output(tv, staged, staged and tv.is_output and is_bulk(tv, facts), is_paired, size // STAGED_ITEMSIZE)


def sides_of(fusion: Fusion, epilogue: tuple[TensorView, ...], places: dict[TensorView, dict[int, int]], axes: MatrixAxes) -> tuple[EpilogueInput, ...]:
    """The inputs that the epilogue reads at its own points."""
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
