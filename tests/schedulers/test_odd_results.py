"""Products whose results have rows of an odd number of elements: staged in Shared memory, and stored by warps, 32 neighbors at a time."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig, MatmulKind
from taskfuse.schedulers.contraction import find
from taskfuse.schedulers.cost import estimate
from taskfuse.schedulers.matmul import problem_of
from taskfuse.target import DEFAULT

BF16 = tf.bfloat16
RNG = np.random.default_rng(0)
Build = Callable[[tf.Fusion], None]


def given(shape: list[Any], name: str) -> tf.TensorView:
    return tf.define_tensor(shape, dtype=BF16, name=name)


def plain(f: tf.Fusion) -> None:
    f.add_output(given([70, 64], "a") @ given([71, 64], "b").T)


def several(f: tf.Fusion) -> None:
    """Outputs of 16 and 32 bits, with what lies beside them."""
    y = tf.matmul(given([70, 64], "a"), given([71, 64], "b").T, dtype=tf.float32) + given([71], "bias")
    f.add_output(tf.cast(y, BF16))
    f.add_output(tf.relu(tf.cast(y, BF16)) + given([70, 71], "rest"))
    f.add_output(y)


def gated(f: tf.Fusion) -> None:
    a = given([70, 64], "a")
    f.add_output(tf.relu(a @ given([71, 64], "b").T) * (a @ given([71, 64], "c").T))


def in_turn(f: tf.Fusion) -> None:
    one = tf.matmul(given([70, 64], "a"), given([71, 64], "b").T, dtype=tf.float32)
    f.add_output(tf.cast(one + tf.matmul(given([70, 96], "c"), given([71, 96], "d").T, dtype=tf.float32), BF16))


def batched(f: tf.Fusion) -> None:
    f.add_output(tf.einsum("bmk,bnk->bmn", given([3, 70, 64], "a"), given([3, 71, 64], "b")))


def reduced(f: tf.Fusion) -> None:
    y = tf.matmul(given([70, 64], "a"), given([71, 64], "b").T, dtype=tf.float32)
    f.add_output(tf.cast(y, BF16))
    f.add_output(tf.max(y, axis=1))


TURNS = MatmulConfig(64, 64, warpgroups=2, kind=MatmulKind.PINGPONG, stages=2)
CASES: list[tuple[Build, MatmulConfig | None]] = [
    *((build, None) for build in (plain, several, gated, in_turn, batched, reduced)),
    *((plain, config) for config in (MatmulConfig(128, 64), MatmulConfig(128, 32), MatmulConfig(128, 16), MatmulConfig(192, 64, warpgroups=3), TURNS)),
    (gated, TURNS),
    (batched, MatmulConfig(128, 64, cluster=2, stages=3)),
]


def built(build: Build) -> tf.Fusion:
    with tf.Fusion("odd") as fusion:
        build(fusion)
    return fusion


@pytest.mark.parametrize(("build", "config"), CASES, ids=lambda v: getattr(v, "__name__", str(v)))
def test_kernels_are_proved_and_right(build: Build, config: MatmulConfig | None) -> None:
    fusion = built(build)
    tf.schedulers.matmul(fusion, config)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert "STMATRIX" in str(kernel)
    arguments = [RNG.integers(-3, 4, [int(str(e)) for e in tv.shape]).astype(tv.dtype.numpy) for tv in fusion.inputs]
    for out, wanted in zip(kernel.simulate(*arguments, seed=1), built(build).evaluate(*arguments), strict=True):
        assert np.array_equal(out, wanted)


def test_rows_that_another_warp_staged_are_not_proved() -> None:
    """A barrier of the warp orders what its own lanes stage and store, nothing else."""
    fusion = built(plain)
    tf.schedulers.matmul(fusion, MatmulConfig(128, 32))
    text = str(tf.lower(fusion))
    own = "2*(threadIdx.x//32), i"
    assert own in text
    line = next(line for line in text.splitlines() if "= copy" in line and own in line)
    other = tf.parse_kernel(text.replace(line, line.replace(own, "2*((threadIdx.x//32 + 1) % 4), i")))
    assert not other.verify().is_proved
    assert tf.parse_kernel(text).verify().verdict.value == "proved"


def test_the_model_prefers_it_to_single_stores() -> None:
    fusion = built(plain)
    problem = problem_of(fusion, find(fusion), None, DEFAULT)
    assert (problem.staged, problem.by_threads, problem.one_by_one, problem.scattered) == (1, 1, 1, 0)
    assert all(order.one_by_one == (0 if order.is_swapped else 1) for order in problem.orders)
    config = MatmulConfig(128, 64)
    scattered = replace(problem, staged=0, by_threads=0, one_by_one=0, scattered=1)
    assert estimate(problem, config).us < estimate(scattered, config).us


def test_lists_of_products_store_them_from_registers() -> None:
    with tf.Fusion("list") as fusion:
        for number, n in enumerate((71, 33)):
            fusion.add_output(tf.matmul(given([70, 64], f"a{number}"), given([n, 64], f"b{number}").T))
    tf.schedulers.products(fusion)
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    assert "STMATRIX" not in str(kernel)
