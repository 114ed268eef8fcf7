"""The launch shape of a kernel: how many blocks of how many threads, and how much Shared memory each takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from taskfuse.cuda.signature import Source
from taskfuse.errors import LaunchError
from taskfuse.ir.scalar import evaluate, simplify
from taskfuse.kir import Kernel
from taskfuse.reports.resources import LaunchShape


def launch_shape(source: Source, extents: Mapping[str, int]) -> LaunchShape:
    """The launch shape for given values of the extents; those on which it does not depend may be left out.

    Raises:
        LaunchError: an extent is missing or unknown, or its value breaks what the kernel declares of it.
    """
    kernel = source.kernel
    check_extents(kernel, extents)
    shape = (*kernel.grid, *kernel.block, *kernel.cluster, source.shared_bytes)
    values = [simplify(e) for e in shape]
    missing = sorted({name for e in values for name in e.free} - extents.keys())
    if missing:
        names = ", ".join(missing)
        raise LaunchError(kernel=kernel.name, reason=f"its launch shape depends on {names}", help=f"give the extents {', '.join(f'{n}=...' for n in missing)}")
    gx, gy, gz, bx, by, bz, cx, cy, cz, shared = (int(evaluate(e, extents)) for e in values)
    return LaunchShape((gx, gy, gz), (bx, by, bz), (cx, cy, cz), shared)


def check_extents(kernel: Kernel, extents: Mapping[str, int]) -> None:
    """
    Raises:
        LaunchError: the kernel has no such extent, or its declaration excludes the value.
    """
    declared = {e.name: e for e in kernel.extents}
    for name, value in extents.items():
        if name not in declared:
            raise LaunchError(kernel=kernel.name, reason=f"it has no extent {name}", help=_instead(name, declared))
        extent = declared[name]
        if not extent.admits(value, extents):
            raise LaunchError(kernel=kernel.name, reason=f"{name} is {value}; it must be {extent.allowed}")


def _instead(name: str, declared: Iterable[str]) -> str:
    near = get_close_matches(name, declared, n=1)
    return f"did you mean {near[0]}?" if near else f"its extents are {', '.join(declared) or 'none'}"
