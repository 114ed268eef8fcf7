"""Ops that only say which element is where: views, slices, concatenations, creation."""

from __future__ import annotations

from taskfuse import ops
from taskfuse.dtypes import int64
from taskfuse.ir.scalar import Expr, Facts, const, ge, le, prove, wrap
from taskfuse.ir.tensor import TensorView
from taskfuse.torch.metadata import Refused, row_major
from taskfuse.torch.rules.call import AtenCall, Made, axes_of, converted, fitted, number, rule


@rule("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "flatten", "_reshape_alias", "view_copy", "unsqueeze_copy", "squeeze_copy")
def reshaped(call: AtenCall) -> Made:
    """The elements in row-major order in another shape."""
    x = call.tensor("self")
    if call.overload == "dtype":
        raise Refused("it reads the bits as another dtype")
    call.passed -= {"size", "shape", "dim", "stride"}
    return ops.reshape(x, list(call.out.shape))


@rule("permute", "permute_copy")
def permuted(call: AtenCall) -> Made:
    """Axes in another order."""
    x = call.tensor("self")
    return ops.permute(x, list(axes_of(call["dims"], len(x.shape))) if x.shape else [])


@rule("t", "transpose", "t_copy", "transpose_copy")
def transposed(call: AtenCall) -> Made:
    """Two axes exchanged."""
    x = call.tensor("self")
    rank = len(x.shape)
    order = list(range(rank))
    i, j = (call.axis("dim0", rank), call.axis("dim1", rank)) if call.name.startswith("transpose") else (max(rank - 2, 0), max(rank - 1, 0))
    if rank:
        order[i], order[j] = order[j], order[i]
    return ops.permute(x, order)


@rule("expand", "broadcast_in_dim", "expand_copy")
def expanded(call: AtenCall) -> Made:
    """Axes of extent 1, and new leading ones, repeated."""
    if call.name == "broadcast_in_dim":
        raise Refused("it is of prims")
    call.passed -= {"size", "implicit"}
    return fitted(call.tensor("self"), call.out.shape)


@rule("slice", "slice_copy")
def sliced(call: AtenCall) -> Made:
    """A slice along one axis; bounds as in Python."""
    x = call.tensor("self")
    axis = call.axis("dim", len(x.shape))
    start, stop, step = call["start"], call["end"], number(call["step"])
    stop = None if isinstance(stop, int) and stop >= 1 << 62 else stop
    return x[tuple(slice(_bound(start), _bound(stop), step) if k == axis else slice(None) for k in range(len(x.shape)))]


def _bound(value: object) -> object:
    return int(value) if isinstance(value, Expr) and not value.free else value


@rule("select", "select_copy")
def selected(call: AtenCall) -> Made:
    """One index along an axis."""
    x = call.tensor("self")
    axis, at = call.axis("dim", len(x.shape)), number(call["index"])
    place = at if at >= 0 else x.shape[axis] + at
    return x[tuple(place if k == axis else slice(None) for k in range(len(x.shape)))]


@rule("split", "split_with_sizes", "unbind", "chunk")
def pieces(call: AtenCall) -> Made:
    """Slices one after another, as many as torch says."""
    x = call.tensor("self")
    axis = call.axis("dim", len(x.shape))
    call.passed -= {"split_size", "split_sizes", "chunks"}
    found: list[TensorView] = []
    start = wrap(0)
    for out in call.outs:
        assert out is not None
        if call.name == "unbind":
            found.append(x[tuple(len(found) if k == axis else slice(None) for k in range(len(x.shape)))])
            continue
        stop = start + out.shape[axis]
        found.append(x[tuple(slice(start, stop) if k == axis else slice(None) for k in range(len(x.shape)))])
        start = stop
    return tuple(found)


@rule("cat")
def concatenated(call: AtenCall) -> Made:
    """Tensors one after another; those of shape [0] count as nothing."""
    parts = [call.as_tensor(x, call.out.dtype) for x in call["tensors"]]
    rank = len(call.out.shape)
    parts = [x for x in parts if len(x.shape) == rank and (rank > 1 or x.shape[0] is not const(0))]
    axis = call.axis("dim", rank)
    if not parts:
        raise Refused("it is empty")
    return ops.cat(parts, axis) if len(parts) > 1 else ops.copy(parts[0])


@rule("stack")
def stacked(call: AtenCall) -> Made:
    """Tensors along a new axis."""
    parts = [call.as_tensor(x, call.out.dtype) for x in call["tensors"]]
    return ops.stack(parts, call.axis("dim", len(call.out.shape)))


@rule("flip")
def flipped(call: AtenCall) -> Made:
    """Axes in reverse."""
    x = call.tensor("self")
    given = call["dims"]
    return ops.flip(x, list(axes_of(given, len(x.shape)))) if given and x.shape else ops.copy(x)


@rule("constant_pad_nd")
def padded(call: AtenCall) -> Made:
    """A value around a tensor; where a width is negative, a slice of it."""
    x, value = call.tensor("self"), call["value"]
    given = [number(w) for w in call["pad"]]
    pairs = list(zip(given[::2], given[1::2], strict=True))[::-1]
    widths = [(0, 0)] * (len(x.shape) - len(pairs)) + pairs
    if any(w < 0 for pair in widths for w in pair):
        x = x[tuple(slice(max(-low, 0), extent - max(-high, 0)) for (low, high), extent in zip(widths, x.shape, strict=True))]
    value = float(value) if x.dtype.is_float else int(value) if x.dtype.is_integer else bool(value)
    return ops.pad(x, [(max(low, 0), max(high, 0)) for low, high in widths], value)


@rule("full", "full_like", "scalar_tensor", "zeros", "zeros_like", "ones", "ones_like", "new_zeros", "new_ones", "new_full")
def constants(call: AtenCall) -> Made:
    """One value everywhere."""
    dtype = call.out.dtype
    call.passed -= {"size", "dtype", "self"}
    value = call["fill_value"] if "full" in call.name else call["s"] if call.name == "scalar_tensor" else int("ones" in call.name)
    if isinstance(value, TensorView):
        return fitted(converted(value, dtype), call.out.shape)
    if not isinstance(value, Expr):
        value = float(value) if dtype.is_float else int(value) if dtype.is_integer else bool(value)
    return ops.full(list(call.out.shape), value, dtype)


@rule("arange", "iota")
def counted(call: AtenCall) -> Made:
    """``start + step * i``."""
    call.passed -= {"end", "length", "dtype", "requires_grad"}
    start, step = call.get("start", 0), call.get("step", 1)
    dtype = call.out.dtype
    numbers = ops.arange(call.out.shape[0])
    if isinstance(start, float) or isinstance(step, float):
        raise Refused("its steps are floats")
    if dtype.is_float and dtype.bits < 64 and call.name == "arange" and not (start == 0 and step == 1):
        raise Refused("its steps are added as floats")
    numbers = numbers if isinstance(step, int) and step == 1 else ops.mul(numbers, step)
    numbers = numbers if isinstance(start, int) and start == 0 else ops.add(numbers, start)
    return converted(numbers, dtype)


@rule("as_strided")
def strided(call: AtenCall) -> Made:
    """A view by strides of a tensor that lies row by row: a slice of it, or all of it in another shape."""
    x = call.tensor("self")
    size, stride = ([number(e) for e in call[name]] for name in ("size", "stride"))
    offset = number(call["storage_offset"] or 0)
    shape = [number(e) for e in x.shape]
    whole = [number(e) for e in row_major(tuple(x.shape))]
    if size and offset == 0 and stride == [number(e) for e in row_major(tuple(map(const, size)))] and _count(size) == _count(shape):
        return ops.reshape(x, list(size))
    raise Refused(f"strides {stride} of a tensor with strides {whole}")


def _count(shape: list[int]) -> int:
    found = 1
    for e in shape:
        found *= e
    return found


@rule("repeat")
def repeated(call: AtenCall) -> Made:
    """A tensor laid side by side."""
    return ops.tile(call.tensor("self"), tuple(number(n) for n in call["repeats"]))


@rule("slice_scatter")
def into_slice(call: AtenCall) -> Made:
    """A tensor with another one in a slice of it."""
    x, y = call.tensor("self", call.out.dtype), call.tensor("src", call.out.dtype)
    rank = len(x.shape)
    axis = call.axis("dim", rank)
    step = number(call["step"])
    extent = x.shape[axis]
    start, stop = (_clipped(call[name], extent, default, x.fusion.facts()) for name, default in (("start", wrap(0)), ("end", extent)))
    if step != 1:
        if any(e.free for e in (start, stop, extent)):
            raise Refused("every few elements of a symbolic extent are written")
        return _into_steps(x, y, axis, start, stop, step)
    parts = [_part(x, axis, wrap(0), start), y, _part(x, axis, stop, extent)]
    kept = [p for p in parts if p.shape[axis] is not const(0)]
    return ops.cat(kept, axis) if len(kept) > 1 else ops.copy(kept[0])


def _into_steps(x: TensorView, y: TensorView, axis: int, start: Expr, stop: Expr, step: int) -> TensorView:
    """``x`` with the elements of ``y`` at every ``step``-th place from ``start`` to before ``stop``."""
    extent, rank = x.shape[axis], len(x.shape)
    wide = ops.pad(ops.expand_dims(y, axis + 1), [(0, step - 1 if d == axis + 1 else 0) for d in range(rank + 1)])
    spread = ops.reshape(wide, [e * step if d == axis else e for d, e in enumerate(y.shape)])
    spread = ops.pad(_part(spread, axis, wrap(0), stop - start), [(start, extent - stop) if d == axis else (0, 0) for d in range(rank)])
    at = ops.reshape(ops.arange(extent), [extent if d == axis else 1 for d in range(rank)])
    inside = ops.logical_and(ops.ge(at, start), ops.lt(at, stop))
    return ops.where(ops.logical_and(inside, ops.eq(ops.remainder(at - start, step), 0)), spread, x)


def _clipped(value: int | Expr | None, extent: Expr, default: Expr, facts: Facts) -> Expr:
    """A bound of a slice, as a place in an axis. Raises :class:`Refused` if it is not known on which side of an end it is."""
    if value is None:
        return default
    if isinstance(value, int) and value >= 1 << 62:
        return extent
    at = value if isinstance(value, Expr) else const(int(value))
    if not at.free:
        at = wrap(at + extent) if int(at) < 0 else at
    if not at.free and not extent.free:
        return const(min(max(int(at), 0), int(extent)))
    if not (prove(ge(at, 0), facts) and prove(le(at, extent), facts)):
        raise Refused(f"a slice up to {at} of {extent} elements is written")
    return at


def _part(x: TensorView, axis: int, start: Expr, stop: Expr) -> TensorView:
    return x[tuple(slice(start, stop) if k == axis else slice(None) for k in range(len(x.shape)))]


@rule("select_scatter")
def into_index(call: AtenCall) -> Made:
    """A tensor with another one at an index along an axis."""
    x, y = call.tensor("self", call.out.dtype), call.tensor("src", call.out.dtype)
    rank = len(x.shape)
    axis = call.axis("dim", rank)
    at = number(call["index"])
    place = at if at >= 0 else x.shape[axis] + at
    here = ops.eq(ops.iota([x.shape[k] if k == axis else 1 for k in range(rank)], axis, int64), place)
    return ops.where(here, ops.expand_dims(y, axis), x)


@rule("diagonal_backward")
def diagonal_gradient(call: AtenCall) -> Made:
    """The gradient of a tensor of whose diagonal one is given."""
    zeros = ops.full(list(call.out.shape), 0, call.out.dtype)
    call.get("input_sizes")
    return ops.diagonal_scatter(zeros, call.tensor("grad_output", call.out.dtype), call.integer("offset"), call.integer("dim1"), call.integer("dim2"))


@rule("tril_indices", "triu_indices")
def triangle(call: AtenCall) -> Made:
    """The places of the elements of a triangle, in order."""
    make = ops.tril_indices if call.name == "tril_indices" else ops.triu_indices
    call.passed -= {"dtype", "layout", "device", "pin_memory"}
    return converted(make(call.integer("row"), call.integer("col"), call.integer("offset")), call.out.dtype)
