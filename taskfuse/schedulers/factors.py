"""The factors of a matrix product: which tensors they are, how their tiles are copied into Shared memory, and the prologue that is computed from there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import lcm

from taskfuse.ir import atoms
from taskfuse.ir.axes import iteration_position, iteration_symbol
from taskfuse.ir.contraction import MatrixAxes, axes_of_index
from taskfuse.ir.expr import FirstValid, MathExpr, Pointwise, Read, Reduction, padded_read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import ONE, TRUE, ZERO, Const, Expr, Facts, FloorDiv, and_, ge, is_multiple, lt, prove, simplify, substitute, sym
from taskfuse.ir.storage import reads_of, resolve, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.schedulers.block_sums import SPAN
from taskfuse.schedulers.elementwise import is_aligned
from taskfuse.schedulers.loads import copy_bytes, is_bulk
from taskfuse.schedulers.schedule import refuse
from taskfuse.target import TMA_BYTES, TMA_STEP

LDMATRIX_BYTES = 2
"""Bytes of the elements that ``ldmatrix`` brings to the registers in which ``wgmma`` takes a factor."""
MOST_PACKED = 32
"""Elements of a factor in one of the input: bits in a word."""
COMPUTED_BYTES = 1, 2, 4
"""Bytes of the elements of which a factor is computed: those that ``ldmatrix`` does not bring threads load themselves."""


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A factor.

    Attributes:
        tensor: the input that contains it: that of the other factor, too, in ``x @ x.T``. Or the padded copy of one.
        position: its position among the operands of the contraction.
        index: where an iteration of the contraction reads it.
        is_whole: it is read at axes of the contraction alone. Else batch axes decide, by any expression, which matrix of the tensor is read, or where
            its rows begin, or where k does.
        is_k_major: k, not m or n, is the last, contiguous axis of the tensor.
        is_bulk: the copy engine can read it.
        size: bytes of one access if threads copy it.
        is_padded: it is a copy of rows of an input, some of which are zeros instead: threads make it.
        prologue: functions of the tensor's elements, producers first; the contraction multiplies the last.
        packed: how many elements along k one element of the tensor has, of which these are made.
    """

    tensor: TensorView
    position: int
    index: tuple[Expr, ...]
    is_whole: bool
    is_k_major: bool
    is_bulk: bool
    size: int
    is_padded: bool = False
    prologue: tuple[TensorView, ...] = ()
    packed: int = 1


def factor(
    fusion: Fusion,
    expr: Reduction,
    others: Sequence[MathExpr],
    place: int,
    read: Read,
    row: int,
    axes: MatrixAxes,
    *,
    in_blocks: bool = False,
    is_alone: bool = False,
) -> Operand:
    """A factor of a contraction.

    Args:
        expr: the contraction.
        others: the other computed tensors.
        place: the factor's position among the operands.
        read: the element of it that an iteration reads.
        row: the axis of the contraction that the other factor lacks.
        axes: of the contraction.
        in_blocks: it multiplies blocks of k, whose number is a batch axis.
        is_alone: there is one contraction.

    Raises:
        UnsupportedError: it is computed, something else reads it, or it is read at an index that no copy serves.
    """
    if axes.summed or (axes.outer_rows and row == axes.m):
        return _in_boxes(fusion, expr, others, place, read, row, axes)
    tv = read.tensor
    facts = fusion.facts()
    source = padded_source(fusion, tv)
    if is_alone and row == axes.m and not in_blocks and (prologue := prologue_of(fusion, tv)):
        return _through_registers(fusion, expr, others, place, read, prologue, axes)
    if not tv.is_input and source is None:
        raise refuse(fusion, "matmul", f"the factor {tv.name} is computed", "compute it in a separate fusion, or pass it as an input")
    if any(u in others for u in storage_uses(fusion, tv)):
        raise refuse(fusion, "matmul", f"{tv.name} is read by more than the contraction", "define two inputs and pass the array twice")
    whole = at_axes(expr.output, read)
    chosen = chosen_by_batch(read, row, axes)
    start = simplify(read.index[-1] - iteration_symbol(axes.k), facts)
    steps = (axes.extent(axes.k), SPAN), (start, TMA_BYTES)
    is_block = in_blocks and bool(start.free) and axes_of_index([start]).issubset(axes.batch)
    is_block = is_block and all(is_multiple(e, size // tv.dtype.itemsize, facts) for e, size in steps)
    if not all(w or (c and source is None) for w, c in zip(whole[:-1], chosen, strict=False)) or not (whole[-1] or is_block) or read.valid is not TRUE:
        index = ", ".join(map(str, read.index))
        raise refuse(fusion, "matmul", f"{expr.output.name} reads {tv.name} at [{index}]", "pass slices and reshaped arrays as inputs")
    last = axes.k if is_block else iteration_position(read.index[-1])
    if last not in (row, axes.k):
        raise refuse(fusion, "matmul", f"the last axis of {tv.name} is a batch axis", "make rows, columns or k contiguous")
    if source is not None:
        return Operand(tv, place, read.index, True, last == axes.k, _is_cut_off(fusion, tv, facts), copy_bytes(source, facts), is_padded=True)
    return Operand(tv, place, read.index, all(whole) and is_tile(read), last == axes.k, is_bulk(tv, facts), copy_bytes(tv, facts))


def is_tile(read: Read) -> bool:
    """True if the last axes of a tensor are those that tiles are of: axes of one element, at a constant index, are in front of all others."""
    constant = [isinstance(e, Const) for e in read.index]
    return constant == sorted(constant, reverse=True)


def is_windowed(fusion: Fusion, result: TensorView, read: Read, rows: Collection[int]) -> bool:
    """True if windows are a factor with the rows: it is read, in some dimension, at each second element of a row, or at a sum of it and a reduced axis."""
    summed = {p for p, axis in enumerate(result.root) if axis.is_reduction}
    for e in behind_padding(fusion, read).index:
        mine = axes_of_index([e]).intersection(rows)
        if mine and (not summed.isdisjoint(axes_of_index([e])) or any(step_along(e, p, fusion.facts()) != 1 for p in mine)):
            return True
    return False


def behind_padding(fusion: Fusion, read: Read) -> Read:
    """A read of a zero-padded copy as a read of the copied tensor; any other read unchanged."""
    padded = padded_read(fusion.definition(read.tensor))
    if padded is None:
        return read
    inner, point = resolve(fusion, padded), {str(iteration_symbol(k)): e for k, e in enumerate(read.index)}
    return Read(inner.tensor, tuple(substitute(e, point) for e in inner.index), and_(read.valid, substitute(inner.valid, point)))


def step_along(index: Expr, position: int, facts: Facts) -> int | None:
    """Elements from one index to that of the next element of an axis; ``None`` if they are not always as many."""
    own = iteration_symbol(position)
    step = simplify(substitute(index, {str(own): own + 1}) - index, facts)
    return step.value if isinstance(step, Const) else None


def _in_boxes(fusion: Fusion, expr: Reduction, others: Sequence[MathExpr], place: int, read: Read, row: int, axes: MatrixAxes) -> Operand:
    """A factor of a contraction over several axes, or of which a tile has rows along several.

    A tile of it, for one step of the summed axes, is a box of an input: neighbours along an axis of the rows are neighbours of it, or each second one, in a
    dimension of their own. What else stands in the indices says where the box begins, which may be in the padding.
    """
    facts = fusion.facts()
    inside = behind_padding(fusion, read)
    tv, source = read.tensor, inside.tensor
    is_padded = source is not tv
    if not source.is_input or (is_padded and tv.is_output):
        raise refuse(fusion, "matmul", f"the factor {tv.name} is computed", "compute it in a separate fusion, or pass it as an input")
    if any(u in others for u in storage_uses(fusion, tv) if u.output is not tv):
        raise refuse(fusion, "matmul", f"{tv.name} is read by more than the contraction", "define two inputs and pass the array twice")
    k, own = iteration_symbol(axes.k), axes.rows if row == axes.m else (row,)
    for p, a in enumerate(expr.output.root):
        facts = facts.with_range(str(iteration_symbol(p)), 0, a.extent - 1)
    start = simplify(inside.index[-1] - k, facts)
    size = copy_bytes(source, facts)
    is_whole = start is ZERO and axes.extent(axes.k) is source.shape[-1]
    is_part = axes_of_index([start]).issubset(axes.batch) and all(
        is_multiple(e, n // tv.dtype.itemsize, facts) for e, n in ((start, TMA_BYTES), (axes.extent(axes.k), SPAN))
    )
    if not (is_whole or is_part) or str(k) in inside.valid.free or any(str(k) in e.free for e in inside.index[:-1]):
        index = ", ".join(map(str, inside.index))
        raise refuse(fusion, "matmul", f"{expr.output.name} reads {source.name} at [{index}]", "the last of the summed axes is contiguous in both factors")
    if size == tv.dtype.itemsize:
        raise refuse(fusion, "matmul", f"rows of {source!r} are copied one element at a time", f"make them multiples of {atoms.CP_ASYNC.min_bytes} bytes")
    is_box = all(_is_dimension_of(inside.index, p, facts) for p in own)
    is_own = all(at_axes(expr.output, read)) and is_tile(read)
    return Operand(tv, place, read.index, is_own, True, is_box and is_bulk(source, facts), size, is_padded=is_padded)


def _is_dimension_of(index: Sequence[Expr], position: int, facts: Facts) -> bool:
    """True if the copy engine can step along an axis: one dimension of a tensor moves by a few elements, and moves along no other axis of the rows."""
    steps = [step for e in index if (step := step_along(e, position, facts)) != 0]
    return len(steps) == 1 and steps[0] is not None and 1 <= steps[0] <= TMA_STEP


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


def padded_source(fusion: Fusion, tv: TensorView, *, whole: bool = True) -> TensorView | None:
    """The input of a padded tensor that threads can copy in vectors: whether elements exist does not depend on the last axis.

    Args:
        whole: a row of the tensor is a row of the input; otherwise it may be a part of one, such as the channels of a group.
    """
    padded = padded_read(fusion.definition(tv))
    if padded is None or tv.is_output:
        return None
    read, last = resolve(fusion, padded), iteration_symbol(tv.ndim - 1)
    facts = fusion.facts()
    is_copied = read.tensor.is_input and copy_bytes(read.tensor, facts) > read.tensor.dtype.itemsize
    is_row = read.index[-1:] == (last,) and read.tensor.shape[-1] is tv.shape[-1]
    is_part = not whole and str(last) not in simplify(read.index[-1] - last, facts).free
    return read.tensor if is_copied and (is_row or is_part) and str(last) not in read.valid.free else None


def _is_cut_off(fusion: Fusion, tv: TensorView, facts: Facts) -> bool:
    """True if the copy engine fills a padded tensor: what does not exist lies past the end of the input."""
    padded = padded_read(fusion.definition(tv))
    assert padded is not None
    read = resolve(fusion, padded)
    for k, a in enumerate(tv.root):
        facts = facts.with_range(str(iteration_symbol(k)), 0, a.extent - 1)
    inside = [lt(e, n) for e, n in zip(read.index, read.tensor.shape, strict=True)]
    starts = all(prove(ge(e, 0), facts) for e in read.index)
    return starts and is_bulk(read.tensor, facts) and prove(read.valid, facts.with_assumption(and_(*inside)))


def prologue_of(fusion: Fusion, tv: TensorView) -> tuple[TensorView, ...]:
    """The elementwise functions that make a factor of an input, producers first; none if the factor is not made so.

    They read one input, and each other, at their own places, or an element of it that several neighbors along the last axis are packed in; and other inputs
    anywhere, such as a scale of a group of elements.
    """
    made = made_of_inputs(fusion, tv)
    reads = [(r, by) for by in made for r in reads_of(fusion, by)]
    if not made or any(not (_is_computed(r) if r.tensor.is_input else is_aligned(r, by)) for r, by in reads):
        return ()
    uses = {by: storage_uses(fusion, by) for by in made}
    if len(uses[made[0]]) > 1 or any(not among(u.output, made) for by in made[1:] for u in uses[by]) or _source(fusion, made) is None:
        return ()
    return tuple(e.output for e in fusion.exprs() if among(e.output, made))


def made_of_inputs(fusion: Fusion, tv: TensorView) -> list[TensorView]:
    """A tensor and those of which it is computed, it first, if elementwise functions compute it of inputs; none if something else does, or it is stored."""
    made: list[TensorView] = []
    pending = [tv]
    while pending:
        tv = pending.pop()
        if tv.is_input or among(tv, made):
            continue
        reads = reads_of(fusion, tv)
        if not isinstance(fusion.definition(tv), Pointwise | FirstValid) or tv.is_output or any(r.valid is not TRUE and r.tensor.is_input for r in reads):
            return []
        made.append(tv)
        pending += [r.tensor for r in reads]
    return made


def whole_span(size: int, packed: int, multiplied: int) -> int:
    """Elements of k in whole rows of the swizzle of both factors.

    Args:
        size: bytes of an element of which one is computed, which has ``packed`` of its elements.
        multiplied: bytes of an element of the other.
    """
    return lcm(SPAN // size * packed, SPAN // multiplied)


def _is_computed(read: Read) -> bool:
    """Whether the places of an operand follow from those of its reader alone."""
    return all(iteration_position(sym(name)) is not None for e in read.index for name in e.free)


def _packing(fusion: Fusion, read: Read, reader: TensorView) -> int | None:
    """How many neighbors along the last axis read one element, if each otherwise reads that at its own place."""
    if is_aligned(read, reader):
        return 1
    match read.index:
        case (*rows, FloorDiv(a=whole, b=Const(count))) if len(read.index) == len(reader.root) and iteration_position(whole) == len(rows):
            is_row = all(iteration_position(e) == k and n is a.extent for k, (e, n, a) in enumerate(zip(rows, read.tensor.shape, reader.root, strict=False)))
            is_whole = simplify(read.tensor.shape[-1] * count - reader.root[-1].extent, fusion.facts()) is ZERO
            return count if is_row and is_whole else None
        case _:
            return None


def _source(fusion: Fusion, made: Sequence[TensorView]) -> tuple[TensorView, int] | None:
    """The input of which a factor is made, and how many of the factor's elements one of its elements has; ``None`` if several have as many elements."""
    found: dict[TensorView, int] = {}
    for tv in made:
        for read in reads_of(fusion, tv):
            if read.tensor.is_input and (count := _packing(fusion, read, tv)) is not None:
                found[read.tensor] = count
    least = min(found.values(), default=0)
    sources = [tv for tv, count in found.items() if count == least]
    return (sources[0], least) if len(sources) == 1 and least <= MOST_PACKED else None


def _through_registers(
    fusion: Fusion, expr: Reduction, others: Sequence[MathExpr], place: int, read: Read, prologue: tuple[TensorView, ...], axes: MatrixAxes
) -> Operand:
    """The factor with the rows, which is computed on its way from Shared memory through registers."""
    of = _source(fusion, prologue)
    assert of is not None
    (source, packed), last, facts = of, prologue[-1], fusion.facts()
    if any(not among(u.output, prologue) and u in others for u in storage_uses(fusion, source)):
        raise refuse(fusion, "matmul", f"{source.name} is read by more than the contraction", "define two inputs and pass the array twice")
    is_row_major = iteration_position(read.index[-1]) == axes.k and read.valid is TRUE and all(at_axes(expr.output, read))
    size = source.dtype.itemsize
    if not is_row_major or size not in COMPUTED_BYTES or last.dtype.itemsize != LDMATRIX_BYTES or not is_bulk(source, facts):
        reason = f"the factor {last.name} is computed, and {source!r} is not rows of k, of at most 32 bits, that bulk copies bring"
        raise refuse(fusion, "matmul", reason, "compute it in a separate fusion, or pass it as an input")
    span = whole_span(size, packed, last.dtype.itemsize)
    if not is_multiple(axes.extent(axes.k), span, facts):
        reason = f"the factor {last.name} is computed, and of zeros behind the end of k = {axes.extent(axes.k)}, too"
        raise refuse(fusion, "matmul", reason, f"make k a multiple of {span}")
    return Operand(source, place, read.index, True, True, True, copy_bytes(source, facts), prologue=prologue, packed=packed)
