"""Fusions side by side in one kernel give the bits that each gives alone, under every dispatch: a chain, halved, symbolic boxes, roles."""

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from examples import block_roles, pipeline, stream
from tests.gpu.device import Array, same, to_numpy, to_torch
from tests.schedulers.members import pointwise, row_sum, softmax

LAUNCHES = 20


def numbers(fusion: tf.Fusion, sizes: dict[str, int], seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal([int(tf.scalar.evaluate(e, sizes)) for e in tv.shape]).astype(np.float32) for tv in fusion.inputs]


def check(members: list[tf.Fusion], sizes: dict[str, int]) -> None:
    run = tf.compile(tf.horizontal(members, force=True), backend="cuda")
    given = [numbers(m, sizes, k) for k, m in enumerate(members)]
    alone = [to_numpy(out) for m, a in zip(members, given, strict=True) for out in tf.compile(m, backend="cuda")(*map(to_torch, a))]
    arguments = [to_torch(a) for each in given for a in each]
    for _ in range(LAUNCHES):
        for out, ref in zip(run(*arguments), alone, strict=True):
            assert same(to_numpy(out), ref)


@pytest.mark.parametrize("count", [2, 7, 8, 40])
def test_members_of_constant_extents(count: int) -> None:
    kinds: tuple[Callable[[int], tf.Fusion], ...] = (
        lambda k: pointwise(1000 * (k + 1), f"p{k}", threads=128),
        lambda k: softmax(k + 1, 250, f"s{k}", threads=64),
        lambda k: row_sum(2 * k + 1, 300, f"r{k}", threads=96),
    )
    check([kinds[k % 3](k) for k in range(count)], {})


def test_symbolic_boxes() -> None:
    members = [row_sum(f"R{k}", f"C{k}", f"r{k}", threads=64) if k % 2 else pointwise(f"R{k}", f"p{k}", threads=128) for k in range(10)]
    check(members, {f"{name}{k}": 3 * k + base for k in range(10) for name, base in (("R", 1), ("C", 100))})


def test_roles_and_rings_beside_others() -> None:
    sizes = {"M": 40, "N": 200, "T": 6}
    check([pipeline.build(), stream.build(blocks=3), softmax(9, 250, threads=64), block_roles.build(3, 2)], sizes)
