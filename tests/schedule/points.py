"""What a schedule executes, counted point by point, for constant extents; and the text of refusals."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import float32
from taskfuse.errors import TaskfuseError
from taskfuse.ir.axes import Axis, Transform
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Const, Expr, evaluate, sym
from taskfuse.ir.tensor import TensorView

Indices = npt.NDArray[np.int64]


def size(a: Axis) -> int:
    assert isinstance(a.extent, Const)
    return a.extent.value


def indices(loop: Sequence[Axis], transforms: Sequence[Transform], root: Sequence[Axis]) -> tuple[dict[Axis, Indices], npt.NDArray[np.bool_]]:
    """For each point of the loop axes: the index of every axis they derive from, and whether all of these are within their extents."""
    grid = np.indices([size(a) for a in loop]).reshape(len(loop), -1)
    env = {f"l{k}": row for k, row in enumerate(grid)}
    count = int(np.prod([size(a) for a in loop]))
    values: dict[Axis, Expr] = {a: sym(f"l{k}") for k, a in enumerate(loop)}
    for t in reversed(transforms):
        if all(a in values for a in t.outputs):
            values.update(zip(t.inputs, t.backward(tuple(values[a] for a in t.outputs)), strict=True))
    assert all(a in values for a in root)
    found = {a: np.broadcast_to(np.asarray(evaluate(e, env), np.int64), (count,)) for a, e in values.items()}
    inside = np.ones(count, bool)
    for a, index in found.items():
        inside &= (index >= 0) & (index < size(a))
    return found, inside


def visits(tv: TensorView) -> npt.NDArray[np.int64]:
    """How often the loop nest of ``tv`` computes each point of its root domain."""
    found, inside = indices(tv.schedule.loop, tv.schedule.transforms, tv.root)
    counts = np.zeros([size(a) for a in tv.root], np.int64)
    np.add.at(counts, tuple(found[a][inside] for a in tv.root), 1)
    return counts


def places(tv: TensorView) -> tuple[Indices, ...]:
    """The index of each allocation axis for each logical point."""
    assert tv.schedule.allocation is not None
    grid = np.indices([size(a) for a in tv.logical])
    values: dict[Axis, Expr] = {a: sym(f"e{k}") for k, a in enumerate(tv.logical)}
    for t in tv.schedule.transforms:
        if all(a in values for a in t.inputs):
            values.update({a: e for a, e in zip(t.outputs, _forward(t, values), strict=True) if a not in values})
    env = {f"e{k}": index for k, index in enumerate(grid)}
    return tuple(np.broadcast_to(np.asarray(evaluate(values[a], env), np.int64), grid.shape[1:]) for a in tv.schedule.allocation)


def _forward(t: Any, values: dict[Axis, Expr]) -> tuple[Expr, ...]:
    return t.forward(tuple(values[a] for a in t.inputs))


def pair(*shape: int | str) -> tuple[TensorView, TensorView, TensorView]:
    """x -> a = sin(x) -> b = cos(a), an output."""
    with Fusion("f") as fusion:
        x = tf.define_tensor(list(shape), dtype=float32)
        a = tf.sin(x)
        b = tf.cos(a)
        fusion.add_output(b)
    return x, a, b


def extents(tv: TensorView) -> list[str]:
    return [str(a.extent) for a in tv.loop]


def kinds(tv: TensorView) -> str:
    return "".join(a.kind.value for a in tv.loop)


def refused(call: Callable[[], object], fusion: Fusion) -> str:
    """The text of the error that ``call`` raises, without the source location; nothing in ``fusion`` may have changed."""
    before = _state(fusion)
    with pytest.raises(TaskfuseError) as caught:
        call()
    assert _state(fusion) == before
    assert caught.value.location is not None
    assert caught.value.location.file.endswith(".py")
    return "\n".join(line for line in str(caught.value).splitlines() if not line.startswith(("  -->", "   |")))


def _state(fusion: Fusion) -> list[object]:
    return [(tv, tv.root, tv.logical, tv.schedule.copied(), fusion.definition(tv), tv.uses, tv.task) for tv in fusion.tensors()]
