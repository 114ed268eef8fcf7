"""The shim around the driver, without one: what is missing, and the errors it makes."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from taskfuse.cuda import driver as module
from taskfuse.cuda.driver import Driver
from taskfuse.errors import CudaError, CudaUnavailableError

HELP = '\nhelp: use backend="sim", or run on a machine with an NVIDIA GPU'


class Status(int):
    name = "CUDA_ERROR_NO_DEVICE"


class Api(ModuleType):
    """``cuda.bindings.driver`` whose calls give what the test says."""

    def __init__(self, **calls: Any) -> None:
        super().__init__("cuda.bindings.driver")
        self.CUresult = lambda code: {700: SimpleNamespace(name="CUDA_ERROR_ILLEGAL_ADDRESS")}.get(code) or int("unknown")
        self.cuGetErrorString = lambda result: (Status(0), b"an illegal memory access was encountered")
        for name, found in calls.items():
            setattr(self, name, found)


def load(monkeypatch: pytest.MonkeyPatch, api: ModuleType | None) -> str:
    """The error of loading a driver."""
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=api) if api else None)
    if api:
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", api)
    with pytest.raises(CudaUnavailableError) as caught:
        Driver()
    return str(caught.value)


def raises(*args: object) -> None:
    raise RuntimeError("libcuda.so.1: cannot open shared object file")


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    one = (Status(0), 1)
    assert load(monkeypatch, None) == ("the CUDA driver is not available: the Python package cuda-python is not installed\nhelp: pip install taskfuse[cuda]")
    assert load(monkeypatch, Api(cuInit=raises)) == "the CUDA driver is not available: libcuda is not on this machine" + HELP
    broken = Api(cuInit=lambda flags: (Status(100),), cuGetErrorName=lambda s: (Status(0), b"CUDA_ERROR_NO_DEVICE"))
    assert load(monkeypatch, broken) == "a GPU is not available: the driver does not start: CUDA_ERROR_NO_DEVICE" + HELP
    none = Api(cuInit=lambda flags: (Status(0),), cuDeviceGetCount=lambda: (Status(0), 0))
    assert load(monkeypatch, none) == "a GPU is not available: the driver finds none" + HELP
    flags = SimpleNamespace(CU_GET_PROC_ADDRESS_LEGACY_STREAM=SimpleNamespace(value=1))
    old = Api(
        cuInit=lambda flags: (Status(0),),
        cuDeviceGetCount=lambda: one,
        cuGetProcAddress=lambda name, version, flags: (Status(0), 0, 1),
        CUdriverProcAddress_flags=flags,
    )
    assert load(monkeypatch, old) == (
        'a CUDA driver of version 12.0 or newer is not available: it has no cuLaunchKernelEx\nhelp: update it, or use backend="sim"'
    )


def test_errors_have_the_name_and_the_text_of_the_driver() -> None:
    driver = Driver.__new__(Driver)
    driver._api = Api(cuModuleLoadData=lambda code: (Status(700), None))
    assert str(driver.error(700, "launch of kernel 'k'")) == "launch of kernel 'k': CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"
    assert str(driver.error(31999, "cuEventCreate")) == "cuEventCreate: CUresult 31999: unknown error"
    with pytest.raises(CudaError, match=r"^cuModuleLoadData: CUDA_ERROR_ILLEGAL_ADDRESS: "):
        driver._call("cuModuleLoadData", b"")


def test_loading_is_lazy() -> None:
    assert "cuda.bindings.driver" not in vars(module)
