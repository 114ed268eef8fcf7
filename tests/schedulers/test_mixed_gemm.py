"""Products of few columns with a factor that is computed of narrower elements: of 4 and 8 bits, and floats; edges; what is refused; where it is chosen."""

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import MixedGemmConfig
from taskfuse.schedulers.computed_factors import compute_where_multiplied
from taskfuse.target import A100

RNG = np.random.default_rng(0)
SMALL = MixedGemmConfig(32, 8, 16, 256, 2, 2)


def product(kind: str, rows: int, columns: int, k: int, *, dtype: tf.DType = tf.bfloat16, is_first: bool = False) -> tf.Fusion:
    """``x @ w.T`` with a scale of each row, and a bias; the weights first: ``w @ x.T``."""
    packed = 2 if kind == "four" else 1
    source = {"four": tf.uint8, "signed": tf.int8, "unsigned": tf.uint8, "float8": tf.float8_e4m3}.get(kind, dtype)
    with tf.Fusion(f"mixed_{kind}") as fusion:
        x = tf.define_tensor([columns, k], dtype, name="x")
        w = tf.define_tensor([rows, k // packed], source, name="w")
        bias = tf.define_tensor([rows], dtype, name="bias")
        if kind == "four":
            digits = tf.reshape(tf.stack([tf.bitwise_and(w, 15), tf.right_shift(w, 4)], 2), [rows, k])
            wide = tf.cast(tf.cast(digits, tf.float32) - 8.0, dtype)
        else:
            wide = tf.relu(w) if kind == "half" else w if kind == "plain" else tf.cast(w, dtype)
        fusion.add_output(wide @ x.T + bias[:, None] if is_first else x @ wide.T + bias)
    form = compute_where_multiplied(fusion)
    return fusion if form is None else form.fusion


def numbers(fusion: tf.Fusion) -> list[Any]:
    """Small integers: sums are exact."""
    return [
        RNG.integers(0 if tv.dtype is tf.uint8 else -2, 255 if tv.dtype is tf.uint8 else 3, [int(str(e)) for e in tv.shape]).astype(tv.dtype.numpy)
        for tv in fusion.inputs
    ]


def runs(fusion: tf.Fusion, config: MixedGemmConfig = SMALL) -> tf.Kernel:
    """It is proved, and gives what the math gives."""
    given = numbers(fusion)
    (wanted,) = fusion.evaluate(*given)
    tf.schedulers.mixed_gemm(fusion, config)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    (out,) = kernel.simulate(*given, seed=0)
    assert np.array_equal(out.astype(np.float64), wanted.astype(np.float64))
    return kernel


@pytest.mark.parametrize("kind", ["four", "signed", "unsigned", "float8", "half"])
def test_elements_of_every_width(kind: str) -> None:
    runs(product(kind, 32, 8, 256))


@pytest.mark.parametrize(
    ("rows", "columns", "config", "is_first"),
    [
        (40, 5, SMALL, False),
        (48, 24, MixedGemmConfig(32, 24, 32, 256, 1, 2), True),
        (16, 1, MixedGemmConfig(16, 8, 16, 256, 4, 3), False),
    ],
)
def test_edges_and_orders(rows: int, columns: int, config: MixedGemmConfig, is_first: bool) -> None:
    runs(product("four", rows, columns, 512, is_first=is_first), config)


def test_halves_of_float16() -> None:
    runs(product("signed", 32, 8, 256, dtype=tf.float16))


@pytest.mark.parametrize(
    ("change", "config", "message"),
    [
        ({"columns": 72}, None, "it has 72 columns"),
        ({"kind": "plain"}, None, "it multiplies no factor that is computed of inputs"),
        ({"k": 768}, MixedGemmConfig(32, 8, 16, 512, 2, 2), "768 terms are no whole tiles"),
        ({}, MixedGemmConfig(32, 8, 16, 32, 2, 2), "a part of one no whole groups of 32"),
        ({}, MixedGemmConfig(256, 8, 32, 512, 1, 8), "bytes of Shared memory and has"),
    ],
)
def test_refusals(change: dict[str, Any], config: MixedGemmConfig | None, message: str) -> None:
    given: dict[str, Any] = {"kind": "four", "rows": 64, "columns": 8, "k": 512} | change
    fusion = product(**given)
    text = str(fusion)
    with pytest.raises(UnsupportedError, match=message):
        tf.schedulers.mixed_gemm(fusion, config)
    assert str(fusion) == text


def test_ampere_takes_it() -> None:
    fusion = product("four", 4096, 8, 4096)
    assert tf.schedulers.auto(fusion, target=A100).scheduler == "mixed_gemm"


@pytest.mark.parametrize(("columns", "chosen"), [(8, "mixed_gemm"), (512, "matmul")])
def test_few_rows_by_weights_of_four_bits_take_it(columns: int, chosen: str) -> None:
    assert tf.schedulers.auto(product("four", 14336, columns, 4096)).scheduler == chosen
