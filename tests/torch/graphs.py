"""Graphs of ATen ops of functions, and functions compiled by the backend with the reference in place of kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from taskfuse.torch.compilation import GraphReport, listeners, program_of
from taskfuse.torch.dynamo import backend
from taskfuse.torch.settings import Settings
from tests.calls import Of


@torch.library.custom_op("taskfuse_test::foreign", mutates_args=())
def foreign(x: torch.Tensor) -> torch.Tensor:
    """An op that no fusion is made of: ``-x``."""
    return -x.contiguous()


@foreign.register_fake
def _(x: Any) -> Any:
    return x.new_empty(x.shape)


@torch.library.custom_op("taskfuse_test::transposed", mutates_args=())
def transposed(x: torch.Tensor) -> torch.Tensor:
    """``x`` in columns, although it says rows: some ops of torch choose strides where they run."""
    return x.t().contiguous().t()


@transposed.register_fake
def _(x: Any) -> Any:
    return x.new_empty(x.shape)


REFERENCE = Settings(strict=True, run="reference", cache=False)


def traced(function: Of[Any, Any], *inputs: Any, symbolic: bool = False) -> Any:
    """The functional graph of a function, with torch's metadata; its results are a list, as AOTAutograd has them."""

    def listed(*args: Any) -> list[Any]:
        found = function(*args)
        return [*found] if isinstance(found, tuple | list) else [found]

    return make_fx(torch.func.functionalize(listed), tracing_mode="symbolic" if symbolic else "fake")(*inputs)


def report(function: Of[Any, Any], *inputs: Any, symbolic: bool = False, settings: Settings = REFERENCE) -> GraphReport:
    """What the compiler makes of a function."""
    found: list[GraphReport] = []
    listeners.append(found.append)
    try:
        program_of(traced(function, *inputs, symbolic=symbolic), "inference", settings)
    finally:
        listeners.remove(found.append)
    return found[0]


def check(function: Of[Any, Any], *inputs: Any, symbolic: bool = False, settings: Settings = REFERENCE, fusions: int | None = None) -> GraphReport:
    """Compile a function, run it, and compare with torch: values, dtypes, strides. ``fusions``: how many there must be."""
    found = report(function, *inputs, symbolic=symbolic, settings=settings)
    got = found.program([x.clone() if isinstance(x, torch.Tensor) else x for x in inputs])
    found_by_torch = function(*inputs)
    want: list[Any] = [*found_by_torch] if isinstance(found_by_torch, tuple | list) else [found_by_torch]
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b, equal_nan=True)
    if fusions is not None:
        assert len(found.fusions) == fusions, found.ops
    return found


def compiled(model: Of[Any, Any], **options: Any) -> Any:
    """``torch.compile`` with the reference in place of kernels, and errors raised."""
    return torch.compile(model, backend=backend, options={"strict": True, "run": "reference", "cache": False, **options})
