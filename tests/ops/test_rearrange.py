"""Elements in other places, against NumPy: over dtypes, extents 0 and 1, negative axes."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.dtypes import DTYPES
from taskfuse.ir.tensor import TensorView
from tests.ops.reference import Array, evaluated, message, numbers

SHAPES = [(4, 6), (1, 5), (3, 0), (0, 4), (1, 1), (2, 3, 4)]


def same(build: Callable[[TensorView], TensorView], expected: Array, x: Array) -> None:
    found = evaluated(build, x)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_against_numpy(shape: tuple[int, ...], dtype: str) -> None:
    x = numbers(shape, dtype)
    same(lambda t: tf.swapaxes(t, 0, -1), np.swapaxes(x, 0, -1), x)
    same(lambda t: tf.moveaxis(t, 0, -1), np.moveaxis(x, 0, -1), x)
    same(lambda t: tf.moveaxis(t, [-1, 0], [0, 1]), np.moveaxis(x, [-1, 0], [0, 1]), x)
    same(tf.ravel, x.ravel(), x)
    same(lambda t: tf.flatten(t, 0, 1), x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), x)
    same(lambda t: tf.repeat(t, 3, -1), np.repeat(x, 3, -1), x)
    same(lambda t: tf.repeat(t, 2), np.repeat(x, 2), x)
    same(lambda t: tf.tile(t, 2), np.tile(x, 2), x)
    same(lambda t: tf.tile(t, [2, 1, 1, 3]), np.tile(x, [2, 1, 1, 3]), x)
    same(lambda t: tf.diagonal(t), np.diagonal(x), x)
    for shift, axis in ((1, 0), (-2, -1), (7, 1), (0, 0), (3, None), ((1, -1), (0, 1))):
        same(lambda t, shift=shift, axis=axis: tf.roll(t, shift, axis), np.roll(x, shift, axis), x)


def test_what_is_rolled_is_a_view() -> None:
    with tf.Fusion("rolled") as fusion:
        x = tf.define_tensor(["N", 6, 0], name="x")
        y = tf.roll(x, [0, -1, 5, 3], [0, 1, 2, 1])
        assert fusion.is_view(y)
        assert tf.roll(x, [0, 6, 5], [0, 1, 2]) is x


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "uint8", "float64"])
def test_differences_and_traces(dtype: str) -> None:
    x = numbers((4, 6), dtype)
    for n, axis in ((1, -1), (2, 0), (0, 1), (4, 0)):
        same(lambda t, n=n, axis=axis: tf.diff(t, n, axis), np.diff(x, n, axis), x)
    for offset in (0, 1, -3, 6):
        same(lambda t, offset=offset: tf.diagonal(t, offset), np.diagonal(x, offset), x)
        same(lambda t, offset=offset: tf.trace(t, offset), np.asarray(np.trace(x, offset)), x)


@pytest.mark.parametrize("extent", [1, 2, 7, 8, 9])
@pytest.mark.parametrize("chunks", [1, 2, 3, 8, 20])
def test_chunks(extent: int, chunks: int) -> None:
    x = numbers((extent, 2), "float32")
    step = -(-extent // chunks)
    expected = [x[k : k + step] for k in range(0, extent, step)]
    with tf.Fusion("f") as fusion:
        pieces = tf.chunk(tf.define_tensor(x.shape), chunks, dim=0)
        fusion.add_output(*map(tf.copy, pieces))
    assert len(pieces) == len(expected)
    for found, wanted in zip(fusion.evaluate(x), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_split() -> None:
    x = numbers((6, 4), "float32")
    for given_, expected in (
        ({"sections": 3}, np.split(x, 3)),
        ({"indices": [1, 4]}, np.split(x, [1, 4])),
        ({"sizes": [1, 3, 2]}, np.split(x, [1, 4])),
        ({"sizes": [4, 0], "axis": 1}, np.split(x, [4], 1)),
    ):
        with tf.Fusion("f") as fusion:
            fusion.add_output(*(tf.copy(t) for t in tf.split(tf.define_tensor(x.shape), **given_)))
        for found, wanted in zip(fusion.evaluate(x), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_windows() -> None:
    x = numbers((3, 10), "float32")
    for size, step in ((1, 1), (4, 1), (3, 2), (10, 5), (0, 1)):
        windows = np.stack([x[:, k : k + size] for k in range(0, 10 - size + 1, step)], 1)
        same(lambda t, size=size, step=step: tf.unfold(t, -1, size, step), windows, x)


def test_narrow() -> None:
    x = numbers((3, 10), "float32")
    same(lambda t: tf.narrow(t, 1, 2, 4), x[:, 2:6], x)
    same(lambda t: tf.narrow(t, -1, -4, 4), x[:, 6:], x)
    same(lambda t: tf.narrow(t, dim=0, start=np.int64(1), length=2), x[1:], x)
    with tf.Fusion("cache") as fusion:  # what a model reads of its cache: so many elements from a place that a call says
        cache, at = tf.define_tensor(["N", 8], name="cache"), tf.define_scalar(tf.int64, "at")
        fusion.add_output(tf.narrow(cache, 0, at, 2))
    values = numbers((5, 8), "float32")
    np.testing.assert_array_equal(fusion.evaluate(cache=values, at=3)[0], values[3:5])
    np.testing.assert_array_equal(tf.compile(fusion)(values, at=3)[0], values[3:5])
    np.testing.assert_array_equal(fusion.evaluate(values, 4)[0], [values[4], np.zeros(8)])  # outside there is 0


def test_symbolic_extents() -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([tf.dim("N", multiple_of=4, min=4), 6], name="x")
        outs = [tf.roll(x, -3, 0), tf.repeat(x, 2, 0), tf.tile(x, [3, 1]), *tf.chunk(x, 2), tf.unfold(x, 0, 3), tf.diff(x, axis=0)]
        fusion.add_output(*map(tf.copy, outs))
    a = numbers((8, 6), "float32")
    expected = [np.roll(a, -3, 0), np.repeat(a, 2, 0), np.tile(a, [3, 1]), a[:4], a[4:], np.lib.stride_tricks.sliding_window_view(a, 3, 0), np.diff(a, axis=0)]
    for found, wanted in zip(fusion.evaluate(a), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


MODES: dict[str, Literal["edge", "reflect", "symmetric", "wrap"]] = {
    "edge": "edge",
    "replicate": "edge",
    "reflect": "reflect",
    "symmetric": "symmetric",
    "wrap": "wrap",
    "circular": "wrap",
}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(MODES)), st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=3), st.data())
def test_pad_modes(mode: str, dims: Sequence[tuple[int, int, int]], data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["float32", "int8", "bool", "bfloat16"]))
    x = numbers([n for n, _, _ in dims], dtype)
    most = {"reflect": -1, "symmetric": 0, "wrap": 0}.get(MODES[mode], 99)
    widths = [(min(a, n + most), min(b, n + most)) for n, a, b in dims]
    same(lambda t: tf.pad(t, widths, mode=mode), np.pad(x, widths, mode=MODES[mode]), x)


def test_widths_as_numpy_takes_them() -> None:
    x = numbers((2, 3), "float32")
    forms: list[Any] = [1, (1, 2), [(1, 2)] * 2, np.int64(2), (0, np.int32(1))]
    for widths in forms:
        same(lambda t, widths=widths: tf.pad(t, widths), np.pad(x, np.asarray(widths)), x)
    value: Any = np.float32(2.5)
    same(lambda t: tf.pad(t, 1, value), np.pad(x, 1, constant_values=2.5), x)


def refused(build: Callable[[Any], object], shape: Sequence[Any] = (4, 6), dtype: str = "float32") -> str:
    def run() -> None:
        with tf.Fusion("f"):
            build(tf.define_tensor(shape, dtype=dtype, name="x"))

    return message(run)


def test_what_is_refused_says_why() -> None:
    real: Any = 1.5
    assert refused(lambda x: tf.pad(x, real)).startswith("pad: 1.5 is not a list of widths\nhelp: give one number for all")
    assert refused(lambda x: tf.pad(x, [(real, 0), (0, 0)])).startswith("pad: width 1.5 is not an integer\nhelp: give one number for all")
    assert refused(lambda x: tf.pad(x, True)).startswith("pad: width True is not an integer")
    assert refused(lambda x: tf.pad(x, 4, mode="reflect")).startswith("pad: mode 'reflect' cannot give 4 elements of dimension 0 of x [4, 6], which has 4")
    assert refused(lambda x: tf.pad(x, 1, mode="mirror")) == "pad: 'mirror' is not a mode\nhelp: use one of constant, edge, reflect, symmetric, wrap"
    assert refused(lambda x: tf.pad(x, 1, 2, mode="edge")) == "pad: mode 'edge' takes no value\nhelp: leave out value="
    assert refused(lambda x: tf.split(x, sections=4, axis=1)).startswith("split: 4 does not provably divide dimension 1 of x [4, 6]")
    assert refused(lambda x: tf.split(x, sizes=[1, 2])).startswith("split: sizes [1, 2] do not add up to 4")
    assert refused(lambda x: tf.split(x)).startswith("split: it takes exactly one of sizes=, sections= and indices=")
    assert refused(lambda x: tf.chunk(x, 2), ["N", 2]).startswith("chunk: 2 pieces of dimension 0 of x [N, 2] may differ in size")
    assert refused(lambda x: tf.chunk(x, 0)).startswith("chunk: 0 is not a number of pieces\nhelp: use an integer of at least 1")
    assert refused(lambda x: tf.roll(x, 3, 0), ["N", 2]).startswith("roll: a shift by 3 is not provably within dimension 0 of x [N, 2]")
    assert refused(lambda x: tf.roll(x, real, 0)).startswith("roll: 1.5 is not a list of shifts")
    assert refused(lambda x: tf.repeat(x, real, 0)).startswith("repeat: 1.5 is not a number of repetitions")
    assert refused(lambda x: tf.tile(x, -1)).startswith("tile: -1 is not a number of repetitions")
    assert refused(lambda x: tf.unfold(x, 0, 5)).startswith("unfold: a window of 5 does not provably fit into dimension 0 of x [4, 6]")
    assert refused(lambda x: tf.narrow(x, 0, 3, 2)).startswith("narrow: 2 elements from 3 on are not provably in dimension 0 of x [4, 6]")
    assert refused(lambda x: tf.diff(x, 5, 0)).startswith("diff: dimension 0 of x [4, 6] does not provably have 5 elements")
    assert refused(lambda x: tf.diagonal(x, 9)).startswith("diagonal: x [4, 6] does not have a diagonal 9 for all extents")
    assert refused(lambda x: tf.diagonal(x, 0, 1, 1)).startswith("diagonal: axis1 and axis2 of x [4, 6] are the same axis")
    assert refused(lambda x: tf.moveaxis(x, [0, 1], [0])).startswith("moveaxis: axes [0, 1] do not go to [0]")
    assert refused(lambda x: tf.flatten(x, 1, 0)).startswith("flatten: dimension 1 comes after 0")
    assert refused(lambda x: tf.swapaxes(x, 0, 2)) == "swapaxes: axis 2 is out of range for x [4, 6]\nhelp: use an axis in [-2, 1]"


def test_as_strided() -> None:
    x = np.arange(60.0).reshape(3, 4, 5)
    for size, stride, offset in (((3, 2), (7, 1), 5), ((2, 2, 2), (1, 1, 1), 0), ((4,), (0,), 59), ((), (), 3)):
        expected = np.lib.stride_tricks.as_strided(x.ravel()[offset:], size, [8 * s for s in stride])
        np.testing.assert_array_equal(evaluated(lambda a, s=size, t=stride, o=offset: tf.as_strided(a, s, t, o), x), expected)
    with tf.Fusion("f"):
        y = tf.define_tensor([3, 4], name="y")
        assert message(lambda: tf.as_strided(y, [3, 3], [5, 1])) == ("as_strided: element 12 is not provably one of the 12 of y [3, 4]")
        assert message(lambda: tf.as_strided(y, [3], [1, 1])).startswith("as_strided: 1 sizes and 2 strides")
        assert message(lambda: tf.as_strided(y, [3], [-1])).startswith("as_strided: -1 is not a stride")
