"""Texts that are kept: what is read is what was printed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taskfuse.cuda import cache, emitted, source
from taskfuse.cuda.kernel_interface import interface_of
from taskfuse.cuda.ranges import dense
from taskfuse.cuda.signature import Argument, ReportArgument, Source
from taskfuse.cuda.source import emit
from taskfuse.cuda.sources import Sources
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.variant import ArgumentLayout, Variant
from taskfuse.options import Options, read_options
from tests.calls import always

SCALARS = """
KERNEL scalars(x: float32[32], a: float32, h: bfloat16) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL t: float32[]

t = mul(x[threadIdx.x], a)
y[threadIdx.x] = add(t, h)
"""
KERNELS = {"scalars": parse_kernel(SCALARS.lstrip("\n"))} | {
    path.stem: parse_kernel(path.read_text(encoding="utf-8")) for path in sorted((Path(__file__).parents[1] / "kernels").glob("*.kir"))
}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    monkeypatch.setattr(cache, "process_cache", cache.ProcessCache())
    return read_options({"HOME": "/nowhere", "TASKFUSE_CACHE_DIR": str(tmp_path / "cache")})


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[Kernel]:
    """The kernels printed."""
    found: list[Kernel] = []

    def noted(kernel: Kernel, *rest: Any) -> Source:
        found.append(kernel)
        return emit(kernel, *rest)

    monkeypatch.setattr(source, "emit", noted)
    return found


def made(kernel: Kernel, *rest: Any) -> Source:
    return emitted.emitted(interface_of(kernel), *rest)


def variants(kernel: Kernel) -> list[Variant]:
    tensors = [p for p in kernel.params if isinstance(p, TensorParam)]
    return [dense(kernel), *(Variant(tuple(form for _ in tensors), wide) for form in ArgumentLayout for wide in (False, True))]


def test_what_is_read_is_what_was_printed(settings: Options, printed: list[Kernel]) -> None:
    kinds: set[type[Argument]] = set()
    for kernel in KERNELS.values():
        for variant in dict.fromkeys(variants(kernel)):
            first = made(kernel, variant, False, False, settings)
            assert printed.pop() is kernel
            assert made(kernel, variant, False, False, settings) == first
            assert not printed
            kinds |= {type(argument) for argument in first.arguments}
    assert kinds == set(Argument.__args__) - {ReportArgument}


def test_what_the_key_depends_on(settings: Options, printed: list[Kernel], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, other = KERNELS["ring"], KERNELS["double"]
    plain = dense(kernel)
    made(kernel, plain, False, False, settings)
    made(other, dense(other), False, False, settings)
    made(kernel, replace(plain, wide=True), False, False, settings)
    made(kernel, replace(plain, forms=(ArgumentLayout.ROWS, *plain.forms[1:])), False, False, settings)
    made(kernel, plain, True, False, settings)
    others: dict[str, object] = {"VERSION": "999", "_FORM": 999, "sources": always(Sources("another", "state"))}
    for name, value in others.items():
        with monkeypatch.context() as patch:
            patch.setattr(emitted, name, value)
            made(kernel, plain, False, False, settings)
    assert len(printed) == 8
    made(kernel, plain, False, False, settings)
    assert len(printed) == 8


CHANGES: list[Callable[[Options], Options]] = [lambda s: replace(s, always_compile=True), lambda s: replace(s, cache_bytes=0)]


@pytest.mark.parametrize("change", CHANGES)
def test_settings(settings: Options, printed: list[Kernel], change: Callable[[Options], Options]) -> None:
    kernel = KERNELS["ring"]
    for _ in range(2):
        made(kernel, dense(kernel), False, False, change(settings))
    assert len(printed) == 2


def test_debug_builds_are_not_kept(settings: Options, printed: list[Kernel]) -> None:
    kernel = KERNELS["ring"]
    assert made(kernel, dense(kernel), False, True, settings).waits
    assert made(kernel, dense(kernel), False, True, settings).debug
    assert len(printed) == 2
    assert not settings.cache_dir.exists()
