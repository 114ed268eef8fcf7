"""The gather form of points that go to elements which data names."""

import numpy as np

import taskfuse as tf
from taskfuse.ir.axes import iteration_symbol, value_symbol
from taskfuse.ir.expr import Read, Reduction, Update
from taskfuse.ir.scalar import const
from taskfuse.ops.points import Points
from taskfuse.schedulers.scatter import is_updated

I0, I1, V0 = iteration_symbol(0), iteration_symbol(1), value_symbol(0)


def test_axes_that_are_followed_and_those_that_are_left() -> None:
    with tf.Fusion("f"):
        t = tf.define_tensor(["N"], "int32")
    points = Points((t.shape[0], const(4)), (V0, I1), (Read(t, (I0,)),), (const(9),))
    assert points.is_plain()
    assert points.follows == (None, 1)
    assert points.left() == (0,)
    assert points.reached((const(9), const(5))) == (const(9), const(4))
    assert not Points(points.space, (V0, I1 + 1), points.values, points.extents).is_plain()
    assert not Points(points.space, (I1, I1), points.values, points.extents).is_plain()


def test_both_forms_are_one_function() -> None:
    with tf.Fusion("f") as fusion:
        x, t, s = tf.define_tensor(["V", "D"]), tf.define_tensor(["N", "D"], "int32"), tf.define_tensor(["N", "D"])
        y = tf.scatter_add(x, 0, t, s)
        fusion.add_output(y)
    generator = np.random.default_rng(0)
    arguments = generator.normal(size=(5, 3)).astype("f4"), generator.integers(-7, 7, (6, 3)).astype("i4"), generator.normal(size=(6, 3)).astype("f4")
    (expected,) = fusion.evaluate(*arguments)
    assert is_updated(fusion, y)
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    y.unscatter()
    assert not is_updated(fusion, y)
    assert not any(isinstance(e, Update) for e in fusion.exprs())
    assert any(isinstance(e, Reduction) for e in fusion.exprs())
    assert np.allclose(fusion.evaluate(*arguments)[0], expected, rtol=1e-6)
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
