"""Graphs of ATen ops as text, and what taskfuse and torch make of one.

A graph is what `torch.compile` hands to a backend, cut at ops that taskfuse has no form of (convolutions, embeddings, scatter): one line per tensor,
``v2: float32[512, 1] = sum.dim_IntList(v1, [1], true)``, inputs as ``IN v0: bfloat16[512, 256]``, results as ``OUT v2``. Each result of an op of several has
a line: ``v3: int64[512] = max.dim(v1, 1)[1]``. ``benchmarks/graphs/`` holds them.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import taskfuse as tf

FOLDER = Path(__file__).parent / "graphs"
Argument = Any
Arguments = tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One tensor: its dtype and shape, and the op that makes it; ``op`` is empty for an input. ``result`` is its number among several of the op."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    op: str = ""
    args: Arguments = ()
    options: tuple[tuple[str, Any], ...] = ()
    result: int | None = None


@dataclass(frozen=True, slots=True)
class Name:
    """A tensor, or a dtype, as an argument."""

    text: str


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph of ATen ops."""

    name: str
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The tensors that come from outside."""
        return tuple(n for n in self.nodes if not n.op)


class Unknown(Exception):
    """An op, or a form of one, that the graph has and this reader does not."""


def _value(e: ast.expr) -> Any:
    match e:
        case ast.Constant(value=v):
            return v
        case ast.Name(id="true" | "false" as word):
            return word == "true"
        case ast.Name(id="none"):
            return None
        case ast.Name(id="inf"):
            return math.inf
        case ast.Name(id=word):
            return Name(word)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return tuple(map(_value, elements))
        case _:
            raise Unknown(ast.unparse(e))


def parse(name: str, text: str) -> Graph:
    """The graph of a text."""
    nodes: list[Node] = []
    outputs: tuple[str, ...] = ()
    for line in text.splitlines():
        if line.startswith("OUT "):
            outputs = tuple(line.removeprefix("OUT ").split(", "))
        elif line and not line.startswith("#"):
            head, _, call = line.removeprefix("IN ").partition(" = ")
            own, _, kind = head.partition(": ")
            dtype, _, extents = kind.removesuffix("]").partition("[")
            shape = tuple(int(e) for e in extents.split(", ") if e)
            if not call:
                nodes.append(Node(own, dtype, shape))
                continue
            op, _, rest = call.partition("(")
            made = ast.parse(f"op({rest}", mode="eval").body
            result = int(ast.literal_eval(made.slice)) if isinstance(made, ast.Subscript) else None
            made = made.value if isinstance(made, ast.Subscript) else made
            assert isinstance(made, ast.Call)
            options = tuple((k.arg or "", _value(k.value)) for k in made.keywords)
            nodes.append(Node(own, dtype, shape, op, tuple(map(_value, made.args)), options, result))
    return Graph(name, tuple(nodes), outputs)


def graphs() -> list[Graph]:
    """All graphs of the folder."""
    return [parse(path.stem, path.read_text()) for path in sorted(FOLDER.glob("*.aten"))]


# -- taskfuse ---------------------------------------------------------------------------------------------------------------------------

UNARY = {
    **{
        n: n for n in ("neg", "exp", "log", "log1p", "log2", "expm1", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "erf", "abs", "sign", "relu", "silu")
    },
    **{n: n for n in ("sigmoid", "floor", "ceil", "logical_not", "isnan", "bitwise_not", "exp2", "trunc", "round", "isinf", "log10")},
    **{n: n for n in ("tan", "asin", "acos", "atan", "sinh", "cosh")},
    "clone": "copy",
    "alias": "copy",
    "detach": "copy",
    "lift_fresh_copy": "copy",
}
BINARY = {
    **{n: n for n in ("add", "sub", "mul", "div", "maximum", "minimum", "fmod", "remainder", "pow", "atan2", "bitwise_and", "bitwise_or", "bitwise_xor")},
    **{n: n for n in ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor")},
}
COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"}
SCALED = {"add", "sub", "mul", "div"}
"""Functions that torch computes of 16-bit floats and a number in float32."""
ACCUMULATED = {"bfloat16", "float16"}


class _Build:
    """The tensors of a fusion under construction."""

    def __init__(self, graph: Graph) -> None:
        self.tensors: dict[str, tf.TensorView] = {}
        self.kinds = {n.name: n for n in graph.nodes}
        self.several: dict[tuple[object, ...], Sequence[tf.TensorView]] = {}

    def of(self, arg: Any) -> Any:
        """An argument: a tensor, or what it is."""
        return self.tensors[arg.text] if isinstance(arg, Name) else arg

    def tensor(self, arg: Any) -> tf.TensorView:
        """An argument that is a tensor."""
        return self.tensors[arg.text]

    def shape(self, arg: Any) -> tuple[int, ...]:
        """The shape of an argument."""
        return self.kinds[arg.text].shape

    def dtype(self, arg: Any) -> str:
        """The dtype of an argument."""
        return self.kinds[arg.text].dtype


def _cast(x: Any, dtype: str) -> Any:
    return x if not isinstance(x, tf.TensorView) or str(x.dtype) == str(_dtype(dtype)) else tf.cast(x, _dtype(dtype))


def _dtype(name: str) -> Any:
    return tf.bool_ if name == "bool" else getattr(tf, name.removesuffix("fn"))  # torch's float8_e4m3fn is float8_e4m3


def _wide(dtype: str) -> str:
    """The dtype in which torch computes what it rounds to another one: an op of several steps rounds once, at its end."""
    return "float32" if dtype in ACCUMULATED else dtype


def _axes(b: _Build, arg: Any, dims: Any) -> tuple[int, ...]:
    rank = len(b.shape(arg))
    if dims is None or dims == ():
        return tuple(range(rank))
    each: tuple[int, ...] = (dims,) if isinstance(dims, int) else dims
    return tuple(d % rank for d in each) if rank else ()


def _binary(b: _Build, n: Node) -> tf.TensorView:
    name = n.op.split(".")[0]
    left, right = n.args[:2]
    alpha = dict(n.options).get("alpha", n.args[2] if len(n.args) > 2 and isinstance(n.args[2], int | float) else 1)
    if alpha != 1:  # the product is not rounded before it is added
        x, y = (_cast(b.of(a), _wide(n.dtype)) for a in (left, right))
        y = tf.mul(y, alpha) if isinstance(y, tf.TensorView) else y * alpha
        return _cast(getattr(tf, BINARY[name])(x, y), n.dtype)
    at = {b.dtype(a) for a in (left, right) if isinstance(a, Name)}
    kinds = [n.dtype] if name not in COMPARISONS else sorted(at, key=lambda d: ("float" in d, d))[-1:]
    if name in SCALED and any(isinstance(a, float) for a in (left, right)):  # a number is not rounded to 16 bits
        kinds = [_wide(n.dtype)]
    x, y = (_cast(b.of(a), kinds[0]) for a in (left, right))
    mode = dict(n.options).get("rounding_mode")
    if mode is not None:
        if mode.text != "floor":
            raise Unknown(f"{n.op} that rounds {mode.text}")
        return _cast(tf.floor_divide(x, y), n.dtype)
    if name == "pow" and isinstance(y, int | float) and y in (1, 2):
        return tf.square(x) if y == 2 else tf.copy(x)
    made = getattr(tf, BINARY[name])(x, y)
    return made if name in COMPARISONS else _cast(made, n.dtype)


def _reduced(b: _Build, n: Node, call: Callable[..., tf.TensorView], dims: Any, keep: Any) -> tf.TensorView:
    x = b.tensor(n.args[0])
    axes = _axes(b, n.args[0], dims)
    if not axes:
        return _cast(tf.copy(x), n.dtype)
    wide = x if b.dtype(n.args[0]) == n.dtype or call is tf.any else _cast(x, n.dtype)
    return _cast(call(wide, axes, keepdims=bool(keep)), n.dtype)


def _strided(b: _Build, n: Node) -> tf.TensorView:
    """A view by strides of a tensor that is dense: a slice of it, or all of it in another shape."""
    shape = b.shape(n.args[0])
    strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
    extents, wanted, offset = n.args[1], n.args[2], (*n.args[3:], 0)[0]
    if math.prod(extents) == math.prod(shape) and not offset and wanted == tuple(math.prod(extents[k + 1 :]) for k in range(len(extents))):
        return tf.reshape(b.tensor(n.args[0]), list(extents))
    if wanted != strides:
        raise Unknown(f"{n.op} by {wanted} of a tensor by {strides}")
    starts: list[int] = []
    for stride in strides:
        starts.append(offset // stride)
        offset %= stride
    return b.tensor(n.args[0])[tuple(slice(at, at + e) for at, e in zip(starts, n.shape, strict=True))]


def _sliced(b: _Build, n: Node) -> tf.TensorView:
    x, shape = b.tensor(n.args[0]), b.shape(n.args[0])
    given: list[int | None] = [*n.args[1:], *(0, 0, None, 1)[len(n.args) - 1 :]]
    axis = (given[0] or 0) % len(shape)
    stop = shape[axis] if given[2] is None else min(given[2], shape[axis])
    return x[tuple(slice(given[1], stop, given[3]) if k == axis else slice(None) for k in range(len(shape)))]


def _padded(b: _Build, n: Node) -> tf.TensorView:
    """Zeros, or another value, around a tensor; where a width is negative, a slice of it."""
    shape, value = b.shape(n.args[0]), (*n.args[2:], 0)[0]
    pairs = list(zip(n.args[1][::2], n.args[1][1::2], strict=True))[::-1]
    widths: list[tuple[int, int]] = [(0, 0)] * (len(shape) - len(pairs)) + pairs
    x = b.tensor(n.args[0])
    if any(w < 0 for pair in widths for w in pair):
        x = x[tuple(slice(max(-low, 0), extent - max(-high, 0)) for (low, high), extent in zip(widths, shape, strict=True))]
    return tf.pad(x, [(max(low, 0), max(high, 0)) for low, high in widths], value)


def _variance(b: _Build, n: Node) -> tf.TensorView:
    options = dict(n.options)
    dims = n.args[1] if len(n.args) > 1 else options.get("dim")
    keep = n.args[2] if len(n.args) > 2 else options.get("keepdim", False)
    given = options.get("correction")
    correction = 1 if given is None else int(given)

    def call(x: tf.TensorView, axes: tuple[int, ...], *, keepdims: bool) -> tf.TensorView:
        return tf.var(x, axes, keepdims=keepdims, correction=correction)

    return _reduced(b, n, call, dims, keep)


def _into_slice(b: _Build, n: Node) -> tf.TensorView:
    """A tensor with another one in a slice of it."""
    shape = b.shape(n.args[0])
    given: list[Any] = [*n.args[2:], *(0, None, None, 1)[len(n.args) - 2 :]]
    axis: int = given[0] % len(shape)
    extent = shape[axis]
    start, stop, step = slice(given[1], given[2], given[3]).indices(extent)
    x, y = b.tensor(n.args[0]), b.tensor(n.args[1])

    def part(low: int, high: int) -> tf.TensorView:
        return x[tuple(slice(low, high) if k == axis else slice(None) for k in range(len(shape)))]

    if step == 1:
        parts = [part(0, start)] * (start > 0) + [y] + [part(stop, extent)] * (stop < extent)
        return tf.cat(parts, axis) if len(parts) > 1 else tf.copy(y)
    rank, count = len(shape), b.shape(n.args[1])[axis]
    wide = tf.pad(tf.expand_dims(y, axis + 1), [(0, step - 1 if k == axis + 1 else 0) for k in range(rank + 1)])
    spread = tf.reshape(wide, [count * step if k == axis else e for k, e in enumerate(shape)])
    within = spread[tuple(slice(0, min(count * step, extent - start)) if k == axis else slice(None) for k in range(rank))]
    whole = tf.pad(within, [(start, max(extent - start - count * step, 0)) if k == axis else (0, 0) for k in range(rank)])
    place = tf.sub(tf.arange(extent), start)
    inside = tf.logical_and(tf.logical_and(tf.ge(place, 0), tf.lt(place, stop - start)), tf.eq(tf.remainder(place, step), 0))
    return tf.where(_along(inside, axis, shape), whole, x)


def _along(x: tf.TensorView, axis: int, shape: tuple[int, ...]) -> tf.TensorView:
    """A tensor of one axis as one of ``shape``, all of whose other axes are alike."""
    return tf.broadcast_to(tf.reshape(x, [shape[axis] if k == axis else 1 for k in range(len(shape))]), list(shape))


def _into_index(b: _Build, n: Node) -> tf.TensorView:
    """A tensor with another one at an index along an axis."""
    shape = b.shape(n.args[0])
    axis: int = n.args[2] % len(shape)
    here = _along(tf.eq(tf.arange(shape[axis]), n.args[3] % shape[axis]), axis, shape)
    y = tf.reshape(b.tensor(n.args[1]), [1 if k == axis else e for k, e in enumerate(shape)])
    return tf.where(here, tf.broadcast_to(y, list(shape)), b.tensor(n.args[0]))


def _into_diagonal(b: _Build, n: Node) -> tf.TensorView:
    """A matrix with a vector on its diagonal."""
    rows, columns = b.shape(n.args[0])
    if n.args[2:] not in ((), (0,), (0, 0, 1)) or n.options or rows != columns:
        raise Unknown(f"{n.op} beside the diagonal of a square matrix")
    here = tf.eq(tf.reshape(tf.arange(rows), [rows, 1]), tf.arange(columns))
    return tf.where(here, tf.broadcast_to(tf.reshape(b.tensor(n.args[1]), [rows, 1]), [rows, columns]), b.tensor(n.args[0]))


def _several(b: _Build, n: Node) -> Sequence[tf.TensorView]:
    """The results of an op of several."""
    name, a, options = n.op.split(".")[0], n.args, dict(n.options)
    x = b.tensor(a[0])

    def given(position: int, keyword: str, default: Any) -> Any:
        return a[position] if len(a) > position else options.get(keyword, default)

    match name:
        case "max" | "min":
            axis, keep = a[1], bool(given(2, "keepdim", False))
            extreme, place = (tf.max, tf.argmax) if name == "max" else (tf.min, tf.argmin)
            return extreme(x, axis, keepdims=keep), place(x, axis, keepdims=keep)
        case "topk":
            return tf.topk(x, a[1], given(2, "dim", -1), largest=bool(given(3, "largest", True)))
        case "sort":
            axis, down = given(1, "dim", -1), bool(given(2, "descending", False))
            return tf.sort_with_indices(x, axis, descending=down)
        case "var_mean":
            dims = _axes(b, a[0], given(1, "dim", None))
            return tf.var_mean(x, dims, keepdims=bool(given(3, "keepdim", False)), correction=int(options.get("correction", 1)))
        case "split" | "split_with_sizes":
            axis: int = given(2, "dim", 0)
            each: int | tuple[int, ...] = a[1]
            extent = b.shape(a[0])[axis]
            sizes = tuple(min(each, extent - k) for k in range(0, extent, each)) if isinstance(each, int) else each
            ends = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
            return [x[(*[slice(None)] * (axis % x.ndim), slice(i, j))] for i, j in itertools.pairwise(ends)]
        case "unbind":
            along: int = given(1, "dim", 0) % x.ndim
            return [x[(*[slice(None)] * along, k)] for k in range(b.shape(a[0])[along])]
        case _:
            raise Unknown(n.op)


def _made(b: _Build, n: Node) -> tf.TensorView:
    if n.result is not None:
        key = n.op, n.args, n.options
        if key not in b.several:
            b.several[key] = _several(b, n)
        return b.several[key][n.result]
    name, a = n.op.split(".")[0], n.args
    if name in UNARY:
        kept = b.tensor(a[0]) if name in ("logical_not", "isnan", "isinf", "bitwise_not") else _cast(b.tensor(a[0]), n.dtype)
        return getattr(tf, UNARY[name])(kept)
    if name in BINARY:
        return _binary(b, n)
    match name:
        case "_to_copy" | "convert_element_type":
            return tf.cast(b.tensor(a[0]), _dtype(n.dtype))
        case "gelu":
            return tf.gelu_tanh(b.tensor(a[0])) if dict(n.options).get("approximate") == Name("tanh") else tf.gelu(b.tensor(a[0]))
        case "where":
            return tf.where(b.of(a[0]), _cast(b.of(a[1]), n.dtype), _cast(b.of(a[2]), n.dtype))
        case "clamp" | "clamp_min" | "clamp_max" | "hardtanh":
            low, high = (*a[1:], None)[:2] if name != "clamp_max" else (None, a[1])
            x = b.tensor(a[0])
            x = x if low is None else tf.maximum(x, b.of(low))
            return x if high is None else tf.minimum(x, b.of(high))
        case "sum" | "mean" | "prod" | "amax" | "amin" | "any" | "all":
            call = {"amax": tf.max, "amin": tf.min}.get(name) or getattr(tf, name)
            dims, keep = (*a[1:], *(None, False)[len(a) - 1 :])[:2]
            return _reduced(b, n, call, dims, keep)
        case "as_strided":
            return _strided(b, n)
        case "linalg_vector_norm":
            order, dims, keep = (*a[1:], *(2, None, False)[len(a) - 1 :])
            return tf.vector_norm(b.tensor(a[0]), cast("float", order), _axes(b, a[0], dims), keepdims=bool(keep))
        case "argmax" | "argmin":
            return getattr(tf, name)(b.tensor(a[0]), a[1], keepdims=bool((*a[2:], False)[0]))
        case "var":
            return _variance(b, n)
        case "leaky_relu":
            return tf.leaky_relu(b.tensor(a[0]), *a[1:])
        case "elu":
            alpha, scale, inner = (*a[1:], *(1, 1, 1)[len(a) - 1 :])
            x = _cast(b.tensor(a[0]), _wide(n.dtype))
            negative = tf.mul(tf.expm1(x if inner == 1 else tf.mul(x, inner)), alpha)
            found = tf.where(tf.gt(x, 0), x, negative)
            return _cast(found if scale == 1 else tf.mul(found, scale), n.dtype)
        case "bitwise_right_shift" | "__rshift__":
            return tf.right_shift(_cast(b.tensor(a[0]), n.dtype), b.of(a[1]))
        case "bitwise_left_shift" | "__lshift__":
            return tf.left_shift(_cast(b.tensor(a[0]), n.dtype), b.of(a[1]))
        case "mm" | "bmm":
            return tf.matmul(b.tensor(a[0]), b.tensor(a[1]))
        case "view" | "reshape" | "_unsafe_view":
            return tf.reshape(b.tensor(a[0]), list(n.shape))
        case "permute":
            return tf.permute(b.tensor(a[0]), list(a[1]))
        case "t" | "transpose":
            rank = len(n.shape)
            order = list(range(rank))
            i, j = (a[1] % rank, a[2] % rank) if name == "transpose" else (rank - 1, 0)
            order[i], order[j] = order[j], order[i]
            return tf.permute(b.tensor(a[0]), order)
        case "expand":
            return tf.broadcast_to(b.tensor(a[0]), list(n.shape))
        case "unsqueeze" | "squeeze":
            return tf.reshape(b.tensor(a[0]), list(n.shape))
        case "slice":
            return _sliced(b, n)
        case "select":
            rank = len(b.shape(a[0]))
            axis: int = a[1] % rank
            at: int = a[2] % b.shape(a[0])[axis]
            return b.tensor(a[0])[tuple(at if k == axis else slice(None) for k in range(rank))]
        case "cat":
            return tf.cat([_cast(b.tensor(x), n.dtype) for x in a[0] if b.shape(x) != (0,)], (*a[1:], 0)[0])
        case "stack":
            return tf.stack([b.tensor(x) for x in a[0]], (*a[1:], 0)[0])
        case "copy":
            return _cast(tf.broadcast_to(b.tensor(a[1]), list(n.shape)), n.dtype)
        case "flip":
            x = b.tensor(a[0])
            for axis in a[1]:
                x = tf.flip(x, axis)
            return x
        case "cumsum" | "cumprod":
            return getattr(tf, name)(b.tensor(a[0]), a[1])
        case "full" | "scalar_tensor" | "full_like":
            return tf.full(list(n.shape), a[0] if name == "scalar_tensor" else a[1], dtype=_dtype(n.dtype))
        case "zeros_like" | "zeros" | "ones_like" | "ones" | "new_empty_strided":  # of the last every element is written before it is read
            return tf.full(list(n.shape), int(name.startswith("ones")), dtype=_dtype(n.dtype))
        case "arange":
            numbers = [x for x in a if not isinstance(x, Name)]
            start, step = (numbers[0] if len(numbers) > 1 else 0), (numbers[2] if len(numbers) > 2 else 1)
            return tf.cast(tf.add(tf.mul(tf.arange(n.shape[0]), step), start), _dtype(n.dtype))
        case "gather":
            return tf.take_along_axis(b.tensor(a[0]), b.tensor(a[2]), a[1])
        case "index" if sum(x is not None for x in a[1]) == 1:
            axis = next(k for k, x in enumerate(a[1]) if x is not None)
            return tf.take(b.tensor(a[0]), b.tensor(a[1][axis]), axis)
        case "index_select":
            return tf.take(b.tensor(a[0]), b.tensor(a[2]), a[1])
        case "scatter" | "scatter_add":
            return getattr(tf, name)(b.tensor(a[0]), a[1], b.tensor(a[2]), _cast(b.of(a[3]), n.dtype) if isinstance(a[3], Name) else a[3])
        case "scatter_reduce" if dict(n.options).get("include_self", True):
            return tf.scatter_reduce(b.tensor(a[0]), a[1], b.tensor(a[2]), _cast(b.tensor(a[3]), n.dtype), a[4])
        case "index_add" if not n.options:
            return tf.index_add(b.tensor(a[0]), a[1], b.tensor(a[2]), _cast(b.tensor(a[3]), n.dtype))
        case "index_put":
            indices = [None if x is None else b.tensor(x) for x in a[1]]
            return tf.index_put(b.tensor(a[0]), indices, _cast(b.tensor(a[2]), n.dtype), bool((*a[3:], False)[0]))
        case "embedding_dense_backward" if not a[4]:
            numbers = b.tensor(a[1])
            kept = numbers if a[3] < 0 else tf.where(tf.eq(numbers, a[3]), a[2], numbers)  # the row of the padding gets nothing
            gradient = tf.reshape(b.tensor(a[0]), [-1, n.shape[1]])
            return _cast(tf.segment_sum(gradient, tf.reshape(kept, [-1]), a[2]), n.dtype)
        case "constant_pad_nd":
            return _padded(b, n)
        case "diagonal":
            return tf.diagonal(b.tensor(a[0]), *a[1:])
        case "slice_scatter":
            return _into_slice(b, n)
        case "select_scatter":
            return _into_index(b, n)
        case "diagonal_scatter":
            return _into_diagonal(b, n)
        case _:
            raise Unknown(n.op)


def fusion(graph: Graph) -> tf.Fusion:
    """The graph as a fusion that nobody scheduled.

    Raises:
        Unknown: an op that this reader does not know.
        TaskfuseError: what taskfuse says of the math.
    """
    b = _Build(graph)
    with tf.Fusion(graph.name) as made:
        for n in graph.nodes:
            b.tensors[n.name] = _made(b, n) if n.op else tf.define_tensor(list(n.shape), dtype=_dtype(n.dtype), name=n.name)
        for name in graph.outputs:
            made.add_output(b.tensors[name])
    return made


# -- torch ------------------------------------------------------------------------------------------------------------------------------


MADE = ("full", "scalar_tensor", "arange", "zeros", "ones")
"""Ops that make a tensor of nothing: it lies where the inputs do."""


def torch_function(graph: Graph, *, exact: bool = False) -> Callable[..., Any]:
    """The graph as a function of torch tensors, op by op; ``exact``: every float is a float64, those of the arguments, too.

    A module of ``torch.fx``: code of its own for each graph, without any look at the graph. A function that walks over the nodes would have
    ``torch.compile`` trace this walk, and check at each call that no node has changed.
    """
    torch: Any = __import__("torch")
    fx: Any = __import__("torch.fx").fx
    made: dict[str, Any] = {}

    def value(arg: Argument) -> Any:
        match arg:
            case Name(text=text) if text in made:
                return made[text]
            case Name(text=text):
                kind: Any = getattr(torch, text, None)
                if not isinstance(kind, torch.dtype):
                    return text  # a word, such as how a division rounds
                return torch.float64 if exact and kind.is_floating_point else kind
            case tuple():
                return [value(x) for x in cast("Arguments", arg)]
            case _:
                return arg

    code = fx.Graph()
    arrays = [code.placeholder(n.name) for n in graph.inputs]
    made.update((n.name, array) for n, array in zip(graph.inputs, arrays, strict=True))
    device = code.call_function(getattr, (arrays[0], "device")) if arrays else "cuda"
    for n in graph.nodes:
        if n.op:
            name, _, overload = n.op.partition(".")
            options = {k: "none" if k == "approximate" and v is None else value(v) for k, v in n.options}
            args = [value(x) for x in n.args]
            if name in MADE:
                options["device"] = device
            if name == "clone":  # the graph was traced with the strides that this gives
                made[n.name] = code.call_function(row_major, (args[0],))
            elif name == "view":
                made[n.name] = code.call_method("reshape", (args[0], args[1]))
            else:
                found = code.call_function(getattr(getattr(torch.ops.aten, name), overload or "default"), tuple(args), options)
                made[n.name] = found if n.result is None else code.call_function(operator.getitem, (found, n.result))
    code.output(tuple(made[name] for name in graph.outputs))
    return cast("Callable[..., Any]", fx.GraphModule(torch.nn.Module(), code))


def row_major(x: Any) -> Any:
    """A copy of a tensor, or of a strided one as a row-major one."""
    return x.clone() if x.is_contiguous() else x.contiguous()
