"""The contraction of a fusion, found by its structure: axes, operands, and the epilogue behind it.

A reduction over one axis k of a body of two reads is a matrix product if the axes of its iteration space fall into those that only the one
read uses, those that only the other uses, and those that both or neither use: rows m, columns n, and batch axes. Its combining function and
body are compared with what the tensor-core atom computes; which op made it is never asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.errors import UnsupportedError
from taskfuse.ir.atoms import SUM_OF_PRODUCTS
from taskfuse.ir.axes import iteration_position
from taskfuse.ir.expr import Pointwise, Read, Reduction, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Const, Expr, is_multiple
from taskfuse.ir.storage import has_code, storage_operands, storage_reads, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.schedulers.schedule import has_schedule

TMA_BYTES = 16
"""Strides of a tensor that the copy engine reads or writes, in bytes, are multiples of this."""
MAX_RANK = 5
NOWHERE, SEVERAL = -1, -2
"""The place of an axis that is none of the result's, and of one that is several: its tensor is read here so and there otherwise."""
STAGED_ITEMSIZE = 2
"""Bytes of the elements that ``stmatrix`` stores."""


def unsupported(fusion: Fusion, reason: str, help: str | None = None) -> UnsupportedError:
    """The error of a fusion that the scheduler cannot take."""
    return UnsupportedError(what=f"a matmul schedule of fusion '{fusion.name}'", reason=reason, help=help, location=caller())


@dataclass(frozen=True, slots=True)
class Operand:
    """A factor.

    Attributes:
        tensor: the input that holds it.
        is_k_major: k is the last, contiguous axis of the tensor; else m or n is.
    """

    tensor: TensorView
    is_k_major: bool


@dataclass(frozen=True, slots=True)
class Output:
    """An output of the fusion.

    Attributes:
        tensor: it.
        is_bulk: the copy engine can write it from tiles that ``stmatrix`` made: 16-bit elements, n contiguous, strides of multiples of 16 bytes.
        is_paired: two neighbors along n are one access: n contiguous, and even.
    """

    tensor: TensorView
    is_bulk: bool
    is_paired: bool


@dataclass(frozen=True, slots=True)
class Side:
    """An input that the epilogue reads.

    Attributes:
        tensor: it.
        is_paired: two neighbors along n are one access.
    """

    tensor: TensorView
    is_paired: bool


@dataclass(frozen=True, slots=True)
class Product:
    """A fusion with one contraction.

    Attributes:
        result: the tensor that the contraction makes.
        batch, m, n, k: positions in the iteration space of ``result``.
        a, b: the factor with rows m and the one with columns n.
        epilogue: what computes behind the contraction, elementwise; the outputs among it, but for ``result``.
        outputs: in the fusion's order.
        sides: the inputs of the epilogue of which a thread reads what belongs to its element, and nothing else.
    """

    result: TensorView
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    epilogue: tuple[TensorView, ...]
    outputs: tuple[Output, ...]
    sides: tuple[Side, ...]

    def extent(self, position: int) -> Expr:
        """The extent of an axis of the iteration space."""
        return self.result.root[position].extent


def find(fusion: Fusion) -> Product:
    """The contraction of ``fusion`` and its surroundings.

    Raises:
        UnsupportedError: there is none or several, an operand is computed or its strides are no multiples of 16 bytes, the epilogue is not
            elementwise, or the fusion has a schedule already.
    """
    expr = _contraction(fusion)
    result = expr.output
    epilogue = _epilogue(fusion, result)
    places = _places(fusion, result, epilogue)
    reads = [o for o in storage_operands(fusion, expr) if isinstance(o, Read)]
    if len(reads) != 2:
        raise unsupported(fusion, f"{result.name} multiplies a tensor by a number", "scale the product instead")
    used = [{p for e in r.index if (p := iteration_position(e)) is not None} for r in reads]
    (k,) = (p for p, a in enumerate(result.root) if a.is_reduction)
    rows, columns = used[0] - used[1], used[1] - used[0]
    if not rows or not columns or k not in used[0] & used[1]:
        raise unsupported(fusion, f"{result.name} has no rows or no columns", "each factor needs an axis that the other lacks: reshape a vector to [1, K]")
    last = places[fusion.outputs[0]].get(fusion.outputs[0].ndim - 1)
    if last in rows or (last not in columns and max(rows) > max(columns)):
        rows, columns, reads = columns, rows, reads[::-1]
    m, n = max(rows), last if last in columns else max(columns)
    a, b = _operand(fusion, expr, reads[0], m, k), _operand(fusion, expr, reads[1], n, k)
    if a.tensor is b.tensor:
        raise unsupported(fusion, f"both factors are {a.tensor.name}", "define two inputs and pass the array twice")
    if a.tensor.dtype is not b.tensor.dtype:
        raise unsupported(fusion, f"{a.tensor!r} and {b.tensor!r} have two dtypes", "convert one of them before")
    outputs = tuple(_output(fusion, tv, places[tv], result, n) for tv in fusion.outputs)
    batch = tuple(p for p in range(len(result.root)) if p not in (m, n, k))
    return Product(result, batch, m, n, k, a, b, epilogue, outputs, _sides(fusion, epilogue, places, n))


def _contraction(fusion: Fusion) -> Reduction:
    if has_schedule(fusion):
        raise unsupported(fusion, "it has a schedule already", "call the scheduler first")
    found = [e for e in fusion.exprs() if isinstance(e, Reduction)]
    if len(found) != 1:
        raise unsupported(fusion, f"it takes one contraction, and there are {len(found)} reductions", "give each contraction a fusion of its own")
    (expr,) = found
    if (expr.combine.name, expr.body.name) != (SUM_OF_PRODUCTS.combine, SUM_OF_PRODUCTS.body) or sum(a.is_reduction for a in expr.output.root) != 1:
        what = f"{expr.output.name} is a reduction by {expr.combine.name} of {expr.body.name}, no sum of products over one axis"
        raise unsupported(fusion, what, "write the product as tf.matmul(a, b)")
    return expr


def _epilogue(fusion: Fusion, result: TensorView) -> tuple[TensorView, ...]:
    """The other tensors that are computed, producers first."""
    found: list[TensorView] = []
    for expr in fusion.exprs():
        if expr.output is result or not has_code(fusion, expr):
            continue
        if not isinstance(expr, Pointwise | View):
            raise unsupported(fusion, f"{expr.output.name} is not computed element by element", "leave it to a fusion of its own")
        found.append(expr.output)
    for tv in fusion.outputs:
        if tv.uses:
            raise unsupported(fusion, f"the output {tv.name} is read by the epilogue, too", f"make its copy the output: tf.copy({tv.name})")
    return tuple(found)


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
                raise unsupported(fusion, f"{tv.name} reads {read.tensor.name} at {e}", "an epilogue reads each element of the product in its place")
            found.setdefault(tv, {})[position] = found[read.tensor][axis]
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
            raise unsupported(fusion, f"{tv.name} is read in two ways, such as at its place and transposed", "compute it twice")
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
                raise unsupported(
                    fusion,
                    f"{source.name} is read in two ways, such as at its place and transposed, and {tv.name} lacks an axis that differs in them",
                    f"define two inputs and pass the array of {source.name} twice",
                )


def _reads(fusion: Fusion, epilogue: tuple[TensorView, ...]) -> list[tuple[TensorView, Read]]:
    """What the epilogue reads, producers first."""
    found: list[tuple[TensorView, Read]] = []
    for tv in epilogue:
        expr = fusion.definition(tv)
        assert expr is not None
        found += [(tv, read) for read in storage_reads(fusion, expr)]
    return found


def _reduced(result: TensorView) -> int:
    return next(p for p, a in enumerate(result.root) if a.is_reduction)


def _operand(fusion: Fusion, expr: Reduction, read: Read, row: int, k: int) -> Operand:
    tv = read.tensor
    if not tv.is_input:
        raise unsupported(fusion, f"the factor {tv.name} is computed", "compute it in a fusion of its own, or pass it as an input")
    if len(storage_uses(fusion, tv)) > 1:
        raise unsupported(fusion, f"{tv.name} is read by more than the contraction", "define two inputs and pass the array twice")
    if any(iteration_position(e) is None and not isinstance(e, Const) for e in read.index):
        raise unsupported(fusion, f"{expr.output.name} reads {tv.name} at [{', '.join(map(str, read.index))}]", "pass slices and reshaped arrays as inputs")
    last = iteration_position(read.index[-1])
    if last not in (row, k):
        raise unsupported(fusion, f"the last axis of {tv.name} is a batch axis", "make rows, columns or k contiguous")
    if not is_multiple(tv.shape[-1] * tv.dtype.itemsize, TMA_BYTES, fusion.facts()):
        unit = TMA_BYTES // tv.dtype.itemsize
        raise unsupported(
            fusion,
            f"rows of {tv!r} are not provably multiples of {TMA_BYTES} bytes, which the copy engine needs",
            f"declare the extent: tf.dim(..., multiple_of={unit}); pad it to that if need be",
        )
    return Operand(tv, last == k)


def _output(fusion: Fusion, tv: TensorView, places: dict[int, int], result: TensorView, n: int) -> Output:
    if tv.ndim != result.ndim or len(places) != result.ndim:
        raise unsupported(fusion, f"the output {tv.name} does not have every axis of the product", "leave it to a fusion of its own")
    row_major = places[tv.ndim - 1] == n
    facts = fusion.facts()
    bulk = row_major and tv.dtype.itemsize == STAGED_ITEMSIZE and tv.ndim <= MAX_RANK and is_multiple(tv.shape[-1] * tv.dtype.itemsize, TMA_BYTES, facts)
    return Output(tv, bulk, row_major and is_multiple(tv.shape[-1], 2, facts))


def _sides(fusion: Fusion, epilogue: tuple[TensorView, ...], places: dict[TensorView, dict[int, int]], n: int) -> tuple[Side, ...]:
    inputs = dict.fromkeys(read.tensor for _, read in _reads(fusion, epilogue) if read.tensor.is_input)
    facts = fusion.facts()
    found = {tv: places.get(tv, {}) for tv in inputs}
    return tuple(Side(tv, at.get(tv.ndim - 1) == n and is_multiple(tv.shape[-1], 2, facts)) for tv, at in found.items() if SEVERAL not in at.values())
