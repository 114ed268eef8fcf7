"""Convolutions: sums of products of windows of a tensor with weights.

A window is a map: the result at (n, o, h, w) sums ``x[n, c, h * stride + r * dilation - padding, ..] * weight[o, c, r, ..]`` over c, r, ..; elements of the
padding are 0. So a convolution is one contraction, whose factor with the rows is a virtual tensor of windows: rows are positions in the result,
and channels, the innermost of the summed axes, are contiguous in the memory format channels last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from taskfuse.dtypes import float32, result_type
from taskfuse.errors import shown
from taskfuse.ir.axes import iteration_point, iteration_symbol
from taskfuse.ir.expr import Literal, Read
from taskfuse.ir.scalar import ONE, TRUE, ZERO, Const, Expr, Facts, and_, const, le, lt, prove, simplify, wrap
from taskfuse.ir.storage import resolve, strided
from taskfuse.ir.strides import order_of
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, described, dtype_error, facts_help, shape_error, typed
from taskfuse.ops.elementwise import add, copy
from taskfuse.ops.linalg import sum_of_products
from taskfuse.ops.rearrange import count
from taskfuse.ops.registry import OpKind, numeric, op
from taskfuse.ops.select import define_select
from taskfuse.ops.views import expand_dims, permute, reshape, squeeze, view
from taskfuse.ops.windows import Numbers, numbers
from taskfuse.target import TMA_BYTES

__all__ = ["conv1d", "conv2d", "conv3d"]

COPY_BYTES = 4
"""The least that threads copy to Shared memory without registers (``cp.async``)."""
LEAST_OUTPUTS = 8
"""Fewer channels of the result are not multiplied on tensor cores."""


@dataclass(frozen=True, slots=True)
class _Taps:
    """The windows of a convolution along one dimension.

    Attributes:
        size: extent of the input.
        number: extent of the result.
        places: of a window.
        stride, dilation: elements from one window, and from one place of a window, to the next.
        before: elements of padding before the input.
    """

    size: Expr
    number: Expr
    places: Expr
    stride: int
    dilation: int
    before: int


@op(OpKind.PRODUCT, numeric, torch="conv1d", numpy="")
def conv1d(
    x: TensorView,
    weight: TensorView,
    bias: TensorView | None = None,
    stride: Numbers = 1,
    padding: Numbers | str = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> TensorView:
    """The convolution of ``x [N, C, L]`` with ``weight [O, C / groups, R]``, as :func:`conv2d`."""
    return _convolution("conv1d", 1, x, weight, bias, stride, padding, dilation, groups)


@op(OpKind.PRODUCT, numeric, torch="conv2d", numpy="")
def conv2d(
    x: TensorView,
    weight: TensorView,
    bias: TensorView | None = None,
    stride: Numbers = 1,
    padding: Numbers | str = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> TensorView:
    """The convolution of ``x [N, C, H, W]`` with ``weight [O, C / groups, R, S]``, plus ``bias [O]``, as ``torch.nn.functional.conv2d``: rounded once.

    Products of floats below 32 bits are summed in float32. Operands with more than one channel are used with channels last: one with another memory format (a
    view, or declared strides) is copied, and the result is a view of a tensor with channels last.

    Args:
        x: the input; without N, the result lacks it as well.
        weight: the weights.
        bias: added to each channel of the result before rounding.
        stride: distance of consecutive windows, one number or one for each dimension.
        padding: zeros before and after; "valid": 0; "same": such that the result has the extents of ``x``, one more after than before if the sum is odd.
        dilation: distance of consecutive filter taps.
        groups: number of groups into which the channels of ``x`` and of the result are divided; a group of the result reads its own group of ``x``.

    Raises:
        ShapeError: the extents do not fit, a window does not provably fit into the padded input, or torch does not take such numbers.
        DTypeError: the operands are bool, or the bias does not convert to the dtype of the sums: a float bias with integers, float64 with other floats.
    """
    return _convolution("conv2d", 2, x, weight, bias, stride, padding, dilation, groups)


@op(OpKind.PRODUCT, numeric, torch="conv3d", numpy="")
def conv3d(
    x: TensorView,
    weight: TensorView,
    bias: TensorView | None = None,
    stride: Numbers = 1,
    padding: Numbers | str = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> TensorView:
    """The convolution of ``x [N, C, D, H, W]`` with ``weight [O, C / groups, Q, R, S]``, as :func:`conv2d`."""
    return _convolution("conv3d", 3, x, weight, bias, stride, padding, dilation, groups)


def _convolution(
    op: str,
    dims: int,
    x: TensorView,
    weight: TensorView,
    bias: TensorView | None,
    stride: Numbers,
    padding: Numbers | str,
    dilation: Numbers,
    groups: int,
) -> TensorView:
    operands = [check_tensor(op, tv) for tv in (x, weight, *(() if bias is None else (bias,)))]
    fusion = common_fusion(op, operands)
    number_of_groups = count(op, "number of groups", groups, 1)
    _check_shapes(op, dims, x, weight, bias, number_of_groups)
    dtype = result_type(x.dtype, weight.dtype)
    if dtype.is_bool:
        raise dtype_error(op, f"{typed(x)} and {typed(weight)} do not support arithmetic", "cast to an integer or float dtype first")
    if bias is not None and (bias.dtype.is_bool or result_type(dtype.compute, bias.dtype) is not dtype.compute):
        raise dtype_error(op, f"{typed(bias)} does not convert to {dtype.compute.name}, the dtype of the sums", f"cast the bias to {dtype.name} first")
    with fusion.call():
        batched = x if x.ndim == dims + 2 else expand_dims(x, 0)
        taps = _taps(op, batched, weight, dims, stride, padding, dilation)
        last = _has_channels_last(batched)
        lying = permute(batched, [0, *range(2, dims + 2), 1])
        merged = _merged(weight, taps, number_of_groups)
        if merged:
            lying, weight, taps, last = (*_rows_of_windows(lying, weight, taps, merged), True)
        has_windows = any(t.places is not ONE or t.stride > 1 for t in taps)
        if has_windows and weight.shape[1] is not ONE and not merged:
            # tensor cores take both factors with channels side by side: what is copied may be stored so
            if not last:
                lying, last = copy(lying), True
            if any(t.places is not ONE for t in taps) and not _has_channels_last(weight):
                weight = permute(copy(permute(weight, [0, *range(2, dims + 2), 1])), [0, dims + 1, *range(1, dims + 1)])
        made = _sums(lying, weight, taps, number_of_groups, last)
        of_channels = made.shape[1 + dims :] if last else made.shape[1 : made.ndim - dims]
        if bias is not None:
            term = cast_tensor(reshape(bias, list(of_channels)) if len(of_channels) > 1 else bias, made.dtype)
            made = add(made, term if last else expand_dims(term, tuple(range(term.ndim, term.ndim + dims))))
        made = cast_tensor(made, dtype)
        if len(of_channels) > 1:
            places = [t.number for t in taps]
            made = reshape(made, [made.shape[0], *places, weight.shape[0]] if last else [made.shape[0], weight.shape[0], *places])
        made = permute(made, [0, dims + 1, *range(1, dims + 1)]) if last else made
        return made if x.ndim == dims + 2 else squeeze(made, 0)


def _check_shapes(op: str, dims: int, x: TensorView, weight: TensorView, bias: TensorView | None, groups: int) -> None:
    if x.ndim not in (dims + 1, dims + 2) or weight.ndim != dims + 2:
        shape = ", ".join("DHW"[3 - dims :] if dims > 1 else "L")
        raise shape_error(op, f"{described(x)} cannot be convolved with {described(weight)}", f"give x [N, C, {shape}] and a weight of {dims + 2} dimensions")
    facts, channels = x.fusion.facts(), x.shape[x.ndim - dims - 1]
    if simplify(weight.shape[1] * groups - channels, facts) is not ZERO:
        raise shape_error(
            op,
            f"{described(x)} has {channels} channels, and {described(weight)} takes {weight.shape[1]} in each of {groups} group{'s' if groups > 1 else ''}",
            "the weight is [O, C / groups, ..]",
        )
    if simplify(weight.shape[0] % groups, facts) is not ZERO:
        raise shape_error(
            op, f"{weight.shape[0]} channels of {described(weight)} do not provably divide into {groups} groups", facts_help(weight, "multiple_of=")
        )
    if bias is not None and (bias.ndim != 1 or bias.shape[0] is not weight.shape[0]):
        raise shape_error(op, f"{described(bias)} is not a vector of the {weight.shape[0]} output channels", "give a bias [O]")


def _taps(op: str, x: TensorView, weight: TensorView, dims: int, stride: Numbers, padding: Numbers | str, dilation: Numbers) -> list[_Taps]:
    """The windows along each dimension."""
    facts = x.fusion.facts()
    steps, spans = numbers(op, "stride", stride, dims, 1), numbers(op, "dilation", dilation, dims, 1)
    places = weight.shape[2:]
    if isinstance(padding, str):
        around = [_padding(op, padding, n, by, step) for n, by, step in zip(places, steps, spans, strict=True)]
    else:
        around = [(n, n) for n in numbers(op, "padding", padding, dims, 0)]
    found: list[_Taps] = []
    for size, n, by, step, (before, after) in zip(x.shape[2:], places, steps, spans, around, strict=True):
        room = simplify(size + (before + after) - step * (n - 1) - 1, facts)
        if not prove(le(0, room), facts) or not prove(le(1, n), facts):
            raise shape_error(op, f"a window of {n} does not provably fit into {described(x)}", facts_help(x))
        found.append(_Taps(size, simplify(room // by + 1, facts), n, by, step, before))
    return found


def _padding(op: str, name: str, places: Expr, stride: int, dilation: int) -> tuple[int, int]:
    if name == "valid":
        return 0, 0
    if name != "same" or stride != 1 or not isinstance(places, Const):
        help = "use a number of zeros, 'valid', or 'same', which needs stride 1 and a window of constant extent"
        raise shape_error(op, f"padding {shown(name)} of windows of {places} with stride {stride}", help)
    total = dilation * (places.value - 1)
    return total // 2, total - total // 2


def _has_channels_last(x: TensorView) -> bool:
    """True if neighbors along the second axis of ``x`` lie side by side in memory, as far as is known, and it is not row-major for other reasons."""
    declared = x.fusion.strides.get(x)
    if declared is not None:
        order = order_of(x.shape, declared, x.fusion.facts())
        return order is not None and order[-1] == 1
    read = resolve(x.fusion, Read(x, iteration_point(x.ndim)))
    if read.tensor is not x and read.tensor in x.fusion.strides:
        return False
    found = strided(x.fusion, x)
    return found is not None and found.strides[1] is ONE and any(e is not ONE for e in x.shape[2:])


def _merged(weight: TensorView, taps: Sequence[_Taps], groups: int) -> int:
    """How many of the last dimensions of windows become one axis with the channels: of few channels, whose rows no copy takes in pieces of some bytes, as of
    images of three colors. So many with which the copy of the windows has the fewest elements."""
    own, outputs, size = weight.shape[1], weight.shape[0], weight.dtype.itemsize
    is_narrow = weight.dtype.bits < float32.bits and isinstance(own, Const) and own.value * size % COPY_BYTES != 0
    is_matrix = groups == 1 and not (isinstance(outputs, Const) and outputs.value < LEAST_OUTPUTS)
    if not (is_narrow and is_matrix) or taps[-1].places is ONE:
        return 0
    assert isinstance(own, Const)
    row, steps, best = own.value, 1, (0, 0.0)
    for number, t in enumerate(reversed(taps), 1):
        if not isinstance(t.places, Const):
            break
        row, steps = row * t.places.value, steps * t.stride
        elements = _padded(row, size) / steps  # of the copy, for each element of the input's places
        if not best[0] or elements <= best[1]:
            best = number, elements
    return best[0]


def _padded(row: int, itemsize: int) -> int:
    """A number of elements that the copy engine takes as a row."""
    unit = TMA_BYTES // itemsize
    return -(-row // unit) * unit


def _rows_of_windows(x: TensorView, weight: TensorView, taps: Sequence[_Taps], merged: int) -> tuple[TensorView, TensorView, list[_Taps]]:
    """The windows of ``x [N, .., C]`` along the last ``merged`` dimensions, and the weights alike: places and channels are one axis, which ends with zeros.

    They are the input, the weights and the windows of a convolution along the other dimensions, of windows of one element along these.
    """
    dims, facts = len(taps), x.fusion.facts()
    outer, inner = taps[: dims - merged], taps[dims - merged :]
    own = weight.shape[1]
    row = simplify(prod((t.places for t in inner), start=own), facts)
    assert isinstance(row, Const)
    length = const(_padded(row.value, x.dtype.itemsize))
    shape = (x.shape[0], *(t.size for t in outer), *(t.number for t in inner), length)
    at = [iteration_symbol(d) for d in range(len(shape))]
    known = facts.with_ranges({str(at[d]): (0, e - 1) for d, e in enumerate((*shape[:-1], row))})
    channel, places = _digits(at[-1], own, [t.places for t in inner], known)
    index, inside = at[: 1 + len(outer)], [TRUE if length is row else lt(at[-1], row)]
    for t, o, place in zip(inner, at[len(index) :], places, strict=False):
        index.append(simplify(o * t.stride + place * t.dilation - t.before, known))
        inside += [c for c in (le(0, index[-1]), lt(index[-1], t.size)) if not prove(c, known)]
    made = _stored(x, shape, (*index, channel), and_(*inside))
    k = iteration_symbol(1 + len(outer))
    channel, places = _digits(k, own, [t.places for t in inner], facts.with_range(str(k), 0, row - 1))
    taken = (iteration_symbol(0), channel, *(iteration_symbol(1 + d) for d in range(len(outer))), *places)
    weights = _stored(weight, (weight.shape[0], *(t.places for t in outer), length), taken, TRUE if length is row else lt(k, row))
    weights = permute(weights, [0, 1 + len(outer), *range(1, 1 + len(outer))])
    weights = expand_dims(weights, tuple(range(weights.ndim, weights.ndim + len(inner))))
    return made, weights, [*outer, *(_Taps(t.number, t.number, ONE, 1, 1, 0) for t in inner)]


def _digits(k: Expr, own: Expr, places: Sequence[Expr], facts: Facts) -> tuple[Expr, list[Expr]]:
    """The channel and the places of a window at an element of their axis."""
    channel, rest, found = k % own, k // own, list[Expr]()
    for extent in reversed(places):
        found.insert(0, simplify(rest % extent, facts))
        rest = rest // extent
    return simplify(channel, facts), found


def _stored(x: TensorView, shape: tuple[Expr, ...], index: tuple[Expr, ...], valid: Expr) -> TensorView:
    """A tensor of elements of ``x``, zeros where they are not valid."""
    if valid is TRUE:
        return copy(view(x, "windows", shape, index))
    return define_select(x.fusion, "windows", shape, (Read(x, index, valid), Literal.zero(x.dtype)), x.dtype)


def _sums(x: TensorView, weight: TensorView, taps: Sequence[_Taps], groups: int, last: bool) -> TensorView:
    """The sums for ``x [N, .., C]``: ``[N, .., (group,) O]``, or ``[N, (group,) O, ..]`` unless ``last``.

    The iteration space is [n, places of the result, (group,) channel of the result], in the order of the result, then [places of a window, channel].
    """
    dims, facts = len(taps), x.fusion.facts()
    own, outputs = weight.shape[1], simplify(weight.shape[0] // groups, facts)
    is_grouped, is_deep = groups > 1, own is not ONE  # an axis of one channel is none
    batch, places = x.shape[0], tuple(t.number for t in taps)
    channels = (*([wrap(groups)] if is_grouped else []), *([outputs] if outputs is not ONE or not is_grouped else []))
    kept = (batch, *places, *channels) if last else (batch, *channels, *places)
    wide = [d for d, t in enumerate(taps) if t.places is not ONE]  # nor has a window of one element one
    summed = (*(taps[d].places for d in wide), *([own] if is_deep or not wide else []))
    at = [iteration_symbol(k) for k in range(len(kept) + len(summed))]
    n, rest = at[0], at[1 : len(kept)]
    o, c = (rest[:dims], rest[dims:]) if last else (rest[len(channels) :], rest[: len(channels)])
    taken = at[len(kept) :]
    inside = [taken[wide.index(d)] if d in wide else ZERO for d in range(dims)]
    group, output = c[0] if is_grouped else ZERO, c[-1] if outputs is not ONE or not is_grouped else ZERO
    windows = _windows(x, taps, wide, groups, is_deep or not wide)
    left = Read(windows, (n, *o, *taken[: len(wide)], *([group] if is_grouped else []), *taken[len(wide) :]))
    right = Read(weight, (group * outputs + output, taken[-1] if is_deep else ZERO, *inside))
    dtype = result_type(x.dtype, weight.dtype).compute
    return sum_of_products(x.fusion, kept, summed, (left, right), dtype)


def _windows(x: TensorView, taps: Sequence[_Taps], wide: Sequence[int], groups: int, is_deep: bool) -> TensorView:
    """The elements of the windows of ``x [N, .., C]``: ``[N, places of the result, places of a window, (group,) (channel of a group)]``, padding as zeros.

    Args:
        wide: the dimensions along which a window has several places, and an axis.
    """
    dims, own = len(taps), simplify(x.shape[-1] // groups, x.fusion.facts())
    depth = (*([wrap(groups)] if groups > 1 else []), *([own] if is_deep else []))
    shape = (x.shape[0], *(t.number for t in taps), *(taps[d].places for d in wide), *depth)
    facts = x.fusion.facts().with_ranges({str(iteration_symbol(d)): (0, e - 1) for d, e in enumerate(shape)})
    index: list[Expr] = [iteration_symbol(0)]
    inside: list[Expr] = []
    for d, t in enumerate(taps):
        place = iteration_symbol(1 + dims + wide.index(d)) if d in wide else ZERO
        at = simplify(iteration_symbol(1 + d) * t.stride + place * t.dilation - t.before, facts)
        index.append(at)
        inside += [c for c in (le(0, at), lt(at, t.size)) if not prove(c, facts)]
    deep = iteration_symbol(len(shape) - 1) if is_deep else ZERO
    index.append(iteration_symbol(1 + dims + len(wide)) * own + deep if groups > 1 else deep)
    valid = and_(*inside)
    if valid is TRUE:
        return view(x, "windows", shape, index)
    return define_select(x.fusion, "windows", shape, (Read(x, tuple(index), valid), Literal.zero(x.dtype)), x.dtype)
