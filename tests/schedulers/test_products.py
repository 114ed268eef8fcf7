"""Several unlike products on one list of tiles: proved with values, simulated, compiled; what is refused."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.reports.resources import Resources
from taskfuse.schedulers import ProductsConfig
from taskfuse.testing.lists import draw_shapes, list_kernel
from tests.proofs import proved

Shape = tuple[int | str, int, int]
TEXT: tuple[Shape, ...] = ((1152, 768, 128), (1152, 768, 1024), (768, 1152, 128), (768, 1152, 1024))
SMALL = ProductsConfig(64, 64, warpgroups=1, stages=3, blocks=3)


def listed(shapes: Sequence[Shape], *, bias: Sequence[int] = (), out: tf.DType = tf.bfloat16) -> tf.Fusion:
    """Products ``a @ b.T``; those whose numbers are in ``bias`` with a bias and relu."""
    with tf.Fusion("list") as fusion:
        for g, (m, n, k) in enumerate(shapes):
            a, b = (tf.define_tensor([rows, k], dtype=tf.bfloat16, name=f"{name}{g}") for rows, name in ((m, "a"), (n, "b")))
            x = tf.matmul(a, b.T, dtype=tf.float32)
            if g in bias:
                x = tf.relu(x + tf.define_tensor([n], name=f"bias{g}"))
            fusion.add_output(tf.cast(x, out))
    return fusion


def simulated(fusion: tf.Fusion, kernel: tf.Kernel, sizes: dict[str, int] | None = None) -> None:
    rng = np.random.default_rng(0)
    args = [
        rng.standard_normal([sizes[str(e)] if sizes and str(e) in sizes else int(str(e)) for e in tv.shape]).astype(
            ml_dtypes.bfloat16 if tv.dtype is tf.bfloat16 else np.float32
        )
        for tv in fusion.inputs
    ]
    for out, wanted in zip(kernel.simulate(*args, seed=1), fusion.evaluate(*args), strict=True):
        assert np.allclose(out.astype(np.float64), wanted.astype(np.float64), rtol=2**-7, atol=1e-3)


@pytest.mark.parametrize("is_sorted", [False, True])
def test_unlike_products(is_sorted: bool) -> None:
    """With remainders, an epilogue in one of them, fewer and more tiles than blocks; the ring goes on, and one staging area serves all."""
    fusion = listed([(70, 72, 64), (130, 136, 200), (200, 64, 128)], bias=[1])
    chosen = tf.schedulers.products(fusion, ProductsConfig(64, 64, warpgroups=1, stages=3, blocks=4, is_sorted=is_sorted))
    kernel = tf.lower(fusion)
    simulated(fusion, proved(kernel))
    assert [b.name for b in kernel.mbarriers] == ["ch0.full", "ch0.empty"]
    assert sum(b.memory is tf.MemoryType.Shared for b in kernel.buffers) == 3

    assert chosen.config.is_sorted is is_sorted


def test_a_computed_factor() -> None:
    """Of one of the products: half of its registers are free while the other half is multiplied."""
    with tf.Fusion("list") as fusion:
        for g, k in enumerate((128, 72)):
            a, b = (tf.define_tensor([rows, k], dtype=tf.bfloat16, name=f"{name}{g}") for rows, name in ((70, "a"), (64, "b")))
            fusion.add_output(tf.cast(tf.matmul(tf.cast(tf.exp(a), tf.bfloat16) if g == 0 else a, b.T, dtype=tf.float32), tf.bfloat16))
    for config, reason in ((replace(SMALL, in_flight=2), "no multiple of 3 parts"), (replace(SMALL, tile_k=192), "192, which does not divide k = 128")):
        with pytest.raises(UnsupportedError, match=reason):
            tf.schedulers.products(fusion, config)
    chosen = tf.schedulers.products(fusion)
    assert (chosen.config.in_flight, chosen.config.tile_k) == (1, 64)
    simulated(fusion, proved(tf.lower(fusion)))


def test_an_extent_of_the_launch() -> None:
    fusion = listed([("M", 72, 64), (130, 64, 128)])
    tf.schedulers.products(fusion, SMALL)
    kernel = proved(tf.lower(fusion), {"M": 70}, {"M": 300})
    for m in (1, 70, 300):
        simulated(fusion, kernel, {"M": m})


def test_the_four_problems_of_the_page() -> None:
    """On 108 blocks, as on the GPU of the page: proved, and compiled without a spilled register."""
    fusion = listed(TEXT)
    chosen = tf.schedulers.products(fusion, ProductsConfig(128, 128, stages=6, blocks=108))
    assert "216 tiles, 2 waves, the longest of 108 blocks 1.00 times the mean" in chosen.explain()
    kernel = proved(tf.lower(fusion))
    found = kernel.resources().compiled
    assert isinstance(found, Resources)
    assert (found.spill_stores, found.spill_loads, found.stack) == (0, 0, 0)
    unsorted = tf.schedulers.products(listed(TEXT), ProductsConfig(128, 128, stages=6, blocks=108, is_sorted=False))
    assert unsorted.us > 1.3 * chosen.us


def test_the_only_tiles_are_those_of_few_blocks() -> None:
    """Most blocks take no tile of the first product, and the boxes that are stored are too many to write down one by one."""
    proved(list_kernel([(717, 56, 64), (1353, 1936, 64)], ProductsConfig(192, 128, warpgroups=3, stages=3, is_sorted=False)))


@pytest.mark.parametrize("seed", [10, 17, 32])
def test_random_lists(seed: int) -> None:
    """With a number of tiles along an axis that no power of two divides, and blocks that begin anywhere."""
    proved(list_kernel(draw_shapes(random.Random(seed), 4)))


def test_a_factor_of_several_products_is_one_input() -> None:
    """The three projections of attention, with fewer heads of keys and values."""
    with tf.Fusion("qkv") as fusion:
        x = tf.define_tensor([70, 128], dtype=tf.bfloat16, name="x")
        for name, n in (("q", 128), ("k", 64), ("v", 64)):
            w = tf.define_tensor([n, 128], dtype=tf.bfloat16, name=f"w{name}")
            fusion.add_output(tf.cast(tf.matmul(x, w.T, dtype=tf.float32), tf.bfloat16))
    tf.schedulers.products(fusion, SMALL)
    simulated(fusion, proved(tf.lower(fusion)))


def test_the_choice_and_its_code() -> None:
    fusion = listed(TEXT)
    chosen = tf.schedulers.products(fusion)
    assert chosen.config.is_sorted
    assert "sorted" in chosen.explain()
    again = listed(TEXT)
    exec(chosen.code, {"fusion": again})
    assert str(again) == str(fusion)
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)


def test_the_text_of_a_fusion_has_the_rings() -> None:
    fusion = listed(TEXT[:2])
    tf.schedulers.products(fusion, SMALL)
    assert str(fusion).count("; ring rows;") == str(fusion).count("; ring columns;") == 2
    assert str(tf.lower(tf.parse_fusion(str(fusion)))) == str(tf.lower(fusion))


def one_product() -> tf.Fusion:
    return listed(TEXT[:1])


def two_dtypes() -> tf.Fusion:
    fusion = listed(TEXT[:1])
    with fusion:
        a, b = (tf.define_tensor([64, 64], dtype=tf.float16, name=name) for name in ("c", "d"))
        fusion.add_output(tf.matmul(a, b.T, dtype=tf.float32))
    return fusion


def common_bias() -> tf.Fusion:
    with tf.Fusion("bias") as fusion:
        bias = tf.define_tensor([64], name="bias")
        for g in range(2):
            a, b = (tf.define_tensor([64, 64], dtype=tf.bfloat16, name=f"{name}{g}") for name in "ab")
            fusion.add_output(tf.matmul(a, b.T, dtype=tf.float32) + bias)
    return fusion


def two_results() -> tf.Fusion:
    fusion = listed(TEXT[:1])
    with fusion:
        a, b = (tf.define_tensor([64, 64], dtype=tf.bfloat16, name=name) for name in ("c", "d"))
        fusion.add_output(tf.cast(tf.matmul(a, b.T, dtype=tf.float32), tf.float16))
    return fusion


def reduced() -> tf.Fusion:
    fusion = listed(TEXT[:1])
    with fusion:
        a, b = (tf.define_tensor([64, 64], dtype=tf.bfloat16, name=name) for name in ("c", "d"))
        fusion.add_output(tf.sum(tf.matmul(a, b.T, dtype=tf.float32), axis=1))
    return fusion


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (one_product, "it takes several independent products"),
        (two_dtypes, "differ in dtype"),
        (common_bias, "bias is read by several products"),
        (two_results, "are stored with different dtypes"),
        (reduced, "reduces"),
    ],
)
def test_refused(make: Callable[[], tf.Fusion], reason: str) -> None:
    fusion = make()
    before = str(fusion)
    with pytest.raises(UnsupportedError, match=reason):
        tf.schedulers.products(fusion)
    assert str(fusion) == before
