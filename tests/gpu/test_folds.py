"""Folds, cascades and rows in one walk on the GPU, beside NumPy in float64: random numbers, among them rows that are masked in part or whole."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from examples import linear_attention
from taskfuse.schedulers import OnlineConfig
from tests.gpu.device import poisoned, to_numpy, to_torch
from tests.schedule.folded import FOLDS, attention, by_threads, made, walked
from tests.schedulers.walks import CASES, along


def results(kernel: tf.Kernel, fusion: tf.Fusion, args: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    out = poisoned(shape, fusion.outputs[0].dtype)
    tf.compile(kernel, backend="cuda")(*map(to_torch, args), out=out)
    return to_numpy(out).astype(np.float64)


def check_rows(fusion: tf.Fusion, config: OnlineConfig | None, sizes: dict[str, int]) -> None:
    rng = np.random.default_rng(7)
    shapes = [tuple(sizes.get(str(e)) or int(str(e)) for e in tv.shape) for tv in fusion.inputs]
    x = (rng.standard_normal(shapes[0]) * 20).astype(np.float32)
    x[0], x[-1, ::3], x[-2, 1] = -np.inf, -np.inf, 7e4
    args = [x, *(rng.integers(0, 3, s) for s in shapes[1:])]
    with np.errstate(all="ignore"):
        (wanted,) = fusion.evaluate(*args)
    tf.schedulers.online(fusion, config)
    found = results(tf.lower(fusion), fusion, args, wanted.shape)
    is_number = np.isfinite(wanted)
    np.testing.assert_allclose(found[is_number], wanted[is_number], rtol=2e-5, atol=1e-5)
    assert not np.isfinite(found[~is_number]).any()


@pytest.mark.parametrize("name", CASES)
def test_rows_in_one_walk(name: str) -> None:
    build, config = CASES[name]
    check_rows(build(), config, {"N": 67, "K": 4099})


def test_long_rows() -> None:
    check_rows(along([5, 131072], 1, tf.softmax), None, {})
    check_rows(along([9, 50257], 1, tf.logsumexp), None, {})


@pytest.mark.parametrize("name", ["recurrence", "with a start", "maximum"])
def test_threads_fold_parts(name: str) -> None:
    fusion, out = made(FOLDS[name], ["M", "N"])
    rng = np.random.default_rng(2)
    args = [rng.standard_normal((33, 1003)).astype(np.float32), rng.uniform(0.9, 1.001, (33, 1003)).astype(np.float32)]
    (wanted,) = fusion.evaluate(*args)
    by_threads(fusion, out, 32)
    np.testing.assert_allclose(results(tf.lower(fusion), fusion, args, wanted.shape), wanted, rtol=1e-4, atol=1e-4)


def test_attention_in_one_loop() -> None:
    fusion, reductions = attention()
    rng = np.random.default_rng(3)
    args = [rng.standard_normal(s).astype(np.float32) * 3 for s in ((130, 4), (517, 4), (517, 3))]
    (wanted,) = fusion.evaluate(*args)
    tf.cascade(reductions, 4)
    found = results(walked(fusion, 64, "ceildiv(N, 4)"), fusion, args, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_states_of_chunks() -> None:
    fusion = linear_attention.build(4, 96, 16, 32)
    rng = np.random.default_rng(4)
    args = [rng.standard_normal((4, 3, 32, 16)).astype(np.float32) for _ in range(2)]
    args.append(rng.uniform(0.5, 1, (4, 3, 32)).astype(np.float32))
    (wanted,) = fusion.evaluate(*args)
    np.testing.assert_allclose(results(tf.lower(fusion), fusion, args, wanted.shape), wanted, rtol=1e-5, atol=1e-5)
