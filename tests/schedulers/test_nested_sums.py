"""A reduction whose terms are computed from short reductions."""

from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import NestedSumConfig
from tests.proofs import proved
from tests.schedulers.weights import bits


def plain() -> tf.Fusion:
    """The largest weighted norm of the groups of a row, with further math behind it."""
    with tf.Fusion("plain") as fusion:
        x, w = tf.define_tensor([9, 6, 32], name="x"), tf.define_tensor([6], name="w")
        fusion.add_output(tf.exp(-tf.max(tf.sqrt(tf.sum(x * x, 2)) * w, 1)))
    return fusion


def alone() -> tf.Fusion:
    """The last reduction is the output."""
    with tf.Fusion("alone") as fusion:
        fusion.add_output(tf.sum(tf.sum(tf.define_tensor([5, 9, 16], name="x"), 2) * tf.define_tensor([5, 9], name="scales"), 1))
    return fusion


def numbers(fusion: tf.Fusion, rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [tuple(rows if isinstance(n, str) else n for n in (int(str(e)) if str(e).isdigit() else str(e) for e in tv.shape)) for tv in fusion.inputs]
    return [
        rng.integers(0, 256, s).astype(np.uint8) if tv.dtype is tf.uint8 else rng.standard_normal(s).astype(tv.dtype.numpy)
        for tv, s in zip(fusion.inputs, shapes, strict=True)
    ]


@pytest.mark.parametrize(
    ("make", "config", "rows"),
    [
        (bits, NestedSumConfig(16, 4), 12),
        (lambda: bits("N", 3), NestedSumConfig(8, 4, stages=2), 7),
        (lambda: bits(5, 9, 32), NestedSumConfig(4, 2, stages=1), 5),
        (lambda: bits("N", 5, 32), NestedSumConfig(8, 2, stages=2, each=2), 11),
        (plain, NestedSumConfig(4, 4, each=2), 9),
        (alone, NestedSumConfig(4, 4), 5),
    ],
    ids=["groups that steps do not divide", "symbolic rows", "no ring", "two rows of a warp", "maximum", "no epilogue"],
)
def test_right_and_proved(make: Callable[[], tf.Fusion], config: NestedSumConfig, rows: int) -> None:
    fusion = make()
    chosen = tf.schedulers.nested_sums(fusion, config)
    kernel = proved(tf.lower(fusion), *([{"N": rows}] if fusion.inputs[1].shape[0].free else []))
    args = numbers(fusion, rows)
    (found,), (wanted,) = kernel.simulate(*args, seed=1), fusion.evaluate(*args)
    assert np.allclose(found.astype(np.float32), wanted.astype(np.float32), rtol=2**-7, atol=2**-6)
    again = make()
    exec(chosen.code, {"fusion": again})
    assert str(again) == str(fusion)


def test_the_choice() -> None:
    """One kernel, whose loads are vectors of 16 bytes, of the bytes of weights and of both elements of each pair."""
    run = tf.compile(bits(4096, 32), "sim", cache=False)
    assert run.schedule is not None
    assert run.schedule.scheduler == "nested_sums"
    text = str(run.kernels[0])
    assert all(line.endswith("width 16") for line in text.splitlines() if " <- w[" in line)
    assert all(line.endswith("width 8") for line in text.splitlines() if " <- x[" in line)
    assert sum(" <- " in line and ("w[" in line or "x[" in line) for line in text.splitlines()) > 1


def refused(build: Callable[[tf.TensorView], tf.TensorView], shape: tuple[int, ...] = (8, 6, 32)) -> str:
    with tf.Fusion("other") as fusion:
        fusion.add_output(build(tf.define_tensor(list(shape), name="x")))
    before = str(fusion)
    with pytest.raises(UnsupportedError) as caught:
        tf.schedulers.nested_sums(fusion)
    assert str(fusion) == before
    return str(caught.value).splitlines()[0]


REFUSED: list[tuple[Callable[[tf.TensorView], tf.TensorView], tuple[int, ...], str]] = [
    (lambda x: tf.sum(x, 2), (8, 6, 32), "the number of reductions is 1, not 2"),
    (lambda x: tf.sum(tf.sum(x, 2), 0), (8, 6, 32), "do not reduce the last of three axes"),
    (lambda x: tf.sum(tf.sum(x, 2), 1), (8, 6, 33), "lanes of a warp with 4 elements each do not divide the 33"),
    (lambda x: tf.sum(tf.sum(x, 2), 1), (8, 6, 0), "lanes of a warp with 4 elements each do not divide the 0"),
    (lambda x: tf.sum(tf.sum(x, 2) * x[:, :, 0], 1), (8, 6, 32), "x is read before one of the reductions and after it"),
    (lambda x: tf.sum(tf.cumsum(tf.sum(x, 2), 1), 1), (8, 6, 32), "is not computed element by element"),
]


@pytest.mark.parametrize(("build", "shape", "reason"), REFUSED)
def test_refused(build: Callable[[tf.TensorView], tf.TensorView], shape: tuple[int, ...], reason: str) -> None:
    assert reason in refused(build, shape)


def test_parameters_are_checked() -> None:
    with pytest.raises(UnsupportedError, match="lanes of a warp with 24 elements each do not divide the 64"):
        tf.schedulers.nested_sums(bits(), NestedSumConfig(24))
    with pytest.raises(UnsupportedError, match="64 warps"):
        NestedSumConfig(rows=64)
