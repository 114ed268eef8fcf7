"""Output of ``python -m taskfuse --version``: the version of each component, or why it is missing."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from taskfuse.errors import CudaUnavailableError
from taskfuse.version import VERSION


def versions() -> str:
    """One line for each component."""
    rows = {
        "taskfuse": VERSION,
        "Python": platform.python_version(),
        "NumPy": _package("numpy"),
        "cuda-bindings": _package("cuda-bindings"),
        "NVRTC": _nvrtc(),
        "driver": _driver(),
        "nvdisasm": _nvdisasm(),
    }
    return "\n".join(f"{name:14} {value}" for name, value in rows.items())


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _nvrtc() -> str:
    from taskfuse.cuda import nvrtc

    try:
        major, minor = nvrtc.version()
    except CudaUnavailableError as error:
        return f"not available: {error.fields['reason']}"
    return f"{major}.{minor}"


def _driver() -> str:
    from taskfuse.cuda.driver import driver

    try:
        major, minor = driver().version()
        gpus = driver().device_count()
    except CudaUnavailableError as error:
        return f"not available: {error.fields['reason']}"
    return f"CUDA {major}.{minor}, {gpus} GPU{'' if gpus == 1 else 's'}"


def _nvdisasm() -> str:
    from taskfuse.cuda.disassembly import disassembler

    return str(disassembler() or "not installed")
