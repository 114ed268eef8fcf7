"""Ops that are not there."""

import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.ops.registry import OPS, OpKind

MISSING = [row.function for row in OPS.values() if row.kind is OpKind.MISSING]


@pytest.mark.parametrize("op", MISSING, ids=lambda op: op.__name__)
def test_a_call_says_what_to_do_instead(op: object) -> None:
    name = getattr(op, "__name__", "")
    assert getattr(tf, name) is op
    with pytest.raises(UnsupportedError) as caught:
        getattr(tf, name)(1, dim=2)
    error = caught.value
    assert error.message.startswith(f"tf.{name} is not supported: ")
    assert error.help
    assert error.location is not None
    assert error.location.file == __file__


def test_texts() -> None:
    with pytest.raises(UnsupportedError) as caught:
        tf.unique()
    assert caught.value.message == "tf.unique is not supported: the shape of its result depends on data"
    assert caught.value.help == "call the framework before the kernel"
