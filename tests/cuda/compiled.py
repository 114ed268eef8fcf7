"""CUDA texts of many kernels, compiled several at a time: most of the time of a small compilation is NVRTC's start."""

import re
from collections.abc import Mapping, Sequence

import pytest

import taskfuse as tf
from taskfuse.cuda.nvrtc import CompileOptions, compile_cubin
from taskfuse.cuda.signature import Source
from taskfuse.cuda.source import emit
from taskfuse.errors import CudaCompileError
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.variant import ArgumentLayout, Variant

BATCH = 10


def variant(kernel: tf.Kernel, form: ArgumentLayout, wide: bool = False) -> Variant:
    """All tensors of one form."""
    return Variant(tuple(form for p in kernel.params if isinstance(p, TensorParam)), wide)


# What is assumed of the arguments, and how the text is made.
FORMS: dict[str, tuple[ArgumentLayout, bool, bool, bool]] = {
    "dense": (ArgumentLayout.DENSE, False, False, False),
    "rows": (ArgumentLayout.ROWS, False, False, False),
    "strided, wide": (ArgumentLayout.STRIDED, True, False, False),
    "debug, fast math": (ArgumentLayout.DENSE, False, True, True),
}


def texts(kernels: Mapping[str, tf.Kernel], how: str) -> dict[str, Source]:
    """The texts of kernels, by name."""
    form, wide, debug, fast_math = FORMS[how]
    return {name: emit(kernel, variant(kernel, form, wide), fast_math=fast_math, debug=debug) for name, kernel in kernels.items()}


def together(sources: Sequence[Source]) -> str:
    """One text of several kernels."""
    renamed = (re.sub(rf"(?m)^{source.name}(?=\()", f"{source.name}_{k}", source.text) for k, source in enumerate(sources))
    return "\n".join(f"namespace kernel{k} {{\n{text}}}" for k, text in enumerate(renamed))


class Unoptimized(CompileOptions):
    """Two thirds of the time; what NVRTC and ptxas refuse is the same."""

    def flags(self) -> tuple[str, ...]:
        return (*super().flags(), "--Ofast-compile=max")


def compiles(sources: Mapping[str, Source], options: CompileOptions | None = None) -> None:
    """Fails, and names the kernel, if a text does not compile; for sm_90a without optimization unless ``options`` say otherwise."""
    names = list(sources)
    options = options or Unoptimized()
    for first in range(0, len(names), BATCH):
        batch = names[first : first + BATCH]
        try:
            binary = compile_cubin(together([sources[name] for name in batch]), f"{sources[batch[0]].name}_0", options)
        except CudaCompileError:
            for name in batch:
                try:
                    compile_cubin(sources[name].text, sources[name].name, options)
                except CudaCompileError as error:
                    pytest.fail(f"{name}: {error}", pytrace=False)
            raise
        assert binary.code.startswith(b"\x7fELF")
