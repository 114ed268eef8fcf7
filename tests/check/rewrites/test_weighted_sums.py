"""Sums relative to a running maximum: proved to be what was written; with a fault in what a cascade makes, not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType

import pytest

import taskfuse as tf
from taskfuse.check.rewrites.verify import rewritings
from taskfuse.ir.expr import Reduction
from taskfuse.kir import Kernel
from tests.check.rewrites.rewritten import changed, is_proved, is_refuted, rewritten
from tests.thinning import in_turn, pairs

Reductions = list[tf.TensorView]
Make = Callable[[Reductions], object]
WALKS: Mapping[str, Make] = MappingProxyType(
    {
        "chunks": lambda r: tf.cascade(r, 16),
        "parts": lambda r: tf.cascade(r, 16, 4),
        "levels": lambda r: tf.cascade(r, 8, (2, 4), adjacent=4),
        "chunks side by side": lambda r: tf.chunk_cascade(r, 4),
    }
)


@cache
def attention(walk: str, extent: int | str = "N", dtype: tf.DType = tf.float32, is_causal: bool = False) -> Kernel:
    """Softmax times V."""

    def build(f: tf.Fusion) -> None:
        q, k, v = (tf.define_tensor([n, 8], dtype=dtype, name=name) for n, name in (("M", "q"), (extent, "k"), (extent, "v")))
        scores = tf.matmul(q, k.T).astype(tf.float32) * 0.125
        if is_causal:
            scores = tf.where(tf.iota(["M", extent], 1) <= tf.iota(["M", extent], 0), scores, -float("inf"))
        top = tf.max(scores, axis=1)
        p = tf.exp(scores - tf.expand_dims(top, 1))
        total = tf.sum(p, axis=1)
        out = tf.matmul((p / tf.expand_dims(total, 1)).astype(dtype), v, dtype=tf.float32)
        f.add_output(out)
        WALKS[walk]([top, total, out])

    return rewritten(build)


@pytest.mark.parametrize(("walk", "extent", "dtype"), pairs(tuple(WALKS), ("N", 128, 100, 16, 3), (tf.float32, tf.bfloat16)))
def test_attention_is_proved(walk: str, extent: int | str, dtype: tf.DType) -> None:
    assert is_proved(rewritings(attention(walk, extent, dtype)))


@cache
def quantized(walk: str, shift: float, most: float, is_causal: bool) -> Kernel:
    """Softmax times V, with exponentials that are scaled, clamped and rounded to 8 bits. What is clamped too early is not refused here."""

    def build(f: tf.Fusion) -> None:
        q, k, v = (tf.define_tensor([n, 8], dtype=tf.float8_e4m3, name=name) for n, name in (("M", "q"), ("N", "k"), ("N", "v")))
        scores = tf.matmul(q, k.T, dtype=tf.float32) * 0.125
        if is_causal:
            scores = tf.where(tf.iota(["M", "N"], 1) <= tf.iota(["M", "N"], 0), scores, -float("inf"))
        top = tf.max(scores, axis=1)
        p = tf.exp2(scores - (tf.expand_dims(top, 1) - shift))
        total = tf.sum(p, axis=1)
        out = tf.matmul(tf.cast(tf.maximum(tf.minimum(p, most), -448.0), tf.float8_e4m3), v, dtype=tf.float32)
        f.add_output(out / tf.expand_dims(total, 1))
        WALKS[walk]([top, total, out])

    return rewritten(build)


@pytest.mark.parametrize(("walk", "is_causal"), [("chunks", False), ("chunks", True), ("parts", True), ("chunks side by side", False)])
def test_clamped_exponentials_are_proved(walk: str, is_causal: bool) -> None:
    assert is_proved(rewritings(quantized(walk, 8.0, 448.0, is_causal)))


def test_exponentials_that_a_clamp_changes_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    import taskfuse.schedule.repairs as module

    def nothing(*_: object) -> tuple[float, float]:
        return 0.0, 0.0

    monkeypatch.setattr(module, "bounds_of", nothing)  # cascade takes any clamp for one that changes nothing
    assert not is_proved(rewritings(quantized("chunks", 8.0, 255.0, is_causal=False)))
    assert not is_proved(rewritings(quantized("chunks", 9.0, 448.0, is_causal=True)))


@pytest.mark.parametrize(("walk", "extent"), in_turn(tuple(WALKS), ("N", 128)))
def test_causal_attention_is_proved(walk: str, extent: int | str) -> None:
    """Chunks that are masked have no maximum."""
    assert is_proved(rewritings(attention(walk, extent, is_causal=True)))


def masked_gradient(late: int = 0, early: int = 0) -> Kernel:
    """A sum of rounded products with sums, which a mask of two comparisons makes 0: it begins and ends with the chunks that the mask leaves, or nearly."""

    def build(f: tf.Fusion) -> None:
        x, g, v, d, q = (tf.define_tensor(s, name=n) for n, s in (("x", [16, 16]), ("g", [16, 8]), ("v", [16, 8]), ("d", [16]), ("q", [16, 4])))
        i, j = tf.expand_dims(tf.arange(16), 1), tf.arange(16)
        p = tf.exp2(tf.where((j <= i) & (i - j < 6), x, -float("inf")))
        ds = tf.cast(p * (tf.matmul(g, v.T) - tf.expand_dims(d, 1)), tf.bfloat16)
        out = tf.matmul(ds.T.astype(tf.float32), q)
        f.add_output(out)
        tf.cascade([out], 4, rows=4)
        expr = f.definition(out)
        assert isinstance(expr, Reduction)
        assert expr.starts
        assert expr.ends
        f.define(replace(expr, starts=tuple((k, e + late) for k, e in expr.starts), ends=tuple((k, e - early) for k, e in expr.ends)))

    return rewritten(build)


def test_rounded_sums_are_0_where_all_of_their_terms_are() -> None:
    assert is_proved(rewritings(masked_gradient()))
    assert is_refuted(masked_gradient(late=1))
    assert is_refuted(masked_gradient(early=1))


def test_what_is_claimed_of_a_row_of_nothing_is_said() -> None:
    (said,) = rewritings(attention("chunks")).obligations
    assert "where tv7 is finite" in said.reason


FAULTS: Mapping[str, tuple[tuple[str, str, str], ...]] = MappingProxyType(
    {
        "chunks": (
            ("the repair of the normalizer is forgotten", "from 0.0 rescaled 1 by tv36[i0, i1]", "from 0.0"),
            ("the repair of the product is forgotten", "from 0.0 rescaled 2 by tv36[i0, i2]", "from 0.0"),
            ("the wrong way round", "sub(tv25[i0, i1], tv30[i0, i1])", "sub(tv30[i0, i1], tv25[i0, i1])"),
            ("twice", "neg(tv31[i0, i1])", "mul(tv31[i0, i1], -2.0)"),
            ("the repair of another chunk", "rescaled 2 by tv36[i0, i2]", "rescaled 2 by tv36[i0, 0]"),
            ("terms with the first chunk's maximum", "sub(tv21[i0, i1, i2], tv25[i0, i1])", "sub(tv21[i0, i1, i2], tv25[i0, 0])"),
            ("terms with the maximum before", "sub(tv21[i0, i1, i2], tv25[i0, i1])", "sub(tv21[i0, i1, i2], tv25[i0, max(i1 - 1, 0)])"),
            ("a repair of nothing", "scan maximum along 1 exclusive", "scan maximum along 1"),
            ("the last chunk is left out", "pick(tv20[i0, i1, i2] if 16*i1 + i2 < N", "pick(tv20[i0, i1, i2] if 16*i1 + i2 < N - 1"),
            ("a chunk of values twice", "v[16*i0 + i1, i2]", "v[16*(i0//2) + i1, i2]"),
            ("divided by a sum that is not repaired", "div(tv11[i0], 1.0)", "div(tv7[i0], 1.0)"),
            ("not divided", "mul(tv49[i0, i1], tv48[i0, i1])", "mul(tv49[i0, i1], 1.0)"),
            ("another scale", "mul(tv19[i0, i1, i2], 0.125)", "mul(tv19[i0, i1, i2], 0.25)"),
            ("another base", "exp(tv26[i0, i1, i2])", "exp2(tv26[i0, i1, i2])"),
        ),
        "parts": (
            ("parts are joined without repairs", "mul(tv49[i0, i2], tv60[i0, i1, i2])", "copy(tv60[i0, i1, i2])"),
            ("of one of several states", "mul(tv49[i0, i1], tv30[i0, i1])", "copy(tv30[i0, i1])"),
            ("the repair of another part", "mul(tv49[i0, i2], tv60[i0, i1, i2])", "mul(tv49[i0, 3 - i2], tv60[i0, i1, i2])"),
            ("a part twice", "mul(tv49[i0, i2], tv60[i0, i1, i2])", "mul(tv49[i0, i2], tv60[i0, i1, i2//2*2])"),
            ("a fold that begins with 1", "fma(tv38[i0, i2, i3], tv55[i0, i1, i2, i3]) from 0.0", "fma(tv38[i0, i2, i3], tv55[i0, i1, i2, i3]) from 1.0"),
            ("a fold without repairs", "fma(tv38[i0, i2, i3], tv55[i0, i1, i2, i3])", "fma(1.0, tv55[i0, i1, i2, i3])"),
        ),
        "chunks side by side": (
            ("chunks are joined without repairs", "mul(tv41[i2, i0], tv30[i2, i0, i1])", "copy(tv30[i2, i0, i1])"),
            ("with the repair of another chunk", "mul(tv41[i2, i0], tv30[i2, i0, i1])", "mul(tv41[0, i0], tv30[i2, i0, i1])"),
        ),
    }
)


@pytest.mark.parametrize(("walk", "fault"), [(walk, fault) for walk, faults in FAULTS.items() for fault in faults])
def test_faults_are_refuted(walk: str, fault: tuple[str, str, str]) -> None:
    _, old, new = fault
    assert is_refuted(changed(attention(walk), old, new))
