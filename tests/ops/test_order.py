"""Elements in order against Python's sort."""

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.dtypes import DTYPES, as_dtype
from taskfuse.ops import merge
from tests.ops.reference import Array, evaluated, message, numbers


def elements(name: str, shape: tuple[int, ...]) -> Array:
    """Few different elements of a dtype, so that many are equal: the limits among them."""
    dtype, generator = as_dtype(name), np.random.default_rng(0)
    if dtype.is_float:
        drawn = generator.choice([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1.5, 2.0, 0.25], shape)
        with np.errstate(all="ignore"):
            return drawn.astype(dtype.numpy)
    return generator.choice(np.array([dtype.min_value, dtype.max_value, 0, 1, 5] if not dtype.is_bool else [False, True], dtype.numpy), shape)


def in_order(x: Array, axis: int, descending: bool) -> Array:
    """The indices of a stable sort in which NaN is the greatest."""
    wide = x.astype(np.longdouble)
    above = np.where(np.isnan(wide), 1, 0)
    plain = np.where(np.isnan(wide), 0, wide)
    sign = -1 if descending else 1

    def row(keys: Any) -> Any:
        return sorted(range(len(keys)), key=lambda k: (sign * keys[k][0], sign * keys[k][1], k))

    found = np.empty(x.shape, np.int64)
    for at in np.ndindex(*(n for d, n in enumerate(x.shape) if d != axis % x.ndim)):
        place: tuple[Any, ...] = (*at[: axis % x.ndim], slice(None), *at[axis % x.ndim :])
        found[place] = row(list(zip(above[place], plain[place], strict=True)))
    return found


@pytest.mark.parametrize("name", DTYPES)
def test_topk(name: str) -> None:
    x = elements(name, (3, 11, 2))
    for axis, k, largest in ((1, 3, True), (-2, 11, False), (0, 1, True), (-1, 0, True)):
        order = in_order(x, axis, largest).take(range(k), axis)
        with tf.Fusion("first") as fusion:
            values, indices = tf.topk(tf.define_tensor(x.shape, name), k, dim=axis, largest=largest)
            fusion.add_output(values)
            fusion.add_output(indices)
        found, at = fusion.evaluate(x)
        assert (at.dtype, found.dtype) == (np.int64, x.dtype)
        np.testing.assert_array_equal(at, order)
        expected = np.take_along_axis(x, order, axis).astype(np.float64)
        np.testing.assert_array_equal(found.astype(np.float64), expected)
        assert (np.signbit(found.astype(np.float64)) == np.signbit(expected))[expected == 0].all()


@pytest.mark.parametrize("name", DTYPES)
def test_sort(name: str) -> None:
    for shape, axis, descending in (((2, 9, 2), 1, True), ((2, 9), -1, False), ((1, 270), 1, True)):
        x = elements(name, shape)
        order = in_order(x, axis, descending)
        with tf.Fusion("sorted") as fusion:
            for result in tf.sort_with_indices(tf.define_tensor(x.shape, name), dim=axis, descending=descending):
                fusion.add_output(result)
        found, at = fusion.evaluate(x)
        np.testing.assert_array_equal(at, order)
        np.testing.assert_array_equal(found.astype(np.float64), np.take_along_axis(x, order, axis).astype(np.float64))


def test_long_rows_of_64_bits_take_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the lower half of their bits, then by the upper one."""
    monkeypatch.setattr(merge, "COMPARED", 0)
    for name in ("int64", "float64"):
        x = elements(name, (2, 270))
        np.testing.assert_array_equal(evaluated(lambda a: tf.argsort(a, descending=True), x), in_order(x, 1, descending=True))
        np.testing.assert_array_equal(evaluated(lambda a: tf.topk(a, 20)[1], x), in_order(x, 1, descending=True)[:, :20])


def test_more_than_a_few_are_taken_from_sorted_rows() -> None:
    x = np.random.default_rng(2).normal(size=(150, 2)).astype(np.float32)
    np.testing.assert_array_equal(evaluated(lambda a: tf.topk(a, 20, 0)[0], x), -np.sort(-x, 0)[:20])
    np.testing.assert_array_equal(evaluated(lambda a: tf.topk(a, 20, 0)[1], x.astype(np.float64)), np.argsort(-x, 0, kind="stable")[:20])
    np.testing.assert_array_equal(evaluated(lambda a: tf.argsort(a, 0), x), np.argsort(x, 0))
    np.testing.assert_array_equal(evaluated(lambda a: tf.sort(a), x), np.sort(x))


def test_topk_of_a_router_is_one_pass() -> None:
    """A pass over the rows, and one over what it finds: proved, and right in the simulator."""
    x = np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)
    with tf.Fusion("router") as fusion:
        logits = tf.define_tensor(["T", 8], name="logits")
        values, indices = tf.topk(logits, 2)
        fusion.add_output(values)
        fusion.add_output(indices)
    run = tf.compile(fusion)
    assert len(run.kernels) == 2
    assert all(kernel.verify().is_proved for kernel in run.kernels)
    values, indices = run(x)
    np.testing.assert_array_equal(indices, np.argsort(-x, 1, kind="stable")[:, :2])
    np.testing.assert_array_equal(values, np.take_along_axis(x, indices, 1))


def test_errors() -> None:
    with tf.Fusion("f"):
        x = tf.define_tensor(["N", 3], name="x")
        assert message(lambda: tf.topk(x, 4)) == ("topk: dimension 1 of x [N, 3] does not provably have 4 elements\nhelp: give facts with tf.dim(..., min=)")
        assert message(lambda: tf.topk(x, 2, 0)).startswith("topk: dimension 0 of x [N, 3] does not provably have 2 elements")
        assert message(lambda: tf.topk(x, -1)) == "topk: -1 is not a number of elements\nhelp: use an integer of at least 0"
        assert message(lambda: tf.topk(x, 1, 2)).startswith("topk: axis 2 is out of range")


@pytest.mark.parametrize("name", ["float32", "int64", "bfloat16", "bool"])
def test_one_element_in_order(name: str) -> None:
    x = elements(name, (3, 7))
    order = in_order(x, 1, descending=False)
    with tf.Fusion("one") as fusion:
        tensor = tf.define_tensor(x.shape, name)
        for result in (*tf.kthvalue(tensor, 3, dim=1), *tf.median(tensor, dim=1, keepdim=True)):
            fusion.add_output(result)
    third, at, middle, where = fusion.evaluate(x)
    np.testing.assert_array_equal(at, order[:, 2])
    np.testing.assert_array_equal(third.astype(np.float64), np.take_along_axis(x, order, 1)[:, 2].astype(np.float64))
    wide = x.astype(np.float64)
    is_nan = np.isnan(wide).any(1)
    expected = np.where(is_nan, np.isnan(wide).argmax(1), order[:, 3])
    np.testing.assert_array_equal(where[:, 0], expected)
    np.testing.assert_array_equal(middle.astype(np.float64)[:, 0], np.take_along_axis(wide, expected[:, None], 1)[:, 0])
    with tf.Fusion("f"):
        s = tf.define_tensor(["N"], name="s")
        assert message(lambda: tf.median(s, 0)) == ("median: dimension 0 of s [N] is not a positive constant\nhelp: sort, and read the element with tf.take")


def test_numbers_of_few_bits_are_ordered_by_these() -> None:
    """Experts that ``topk`` chose: their tokens in order of experts. Numbers of 64 bits took two passes, with keys of 64 bits."""
    scores = numbers((40, 8), "float32")
    with tf.Fusion("route") as fusion:
        experts = tf.reshape(tf.topk(tf.define_tensor([40, 8]), 2)[1], [80])
        for tv in (experts, *tf.sort_with_indices(experts)):
            fusion.add_output(tv)
    assert not any(tv.dtype is tf.uint64 and 80 in map(int, tv.shape) for tv in fusion.tensors())
    chosen, values, indices = fusion.evaluate(scores)
    assert values.dtype == np.int64
    assert np.array_equal(indices, np.argsort(chosen, kind="stable"))
    assert np.array_equal(values, chosen[indices])
