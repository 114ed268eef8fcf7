"""Factors that are computed where products read them: weights of 8 and 4 bits, with scales; proved, simulated, planted mistakes."""

import sys
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check import Verdict, verify
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.expr import Reduction
from taskfuse.ir.storage import needed
from taskfuse.ir.values import MODULAR
from taskfuse.kir import parse_kernel
from taskfuse.schedule.parts import Parts
from taskfuse.schedulers import MatmulConfig, MatmulKind
from taskfuse.schedulers.computed_factors import compute_where_multiplied, computed_for
from taskfuse.schedulers.long_products import cut
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.segment_ways import RowViews
from taskfuse.schedulers.segmenter import choose_segments
from tests.proofs import proved

M, N, K, GROUP = 20, 72, 512, 128
SMALL = MatmulConfig(64, 24, 256, warpgroups=1, stages=2, in_flight=0, blocks=2, is_swapped=True)


def fusion(kind: str, m: int = M, n: int = N, k: int = K) -> tf.Fusion:
    """Rows of bfloat16 by weights that are computed."""
    dtypes = {"int4": tf.uint8, "words": tf.int32, "fp8": tf.float8_e4m3, "float32": tf.float32}
    packed = {"int4": 2, "words": 8}.get(kind, 1)
    with tf.Fusion(kind) as made:
        x = tf.define_tensor([m, k], dtype=tf.bfloat16, name="x")
        w = tf.define_tensor([n, k // packed], dtype=dtypes.get(kind, tf.int8), name="w")
        scales = tf.define_tensor([n, k // GROUP] if kind in ("groups", "int4") else [n], dtype=tf.bfloat16, name="scales")
        wide = w
        if kind == "int4":
            wide = tf.cast(tf.reshape(tf.stack([tf.bitwise_and(w, 15), tf.right_shift(w, 4)], 2), [n, k]), tf.float32) - 8.0
        elif kind == "words":
            parts = tf.right_shift(w[:, :, None], tf.arange(0, 32, 4, dtype=tf.int32))
            wide = tf.cast(tf.bitwise_and(tf.reshape(parts, [n, k]), 15) - 8, tf.float32)
        wide = tf.cast(wide, tf.bfloat16)
        if kind in ("groups", "int4"):
            wide = tf.reshape(tf.reshape(wide, [n, k // GROUP, GROUP]) * scales[:, :, None], [n, k])
        elif kind == "rows":
            wide = wide * scales[:, None]
        out = tf.matmul(x, wide.T, dtype=tf.float32)
        made.add_output(tf.cast(out if kind in ("groups", "int4", "rows") else out * scales, tf.bfloat16))
    return made


def arguments(made: tf.Fusion) -> list[np.ndarray]:
    """Random ones, of which sums are exact."""
    rng = np.random.default_rng(0)
    x, w, scales = made.inputs
    shapes = [tuple(int(str(e)) for e in tv.shape) for tv in (x, w, scales)]
    low, high = {tf.int32: (-(2**31), 2**31), tf.uint8: (0, 256)}.get(w.dtype, (-4, 5))
    numbers = rng.integers(low, high, shapes[1]).astype(w.dtype.numpy)
    return [rng.integers(-3, 4, shapes[0]).astype(ml_dtypes.bfloat16), numbers, np.exp2(rng.integers(-2, 2, shapes[2])).astype(ml_dtypes.bfloat16)]


def one_kernel(made: tf.Fusion) -> tf.Fusion:
    """The fusion with factors at the points of the product."""
    form = compute_where_multiplied(made)
    return made if form is None else form.fusion


CASES = {
    "int8": SMALL,
    "fp8": MatmulConfig(128, 24, 128, stages=2, blocks=1, is_swapped=True),
    "float32": MatmulConfig(64, 24, 64, warpgroups=1, stages=2, blocks=2, is_swapped=True),
    "rows": MatmulConfig(128, 16, 256, stages=2, blocks=2, is_swapped=True),
    "groups": MatmulConfig(64, 32, 128, stages=2, blocks=3, kind=MatmulKind.PINGPONG, is_swapped=True),
    "int4": SMALL,
    "words": MatmulConfig(128, 16, 256, stages=2, blocks=1, is_swapped=True),
}


@pytest.mark.parametrize("kind", CASES)
def test_kinds(kind: str) -> None:
    """Numbers of 1 and 4 bytes; a scale of each row, or of each group; 2 in a byte, and 8 in a word."""
    made = one_kernel(fusion(kind))
    chosen = tf.schedulers.matmul(made, CASES[kind])
    kernel = proved(tf.lower(made))
    args = arguments(made)
    assert np.array_equal(kernel.simulate(*args, seed=1)[0], fusion(kind).evaluate(*args)[0])
    again = one_kernel(fusion(kind))
    exec(chosen.code, {"fusion": again})
    assert str(again) == str(made)


def test_the_choice() -> None:
    """One kernel for few rows; of many, a kernel of its own makes the factor once for all tiles of rows; few tiles and a long sum are cut into chunks, which
    compute the factor."""
    for kind in ("int8", "rows", "groups", "int4", "words"):
        run = tf.compile(fusion(kind, 8, 14336, 4096), "sim")
        assert len(run.kernels) == 1, kind
    several = choose_segments(fusion("int4", 72, 4096, 14336))
    assert [step.schedule.scheduler for step in several.steps] == ["matmul", "reduction"]
    assert "calls: chunk_reduction, through_view, cache_after, recompute, clamp_read" in several.explain()
    assert len(tf.compile(fusion("int4", 4096, 4096, 4096), "sim").kernels) == 2


def chunk_of(made: tf.Fusion, length: int) -> tf.Fusion:
    """The part of a fusion that computes chunks of its product."""
    script = Script(made)
    (product,) = (e.output for e in needed(made) if isinstance(e, Reduction))
    chunks = cut(script, product, 2, length)
    assert chunks.definition is not None
    tensors = [*computed_for(made, chunks.definition), chunks]
    return Parts(made).extract(tensors, "chunks", RowViews(made).of(tensors))


@pytest.mark.parametrize(("kind", "group"), [("int8", 0), ("groups", 128), ("int4", 128), ("int4", 192), ("words", 0)])
def test_chunks_of_k(kind: str, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk computes its part of the factor: of bytes, and of scales, from where they begin; in groups that no chunk is a whole number of, too."""
    monkeypatch.setattr(sys.modules[__name__], "GROUP", group or GROUP)
    k = 768 if group == 192 else K
    made = fusion(kind, k=k)
    chunks = chunk_of(made, 256)
    args = arguments(made)
    assert np.array_equal(evaluate(made, args, MODULAR)[0], evaluate(fusion(kind, k=k), args, MODULAR)[0])
    tf.schedulers.matmul(chunks, SMALL)
    proved(tf.lower(chunks))


def test_neighbors_in_a_byte_load_it_once() -> None:
    """Each element loads its own byte in kernel IR; NVRTC sees that two of them are one: 64 bytes of a step of 64 x 256 for each of 128 threads."""
    made = one_kernel(fusion("int4", n=64))
    tf.schedulers.matmul(made, SMALL)
    sass = tf.lower(made).sass("sm_90a")
    assert sass.count("LDS.U8") == 64
    assert sass.count("HFMA2.BF16") + sass.count("HMUL2.BF16") == 128  # two at a time, and nothing is converted
    assert "FADD" not in sass


def test_why_neither_order_is_taken() -> None:
    made = fusion("int8", k=192)
    with pytest.raises(tf.errors.UnsupportedError) as refused:
        tf.schedulers.matmul(made)
    assert "is computed; with its factors in the other order, the factor" in str(refused.value)
    assert "of zeros behind the end of k = 192, too" in str(refused.value)
    assert "or, swapped, make k a multiple of 128" in str(refused.value)


def test_no_other_form() -> None:
    """Where something else reads the factor, or nothing is at other points."""
    assert compute_where_multiplied(fusion("rows")) is None
    with tf.Fusion("shared") as made:
        x, w = tf.define_tensor([64, 64], dtype=tf.bfloat16, name="x"), tf.define_tensor([64, 64], dtype=tf.int8, name="w")
        wide = tf.reshape(tf.cast(w, tf.bfloat16) * 2.0, [64, 2, 32])
        made.add_output(x @ tf.reshape(tf.relu(wide), [64, 64]).T, tf.sum(wide, 2))
    assert compute_where_multiplied(made) is None


@cache
def text() -> str:
    made = one_kernel(fusion("int4", 16, 64, 256))
    tf.schedulers.matmul(made, MatmulConfig(64, 16, 256, warpgroups=1, stages=2, in_flight=0, blocks=1, is_swapped=True))
    return tf.lower(made).text(witness=True)


PLANTED = {
    "the byte of a neighbor": ("+ 8*(i23 % 2) + threadIdx.x % 4])", "+ 8*(i23 % 2) + 3 - threadIdx.x % 4])"),
    "the scale of the other group": (", i23//8])", ", 1 - i23//8])"),
    "the same half of a byte twice": (" = right_shift(tv21, 4)", " = right_shift(tv21, 0)"),
    "halves in the other order": ("(tv20 if i29 == 0, tv22 if i29 == 1)", "(tv20 if i29 == 1, tv22 if i29 == 0)"),
    "bytes of the slot before": ("copy(tv30[ch0.c.slot,", "copy(tv30[1 - ch0.c.slot,"),
}


def test_what_is_planted_into_is_proved() -> None:
    assert verify(parse_kernel(text())).is_proved


@pytest.mark.parametrize("name", PLANTED)
def test_planted_mistakes(name: str) -> None:
    old, new = PLANTED[name]
    assert old in text(), text()
    assert verify(parse_kernel(text().replace(old, new))).verdict is not Verdict.PROVED
