"""Launches on a driver that has no GPU: what it is asked to launch, in which order, and what is refused before it is asked."""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cuda.debug import REPORT, empty_report
from taskfuse.cuda.device_array import DeviceArray
from taskfuse.cuda.dlpack import import_capsule
from taskfuse.cuda.launch import Plans
from taskfuse.cuda.parameters import divisor_bytes
from taskfuse.cuda.plan import Plan
from taskfuse.dtypes import bfloat16, float32
from taskfuse.errors import CudaError
from taskfuse.kir.variant import Form
from tests.cuda.fakes import GPU, Dlpack, FakeCuPy, FakeCuPyArray, FakeDriver, FakeTensor, FakeTorch, FakeTorchDevice, Interface, aligned
from tests.cuda.launched import SECOND, Case, tensor
from tests.lines import pipeline, snippet

COPY = """
KERNEL k(x: float32[M, N]) -> (y: float32[M, N])
  DIM M, N
  GRID (M, 1, 1)  BLOCK (N, 1, 1)

y[blockIdx.x, threadIdx.x] = copy(x[blockIdx.x, threadIdx.x])
"""

EXCHANGE = """
KERNEL k(x: float32[B, 32]) -> (y: float32[B, 32])
  DIM B min 1
  GRID (B, 1, 1)  BLOCK (32, 1, 1)
  GLOBAL w: float32[B, 32]
  COUNTER written

w[blockIdx.x, threadIdx.x] = square(x[blockIdx.x, threadIdx.x])
SYNC grid written, 32*B
y[blockIdx.x, threadIdx.x] = copy(w[(blockIdx.x + 1) % B, threadIdx.x])
"""


OVERLAPPING = (6, 1, 0, 0)
"""The attribute of launches that may overlap with the end of the one before."""


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCuPy:
    """A fake CuPy, imported."""
    found = FakeCuPy()
    monkeypatch.setitem(sys.modules, "cupy", found)
    return found


# -- what is launched ---------------------------------------------------------------------------------------------------------------


def test_a_call(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    x = tensor(3, 32)
    (y,) = case.run((x,))
    assert torch.made == [y]
    assert (y.shape, y.dtype, y.device) == ((3, 32), "float32", FakeTorchDevice("cuda", 0))
    (launch,) = driver.launches
    assert (launch.grid, launch.block, launch.shared, launch.stream, launch.attributes) == ((3, 1, 1), (32, 1, 1), 0, 11, (OVERLAPPING,))
    assert case.arguments() == {"x": x.data_ptr(), "y": y.data_ptr(), "N": 32}
    assert driver.log == [("launch", 11)]
    assert case.archs == ["sm_90"]


def test_a_second_call_compiles_and_loads_nothing(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    outs = [case.run((x,))[0] for x in (tensor(3, 32), tensor(3, 32), tensor(5, 64))]
    assert len(case.sources) == len(driver.loaded) == 1
    assert [launch.grid[0] for launch in driver.launches] == [3, 3, 5]
    assert len({y.data_ptr() for y in outs}) == 3
    assert case.arguments()["y"] == outs[2].data_ptr()
    assert all(a % 8 == 0 for launch in driver.launches for a in launch.addresses)


def test_the_variant_follows_from_the_arrays(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    wide = tensor(3, 64)
    for view, form, strides in (
        (wide.array[:, :32], Form.ROWS, {"x.0": 64}),
        (wide.array[::-1, 32:], Form.ROWS, {"x.0": -64}),
        (wide.array[:, ::2], Form.STRIDED, {"x.0": 64, "x.1": 2}),
        (np.broadcast_to(wide.array[:1, :1], (3, 32)), Form.STRIDED, {"x.0": 0, "x.1": 0}),
        (tensor(32, 3).array.T, Form.STRIDED, {"x.0": 1, "x.1": 3}),
    ):
        case.run((FakeTensor(view),))
        assert {source.variant.forms[0] for source in case.sources[-1:]} <= {form, Form.STRIDED}
        arguments = case.arguments()
        assert {name: v for name, v in arguments.items() if name.startswith("x.")} == strides
        assert arguments["x"] == view.ctypes.data
    assert [s.variant.forms for s in case.sources] == [(Form.ROWS, Form.DENSE), (Form.STRIDED, Form.DENSE)]


def test_vectors_ask_for_alignment(driver: FakeDriver, torch: FakeTorch) -> None:
    text = """
KERNEL k(x: float32[M, 128]) -> (y: float32[M, 128])
  DIM M
  GRID (M, 1, 1)  BLOCK (32, 1, 1)
  LOCAL r: float32[4] align 16

COPY r[0] <- x[blockIdx.x, 4*threadIdx.x] width 4
COPY y[blockIdx.x, 4*threadIdx.x] <- r[0] width 4
"""
    case = Case(text, driver)
    wide = tensor(3, 256).array
    views = [tensor(3, 128).array, wide[:, :128], wide[:, 4:132], wide[:, 2:130], aligned((3, 128), "float32", 4), aligned((3, 130), "float32")[:, :128]]
    for view in views:
        case.run((FakeTensor(view),))
    dense, rows, strided = ((form, Form.DENSE) for form in (Form.DENSE, Form.ROWS, Form.STRIDED))
    assert [s.variant.forms for s in case.sources] == [dense, rows, strided]
    assert [launch.function for launch in driver.launches] == [0xF001, 0xF002, 0xF002, 0xF003, 0xF003, 0xF003]


def test_large_spans_take_64_bits(driver: FakeDriver, torch: FakeTorch) -> None:
    class Far(FakeTensor):
        def stride(self) -> tuple[int, ...]:
            return (2**31, 1)

    case = Case(COPY, driver)
    case.run((Far(aligned((2, 32), "float32")),))
    assert case.sources[-1].variant.wide
    assert case.arguments()["x.0"] == 2**31


def test_scalars(driver: FakeDriver, torch: FakeTorch) -> None:
    text = """
KERNEL k(x: float32[32], a: float32, h: bfloat16, n: int8, d: float64) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL t: float32[]

t = mul(x[threadIdx.x], a)
t = add(t, h)
t = add(t, d)
y[threadIdx.x] = add(t, n)
"""
    case = Case(text, driver)

    def packed(*scalars: Any) -> list[bytes]:
        case.run((tensor(32), *scalars))
        source = case.sources[-1]
        return [raw for a, raw in zip(source.arguments, driver.launches[-1].raw, strict=True) if type(a).__name__ == "ScalarArgument"]

    def expected(a: Any, h: Any, n: int, d: float) -> list[bytes]:
        with np.errstate(over="ignore"):
            return [np.asarray(v).astype(t).tobytes() for v, t in ((a, np.float32), (h, bfloat16.numpy), (n, np.int8), (d, np.float64))]

    for values in ((0.1, 0.1, -3, 0.1), (1e300, float("inf"), 127, -1e300), (2**53 + 1, 3, 0, 5), (True, 2, True, 1)):
        assert packed(*values) == expected(*values)
    assert packed(np.float32(0.5), bfloat16.numpy.type(2), np.int8(4), np.float64(3)) == expected(0.5, 2, 4, 3)
    torch.made.clear()
    assert case.error(tensor(32), 1.0, 1.0, 128, 1.0) == "input 3 of fusion 'k': n is int8, which cannot hold 128"
    assert case.error(tensor(32), 1.0, 1.0, 1.5, 1.0) == "input 3 of fusion 'k': n is int8, which cannot hold 1.5"
    assert torch.made == []


def test_divisors() -> None:
    for value in [*range(1, 200), 2**16, 2**31 - 1, 2**31 - 2, 2**30, 123456789]:
        d, multiplier, shift = struct.unpack("<3I", divisor_bytes(value))
        assert d == value
        for n in (0, 1, value - 1, value, value + 1, 5 * value - 1, 2**31 - 1, 2**30):
            if 0 <= n < 2**31:
                assert ((n * multiplier >> 32) + n) >> shift == n // value
    assert divisor_bytes(0) == divisor_bytes(1)


def test_workspaces_and_barriers_across_blocks(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(EXCHANGE, driver)
    case.run((tensor(4, 32),))
    y, memory = torch.made
    arguments = case.arguments()
    begin = memory.data_ptr()
    assert memory.shape == (256 + 4 * 32 * 4,)
    assert (arguments["grid_counters"], arguments["w"], arguments["y"]) == (begin, begin + 256, y.data_ptr())
    assert driver.log == [("fill", begin, 0, 256, 11), ("launch", 11)]
    assert driver.launches[0].attributes == ((2, 1, 0, 0),)
    driver.resident = 1
    case.run((tensor(132, 32),))
    assert case.error(tensor(133, 32)) == (
        "kernel 'k' cannot be launched: its 133 blocks wait for each other, and fake GPU holds 132 of them at once\n"
        "help: use fewer blocks, each with more work, or blocks with fewer threads or less Shared memory"
    )
    driver.devices = (GPU._replace(cooperative=False),)
    assert case.error(tensor(5, 32)) == "kernel 'k' cannot be launched: its blocks wait for each other, and fake GPU does not launch cooperatively"


def test_only_code_that_waits_for_the_stream_is_launched_early(driver: FakeDriver, torch: FakeTorch) -> None:
    driver.function_arch = 80
    case = Case(COPY, driver)
    case.run((tensor(3, 32),))
    assert driver.launches[0].attributes == ()


def test_clusters(driver: FakeDriver, torch: FakeTorch) -> None:
    text = """
KERNEL k(x: float32[M, 32]) -> (y: float32[M, 32])
  DIM M
  GRID (M, 1, 1)  BLOCK (32, 1, 1)  CLUSTER (4, 1, 1)

y[blockIdx.x, threadIdx.x] = copy(x[blockIdx.x, threadIdx.x])
"""
    case = Case(text, driver)
    case.run((tensor(8, 32),))
    assert driver.launches[0].attributes == (OVERLAPPING, (4, 4, 1, 1))
    assert case.error(tensor(6, 32)) == "kernel 'k' cannot be launched: 6 blocks in x are not whole clusters of 4"
    driver.clusters = 0
    assert case.error(tensor(12, 32)) == (
        "kernel 'k' cannot be launched: fake GPU holds no cluster of 4 such blocks\nhelp: use smaller clusters, or blocks with less Shared memory"
    )
    large = Case(text.replace("(4, 1, 1)", "(16, 1, 1)"), FakeDriver())
    large.driver.parameter_sizes = driver.parameter_sizes
    large.run((tensor(16, 32),))
    assert large.driver.log[0] == ("allow_large_clusters",)


def test_tensor_maps_follow_the_addresses(driver: FakeDriver, torch: FakeTorch) -> None:
    with open("tests/kernels/double.kir", encoding="utf-8") as file:
        case = Case(file.read(), driver)
    x = tensor(20, 32)
    (y,) = case.run((x,))
    arguments = case.arguments()
    assert [int.from_bytes(arguments[name][:8], "little") for name in ("map_x", "map_y")] == [x.data_ptr(), y.data_ptr()]
    sizes = driver.parameter_sizes
    assert all(a % 64 == 0 for a, n in zip(driver.launches[0].addresses, sizes, strict=True) if n == 128)
    driver.log.clear()
    other = tensor(20, 32)
    (z,) = case.run((other,))
    assert driver.log == [("replace", other.data_ptr()), ("replace", z.data_ptr()), ("launch", 11)]
    case.run((other,), out=z)
    driver.log.clear()
    case.run((other,), out=z)
    assert driver.log == [("launch", 11)]  # the addresses in the maps are right already


def test_empty_arrays(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    for shape in ((0, 32), (3, 0), (0, 0)):
        (y,) = case.run((tensor(*shape),))
        assert y.shape == shape
    assert driver.launches == []
    with open("tests/kernels/double.kir", encoding="utf-8") as file:
        assert Case(file.read(), driver).error(tensor(0, 32)) == "input 0 of fusion 'double': M is 0; it must be at least 1"
    total = """
KERNEL k(x: float32[N]) -> (y: float32[32])
  DIM N
  GRID (GRIDSIZE, 1, 1)  BLOCK (32, 1, 1)

y[threadIdx.x] = copy(0.0)
"""
    written = Case(total.replace("GRIDSIZE", "1"), driver)
    written.run((tensor(0),))
    assert len(driver.launches) == 1
    assert Case(total.replace("GRIDSIZE", "N"), driver).error(tensor(0)) == (
        "kernel 'k' cannot be launched: it has no thread to write 'y': grid (0, 1, 1)  block (32, 1, 1)  shared 0 bytes"
    )


# -- streams, contexts, devices, threads --------------------------------------------------------------------------------------------


def test_streams(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)

    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 77

    class TorchStream:
        cuda_stream = 78

    class CuPyStream:
        ptr = 79

    for stream in (76, Protocol(), TorchStream(), CuPyStream(), 0):
        case.run((tensor(3, 32),), stream=stream)
    assert [launch.stream for launch in driver.launches] == [76, 77, 78, 79, 0]
    assert torch.used == [(handle, 0) for handle in (76, 77, 78, 79, 0)]  # outputs are made for that stream
    torch.streams[0] = 80
    case.run((tensor(3, 32),))
    assert driver.launches[-1].stream == 80
    assert case.error(tensor(3, 32), stream="s") == (
        "kernel 'k' cannot be launched: 's' is not a CUDA stream\nhelp: pass a handle, or an object with __cuda_stream__"
    )


def test_the_context_of_the_arrays_is_made_current_and_restored(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    case.run((tensor(3, 32),))
    case.run((tensor(3, 32, device=1),))
    driver.current_context = 0  # a thread that has none
    case.run((tensor(3, 32),))
    assert [launch.context for launch in driver.launches] == [GPU.context, SECOND.context, GPU.context]
    assert [launch.stream for launch in driver.launches] == [11, 12, 11]
    assert driver.current_context == 0
    assert driver.loaded == [(0, "k"), (1, "k")]
    assert len(case.sources) == 2  # one text, told of for each device that it is loaded on
    assert case.sources[0] is case.sources[1]


def test_with_one_gpu_a_launch_without_a_context_is_done_again(driver: FakeDriver, torch: FakeTorch) -> None:
    driver.devices = (GPU,)
    case = Case(COPY, driver)
    x = tensor(3, 32)
    case.run((x,))
    driver.current_context = 0  # a thread that has none
    (y,) = case.run((x,))
    assert [launch.context for launch in driver.launches] == [GPU.context] * 2
    assert torch.made[1:] == [y]  # not made again
    assert driver.current_context == 0
    driver.status = 700
    assert case.error(x).startswith("launch of kernel 'k': CUDA_ERROR_700")


def test_what_must_not_happen_in_another_context_asks_for_it_first(driver: FakeDriver, torch: FakeTorch) -> None:
    driver.devices = (GPU,)
    driver.current_context = 0
    fills: list[int] = []
    fill = driver.fill
    driver.fill = lambda *args: fills.append(driver.current_context) or fill(*args)
    case = Case(EXCHANGE, driver)
    for _ in range(2):
        case.run((tensor(4, 32),))
    assert fills == [GPU.context] * 2
    assert driver.current_context == 0


def test_threads_do_not_share_a_frame(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    case.run((tensor(3, 32),))
    inner = driver._launch
    here, go = threading.Barrier(9), threading.Event()

    def slow(*args: Any) -> int:
        here.wait(10)  # all are inside the driver's call, their parameters written
        go.wait(10)
        return inner(*args)

    driver._launch = slow
    arrays = [tensor(3, 32) for _ in range(8)]
    threads = [threading.Thread(target=case.run, args=((x,),)) for x in arrays]
    for thread in threads:
        thread.start()
    here.wait(10)
    go.set()
    for thread in threads:
        thread.join()
    found = {launch.raw[[type(a).__name__ for a in case.sources[0].arguments].index("PointerArgument")] for launch in driver.launches[1:]}
    assert found == {struct.pack("<Q", x.data_ptr()) for x in arrays}


def test_signatures_are_forgotten_when_there_are_many() -> None:
    plans, dropped = Plans(limit=4), cast(Plan, object())
    for k in range(4):
        plans.add(k, dropped)
    plans.add(4, dropped)
    assert plans.older(0) is dropped  # used again: it stays
    for k in range(5, 9):
        plans.add(k, dropped)
    kept = [k for k in range(9) if plans.young.get(k) or plans.older(k)]
    assert 0 in kept or len(kept) >= 4
    assert 1 not in kept
    assert len(plans.young) <= 4


# -- out= ---------------------------------------------------------------------------------------------------------------------------


def test_out(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    x, y = tensor(3, 32), tensor(3, 32)
    assert case.run((x,), out=y) == (y,)
    assert case.run((x,), out=(y,)) == (y,)
    assert case.arguments()["y"] == y.data_ptr()
    strided = FakeTensor(aligned((32, 3), "float32").T)
    case.run((x,), out=strided)
    assert case.sources[-1].variant.forms == (Form.DENSE, Form.STRIDED)
    assert torch.made == []


TWO = """
KERNEL k(x: float32[32]) -> (y: float32[32], z: int32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)

y[threadIdx.x] = copy(x[threadIdx.x])
z[threadIdx.x] = copy(1)
"""
OVERLAP = ": one begins between the first and the last address of the other\nhelp: pass memory of its own; arrays that interleave count as overlapping"


def test_out_is_checked(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(TWO, driver)
    x, z = tensor(32), tensor(32, dtype="int32")
    memory = aligned((64,), "float32")
    one = FakeTensor(np.broadcast_to(memory[:1], (32,)))

    def refused(y: Any, *more: Any, x: Any = x) -> str:
        return case.error(x, out=(y, *more))

    assert refused(z) == "output 1 of fusion 'k': out= has 1 arrays; there are 2 outputs\nhelp: the outputs are: y, z"
    assert refused(z, z) == "output 0 of fusion 'k': 'y' has dtype float32, the array int32"
    assert refused(tensor(33), z) == "output 0 of fusion 'k': 'y' has shape [32], the array [33]"
    assert refused(tensor(32, device=1), z) == (
        "output 0 of fusion 'k': it is on device 1, other arrays are on device 0\nhelp: move all arrays of a call to one device"
    )
    assert refused(one, z) == (
        "output 0 of fusion 'k': two of its elements have one address: shape [32], strides [0]\nhelp: pass an array that is not a broadcast view"
    )
    assert refused(x, z) == "output 0 of fusion 'k': it overlaps input 'x'" + OVERLAP
    halves = FakeTensor(memory[::2]), FakeTensor(memory[1::2])
    assert refused(halves[1], z, x=halves[0]) == "output 0 of fusion 'k': it overlaps input 'x'" + OVERLAP
    behind = FakeTensor(memory[31:63].view("int32"), dtype="int32")
    assert refused(FakeTensor(memory[:32]), behind) == "output 1 of fusion 'k': it overlaps output 'y'" + OVERLAP
    cpu = FakeTensor(memory[:32], FakeTorchDevice("cpu"))
    assert refused(cpu, z) == ("output 0 of fusion 'k': 'y': the tensor is on cpu, not on a GPU\nhelp: pass x.cuda(), or x.numpy() for the simulator")
    assert driver.launches == []
    assert torch.made == []
    case.run((FakeTensor(memory[:32]),), out=(FakeTensor(memory[32:]), z))  # neighbors do not overlap


# -- kinds of arrays ----------------------------------------------------------------------------------------------------------------


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


def test_device_arrays_are_arguments_too(driver: FakeDriver) -> None:
    case = Case(COPY, driver)
    (y,) = case.run((Interface(driver, aligned((3, 32), "float32"), stream=9),))
    (z,) = case.run((y,))
    assert (z.stream, driver.launches[-1].stream) == (9, 9)
    assert case.arguments()["x"] == y.pointer
    assert y.__cuda_array_interface__ == {
        "shape": (3, 32),
        "typestr": "<f4",
        "data": (y.pointer, False),
        "strides": (128, 4),
        "stream": 9,
        "version": 3,
    }
    driver.log.clear()
    found = import_capsule(y.__dlpack__(stream=4, max_version=(1, 0)))
    assert (found.pointer, found.shape, driver.log) == (y.pointer, (3, 32), [("order", 9, 4)])
    y.__dlpack__(stream=-1)
    assert driver.log == [("order", 9, 4)]
    assert y.__dlpack_device__() == (2, 0)
    assert repr(y) == "DeviceArray(float32[3, 32] on GPU 0)"
    assert y.numpy().shape == (3, 32)


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


def test_read_only_arrays_are_no_outputs(driver: FakeDriver) -> None:
    case = Case(COPY, driver)
    x = Interface(driver, aligned((3, 32), "float32"), stream=9)
    out = Interface(driver, aligned((3, 32), "float32"), read_only=True)
    assert case.error(x, out=out) == "output 0 of fusion 'k': 'y': it is read-only"


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
    inner = driver._launch

    def copy(*args: Any) -> int:
        status = inner(*args)
        arguments = case.arguments()
        driver.copy_to_device(arguments["y"], arguments["x"], x.nbytes, 0)
        return status

    driver._launch = copy
    (y,) = case.run((x,))
    assert isinstance(y, np.ndarray)
    assert np.array_equal(y, x)
    assert driver.memory == {}
    out = np.zeros((32, 6), np.float32).T[::2]
    assert case.run((x,), out=out)[0] is out
    assert np.array_equal(out, x)
    assert case.error(x, out=np.zeros((3, 32), np.float64)) == "output 0 of fusion 'k': 'y' has dtype float32, the array float64"
    assert case.error(x, out=x) == "output 0 of fusion 'k': it overlaps input 'x'" + OVERLAP


# -- what is refused ----------------------------------------------------------------------------------------------------------------


def test_arguments_are_checked(driver: FakeDriver, torch: FakeTorch) -> None:
    text = """
KERNEL k(x: float32[M, 32], z: float32[M]) -> (y: float32[M, 32])
  DIM M min 2 max 100 multiple_of 2
  GRID (M, 1, 1)  BLOCK (32, 1, 1)

y[blockIdx.x, threadIdx.x] = mul(x[blockIdx.x, threadIdx.x], z[blockIdx.x])
"""
    case = Case(text, driver)
    x, z = tensor(4, 32), tensor(4)
    assert case.error(x) == "input 1 of fusion 'k': 1 arguments given, 2 wanted\nhelp: the arguments are: x, z"
    assert case.error(x, tensor(4, dtype="float64")) == "input 1 of fusion 'k': 'z' has dtype float64, not float32\nhelp: pass it converted to float32"
    assert case.error(x, tensor(4, 1)) == "input 1 of fusion 'k': 'z' has 2 axes, not 1"
    assert case.error(x, tensor(5)) == "input 1 of fusion 'k': axis 0 of 'z' has extent 5, but M is 4"
    assert case.error(tensor(4, 31), z) == "input 0 of fusion 'k': axis 1 of 'x' has extent 31, not 32"
    assert case.error(tensor(5, 32), tensor(5)) == "input 0 of fusion 'k': M is 5; it must be at least 2, at most 100, a multiple of 2"
    assert case.error(x, tensor(4, device=1)) == (
        "input 1 of fusion 'k': 'z' is on device 1, other arrays are on device 0\nhelp: move all arrays of a call to one device"
    )
    odd = FakeTensor(aligned((4,), "float32", 2))
    assert case.error(x, odd) == (
        "input 1 of fusion 'k': 'z' starts at an address that is not a multiple of the 4 bytes of its elements\nhelp: pass an aligned copy"
    )
    cpu = FakeTensor(z.array, FakeTorchDevice("cpu"))
    assert case.error(x, cpu) == ("input 1 of fusion 'k': 'z': the tensor is on cpu, not on a GPU\nhelp: pass x.cuda(), or x.numpy() for the simulator")
    assert case.error(x, tensor(4, dtype="complex64")) == "input 1 of fusion 'k': 'z': taskfuse has no dtype complex64"
    assert driver.log == []
    assert torch.made == []
    case.run((x, z))


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


LIMITS: list[tuple[Callable[[FakeDriver], object], tuple[int, int], str]] = [
    (lambda d: None, (3, 1025), "1025 threads per block; a block of fake GPU has at most 1024"),
    (lambda d: setattr(d, "devices", (GPU._replace(max_block=(512, 1, 1)),)), (3, 513), "513 threads per block in x; fake GPU has at most 512"),
    (
        lambda d: setattr(d, "devices", (GPU._replace(max_grid=(65535, 1, 1)),)),
        (65536, 1),
        "65536 blocks in x; fake GPU has at most 65535",
    ),
    (
        lambda d: setattr(d, "function_threads", 64),
        (3, 65),
        "65 threads per block; its registers allow 64\nhelp: give it fewer threads, or fewer values in registers",
    ),
    (lambda d: setattr(d, "devices", (GPU._replace(arch=75),)), (3, 32), "it has instructions of sm_80 and newer; fake GPU is sm_75"),
]


@pytest.mark.parametrize(("change", "shape", "reason"), LIMITS)
def test_limits(driver: FakeDriver, torch: FakeTorch, change: Callable[[FakeDriver], object], shape: tuple[int, int], reason: str) -> None:
    change(driver)
    assert Case(COPY, driver).error(tensor(*shape)) == f"kernel 'k' cannot be launched: {reason}"
    assert driver.log == []


def test_shared_memory(driver: FakeDriver, torch: FakeTorch) -> None:
    text = """
KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[N] align 4 @ 0

FOR i in 0..ceildiv(N, 32):
  IF threadIdx.x + 32*i < N:
    s[threadIdx.x + 32*i] = copy(x[threadIdx.x + 32*i])
    y[threadIdx.x + 32*i] = copy(s[threadIdx.x + 32*i])
"""
    case = Case(text, driver)
    case.run((tensor(1000),))
    assert driver.log == [("launch", 11)]
    case.run((tensor(20_000),))
    assert driver.log[1:] == [("allow_shared", 80_000), ("launch", 11)]
    assert driver.launches[-1].shared == 80_000
    assert case.error(tensor(60_000)) == (
        "kernel 'k' cannot be launched: 240000 bytes of Shared memory per block; fake GPU has 232448\nhelp: use smaller tiles or fewer stages"
    )


def test_architectures(driver: FakeDriver, torch: FakeTorch) -> None:
    x = tensor(3, 32)

    def refused(arch: str) -> str:
        return Case(COPY, driver, arch=arch).error(x)

    for arch in ("sm_80", "sm_90", "sm_90a"):
        case = Case(COPY, driver, arch=arch)
        if arch == "sm_80":
            assert case.error(x).splitlines()[0] == ("kernel 'k' cannot be launched: it was to be compiled for sm_80; it needs sm_80, and fake GPU is sm_90")
            continue
        case.run((x,))
        assert case.archs == [arch]
    assert refused("sm_100a") == (
        "kernel 'k' cannot be launched: it was to be compiled for sm_100a; it needs sm_80, and fake GPU is sm_90\nhelp: use arch=\"sm_90\", or none"
    )
    with open("tests/kernels/gemm.kir", encoding="utf-8") as file:
        gemm = file.read()
    case = Case(gemm, driver)
    case.run((tensor(128, 64, dtype="bfloat16"), tensor(128, 64, dtype="bfloat16")))
    assert case.archs == ["sm_90a"]
    assert driver.strict == [False, False, True]  # it counts on its registers
    Case(gemm, driver, lenient=True).run((tensor(128, 64, dtype="bfloat16"), tensor(128, 64, dtype="bfloat16")))
    assert driver.strict == [False, False, True, False]
    driver.devices = (GPU._replace(arch=100),)
    assert Case(gemm, driver).error(tensor(128, 64, dtype="bfloat16"), tensor(128, 64, dtype="bfloat16")) == (
        "kernel 'gemm' cannot be launched: it has instructions of sm_90a alone; fake GPU is sm_100"
    )


def test_a_launch_that_fails(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    driver.status = 700
    assert case.error(tensor(3, 32)) == (
        "launch of kernel 'k': CUDA_ERROR_700: as the test wants\n"
        "note: it may be the error of an earlier launch, which the driver tells of now; compute-sanitizer finds the place"
    )


def test_a_first_call_while_a_graph_is_captured(driver: FakeDriver, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    def function(*args: object) -> None:
        raise CudaError(what="cuModuleLoadData", name="CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", reason="not permitted")

    monkeypatch.setattr(driver, "function", function)
    assert Case(COPY, driver).error(tensor(3, 32)) == (
        "cuModuleLoadData: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: not permitted\nhelp: call it with such arrays once before the capture: that loads the kernel"
    )


def test_debug_builds_wait_and_report(driver: FakeDriver, torch: FakeTorch) -> None:
    with open("tests/kernels/ring.kir", encoding="utf-8") as file:
        case = Case(file.read(), driver, debug=True)
    case.run((tensor(9, 32),))
    assert driver.log[1:] == [("launch", 11), ("synchronize", 11)]
    driver.capturing = True
    case.run((tensor(9, 32),))
    assert driver.log[-1] == ("launch", 11)
    driver.capturing, driver.sync_error = False, True
    assert case.error(tensor(9, 32)) == "cuStreamSynchronize: CUDA_ERROR_719: as the test wants\nnote: in kernel 'ring', or before it"
    inner = driver._launch
    points = [point.barrier for point in case.sources[0].waits]

    def hang(*args: Any) -> int:
        status = inner(*args)
        address = case.arguments()["report"]
        limit = REPORT.unpack(empty_report(2000))[-1]
        driver.copy_to_device(
            address, np.frombuffer(REPORT.pack(1, points.index("full"), 2, 1, 0, 0, 0, 33, 0, 0, limit), np.uint8).ctypes.data, REPORT.size, 0
        )
        return status

    driver._launch = hang
    text = case.error(tensor(9, 32))
    assert text.startswith("kernel 'ring' hangs: ")
    assert "full[2]" in text
    assert "-->" not in text  # a text that nobody wrote in a file has no lines
    assert text.endswith("note: no wait may take longer than 2000 ms (TASKFUSE_WATCHDOG_MS); the CUDA context is lost")


def test_a_hang_names_the_line_of_the_wait(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(tf.lower(pipeline(9)), driver, debug=True)
    case.run((tensor(9, 32),))
    driver.sync_error = True
    inner = driver._launch
    points = [point.barrier for point in case.sources[0].waits]

    def hang(*args: Any) -> int:
        status = inner(*args)
        report = np.frombuffer(REPORT.pack(1, points.index("ch0.full"), 1, 1, 0, 0, 0, 3, 1, 0, 1), np.uint8)
        driver.copy_to_device(case.arguments()["report"], report.ctypes.data, REPORT.size, 0)
        return status

    driver._launch = hang
    found = case.error(tensor(9, 32)).split("\n")
    where = "use: block (0, 0, 0), thread (3, 1, 0) waits at ch0.full[1], whose ring carries tv1,"
    assert found[0] == f"kernel 'pipeline' hangs: {where} for the end of phase parity 1"
    assert found[1:4] == snippet("a = tf.exp(x)", pipeline)
