"""What stands behind a contraction: its inputs and outputs, reductions of it, and what is computed from these."""

import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers.contraction import find
from tests.schedulers.contracted import product, tensor
from tests.schedulers.tried import built


def test_an_epilogue_and_what_it_reads() -> None:
    def behind() -> list[tf.TensorView]:
        x = product() + tensor("bias", "N", dtype=tf.float32)
        y = x * tensor("rows", "M", 1, dtype=tf.float32) + tensor("residual", "M", "N")
        return [tf.cast(y, tf.bfloat16), tf.relu(x)]

    p = find(built(behind))
    assert {side.tensor.name: (side.is_paired, side.is_wide) for side in p.sides} == {
        "bias": (True, False),
        "rows": (False, False),
        "residual": (True, True),
    }
    assert [(out.is_bulk, out.is_paired) for out in p.outputs] == [(True, True), (False, True)]
    assert p.held == (4, 4, 2, 2, 4)
    assert len(p.epilogue) == 6


def test_reductions_of_the_result_and_what_is_computed_from_them() -> None:
    def reduced() -> list[tf.TensorView]:
        x = tf.relu(product())
        return [x, tf.sqrt(tf.sum(x * x, axis=1)), tf.max(x, axis=0)]

    p = find(built(reduced))
    assert [(r.places, r.over, r.kept) for r in p.reductions] == [((0, 1), {1}, (0,)), ((0, 1), {0}, (1,))]
    assert len(p.finals) == 1
    assert len(p.outputs) == 1


def test_an_input_that_the_product_and_its_transpose_share_has_two_places() -> None:
    def twice() -> list[tf.TensorView]:
        square = tf.matmul(tensor("a", 64, 32), tensor("b", 32, 64), dtype=tf.float32)
        return [square + square.T]

    with pytest.raises(UnsupportedError, match="reads products at two places"):
        find(built(twice))


def test_what_is_computed_from_a_reduction_has_its_axes() -> None:
    def across() -> list[tf.TensorView]:
        x = tf.matmul(tensor("a", 64, 32), tensor("b", 32, 64), dtype=tf.float32)
        return [x, tf.sum(x, axis=1) + tf.sum(x, axis=0)]

    with pytest.raises(UnsupportedError, match="along axes other than its own"):
        find(built(across))
