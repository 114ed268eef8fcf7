"""The readers of kernel IR behind the methods of a kernel: each is the function of its package, with the options of the call."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.runtime.readers import KernelReaders

KERNEL = tf.parse_kernel("""\
KERNEL twice(x: float32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)

y[threadIdx.x] = mul(x[threadIdx.x], 2.0)
""")
X = np.arange(32, dtype=np.float32)


def test_the_simulator() -> None:
    assert np.array_equal(KERNEL.simulate(X, seed=3)[0], 2 * X)
    with pytest.raises(TypeError, match="loud"):
        KERNEL.simulate(X, loud=True)  # options reach it


def test_all_interleavings() -> None:
    found = KERNEL.explore(X)
    assert found.holds
    assert not KERNEL.explore(X, limit=1).complete


def test_the_timeline() -> None:
    assert [lane.name for lane in KERNEL.timeline(X, seed=1).lanes] == [lane.name for lane in KERNEL.timeline(X, seed=2).lanes]
    with pytest.raises(TypeError, match="loud"):
        KERNEL.timeline(X, loud=True)


def test_the_proof() -> None:
    assert KERNEL.verify().is_proved
    parts = tf.parse_kernel(str(KERNEL).replace("float32[32]", "float32[N]").replace("  GRID", "  DIM N\n  GRID"))
    assert not parts.verify().is_proved
    assert parts.verify({"N": 32}).is_proved  # extents reach it


def test_cuda_is_the_stages() -> None:
    assert KernelReaders().cuda().source(KERNEL, None, False, False, False).text == KERNEL.cuda_source()
