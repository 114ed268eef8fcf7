"""Products whose tiles have whole rows, of which only results are stored: reductions that read one another, in registers, proved, without a grid barrier."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.kir import walk
from taskfuse.kir.synchronization import Barrier, BarrierScope
from taskfuse.reports.resources import Resources
from taskfuse.schedulers import MatmulConfig, MatmulKind
from taskfuse.schedulers.contraction import find
from tests.proofs import proved

Results = Callable[[tf.TensorView], Sequence[tf.TensorView]]
COLUMNS = 64


def fusion_of(results: Results, rows: int | str = 33, columns: int = COLUMNS) -> tf.Fusion:
    with tf.Fusion("rows") as fusion:
        a, b = (tf.define_tensor([n, 64], dtype=tf.bfloat16, name=name) for n, name in ((rows, "a"), (columns, "b")))
        for tv in results(tf.matmul(a, b.T, dtype=tf.float32)):
            fusion.add_output(tv)
    return fusion


def softmax_parts(x: tf.TensorView) -> Sequence[tf.TensorView]:
    top = tf.max(x, axis=1)
    return [top, tf.sum(tf.exp(x - tf.expand_dims(top, 1)), axis=1)]


def variance(x: tf.TensorView) -> Sequence[tf.TensorView]:
    mean = tf.sum(x, axis=1) * (1 / COLUMNS)
    return [tf.sum(tf.square(x - tf.expand_dims(mean, 1)), axis=1)]


def of_inputs(x: tf.TensorView) -> Sequence[tf.TensorView]:
    """One of rows, and one of columns."""
    rows = tf.define_tensor([x.shape[0]], name="row")
    columns = tf.define_tensor([COLUMNS], name="column")
    return [tf.max(tf.relu(x * tf.expand_dims(rows, 1) + columns), axis=1), tf.sum(tf.cast(x, tf.bfloat16), axis=1, dtype=tf.float32)]


CASES: dict[str, tuple[Results, MatmulConfig]] = {
    "softmax": (softmax_parts, MatmulConfig(64, COLUMNS, warpgroups=1)),
    "variance, rows shared": (variance, MatmulConfig(128, COLUMNS)),
    "in turns": (softmax_parts, MatmulConfig(64, COLUMNS, kind=MatmulKind.PINGPONG)),
    "several times 64 rows": (softmax_parts, MatmulConfig(256, COLUMNS)),
    "inputs": (of_inputs, MatmulConfig(64, COLUMNS, warpgroups=1)),
}


@pytest.mark.parametrize("name", CASES)
def test_reductions_of_whole_rows(name: str) -> None:
    results, config = CASES[name]
    fusion, plain = fusion_of(results), fusion_of(results)
    tf.schedulers.matmul(fusion, config)
    kernel = proved(tf.lower(fusion))
    assert not any(isinstance(s, Barrier) and s.scope is BarrierScope.GRID for s in walk(kernel))
    random = np.random.default_rng(0)
    args = [random.standard_normal(tuple(int(str(e)) for e in tv.shape)).astype(tv.dtype.numpy) for tv in plain.inputs]
    for got, wanted in zip(kernel.simulate(*args, seed=1), plain.evaluate(*args), strict=True):
        assert np.allclose(got, wanted, rtol=1e-5, atol=1e-4)


def test_rows_that_are_not_the_tiles_are_reduced_in_parts() -> None:
    """With other columns than a tile's, with the product itself, and with sums over rows."""
    others: list[Results] = [lambda x: [tf.sum(x, axis=1), x], lambda x: [tf.sum(x, axis=1), tf.sum(x, axis=0)]]
    assert all(find(fusion_of(results), columns=None).rows is None for results in others)
    rows = fusion_of(lambda x: [tf.sum(x, axis=1)])
    assert find(rows, columns=None).rows is not None
    assert find(rows, columns=32).rows is None


def test_the_compiler_spills_nothing() -> None:
    fusion = fusion_of(softmax_parts, 4096, 256)
    tf.schedulers.matmul(fusion, MatmulConfig(128, 256))
    found = tf.lower(fusion).resources().compiled
    assert isinstance(found, Resources)
    assert (found.spill_stores, found.spill_loads) == (0, 0)
