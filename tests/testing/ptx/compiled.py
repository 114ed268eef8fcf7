"""Kernels with their CUDA C++ and PTX, for the tests of the reading of PTX."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import taskfuse as tf
from taskfuse.cuda.nvrtc import CompileOptions, compile_ptx
from taskfuse.cuda.signature import Source
from taskfuse.cuda.source import emit
from taskfuse.kir.variant import Variant
from taskfuse.testing.ptx.compare import Comparison, compare

TESTS = Path(__file__).parents[2]


def written(name: str) -> tf.Kernel:
    """A kernel of tests/kernels."""
    return tf.parse_kernel((TESTS / "kernels" / f"{name}.kir").read_text(encoding="utf-8"))


def distinct(paths: Iterable[Path]) -> list[Path]:
    """The paths of different kernels: several bugs of the museum have one right twin."""
    found: dict[str, Path] = {}
    for path in paths:
        text = "\n".join(line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
        found.setdefault(text, path)
    return list(found.values())


def ptx_of(source: Source, text: str | None = None) -> str:
    """The PTX of a text, or of ``text`` in its place."""
    return compile_ptx(source.text if text is None else text, source.name, CompileOptions(arch="sm_90a"))


def compared(kernel: tf.Kernel, variant: Variant | None = None) -> Comparison:
    """A kernel and its PTX."""
    source = emit(kernel, variant)
    return compare(kernel, source, ptx_of(source))
