"""The fusion as it was written, behind the calls that rewrite it."""

import taskfuse as tf
from taskfuse.ir.written import as_written, rewritten


def summed(rows: int = 3) -> tf.Fusion:
    with tf.Fusion("rows") as f:
        y = tf.sum(tf.exp(tf.define_tensor([rows, 21], name="x")), axis=1)
        f.add_output(y)
    return f


def test_schedules_that_rewrite_nothing() -> None:
    f = summed()
    f.outputs[0].split(1, 4)
    assert rewritten(f) == {}
    assert as_written(f) is None


def test_the_first_definitions_stay() -> None:
    f, plain = summed(), summed()
    y = f.outputs[0]
    y.split(1, 4)
    y.rfactor([2])
    y.cache_before()
    first = as_written(f)
    assert first is not None
    assert [[t.name, str(first.definition(t))] for t in first.tensors()] == [[t.name, str(plain.definition(t))] for t in plain.tensors()]
    assert set(rewritten(f)) >= {y}
