"""What is refused before anything is launched, and that the next call works all the same."""

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.errors import TaskfuseError
from tests.gpu.device import to_torch
from tests.gpu.programs import exchanged, floats, load, scale, vectorized
from tests.gpu.tiled import tiled

X = floats(8, 16)


def cpu_tensor() -> None:
    tf.compile(scale(), backend="cuda")(torch.zeros(3, 4))


def mixed_kinds() -> None:
    fusion = tf.Fusion("sum")
    with fusion:
        a, b = (tf.define_tensor(["N"], dtype=tf.float32, name=n) for n in "ab")
        fusion.add_output(a + b)
    tf.compile(fusion, backend="cuda")(torch.zeros(4, device="cuda"), np.zeros(4, np.float32))


def dtype() -> None:
    tf.compile(scale(), backend="cuda")(torch.zeros(3, 4, device="cuda", dtype=torch.float64))


def rank() -> None:
    tf.compile(scale(), backend="cuda")(torch.zeros(3, device="cuda"))


def count() -> None:
    tf.compile(scale(), backend="cuda")()


def extents() -> None:
    with tf.Fusion("sum") as fusion:
        a, b = (tf.define_tensor(["N"], dtype=tf.float32, name=n) for n in "ab")
        fusion.add_output(a + b)
    tf.compile(fusion, backend="cuda")(torch.zeros(4, device="cuda"), torch.zeros(5, device="cuda"))


def multiple() -> None:
    tf.compile(vectorized(), backend="cuda")(torch.zeros(4, 5, device="cuda"))


def maximum() -> None:
    tf.compile(load("rotate"), backend="cuda")(torch.zeros(65, 32, device="cuda"))


def misaligned() -> None:
    memory = torch.zeros(4 * 12 + 1, dtype=torch.uint8, device="cuda")
    interface = {"shape": (3, 4), "strides": None, "typestr": "<f4", "data": (memory.data_ptr() + 1, False), "version": 3}
    tf.compile(scale(), backend="cuda")(type("Odd", (), {"__cuda_array_interface__": interface})())


def shared() -> None:
    tf.compile(tiled(300_000 // 4), backend="cuda")(torch.zeros(300_000 // 4, device="cuda"))


def shared_at_launch() -> None:
    tf.compile(tiled("N"), backend="cuda")(torch.zeros(100_000, device="cuda"))


def threads() -> None:
    with tf.Fusion("wide") as fusion:
        x = tf.define_tensor(["M", "N"], dtype=tf.float32, name="x")
        y = x * 2
        fusion.add_output(y)
    y.axis(0).parallelize(P.BIDx)
    y.axis(1).parallelize(P.TIDx)
    tf.compile(fusion, backend="cuda")(torch.zeros(2, 1025, device="cuda"))


def grid() -> None:
    with tf.Fusion("tall") as fusion:
        x = tf.define_tensor(["M", "N"], dtype=tf.float32, name="x")
        y = x * 2
        fusion.add_output(y)
    y.axis(0).parallelize(P.BIDy)
    y.axis(1).parallelize(P.TIDx)
    tf.compile(fusion, backend="cuda")(torch.zeros(65536, 1, device="cuda"))


def resident() -> None:
    with tf.Fusion("many") as fusion:
        x = tf.define_tensor(["M", 1024], dtype=tf.float32, name="x")
        doubled = x * 2
        fusion.add_output(tf.flip(doubled, 0) + 1)
    doubled.set_memory_type(MemoryType.Global)
    for tv in fusion.tensors():
        if not tv.is_input:
            tv.axis(0).parallelize(P.BIDx)
            tv.axis(1).parallelize(P.TIDx)
    tf.compile(fusion, backend="cuda")(torch.zeros(100_000, 1024, device="cuda"))


def arch() -> None:
    tf.compile(scale(), backend="cuda", arch="sm_100a")(torch.zeros(3, 4, device="cuda"))


REFUSED: list[tuple[Callable[[], None], str]] = [
    (cpu_tensor, "device|cpu|CPU"),
    (mixed_kinds, "NumPy|numpy"),
    (dtype, "float64"),
    (rank, "axes|rank|shape"),
    (count, "argument"),
    (extents, "extent|dimension"),
    (multiple, "multiple"),
    (maximum, "64"),
    (misaligned, "align"),
    (shared, "[Ss]hared"),
    (shared_at_launch, "[Ss]hared"),
    (threads, "thread"),
    (grid, "65535|grid"),
    (resident, "resident|co-resident|blocks"),
    (arch, "sm_100a|arch|compute capability"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED, ids=[call.__name__ for call, _ in REFUSED])
def test_refused(call: Callable[[], None], words: str) -> None:
    with pytest.raises(TaskfuseError, match=words):
        call()
    torch.cuda.synchronize()
    (out,) = tf.compile(scale(), backend="cuda")(to_torch(X))
    assert out.equal(to_torch(X) * 2 + 1)


def test_a_cooperative_kernel_fits_after_one_that_did_not() -> None:
    with pytest.raises(TaskfuseError, match=r"resident|blocks"):
        resident()
    x = torch.randn(64, 64, device="cuda")
    (out,) = tf.compile(exchanged(), backend="cuda")(x)
    assert out.equal((x * 2).flip(0) + 1)
