"""Slicing and indexing: views with the bounds of NumPy, also for symbolic extents."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse.ops as tf
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import sym
from tests.ops.reference import evaluated, message, numbers

KEYS: list[Any] = [
    (slice(1, 3),),
    (slice(None), slice(None, None, 2)),
    (slice(None, None, -1),),
    (slice(-2, None), slice(-1, -4, -2)),
    (slice(10, 20),),
    (slice(3, 1),),
    (slice(100, None, -3), slice(None, -100, -1)),
    (2,),
    (-1, slice(1, None)),
    (Ellipsis, 0),
    (None, Ellipsis, None, 1),
    (Ellipsis,),
    (slice(1, 4), None, -5),
    (),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_indexing(key: Any) -> None:
    x = numbers((4, 5), "float32")
    assert np.array_equal(evaluated(lambda a: a[key], x), x[key])
    assert np.array_equal(evaluated(lambda a: a[key], x, shapes=[[tf.dim("A", min=4), tf.dim("B", min=5)]]), x[key])


@pytest.mark.parametrize("key", ["i, :2", ":2, i", "i, ::2", "..., i", "i, None, :3", ":0, i"])
def test_slices_beside_tensors(key: str) -> None:
    """The first elements of a dimension lie where they lie in the whole, which they are not."""
    x, i = numbers((4, 5), "float32"), np.array([3, 0, 3])
    assert np.array_equal(evaluated(lambda a, i: eval(f"a[{key}]", {"a": a, "i": i}), x, i), eval(f"x[{key}]", {"x": x, "i": i}))


@given(st.integers(0, 5), st.none() | st.integers(-7, 7), st.none() | st.integers(-7, 7), st.none() | st.integers(-3, 3).filter(bool))
def test_slices_of_a_symbolic_extent_have_the_bounds_of_numpy(n: int, start: int | None, stop: int | None, step: int | None) -> None:
    x = np.arange(n)
    for shape in ([n], [tf.dim("N", min=0)]):
        found = evaluated(lambda a: tf.slice(a, [start], [stop], [step]), x, shapes=[shape])
        assert np.array_equal(found, x[start:stop:step])


def test_symbolic_bounds() -> None:
    x = numbers((6, 4), "float32")
    half = sym("N") // 2
    assert np.array_equal(evaluated(lambda a: a[half:], x, shapes=[["N", 4]]), x[3:])
    assert np.array_equal(evaluated(lambda a: tf.slice(a, [None, 1], [half, None]), x, shapes=[["N", 4]]), x[:3, 1:])


def test_index_errors() -> None:
    with Fusion("f") as fusion:
        x, s = tf.define_tensor([2, 3]), tf.define_tensor(["S"])
        count = len(fusion.tensors())
        wrong: Any = "a"
        assert message(lambda: x[2]) == "index: index 2 is not provably in range for dimension 0 of tv0 [2, 3]"
        assert message(lambda: x[0, -4]) == "index: index -4 is not provably in range for dimension 1 of tv0 [2, 3]"
        assert message(lambda: s[1]) == (
            "index: index 1 is not provably in range for dimension 0 of tv1 [S]\nhelp: give facts about the extent, such as tf.dim('S', min=4)"
        )
        assert message(lambda: x[0, 0, 0]) == "index: 3 indices for the 2 dimensions of tv0 [2, 3]"
        assert message(lambda: x[..., ...]) == "index: more than one ... in the index"
        assert message(lambda: x[::0]) == "index: slice step is 0"
        assert (
            message(lambda: x[wrong])
            == "index: tv0 [2, 3] cannot be indexed with str\nhelp: index with integers, slices, None, Ellipsis and tensors of integers"
        )
        assert (
            message(lambda: x[True])
            == "index: tv0 [2, 3] cannot be indexed with bool\nhelp: index with integers, slices, None, Ellipsis and tensors of integers"
        )
        scalar = tf.define_scalar("int64", name="i")
        assert message(lambda: x[scalar:]).startswith(
            "index: slice bound i: int64 is no run-time integer\nhelp: declare it as a run-time integer, tf.define_integer('i')"
        )
        assert message(lambda: x[1.5:]) == "index: slice bound 1.5 is not an integer\nhelp: index with integers, slices, None, Ellipsis and tensors of integers"
        assert (
            message(lambda: x[:: sym("S")])
            == "index: slice step S is not an integer constant\nhelp: index with integers, slices, None, Ellipsis and tensors of integers"
        )
        assert message(lambda: tf.slice(x, [0], [1, 2])) == "slice: 1 starts, 2 stops and 1 steps\nhelp: give one of each per dimension"
        assert message(lambda: tf.slice(x, [0] * 3, [1] * 3)) == "slice: 3 indices for the 2 dimensions of tv0 [2, 3]"
        assert len(fusion.tensors()) == count
