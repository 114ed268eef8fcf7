"""tf.compile."""

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
