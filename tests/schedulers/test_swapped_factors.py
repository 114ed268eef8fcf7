"""Products whose factors the instruction takes in the other order, for results of few rows."""

from dataclasses import replace

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import MatmulConfig, MatmulKind
from tests.proofs import proved
from tests.schedulers.products import Product, fitted, simulated

NARROW = MatmulConfig(64, 8, 64, warpgroups=1, stages=3, blocks=3, is_swapped=True)
WIDE = MatmulConfig(128, 24, 64, warpgroups=2, stages=3, blocks=2, is_swapped=True)


@pytest.mark.parametrize(("config", "layout"), [(NARROW, "kk"), (WIDE, "kk"), (WIDE, "kn")], ids=["narrow", "wide", "columns contiguous"])
def test_every_epilogue_of_few_rows(config: MatmulConfig, layout: str) -> None:
    """Of few and of more rows than a tile has columns, which the kernel takes all the same; proved for all extents."""
    product = Product("rows bias residual scale square relu", layout=layout)
    kernel = simulated(product, config, *({"M": m, "N": 136, "K": 72} for m in ((1, 8, 26) if layout == "kk" else (8, 32))))
    proved(kernel, {"M": 8, "N": 136, "K": 72})


@pytest.mark.parametrize(
    ("product", "config"),
    [
        (Product("scale", tf.float8_e4m3, tf.bfloat16), NARROW),
        (Product("", tf.int8, tf.int32), replace(WIDE, tile_n=48)),
        (Product("bias", tf.float32, tf.float32), WIDE),
        (Product("relu", tf.float16, tf.float16, batch=("B",)), WIDE),
        (Product("bias", layout="mk"), replace(NARROW, tile_n=64)),
        (Product("bias"), replace(NARROW, warpgroups=2, kind=MatmulKind.PINGPONG)),
        (Product("bias"), replace(WIDE, tile_n=32, cluster=2)),
    ],
    ids=["fp8", "int8", "tf32", "batch", "rows contiguous", "ping-pong", "cluster"],
)
def test_types_and_kinds(product: Product, config: MatmulConfig) -> None:
    simulated(product, config, {"B": 2, "M": 8, "N": 144, "K": 144})


def test_products_of_common_rows() -> None:
    """Both walk along k together, and a slot has one tile of the few rows."""
    with tf.Fusion("gated") as fusion:
        x, a, b = (tf.define_tensor([rows, 200], dtype=tf.bfloat16) for rows in (5, 136, 136))
        fusion.add_output(tf.silu(x @ a.T) * (x @ b.T))
    assert tf.schedulers.matmul(fusion).config.is_swapped
    kernel = tf.lower(fusion)
    kernel.verify().require()
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(tuple(map(int, map(str, tv.shape)))).astype(tv.dtype.numpy) for tv in fusion.inputs]
    (out,), (expected,) = kernel.simulate(*args, seed=1), fusion.evaluate(*args)
    np.testing.assert_allclose(out.astype(np.float32), expected.astype(np.float32), rtol=2**-7, atol=2**-7)


def test_few_rows_are_swapped_by_themselves() -> None:
    """The instruction's 64 rows are then columns of the result, and a tile loads as many rows of the first factor as there are."""
    for rows, is_swapped in ((1, True), (16, True), (128, False)):
        with tf.Fusion("few") as fusion:
            x, w = tf.define_tensor([rows, 4096], dtype=tf.bfloat16), tf.define_tensor([4096, 4096], dtype=tf.bfloat16)
            fusion.add_output(x @ w)
        chosen = tf.schedulers.matmul(fusion)
        assert chosen.config.is_swapped is is_swapped
        assert ("factors swapped" in chosen.explain()) is is_swapped
        assert not is_swapped or chosen.config.tile_n == -(-rows // 8) * 8
    assert {option.config.is_swapped for option in chosen.alternatives} == {False}


def test_the_code_of_the_schedule_makes_the_same_kernel() -> None:
    made, again = Product("bias").fusion(), Product("bias").fusion()
    exec(tf.schedulers.matmul(made, NARROW).code, {"fusion": again})
    assert str(again) == str(made)


def test_refusals() -> None:
    with tf.Fusion("reduced") as fusion:
        x, w = (tf.define_tensor([64, 64], dtype=tf.bfloat16) for _ in range(2))
        fusion.add_output((x @ w).sum(0))
    with pytest.raises(UnsupportedError, match="factors can be swapped only where one product of inputs makes each stored element"):
        tf.schedulers.matmul(fusion, NARROW)
    with pytest.raises(UnsupportedError, match="tile_n is a multiple of 8"):
        replace(NARROW, tile_n=12)
    with pytest.raises(UnsupportedError, match="tile_n is a multiple of 16"):
        replace(NARROW, is_swapped=False)


def test_parameters_for_the_order_that_cannot_be() -> None:
    """A computed factor of rows that are weights: it is multiplied from registers, as the first one, alone."""
    with tf.Fusion("computed") as fusion:
        x, w = tf.define_tensor([8, 128], dtype=tf.float16), tf.define_tensor([16, 128], dtype=tf.float8_e4m3)
        fusion.add_output(x @ (tf.cast(w, tf.float16) * tf.define_tensor([128], dtype=tf.float16)).T)
    before = str(fusion)
    with pytest.raises(UnsupportedError, match=r"with its factors as they are, the factor .* is computed") as refused:
        tf.schedulers.matmul(fusion, MatmulConfig(64, 16, 64, warpgroups=1))
    assert refused.value.help == "use is_swapped=True"
    assert str(fusion) == before
    assert tf.schedulers.matmul(fusion).config.is_swapped


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float8_e4m3], ids=str)
def test_the_compiler_neither_spills_nor_serializes(dtype: tf.DType) -> None:
    fusion = Product("bias residual gelu", dtype).fusion()
    tf.schedulers.matmul(fusion, fitted(replace(WIDE, tile_n=128), dtype))
    compiled = tf.lower(fusion).resources().compiled
    assert (compiled.spill_stores, compiled.spill_loads) == (0, 0)
