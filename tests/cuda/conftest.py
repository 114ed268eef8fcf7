"""The fake driver, and a fake torch."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from taskfuse.cuda import code, source
from taskfuse.cuda.nvrtc import Binary, CompileOptions
from taskfuse.cuda.signature import Source
from tests.cuda.fakes import GPU, FakeDriver, FakeTorch
from tests.cuda.launched import SECOND


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """A driver, with compilation left out."""
    found = FakeDriver(devices=(GPU, SECOND))

    def compiled(text: str, name: str, options: CompileOptions, settings: object, *, strict: bool) -> Binary:
        found.strict.append(strict)
        return Binary(text.encode(), "", None, ())

    def emitted(*args: Any) -> Source:
        interface, *rest, _ = args
        made = source.emit(interface.whole(), *rest)
        found.parameter_sizes = [size(a) for a in made.arguments]
        return made

    monkeypatch.setattr(code, "compiled", compiled)
    monkeypatch.setattr(code, "emitted", emitted)
    return found


def size(argument: Any) -> int:
    """Bytes of a parameter."""
    match type(argument).__name__:
        case "StrideArgument" | "IntegerArgument":
            return 8 if argument.wide else 4
        case "DivisorArgument":
            return 12
        case "ScalarArgument":
            return argument.dtype.itemsize
        case "TensorMapArgument":
            return 128
        case _:
            return 8


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    """A fake torch, imported."""
    found = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", found)
    return found
