"""Checks of ``out=``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from taskfuse.cuda.layout import Layout, ranges_overlap
from taskfuse.errors import OutputError
from taskfuse.kir import Kernel

Array = npt.NDArray[Any]
_LISTS: Final = (tuple, list)


def outputs_given(kernel: Kernel, out: Any) -> tuple[Any, ...]:
    """``out`` as one array for each output. Raises :class:`OutputError` if their number is wrong."""
    given = tuple(cast(Sequence[Any], out)) if isinstance(out, _LISTS) else (out,)
    if len(given) != len(kernel.outputs):
        names = ", ".join(p.name for p in kernel.outputs)
        reason = f"out= has {len(given)} arrays; there are {len(kernel.outputs)} outputs"
        raise OutputError(index=min(len(given), len(kernel.outputs)), fusion=kernel.name, reason=reason, help=f"the outputs are: {names}")
    return given


def check_overlaps(kernel: Kernel, ranges: Sequence[tuple[int, int]], inputs: int, touched: Collection[str]) -> None:
    """Raise :class:`OutputError` if the range of an output overlaps that of another array that the kernel accesses.

    An output that is written into the array of an input may share that array.

    Args:
        ranges: addresses of the first byte of each array and of the end of its last, inputs before outputs.
        inputs: the number of inputs.
        touched: names of the arrays that the kernel reads or writes.
    """
    for position in range(inputs, len(ranges)):
        for other in range(position):
            if ranges_overlap(ranges[position], ranges[other]) and not may_overlap(kernel, position - inputs, other, touched):
                what = f"input '{kernel.inputs[other].name}'" if other < inputs else f"output '{kernel.outputs[other - inputs].name}'"
                reason = f"it overlaps {what}: one begins between the first and the last address of the other"
                help = "pass memory of its own; arrays that interleave count as overlapping"
                raise OutputError(index=position - inputs, fusion=kernel.name, reason=reason, help=help)


def may_overlap(kernel: Kernel, output: int, other: int, touched: Collection[str]) -> bool:
    """True if an output may overlap an argument: the input into which it is written, or an input that the kernel does not read.

    Args:
        other: number of the argument: of an input, or of an output, counted after the inputs.
        touched: names of those that the kernel reads or writes.
    """
    if other >= len(kernel.inputs):
        return False
    name = kernel.inputs[other].name
    return kernel.outputs[output].into == name or name not in touched


def check_host_outputs(kernel: Kernel, inputs: Sequence[Array], given: Sequence[Any], touched: Collection[str]) -> None:
    """Raises :class:`OutputError` unless ``given`` are NumPy arrays that can be written, without overlaps among them or with inputs."""
    for index, any_array in enumerate(given):
        if not isinstance(any_array, np.ndarray):
            raise OutputError(index=index, fusion=kernel.name, reason=f"a {type(any_array).__name__} is not a NumPy array, as the inputs are")
        array = cast(Array, any_array)
        if not array.flags.writeable:
            raise OutputError(index=index, fusion=kernel.name, reason="the array is read-only")
        if Layout.of((*array.shape, array.itemsize), (*array.strides, 1), 1).overlaps_itself:
            reason = f"two of its elements share memory: shape {list(array.shape)}, strides {list(array.strides)} bytes"
            raise OutputError(index=index, fusion=kernel.name, reason=reason, help="pass an array that is not a broadcast view")
    check_overlaps(kernel, [np.lib.array_utils.byte_bounds(a) if a.size else (0, 0) for a in (*inputs, *given)], len(inputs), touched)


def store(kernel: Kernel, results: Sequence[Array], given: Sequence[Array]) -> None:
    """Copy results to the arrays of ``out=``; copies nothing if one of them has another dtype or shape. Raises :class:`OutputError`."""
    for index, (param, result, target) in enumerate(zip(kernel.outputs, results, given, strict=True)):
        if target.dtype != result.dtype:
            raise OutputError(index=index, fusion=kernel.name, reason=f"'{param.name}' has dtype {param.dtype}, the array {target.dtype}")
        if target.shape != result.shape:
            raise OutputError(index=index, fusion=kernel.name, reason=f"'{param.name}' has shape {list(result.shape)}, the array {list(target.shape)}")
    for result, target in zip(results, given, strict=True):
        np.copyto(target, result)
