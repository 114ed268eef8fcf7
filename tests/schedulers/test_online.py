"""Rows in one walk: each is right, proved and reads its elements once; what has no walk, or gains nothing, is refused."""

from __future__ import annotations

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import OnlineConfig
from taskfuse.schedulers.online import offer
from tests.schedulers.walks import CASES, along, cross_entropy
from tests.testing.ptx.compiled import compared


def arguments(fusion: tf.Fusion) -> list[np.ndarray]:
    rng, sizes = np.random.default_rng(1), {"N": 3, "K": 70}
    shapes = [[sizes.get(str(e)) or int(str(e)) for e in tv.shape] for tv in fusion.inputs]
    made = [
        rng.standard_normal(s).astype(np.float32) * 4 if tv.dtype.is_float else rng.integers(0, 200, s) for tv, s in zip(fusion.inputs, shapes, strict=True)
    ]
    made[0][0, ::3] = -np.inf
    return made


@pytest.mark.parametrize("name", CASES)
def test_rows_are_right_and_proved(name: str) -> None:
    build, config = CASES[name]
    fusion = build()
    args = arguments(fusion)
    with np.errstate(all="ignore"):
        (wanted,) = fusion.evaluate(*args)
    schedule = tf.schedulers.online(fusion, config)
    assert "tf.cascade(" in schedule.code
    kernel = tf.lower(fusion)
    kernel.verify().require()
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(kernel.simulate(*args, seed=2)[0], wanted, rtol=2e-5, atol=1e-6)


def test_the_code_makes_the_same_schedule() -> None:
    fusion, again = cross_entropy(), cross_entropy()
    exec(tf.schedulers.online(fusion, OnlineConfig(32, 2, 2)).code, {"fusion": again})
    assert str(tf.lower(again)) == str(tf.lower(fusion))


def test_the_loss_reads_each_element_once() -> None:
    fusion = cross_entropy(4, 1024)
    tf.schedulers.online(fusion, OnlineConfig(64, 1, 2))
    kernel = tf.lower(fusion)
    assert str(kernel).count("COPY") == 1
    assert compared(kernel).difference is None


def test_it_is_offered_where_rows_are_long() -> None:
    assert offer(cross_entropy(4096, 131072)).us < tf.schedulers.normalization(cross_entropy(4096, 131072)).us
    assert tf.schedulers.auto(cross_entropy(4096, 131072)).scheduler == "online"
    assert tf.schedulers.auto(along([4096, 4096], 1, tf.softmax)).scheduler == "normalization"


def refusal(fusion: tf.Fusion, config: OnlineConfig | None = None) -> str:
    with pytest.raises(UnsupportedError) as caught:
        tf.schedulers.online(fusion, config)
    return str(caught.value)


def test_refusals() -> None:
    assert "no reduction reads another" in refusal(along([4, 64], 1, lambda x, k: tf.sum(x, axis=k)))
    assert "is not a sum of floats" in refusal(along([4, 64], 1, lambda x, k: tf.var(x, axis=k)))
    assert "0 kept and 1 reduced axes" in refusal(along([64], 0, tf.softmax))
    with pytest.raises(UnsupportedError, match="at most 1024"):
        OnlineConfig(512, 4)
    with pytest.raises(UnsupportedError, match="are expected to be as fast"):
        offer(along([4096, 4096], 1, tf.softmax))
