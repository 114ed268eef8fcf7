"""Versions of all parts, and why one is missing."""

from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cli import versions as module
from taskfuse.cli.versions import versions
from taskfuse.errors import CudaUnavailableError


def rows() -> dict[str, str]:
    return {line[:14].rstrip(): line[15:] for line in versions().split("\n")}


def test_what_is_there() -> None:
    found = rows()
    assert list(found) == ["taskfuse", "Python", "NumPy", "cuda-bindings", "NVRTC", "driver", "nvdisasm"]
    assert found["taskfuse"] == tf.__version__
    assert found["NumPy"] == np.__version__


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise CudaUnavailableError(what="it", reason="it is not there")

    def no_package(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("taskfuse.cuda.nvrtc.version", missing)
    monkeypatch.setattr("taskfuse.cuda.driver.driver", missing)
    monkeypatch.setattr("taskfuse.cuda.disassembly.disassembler", lambda: None)
    monkeypatch.setattr(module, "version", no_package)
    found = rows()
    assert found["NumPy"] == found["cuda-bindings"] == found["nvdisasm"] == "not installed"
    assert found["NVRTC"] == found["driver"] == "not available: it is not there"


@pytest.mark.parametrize(("count", "text"), [(0, "CUDA 13.1, 0 GPUs"), (1, "CUDA 13.1, 1 GPU"), (8, "CUDA 13.1, 8 GPUs")])
def test_gpus(monkeypatch: pytest.MonkeyPatch, count: int, text: str) -> None:
    fake = SimpleNamespace(version=lambda: (13, 1), device_count=lambda: count)
    monkeypatch.setattr("taskfuse.cuda.driver.driver", lambda: fake)
    assert rows()["driver"] == text
