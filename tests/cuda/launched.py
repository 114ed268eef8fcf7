"""A kernel launched on the fake driver."""

from __future__ import annotations

from typing import Any

import pytest

from taskfuse.cuda.arrays import Kinds
from taskfuse.cuda.launch import Launcher
from taskfuse.cuda.nvrtc import Binary
from taskfuse.cuda.signature import Source
from taskfuse.errors import TaskfuseError
from taskfuse.kir import Kernel, parse_kernel
from tests.cuda.fakes import GPU, FakeDriver, FakeTensor, FakeTorchDevice, aligned

SECOND = GPU._replace(ordinal=1, context=0xC1, name="second GPU")


class Case:
    """A kernel with its launcher on a fake driver, and what was compiled for it."""

    def __init__(self, text: str | Kernel, driver: FakeDriver, **options: Any) -> None:
        self.kernel = text if isinstance(text, Kernel) else parse_kernel(text.lstrip("\n"))
        self.driver = driver
        self.sources: list[Source] = []
        self.archs: list[str] = []
        self.run = Launcher(self.kernel, Kinds(driver), on_compile=self._note, **options)

    def _note(self, source: Source, binary: Binary, arch: str) -> None:
        self.sources.append(source)
        self.archs.append(arch)

    def arguments(self, number: int = -1) -> dict[str, Any]:
        """The last launch's parameters by name, as numbers, or bytes where they are not a single one."""
        source = self.sources[-1]
        found: dict[str, Any] = {}
        for argument, raw in zip(source.arguments, self.driver.launches[number].raw, strict=True):
            name = getattr(argument, "tensor", None) or getattr(argument, "name", None) or "report"
            axis = getattr(argument, "axis", None)
            if axis is not None:
                name += f".{axis}"
            found[name] = int.from_bytes(raw, "little", signed=True) if len(raw) in (4, 8) else raw
        return found

    def error(self, *args: Any, **options: Any) -> str:
        with pytest.raises(TaskfuseError) as caught:
            self.run(args, **options)
        assert not self.driver.stack
        return str(caught.value)


def tensor(*shape: int, dtype: str = "float32", device: int = 0, offset: int = 0) -> FakeTensor:
    return FakeTensor(aligned(shape, {"bfloat16": "uint16"}.get(dtype, dtype), offset), FakeTorchDevice("cuda", device), dtype)
