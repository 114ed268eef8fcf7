"""Fusions of shifted slices, and the check that a rewriting call keeps their math."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import taskfuse as tf
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR

RNG = np.random.default_rng(0)


def shifted(before: int, after: int, step: int = 1, size: int | str = 9) -> tuple[tf.Fusion, list[tf.TensorView]]:
    """Three slices along the second of three axes, of a tensor that may be padded there, as tensors with code of their own."""
    with tf.Fusion("shifts") as fusion:
        x = tf.define_tensor([2, size if isinstance(size, int) else tf.dim(size, min=3), 5], name="x")
        n = x.shape[1] + (before + after - 2)
        padded = tf.pad(x, [(0, 0), (before, after), (0, 0)]) if before + after else x
        parts = [tf.exp(padded[:, k : k + n : step]) for k in (1, 0, 2)]
        fusion.add_output(parts[0] + parts[1] * parts[2])
    return fusion, [made for tv in parts for made in padded.recompute([tv])]


def same(fusion: tf.Fusion, change: Callable[[], object]) -> None:
    """Check that a change keeps the math, which then prints and parses, and that the kernel is proved: of constant extents, since it keeps all in registers."""
    given = [RNG.standard_normal((2, 9, 5)).astype(np.float32)]
    (wanted,) = evaluate(fusion, given, MODULAR)
    change()
    assert np.array_equal(evaluate(fusion, given, MODULAR)[0], wanted)
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    fusion.inline_most()
    assert fusion.dims or tf.lower(fusion).verify().is_proved
