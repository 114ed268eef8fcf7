"""What a matmul schedule cannot be made for, and the texts that say so."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import MatmulConfig, MatmulKind
from tests.schedulers.products import SMALL, Product

K = tf.Dim("K", multiple_of=8)
N = tf.Dim("N", multiple_of=8)
WIDE = tf.Dim("K", multiple_of=16)


def tensor(*shape: str | int | tf.Dim, name: str = "a", dtype: tf.DType = tf.bfloat16) -> tf.TensorView:
    return tf.define_tensor(list(shape), dtype=dtype, name=name)


def two_products(fusion: tf.Fusion) -> None:
    a, b = tensor("M", K), tensor(N, K, name="b")
    fusion.add_output(tf.matmul(a, b.T, dtype=tf.float32), tf.matmul(a, b.T, dtype=tf.float32))


def many_products(fusion: tf.Fusion) -> None:
    x = tensor(64, 64)
    total = tf.matmul(x, tensor(64, 64, name="w0"), dtype=tf.float32)
    for i in range(1, 26):
        total = tf.relu(total) + tf.matmul(x, tensor(64, 64, name=f"w{i}"), dtype=tf.float32)
    fusion.add_output(total)


def row_sum(fusion: tf.Fusion) -> None:
    fusion.add_output(tf.sum(tensor("M", K, dtype=tf.float32), axis=1))


def computed_factor(fusion: tf.Fusion) -> None:
    fusion.add_output(tf.matmul(tf.relu(tensor("M", K)), tensor(N, K, name="b").T, dtype=tf.float32))


def read_twice(fusion: tf.Fusion) -> None:
    a = tensor("K", K)
    fusion.add_output(tf.matmul(a, tensor("K", K, name="b").T, dtype=tf.float32) + a)


def vector(fusion: tf.Fusion) -> None:
    fusion.add_output(tf.matmul(tensor("M", K), tensor(K, name="b"), dtype=tf.float32))


def two_dtypes(fusion: tf.Fusion) -> None:
    fusion.add_output(tf.matmul(tensor("M", K), tensor(N, K, name="b", dtype=tf.float16).T, dtype=tf.float32))


def float32_factors(fusion: tf.Fusion) -> None:
    fusion.add_output(tf.matmul(tensor("M", K, dtype=tf.float32), tensor(N, K, name="b", dtype=tf.float32).T))


def flipped(fusion: tf.Fusion) -> None:
    fusion.add_output(tf.flip(tf.matmul(tensor("M", K), tensor(N, K, name="b").T, dtype=tf.float32), axis=0))


def two_ways(fusion: tf.Fusion) -> None:
    side = tf.exp(tensor(K, "K", name="side", dtype=tf.float32))
    fusion.add_output(tf.matmul(tensor("K", "K"), tensor("K", "K", name="b").T, dtype=tf.float32) + side + side.T)


def exchanged(fusion: tf.Fusion) -> None:
    product = tf.matmul(tensor("K", K), tensor("K", K, name="b").T, dtype=tf.float32)
    bias, side = tensor("K", name="bias", dtype=tf.float32), tensor("K", "K", name="side", dtype=tf.float32)
    fusion.add_output(product + bias + side + side.T)


def of_itself(fusion: tf.Fusion) -> None:
    a = tensor("K", K)
    fusion.add_output(tf.matmul(a, a.T, dtype=tf.float32) + tensor("K", name="bias", dtype=tf.float32))


def in_both_orders(fusion: tf.Fusion) -> None:
    a, b = tensor("K", K), tensor("K", K, name="b")
    both = tf.matmul(a, b.T, dtype=tf.float32) + tf.matmul(b, a.T, dtype=tf.float32)
    fusion.add_output(both * tensor(1, "K", name="scale", dtype=tf.float32))


def integers_in_float(fusion: tf.Fusion) -> None:
    fusion.add_output(tf.matmul(tensor("M", WIDE, dtype=tf.int8), tensor("N", "K", name="b", dtype=tf.int8).T, dtype=tf.float32))


def doubles(fusion: tf.Fusion) -> None:
    fusion.add_output(tf.matmul(tensor("M", WIDE, dtype=tf.float64), tensor("N", "K", name="b", dtype=tf.float64).T))


def rows_contiguous(fusion: tf.Fusion) -> None:
    a, b = tensor("M", WIDE, dtype=tf.float8_e4m3), tensor("K", tf.dim("R", multiple_of=16), name="b", dtype=tf.float8_e4m3)
    fusion.add_output(tf.matmul(a, b, dtype=tf.float32))


CASES: dict[Callable[[tf.Fusion], None], str] = {
    two_products: "the results of 2 contractions are not combined",
    many_products: "a tile has accumulators for each of 26 contractions, and no registers are left",
    row_sum: "tv1 is a reduction by add of copy, not a sum of products",
    computed_factor: "the factor tv1 is computed",
    read_twice: "a is read by more than the contraction",
    vector: "tv2 has no rows or no columns",
    two_dtypes: "a: bfloat16[M, K] and b: float16[N, K] differ in dtype",
    float32_factors: "products of float32: tensor cores read its upper 19 bits",
    integers_in_float: "products of int8 in float32",
    doubles: "products of float64 in float64",
    rows_contiguous: "k is not the last axis of b: float8_e4m3[K, R]: tensor cores take elements of 1 byte with k contiguous only",
    flipped: "tv4 reads tv3 at",
    two_ways: "tv1 is read in two ways",
    exchanged: "side is read in two ways, such as at its place and transposed, and bias lacks an axis that differs in them",
    of_itself: "a is read in two ways, such as at its place and transposed, and bias lacks an axis that differs in them",
    in_both_orders: "a is read in two ways, such as at its place and transposed, and scale lacks an axis that differs in them",
}


@pytest.mark.parametrize("make", CASES, ids=lambda f: f.__name__)
def test_fusions(make: Callable[[tf.Fusion], None]) -> None:
    with tf.Fusion("f") as fusion:
        make(fusion)
    before = str(fusion)
    with pytest.raises(UnsupportedError) as caught:
        tf.schedulers.matmul(fusion)
    assert CASES[make] in caught.value.message
    assert caught.value.help
    assert str(fusion) == before


def test_a_second_schedule() -> None:
    fusion = Product().fusion()
    tf.schedulers.matmul(fusion, SMALL)
    with pytest.raises(UnsupportedError, match="it has a schedule already"):
        tf.schedulers.matmul(fusion)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"tile_m": 100}, "tile_m = 100 for 2 warpgroups"),
        ({"tile_n": 512}, "a tile of 128 x 512"),
        ({"tile_m": 256}, "a tile of 256 x 256 takes 256 accumulators of each of its 256 threads"),
        ({"stages": 1}, "stages = 1"),
        ({"in_flight": 4}, "in_flight = 4 with 4 stages"),
        ({"warpgroups": 4}, "4 warpgroups"),
        ({"blocks": 0}, "blocks is 0"),
        ({"tile_n": 100}, "a tile of 128 x 100"),
        ({"kind": MatmulKind.PINGPONG, "warpgroups": 1}, "1 warpgroup that take turns"),
        ({"kind": MatmulKind.PINGPONG}, "a tile of 128 x 256 takes 256 accumulators of each of its 128 threads"),
        ({"cluster": 3}, "132 blocks in clusters of 3"),
        ({"cluster": 2, "blocks": 7}, "7 blocks in clusters of 2"),
    ],
)
def test_parameters(parameters: dict[str, Any], text: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        MatmulConfig(**parameters)
    assert text in caught.value.message


@pytest.mark.parametrize("scheduler", [tf.schedulers.matmul, tf.schedulers.mma_gemm, tf.schedulers.products])
def test_tf32_is_a_bool(scheduler: Any) -> None:
    with pytest.raises(UnsupportedError, match="tf32 is 'yes'") as caught:
        scheduler(Product(dtype=tf.float32, out=tf.float32).fusion(), tf32="yes")
    assert caught.value.help == "use True or False"


def test_parameters_that_do_not_fit_the_fusion() -> None:
    for config, text in ((MatmulConfig(tile_k=32), "tile_k = 32 of elements of 2 bytes"), (MatmulConfig(stages=6), "bytes of Shared memory")):
        with pytest.raises(UnsupportedError, match=text):
            tf.schedulers.matmul(Product().fusion(), config)
    with tf.Fusion("layouts") as mixed:
        a, b, c, d = (tf.define_tensor(shape, tf.bfloat16, name=name) for name, shape in zip("abcd", ((64, 128), (128, 64), (64, 128), (64, 128)), strict=True))
        mixed.add_output(a @ b + c @ d.T)
    with pytest.raises(UnsupportedError, match="tile_n = 32 of a factor with n contiguous, beside one with k contiguous in one ring"):
        tf.schedulers.matmul(mixed, MatmulConfig(64, 32, warpgroups=1))
    with tf.Fusion("odd") as odd:
        odd.add_output(tf.define_tensor((64, 128), tf.bfloat16, name="a") @ tf.define_tensor((128, 66), tf.bfloat16, name="b"))
    with pytest.raises(UnsupportedError, match="tile_n = 32 of a factor with n contiguous, which threads copy"):
        tf.schedulers.matmul(odd, MatmulConfig(64, 32, warpgroups=1))
    with pytest.raises(UnsupportedError, match="sizes has 'Q', which is not a dimension of it"):
        tf.schedulers.matmul(Product().fusion(), sizes={"Q": 1})


def test_numbers_that_do_not_pair_are_stored_one_by_one() -> None:
    """An odd number of columns: no bulk store and no vectors, but right."""
    with tf.Fusion("odd") as fusion:
        a, b = tensor("M", K), tensor("N", K, name="b")
        fusion.add_output(tf.cast(tf.matmul(a, b.T, dtype=tf.float32), tf.bfloat16))
    tf.schedulers.matmul(fusion, SMALL)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal((rows, 72)).astype(tf.bfloat16.numpy) for rows in (65, 67)]
    Product().check(fusion, tf.lower(fusion).simulate(*args), args)
