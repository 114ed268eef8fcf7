"""What calls return: strides, places in inputs, inputs, tensors twice; in the fusion, its text and its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import FusionError
from taskfuse.ir.dims import Dim, facts_of
from taskfuse.ir.scalar import parse_expr, wrap
from taskfuse.ir.strides import collides, may_be_equal, order_of

FACTS = facts_of([Dim("N", 1), Dim("C", 1)])


def order(shape: list[int | str], strides: list[int | str]) -> tuple[int, ...] | None:
    def exprs(found: list[int | str]) -> list[tf.scalar.Expr]:
        return [parse_expr(e) if isinstance(e, str) else wrap(e) for e in found]

    return order_of(exprs(shape), exprs(strides), FACTS)


def test_an_order_is_that_of_the_strides_if_each_steps_over_the_smaller_ones() -> None:
    assert order([2, 3, 4, 5], [60, 20, 5, 1]) == (0, 1, 2, 3)
    assert order([2, 3, 4, 5], [60, 1, 15, 3]) == (0, 2, 3, 1)  # channels last
    assert order(["N", 6], [8, 1]) == (0, 1)  # padded rows
    assert order(["N", "C"], [1, "N"]) == (1, 0)
    assert order(["N", 1, 4], [1, 7, "N"]) == (2, 1, 0)  # nothing is known of the stride of one element
    assert order([3, 4], [3, 1]) is None
    assert order(["N", "C"], ["C", 1]) == (0, 1)
    assert order(["N", "C"], [4, 1]) is None  # C may be more than 4


def test_only_what_is_known_to_collide_does() -> None:
    def known(shape: list[int], strides: list[int]) -> bool:
        return collides([wrap(n) for n in shape], [wrap(s) for s in strides], FACTS)

    assert known([3, 4], [3, 1])
    assert known([3], [0])
    assert not known([3, 4], [4, 1])
    assert not known([0, 4], [3, 1])  # no elements
    assert not collides([parse_expr("N"), wrap(4)], [wrap(3), wrap(1)], FACTS)  # one row if N is 1


def example() -> tf.Fusion:
    with tf.Fusion("results") as fusion:
        x = tf.define_tensor(["N", 4], name="x", strides=[1, "N"])
        c, z = tf.define_tensor([8, 4], name="c"), tf.define_tensor([2], name="z")
        y = tf.exp(x)
        fusion.add_output(y, name="y", into=x)
        fusion.add_output(z)
        fusion.add_output(y, y)
        fusion.add_output(tf.neg(c[2:4]), into=c[2:4])
        fusion.add_output(c + 1.0, strides=[1, 8])
    return fusion


def test_the_text_says_all_of_it_and_copies_keep_it() -> None:
    fusion = example()
    text = str(fusion)
    assert "INPUT x: float32[N, 4] strides [1, N]" in text
    assert "OUTPUT y into x, z, y, y, tv5 into tv6, tv7 strides [1, 8]" in text
    assert str(tf.parse_fusion(text)) == text
    assert str(tf.copy_fusion(fusion)[0]) == text
    assert [tv.name for tv in fusion.outputs] == ["y", "tv5", "tv7"]  # what kernels store, each once


def test_the_reference_returns_all_of_them_and_writes_no_argument() -> None:
    x, c, z = np.arange(12, dtype=np.float32).reshape(3, 4) / 12, np.ones((8, 4), np.float32), np.full(2, 3, np.float32)
    kept = x.copy()
    y, same, *again, part, more = example().evaluate(x, c, z)
    assert (y == np.exp(kept)).all()
    assert (same == z).all()
    assert (x == kept).all()
    assert all((a == y).all() for a in again)
    assert (part == -c[2:4]).all()
    assert (more == c + 1).all()


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        ({"strides": [1, 1]}, "with the strides [1, 1], elements of y [3, 4] would share memory"),
        ({"strides": [4, -1]}, "with the strides [4, -1], elements of y [3, 4] would share memory"),
        ({"strides": [4]}, "[4] are not strides of y [3, 4]"),
        ({"strides": ["M", 1]}, "a stride of y uses 'M', which is not a dimension"),
        ({"into": 3}, "y cannot be written in place: 3 is not a tensor of it"),
    ],
)
def test_wishes_that_nothing_can_grant(wish: dict[str, Any], reason: str) -> None:
    with tf.Fusion("wishes") as fusion:
        y = tf.neg(tf.define_tensor([3, 4], name="x")).named("y")
    with pytest.raises(FusionError) as caught:
        fusion.add_output(y, **wish)
    assert reason in str(caught.value)
    assert not fusion.outputs


def test_places_that_are_none() -> None:
    with tf.Fusion("places") as fusion:
        x, h = tf.define_tensor([3, 4], name="x"), tf.define_tensor([3, 4], tf.float16, name="h")
        y, z = tf.neg(x).named("y"), tf.exp(x).named("z")
        wide = tf.broadcast_to(x[:1], [3, 4]).named("wide")
    for into, reason in ((h, "h is float16[3, 4]"), (z, "z is neither an input nor a view of one"), (wide, "wide is neither an input nor a view of one")):
        with pytest.raises(FusionError, match="y cannot be written in place") as caught:
            fusion.add_output(y, into=into)
        assert reason in str(caught.value)
    fusion.add_output(y, into=x)
    with pytest.raises(FusionError, match="another output is written into the array of x"):
        fusion.add_output(z, into=x)
    with pytest.raises(FusionError, match=r"into= for 2 outputs"):
        fusion.add_output(y, z, into=x)


def test_shapes_that_may_be_equal() -> None:
    n, one, two = parse_expr("N"), wrap(1), wrap(2)
    assert may_be_equal([n, one], [two, one], FACTS)
    assert not may_be_equal([n + 1, one], [n, one], FACTS)
    assert not may_be_equal([one], [one, one], FACTS)
