"""The graphs of benchmarks/graphs: every one is read, and the fusion that is built of it has the tensors that the graph says."""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import taskfuse as tf

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.aten import Graph, Unknown, fusion, graphs, parse


@cache
def by_name() -> dict[str, Graph]:
    return {g.name: g for g in graphs()}


def built(graph: Graph) -> tf.Fusion:
    """The fusion of a graph, whose outputs are of the shapes and dtypes that were traced."""
    made = fusion(graph)
    wanted = {n.name: n for n in graph.nodes}
    for tv, name in zip(made.outputs, graph.outputs, strict=True):
        node = wanted[name]
        assert tuple(int(e) for e in tv.shape) == node.shape, name
        assert tv.dtype.name == node.dtype, name
    return made


def test_there_are_270() -> None:
    assert len(by_name()) == 270


def test_what_is_read_has_the_tensors_of_the_graph() -> None:
    for graph in by_name().values():
        built(graph)


@pytest.mark.parametrize("name", ["rotary_bwd0_1", "deberta_fwd0_8", "contrastive_bwd0_3"])
def test_small_ones_compile(name: str) -> None:
    assert all(c.is_proved for c in tf.compile(built(by_name()[name]), backend="sim").certificates)


def test_a_text() -> None:
    graph = parse("g", "IN v0: float32[4, 6]\nv1: float32[4, 1] = sum.dim_IntList(v0, [1], true)\nv2: float32[4, 6] = sub.Tensor(v0, v1, alpha=2)\nOUT v2, v1")
    assert [n.name for n in graph.inputs] == ["v0"]
    assert graph.nodes[1].args[1:] == ((1,), True)
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    found = built(graph).evaluate(x)
    np.testing.assert_allclose(found[0], x - 2 * x.sum(1, keepdims=True))
    np.testing.assert_allclose(found[1], x.sum(1, keepdims=True))


def test_eight_bits_of_a_float() -> None:
    graph = parse("g", "IN v0: float32[4]\nv1: float8_e4m3fn[4] = _to_copy(v0, dtype=float8_e4m3fn)\nOUT v1")
    (found,) = fusion(graph).evaluate(np.array([1.06, -3, 448, 0], np.float32))
    assert found.astype(np.float32).tolist() == [1.0, -3.0, 448.0, 0.0]


def test_an_op_that_is_not_known_is_said() -> None:
    with pytest.raises(Unknown, match=r"convolution"):
        fusion(parse("g", "IN v0: float32[4]\nv1: float32[4] = convolution(v0)\nOUT v1"))


M = np.arange(20, dtype=np.float32).reshape(4, 5) - 7
OPS = {
    "atan.default(v0)": np.arctan(M),
    "sinh.default(v0)": np.sinh(M),
    "var.correction(v0, [1], correction=0, keepdim=true)": M.var(1, keepdims=True),
    "var.correction(v0, [0])": M.var(0, ddof=1),
    "var.correction(v0, [0], correction=1.0)": M.var(0, ddof=1),
    "pow.Tensor_Scalar(v0, 1.0)": M,
    "leaky_relu.default(v0, 0.2)": np.where(M > 0, M, M * np.float32(0.2)),
    "elu.default(v0, 2.0, 3.0, 0.5)": 3 * np.where(M > 0, M, 2 * np.expm1(M * 0.5)),
    "constant_pad_nd.default(v0, [-1, 2, 0, -1], 9.0)": np.pad(M[:3, 1:], ((0, 0), (0, 2)), constant_values=9),
    "diagonal.default(v0, 1)": np.diagonal(M, 1),
    "div.Tensor_mode(v0, 2, rounding_mode=floor)": np.floor(M / 2),
}
WIDE = np.zeros((4, 5), np.float32)
INTO = {  # v1 is put into v0
    "slice_scatter.default(v0, v1, 1, 1, 5, 2)": ((slice(None), slice(1, None, 2)), M[:, :2]),
    "slice_scatter.default(v0, v1, 1, 1, 3)": ((slice(None), slice(1, 3)), M[:, :2]),
    "slice_scatter.default(v0, v1, 1, 3)": ((slice(None), slice(3, None)), M[:, :2]),
    "slice_scatter.default(v0, v1, 1, 0, 9223372036854775807, 2)": ((slice(None), slice(0, None, 2)), M[:, :3]),
    "slice_scatter.default(v0, v1)": ((slice(None),), M),
    "slice_scatter.default(v0, v1, 0, -1)": ((slice(-1, None),), M[:1]),
    "select_scatter.default(v0, v1, 1, -2)": ((slice(None), -2), M[:, 0]),
    "diagonal_scatter.default(v0, v1)": (np.diag_indices(4), M[0, :4]),
}


def evaluated(call: str, *arrays: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """What a graph of one op computes."""
    inputs = "".join(f"IN v{k}: {a.dtype}[{', '.join(map(str, a.shape))}]\n" for k, a in enumerate(arrays))
    graph = parse("g", f"{inputs}v9: {arrays[0].dtype}[{', '.join(map(str, shape))}] = {call}\nOUT v9")
    with np.errstate(all="ignore"):
        return np.asarray(built(graph).evaluate(*arrays)[0])


@pytest.mark.parametrize("call", OPS)
def test_an_op(call: str) -> None:
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(evaluated(call, M, shape=OPS[call].shape), OPS[call], rtol=1e-5)


SHORT = (np.linspace(-2, 3, 320).reshape(4, 80) ** 3).astype(ml_dtypes.bfloat16)
ONCE: dict[str, Callable[[Any], Any]] = {  # what they are of float64
    "linalg_vector_norm.default(v0, 2, [1], true)": lambda x: np.sqrt(np.square(x).sum(1, keepdims=True)),
    "linalg_vector_norm.default(v0, 1, [1], true)": lambda x: np.abs(x).sum(1, keepdims=True),
    "elu.default(v0, 1.5, 0.7)": lambda x: 0.7 * (np.maximum(x, 0) + 1.5 * np.expm1(np.minimum(x, 0))),
    "leaky_relu.default(v0, 0.3)": lambda x: np.maximum(x, 0.3 * x),
    "add.Tensor(v0, v0, alpha=-0.97)": lambda x: x + -0.97 * x,
    "div.Tensor(v0, 0.5714)": lambda x: x / 0.5714,
    "var.correction(v0, [1], keepdim=true)": lambda x: x.var(1, ddof=1, keepdims=True),
    "mean.dim(v0, [1], true)": lambda x: x.mean(1, keepdims=True),
}


@pytest.mark.parametrize("call", ONCE)
def test_an_op_of_16_bits_rounds_once(call: str) -> None:
    wanted = ONCE[call](SHORT.astype(np.float64))
    assert np.array_equal(evaluated(call, SHORT, shape=wanted.shape), wanted.astype(SHORT.dtype))


SEVERAL: dict[str, tuple[np.ndarray, ...]] = {
    "max.dim(v0, 1)": (M.max(1), M.argmax(1)),
    "min.dim(v0, 0, true)": (M.min(0, keepdims=True), M.argmin(0, keepdims=True)),
    "topk.default(v0, 2, 1)": (np.flip(M[:, -2:], 1), np.tile([4, 3], (4, 1))),
    "sort.default(v0, 1, true)": (np.flip(M, 1), np.tile([4, 3, 2, 1, 0], (4, 1))),
    "var_mean.correction(v0, [1], correction=0, keepdim=true)": (M.var(1, keepdims=True), M.mean(1, keepdims=True)),
    "split.Tensor(v0, 2, 1)": (M[:, :2], M[:, 2:4], M[:, 4:]),
    "split_with_sizes.default(v0, [1, 3])": (M[:1], M[1:]),
    "unbind.int(v0)": tuple(M),
}


@pytest.mark.parametrize("call", SEVERAL)
def test_an_op_of_several_results(call: str) -> None:
    wanted = SEVERAL[call]
    lines = [f"v{k + 1}: {w.dtype}[{', '.join(map(str, w.shape))}] = {call}[{k}]" for k, w in enumerate(wanted)]
    graph = parse("g", "\n".join(["IN v0: float32[4, 5]", *lines, f"OUT {', '.join(f'v{k + 1}' for k in range(len(wanted)))}"]))
    for found, exact in zip(built(graph).evaluate(M), wanted, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-6)


@pytest.mark.parametrize("call", INTO)
def test_an_op_that_puts_a_tensor_into_another(call: str) -> None:
    place, part = INTO[call]
    whole = WIDE[:, :4] if call.startswith("diagonal") else WIDE
    wanted = whole.copy()
    wanted[place] = part
    assert np.array_equal(evaluated(call, whole, part, shape=whole.shape), wanted)


def test_an_index_of_one_axis() -> None:
    where = np.array([[4, 0], [2, 2]])
    assert np.array_equal(evaluated("index.Tensor(v0, [none, v1])", M, where, shape=(4, 2, 2)), M[:, where])


def test_shifts_round_down() -> None:
    x = np.array([-5, -1, 0, 7], np.int64)
    assert np.array_equal(evaluated("__rshift__.Scalar(v0, 1)", x, shape=(4,)), x >> 1)
