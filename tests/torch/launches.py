"""Compiled graphs on the host whose kernels are launched on a driver that is not there: it writes down what it is asked."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from taskfuse.cuda import arrays, code
from taskfuse.cuda.arrays import ArrayView, Kinds, Probe, Torch
from taskfuse.cuda.driver import Device, Function
from taskfuse.cuda.layout import Layout, row_major
from taskfuse.cuda.nvrtc import Binary
from taskfuse.cuda.signature import PointerArgument, Source
from taskfuse.dtypes import DType
from taskfuse.runtime import arrays as runtime_arrays
from taskfuse.torch import compilation
from taskfuse.torch.settings import Settings
from tests.cuda.fakes import FakeDriver


@dataclass
class Watched(FakeDriver):
    """Writes down the addresses of arrays of each launch, with the kernel and the stream.

    Attributes:
        seen: function, stream, addresses of each launch.
    """

    seen: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list[tuple[int, int, tuple[int, ...]]])
    pointers: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    last: Source | None = None

    def function(self, device: Device, code: bytes, name: str) -> Function:
        found = super().function(device, code, name)
        assert self.last is not None
        self.pointers[found.handle] = [k for k, a in enumerate(self.last.arguments) if isinstance(a, PointerArgument)]
        return found

    def launch(self, function: int, config: int, parameters: int) -> Callable[[], int]:
        def run() -> int:
            count = max(self.pointers[function], default=-1) + 1  # none: the copy engine reads and writes all
            table = struct.unpack(f"<{count}Q", ctypes.string_at(parameters, 8 * count))
            (stream,) = struct.unpack("<Q", ctypes.string_at(config + 32, 8))
            values = tuple(struct.unpack("<Q", ctypes.string_at(table[k], 8))[0] for k in self.pointers[function])
            self.seen.append((function, stream, values))
            return self.status

        return run


class HostTorch(Torch):
    """Tensors on the host, as if they were on a GPU; ``stream`` is the current one."""

    stream = 7

    def __init__(self) -> None:
        super().__init__()
        self.stream_of = lambda device: type(self).stream

    def probe(self) -> Probe:
        """With the first GPU in place of the host."""
        return lambda x: (x.data_ptr(), (x.shape, x.stride(), x.dtype, x.data_ptr() & 15))

    def view(self, array: Any) -> ArrayView:
        """The same."""
        dtype = self._by_torch[array.dtype]
        return ArrayView(array.data_ptr(), dtype, Layout.of(array.shape, array.stride(), dtype.itemsize), 0)

    def maker(self, shape: tuple[int, ...], dtype: DType, device: int) -> Callable[[int], Any]:
        """The same."""
        return lambda stream: torch.empty_strided(shape, row_major(shape), dtype=self._dtypes[dtype])


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """The driver; graphs of tensors on the host are compiled for GPUs."""
    found = Watched()
    emitted = code.emitted

    def noted(*args: Any) -> Source:
        found.last = emitted(*args)
        return found.last

    def packed(text: str, *rest: object, **more: object) -> Binary:
        return Binary(text.encode(), "", None, ())

    kinds = Kinds(found)
    monkeypatch.setattr(code, "emitted", noted)
    monkeypatch.setattr(code, "compiled", packed)
    monkeypatch.setattr(arrays, "Torch", HostTorch)
    for module in (arrays, runtime_arrays):
        monkeypatch.setattr(module, "kinds", lambda: kinds)
    monkeypatch.setattr(Settings, "device", property(lambda self: "cpu"))
    monkeypatch.setattr(compilation, "_known", {})  # kernels of another test are launched on its driver
    return found


def pattern(seen: list[tuple[int, int, tuple[int, ...]]]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Launches with addresses by the order in which they first appear: what is equal of calls with other tensors."""
    order: dict[int, int] = {}
    return [(function, stream, tuple(order.setdefault(a, len(order)) for a in addresses)) for function, stream, addresses in seen]
