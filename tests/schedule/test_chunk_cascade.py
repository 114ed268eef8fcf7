"""Cascades by chunks: what is joined is what the math gives, also of chunks that hold nothing; what has no repair is refused with the reason."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import ScheduleError
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Read, Reduction
from taskfuse.ir.scalar import const
from taskfuse.reports.certificate import Verdict
from tests.schedule.cascades import CASES, arguments, logsumexp, random_cascade
from tests.schedule.folded import Made, attention

SIZES = ((1, 1, 13), (4, 1, 13), (3, 4, 13), (5, 1, 3), (64, 1, 13), (4, 1, 1), (2, 8, 16))
"""Chunks, a multiple of their elements, and elements."""


@pytest.mark.parametrize(("n", "multiple", "size"), SIZES)
@pytest.mark.parametrize("name", CASES)
def test_the_result_is_that_of_the_math(name: str, n: int, multiple: int, size: int) -> None:
    fusion, reductions = CASES[name]()
    args = arguments(fusion, 5, 3, size)
    wanted = fusion.evaluate(*args)
    made = tf.chunk_cascade(reductions, n, multiple)
    fusion.check()
    assert [str(tv.shape[0]) for tv in made] == [str(n)] * len(reductions)
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    for found, expected in zip(fusion.evaluate(*args), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


def masked() -> Made:
    """Attention where keys are left out by an input."""
    with tf.Fusion("masked") as fusion:
        s, v = tf.define_tensor(["M", "N"]), tf.define_tensor(["N", 3])
        top = tf.max(s, axis=1)
        p = tf.where(s == -np.inf, 0.0, tf.exp2((s - tf.expand_dims(top, 1)) * 1.5))
        total = tf.sum(p, axis=1)
        out = tf.matmul(p, v)
        fusion.add_output(out / tf.expand_dims(total, 1))
    return fusion, [top, total, out]


def test_chunks_of_nothing_but_masked_elements_add_nothing() -> None:
    """Beside maxima of any size: what they are multiplied by may be too large for a float. A row of nothing has no result, as in the math."""
    fusion, reductions = masked()
    s, v = arguments(fusion, 3, 6, 16)
    s[0, :4] = s[1, 4:] = s[2, 3:9] = s[3, 1:] = s[5] = -np.inf
    s[1, :4] -= 400
    s[4, 8:] += 300
    wanted = fusion.evaluate(s, v)[0]
    tf.chunk_cascade(reductions, 4)
    found = fusion.evaluate(s, v)[0]
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-5)
    assert np.isfinite(found[:5]).all()
    assert np.isnan(found[5]).all()


@pytest.mark.parametrize("make", [logsumexp, lambda: attention(scale=False)])
def test_its_kernel_is_right(make: Callable[[], Made]) -> None:
    """Proved for all extents. This schedule computes maxima again where they are read; that it is what was written is then assumed, with evidence."""
    fusion, reductions = make()
    args = arguments(fusion, 9, 2, 7)
    wanted = fusion.evaluate(*args)
    tf.chunk_cascade(reductions, 3)
    tf.schedulers.fallback(fusion)
    kernel = tf.lower(fusion)
    certificate = kernel.verify()
    certificate.require()
    assert any("is what was written, which is not shown" in line for line in certificate.assumptions)
    for found, expected in zip(kernel.simulate(*args, seed=2), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


def _without_repair(total: tf.TensorView, first: Reduction) -> Reduction:
    """Chunks are added as they are."""
    return replace(first, body=ELEMENTWISE["copy"], operands=first.operands[1:])


def _of_first_chunk(total: tf.TensorView, first: Reduction) -> Reduction:
    """One of them as often as there are chunks."""
    read = first.operands[1]
    assert isinstance(read, Read)
    return replace(first, operands=(first.operands[0], replace(read, index=(const(0), *read.index[1:]))))


@pytest.mark.parametrize("wrong", [_without_repair, _of_first_chunk])
def test_chunks_that_are_joined_wrongly_are_refuted(wrong: Callable[[tf.TensorView, Reduction], Reduction]) -> None:
    fusion, reductions = logsumexp()
    tf.chunk_cascade(reductions, 3)
    walk = next(e for e in fusion.exprs() if isinstance(e, Reduction) and e.body.name == "mul")
    fusion.define(wrong(walk.output, walk))
    tf.schedulers.fallback(fusion)
    assert tf.lower(fusion).verify().verdict is Verdict.REFUTED


def test_what_a_chunk_makes_may_be_cascaded_again() -> None:
    """A walk over each chunk."""
    fusion, reductions = attention()
    args = arguments(fusion, 5, 3, 37)
    wanted = fusion.evaluate(*args)
    made = tf.chunk_cascade(reductions, 3, 4)
    walk = tf.cascade(made, 4)
    assert walk
    fusion.check()
    for found, expected in zip(fusion.evaluate(*args), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


def test_random_cascades_give_what_the_math_gives_where_that_is_a_number() -> None:
    for seed in range(60):
        (fusion, reductions), args = random_cascade(seed)
        c = random.Random(seed)
        with np.errstate(all="ignore"):
            wanted = fusion.evaluate(*args)
            tf.chunk_cascade(reductions, c.choice([1, 2, 3, 7]), c.choice([1, 2, 4]))
            fusion.check()
            found = fusion.evaluate(*args)
        for a, b in zip(found, wanted, strict=True):
            known = np.isfinite(b)
            most = np.abs(b[known]).max(initial=1.0)
            np.testing.assert_allclose(a[known], b[known], rtol=3e-4, atol=1e-5 * most, err_msg=f"seed {seed}")


def test_what_has_no_element_of_the_axis_is_read_through_its_view() -> None:
    """So the view may be an input of a kernel."""
    with tf.Fusion() as fusion:
        q, k = tf.define_tensor([6, 5, 4]), tf.define_tensor([2, "N", 4])
        rows = tf.reshape(q, [2, 15, 4])
        scores = tf.matmul(rows, tf.permute(k, (0, 2, 1)))
        top = tf.max(scores, axis=2)
        total = tf.sum(tf.exp(scores - tf.expand_dims(top, 2)), axis=2)
        fusion.add_output(tf.log(total) + top)
    tf.chunk_cascade([top, total], 3)
    assert [use.output.root[-1].extent for use in rows.uses] == [const(4)]


def test_what_it_refuses() -> None:
    def refused(make: Callable[[], object]) -> str:
        with pytest.raises(ScheduleError) as error:
            make()
        return str(error.value)

    _, (top, total) = logsumexp()
    assert "no tensors are given" in refused(lambda: tf.chunk_cascade([], 2))
    assert "is given twice" in refused(lambda: tf.chunk_cascade([top, top], 2))
    assert "0 chunks" in refused(lambda: tf.chunk_cascade([top, total], 0))
    assert "2.0 elements or a multiple" in refused(lambda: tf.chunk_cascade([top, total], 2, 2.0))
    assert "which comes behind it" in refused(lambda: tf.chunk_cascade([total, top], 2))
    top.split(0, 2)
    assert "chunk_cascade before split" in refused(lambda: tf.chunk_cascade([top, total], 2))
    with tf.Fusion() as squared:
        x = tf.define_tensor(["M", "N"])
        a = tf.max(x, axis=1)
        b = tf.sum(tf.sin(x - tf.expand_dims(a, 1)), axis=1)
        squared.add_output(b)
    assert "is not one factor for all of them" in refused(lambda: tf.chunk_cascade([a, b], 2))
