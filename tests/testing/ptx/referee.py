"""Kernels handed to SentryWard, a verifier of PTX by others: the launch it asks for, and waits in the form that it knows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from taskfuse.cuda.signature import DivisorArgument, IntegerArgument, PointerArgument, ScalarArgument, Source, TensorMapArgument, WorkspaceArgument
from taskfuse.kir.declarations import TensorMapParam, TensorParam
from taskfuse.target import WARP
from taskfuse.testing.ptx.launch import launches, number
from taskfuse.testing.ptx.text import read

# NVRTC turns `while (!passed) {}` into: probe; selp 1, 0; setp.eq 0; branch back
_PROBE = r"""\t// begin inline asm
\t\{ \.reg \.pred p; (?P<wait>mbarrier\.\w+\.parity(?:\.acquire\.cluster)?\.shared::cta\.b64) p, (?P<operands>[^;]*); selp\.u32 (?P<word>%r\d+), 1, 0, p; \}
\t// end inline asm
\tsetp\.eq\.s32 \t(?P<failed>%p\d+), (?P=word), 0;
"""


def plain_waits(ptx: str) -> str:
    """``ptx`` with each wait as a probe and a branch on its own predicate.

    The word between the predicate of the probe and that of the branch is left out where nothing else reads it: the text means the same.
    """
    count = 0

    def plain(found: re.Match[str]) -> str:
        nonlocal count
        if len(re.findall(rf"{found['word']}\b", ptx)) != 2:
            return found[0]
        count += 1
        return f"\t{found['wait']} \t%passed{count}, {found['operands']};\n\tnot.pred \t{found['failed']}, %passed{count};\n"

    text = re.sub(_PROBE, plain, ptx)
    # a branch on the opposite of a predicate that nothing else reads
    for k in range(1, count + 1):
        found = re.search(rf"\tnot\.pred \t(%p\d+), %passed{k};\n", text)
        assert found is not None
        if len(re.findall(rf"{found[1]}\b", text)) == 2:
            text = text.replace(found[0], "").replace(f"@{found[1]} bra", f"@!%passed{k} bra")
    return text.replace("\t.reg .pred", f"\t.reg .pred \t%passed<{count + 1}>;\n\t.reg .pred", 1) if count else text


def launch_input(source: Source, ptx: str, extents: Mapping[str, int]) -> dict[str, Any]:
    """What SentryWard asks to be told of a launch."""
    function = read(ptx)
    kernel = source.kernel
    launch = launches(kernel, source, function, extents)
    assert launch is not None
    tensors = {p.name: p for p in kernel.params if isinstance(p, TensorParam)}
    maps = {p.name: p for p in kernel.params if isinstance(p, TensorMapParam)}
    arguments: list[dict[str, Any]] = []
    declarations: list[dict[str, Any]] = []
    descriptors: list[dict[str, Any]] = []
    for argument, param in zip(source.arguments, function.params, strict=True):
        match argument:
            case PointerArgument() | WorkspaceArgument():
                name = argument.tensor if isinstance(argument, PointerArgument) else argument.name
                declarations.append({"parameter": param.name, "type": "pointer", "space": "global", "object": name})
            case IntegerArgument() | DivisorArgument():
                address = launch.at[param.name]
                width = 8 if param.size == 8 else 4
                for offset in range(0, param.size, width):
                    value = launch.read(address + offset, width)
                    arguments.append({"parameter": param.name, "offset": offset, "type": f"u{8 * width}", "value": value})
            case TensorMapArgument(name=name):
                p = maps[name]
                tensor = tensors[p.tensor]
                shape = [number(e, launch.symbols) for e in reversed(tensor.shape)]
                strides = [tensor.dtype.itemsize * prod(shape[: k + 1]) for k in range(len(shape) - 1)]
                descriptors.append(
                    {
                        "parameter": param.name,
                        "object": p.tensor,
                        "element_type": {2: "bf16", 4: "f32", 1: "u8"}[tensor.dtype.itemsize],
                        "rank": len(shape),
                        "global_shape": shape,
                        "global_strides_bytes": strides,
                        "box_shape": list(reversed(p.box)),
                        "element_strides": list(reversed(p.step)),
                        "swizzle": f"{p.swizzle}B" if p.swizzle else "none",
                        "interleave": "none",
                        "oob_fill": "zero",
                    }
                )
            case ScalarArgument():
                pass
            case _:
                raise AssertionError(argument)
    shape_of = {"grid_dim": list(launch.grid), "block_dim": list(launch.block), "dynamic_shared_bytes": launch.shared_bytes}
    if prod(launch.cluster) > 1:
        shape_of["cluster_dim"] = list(launch.cluster)
    found = {"schema": "spverify.kernel-input/v1", "launch": shape_of, "arguments": arguments, "declarations": declarations}
    return found | ({"tma_descriptors": descriptors} if descriptors else {})


def small_launch(source: Source, ptx: str) -> dict[str, int] | None:
    """Extents of a launch of few blocks, each of whole warps; loops have more trips than rings have slots, where that can be."""
    function = read(ptx)
    for units in product((5, 4, 8, 3, 16, 1, 2), repeat=len(source.kernel.extents)):
        sizes = {e.name: max(-(-n // e.multiple_of), -(-e.min // e.multiple_of)) * e.multiple_of for e, n in zip(source.kernel.extents, units, strict=True)}
        if any(e.max is not None and sizes[e.name] > e.max for e in source.kernel.extents):
            continue
        launch = launches(source.kernel, source, function, sizes)
        if launch is not None and prod(launch.block) % WARP == 0 and prod(launch.grid) <= 16:
            return sizes
    return None


def judged(source: Source, ptx: str, extents: Mapping[str, int], folder: Path, plain: bool = True) -> dict[str, Any]:
    """SentryWard's report on a launch; ``plain``: waits are rewritten for it."""
    import sentryward

    text, given = folder / "kernel.ptx", folder / "input.json"
    text.write_text(plain_waits(ptx) if plain else ptx, encoding="utf-8")
    given.write_text(json.dumps(launch_input(source, ptx, extents)), encoding="utf-8")
    return sentryward.verify(text, input=given, timeout_seconds=100)
