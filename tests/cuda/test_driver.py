"""The shim around the driver, without one: what is missing, the errors it makes, and the numbers and types that it shares with cuda.h."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from taskfuse.cuda import abi
from taskfuse.cuda import driver as module
from taskfuse.cuda.abi import ATTRIBUTE, CONFIG, PROTOTYPES, SWIZZLES, DeviceAttribute, FunctionAttribute, MapType
from taskfuse.cuda.driver import Driver
from taskfuse.errors import CudaError, CudaUnavailableError
from tests.calls import always

HELP = '\nhelp: use backend="sim", or run on a machine with an NVIDIA GPU'


class Library:
    """A libcuda whose calls give what the test says, and 0 where it says nothing."""

    def __init__(self, missing: str = "", **calls: Callable[..., int]) -> None:
        self.called: list[tuple[Any, ...]] = []
        known = {"cuGetErrorName": said(b"CUDA_ERROR_NO_DEVICE"), "cuGetErrorString": said(b"no CUDA-capable device is detected")} | calls
        for name in PROTOTYPES:
            if name != missing:
                setattr(self, name, self._call(name, known.get(name, lambda *args: 0)))

    def _call(self, name: str, answer: Callable[..., int]) -> Callable[..., int]:
        def call(*args: Any) -> int:
            self.called.append((name, *args))
            return answer(*args)

        return call


def said(text: bytes | None) -> Callable[..., int]:
    """A call that stores a text."""

    def call(code: int, place: Any) -> int:
        place._obj.value = text
        return 0

    return call


def stores(number: int) -> Callable[..., int]:
    """A call that stores a number where its first parameter says."""

    def call(place: Any, *args: object) -> int:
        place._obj.value = number
        return 0

    return call


def load(monkeypatch: pytest.MonkeyPatch, library: Library | None) -> str:
    """The error of loading a driver."""

    def open_library(name: str) -> Library:
        if library is None:
            raise OSError(f"{name}: cannot open shared object file")
        return library

    monkeypatch.setattr(ctypes, "CDLL", open_library)
    with pytest.raises(CudaUnavailableError) as caught:
        module.load_library()
    return str(caught.value)


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch, None) == "the CUDA driver is not available: libcuda is not on this machine" + HELP
    broken = Library(cuInit=always(100))
    assert load(monkeypatch, broken) == "a GPU is not available: the driver does not start: CUDA_ERROR_NO_DEVICE" + HELP
    assert load(monkeypatch, Library(cuDeviceGetCount=stores(0))) == "a GPU is not available: the driver finds none" + HELP
    assert load(monkeypatch, Library(missing="cuLaunchKernelEx")) == (
        'a CUDA driver of version 12.0 or newer is not available: it has no cuLaunchKernelEx\nhelp: update it, or use backend="sim"'
    )


def driver_of(library: Library) -> Driver:
    """A driver with a fake library, without the functions of the path of every launch."""
    found = Driver.__new__(Driver)
    object.__setattr__(found, "_library", library)
    return found


def test_errors_have_the_name_and_the_text_of_the_driver() -> None:
    driver = driver_of(Library(cuMemHostAlloc=always(700)))
    assert str(driver.error(700, "launch of kernel 'k'")) == "launch of kernel 'k': CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
    with pytest.raises(CudaError, match=r"^cuMemHostAlloc: CUDA_ERROR_NO_DEVICE: "):
        driver.host_buffer(8)
    newer = driver_of(Library(cuGetErrorName=said(None), cuGetErrorString=said(None)))
    assert str(newer.error(31999, "cuEventCreate")) == "cuEventCreate: CUresult 31999: unknown error"


def test_the_types_of_all_calls_are_known() -> None:
    with open(module.__file__, encoding="utf-8") as file:
        text = file.read()
    assert [name for name in PROTOTYPES if f'"{name}"' not in text and f".{name}(" not in text] == []


def test_events_go_whatever_happens() -> None:
    library = Library(cuEventCreate=stores(77), cuEventRecord=lambda *args: 700)
    with pytest.raises(CudaError, match="cuEventRecord: "):
        driver_of(library).order(1, 2)
    assert library.called[-1] == ("cuEventDestroy_v2", 77)


def test_a_tensor_map_is_encoded_in_aligned_memory() -> None:
    def encode(place: int, dtype: int, rank: int, address: int, *rest: Any) -> int:
        assert place % 64 == 0
        ctypes.memmove(place, bytes(range(128)), 128)
        assert [list(array) for array in rest[:4]] == [[64, 7, 5], [256, 2048, 0], [64, 8, 2], [1, 2, 1]]
        assert (dtype, rank, address, rest[4:]) == (7, 3, 4096, (0, 3, 2, 0))
        return 0

    found = driver_of(Library(cuTensorMapEncodeTiled=encode)).tensor_map(MapType.FLOAT32, 4096, (64, 7, 5), (256, 2048), (64, 4, 2), 128, (1, 2, 1))
    assert found == bytes(range(128))


@pytest.fixture
def header() -> Any:
    """cuda.h, as ``cuda.bindings`` has it."""
    return pytest.importorskip("cuda.bindings.driver", reason="needs cuda-python")


def test_numbers_are_those_of_the_header(header: Any) -> None:
    for attribute in DeviceAttribute:
        assert attribute.value == getattr(header.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{attribute.name}")
    for attribute in FunctionAttribute:
        assert attribute.value == getattr(header.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{attribute.name}")
    for dtype in MapType:
        assert dtype.value == getattr(header.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{dtype.name}")
    for size, number in SWIZZLES.items():
        assert number == getattr(header.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{f'{size}B' if size else 'NONE'}")
    assert abi.L2_PROMOTION_128B == header.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B
    assert header.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE == header.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE == 0
    assert abi.POINTER_DEVICE_ORDINAL == header.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    assert abi.EVENT_DISABLE_TIMING == header.CUevent_flags.CU_EVENT_DISABLE_TIMING
    assert (abi.MEMHOSTALLOC_PORTABLE, abi.MEMHOSTALLOC_DEVICEMAP) == (header.CU_MEMHOSTALLOC_PORTABLE, header.CU_MEMHOSTALLOC_DEVICEMAP)
    assert abi.COOPERATIVE == header.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    assert abi.CLUSTER_DIMENSION == header.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    assert header.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE == 0


def test_structures_are_those_of_the_header(header: Any) -> None:
    attribute = ctypes.create_string_buffer(ATTRIBUTE.pack(abi.CLUSTER_DIMENSION, 2, 3, 4), ATTRIBUTE.size)
    packed = ctypes.create_string_buffer(CONFIG.pack(1, 2, 3, 4, 5, 6, 7, 8, ctypes.addressof(attribute), 1), CONFIG.size)
    config = header.CUlaunchConfig(_ptr=ctypes.addressof(packed))
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (1, 2, 3)
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (4, 5, 6)
    assert (config.sharedMemBytes, int(config.hStream), config.numAttrs) == (7, 8, 1)
    found = header.CUlaunchAttribute(_ptr=ctypes.addressof(attribute))
    assert found.id == header.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    assert (found.value.clusterDim.x, found.value.clusterDim.y, found.value.clusterDim.z) == (2, 3, 4)


def test_loading_is_lazy() -> None:
    script = "import sys, taskfuse.cuda.launch; print([name for name in sys.modules if name.startswith('cuda')])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
