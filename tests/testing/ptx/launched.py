"""Launches of small kernels, as both sides see them, without NVRTC."""

from __future__ import annotations

from taskfuse.cuda.source import emit
from taskfuse.kir import parse_kernel
from taskfuse.testing.ptx.launch import PtxLaunch, launches
from taskfuse.testing.ptx.nodes import Param, PtxFunction

SIZES = {"IntegerArgument": 4, "StrideArgument": 4, "DivisorArgument": 12, "TensorMapArgument": 128, "ScalarArgument": 4}


def launched(text: str, **extents: int) -> PtxLaunch:
    """The launch of a kernel's text."""
    kernel = parse_kernel(text)
    source = emit(kernel)
    params = tuple(Param(f"p{k}", size, min(size, 64)) for k, size in enumerate(SIZES.get(type(a).__name__, 8) for a in source.arguments))
    found = launches(kernel, source, PtxFunction("k", params, (), {}, {}, {}, "sm_90a", {}), extents)
    assert found is not None
    return found
