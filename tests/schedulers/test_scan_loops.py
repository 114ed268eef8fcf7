"""Scans that are read at other points along their axis: from Shared memory, proved, equal to NumPy, in any interleaving."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import ScanConfig
from tests.proofs import proved, sizes_of

Math = Callable[[tf.TensorView], Any]


def built(shape: tuple[Any, ...], math: Math) -> tf.Fusion:
    with tf.Fusion("elsewhere") as fusion:
        found: tf.TensorView | tuple[tf.TensorView, ...] = math(tf.define_tensor([*shape], name="x"))
        for tv in found if isinstance(found, tuple) else (found,):
            fusion.add_output(tv)
    return fusion


def moving(x: tf.TensorView, axis: int, n: int = 3) -> tf.TensorView:
    """Sums of ``n`` elements, as differences of two totals."""
    total = tf.cumsum(x, axis)
    before = (slice(None),) * axis
    return total[(*before, slice(n, None))] - total[(*before, slice(None, -n))]


def turned(x: tf.TensorView) -> tf.TensorView:
    return tf.permute(x, (0, 2, 1))


def residuals(x: tf.TensorView) -> tf.TensorView:
    """What is left of each element; both factors of the difference are turned."""
    return turned(x) - turned(tf.cumsum(x, 1)) * 0.5


CASES: list[tuple[tuple[Any, ...], tuple[int, ...], Math, ScanConfig | None]] = [
    ((2, 37, 10), (2, 37, 10), lambda x: moving(x, 1), ScanConfig(5, 8)),
    ((2, 37, 6), (2, 37, 6), lambda x: turned(moving(x, 1)), ScanConfig(4, 4)),
    ((2, 37, 6), (2, 37, 6), residuals, ScanConfig(4, 4)),
    (("B", 20, "C"), (3, 20, 5), lambda x: (tf.cumsum(x, 1), tf.cumsum(x, 1)[:, -1]), ScanConfig(8, 4)),
    ((2, 3, 20, 4), (2, 3, 20, 4), lambda x: tf.permute(tf.cumsum(x, 2), (2, 0, 1, 3)), ScanConfig(7, 8)),
    ((20, 5), (20, 5), lambda x: tf.flip(tf.cumsum(tf.flip(x, 0), 0), 0), ScanConfig(3, 1)),
    ((2, tf.dim("N", max=60), "C"), (2, 17, 5), lambda x: tf.flip(tf.cumsum(x, 1), 1), None),
    (("M", tf.dim("N", max=64)), (3, 60), lambda x: tf.flip(tf.cumsum(tf.flip(x, 1), 1), 1), ScanConfig(8, 2)),
    ((3, 64), (3, 64), lambda x: (moving(x, 1, 5), tf.cumsum(x, 1)), None),
    ((1, 40), (1, 40), lambda x: ((y := tf.cumsum(x, 1)), tf.flip(y, 1) + 1.0), ScanConfig(4, 3)),  # vectors of what others read elsewhere
    ((50,), (50,), lambda x: tf.pad(tf.cumsum(x, 0), ((3, 2),)), None),
    ((2, 20, 4), (2, 20, 4), lambda x: tf.cumsum(tf.flip(tf.cumsum(x, 1), 1), 1), ScanConfig(3, 2)),
    ((2, 20, 6), (2, 20, 6), lambda x: tf.cumsum(turned(x), 2), ScanConfig(3, 4)),
    ((20, 6), (20, 6), lambda x: (tf.cumsum(tf.permute(x, (1, 0)) * 2.0, 1), tf.flip(tf.cumsum(tf.permute(x, (1, 0)) * 2.0, 1), 1)), ScanConfig(3, 4)),
]


@pytest.mark.parametrize(("shape", "extents", "math", "config"), CASES)
def test_what_threads_read_of_one_another(shape: tuple[Any, ...], extents: tuple[int, ...], math: Math, config: ScanConfig | None) -> None:
    fusion = built(shape, math)
    ours, again = (tf.copy_fusion(fusion)[0] for _ in range(2))
    schedule = tf.schedulers.scan(ours, config)
    exec(schedule.code, {"fusion": again})
    kernel = tf.lower(ours)
    assert str(tf.lower(again)) == str(kernel)
    x = np.random.default_rng(0).integers(-3, 4, extents).astype(np.float32)
    proved(kernel, sizes_of(kernel, (x,)))
    wanted = fusion.evaluate(x)
    for seed in range(3):
        assert all(np.array_equal(a, b) for a, b in zip(kernel.simulate(x, seed=seed), wanted, strict=True))
    assert kernel.ptx("sm_90a")


def test_neighbors_in_memory_are_those_of_threads() -> None:
    """What is contiguous along other axes is turned in Shared memory, where a row has a place more: lanes find each in a bank of its own."""
    fusion = built((8, 96, 64), residuals)
    tf.schedulers.scan(fusion, ScanConfig(12, 32))
    kernel = tf.lower(fusion)
    shared = {b.name: [str(e) for e in b.shape] for b in kernel.buffers if b.memory is MemoryType.Shared and len(b.shape) == 2 and str(b.shape[1]) == "33"}
    assert list(shared.values()) == [["96", "33"], ["96", "33"]]  # the scan, and its input
    text = str(kernel)
    assert "//12" not in text  # elements in the order of the axis
    assert "% 12" not in text


def test_rows_that_are_contiguous_in_outputs_alone() -> None:
    """Blocks have rows side by side, as the input has; neighboring threads store neighbors."""
    schedule = tf.schedulers.scan(fusion := built((64, 360, 320), lambda x: tf.cumsum(turned(x), 2)))
    assert schedule.config.rows >= 32
    kernel = tf.lower(fusion)
    assert [str(n) for n in kernel.block[:1]] == [str(schedule.config.rows)]
    (scan,) = [b for b in kernel.buffers if b.memory is MemoryType.Shared and str(b.shape[-1]) == str(schedule.config.rows + 1)]
    assert scan is not None
    assert tf.schedulers.scan(built((64, 360, 320), lambda x: tf.cumsum(turned(x), 2) - turned(x))).us > 2 * schedule.us  # what it reads twice is in one order


def test_compile_makes_one_kernel_of_a_moving_average() -> None:
    run = tf.compile(built((64, 360, 320), lambda x: moving(x, 1, 24) / 24.0))
    assert len(run.kernels) == 1
    assert run.schedule is not None
    assert run.schedule.scheduler == "scan"


REFUSED: list[tuple[tuple[int, ...], Math, str]] = [
    ((8, 8, 8), lambda x: turned(tf.cumsum(x, 1)) + x, "has the rows of"),
    ((8, 9), lambda x: tf.cumsum(x, 0)[:, ::-1] + 1.0, "has other rows than the scans"),
    ((8, 9), lambda x: tf.cumsum(tf.cumsum(x, 0)[:, ::-1], 0), "has other rows than the scans"),
    ((8, 9), lambda x: tf.reshape(tf.cumsum(x, 0), [72]) + 1.0, "has other rows than the scans"),
    ((8, 9, 4), lambda x: tf.permute(tf.cumsum(x, 2), (0, 2, 1)) + 1.0, "rows lie side by side in"),
    ((8, 9), lambda x: tf.cumsum(x, 0) + tf.cumsum(x, 1), "scans along axis 1, and"),
    ((4, 9), lambda x: tf.cumsum(x[:, 1:], 0)[:, :3] + tf.cumsum(x[:, :3], 0), "differ in shape"),
]


@pytest.mark.parametrize(("shape", "math", "text"), REFUSED)
def test_refused(shape: tuple[int, ...], math: Math, text: str) -> None:
    fusion = built(shape, math)
    before = str(fusion)
    with pytest.raises(UnsupportedError, match=text):
        tf.schedulers.scan(fusion)
    assert str(fusion) == before


def test_rows_that_fill_shared_memory() -> None:
    with pytest.raises(UnsupportedError, match="its rows take 548864 bytes of Shared memory"):
        tf.schedulers.scan(built((4, 4096, 64), lambda x: moving(x, 1)), ScanConfig(128, 32))
    chosen = tf.schedulers.scan(built((4, 4096, 64), lambda x: moving(x, 1)))
    assert chosen.config.rows < 16
