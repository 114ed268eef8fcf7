"""Arguments of a call by name: what no rule has read is refused."""

import pytest

torch = pytest.importorskip("torch")

import taskfuse as tf
from taskfuse.ir.scalar import sym
from taskfuse.torch.metadata import Refused
from taskfuse.torch.rules.call import AtenCall, axes_of, computed_in, number, promoted


def test_an_argument_that_nobody_reads_is_refused() -> None:
    call = AtenCall("op", "default", {"self": 1, "decimals": 2}, {"self", "decimals"}, [])
    assert call["self"] == 1
    with pytest.raises(Refused, match="decimals= is not taken"):
        call.check_read()
    assert call.get("decimals") == 2
    call.check_read()


def test_dimensions_count_from_the_front() -> None:
    assert axes_of(None, 2) == (0, 1)
    assert axes_of([-1, 0], 3) == (2, 0)
    assert axes_of(-1, 0) == ()
    with pytest.raises(Refused, match="not constant"):
        number(sym("N"))


def test_tensors_promote_as_in_torch() -> None:
    with tf.Fusion():
        half, whole, one = tf.define_tensor([4], tf.float16), tf.define_tensor([4], tf.int64), tf.define_tensor([], tf.float64)
    assert promoted([half, one]) is tf.float16
    assert promoted([whole, one]) is tf.float64
    assert promoted([whole, 2.5]) is tf.float32
    assert promoted([half, whole, 2.5]) is tf.float16


def test_numbers_are_kept_in_float32() -> None:
    assert computed_in(tf.bfloat16, [0.1]) is tf.float32
    assert computed_in(tf.bfloat16, [2]) is tf.bfloat16
    assert computed_in(tf.int64, [0.5]) is tf.int64
