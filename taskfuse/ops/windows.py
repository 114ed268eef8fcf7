"""Reductions over windows: pooling of the last dimensions.

A window is a map: the element o of the result and the place k in its window name the element ``start(o) + k * step`` of the input. So a pool is a reduction
over the axes of the window, whose reads fuse with what computes the input, and padding is a condition of the map. Windows of adaptive pools have different
lengths: places past the end of a window are padding, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from taskfuse.dtypes import int64
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import IndexValue, Literal, Read
from taskfuse.ir.scalar import TRUE, ZERO, Const, Expr, and_, le, lt, maximum, minimum, prove, select, simplify, wrap
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.argreduce import equal_to, first_position
from taskfuse.ops.build import broadcast_read, cast_tensor, check_tensor, define_pointwise, described, dtype_error, facts_help, listed, shape_error, typed
from taskfuse.ops.elementwise import add, floor_divide, mul, remainder
from taskfuse.ops.order_keys import KeyLayout, index_values, rank_width
from taskfuse.ops.rearrange import count
from taskfuse.ops.reduce import reduce_axes
from taskfuse.ops.registry import OpKind, floating_only, op, same
from taskfuse.ops.select import define_select
from taskfuse.ops.views import view

__all__ = ["adaptive_avg_pool", "adaptive_max_pool", "adaptive_max_pool_with_indices", "avg_pool", "max_pool", "max_pool_with_indices"]

Numbers = int | Sequence[int]


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows along one dimension.

    Attributes:
        size: extent of the input.
        number: how many windows there are.
        length: places in the longest one.
        step: elements from one place to the next.
        start: the first element of a window; it may be padding.
        end: what follows its last element; it may lie past the end of the input.
    """

    size: Expr
    number: Expr
    length: Expr
    step: int
    start: Callable[[Expr], Expr]
    end: Callable[[Expr], Expr]


def _fixed(op: str, x: TensorView, dims: int, kernel: Numbers, stride: Numbers | None, padding: Numbers, dilation: Numbers, ceil_mode: bool) -> list[_Windows]:
    """Windows of one length, one every ``stride``, as in torch."""
    names = ("kernel", "stride", "padding", "dilation")
    rows = [
        numbers(op, name, given, dims, 0 if name == "padding" else 1)
        for name, given in zip(names, (kernel, kernel if stride is None else stride, padding, dilation), strict=True)
    ]
    found: list[_Windows] = []
    for size, places, by, around, step in zip(x.shape[x.ndim - dims :], *rows, strict=True):
        if 2 * around > places:
            raise shape_error(op, f"{around} elements of padding are more than half of a window of {places}", "pad with tf.pad first")
        room = size + 2 * around - step * (places - 1) - 1
        if not prove(le(0, room), x.fusion.facts()):
            raise shape_error(op, f"a window of {places} does not provably fit into {described(x)}", facts_help(x))
        number = (room.ceildiv(by) if ceil_mode else room // by) + 1
        if ceil_mode:  # the last window begins in the input, or in the padding before it
            number = number - select(lt((number - 1) * by, size + around), 0, 1)

        def start(o: Expr, by: int = by, around: int = around) -> Expr:
            return o * by - around

        def end(o: Expr, by: int = by, around: int = around, reach: int = step * (places - 1) + 1) -> Expr:
            return o * by - around + reach

        found.append(_Windows(size, simplify(number, x.fusion.facts()), wrap(places), step, start, end))
    return found


def _adaptive(op: str, x: TensorView, output: Sequence[int | None]) -> list[_Windows]:
    """As many windows as are asked for, as equal as may be: [floor(o n / m), ceil((o + 1) n / m)) of n elements for m windows, as in torch."""
    wanted = listed(op, output, "numbers of windows")
    if not 1 <= len(wanted) <= x.ndim:
        raise shape_error(op, f"{len(wanted)} numbers of windows for {described(x)}", "give one for each of the last dimensions")
    found: list[_Windows] = []
    for size, given in zip(x.shape[x.ndim - len(wanted) :], wanted, strict=True):
        number = size if given is None else wrap(count(op, "number of windows", given, 1))
        facts = x.fusion.facts()
        rest = simplify(size % number, facts)
        length = simplify(size // number, facts)
        if rest is not ZERO and isinstance(size, Const) and isinstance(number, Const):
            n, m = size.value, number.value
            length = wrap(max(-(-(o + 1) * n // m) - o * n // m for o in range(m)))
        elif rest is not ZERO:
            length = length + 2

        def start(o: Expr, size: Expr = size, number: Expr = number, even: Expr | None = length if rest is ZERO else None) -> Expr:
            return o * size // number if even is None else o * even

        def end(o: Expr, size: Expr = size, number: Expr = number, even: Expr | None = length if rest is ZERO else None) -> Expr:
            return ((o + 1) * size).ceildiv(number) if even is None else (o + 1) * even

        found.append(_Windows(size, number, length, 1, start, end))
    return found


def numbers(op: str, what: str, given: Numbers, dims: int, least: int) -> list[int]:
    """A number for each of the last dimensions; one number is for all. Raises :class:`ShapeError`."""
    row = [count(op, what, value, least) for value in listed(op, given, "numbers")]
    row = row * dims if len(row) == 1 else row
    if len(row) != dims:
        raise shape_error(op, f"{len(row)} numbers of {what} for {dims} dimensions", "give one, or one for each of the last dimensions")
    return row


def _dims(op: str, x: TensorView, kernel: Numbers) -> int:
    dims = len(listed(op, kernel, "numbers"))
    if not 1 <= dims <= x.ndim:
        raise shape_error(op, f"windows of {dims} dimensions in {described(x)}", "give the length of a window for each of the last dimensions")
    return dims


@dataclass(frozen=True, slots=True, eq=False)
class _Elements:
    """The elements of all windows, ``[..., windows, places]``.

    Attributes:
        values: padding is what does not change the result.
        index: per pooled dimension, the index in the input.
        valid: true where there is such an element.
    """

    values: TensorView
    index: list[Expr]
    valid: Expr


def _elements(x: TensorView, windows: Sequence[_Windows], fill: int | float | bool) -> _Elements:
    lead = x.ndim - len(windows)
    shape = (*x.shape[:lead], *(w.number for w in windows), *(w.length for w in windows))
    facts = x.fusion.facts().with_ranges({str(iteration_symbol(d)): (0, e - 1) for d, e in enumerate(shape)})
    index: list[Expr] = []
    inside: list[Expr] = []
    for d, w in enumerate(windows):
        o, k = iteration_symbol(lead + d), iteration_symbol(x.ndim + d)
        at = w.start(o) + k * w.step
        index.append(at)
        inside += [c for c in (le(0, at), lt(at, w.end(o)), lt(at, w.size)) if not prove(c, facts)]
    valid = and_(*inside)
    whole = (*map(iteration_symbol, range(lead)), *index)
    if valid is TRUE:
        return _Elements(view(x, "windows", shape, whole), index, valid)
    return _Elements(define_select(x.fusion, "windows", shape, (Read(x, whole, valid), Literal(fill, x.dtype)), x.dtype), index, valid)


def _places(x: TensorView, windows: Sequence[_Windows]) -> tuple[int, ...]:
    """The axes of the places in a window."""
    return tuple(range(x.ndim, x.ndim + len(windows)))


def _average(op: str, x: TensorView, windows: Sequence[_Windows], around: Sequence[int] | None, divisor: int | None = None) -> TensorView:
    """The mean over the elements of each window; those of ``around`` padding count, too, or ``divisor`` elements do."""
    if not x.dtype.is_float:
        raise dtype_error(op, f"{typed(x)} is not a float", "cast to a float first")
    with x.fusion.call():
        wide = cast_tensor(x, x.dtype.compute)
        total = reduce_axes(_elements(wide, windows, 0.0).values, _places(x, windows), COMBINES["add"], wide.dtype, keepdims=False)
        number: Expr = wrap(1 if divisor is None else divisor)
        if divisor is None:
            for d, w in enumerate(windows):
                o = iteration_symbol(x.ndim - len(windows) + d)
                first, last = (maximum(w.start(o), 0), w.size) if around is None else (w.start(o), w.size + around[d])
                facts = x.fusion.facts().with_range(str(o), 0, w.number - 1)
                number = number * simplify((minimum(w.end(o), last) - first).ceildiv(w.step), facts)
        operands = (broadcast_read(total, total.shape), IndexValue(number))
        return cast_tensor(define_pointwise(x.fusion, ELEMENTWISE["div"], total.shape, operands, total.dtype), x.dtype)


def _greatest(x: TensorView, windows: Sequence[_Windows]) -> TensorView:
    with x.fusion.call():
        return reduce_axes(_elements(x, windows, x.dtype.lowest).values, _places(x, windows), COMBINES["maximum"], x.dtype, keepdims=False)


def _greatest_with_indices(x: TensorView, windows: Sequence[_Windows]) -> tuple[TensorView, TensorView]:
    lengths = [w.length.value for w in windows if isinstance(w.length, Const)]
    with x.fusion.call():
        if rank_width(x.dtype) <= 32 and len(lengths) == len(windows):
            return _by_keys(x, windows, lengths)
        elements, axes = _elements(x, windows, x.dtype.lowest), _places(x, windows)
        found = reduce_axes(elements.values, axes, COMBINES["maximum"], x.dtype, keepdims=False)
        position: Expr = ZERO
        for w, at in zip(windows, elements.index, strict=True):
            position = position * w.size + at
        nowhere = int(int64.max_value)
        position = position if elements.valid is TRUE else select(elements.valid, position, nowhere)
        return found, first_position(equal_to(elements.values, found, axes), axes, position)


def _by_keys(x: TensorView, windows: Sequence[_Windows], lengths: Sequence[int]) -> tuple[TensorView, TensorView]:
    """The same by one reduction, of keys that hold an element and its place in the window: no padding is before an element."""
    places, axes = prod(lengths), _places(x, windows)
    layout = KeyLayout(x.dtype, axes[0], (2 * places - 1).bit_length(), descending=True)
    elements = _elements(x, windows, x.dtype.lowest)
    place: Expr = ZERO
    for axis, length in zip(axes, lengths, strict=True):
        place = place * length + iteration_symbol(axis)
    keys = layout.keys(elements.values, place if elements.valid is TRUE else select(elements.valid, place, place + places))
    found = reduce_axes(keys, axes, COMBINES["minimum"], keys.dtype, keepdims=False)
    values, where = layout.values(found), layout.indices(found)
    position, inner = index_values(where, ZERO, int64), places
    for d, (w, length) in enumerate(zip(windows, lengths, strict=True)):
        inner //= length
        along = mul(remainder(floor_divide(where, inner), length), w.step)
        at = add(index_values(where, w.start(iteration_symbol(x.ndim - len(windows) + d)), int64), along)
        position = add(mul(position, w.size), at)
    return values, position


@op(OpKind.REDUCTION, floating_only, torch="avg_pool1d avg_pool2d avg_pool3d", numpy="")
def avg_pool(
    x: TensorView,
    kernel: Sequence[int],
    stride: Numbers | None = None,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> TensorView:
    """The mean of each window of the last dimensions, as ``torch.nn.functional.avg_pool2d``, in any number of dimensions.

    Args:
        x: floats; all dimensions before the last ones are batches.
        kernel: the length of a window in each of the last dimensions: their number is how many are pooled.
        stride: elements from one window to the next; by default the windows do not overlap.
        padding: zeros before and after, at most half a window.
        ceil_mode: a last window may reach out of the input.
        count_include_pad: zeros of the padding count.
        divisor: instead of the number of elements.

    Raises:
        ShapeError: if the windows are not provably in the input, or there are too many numbers.
        DTypeError: unless ``x`` is a float.
    """
    check_tensor("avg_pool", x)
    dims = _dims("avg_pool", x, kernel)
    windows = _fixed("avg_pool", x, dims, kernel, stride, padding, 1, ceil_mode)
    return _average("avg_pool", x, windows, numbers("avg_pool", "padding", padding, dims, 0) if count_include_pad else None, divisor)


@op(OpKind.REDUCTION, same, torch="max_pool1d max_pool2d max_pool3d", numpy="")
def max_pool(
    x: TensorView, kernel: Sequence[int], stride: Numbers | None = None, padding: Numbers = 0, dilation: Numbers = 1, ceil_mode: bool = False
) -> TensorView:
    """The maximum of each window of the last dimensions, as ``torch.nn.functional.max_pool2d``: NaN if an element is NaN. Arguments as of :func:`avg_pool`.

    ``dilation``: elements from one place in a window to the next.
    """
    check_tensor("max_pool", x)
    return _greatest(x, _fixed("max_pool", x, _dims("max_pool", x, kernel), kernel, stride, padding, dilation, ceil_mode))


@op(OpKind.REDUCTION, same, torch="max_pool2d_with_indices max_pool3d_with_indices", numpy="")
def max_pool_with_indices(
    x: TensorView, kernel: Sequence[int], stride: Numbers | None = None, padding: Numbers = 0, dilation: Numbers = 1, ceil_mode: bool = False
) -> tuple[TensorView, TensorView]:
    """:func:`max_pool`, and the index (int64) of each maximum in row-major order over the pooled dimensions of the input: the first of equal elements."""
    check_tensor("max_pool_with_indices", x)
    windows = _fixed("max_pool_with_indices", x, _dims("max_pool_with_indices", x, kernel), kernel, stride, padding, dilation, ceil_mode)
    return _greatest_with_indices(x, windows)


@op(
    OpKind.REDUCTION,
    floating_only,
    torch="adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d",
    numpy="",
)
def adaptive_avg_pool(x: TensorView, output: Sequence[int | None]) -> TensorView:
    """The means of ``output[d]`` windows of each of the last dimensions, of nearly equal size, as ``torch.nn.functional.adaptive_avg_pool2d``.

    ``None`` is as many as there are elements. Raises :class:`ShapeError` for other numbers, and :class:`DTypeError` unless ``x`` is a float.
    """
    check_tensor("adaptive_avg_pool", x)
    return _average("adaptive_avg_pool", x, _adaptive("adaptive_avg_pool", x, output), None)


@op(OpKind.REDUCTION, same, torch="", numpy="")
def adaptive_max_pool(x: TensorView, output: Sequence[int | None]) -> TensorView:
    """The maxima of the windows of :func:`adaptive_avg_pool`."""
    check_tensor("adaptive_max_pool", x)
    return _greatest(x, _adaptive("adaptive_max_pool", x, output))


@op(OpKind.REDUCTION, same, torch="adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d", numpy="")
def adaptive_max_pool_with_indices(x: TensorView, output: Sequence[int | None]) -> tuple[TensorView, TensorView]:
    """:func:`adaptive_max_pool`, and the index of each maximum, as in :func:`max_pool_with_indices`."""
    check_tensor("adaptive_max_pool", x)
    return _greatest_with_indices(x, _adaptive("adaptive_max_pool", x, output))
