"""Reads at computed indices against NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse.ops as tf
from taskfuse.dtypes import as_dtype
from taskfuse.ir.expr import Gather, Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.values import MODULAR
from tests.ops.reference import Array, evaluated, message, numbers, symbolic

DTYPES = ["float32", "bfloat16", "float64", "int8", "uint64", "bool", "float8_e4m3"]


def within(shape: tuple[int, ...], extent: int, dtype: str = "int64", seed: int = 0) -> Array:
    """Indices that NumPy takes, negative ones too."""
    low = 0 if as_dtype(dtype).min_value == 0 else -extent
    return np.random.default_rng(seed).integers(low, max(extent, 1), shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_take(dtype: str, axis: int | None) -> None:
    x, i = numbers((3, 4, 5), dtype), within((2, 3), 3)
    assert (evaluated(lambda a, b: tf.take(a, b, axis), x, i) == np.take(x, i, axis)).all()
    shapes: list[Any] = [["A", "B", "C"], ["D", "E"]]
    if axis is not None:
        assert (evaluated(lambda a, b: tf.take(a, b, axis), x, i, shapes=shapes) == np.take(x, i, axis)).all()


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"])
def test_dtypes_of_indices(dtype: str) -> None:
    x, i = numbers((5, 2), "float32"), within((7,), 5, dtype)
    assert (evaluated(lambda a, b: tf.take(a, b, 0), x, i) == x[i]).all()


def test_outside_is_zero() -> None:
    x, i = numbers((4,), "float32", low=1), np.array([-5, -4, -1, 0, 3, 4, 2**40, -(2**63), 2**63 - 1])
    assert evaluated(lambda a, b: tf.take(a, b, 0), x, i).tolist() == [0, x[0], x[3], x[0], x[3], 0, 0, 0, 0]
    words = evaluated(lambda a, b: tf.take(a, b, 0), x, i, values=MODULAR)
    assert words[0] == 0
    assert words[1] == MODULAR.encode(x, as_dtype("float32"))[0]


@pytest.mark.parametrize(("table", "indices"), [((0,), (3,)), ((4,), (0,)), ((0,), (0,)), ((1,), (1,))])
def test_empty_and_single(table: tuple[int, ...], indices: tuple[int, ...]) -> None:
    x, i = numbers(table, "float32", low=1), np.zeros(indices, np.int64)
    expected = np.take(x, i) if table[0] else np.zeros(indices, np.float32)
    assert (evaluated(lambda a, b: tf.take(a, b, 0), x, i) == expected).all()
    assert (evaluated(lambda a, b: tf.take(a, b, 0), x, i, shapes=[symbolic(x, "X"), symbolic(i, "I")]) == expected).all()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take_along_axis(axis: int) -> None:
    x = numbers((3, 4), "float32")
    for shape in ([3, 2], [3, 4], [1, 4]) if axis else ([5, 4], [3, 4], [2, 1]):
        i = within(tuple(shape), x.shape[axis])
        assert (evaluated(lambda a, b: tf.take_along_axis(a, b, axis), x, i) == np.take_along_axis(x, i, axis)).all()


def test_what_argmax_finds_is_the_maximum() -> None:
    x = numbers((3, 4), "float32")
    found = evaluated(lambda a: tf.take_along_axis(a, tf.argmax(a, 1, keepdims=True), 1), x, shapes=[["M", "N"]])
    assert (found == x.max(1, keepdims=True)).all()


def test_gather_is_that_of_torch() -> None:
    x, i = numbers((4, 5), "float32"), within((2, 3), 4)
    expected = np.array([[x[i[r, c], c] for c in range(3)] for r in range(2)])
    assert (evaluated(lambda a, b: tf.gather(a, 0, b), x, i) == expected).all()


@pytest.mark.parametrize("dtype", ["float32", "bool", "int8"])
def test_one_hot(dtype: str) -> None:
    i = np.array([[0, 3, -1], [2, 4, 1]], np.int32)
    expected = (i[..., None] == np.arange(4)).astype(dtype)
    assert (evaluated(lambda a: tf.one_hot(a, 4, dtype), i) == expected).all()
    with Fusion("f"):
        a = tf.define_tensor(["N"], "int16")
        assert [str(e) for e in tf.one_hot(a, "C").shape] == ["N", "C"]
        assert message(lambda: tf.one_hot(tf.cast(a, "float32"), 3)) == "one_hot: tv3 (float32) are not indices\nhelp: cast them to int64"


@settings(max_examples=40)
@given(st.data())
def test_indexing_as_numpy(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    keys: list[Any] = []
    arrays: list[Array] = []
    places: list[int] = []
    for extent in shape:
        kind = data.draw(st.sampled_from(["slice", "int", "tensor", "tensor"]))
        if kind == "tensor":
            places.append(len(keys))
            arrays.append(within(data.draw(st.sampled_from([(), (1,), (2,), (3, 2), (3, 1)])), extent, seed=len(arrays)))
            keys.append(arrays[-1])
        else:
            keys.append(data.draw(st.integers(-extent, extent - 1)) if kind == "int" else data.draw(st.sampled_from([slice(None), slice(None, None, -1)])))
        if data.draw(st.integers(0, 5)) == 0:
            keys.append(None)
    try:
        np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        return

    def index(a: Any, *tensors: Any) -> Any:
        given = list(keys)
        for place, t in zip(places, tensors, strict=True):
            given[place] = t
        return a[tuple(given)]

    assert (evaluated(index, x, *arrays) == x[tuple(keys)]).all()
    assert evaluated(index, x, *arrays).shape == x[tuple(keys)].shape


def test_one_expression_and_its_map() -> None:
    with Fusion("f") as fusion:
        x, i = tf.define_tensor(["V", "D"]), tf.define_tensor(["N"], "int32")
        found = tf.take(x, i, 0)
        expr = found.definition
    assert isinstance(expr, Gather)
    table, value = expr.operands
    assert isinstance(table, Read)
    assert isinstance(value, Read)
    assert [str(e) for e in table.index] == ["v0", "i1"]
    assert [str(e) for e in value.index] == ["i0"]
    assert len(fusion.exprs()) == 1
    assert "gather(tv0[v0, i1], v0 = tv1[i0] of V)" in str(fusion)


EXTENTS = "help: extents must be the same expression, or the constant 1"


PLACES: list[tuple[Callable[[TensorView], TensorView], Callable[[Array], Array], str]] = [
    (lambda x: tf.take(x, tf.fmod(tf.arange(5) + 3, 5), 1), lambda x: np.roll(x, -3, 1), "x[i0, (i1 + 3) % 5, i2]"),
    (lambda x: tf.take(x, tf.arange(5) - 5, 1), lambda x: x, "x"),
    (lambda x: tf.take(x, 4 - tf.arange(5), 1), lambda x: x[:, ::-1], "x[i0, 4 - i1, i2]"),
    (lambda x: x[:, tf.arange(2) * 3, 1], lambda x: x[:, [0, 3], 1], "tv"),
    (lambda x: tf.take_along_axis(x, tf.reshape(tf.arange(3), [3, 1, 1]), 2), lambda x: x[[0, 1, 2], :, [0, 1, 2]][:, :, None], "x[i0, i1, i0]"),
]


@pytest.mark.parametrize(("build", "wanted", "place"), PLACES)
def test_known_places_are_views_that_are_copied(build: Callable[[TensorView], TensorView], wanted: Callable[[Array], Array], place: str) -> None:
    x = numbers((3, 5, 4), "float32")
    with Fusion("places") as fusion:
        fusion.add_output(build(tf.define_tensor([3, 5, 4], name="x")))
    assert np.array_equal(fusion.evaluate(x)[0], wanted(x))
    assert "= gather(" not in str(fusion)
    assert f"view gather({place}" in str(fusion)
    assert not fusion.is_view(fusion.outputs[0])  # it shares no memory with its table


def test_places_that_are_not_known_to_be_inside_are_looked_up() -> None:
    x = numbers((5, 4), "float32")
    with Fusion("outside") as fusion:
        fusion.add_output(tf.take(tf.define_tensor([5, 4], name="x"), tf.arange(5) + 2, 0))
    assert "= gather(" in str(fusion)
    assert np.array_equal(fusion.evaluate(x)[0], np.concatenate([x[2:], np.zeros((2, 4))]))


def test_one_index_of_two_is_known() -> None:
    """The logits of given classes."""
    x, i = numbers((5, 4), "float32"), within((5,), 4)
    with Fusion("classes") as fusion:
        rows, classes = tf.define_tensor([5, 4], name="x"), tf.define_tensor([5], "int64", name="c")
        fusion.add_output(rows[tf.arange(5), classes])
    assert "gather(x[i0, v0], v0 = c of 4)" in str(fusion)
    assert np.array_equal(fusion.evaluate(x, i)[0], x[np.arange(5), i])


NUMBER: Any = 3  # a value that type checkers refuse
REFUSED: list[tuple[Callable[[TensorView, TensorView, TensorView, TensorView], object], str]] = [
    (lambda x, i, f, m: tf.take(x, f, 0), "take: tv2 (float32) are not indices\nhelp: cast them to int64"),
    (lambda x, i, f, m: tf.take(x, m, 0), "take: tv3 (bool) are not indices\nhelp: select with tf.where: the shape of a masked selection depends on data"),
    (lambda x, i, f, m: x[m], "index: tv3 (bool) are not indices\nhelp: select with tf.where: the shape of a masked selection depends on data"),
    (lambda x, i, f, m: tf.take(x, i, 2), "take: axis 2 is out of range for tv0 [A, B]\nhelp: use an axis in [-2, 1]"),
    (lambda x, i, f, m: tf.take(x, NUMBER, 0), "take: takes a tensor, not int\nhelp: make constants with tf.full, inputs with tf.define_tensor"),
    (
        lambda x, i, f, m: tf.take_along_axis(x, tf.sum(i, 0), 0),
        "take_along_axis: tv4 [2] and tv0 [A, B] differ in the number of dimensions\nhelp: reshape the indices, or use tf.take",
    ),
    (lambda x, i, f, m: tf.take_along_axis(x, i, 0), f"take_along_axis: dimension 1 is B in tv0 [A, B] but 2 in tv1 [3, 2]\n{EXTENTS}"),
    (
        lambda x, i, f, m: tf.gather(x, 0, i),
        "gather: dimension 1 of tv1 [3, 2] is not provably within that of tv0 [A, B]\nhelp: slice the indices",
    ),
    (lambda x, i, f, m: x[i, tf.zeros([4], "int32")], f"index: shapes do not broadcast: dimension -1 is 2 in tv1 [3, 2] but 4 in tv4 [4]\n{EXTENTS}"),
]


@pytest.mark.parametrize(
    ("build", "text"),
    REFUSED,
)
def test_errors(build: Callable[..., object], text: str) -> None:
    with Fusion("f"):
        x, i = tf.define_tensor(["A", "B"]), tf.define_tensor([3, 2], "int32")
        f, m = tf.define_tensor([3]), tf.define_tensor([3], "bool")
        assert message(lambda: build(x, i, f, m)) == text
