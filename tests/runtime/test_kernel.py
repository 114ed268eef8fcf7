"""One kernel as a function on arrays, on the GPU or in the simulator."""

import sys
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cuda import arrays
from taskfuse.cuda.arrays import Kinds
from taskfuse.errors import TaskfuseError
from tests.cuda.fakes import FakeDriver, FakeTensor, FakeTorch, aligned
from tests.runtime.simulated import X, scaled


def refused(*args: Any, **options: Any) -> str:
    with pytest.raises(TaskfuseError) as caught:
        tf.compile(scaled())(*args, **options)
    return str(caught.value)


def test_a_kernel_is_compiled_as_it_is() -> None:
    kernel = tf.lower(scaled())
    run = tf.compile(kernel, "sim")
    assert run.kernel is kernel
    assert np.array_equal(run(X, 2.0)[0], X * 2)


def test_out_in_the_simulator() -> None:
    run = tf.compile(scaled())
    for out in (np.zeros_like(X), np.zeros((32, 8), np.float32).T[::2]):
        assert run(X, 2.0, out=out)[0] is out
        assert np.array_equal(out, X * 2)
    before = X.copy()
    frozen = np.zeros_like(X)
    frozen.flags.writeable = False
    overlap = "it overlaps input 'x': one begins between the first and the last address of the other"
    own = "\nhelp: pass memory of its own; arrays that interleave count as overlapping"
    for out, reason in (
        (X, overlap + own),
        (X[::-1], overlap + own),
        (np.broadcast_to(X[0], X.shape), "the array is read-only"),
        (frozen, "the array is read-only"),
        (
            np.lib.stride_tricks.as_strided(np.zeros(32, np.float32), X.shape, (0, 4)),
            "two of its elements share memory: shape [4, 32], strides [0, 4] bytes\nhelp: pass an array that is not a broadcast view",
        ),
        ([1.0], "a float is not a NumPy array, as the inputs are"),
        (np.zeros((4, 32)), "'x1' has dtype float32, the array float64"),
        (np.zeros((3, 32), np.float32), "'x1' has shape [4, 32], the array [3, 32]"),
    ):
        name = tf.lower(scaled()).outputs[0].name
        assert refused(X, 2.0, out=out) == f"output 0 of fusion 'scaled': {reason.replace('x1', name)}"
    assert np.array_equal(X, before)


def test_the_simulator_has_no_streams() -> None:
    assert refused(X, 2.0, stream=0) == ("kernel 'scaled' cannot be launched: the simulator has no streams\nhelp: leave out stream=, or use backend=\"cuda\"")


def test_what_does_not_become_a_numpy_array() -> None:
    class OnGpu:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise TypeError("can't convert a tensor on the GPU")

    with pytest.raises(TaskfuseError) as caught:
        tf.compile(scaled(), "sim")(OnGpu(), 2.0)
    assert str(caught.value) == (
        "input 0 of fusion 'scaled': 'x' does not become a NumPy array: can't convert a tensor on the GPU\nhelp: pass a NumPy array to the simulator"
    )


def test_arrays_on_a_gpu_run_there(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver()
    monkeypatch.setitem(sys.modules, "torch", FakeTorch())
    monkeypatch.setattr(arrays, "kinds", lambda: Kinds(driver))
    run = tf.compile(scaled())
    for _ in range(2):
        (y,) = run(FakeTensor(aligned((4, 32), "float32")), 2.0)
        assert isinstance(y, FakeTensor)
    assert len(driver.launches) == 2
    assert np.array_equal(run(X, 2.0)[0], X * 2)
    assert len(driver.launches) == 2
    with pytest.raises(TaskfuseError, match="'x': it is in host memory, other arrays are on a GPU"):
        run(X, 2.0, out=FakeTensor(aligned((4, 32), "float32")))


def test_numpy_arrays_go_to_the_gpu_if_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver()
    monkeypatch.setattr(arrays, "kinds", lambda: Kinds(driver))
    monkeypatch.setenv("TASKFUSE_BACKEND", "cuda")
    (y,) = tf.compile(scaled())(X, 2.0)
    assert isinstance(y, np.ndarray)
    assert len(driver.launches) == 1
