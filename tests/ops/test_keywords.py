"""Axes by either name."""

import inspect
from typing import Any

import pytest

import taskfuse as tf
from taskfuse.errors import ShapeError
from taskfuse.ops.keywords import axial


def test_either_spelling_names_the_parameter() -> None:
    @axial
    def mine(x: int, axis: int = 0, keepdims: bool = False) -> tuple[int, int, bool]:
        return x, axis, keepdims

    assert mine(1, dim=2, keepdim=True) == mine(1, axis=2, keepdims=True) == mine(1, 2, True) == (1, 2, True)
    assert list(inspect.signature(mine).parameters) == ["x", "axis", "keepdims"]
    with pytest.raises(ShapeError, match="mine: axis= and dim= are both given"):
        mine(1, axis=2, dim=2)


def test_a_function_that_has_both_keeps_them() -> None:
    @axial
    def both(x: int, axis: int = 0, dim: int = 1) -> tuple[int, int, int]:
        return x, axis, dim

    assert both(1, axis=2, dim=3) == (1, 2, 3)


def test_reductions_and_scans_take_both() -> None:
    with tf.Fusion("f"):
        x = tf.define_tensor([4, 6])
        assert tf.sum(x, dim=1, keepdim=True).shape == (4, 1)
        assert tf.cumsum(x, dim=0).shape == (4, 6)
        assert tf.softmax(x, dim=-1).shape == (4, 6)
        both: dict[str, Any] = {"keepdims": True, "keepdim": True}
        with pytest.raises(ShapeError, match="sum: keepdims= and keepdim= are both given"):
            tf.sum(x, 1, **both)
