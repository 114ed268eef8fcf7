"""Which object one is: elements are not compared."""

import pytest

import taskfuse as tf
from taskfuse.ir.identity import alike, among, place_of


def test_tensors_are_found_by_what_they_are() -> None:
    with tf.Fusion("f"):
        x, y = tf.define_tensor([6], name="x"), tf.define_tensor([6], name="y")
        made = len(tf.Fusion.current().tensors())
        assert among(y, [x, y])
        assert not among(y, [x])
        assert place_of(y, (x, y)) == 1
        assert alike([x, y], (x, y))
        assert not alike([x, y], (y, x))
        assert not alike([x], (x, y))
        with pytest.raises(ValueError, match="is not there"):
            place_of(x, [y])
        assert len(tf.Fusion.current().tensors()) == made  # `==` would have made tensors


def test_equal_objects_are_two() -> None:
    one, two = [1], [1]
    assert not among(one, [two])
    assert place_of(two, [one, two]) == 1
