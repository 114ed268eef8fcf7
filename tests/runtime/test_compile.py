"""tf.compile."""

from collections.abc import Callable

import pytest

import taskfuse as tf
from taskfuse.cuda import arrays
from taskfuse.cuda.arrays import Kinds
from taskfuse.errors import CudaUnavailableError
from tests.runtime.simulated import X, scaled


def test_nothing_of_cuda_is_needed_before_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def kinds() -> Kinds:
        raise CudaUnavailableError(what="a GPU", reason="there is none")

    monkeypatch.setattr(arrays, "kinds", kinds)
    run = tf.compile(scaled(), "cuda")
    with pytest.raises(CudaUnavailableError, match="a GPU is not available: there is none"):
        run(X, 2.0)


RESULTS: dict[str, Callable[[tf.TensorView], list[tf.TensorView]]] = {
    "plain": lambda x: [tf.softmax(x, 1)],
    "a reshaped sum": lambda x: [x.sum(1).reshape(-1, 1)],
    "a flat product": lambda x: [(x @ x.T).reshape(-1)],
    "a view of an input": lambda x: [x.T, tf.exp(x)],
    "transposed": lambda x: [tf.softmax(x, 1).T],
    "twice": lambda x: [y := tf.exp(x), y],
    "and its view": lambda x: [y := tf.exp(x), y.T],
}


@pytest.mark.parametrize("name", RESULTS)
def test_code_makes_the_same_kernel(name: str) -> None:
    with tf.Fusion("shown") as fusion:
        fusion.add_output(*RESULTS[name](tf.define_tensor([32, 64], name="x")))
    run = tf.compile(fusion, "sim")
    stored = tf.as_stored(fusion)
    assert run.schedule is not None
    exec(run.schedule.code, {"fusion": stored})
    assert [str(tf.lower(stored))] == list(map(str, run.kernels))


def test_code_with_strides_of_results() -> None:
    with tf.Fusion("shown") as fusion:
        fusion.add_output(tf.define_tensor([32, 64], name="x") * 2, strides=[1, 40])
    stored = tf.as_stored(fusion)
    run = tf.compile(fusion, "sim")
    assert run.schedule is not None
    exec(run.schedule.code, {"fusion": stored})
    assert str(tf.lower(stored)) == str(run.kernels[0])
