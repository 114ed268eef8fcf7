"""The table of ops: what is made from it, and what it claims."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import taskfuse as tf
from taskfuse import ops
from taskfuse.dtypes import DTYPES, DType, bool_, float8_e4m3, float32, float64, int32
from taskfuse.errors import DTypeError, TaskfuseError
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.registry import OPS, OpKind
from tests.derived import elementwise_module, ops_page
from tests.golden import Golden

ROOT = Path(__file__).parent.parent.parent


def test_what_is_made_from_the_rows(golden: Golden) -> None:
    here = replace(golden, folder=ROOT)
    here.check("taskfuse/ops/elementwise.py", elementwise_module())
    here.check("docs/ops.md", ops_page())


def test_every_public_name_of_the_ops_has_a_row_and_every_row_is_public() -> None:
    assert set(ops.__all__) - {"supports", "CatForm"} == OPS.keys()
    public = tf.__all__
    assert set(ops.__all__) <= set(public)
    assert len(set(public)) == len(public)
    for name, row in OPS.items():
        assert getattr(tf, name) is row.function
        assert row.doc
    assert all(hasattr(tf, name) for name in public)


def test_no_name_of_torch_belongs_to_two_ops() -> None:
    names = [name for row in OPS.values() for name in row.torch]
    assert len(set(names)) == len(names)


def spread(join: Callable[[Sequence[TensorView]], TensorView]) -> Callable[..., TensorView]:
    """A function of a sequence of tensors as one of each of them."""

    def joined(*tensors: TensorView) -> TensorView:
        return join(tensors)

    return joined


def _wide(x: TensorView) -> tf.DType:
    return tf.float64 if x.dtype is tf.float64 else tf.float32


ON_ONE: dict[str, Callable[[TensorView], TensorView]] = {
    "full_like": lambda x: tf.full_like(x, 1),
    "pad": lambda x: tf.pad(x, [(1, 0), (0, 1)]),
    "slice": lambda x: tf.slice(x, [0, 0], [1, 1]),
    "broadcast_to": lambda x: tf.broadcast_to(x, [3, 2, 2]),
    "expand_dims": lambda x: tf.expand_dims(x, 0),
    "permute": lambda x: tf.permute(x, [1, 0]),
    "reshape": lambda x: tf.reshape(x, [4]),
    "one_hot": lambda at: tf.one_hot(at, 3),
    "swapaxes": lambda x: tf.swapaxes(x, 0, 1),
    "moveaxis": lambda x: tf.moveaxis(x, 0, 1),
    "chunk": lambda x: tf.chunk(x, 2)[0],
    "split": lambda x: tf.split(x, sections=2)[0],
    "narrow": lambda x: tf.narrow(x, 0, 0, 1),
    "unfold": lambda x: tf.unfold(x, 0, 2),
    "as_strided": lambda x: tf.as_strided(x, [2], [2]),
    "repeat": lambda x: tf.repeat(x, 2),
    "tile": lambda x: tf.tile(x, 2),
    "roll": lambda x: tf.roll(x, 1),
    "jagged_to_padded_dense": lambda x: tf.jagged_to_padded_dense(x, tf.table("offsets", 3, high=2), 2),
    "bincount": lambda at: tf.bincount(at[0], 3),
    "fold": lambda x: tf.fold("maximum", x),
    "scaled_dot_product_attention": lambda x: tf.scaled_dot_product_attention(x, x, x),
    "scaled_dot_product_attention_backward": lambda x: tf.scaled_dot_product_attention_backward(x, x, x, x, x, tf.cast(x[:, 0], _wide(x)))[0],
    "varlen_attention": lambda x: varlen(tf.reshape(x, [2, 1, 2]), tf.table("cuts", 2, high=2, rising=True)),
    "paged_attention": lambda x: paged(tf.reshape(x, [1, 1, 2, 2]), tf.reshape(x, [1, 2, 1, 2])),
    "associative_scan": lambda x: tf.associative_scan(tf.maximum, x)[0],
    "segmented_cumsum": lambda x: tf.segmented_cumsum(x, tf.ne(x, 0)),
    "var_mean": lambda x: tf.var_mean(x)[0],
    "topk": lambda x: tf.topk(x, 1)[0],
    "kthvalue": lambda x: tf.kthvalue(x, 1)[0],
    "median": lambda x: tf.median(x, 0)[0],
    "cummax_with_indices": lambda x: tf.cummax_with_indices(x, 0)[0],
    "cummin_with_indices": lambda x: tf.cummin_with_indices(x, 0)[0],
    "histc": lambda x: tf.histc(x, 3, 0, 1),
    "nonzero": lambda x: tf.nonzero(x, 3),
    "avg_pool": lambda x: tf.avg_pool(x, [2]),
    "max_pool": lambda x: tf.max_pool(x, [2]),
    "max_pool_with_indices": lambda x: tf.max_pool_with_indices(x, [2])[0],
    "adaptive_avg_pool": lambda x: tf.adaptive_avg_pool(x, [1]),
    "adaptive_max_pool": lambda x: tf.adaptive_max_pool(x, [1]),
    "adaptive_max_pool_with_indices": lambda x: tf.adaptive_max_pool_with_indices(x, [1])[0],
    "interpolate": lambda x: tf.interpolate(x, [4]),
    "dropout": lambda x: tf.dropout(x, 0.5, 0),
    "bernoulli": lambda x: tf.bernoulli(x, 0),
    "sort_with_indices": lambda x: tf.sort_with_indices(x)[0],
    "group_norm": lambda x: tf.group_norm(x, 1),
    "instance_norm": lambda x: tf.instance_norm(tf.reshape(x, [1, 2, 2])),
    "batch_norm": lambda x: tf.batch_norm(x, x[0], x[0]),
    "interp": lambda x: tf.interp(x, x[0], x[1]),
    "polygamma": lambda x: tf.polygamma(1, x),
    "mvlgamma": lambda x: tf.mvlgamma(x, 2),
    "threshold": lambda x: tf.threshold(x, 0, 1),
    "nanmedian": lambda x: tf.nanmedian(x, 0)[0],
    "aminmax": lambda x: tf.aminmax(x)[0],
    "quantile": lambda x: tf.quantile(x, 0.5),
    "hstack": spread(tf.hstack),
    "vstack": spread(tf.vstack),
    "dstack": spread(tf.dstack),
    "column_stack": spread(tf.column_stack),
    "meshgrid": lambda x: tf.meshgrid(x[0])[0],
    "unbind": lambda x: tf.unbind(x)[0],
    "pixel_shuffle": lambda x: tf.pixel_shuffle(tf.reshape(x, [4, 1, 1]), 2),
    "pixel_unshuffle": lambda x: tf.pixel_unshuffle(tf.reshape(x, [1, 2, 2]), 2),
    "channel_shuffle": lambda x: tf.channel_shuffle(x, 2),
}
ON_TWO: dict[str, Callable[[TensorView, TensorView], TensorView]] = {
    "grid_sample": lambda x, grid: tf.grid_sample(tf.reshape(x, [1, 1, 2, 2]), tf.reshape(grid, [1, 2, 1, 2])),
    "bucketize": lambda x, table: tf.bucketize(x, table[0]),
    "addcmul": lambda a, b: tf.addcmul(a, b, b),
    "addcdiv": lambda a, b: tf.addcdiv(a, b, b),
    "convolve": lambda a, b: tf.convolve(a[0], b[0]),
    "conv1d": lambda x, w: tf.conv1d(tf.reshape(x, [1, 2, 2]), tf.reshape(w, [2, 2, 1])),
    "conv2d": lambda x, w: tf.conv2d(tf.reshape(x, [1, 2, 2, 1]), tf.reshape(w, [2, 2, 1, 1])),
    "conv3d": lambda x, w: tf.conv3d(tf.reshape(x, [1, 2, 2, 1, 1]), tf.reshape(w, [2, 2, 1, 1, 1])),
    "diagonal_scatter": lambda a, b: tf.diagonal_scatter(a, b[0]),
    "cross": lambda a, b: tf.cross(tf.cat([a, a], 0)[:3], tf.cat([b, b], 0)[:3], 0),
    "addmm": lambda a, b: tf.addmm(a, b, b),
    "baddbmm": lambda a, b: tf.baddbmm(tf.reshape(a, [1, 2, 2]), tf.reshape(b, [1, 2, 2]), tf.reshape(b, [1, 2, 2])),
    "nll_loss": lambda x, t: tf.nll_loss(x, t[0]),
    "cross_entropy": lambda x, t: tf.cross_entropy(x, t[0]),
    "searchsorted": lambda x, y: tf.searchsorted(x[0], y),
    "take": lambda x, at: tf.take(x, at, axis=0),
    "take_along_axis": lambda x, at: tf.take_along_axis(x, at, axis=0),
    "gather": lambda x, at: tf.gather(x, 0, at),
    "scatter": lambda x, at: tf.scatter(x, 0, at, True),
    "scatter_add": lambda x, at: tf.scatter_add(x, 0, at, True),
    "scatter_reduce": lambda x, at: tf.scatter_reduce(x, 0, at, True, "amax"),
    "index_add": lambda x, at: tf.index_add(x, 0, at[0], x),
    "index_put": lambda x, at: tf.index_put(x, [at], x[:1], accumulate=False),
    "segment_sum": lambda x, at: tf.segment_sum(x, at[0], 3),
    "masked_fill": lambda x, mask: tf.masked_fill(x, mask, False),
    "bmm": lambda a, b: tf.bmm(tf.reshape(a, [1, 2, 2]), tf.reshape(b, [1, 2, 2])),
    "scaled_matmul": lambda a, b: tf.scaled_matmul(a, b, tf.define_tensor((), dtype=float32), tf.define_tensor((), dtype=float32)),
    "grouped_matmul": lambda a, b: tf.grouped_matmul(a, tf.reshape(b, [1, 2, 2]), tf.table("offsets", 2, 2, rising=True)),
    "grouped_matmul_masked": lambda a, b: tf.grouped_matmul_masked(tf.reshape(a, [1, 2, 2]), tf.reshape(b, [1, 2, 2]), tf.table("counts", 1, 2)),
    "grouped_matmul_tiled": lambda a, b: tf.grouped_matmul_tiled(a, tf.reshape(b, [1, 2, 2]), tf.table("groups", 2, 0, low=-1), tile=2),
    "grouped_matmul_aligned": lambda a, b: tf.grouped_matmul_aligned(a, tf.reshape(b, [1, 2, 2]), tf.table("ends", 2, 2), tile=2),
}
# How each op that is not an elementwise function is called on tensors [2, 2] of some dtypes.
CALLS: dict[str, Callable[..., Any]] = {
    **{name: getattr(tf, name) for name in ("sum", "prod", "max", "min", "any", "all", "mean", "var", "std", "argmax", "argmin", "softmax", "log_softmax")},
    **{name: getattr(tf, name) for name in ("layer_norm", "rms_norm", "squeeze", "transpose", "flip", "full_like", "zeros_like", "ones_like", "matmul")},
    **{name: getattr(tf, name) for name in ("cumsum", "cumprod", "cummax", "cummin")},
    **ON_ONE,
    **ON_TWO,
    "einsum": lambda *x: tf.einsum(",".join(["ij"] * len(x)) + "->ij", *x),
    "cat": spread(tf.cat),
    "stack": spread(tf.stack),
}
OPERANDS = {
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce", "index_add", "index_put", "segment_sum"), 2),
    "masked_fill": 2,
    "trunc_divide": 2,
    **dict.fromkeys(
        ("xlogy", "xlog1py", "logaddexp2", "heaviside", "lcm", "convolve", "linear", "isin", "bucketize", "isclose", "prelu", "conv1d", "conv2d", "conv3d"), 2
    ),
    **dict.fromkeys(("grid_sample", "cosine_similarity", "addmm", "addcmul", "addcdiv", "baddbmm", "inner", "vdot", "tensordot", "kron", "cross"), 2),
    "diagonal_scatter": 2,
    **dict.fromkeys(("cdist", "hstack", "vstack", "dstack", "column_stack"), 2),
    **dict.fromkeys(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "nll_loss", "cross_entropy"), 2),
    **dict.fromkeys(("binary_cross_entropy", "binary_cross_entropy_with_logits"), 2),
    "searchsorted": 2,
    "logical_right_shift": 2,
    "dot": 2,
    "decayed_sum": 2,
    "linear_recurrence": 2,
    "bmm": 2,
    "outer": 2,
    "matmul": 2,
    "grouped_matmul": 2,
    "scaled_matmul": 2,
    "grouped_matmul_masked": 2,
    "grouped_matmul_tiled": 2,
    "grouped_matmul_aligned": 2,
    "einsum": 2,
    "cat": 2,
    "stack": 2,
    "take": 2,
    "take_along_axis": 2,
    "gather": 2,
}


def varlen(x: TensorView, cuts: TensorView) -> TensorView:
    return tf.varlen_attention(x, x, x, cuts, cuts)


def paged(query: TensorView, keys: TensorView) -> TensorView:
    return tf.paged_attention(query, keys, keys, tf.table("pages", 1, high=0), tf.table("lengths", 1, high=2))


MADE = {name for name, row in OPS.items() if row.kind is OpKind.CREATION and not name.endswith("_like")}


def called(name: str, dtypes: tuple[DType, ...]) -> DType | None:
    """The dtype that a call really gives; ``None``: it refuses."""
    if name == "cast":
        return dtypes[0]
    with tf.Fusion("f"):
        tensors = [tf.define_tensor([2, 2], dtype=d) for d in dtypes]
        try:
            return (CALLS[name] if name in CALLS else getattr(tf, name))(*tensors).dtype
        except DTypeError:
            return None


def operands(name: str) -> int:
    row = ELEMENTWISE.get(name)
    return row.arity if row is not None else OPERANDS.get(name, 1)


@pytest.mark.parametrize("name", [name for name, row in OPS.items() if row.kind is not OpKind.MISSING and name not in MADE])
def test_the_dtypes_of_results_are_those_of_the_table(name: str) -> None:
    count = operands(name)
    choices = [(d,) for d in DTYPES.values()] if count == 1 else [(a, *[b] * (count - 1)) for a in DTYPES.values() for b in (a, bool_, int32, float32)]
    for dtypes in choices:
        expected = OPS[name].result(dtypes)
        assert called(name, dtypes) is expected, dtypes
        assert tf.supports(name, *dtypes) is (expected is not None)


def test_names_of_torch() -> None:
    for name in ("exp", "torch.exp", "aten::exp", "aten.exp.default", "torch.ops.aten.exp.default", "clip", "torch.special.expit", "torch.nn.functional.gelu"):
        assert tf.supports(name), name
    for name in ("unique", "torch.unique", "exp_", "aten.exp_", "torch.frobnicate", "numpy.exp", "torch", ""):
        assert not tf.supports(name), name
    assert tf.supports("aten._softmax", float32)
    assert tf.supports("torch.cummax")
    assert tf.supports("cummax")


def test_functions() -> None:
    def packet() -> None: ...

    packet.__name__ = "clip.default"
    assert tf.supports(tf.exp, float64)
    assert tf.supports(packet, "int8")
    assert not tf.supports(tf.unique)
    assert not tf.supports(tf.neg, bool)


def test_dtypes_of_others() -> None:
    class Torch:
        def __init__(self, name: str) -> None:
            self.name = name

        def __str__(self) -> str:
            return f"torch.{self.name}"

    assert tf.supports("exp", Torch("float8_e4m3fn"), float8_e4m3)
    assert not tf.supports("left_shift", Torch("float16"))
    with pytest.raises(TaskfuseError, match="is complex: no dtype of taskfuse is"):
        tf.supports("exp", Torch("complex64"))
