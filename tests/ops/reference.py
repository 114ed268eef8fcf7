"""Build a fusion of one result and evaluate it."""

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

import taskfuse.ops as tf
from taskfuse.dtypes import as_dtype
from taskfuse.ir.dims import Dim
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.values import NATIVE, Values
from tests.calls import Math
from tests.errors import text_of

Array = npt.NDArray[Any]


def symbolic(array: Array, name: str) -> tuple[int | Dim, ...]:
    """A symbol per dimension, but for dimensions of extent 1."""
    return tuple(1 if n == 1 else tf.dim(f"{name}{d}", min=0) for d, n in enumerate(array.shape))


Shapes = Sequence[Sequence[int | str | Dim]] | None


@overload
def evaluated(build: Callable[[TensorView], TensorView], x: Array, /, *, shapes: Shapes = None, values: Values = NATIVE) -> Array: ...
@overload
def evaluated(build: Callable[[TensorView, TensorView], TensorView], x: Array, y: Array, /, *, shapes: Shapes = None, values: Values = NATIVE) -> Array: ...
@overload
def evaluated(build: Math, *arrays: Array, shapes: Shapes = None, values: Values = NATIVE) -> Array: ...
def evaluated(build: Math, *arrays: Array, shapes: Shapes = None, values: Values = NATIVE) -> Array:
    """``build`` called on inputs like ``arrays`` (static shapes unless given), evaluated on them."""
    with Fusion("test") as fusion:
        inputs = [tf.define_tensor(s, as_dtype(a.dtype)) for s, a in zip(shapes or [a.shape for a in arrays], arrays, strict=True)]
        result = build(*inputs)
        if result.is_input:
            result = tf.copy(result)
        fusion.add_output(result)
    (out,) = evaluate(fusion, arrays, values)
    assert out.dtype == values.storage(result.dtype)
    return out


def message(build: Callable[[], object]) -> str:
    """The text of the error that ``build`` raises, without the source location."""
    return text_of(build)


def numbers(shape: Sequence[int], dtype: str, seed: int = 0, low: float = -4, high: float = 4) -> Array:
    """Reproducible numbers of a dtype."""
    generator = np.random.default_rng(seed)
    wanted = as_dtype(dtype)
    if wanted.is_float:
        return generator.uniform(low, high, tuple(shape)).astype(wanted.numpy)
    if wanted.is_bool:
        return generator.integers(0, 2, tuple(shape)).astype(np.bool_)
    return generator.integers(max(int(low), 0) if wanted.min_value == 0 else int(low), int(high) + 1, tuple(shape)).astype(wanted.numpy)
