"""``tf.compile``: backends, ``out=`` in the simulator, kernels by hand, pickling."""

import pickle

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cuda.nvrtc import Binary
from taskfuse.cuda.source import emit
from taskfuse.runtime.kernel import CompiledKernel
from tests.lines import line_of
from tests.runtime.simulated import X, scaled


def test_numpy_arrays_run_in_the_simulator() -> None:
    run = tf.compile(scaled())
    for args in ((X, 2.0), (X[::-1, ::-1], 2)):
        (y,) = run(*args)
        assert np.array_equal(y, args[0] * 2)
    assert repr(run) == "CompiledKernel('scaled', backend='auto')"


def test_an_executable_can_be_pickled() -> None:
    run = pickle.loads(pickle.dumps(tf.compile(scaled(), "sim", fast_math=True)))
    assert np.array_equal(run(X, 2.0)[0], X * 2)
    assert run.backend == "sim"


def test_dumped_cuda_says_where_statements_come_from(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = tf.compile(scaled(), "cuda")
    source = emit(run.kernel)
    monkeypatch.setenv("TASKFUSE_DUMP", "cuda")
    assert isinstance(run, CompiledKernel)
    run.dumped(source, Binary(b"", "", None, ()), "sm_90a")
    printed = capsys.readouterr().err
    assert f"simulated.py:{line_of('fusion.add_output(x * a)', scaled)}:27  fusion.add_output(x * a)\n" in printed
    assert "simulated.py" not in source.text
