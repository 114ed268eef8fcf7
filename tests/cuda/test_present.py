"""Which GPU there is, by NVML."""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from typing import Any

import pytest

from taskfuse.cuda import present
from taskfuse.target import A100, DEFAULT, H200, Target


@pytest.fixture(autouse=True)
def forgotten() -> Generator[None]:
    """What is known of the GPU of this machine is asked anew, and asked anew afterwards."""
    present.found.cache_clear()
    yield
    present.found.cache_clear()


class Library:
    """NVML, as far as it is called.

    Attributes:
        asked: the GPUs that were looked for: by number, or by UUID.
    """

    def __init__(self, name: bytes, capability: tuple[int, int] = (8, 0), status: int = 0) -> None:
        self.asked: list[object] = []

        def init() -> int:
            return status

        def find(what: Any, device: object) -> int:
            self.asked.append(what.value)
            return 0

        def said(device: object, text: ctypes.Array[ctypes.c_char], size: object) -> int:
            text.value = name
            return 0

        def compute(device: object, major: Any, minor: Any) -> int:
            for pointer, value in zip((major, minor), capability, strict=True):
                ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int))[0] = value
            return 0

        self.nvmlInit_v2, self.nvmlDeviceGetHandleByIndex_v2, self.nvmlDeviceGetHandleByUUID = init, find, find
        self.nvmlDeviceGetName, self.nvmlDeviceGetCudaComputeCapability = said, compute


def machine(monkeypatch: pytest.MonkeyPatch, library: Library | OSError, visible: str | None = None) -> Target | None:
    """What is found on a machine."""

    def opened(name: str) -> Library:
        if isinstance(library, OSError):
            raise library
        return library

    monkeypatch.setattr(ctypes, "CDLL", opened)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = present.found()
    assert present.present() is (found or DEFAULT)
    return found


@pytest.mark.parametrize(("name", "capability", "target"), [(b"NVIDIA A100-PCIE-40GB", (8, 0), A100), (b"NVIDIA H200", (9, 0), H200)], ids=["A100", "H200"])
def test_a_gpu_by_its_name(monkeypatch: pytest.MonkeyPatch, name: bytes, capability: tuple[int, int], target: Target) -> None:
    assert machine(monkeypatch, Library(name, capability)) is target


@pytest.mark.parametrize("library", [Library(b"NVIDIA A100", status=9), Library(b"GeForce 8800", (1, 0)), OSError("no driver")], ids=["fails", "old", "none"])
def test_none_whose_limits_are_known(monkeypatch: pytest.MonkeyPatch, library: Library | OSError) -> None:
    assert machine(monkeypatch, library) is None


@pytest.mark.parametrize(("visible", "asked"), [(None, 0), ("2,0", 2), (" 1 ", 1), ("GPU-8e", b"GPU-8e")])
def test_the_first_visible_one(monkeypatch: pytest.MonkeyPatch, visible: str | None, asked: int | bytes) -> None:
    library = Library(b"NVIDIA A100")
    assert machine(monkeypatch, library, visible) is A100
    assert library.asked == [asked]


def test_a_number_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine(monkeypatch, Library(b"NVIDIA A100"), "NoDevFiles") is None


def test_it_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(b"NVIDIA A100")
    for _ in range(2):
        machine(monkeypatch, library)
    assert len(library.asked) == 1
