"""Schedules of matrix products: every epilogue, layout, dtype, remainder and parameter, against float64."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.reports.resources import Resources
from taskfuse.schedulers import MatmulConfig, MatmulKind
from tests.proofs import proved
from tests.schedulers.multiplied import KINDS
from tests.schedulers.products import SMALL, TWO, Product, fitted, operands, simulated, swapped
from tests.thinning import in_turn

EPILOGUES = ("", "bias", "relu", "rows bias gelu", "residual silu", "scale bias relu", "square bias", "residual rows scale square relu")


@pytest.mark.parametrize(("epilogue", "out"), in_turn(EPILOGUES, (tf.bfloat16, tf.float32)), ids=str)
def test_epilogues(epilogue: str, out: tf.DType) -> None:
    simulated(Product(epilogue, out=out), SMALL, {"M": 70, "N": 72, "K": 72})


@pytest.mark.parametrize("layout", ["kk", "kn", "mk", "mn"])
@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16], ids=str)
def test_dtypes_and_layouts(layout: str, dtype: tf.DType) -> None:
    config = replace(TWO, tile_n=128) if layout == "mn" else SMALL
    simulated(Product("bias", dtype, dtype, layout), config, {"M": 136, "N": 72, "K": 72})


TYPES = (
    (Product("scale bias", tf.float8_e4m3, tf.bfloat16), "pingpong"),
    (Product("rows relu", tf.float8_e4m3, tf.float8_e4m3), "two"),
    (Product("scale", tf.float8_e5m2, tf.float16), "clusters"),
    (Product("bias", tf.int8, tf.int32), "two"),
    (Product("", tf.uint8, tf.int32), "pingpong"),
    (Product("scale", tf.int8, tf.bfloat16), "clusters"),
    (Product("bias gelu", tf.float32, tf.float32), "two"),
    (Product("residual", tf.float32, tf.bfloat16), "pingpong"),
)


@pytest.mark.parametrize(("product", "kind"), TYPES, ids=lambda x: f"{x.dtype} {x.out}" if isinstance(x, Product) else x)
def test_types(product: Product, kind: str) -> None:
    sizes = {"M": 70, "N": 80, "K": 144}
    proved(simulated(product, KINDS[kind], sizes), sizes)


@pytest.mark.parametrize(("kind", "layout"), [("pingpong", "mn"), ("clusters", "kn"), ("clusters", "mk")])
def test_layouts_of_kinds(kind: str, layout: str) -> None:
    """Of a factor with the other axis contiguous a slot has several boxes; clusters share each of them."""
    sizes = {"M": 72, "N": 136, "K": 72}
    proved(simulated(Product("bias", layout=layout), replace(KINDS[kind], tile_n=128), sizes), sizes)


@pytest.mark.parametrize(("kind", "layout", "columns"), [("one", "kn", 16), ("pingpong", "mn", 80), ("clusters", "kn", 48)])
def test_a_slot_of_whole_rows_of_the_swizzle(kind: str, layout: str, columns: int) -> None:
    """Columns that are contiguous are loaded by 64; of the last 64 of a tile some are those of the next tile, and the tensor cores read what they multiply."""
    sizes = {"M": 72, "N": 136, "K": 72}
    proved(simulated(Product("bias", layout=layout), replace({**KINDS, "one": SMALL}[kind], tile_n=columns), sizes), sizes)


def test_every_candidate_is_a_schedule() -> None:
    """Of 8-bit floats, and of a batch whose factors have their own axes contiguous, at a size at which all kinds are candidates."""
    for product in (Product("scale", tf.float8_e4m3, tf.float32), Product("relu", layout="mn", batch=("B",))):
        found = tf.schedulers.matmul(product.fusion(), sizes={"M": 2048, "N": 2048, "K": 256}).alternatives
        assert {(e.config.kind, e.config.cluster) for e in found} == {(MatmulKind.COOPERATIVE, 1), (MatmulKind.PINGPONG, 1), (MatmulKind.COOPERATIVE, 2)}
        for e in found:
            made = tf.schedulers.matmul(product.fusion(), e.config)
            assert made.config is e.config


@pytest.mark.parametrize(
    "product",
    [
        Product("residual bias", batch=("B",)),
        Product("relu", batch=("B", "C"), layout="mn"),
        Product("", out=tf.float32, batch=("B",), b_batch=False),
    ],
    ids=["batch", "two", "broadcast"],
)
def test_batches(product: Product) -> None:
    simulated(product, SMALL, {"B": 2, "C": 2, "M": 72, "N": 72, "K": 72})


@cache
def lowered(config: MatmulConfig) -> tuple[tf.Fusion, tf.Kernel]:
    fusion = Product("bias gelu").fusion()
    tf.schedulers.matmul(fusion, config)
    return fusion, tf.lower(fusion)


@settings(max_examples=7, deadline=None)
@given(st.sampled_from([SMALL, TWO]), st.integers(1, 150), st.integers(1, 20), st.integers(1, 30), st.integers(0, 99))
def test_any_size(config: MatmulConfig, m: int, n: int, k: int, seed: int) -> None:
    fusion, kernel = lowered(config)
    args = operands(fusion, {"M": m, "N": 8 * n, "K": 8 * k}, seed)
    Product("bias gelu").check(fusion, kernel.simulate(*args, seed=seed), args)


def test_transposed_outputs_exchange_the_operands() -> None:
    """The contiguous axis of the first output is the columns of the tensor cores' tile; another output is stored as it lies."""
    with tf.Fusion("transposed") as fusion:
        a, b = (tf.define_tensor([tf.dim(r, multiple_of=8), tf.dim("K", multiple_of=8)], dtype=tf.bfloat16, name=n) for r, n in (("M", "a"), ("N", "b")))
        product = tf.matmul(a, b.T, dtype=tf.float32)
        fusion.add_output(tf.cast(product.T, tf.bfloat16))
        fusion.add_output(tf.relu(product))
    tf.schedulers.matmul(fusion, SMALL)
    kernel = tf.lower(fusion)
    args = operands(fusion, {"M": 72, "N": 136, "K": 64})
    turned, relu = kernel.simulate(*args)
    plain = Product("relu", out=tf.float32)
    plain.check(fusion_of(plain), [relu], args)
    plain = Product()
    plain.check(fusion_of(plain), [turned.T], args)


@cache
def fusion_of(product: Product) -> tf.Fusion:
    return product.fusion()


def test_a_product_written_as_a_sum() -> None:
    """What counts is the reduction, not the op that made it: rows and columns may lie anywhere in its iteration space."""
    with tf.Fusion("permuted") as fusion:
        a = tf.define_tensor(["M", "B", tf.dim("K", multiple_of=8)], dtype=tf.float16, name="a")
        b = tf.define_tensor([tf.dim("N", multiple_of=8), "K"], dtype=tf.float16, name="b")
        fusion.add_output(tf.cast(tf.matmul(a, b.T, dtype=tf.float32), tf.float16))
    tf.schedulers.matmul(fusion, SMALL)
    args = operands(fusion, {"M": 3, "B": 70, "N": 72, "K": 64})
    (out,) = tf.lower(fusion).simulate(*args)
    plain = Product(dtype=tf.float16, out=tf.float16, batch=("M",), b_batch=False)
    plain.check(fusion_of(plain), [out], args)


def test_inputs_of_the_epilogue_that_are_read_twice() -> None:
    """One at the same place by two ops, one at its place and transposed; and a factor with a batch axis of extent 1."""
    with tf.Fusion("twice") as fusion:
        n = tf.dim("N", multiple_of=8)
        a = tf.define_tensor(["B", n, tf.dim("K", multiple_of=8)], dtype=tf.bfloat16, name="a")
        b = tf.define_tensor([1, "N", "K"], dtype=tf.bfloat16, name="b")
        scale, both = tf.define_tensor([1, 1], name="scale"), tf.define_tensor(["N", "N"], name="both")
        x = tf.matmul(a, swapped(b), dtype=tf.float32)
        fusion.add_output((x + scale) * scale + both + both.T)
    tf.schedulers.matmul(fusion, SMALL)
    args = operands(fusion, {"B": 2, "N": 72, "K": 64})
    (out,) = tf.lower(fusion).simulate(*args)
    wide = [x.astype(np.float64) for x in args]
    np.testing.assert_allclose(out, (wide[0] @ np.swapaxes(wide[1], -1, -2) + wide[2]) * wide[2] + wide[3] + wide[3].T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("product", "config"),
    [
        (Product("bias gelu"), MatmulConfig()),
        (Product("residual bias gelu"), MatmulConfig(128, 256)),
        (Product("relu"), MatmulConfig(256, 128)),
        (Product("rows bias relu", out=tf.float32, layout="mn"), MatmulConfig(128, 128)),
        (Product("bias relu"), MatmulConfig(128, 128, kind=MatmulKind.PINGPONG)),
        (Product("bias relu"), MatmulConfig(cluster=2)),
        (Product("scale bias", tf.float8_e4m3), MatmulConfig()),
        (Product("", tf.int8, tf.int32), MatmulConfig(128, 128)),
        (Product("relu"), MatmulConfig(64, 16, warpgroups=1, stages=8)),
    ],
    ids=["bias", "residual", "256x128", "float32", "pingpong", "clusters", "e4m3", "int8", "narrow"],
)
def test_the_compiler_neither_spills_nor_serializes(product: Product, config: MatmulConfig) -> None:
    fusion = product.fusion()
    tf.schedulers.matmul(fusion, fitted(config, product.dtype))
    found = tf.lower(fusion).resources().compiled
    assert isinstance(found, Resources)
    assert (found.spill_stores, found.spill_loads, found.stack) == (0, 0, 0)


def test_pairs_of_blocks_with_one_tile_at_most_each_are_proved() -> None:
    """The trip count is one or none, so when a pair has a tile is a condition on half its number."""
    product, sizes = Product("bias", tf.int8, tf.int32), {"M": 1100, "N": 1424, "K": 592}
    fusion = product.fusion()
    tf.schedulers.matmul(fusion, fitted(MatmulConfig(128, 256, stages=3, cluster=2), product.dtype), sizes=sizes)
    tf.lower(fusion).verify(sizes).require()
