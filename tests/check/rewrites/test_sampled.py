"""Elements computed one by one are those of whole tensors."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check.refuted import TooLarge
from taskfuse.check.rewrites.instances import instance
from taskfuse.check.rewrites.sampled import Inputs, SampledElements
from taskfuse.ir.values import MODULAR
from taskfuse.kir import Kernel
from taskfuse.kir.meaning import meaning
from tests.check.rewrites.rewritten import Build, changed, rewritten


def x(*shape: int, dtype: tf.DType = tf.float32) -> tf.TensorView:
    return tf.define_tensor([*shape], dtype=dtype, name="x")


def cascade(rows: int, columns: int) -> Build:
    """A sum of exponentials behind its maximum, in one walk."""

    def build(f: tf.Fusion) -> None:
        a = x(rows, columns)
        top = tf.max(a, axis=1)
        total = tf.sum(tf.exp(a - tf.expand_dims(top, 1)), axis=1)
        f.add_output(total)
        tf.cascade([top, total], 4)

    return build


def gather() -> tf.TensorView:
    return tf.take(x(6, 10), tf.define_tensor([5], dtype=tf.int64, name="at"), axis=1)


def scatter() -> tf.TensorView:
    return tf.index_add(x(6, 4), 0, tf.define_tensor([5], dtype=tf.int64, name="at"), tf.define_tensor([5, 4], name="y"))


OPS: Mapping[str, Callable[[], tf.TensorView]] = MappingProxyType(
    {
        "softmax": lambda: tf.softmax(x(6, 10), axis=1),
        "argmax": lambda: tf.argmax(x(6, 10), axis=0),
        "cumsum": lambda: tf.cumsum(x(6, 10), axis=1),
        "integers": lambda: tf.cumsum(x(6, 10, dtype=tf.int32), axis=0),
        "fold": lambda: tf.decayed_sum(x(6, 10), tf.define_tensor([6, 10], name="d"), axis=1),
        "pad": lambda: tf.pad(x(6, 10), [(1, 2), (0, 3)]),
        "cat": lambda: tf.cat([x(6, 10), tf.define_tensor([6, 2], name="y")], axis=1),
        "gather": gather,
        "scatter": scatter,
        "product": lambda: tf.matmul(x(6, 10, dtype=tf.bfloat16), tf.define_tensor([10, 3], dtype=tf.bfloat16, name="y")),
    }
)


def elements(kernel: Kernel, left: int = 1 << 16) -> SampledElements:
    return SampledElements(kernel, kernel.definitions, {}, Inputs(kernel, {}), MODULAR, left)


def check(kernel: Kernel) -> None:
    """All elements of the first output, asked for in another order."""
    inputs = Inputs(kernel, {})
    wanted = meaning(kernel, inputs.arguments(), {})[0]
    index = np.unravel_index(np.arange(wanted.size)[::-1], wanted.shape)
    found = elements(kernel).elements(kernel.outputs[0].name, tuple(np.asarray(a, np.int64) for a in index), wanted.size)
    np.testing.assert_array_equal(found, wanted.reshape(-1)[::-1])


@pytest.mark.parametrize("op", OPS)
def test_elements_are_those_of_whole_tensors(op: str) -> None:
    def build(f: tf.Fusion) -> None:
        f.add_output(OPS[op]())

    check(rewritten(build))


def test_rescaled_sums_are_those_of_whole_tensors() -> None:
    check(rewritten(cascade(3, 21)))


def test_an_element_of_many_is_computed_alone() -> None:
    kernel = rewritten(cascade(1 << 20, 21))
    one = (np.array([12345]),)
    assert elements(kernel, 2000).elements(kernel.outputs[0].name, one, 1).size == 1
    with pytest.raises(TooLarge):
        elements(kernel, 50).elements(kernel.outputs[0].name, one, 1)
    with pytest.raises(IndexError, match="outside 0"):
        elements(kernel).elements(kernel.outputs[0].name, (np.array([1 << 20]),), 1)


@pytest.mark.parametrize(("old", "new"), [("minimum(tv", "maximum(tv"), ("4*i1 + i2 < 21", "4*i1 + i2 < 20")])
def test_faults_at_large_extents_are_found(old: str, new: str) -> None:
    kernel = rewritten(cascade(1 << 20, 21))
    name = kernel.outputs[0].name
    right = instance(kernel, [name])
    assert right.output is None
    assert "computed in float64" in right.reason
    wrong = instance(changed(kernel, old, new), [name])
    assert wrong.output == name
    assert "was written as" in wrong.reason
