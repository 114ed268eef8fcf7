"""The parameters of a kernel in the memory that a launch reads."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from taskfuse.cuda.abi import OVERLAP_ARCH
from taskfuse.cuda.arrays import ArrayView, Framework
from taskfuse.cuda.driver import Driver, Function
from taskfuse.cuda.frame import WORD, frame_layout
from taskfuse.cuda.launch_plan import LaunchPlan, Workspace
from taskfuse.cuda.signature import (
    DivisorArgument,
    IntegerArgument,
    PointerArgument,
    ReportArgument,
    ScalarArgument,
    StrideArgument,
    TensorMapArgument,
    WorkspaceArgument,
)
from taskfuse.cuda.tensormap import MAP_BYTES, encode
from taskfuse.dtypes import uint8
from taskfuse.kir import Kernel
from taskfuse.kir.arguments import integer, wanted
from taskfuse.kir.declarations import ScalarParam, TensorMapParam
from taskfuse.reports.resources import LaunchShape

WORKSPACE_ALIGNMENT = 256


def fill(
    driver: Driver,
    plan: LaunchPlan,
    function: Function,
    shape: LaunchShape,
    views: Mapping[str, ArrayView],
    symbols: Mapping[str, int],
    order: Sequence[str],
) -> None:
    """Set a plan's parameters: the bytes of constant ones, the positions of the others.

    Args:
        views: the tensor arguments by name.
        symbols: the values of the extents.
        order: the names of the given arrays, inputs then outputs.
    """
    source = plan.source
    maps = {p.name: p for p in source.kernel.params if isinstance(p, TensorMapParam)}
    values = [_bytes(driver, source.kernel, a, views, symbols, maps) for a in source.arguments]
    layout = frame_layout(shape, source.cooperative, function.arch >= OVERLAP_ARCH and not source.cooperative, values)
    scalars = [p.name for p in wanted(source.kernel) if isinstance(p, ScalarParam)]
    pointers: list[tuple[int, int]] = []
    places: list[tuple[int, int]] = []
    encoded: list[tuple[int, int, int]] = []
    spaces: list[tuple[int, WorkspaceArgument]] = []
    for argument, offset in zip(source.arguments, layout.offsets, strict=True):
        match argument:
            case PointerArgument(tensor=name):
                pointers.append((offset // WORD, order.index(name)))
            case ScalarArgument(name=name):
                places.append((offset, scalars.index(name)))
            case TensorMapArgument(name=name):
                view = views[maps[name].tensor]
                if not view.layout.is_empty:
                    encoded.append((offset, order.index(maps[name].tensor), view.pointer))
            case WorkspaceArgument():
                spaces.append((offset // WORD, argument))
            case ReportArgument():
                plan.report = offset // WORD
                plan.guarded = True
            case StrideArgument() | IntegerArgument() | DivisorArgument():
                pass
    workspace = _workspace(plan.kind, plan.ordinal, spaces, symbols) if spaces else None
    plan.set_launch(function, layout, tuple(pointers), tuple(places), encoded, workspace)


def _bytes(
    driver: Driver,
    kernel: Kernel,
    argument: object,
    views: Mapping[str, ArrayView],
    symbols: Mapping[str, int],
    maps: Mapping[str, TensorMapParam],
) -> bytes:
    """The bytes of one parameter; zeros where calls fill them in."""
    match argument:
        case StrideArgument(tensor=name, axis=axis, wide=wide):
            return struct.pack("<q" if wide else "<i", views[name].layout.strides[axis])
        case IntegerArgument(name=name, wide=wide):
            return struct.pack("<q" if wide else "<i", symbols[name])
        case DivisorArgument(value=value):
            return divisor_bytes(integer(value, symbols))
        case ScalarArgument(dtype=dtype):
            return bytes(dtype.itemsize)
        case TensorMapArgument(name=name):
            view = views[maps[name].tensor]
            found = encode(driver, kernel, maps[name], view)
            assert len(found) == MAP_BYTES
            return found
        case _:
            return bytes(WORD)


def _workspace(kind: Framework, device: int, spaces: Sequence[tuple[int, WorkspaceArgument]], symbols: Mapping[str, int]) -> Workspace:
    """One allocation for all workspace buffers, those that start at zero first."""
    words: list[tuple[int, int]] = []
    end = zeroed = 0
    for word, argument in sorted(spaces, key=lambda s: not s[1].zero):  # those that start at zero first
        words.append((word, end))
        end += -(-integer(argument.bytes, symbols) // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
        if argument.zero:
            zeroed = end
    return Workspace(kind.maker((end,), uint8, device), zeroed, tuple(words))


def divisor_bytes(value: int) -> bytes:
    """The bytes of a divisor, see :class:`~taskfuse.cuda.signature.DivisorArgument`. An extent of 0, by which nothing is divided, is encoded as 1."""
    value = max(value, 1)
    shift = (value - 1).bit_length()
    return struct.pack("<3I", value, ((1 << 32) * ((1 << shift) - value)) // value + 1, shift)
