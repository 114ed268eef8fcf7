"""``tf.compile``: backends, ``out=`` in the simulator, kernels by hand, pickling."""

import pickle

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cuda.nvrtc import Binary
from taskfuse.cuda.source import emit
from taskfuse.runtime.executable import ResultAdapter
from taskfuse.runtime.kernel import CompiledKernel
from taskfuse.runtime.proof import Standing
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


def test_a_pickle_has_the_text_of_the_kernel_and_what_is_proved_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its body is parsed on demand, and the kernel is proved again only where the checker is another."""
    run = tf.compile(scaled(), "sim")
    content = pickle.dumps(run)

    def parsed(*args: object) -> None:
        raise AssertionError("proved again")

    def another(text: str, settings: object) -> str:
        return "of another checker"

    with monkeypatch.context() as patch:
        patch.setattr("taskfuse.cuda.kernel_interface.parse_kernel", parsed)
        patch.setattr("taskfuse.runtime.proof.verify", parsed)
        again = pickle.loads(content)
        assert pickle.loads(pickle.dumps(again)).arguments == again.arguments == run.arguments
        assert isinstance(again, CompiledKernel)
        assert again.standing is Standing.PROVED
        patch.setattr("taskfuse.runtime.proof.identity", another)
        with pytest.raises(AssertionError, match="proved again"):
            pickle.loads(content)
    assert again.kernel == run.kernels[0]


def test_dumped_cuda_says_where_statements_come_from(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = tf.compile(scaled(), "cuda")
    source = emit(run.kernel)
    monkeypatch.setenv("TASKFUSE_DUMP", "cuda")
    assert isinstance(run, CompiledKernel)
    run.dumped(source, Binary(b"", "", None, ()), "sm_90a")
    printed = capsys.readouterr().err
    assert f"simulated.py:{line_of('fusion.add_output(x * a)', scaled)}:27  fusion.add_output(x * a)\n" in printed
    assert "simulated.py" not in source.text


def test_an_adapter_is_its_executable_but_for_the_results() -> None:
    with tf.Fusion("turned") as fusion:
        x = tf.define_tensor(["N", 8], name="x")
        fusion.add_output((x + 1.0).T)
        fusion.add_output(x + 1.0)
    run = tf.compile(fusion, "sim")
    assert isinstance(run, ResultAdapter)
    inner = run.inner
    assert (run.name, run.arguments) == ("turned", ("x",))
    assert (run.kernels, run.certificates, run.specializations) == (inner.kernels, inner.certificates, inner.specializations)
    assert run.kernel is inner.kernel
    assert run.certificate is inner.certificate
    assert run.at({"N": 4}) is inner.at({"N": 4})
