"""Plans of cascades: what each reduction reads, where, and by which repair."""

from __future__ import annotations

import taskfuse as tf
from taskfuse.ir.scalar import sym
from taskfuse.schedule.cascade_plan import CascadePlans


def test_a_maximum_is_repaired_and_a_sum_is_a_factor() -> None:
    with tf.Fusion() as fusion:
        x, v = tf.define_tensor(["M", "N"]), tf.define_tensor(["N", 3])
        top = tf.max(x, axis=1)
        p = tf.exp(x - tf.expand_dims(top, 1))
        total = tf.sum(p, axis=1)
        out = tf.matmul(p / tf.expand_dims(total, 1), v)
        fusion.add_output(out)
    before = str(fusion)
    found = CascadePlans((top, total, out))
    first, second, third = found.every
    assert first.top is None
    assert not first.factors
    assert second.top is top
    assert second.repair is not None
    assert not second.factors
    assert third.top is top
    assert list(third.factors) == [total]
    assert [found.axes[tv] for tv in (top, total, out)] == [1, 1, 2]
    assert found.extent is sym("N")
    assert [str(e) for e in found.index[out, top]] == ["i0"]
    assert {tv.name: k for tv, k in found.along.items()}[p.name] == 1  # the axis of the walk in what lies between
    assert str(fusion) == before
