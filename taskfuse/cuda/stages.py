"""The compilation stages of a kernel, without a GPU: its CUDA C++, PTX, machine code, resources and launch shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

from taskfuse.cuda.cache import compiled
from taskfuse.cuda.disassembly import sass as disassembled
from taskfuse.cuda.nvrtc import Binary, CompileOptions, compile_ptx
from taskfuse.cuda.ranges import dense
from taskfuse.cuda.resources import occupancy
from taskfuse.cuda.signature import Source
from taskfuse.cuda.source import emit
from taskfuse.errors import LaunchError, UnsupportedError
from taskfuse.ir.scalar import Const, const, evaluate, simplify, substitute
from taskfuse.kir import Kernel
from taskfuse.kir.arguments import check_extents
from taskfuse.kir.variant import Variant
from taskfuse.options import read_options
from taskfuse.reports.resources import KernelResources, LaunchShape

DEFAULT_ARCH = "sm_90a"


def source(kernel: Kernel, variant: Variant | None = None, fast_math: bool = False, debug: bool = False, locations: bool = False) -> Source:
    """CUDA C++ of ``kernel``; see :meth:`taskfuse.Kernel.cuda_source`."""
    return emit(kernel, variant or dense(kernel), fast_math=fast_math, debug=debug, locations=locations)


def ptx(kernel: Kernel, arch: str = DEFAULT_ARCH, variant: Variant | None = None, fast_math: bool = False, debug: bool = False) -> str:
    """PTX of ``kernel``; see :meth:`taskfuse.Kernel.ptx`."""
    made = source(kernel, variant, fast_math, debug)
    check_target(made, arch)
    return compile_ptx(made.text, made.name, CompileOptions(arch=arch, fast_math=fast_math))


def cubin(kernel: Kernel, arch: str = DEFAULT_ARCH, variant: Variant | None = None, fast_math: bool = False, debug: bool = False) -> bytes:
    """Machine code of ``kernel``; see :meth:`taskfuse.Kernel.cubin`."""
    return _binary(source(kernel, variant, fast_math, debug), arch, fast_math).code


def sass(kernel: Kernel, arch: str = DEFAULT_ARCH, variant: Variant | None = None, fast_math: bool = False, debug: bool = False) -> str:
    """The instructions of that machine code; see :meth:`taskfuse.Kernel.sass`."""
    return disassembled(cubin(kernel, arch, variant, fast_math, debug))


def resources(
    kernel: Kernel,
    arch: str = DEFAULT_ARCH,
    extents: Mapping[str, int] | None = None,
    variant: Variant | None = None,
    fast_math: bool = False,
    debug: bool = False,
) -> KernelResources:
    """The resources of ``kernel``; see :meth:`taskfuse.Kernel.resources`."""
    made = source(kernel, variant, fast_math, debug)
    said = _binary(made, arch, fast_math).resources
    if said is None:
        raise UnsupportedError(what="this NVRTC", reason="it reports resources in an unknown form", help="pip install taskfuse[cuda] brings one that is known")
    check_extents(kernel, extents or {})
    values = {name: const(value) for name, value in (extents or {}).items()}
    x, y, z = kernel.block
    threads, shared = (substitute(simplify(e), values) for e in (x * y * z, made.shared_bytes))
    blocks = None
    if isinstance(threads, Const) and isinstance(shared, Const):
        with suppress(UnsupportedError):  # no limits are known for the architecture
            blocks = occupancy(said, threads.value, shared.value, arch)
    return KernelResources(arch, said, threads, shared + said.static_shared, blocks)


def check_target(source: Source, arch: str) -> None:
    """Check that ``arch`` has the instructions of ``source``.

    Raises:
        UnsupportedError: it lacks one.
    """
    found = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if found is None:
        return  # NVRTC names those that it knows
    number = int(found[1])
    needed = f"sm_{source.arch}a" if source.feature_arch else f"sm_{source.arch}"
    if number < source.arch or (source.feature_arch and arch != needed):
        what = f"kernel '{source.kernel.name}' on {arch}"
        only = f"it has instructions of {needed}" + (" only" if source.feature_arch else " and newer")
        raise UnsupportedError(what=what, reason=only, help=f'use arch="{needed}"')


def _binary(source: Source, arch: str, fast_math: bool) -> Binary:
    check_target(source, arch)
    return compiled(source.text, source.name, CompileOptions(arch=arch, fast_math=fast_math), read_options())


def launch_shape(kernel: Kernel, extents: Mapping[str, int]) -> LaunchShape:
    """The launch shape for given values of the extents; those on which it does not depend may be left out; see :meth:`taskfuse.Kernel.launch_shape`.

    Raises:
        LaunchError: an extent is missing or unknown, or its value breaks its declared facts.
    """
    check_extents(kernel, extents)
    shape = (*kernel.grid, *kernel.block, *kernel.cluster, source(kernel).shared_bytes)
    values = [simplify(e) for e in shape]
    missing = sorted({name for e in values for name in e.free} - extents.keys())
    if missing:
        names = ", ".join(missing)
        raise LaunchError(kernel=kernel.name, reason=f"its launch shape depends on {names}", help=f"give the extents {', '.join(f'{n}=...' for n in missing)}")
    gx, gy, gz, bx, by, bz, cx, cy, cz, shared = (int(evaluate(e, extents)) for e in values)
    return LaunchShape((gx, gy, gz), (bx, by, bz), (cx, cy, cz), shared)
