"""send_terms: sums in scatter form: the same values, joined across blocks by updates, proved; what has no such form."""

import functools
from dataclasses import replace

import numpy as np

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.ir.axes import iteration_symbol as i
from taskfuse.ir.expr import Assemble, Read, Reduction, Update
from taskfuse.kir import Kernel
from taskfuse.reports.certificate import Layer, Verdict
from tests.lowering.running import agrees, numbers
from tests.schedule.points import refused


def summed(dtype: tf.DType = tf.float32, reduce: str = "sum") -> tuple[tf.Fusion, tf.TensorView]:
    with tf.Fusion("summed") as fusion:
        x = tf.define_tensor([6, 32], dtype, name="x")
        y = tf.sum(x, 0, dtype=dtype) if reduce == "sum" else tf.max(x, 0)
        fusion.add_output(y)
    return fusion, y


def divided(wrong: bool = False) -> tuple[tf.Fusion, tf.TensorView]:
    """A product whose terms four blocks divide among them, which join their parts by updates; ``wrong``: of other columns."""
    with tf.Fusion("divided") as fusion:
        c = tf.matmul(tf.define_tensor([2, 16], name="a"), tf.define_tensor([16, 8], name="b"))
        fusion.add_output(c)
    c.split(2, 4)
    part = c.rfactor((3,))
    start, sent = c.scatter()
    update = fusion.definition(sent)
    assert isinstance(update, Update)
    if wrong:
        place = (i(0), 7 - i(1))
        fusion.define(Update(sent, update.combine, (Read(start, place), update.operands[1]), ()))
        fusion.define(Assemble(c, (Read(start, (i(0), i(1))), Read(sent, (i(0), i(1), i(2)))), ((i(0), i(1)), place)))
    part.reorder([2, 0, 1, 3])
    sent.reorder([2, 0, 1])
    for tv in (part, sent):
        tv.axis(0).parallelize(P.BIDx)
        tv.axis(2).parallelize(P.TIDx)
    start.axis(1).parallelize(P.TIDx)
    part.inline_at(3)
    return fusion, sent


@functools.cache
def kernel() -> Kernel:
    return tf.lower(divided()[0])


def test_terms_are_sent_to_their_element() -> None:
    fusion, y = summed()
    assert [tuple(map(str, tv.shape)) for tv in y.scatter()] == [("32",), ("6", "32")]
    assert isinstance(y.definition, Assemble)
    assert tuple(map(str, y.shape)) == ("32",)
    agrees(fusion, numbers(6, 32))


def test_a_function_of_several_operands_becomes_a_tensor() -> None:
    with tf.Fusion() as fusion:
        y = tf.matmul(tf.define_tensor([3, 4]), tf.define_tensor([4, 5]))
        fusion.add_output(y)
    _, sent = y.scatter()
    assert tuple(map(str, sent.shape)) == ("3", "5", "4")
    agrees(fusion, numbers(3, 4), numbers(4, 5, seed=1))


def test_blocks_join_their_parts_of_a_sum() -> None:
    assert "UPDATE" in str(kernel())
    assert not kernel().is_deterministic
    a, b = numbers(2, 16), numbers(16, 8, seed=1)
    for seed in range(2):
        np.testing.assert_allclose(kernel().simulate(a, b, seed=seed)[0], a @ b, rtol=1e-5, atol=1e-5)
    certificate = kernel().verify()
    assert certificate.verdict is Verdict.PROVED
    assert [o.verdict for o in certificate.obligations if o.layer is Layer.REWRITINGS] == [Verdict.PROVED], "not assumed from samples"


def test_terms_sent_elsewhere_are_refuted() -> None:
    certificate = tf.lower(divided(wrong=True)[0]).verify()
    assert certificate.verdict is Verdict.REFUTED
    assert any(o.layer is Layer.REWRITINGS and o.verdict is Verdict.REFUTED for o in certificate.obligations)


def test_maxima_of_integers_have_no_order() -> None:
    fusion, y = summed(tf.int32, "max")
    y.scatter()
    made = tf.lower(fusion)
    assert made.is_deterministic
    assert made.verify().verdict is Verdict.PROVED


def test_unscatter_is_the_inverse() -> None:
    fusion, y = summed()
    y.scatter()
    y.unscatter()
    agrees(fusion, numbers(6, 32))


def test_points_between_a_start_and_an_end_are_sent() -> None:
    """And gathered again."""
    fusion, y = summed()
    expr = fusion.definition(y)
    assert isinstance(expr, Reduction)
    fusion.define(replace(expr, starts=((0, i(1) // 8),), ends=((0, i(1) // 8 + 2),)))
    x = numbers(6, 32)
    (wanted,) = fusion.evaluate(x)
    assert np.array_equal(wanted, [x[k // 8 : k // 8 + 2, k].sum() for k in range(32)])
    for form in (y.scatter, y.unscatter):
        form()
        np.testing.assert_array_equal(fusion.evaluate(x)[0], wanted)
        agrees(fusion, x)


def test_what_has_no_scatter_form() -> None:
    fusion, y = summed(reduce="max")
    assert "no single step of a GPU combines float32 in memory by maximum" in refused(y.scatter, fusion)
    fusion, y = summed()
    y.split(1, 8)
    assert "is scheduled already" in refused(y.scatter, fusion)
