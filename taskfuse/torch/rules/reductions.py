"""Reductions, scans, norms, products, reads and writes at computed indices, with torch's arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taskfuse import ops
from taskfuse.dtypes import bool_, int64
from taskfuse.ir.scalar import const
from taskfuse.ir.tensor import TensorView
from taskfuse.torch.metadata import Refused
from taskfuse.torch.rules.call import AtenCall, Made, Value, converted, number, rule, widened
from taskfuse.torch.rules.one_place import sum_of_one_term

SIMPLE: dict[str, Callable[..., TensorView]] = {
    "sum": ops.sum,
    "prod": ops.prod,
    "mean": ops.mean,
    "amax": ops.max,
    "amin": ops.min,
    "max": ops.max,
    "min": ops.min,
    "any": ops.any,
    "all": ops.all,
}


@rule(*SIMPLE)
def reduced(call: AtenCall) -> Made:
    """One of the simple reductions, over some dimensions or all."""
    x = call.tensor("self")
    call.get("dtype")
    if call.name in ("max", "min") and call.overload == "dim":
        return _extreme_and_place(call, x)
    axes = call.axes("dim", x) if "dim" in call.given else tuple(range(len(x.shape)))
    keep = bool(call.get("keepdim", False))
    wide = x if call.name in ("any", "all") else converted(x, call.out.dtype)
    if not axes:
        return ops.ne(x, 0) if call.name in ("any", "all") and x.dtype is not bool_ else ops.copy(wide)
    if call.name == "sum" and len(axes) == 1 and (term := sum_of_one_term(wide, axes[0])) is not None:
        return term if keep else ops.squeeze(term, axes[0])
    return SIMPLE[call.name](wide, axes, keepdims=keep)


def _extreme_and_place(call: AtenCall, x: TensorView) -> Made:
    """The extremes along a dimension, and where the first of each is."""
    axis, keep = call.axis("dim", len(x.shape)), bool(call["keepdim"])
    if not x.shape:
        return ops.copy(x), ops.full([], 0, int64)
    place = (ops.argmax if call.name == "max" else ops.argmin)(x, axis, keepdims=keep) if 1 in call.read else None
    return SIMPLE[call.name](x, axis, keepdims=keep), place


@rule("var", "var_mean")
def variance(call: AtenCall) -> Made:
    """The variance, and the mean."""
    x = widened(call.tensor("self"))
    if call.overload not in ("correction", "correction_names"):
        raise Refused("its correction is a bool")
    given = call["correction"]
    correction = 1 if given is None else int(given) if isinstance(given, float) and given.is_integer() else given
    if not isinstance(correction, int):
        raise Refused(f"its correction is {correction}")
    axes, keep = call.axes("dim", x), bool(call["keepdim"])
    if not axes:
        raise Refused("its argument is 0-d")
    if call.name == "var":
        return ops.var(x, axes, keepdims=keep, correction=correction)
    return ops.var_mean(x, axes, keepdims=keep, correction=correction)


@rule("linalg_vector_norm")
def vector_norm(call: AtenCall) -> Made:
    """The Euclidean norm, the sum of magnitudes, or the greatest of them."""
    order = float(call["ord"])
    x = converted(widened(call.tensor("self")), call.out.dtype.compute)
    call.get("dtype")
    axes, keep = call.axes("dim", x), bool(call["keepdim"])
    if not axes:
        return ops.abs(x)
    if order == 2:
        return ops.sqrt(ops.sum(ops.square(x), axes, keepdims=keep))
    if order == 1:
        return ops.sum(ops.abs(x), axes, keepdims=keep)
    if order == float("inf"):
        return ops.max(ops.abs(x), axes, keepdims=keep)
    raise Refused(f"the norm of order {order}")


@rule("argmax", "argmin")
def position(call: AtenCall) -> Made:
    """The first index of the greatest or least element."""
    x, axis, keep = call.tensor("self"), call["dim"], bool(call["keepdim"])
    if not x.shape:
        return ops.full([], 0, int64)
    place = None if axis is None else number(axis) % len(x.shape)
    return (ops.argmax if call.name == "argmax" else ops.argmin)(x, place, keepdims=keep)


@rule("_softmax", "_log_softmax")
def normalized(call: AtenCall) -> Made:
    """softmax and its logarithm, in float32 for 16-bit floats."""
    x = converted(widened(call.tensor("self")), call.out.dtype.compute)
    call.get("half_to_float")
    if not x.shape:
        raise Refused("its argument is 0-d")
    axis = call.axis("dim", len(x.shape))
    return ops.softmax(x, axis) if call.name == "_softmax" else ops.log_softmax(x, axis)


@rule("native_layer_norm")
def layer_norm(call: AtenCall) -> Made:
    """The norm, the mean and the reciprocal deviation."""
    x = widened(call.tensor("input"))
    count = len(call["normalized_shape"])
    axes = tuple(range(len(x.shape) - count, len(x.shape)))
    variance, mean = ops.var_mean(x, axes, keepdims=True)
    scale = ops.rsqrt(ops.add(variance, float(call["eps"])))
    y = ops.mul(ops.sub(x, mean), scale)
    y = y if call["weight"] is None else ops.mul(y, call.tensor("weight", x.dtype))
    y = y if call["bias"] is None else ops.add(y, call.tensor("bias", x.dtype))
    return y, mean, scale


@rule("native_group_norm")
def group_norm(call: AtenCall) -> Made:
    """Norms of groups of channels, their means and reciprocal deviations."""
    x = widened(call.tensor("input"))
    groups = number(call["group"])
    call.passed -= {"N", "C", "HxW"}
    if any(e is const(0) for e in x.shape):
        raise Refused("it is empty")
    n, c, *rest = x.shape
    rows = ops.reshape(x, [n, groups, c // groups, *rest])
    axes = tuple(range(2, len(rows.shape)))
    variance, mean = ops.var_mean(rows, axes, keepdims=True)
    scale = ops.rsqrt(ops.add(variance, float(call["eps"])))
    y = ops.reshape(ops.mul(ops.sub(rows, mean), scale), list(x.shape))
    row = [1, c] + [1] * len(rest)
    y = y if call["weight"] is None else ops.mul(y, ops.reshape(call.tensor("weight", x.dtype), row))
    y = y if call["bias"] is None else ops.add(y, ops.reshape(call.tensor("bias", x.dtype), row))
    return y, ops.reshape(mean, [n, groups]), ops.reshape(scale, [n, groups])


@rule("cumsum", "cumprod")
def scanned(call: AtenCall) -> Made:
    """A running sum or product."""
    x = converted(call.tensor("self"), call.out.dtype)
    call.get("dtype")
    if not x.shape:
        return ops.copy(x)
    return (ops.cumsum if call.name == "cumsum" else ops.cumprod)(x, call.axis("dim", len(x.shape)))


@rule("logsumexp")
def logsumexp(call: AtenCall) -> Made:
    """The logarithm of a sum of exponentials."""
    x = converted(widened(call.tensor("self")), call.out.dtype.compute)
    axes = call.axes("dim", x)
    if not axes:
        return ops.copy(x)
    return ops.logsumexp(x, axes, keepdims=bool(call["keepdim"]))


# -- products ---------------------------------------------------------------------------------------------------------------------------

PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm", "mv", "dot", "addmv"})
"""Ops that multiply matrices."""


@rule("mm", "bmm", "mv", "dot")
def product(call: AtenCall) -> Made:
    """A product of two matrices, of batches of them, or of a matrix and a vector."""
    names = {"mm": ("self", "mat2"), "bmm": ("self", "mat2"), "mv": ("self", "vec"), "dot": ("self", "tensor")}[call.name]
    if call.out.dtype.is_integer or call.out.dtype is bool_:
        raise Refused("it multiplies matrices of integers")
    a, b = (call.tensor(name) for name in names)
    return ops.matmul(a, b)


@rule("addmm", "baddbmm", "addmv")
def added_product(call: AtenCall) -> Made:
    """``beta * self + alpha * a @ b``, rounded once."""
    if call.out.dtype.is_integer:
        raise Refused("it multiplies matrices of integers")
    first, second = {"addmm": ("mat1", "mat2"), "baddbmm": ("batch1", "batch2"), "addmv": ("mat", "vec")}[call.name]
    wide = call.out.dtype.compute
    made = ops.matmul(call.tensor(first), call.tensor(second), dtype=wide)
    alpha, beta = call["alpha"], call["beta"]
    made = made if alpha == 1 else ops.mul(made, float(alpha))
    if beta == 0:
        call.passed.discard("self")
        return made
    term = call.tensor("self", wide)
    return ops.add(made, term if beta == 1 else ops.mul(term, float(beta)))


# -- computed indices -------------------------------------------------------------------------------------------------------------------


@rule("embedding")
def embedding(call: AtenCall) -> Made:
    """Rows of a table."""
    call.passed -= {"padding_idx", "scale_grad_by_freq", "sparse"}
    return ops.take(call.tensor("weight"), call.tensor("indices"), 0)


@rule("gather")
def gathered(call: AtenCall) -> Made:
    """Elements at indices along a dimension."""
    x, at = call.tensor("self"), call.tensor("index")
    call.get("sparse_grad")
    if not x.shape or not at.shape:
        raise Refused("its argument is 0-d")
    return ops.gather(x, call.axis("dim", len(x.shape)), at)


@rule("index_select")
def index_selected(call: AtenCall) -> Made:
    """Slices at indices along a dimension."""
    x = call.tensor("self")
    if not x.shape or len(call.given["index"].shape) != 1:
        raise Refused("its argument is 0-d")
    return ops.take(x, call.tensor("index"), call.axis("dim", len(x.shape)))


@rule("index", "_unsafe_index")
def indexed(call: AtenCall) -> Made:
    """Elements at tensors of indices."""
    x, given = call.tensor("self"), call["indices"]
    if any(map(_is_mask, given)):
        raise Refused("its shape depends on data")
    return x[tuple(slice(None) if i is None else i for i in given)]


@rule("scatter", "scatter_add")
def scattered(call: AtenCall) -> Made:
    """Elements that go to indices along a dimension."""
    x = call.tensor("self")
    if not x.shape or not call.given["index"].shape:
        raise Refused("its argument is 0-d")
    if call.overload not in ("src", "value", "default"):
        raise Refused(f"it combines by {call.overload}")
    value = call["value"] if call.overload == "value" else call.tensor("src", x.dtype)
    if not isinstance(value, TensorView):
        value = float(value) if x.dtype.is_float else int(value) if x.dtype.is_integer else bool(value)
    function = ops.scatter if call.name == "scatter" else ops.scatter_add
    return function(x, call.axis("dim", len(x.shape)), call.tensor("index"), value)


@rule("masked_scatter")
def masked_scattered(call: AtenCall) -> Made:
    """The elements of ``source``, one after another, where a mask is true."""
    x, mask = call.tensor("self"), call.tensor("mask")
    source = ops.reshape(call.tensor("source", x.dtype), [-1])
    whole = ops.broadcast_to(mask, list(call.out.shape))
    place = ops.reshape(ops.cumsum(ops.cast(ops.reshape(whole, [-1]), int64), 0), list(call.out.shape)) - 1
    taken = ops.take(source, ops.maximum(ops.minimum(place, source.shape[0] - 1), 0))
    return ops.where(whole, taken, ops.broadcast_to(x, list(call.out.shape)))


@rule("_cdist_forward")
def distances(call: AtenCall) -> Made:
    """Of all pairs of rows; torch may compute those of order 2 by a matrix product."""
    call.passed -= {"compute_mode"}
    p = float(call["p"])
    if p <= 0:
        raise Refused(f"the norm of order {p}")
    return ops.cdist(call.tensor("x1"), call.tensor("x2"), p)


@rule("scatter_reduce")
def scatter_combined(call: AtenCall) -> Made:
    """Elements combined with others that go to indices along a dimension."""
    x = call.tensor("self")
    if call["reduce"] == "mean" or not call["include_self"] or not x.shape or not call.given["index"].shape:
        raise Refused("it is a mean, leaves its own elements out, or is of one number")
    return ops.scatter_reduce(x, call.axis("dim", len(x.shape)), call.tensor("index"), call.tensor("src", x.dtype), call["reduce"])


@rule("index_add")
def index_added(call: AtenCall) -> Made:
    """Slices added at indices along a dimension."""
    x = call.tensor("self")
    if not x.shape:
        raise Refused("its argument is 0-d")
    source, alpha = call.tensor("source", x.dtype), call["alpha"]
    if alpha != 1:
        source = ops.mul(source, float(alpha) if x.dtype.is_float else int(alpha))
    return ops.index_add(x, call.axis("dim", len(x.shape)), call.tensor("index"), source)


@rule("index_put", "_unsafe_index_put")
def index_stored(call: AtenCall) -> Made:
    """Values stored or added at tensors of indices, or at the elements of a mask."""
    x, given = call.tensor("self"), call["indices"]
    if any(map(_is_mask, given)):
        return _stored_by_mask(call, x, given)
    return ops.index_put(x, list(given), call.tensor("values", x.dtype), bool(call["accumulate"]))


def _is_mask(index: Value) -> bool:
    """Whether a tensor says of each element whether it is meant: bytes do, too."""
    return isinstance(index, TensorView) and not (index.dtype.is_integer and index.dtype.bits >= 32)


def _stored_by_mask(call: AtenCall, x: TensorView, given: Sequence[Value]) -> TensorView:
    """Values that are the same for all elements of a mask over some axes: which of them is the first of these, data decides."""
    masks = [(k, i) for k, i in enumerate(given) if i is not None]
    first, mask = masks[0]
    if len(masks) > 1 or mask.dtype is not bool_:
        raise Refused("where it writes is more than a mask")
    values, rest = call.tensor("values", x.dtype), len(x.shape) - first - len(mask.shape)
    axis = len(values.shape) - 1 - rest  # of the elements of the mask
    if axis >= 0 and values.shape[axis] is not const(1):
        raise Refused("it writes one value for each element of a mask")
    if axis >= 0:
        values = ops.reshape(values, [*values.shape[:axis], *([1] * len(mask.shape)), *values.shape[axis + 1 :]])
    whole = ops.broadcast_to(ops.reshape(mask, [*mask.shape, *([1] * rest)]), list(x.shape))
    values = ops.broadcast_to(values, list(x.shape))
    return ops.where(whole, ops.add(x, values) if call["accumulate"] else values, x)


@rule("nonzero_static")
def first_nonzero(call: AtenCall) -> Made:
    """The indices of so many elements that are not 0, the first ones."""
    x = call.tensor("self")
    if not x.shape:
        raise Refused("its argument is 0-d")
    return ops.nonzero(x, call["size"], call.integer("fill_value"))


@rule("embedding_dense_backward")
def embedding_backward(call: AtenCall) -> Made:
    """Gradients summed by row of the table."""
    if call["scale_grad_by_freq"]:
        raise Refused("gradients are scaled by frequency")
    numbers, rows, padding = call.tensor("indices"), number(call["num_weights"]), number(call["padding_idx"])
    kept = numbers if padding < 0 else ops.where(ops.eq(numbers, padding), rows, numbers)
    gradient = ops.reshape(call.tensor("grad_output"), [-1, call.out.shape[1]])
    return ops.segment_sum(gradient, ops.reshape(kept, [-1]), rows)
