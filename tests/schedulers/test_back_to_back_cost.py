"""The cost model of products of functions of products: what fits a multiprocessor, and what takes longer."""

import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import BackToBackConfig
from taskfuse.schedulers.back_to_back import find
from taskfuse.schedulers.back_to_back_cost import BackToBack, planned
from taskfuse.schedulers.schedule import Sizes
from taskfuse.target import A100, DEFAULT
from tests.schedulers.back_to_backs import of_keys, of_queries


def us(fusion: tf.Fusion, **sizes: int) -> float:
    return planned(fusion, find(fusion), Sizes(fusion, sizes, DEFAULT))[0].us


def test_longer_walks_more_rows_and_wider_factors_take_longer() -> None:
    base = us(of_queries(64), M=4096, N=4096)
    assert us(of_queries(64), M=4096, N=8192) > 1.5 * base
    assert us(of_queries(64, heads=(16,)), M=4096, N=4096) > 2 * base
    assert us(of_queries(128), M=4096, N=4096) > base


def test_a_diagonal_halves_the_work() -> None:
    whole, half = (us(of_keys(64, heads=(64,), sizes=(8192, 8192), is_causal=c)) for c in (False, True))
    assert 0.5 < half / whole < 0.65


def found(fusion: tf.Fusion) -> BackToBack:
    return find(fusion)


def test_registers_and_shared_memory() -> None:
    """A sum of 64 x 128 is 64 registers of a thread; what is read of 64 columns are 16, and more where chunks are ragged."""
    keys, queries = (found(make(128, sizes=(4096, 4096))) for make in (of_keys, of_queries))
    config = BackToBackConfig(2, 64, 3)
    assert keys.registers(config) - queries.registers(config) == 64 + 16
    assert found(of_keys(128, sizes=(4001, 4096))).registers(config) > keys.registers(config)
    assert found(of_queries(128, sizes=(4096, 4001))).registers(config) == queries.registers(config)
    assert keys.shared_bytes(config) == 2 * (2 * 128 * 128 + 3 * 2 * 64 * 128)
    assert queries.shared_bytes(config) == keys.shared_bytes(config)  # keys are a factor of the scores and of the sums


def test_what_does_not_fit() -> None:
    fusion = of_keys(256)
    with pytest.raises(UnsupportedError, match="do not fit"):
        planned(fusion, find(fusion), Sizes(fusion, None, DEFAULT))
    fusion = of_keys(64)
    with pytest.raises(UnsupportedError, match="wgmma"):
        planned(fusion, find(fusion), Sizes(fusion, None, A100))
