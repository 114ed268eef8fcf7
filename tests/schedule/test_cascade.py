"""Cascades: one walk gives what the math gives, also where a chunk is short or holds nothing; what has no repair is refused with the reason."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import ScheduleError
from taskfuse.ir.expr import Assemble, FirstValid, Fold, Pointwise, Reduction, View
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import evaluate
from taskfuse.reports.certificate import Layer, Verdict
from tests.schedule.cascades import CASES, arguments, logsumexp, random_cascade
from tests.schedule.folded import P, attention, walked
from tests.testing.ptx.compiled import compared

CUTS: dict[str, tuple[object, ...]] = {"parts": (2, 3), "levels": (4, (2, 3)), "pieces": (4, 3, 2)}


@pytest.mark.parametrize("chunk", [1, 4, 64])
@pytest.mark.parametrize("name", CASES)
def test_the_result_is_that_of_the_math(name: str, chunk: int) -> None:
    fusion, reductions = CASES[name]()
    args = arguments(fusion, 5, 3, 13)
    wanted = fusion.evaluate(*args)
    walk = tf.cascade(reductions, chunk)
    fusion.check()
    assert walk
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    for found, expected in zip(fusion.evaluate(*args), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", CASES)
def test_parts_are_walked_apart_and_joined(name: str, cut: str) -> None:
    fusion, reductions = CASES[name]()
    args = arguments(fusion, 5, 3, 37)
    wanted = fusion.evaluate(*args)
    tf.cascade(reductions, *CUTS[cut])
    fusion.check()
    for found, expected in zip(fusion.evaluate(*args), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("chunk", [1, 4, 12])
@pytest.mark.parametrize("name", ["attention", "logsumexp", "softmin", "apart"])
def test_rescaled_sums_keep_their_words(name: str, chunk: int) -> None:
    """In modular words, where all chunks are full: an element of a short chunk counts for exp(-inf), which is 0 for numbers alone."""
    fusion, reductions = CASES[name]()
    args = arguments(fusion, 5, 3, 12)
    wanted = fusion.evaluate(*args, values=tf.MODULAR)
    tf.cascade(reductions, chunk)
    for found, expected in zip(fusion.evaluate(*args, values=tf.MODULAR), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_factor_of_another_sign_changes_the_words() -> None:
    fusion, reductions = logsumexp()
    args = arguments(fusion, 5, 3, 12)
    (wanted,) = fusion.evaluate(*args, values=tf.MODULAR)
    tf.cascade(reductions, 4)
    text = str(fusion)
    line = next(line for line in text.split("\n") if "= neg(" in line)
    assert "= exp(" in text
    (found,) = tf.parse_fusion(text.replace(line, line.replace("= neg(", "= copy("))).evaluate(*args, values=tf.MODULAR)
    assert not (found == wanted).all()


def test_every_element_is_in_one_chunk_of_one_part() -> None:
    """A sum of powers of two tells which elements it has: those of steps, parts and pieces, in an axis that they do not fill."""
    with tf.Fusion() as fusion:
        x = tf.define_tensor([23])
        a, b = tf.sum(x, axis=0), tf.sum(x * 2.0, axis=0)
        fusion.add_output(a)
        fusion.add_output(b)
    tf.cascade([a, b], 4, (2, 1), 2)
    assert [int(found) for found in fusion.evaluate((2.0 ** np.arange(23)).astype(np.float32))] == [2**23 - 1, 2**24 - 2]


def test_threads_walk_parts_and_join_them() -> None:
    """Each thread has a running maximum and sum of its own; they are joined through Shared memory."""
    fusion, (top, total) = logsumexp()
    tf.cascade([top, total], 2, 4, 1)
    code = [e.output for e in fusion.exprs() if not isinstance(e, View)]
    for tv in code:
        parts = [k for k, a in enumerate(tv.loop) if str(a.extent) == "4"]
        if parts:
            tv.reorder({parts[0]: 1})
            tv.axis(1).parallelize(P.TIDx)
        tv.axis(0).parallelize(P.BIDx)
    walks = [tv for tv in code if len(tv.loop) == 3 and tv.loop[2].is_reduction and str(tv.loop[2].extent) != "2"]
    assert [type(tv.definition) for tv in walks] == [Reduction, Fold]
    fusion.inline_most(code)
    for tv in walks:
        tv.inline_at(1)
    fusion.inline_most([tv for tv in code if not among(tv, walks)])
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert any(b.memory is tf.MemoryType.Shared for b in kernel.buffers)
    assert str(kernel).count("0..ceildiv(N, 8)") == 1
    x = np.random.default_rng(3).standard_normal((2, 21)).astype(np.float32) * 9
    x[1, ::2] = -np.inf
    np.testing.assert_allclose(kernel.simulate(x, seed=1)[0], np.log(np.exp(x.astype(np.float64)).sum(1)), rtol=1e-6)


def test_attention_is_one_proved_loop() -> None:
    """Every score is computed once, in registers."""
    fusion, reductions = attention()
    args = arguments(fusion, 2, 5, 11)
    (wanted,) = fusion.evaluate(*args)
    tf.cascade(reductions, 4)
    kernel = walked(fusion, 8, "ceildiv(N, 4)")
    kernel.verify().require()
    assert str(kernel).count("0..ceildiv(N, 4)") == 1
    assert not [b for b in kernel.buffers if b.memory is not tf.MemoryType.Local]
    np.testing.assert_allclose(kernel.simulate(*args, seed=3)[0], wanted, rtol=2e-5, atol=1e-6)
    assert compared(kernel).difference is None


def test_a_cross_entropy_behind_its_product_stores_no_logits() -> None:
    """Each logit is computed once, in registers, and the class's own by itself."""
    with tf.Fusion("linear_cross_entropy") as fusion:
        x, w, classes = tf.define_tensor(["M", 4]), tf.define_tensor(["V", 4]), tf.define_tensor(["M"], tf.int64)
        logits = tf.matmul(x, w.T)
        top = tf.max(logits, axis=1)
        total = tf.sum(tf.exp(logits - tf.expand_dims(top, 1)), axis=1)
        fusion.add_output(tf.log(total) + top - tf.sum(x * tf.take(w, classes, 0), axis=1))
    rng = np.random.default_rng(4)
    args = rng.standard_normal((5, 4)) * 3, rng.standard_normal((11, 4)), rng.integers(0, 11, 5)
    scores = args[0] @ args[1].T
    wanted = np.log(np.exp(scores).sum(1)) - np.take_along_axis(scores, args[2][:, None], 1)[:, 0]
    tf.cascade([top, total], 4)
    kernel = walked(fusion, 8, "ceildiv(V, 4)")
    kernel.verify().require()
    assert not [b for b in kernel.buffers if b.memory is not tf.MemoryType.Local]
    given = [a.astype(np.float32) if a.dtype == np.float64 else a for a in args]
    np.testing.assert_allclose(kernel.simulate(*given, seed=3)[0], wanted, rtol=2e-5)


def test_sums_are_rescaled_by_the_running_maximum() -> None:
    fusion, (top, total) = logsumexp()
    tf.cascade([top, total], 8)
    assert isinstance(top.definition, Reduction)
    assert [e.rescaled for e in fusion.exprs() if isinstance(e, Reduction) and e.rescaled is not None] == [1]
    assert isinstance(total.definition, Pointwise)  # of the fold, and of what a maximum of nothing makes of it
    assert "scan maximum" in str(fusion)
    assert "exclusive" in str(fusion)


@pytest.mark.parametrize("chunk", [2, 4])
def test_chunks_of_nothing_but_minus_infinity(chunk: int) -> None:
    """In front of the first finite element, among others, and behind them; a row without any sums up to 0."""
    fusion, (top, total) = logsumexp()
    with fusion:
        fusion.add_output(total)
    tf.cascade([top, total], chunk)
    inf = np.inf
    x = np.array([[-inf] * 5 + [3, 1, -inf], [2] + [-inf] * 6 + [2], [-1000] + [-inf] * 3 + [-1001] * 4, [-inf] * 8], np.float32)
    found, sums = fusion.evaluate(x)
    with np.errstate(all="ignore"):
        wanted = np.log(np.sum(np.exp(x.astype(np.float64) - x.max(1, keepdims=True)), 1)) + x.max(1)
    np.testing.assert_allclose(found[:3], wanted[:3], rtol=1e-6)
    assert sums[3] == 0
    assert found[3] == -inf


@pytest.mark.parametrize("low", [-1000.0, -3e4])
def test_a_masked_chunk_in_front_of_small_elements(low: float) -> None:
    """The factor from 0, which stands for nothing, to such a maximum is past the end of floats; there is nothing to multiply."""
    fusion, (top, total) = logsumexp()
    tf.cascade([top, total], 4)
    x = np.array([[-np.inf] * 4 + [low, low, -np.inf, low]], np.float32)
    np.testing.assert_allclose(fusion.evaluate(x)[0], low + np.log(3), rtol=1e-6)


def test_terms_that_do_not_vanish_where_the_maximum_is_of_nothing() -> None:
    """They are of another tensor than the maximum: those in front of its first finite element count."""
    with tf.Fusion() as fusion:
        x, z = tf.define_tensor(["M", "N"]), tf.define_tensor(["M", "N"])
        top = tf.max(x, axis=1)
        total = tf.sum(tf.exp(z - tf.expand_dims(top, 1)), axis=1)
        fusion.add_output(total)
    x = np.array([[-np.inf, -np.inf, -np.inf, 2.0, 1.0]], np.float32)
    z = np.array([[1.0, 2.0, 0.5, -1.0, 3.0]], np.float32)
    (wanted,) = fusion.evaluate(x, z)
    tf.cascade([top, total], 2)
    np.testing.assert_allclose(fusion.evaluate(x, z)[0], wanted, rtol=1e-6)


def test_large_logits() -> None:
    """A maximum that grows by far in the last chunk takes nothing with it."""
    fusion, (top, total) = logsumexp()
    tf.cascade([top, total], 4)
    x = np.array([[7e4, -7e4, 1, 2, 3, 4, 5, 7e4 + 50]], np.float32)
    assert fusion.evaluate(x)[0][0] == np.float32(7e4 + 50)


def check_random(seed: int, *, parts: Sequence[int] | int = (), rows: int | None = None) -> tf.Fusion:
    """A random cascade gives what the math gives where that is a number."""
    (fusion, reductions), args = random_cascade(seed)
    with np.errstate(all="ignore"):
        wanted = fusion.evaluate(*args)
    c = random.Random(seed)
    chunk = c.choice([1, 2, 3, 5, 16])
    tf.cascade(reductions, chunk, parts, c.choice([n for n in (1, 2, chunk) if chunk % n == 0]), rows)
    fusion.check()
    with np.errstate(all="ignore"):
        found = fusion.evaluate(*args)
    for a, b in zip(found, wanted, strict=True):
        is_number = np.isfinite(b)
        most = np.abs(b[is_number]).max(initial=1.0)
        np.testing.assert_allclose(a[is_number], b[is_number], rtol=3e-4, atol=1e-5 * most, err_msg=f"seed {seed}")
    return fusion


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_cascades_give_what_the_math_gives_where_that_is_a_number(first: int) -> None:
    for seed in range(first, first + 20):
        check_random(seed, parts=random.Random(seed).choice([(), 2, (2, 2)]))


def test_random_cascades_that_end() -> None:
    made = [check_random(seed, rows=seed % 3 + 1) for seed in range(100, 160)]
    assert sum(any(isinstance(e, Reduction) and e.ends for e in fusion.exprs()) for fusion in made) > 4


Condition = Callable[[Any, Any, Any], Any]
"""Which columns j of batches b and rows i are kept: a tensor of tensors, an array of arrays."""


def ends(condition: Condition, **options: int) -> list[int] | None:
    """The chunks of 4 that walks take of which a mask leaves some of 50 columns j of each of 3 batches b and 16 rows i; ``None``: all, whatever it leaves."""
    with tf.Fusion() as fusion:
        x = tf.define_tensor([3, "M", "N"], name="x")
        b, i, j = (tf.iota([3, x.shape[1], x.shape[2]], axis=k) for k in range(3))
        s = tf.where(condition(b, i, j), x, -np.inf)
        top = tf.max(s, axis=2)
        total = tf.sum(tf.exp(s - tf.expand_dims(top, 2)), axis=2)
        fusion.add_output(total)
    tf.cascade([top, total], 4, **options)
    (found,) = {end for e in fusion.exprs() if isinstance(e, Reduction) for _, end in e.ends} or {None}
    return None if found is None else [int(evaluate(found, {"i0": b, "i1": i, "M": 16, "N": 50})) for b in range(3) for i in range(16)]


def needed(condition: Condition, rows: int) -> list[int]:
    """The chunks of which something is left for a row of each block of ``rows``."""
    b, i, j = np.mgrid[:3, :16, :50]
    last = np.where(condition(b, i, j), j + 1, 0).max(axis=2).reshape(3, -1, rows).max(axis=2)
    return (-(-np.repeat(last, rows, axis=1) // 4)).ravel().tolist()


ALONG: dict[str, tuple[Condition, dict[str, int]]] = {
    "the rows alone": (lambda b, i, j: j < i + 1, {}),
    "rows and batches": (lambda b, i, j: j < i + b * 8, {"along": 1}),
    "batches alone": (lambda b, i, j: j < b * 8, {"along": 1}),
    "no row has more than others": (lambda b, i, j: j < b * 8 + i % 3 + 1, {"along": 1}),
    "two conditions": (lambda b, i, j: (j < b * 8) & (j < i + 1), {"along": 1}),
    "one of two conditions": (lambda b, i, j: (j < b * 8) | (j < i + 1), {"along": 1}),
    "fewer in later rows": (lambda b, i, j: j < b * 8 - i, {"along": 1}),
}


@pytest.mark.parametrize("name", ALONG)
def test_ends_along_several_dimensions(name: str) -> None:
    """Blocks have 8 rows along one of them, and one element of the others."""
    condition, options = ALONG[name]
    assert ends(condition, rows=8, **options) == needed(condition, 8)


def test_ends_that_are_not_known() -> None:
    assert ends(lambda b, i, j: j < i + b * 5, rows=8) is None  # rows along which dimension?
    assert ends(lambda b, i, j: (j < i) | (j % 2 < i), rows=8) is None


def refusal(build: Callable[[tf.TensorView], Sequence[tf.TensorView] | tf.TensorView], *cut: object) -> str:
    with tf.Fusion():
        given = build(tf.define_tensor(["M", "N"], name="x"))
        with pytest.raises(ScheduleError) as caught:
            tf.cascade(given, *(cut or (4,)))
    return str(caught.value)


def test_refusals() -> None:
    def over(x: tf.TensorView, f: Callable[[tf.TensorView, tf.TensorView], tf.TensorView]) -> list[tf.TensorView]:
        top = tf.max(x, axis=1)
        return [top, tf.sum(f(x, tf.expand_dims(top, 1)), axis=1)]

    unknown = "is not one factor for all of them"
    assert unknown in refusal(lambda x: over(x, lambda x, r: x + r))
    assert unknown in refusal(lambda x: over(x, lambda x, r: tf.sigmoid(x - r)))
    assert unknown in refusal(lambda x: over(x, lambda x, r: x / r))  # a maximum of 0, or of nothing, is not a factor
    assert unknown in refusal(lambda x: [a := tf.sum(x, axis=1), tf.sum(tf.exp(x - tf.expand_dims(a, 1)), axis=1)])  # nor a sum a term
    assert "which comes behind it" in refusal(lambda x: over(x, lambda x, r: tf.exp(x - r))[::-1])
    assert "is not elementwise" in refusal(lambda x: over(x, lambda x, r: tf.cumsum(x - r, 1)))
    assert "is not a reduction" in refusal(lambda x: [x])
    assert "give the reductions of one axis" in refusal(lambda x: [])
    assert "give the reductions of one axis" in refusal(lambda x: tf.max(x, axis=1))  # one tensor, not a list of them
    assert "is given twice" in refusal(lambda x: [tf.max(x, axis=1)] * 2)
    assert "a chunk has 0 elements" in refusal(lambda x: [tf.max(x, axis=1)], 0)
    assert "the parts are (2, 0)" in refusal(lambda x: [tf.max(x, axis=1)], 4, (2, 0))
    assert "the parts are 'two'" in refusal(lambda x: [tf.max(x, axis=1)], 4, "two")
    assert "3 elements of a chunk of 4 are adjacent" in refusal(lambda x: [tf.max(x, axis=1)], 4, 2, 3)
    assert "rows along dimension 1" in refusal(lambda x: [tf.max(x, axis=1)], 4, (), None, 8, 1)
    assert "rows along dimension 0" in refusal(lambda x: [tf.max(x, axis=1)], 4, (), None, None, 0)
    assert "reduces M elements, and" in refusal(lambda x: [tf.max(x, axis=1), tf.max(x, axis=0)])
    assert "is not a sum of floats" in refusal(lambda x: [a := tf.max(x, axis=1), tf.max(x - tf.expand_dims(a, 1), axis=1)])
    assert "at other elements of the axis than its own" in refusal(lambda x: over(x, lambda x, r: tf.flip(tf.exp(x - r), 1)))


def test_a_refused_cascade_changes_nothing() -> None:
    with tf.Fusion() as fusion:
        x = tf.define_tensor(["M", "N"])
        top = tf.max(x, axis=1)
        total = tf.sum(x + tf.expand_dims(top, 1), axis=1)
        fusion.add_output(total)
    before = str(fusion)
    with pytest.raises(ScheduleError, match="is not one factor for all of them"):
        tf.cascade([top, total], 4)
    assert str(fusion) == before


TRANSFORMS: list[tuple[str, Callable[[tf.TensorView], object]]] = [
    ("rfactor", lambda tv: tv.rfactor([2])),
    ("chunk_reduction", lambda tv: tv.chunk_reduction(2, 2)),
    ("split_reduction", lambda tv: tv.split_reduction(2, 2)),
    ("recompute", lambda tv: tv.recompute([tv.uses[0].output])),
    ("cascade", lambda tv: tf.cascade([tv], 2)),
]


@pytest.mark.parametrize(
    ("name", "call"),
    TRANSFORMS,
)
def test_terms_of_a_rescaled_sum_stay_in_order(name: str, call: Callable[[tf.TensorView], object]) -> None:
    fusion, reductions = attention()
    tf.cascade(reductions, 4)
    tv = next(e.output for e in fusion.exprs() if isinstance(e, Reduction) and e.rescaled is not None)
    with pytest.raises(ScheduleError, match=rf"{name}\(.*rescaled between its terms|does not reduce one axis") as error:
        call(tv)
    assert error.value.help is not None


def crossed(is_output: bool = True) -> tuple[tf.Fusion, tf.TensorView, tf.TensorView]:
    """Functions of pairs, summed along both axes: times a factor of the rows, and times one of the columns."""
    with tf.Fusion("crossed") as fusion:
        x, g, k = tf.define_tensor([8, 12]), tf.define_tensor([8]), tf.define_tensor([12])
        p = tf.exp(x)
        along = tf.sum(p * tf.expand_dims(g, 1), axis=0)
        across = tf.sum(p * k, axis=1)
        fusion.add_output(along, across if is_output else tf.cast(across, tf.bfloat16))
    return fusion, along, across


@pytest.mark.parametrize("is_output", [True, False])
def test_what_a_walk_computes_for_each_chunk_besides(is_output: bool) -> None:
    fusion, along, across = crossed(is_output)
    args = [np.random.default_rng(n).normal(size=s).astype(np.float32) for n, s in enumerate(([8, 12], [8], [12]))]
    before = fusion.evaluate(*args)
    walk = tf.cascade([along], 4, beside=[across])
    assert isinstance(across.definition, Assemble if is_output else View)
    part = next(tv for tv in walk if isinstance(tv.definition, Reduction) and tv is not along)
    assert tuple(map(str, part.shape)) == ("2", "4")
    for a, b in zip(before, fusion.evaluate(*args), strict=True):
        np.testing.assert_allclose(a.astype(np.float32), b.astype(np.float32), rtol=1e-5)
    part.split(2, 6)
    part.rfactor((3,))
    part.scatter()  # of two parts of each sum
    kernel = tf.lower(fusion)
    certificate = kernel.verify()
    assert certificate.verdict is Verdict.PROVED
    assert all(o.verdict is Verdict.PROVED for o in certificate.obligations if o.layer is Layer.REWRITINGS)
    np.testing.assert_allclose(kernel.simulate(*args)[0], before[0], rtol=1e-5)


def windowed(behind: int | None, columns: int = 16) -> tuple[tf.Fusion, tf.TensorView, tf.TensorView]:
    """The same of pairs of a row and a column up to it, of which ``behind`` are further back."""
    with tf.Fusion("windowed") as fusion:
        x, g, k = tf.define_tensor([24, columns]), tf.define_tensor([24]), tf.define_tensor([columns])
        row, column = tf.expand_dims(tf.arange(24), 1), tf.arange(columns)
        seen = column <= row if behind is None else (column <= row) & (row - column <= behind)
        p = tf.exp(tf.where(seen, x, -math.inf))
        along, across = tf.sum(p * tf.expand_dims(g, 1), axis=0), tf.sum(p * k, axis=1)
        fusion.add_output(along, across)
    return fusion, along, across


@pytest.mark.parametrize(
    ("behind", "columns", "points", "trips"),
    [
        (None, 16, "i2 < i0 + 1", "0..6 - blockIdx.x"),
        (9, 16, "i0 - 3 <= i2 && i2 < i0 + 1", "0..min(blockIdx.x + 4, 6) - blockIdx.x"),
        (None, 32, "i2 < i0 + 1", "0..max(6 - blockIdx.x, 0)"),
    ],
)
def test_what_a_walk_computes_for_the_chunks_that_a_mask_leaves(behind: int | None, columns: int, points: str, trips: str) -> None:
    """Its parts are sent from the chunks of a block of columns on, or from these alone."""
    fusion, along, across = windowed(behind, columns)
    args = [np.random.default_rng(n).normal(size=s).astype(np.float32) for n, s in enumerate(([24, columns], [24], [columns]))]
    before = fusion.evaluate(*args)
    walk = tf.cascade([along], 4, rows=4, beside=[across])
    part = next(tv for tv in walk if isinstance(tv.definition, Reduction) and tv is not along)
    part.split(2, 4)
    own = part.rfactor((3,))
    _, sent = part.scatter()
    whole = across.definition
    assert isinstance(whole, Assemble)
    assert points in str(whole.parts[1].valid)
    inside = [tv for tv in fusion.tensors() if tv.ndim == 3 and isinstance(tv.definition, Pointwise | FirstValid)]
    for tv in (*inside, along):
        tv.split(2, 4)
    for tv in (*inside, along, own, sent):
        tv.reorder({2: 0}).axis(0).parallelize(P.BIDx)
    for tv in (*inside, own):
        tv.inline_at(2)
    kernel = tf.lower(fusion)
    assert trips in str(kernel)
    certificate = kernel.verify()
    assert certificate.verdict is Verdict.PROVED
    names = ", ".join(sorted(tv.name for tv in fusion.outputs))
    assert any(o.layer is Layer.REWRITINGS and f"every element of {names}" in o.reason for o in certificate.obligations), "not assumed from samples"
    for a, b in zip(before, kernel.simulate(*args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_what_no_walk_computes_besides() -> None:
    _, along, across = crossed()
    with pytest.raises(ScheduleError, match="needs whole chunks of 3 elements"):
        tf.cascade([along], 3, beside=[across])
    with pytest.raises(ScheduleError, match="needs whole chunks of 8 elements, all in one part"):
        tf.cascade([along], 4, 2, beside=[across])
    with pytest.raises(ScheduleError, match="is not computed for each element of the axis"):
        tf.cascade([across], 4, beside=[across])
