"""Products of ragged groups of rows: any offsets, exact; tables that break their promise write inside their tensor, and end."""

import random
from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig, MatmulKind
from tests.gpu.device import poisoned

CONFIGS = {
    "shared": MatmulConfig(128, 256, group=8),
    "in turns": MatmulConfig(128, 128, stages=6, kind=MatmulKind.PINGPONG),
    "narrow": MatmulConfig(64, 64, warpgroups=1, stages=4, group=2),
}


def grouped(rows: int, groups: int, n: int, k: int, dtype: tf.DType = tf.bfloat16) -> tf.Fusion:
    with tf.Fusion("grouped") as fusion:
        a, b = tf.define_tensor((rows, k), dtype, name="a"), tf.define_tensor((groups, k, n), dtype, name="b")
        fusion.add_output(tf.grouped_matmul(a, b, tf.table("offsets", groups + 1, rows, rising=True), dtype=dtype))
    return fusion


def integers(*shape: int, dtype: Any) -> Any:
    """Small integers, whose products sum exactly."""
    return torch.randint(-2, 3, shape, device="cuda").to(dtype)


@pytest.mark.parametrize("name", CONFIGS)
def test_random_offsets(name: str) -> None:
    rows, groups, n, k = 3000, 7, 320, 192
    fusion = grouped(rows, groups, n, k)
    tf.schedulers.matmul(fusion, CONFIGS[name])
    run = tf.compile(fusion, backend="cuda")
    a, b = integers(rows, k, dtype=torch.bfloat16), integers(groups, k, n, dtype=torch.bfloat16)
    rng = random.Random(0)
    for case in range(100):
        step = rng.choice((1, 1, 8, 128))
        inner = sorted(min(rows, step * rng.randint(0, rows // step)) for _ in range(groups - 1))
        table = [0, *(inner if case % 10 else [rng.choice((0, rows))] * (groups - 1)), rows]
        out = poisoned((rows, n), tf.bfloat16)
        run(a, b, torch.tensor(sorted(table), dtype=torch.int32, device="cuda"), out=(out,))
        wanted = torch.cat([a[s:e].float() @ m.float() for m, (s, e) in zip(b, pairwise(sorted(table)), strict=True)])
        assert torch.equal(out, wanted.to(torch.bfloat16)), table


@pytest.mark.parametrize("name", CONFIGS)
def test_tables_that_do_not_rise(name: str) -> None:
    rows, groups, n, k = 700, 4, 256, 128
    fusion = grouped(rows, groups, n, k)
    tf.schedulers.matmul(fusion, CONFIGS[name])
    run = tf.compile(fusion, backend="cuda")
    a, b = integers(rows, k, dtype=torch.bfloat16), integers(groups, k, n, dtype=torch.bfloat16)
    around = torch.full((rows + 512, n), 7.0, device="cuda", dtype=torch.bfloat16)
    for values in ([700, 600, 3, 2, 0], [-5, 2**31 - 1, -(2**31), 350, 9], [0, 0, 0, 0, 0], [700] * 5):
        run(a, b, torch.tensor(values, dtype=torch.int32, device="cuda"), out=(around[256 : 256 + rows],))
        torch.cuda.synchronize()
        assert bool((around[:256] == 7).all() and (around[256 + rows :] == 7).all()), values


@pytest.mark.parametrize(("rows", "groups"), [(1000, 5), (300, 1), (1, 3), (40, 2)])
def test_float32(rows: int, groups: int) -> None:
    run = tf.compile(grouped(rows, groups, 96, 64, tf.float32), backend="cuda")
    a, b = integers(rows, 64, dtype=torch.float32), integers(groups, 64, 96, dtype=torch.float32)
    table = [0, *sorted(random.Random(rows).randint(0, rows) for _ in range(groups - 1)), rows]
    (found,) = run(a, b, torch.tensor(table, dtype=torch.int32, device="cuda"))
    assert torch.equal(found, torch.cat([a[s:e] @ m for m, (s, e) in zip(b, pairwise(table), strict=True)]))
