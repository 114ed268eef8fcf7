"""Machine code in entries of decisions: the same text and code as before, only of the NVRTC that is installed, and none that the compiler complained about."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from taskfuse.cuda import cache, carried_code
from taskfuse.cuda.emitted import emitted
from taskfuse.cuda.kernel_interface import KernelInterface, interface_of
from taskfuse.cuda.nvrtc import Binary, CompileOptions
from taskfuse.cuda.resources import Diagnostic
from taskfuse.kir import parse_kernel
from taskfuse.options import read_options
from taskfuse.reports.resources import Resources
from tests.calls import always

TEXT = """KERNEL twice(x: float32[N]) -> (y: float32[N])
  DIM N
  GRID (ceildiv(N, 32), 1, 1)  BLOCK (32, 1, 1)

IF 32*blockIdx.x + threadIdx.x < N:
  y[32*blockIdx.x + threadIdx.x] = add(x[32*blockIdx.x + threadIdx.x], x[32*blockIdx.x + threadIdx.x])
"""
OPTIONS = CompileOptions(arch="sm_90a", fast_math=True)
RESOURCES = Resources(registers=12, static_shared=0, stack=0, spill_stores=0, spill_loads=0, barriers=1, local_arrays=0)
BINARY = Binary(b"\x7fELF\x00\xff", "a log", RESOURCES, ())


def interface() -> KernelInterface:
    return interface_of(parse_kernel(TEXT))


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "process_cache", cache.ProcessCache())
    monkeypatch.setattr(carried_code, "installed_version", always((13, 0)))


def packed(binary: Binary) -> dict[str, Any] | None:
    """What this process has compiled, as another one reads it."""
    own = interface()
    source = emitted(own, own.dense, OPTIONS.fast_math, False, read_options())
    cache.process_cache.remember(cache.cache_key(source.text, source.name, OPTIONS, None), binary)
    form = carried_code.packed(source, OPTIONS)
    return None if form is None else json.loads(json.dumps(form))


def test_another_process_has_the_text_and_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    form, own, there = packed(BINARY), interface(), interface()
    assert form is not None
    source = emitted(own, own.dense, OPTIONS.fast_math, False, read_options())
    carried_code.take(form, there)
    assert [*there.texts] == [(own.dense, True)]
    found = there.texts[own.dense, True]
    assert (found.text, found.arguments, found.shared_bytes) == (source.text, source.arguments, source.shared_bytes)
    assert carried_code.carried(there, found, OPTIONS, read_options()) == BINARY
    assert carried_code.carried(there, found, OPTIONS._replace(arch="sm_100a"), read_options()) is None
    assert carried_code.carried(own, source, OPTIONS, read_options()) is None
    monkeypatch.setenv("TASKFUSE_ALWAYS_COMPILE", "1")
    assert carried_code.carried(there, found, OPTIONS, read_options()) is None


@pytest.mark.parametrize("version", [(13, 5), None])
def test_code_of_another_compiler_is_ignored(monkeypatch: pytest.MonkeyPatch, version: tuple[int, int] | None) -> None:
    form, there = packed(BINARY), interface()
    assert form is not None
    monkeypatch.setattr(carried_code, "installed_version", always(version))
    carried_code.take(form, there)
    assert not there.texts
    assert not there.binaries
    assert packed(BINARY) is None or version


@pytest.mark.parametrize("binary", [BINARY._replace(diagnostics=(Diagnostic("registers spill"),)), BINARY._replace(resources=None)], ids=["warns", "unknown"])
def test_code_that_is_warned_of_is_not_carried(binary: Binary) -> None:
    assert packed(binary) is None


DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no code": (lambda form: form.pop("code"), "code"),
    "no base64": (lambda form: form.update(code="a"), "base64"),
    "resources": (lambda form: form.update(resources=[1]), "missing"),
    "layouts": (lambda form: form.update(forms=["round"]), "round"),
    "arguments": (lambda form: form["source"].update(arguments=[["NoArgument"]]), "NoArgument"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_makes_no_sense_is_an_error(damage: str) -> None:
    form = packed(BINARY)
    assert form is not None
    change, reason = DAMAGE[damage]
    change(form)
    with pytest.raises((KeyError, TypeError, ValueError), match=reason):
        carried_code.take(form, interface())
