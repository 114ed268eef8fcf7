"""Kinds of array arguments: torch, CuPy, DLPack, __cuda_array_interface__, NumPy."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from taskfuse.cuda.arrays import Torch, quick_empty
from taskfuse.cuda.device_array import DeviceArray
from taskfuse.dtypes import float32
from tests.cuda.calls import COPY, OVERLAP
from tests.cuda.fakes import GPU, Dlpack, FakeCuPy, FakeCuPyArray, FakeDriver, FakeTensor, FakeTorch, Interface, aligned
from tests.cuda.launched import Case, tensor


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCuPy:
    """A fake CuPy, imported."""
    found = FakeCuPy()
    monkeypatch.setitem(sys.modules, "cupy", found)
    return found


def test_cuda_array_interface(driver: FakeDriver) -> None:
    case = Case(COPY, driver)
    x = aligned((3, 32), "float32")
    (y,) = case.run((Interface(driver, x, stream=9),))
    assert isinstance(y, DeviceArray)
    assert (y.shape, y.stream, y.device) == ((3, 32), 9, GPU)
    assert driver.log == [("allocate", 384, 9), ("launch", 9)]
    assert case.arguments() == {"x": x.ctypes.data, "y": y.pointer, "N": 32}
    driver.log.clear()
    (z,) = case.run((Interface(driver, x),))  # no stream: one of our own
    assert (z.stream, driver.log) == (0x517, [("allocate", 384, 0x517), ("launch", 0x517)])
    driver.log.clear()
    case.run((Interface(driver, x, stream=9),), stream=5)  # the caller's stream waits for the producer's
    assert driver.log == [("order", 9, 5), ("allocate", 384, 5), ("launch", 5), ("free", 5)]
    driver.log.clear()
    del y
    assert driver.log == [("free", 9)]


@pytest.mark.parametrize("versioned", [False, True])
def test_dlpack(driver: FakeDriver, versioned: bool) -> None:
    case = Case(COPY, driver)
    x = Dlpack(aligned((32, 3), "float32").T, float32, versioned=versioned)
    (y,) = case.run((x,))
    assert isinstance(y, DeviceArray)
    assert x.streams == [0x517]  # the producer makes our stream wait
    assert case.arguments()["x"] == x.array.ctypes.data
    case.run((x,), stream=0)
    assert x.streams[-1] == 1  # DLPack's name of the legacy default stream
    out = Dlpack(aligned((3, 32), "float32"), float32)
    assert case.run((x,), out=out, stream=6) == (out,)
    assert case.error(x, out=out) == "output 0 of fusion 'k': 'y': no array says in which stream it is used\nhelp: pass stream="
    assert case.error(Dlpack(x.array, float32, (1, 0))) == (
        "input 0 of fusion 'k': 'x': the array is in host memory\nhelp: move it to the GPU, or pass a NumPy array"
    )


def test_frameworks_in_one_call_are_ordered(driver: FakeDriver, torch: FakeTorch) -> None:
    text = """
KERNEL k(x: float32[32], z: float32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)

y[threadIdx.x] = add(x[threadIdx.x], z[threadIdx.x])
"""
    case = Case(text, driver)
    other = Interface(driver, aligned((32,), "float32"), stream=9)
    (y,) = case.run((tensor(32), other))
    assert torch.made == [y]
    assert driver.log == [("order", 9, 11), ("launch", 11)]  # torch is first: its stream, which waits for the other
    driver.log.clear()
    (z,) = case.run((other, tensor(32)))
    assert isinstance(z, DeviceArray)
    assert driver.log == [("order", 11, 9), ("allocate", 128, 9), ("launch", 9), ("order", 9, 11)]  # and torch's memory stays until the kernel is done
    assert case.error(tensor(32), np.zeros(32, np.float32)) == (
        "input 1 of fusion 'k': 'z': it is in host memory, other arrays are on a GPU\nhelp: move it to the GPU, or all others to NumPy"
    )


def test_cupy(driver: FakeDriver, cupy: FakeCuPy) -> None:
    case = Case(COPY, driver)
    x = FakeCuPyArray(aligned((3, 64), "float32")[:, ::2])
    for _ in range(2):
        (y,) = case.run((x,))
        assert isinstance(y, FakeCuPyArray)
        assert (y.shape, y.dtype, driver.launches[-1].stream) == ((3, 32), np.float32, 21)
        arguments = case.arguments()
        assert (arguments["x"], arguments["y"], arguments["x.0"], arguments["x.1"]) == (x.data.ptr, y.data.ptr, 64, 2)
    case.run((x,), stream=5)
    assert (driver.launches[-1].stream, cupy.stream) == (5, 21)
    assert case.error(FakeCuPyArray(aligned((3, 32), "complex64"))) == "input 0 of fusion 'k': 'x': taskfuse has no dtype complex64"
    assert case.error(FakeCuPyArray(np.ndarray((3, 32), "float32", bytes(1000), 0, (6, 12)))) == (
        "input 0 of fusion 'k': 'x': its strides (6, 12) are not multiples of the 4 bytes of an element"
    )
    assert Case(COPY.replace("y: float32", "y: bfloat16"), driver).error(x) == (
        "output 0 of fusion 'k': this cupy has no dtype bfloat16\nhelp: pass arrays of another framework"
    )


def test_torch_and_cupy_in_one_call(driver: FakeDriver, torch: FakeTorch, cupy: FakeCuPy) -> None:
    text = """
KERNEL k(x: float32[32], z: float32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)

y[threadIdx.x] = add(x[threadIdx.x], z[threadIdx.x])
"""
    case = Case(text, driver)
    z = FakeCuPyArray(aligned((32,), "float32"))
    for _ in range(2):
        driver.log.clear()
        (y,) = case.run((tensor(32), z))
        assert isinstance(y, FakeTensor)
        assert driver.log == [("order", 21, 11), ("launch", 11), ("order", 11, 21)]
    (y,) = case.run((z, tensor(32)))
    assert isinstance(y, FakeCuPyArray)
    assert driver.log[3:] == [("order", 11, 21), ("launch", 21), ("order", 21, 11)]
    driver.log.clear()
    case.run((tensor(32), z), stream=5)
    assert driver.log == [("launch", 5)]


def test_numpy_arrays_go_to_the_gpu_and_back(driver: FakeDriver) -> None:
    case = Case(COPY, driver)
    x = np.arange(96, dtype=np.float32).reshape(32, 3).T
    inner = driver.launched

    def copy(*args: Any) -> int:
        status = inner(*args)
        arguments = case.arguments()
        driver.copy_to_device(arguments["y"], arguments["x"], x.nbytes, 0)
        return status

    driver.on_launch = copy
    (y,) = case.run((x,))
    assert type(y) is np.ndarray
    assert np.array_equal(y, x)
    assert driver.memory == {}
    out = np.zeros((32, 6), np.float32).T[::2]
    assert case.run((x,), out=out)[0] is out
    assert np.array_equal(out, x)
    assert case.error(x, out=np.zeros((3, 32), np.float64)) == "output 0 of fusion 'k': 'y' has dtype float32, the array float64"
    assert case.error(x, out=x) == "output 0 of fusion 'k': it overlaps input 'x'" + OVERLAP


def test_tensors_that_are_not_what_their_memory_says(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    x = tensor(3, 32)
    case.run((x,))
    x.requires_grad = True
    assert case.error(x) == (
        "input 0 of fusion 'k': 'x': the tensor requires gradients, which a kernel does not compute\nhelp: pass x.detach(), or call within torch.no_grad()"
    )
    torch.grad = False
    case.run((x,))
    torch.grad, x.requires_grad, x.negative = True, False, True
    assert case.error(x) == "input 0 of fusion 'k': 'x': the tensor is a lazy negation\nhelp: pass x.resolve_neg()"

    class Sparse(FakeTensor):
        def data_ptr(self) -> int:
            raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    sparse = Sparse(x.array)
    sparse.layout = "sparse_coo"
    for _ in range(2):
        assert case.error(sparse) == "input 0 of fusion 'k': 'x': the tensor's layout is sparse_coo, not dense\nhelp: pass x.to_dense()"


def test_tensors_without_memory(driver: FakeDriver, torch: FakeTorch) -> None:
    class Traced(FakeTensor):
        def data_ptr(self) -> int:
            raise RuntimeError("Cannot access data pointer of Tensor")

    case = Case(COPY, driver)
    for _ in range(2):
        assert case.error(Traced(aligned((3, 32), "float32"))) == "input 0 of fusion 'k': 'x': torch says: Cannot access data pointer of Tensor"


@pytest.mark.parametrize("count", [1, 2])
def test_torch_makes_outputs_as_its_compiled_graphs_do_where_only_one_gpu_can_be_current(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    torch = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    made: list[tuple[Any, ...]] = []

    def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> None:
        made.append((shape, strides, dtype))

    def device_count() -> int:
        return count

    monkeypatch.setattr(torch, "_C", SimpleNamespace(_dynamo=SimpleNamespace(guards=SimpleNamespace(_empty_strided_cuda=empty))))
    torch.cuda.device_count = device_count
    Torch().maker((2, 3), float32, 0)(11)
    assert made == ([((2, 3), (3, 1), "float32")] if count == 1 else [])
    assert quick_empty(torch, "cpu") is None
