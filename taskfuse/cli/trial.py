"""Simulations on random inputs: one, compared with the fusion's reference; one as a timeline; all interleavings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.cli.load import Loaded
from taskfuse.dtypes import DType, DTypeKind
from taskfuse.ir.dims import Dim
from taskfuse.ir.scalar import evaluate
from taskfuse.kir import Kernel
from taskfuse.kir.arguments import check_extents
from taskfuse.kir.declarations import IntegerParam, ScalarParam, TensorMapParam, TensorParam
from taskfuse.sim import Exploration, Interleaving, Timeline

Array = NDArray[Any]
USUAL = 7  # default value of an extent: small, and not a power of two


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """How far an output is from the reference.

    Attributes:
        absolute: largest difference of an element.
        relative: largest difference in relation to the reference's element.
        wrong: elements where one of the two is NaN or infinite and the other is not the same.
    """

    absolute: float
    relative: float
    wrong: int

    def __str__(self) -> str:
        text = f"largest difference from NumPy {self.absolute:.3g} (relative {self.relative:.3g})"
        return text + (f"; {self.wrong} elements are NaN or infinite in one of the two" if self.wrong else "")


def complete(extents: tuple[Dim, ...], given: Mapping[str, int]) -> dict[str, int]:
    """A value for every extent: the given one, or a default that the extent's facts allow."""
    found = dict(given)
    for e in sorted(extents, key=lambda e: e.bound is not None):
        found.setdefault(e.name, e.near(USUAL, found))
    return {e.name: found[e.name] for e in extents}


def random_arguments(kernel: Kernel, sizes: Mapping[str, int], seed: int) -> list[Array | int]:
    """Arguments of ``kernel``: normal floats, small integers, either truth value; its integers are those of ``sizes``."""
    rng = np.random.default_rng(seed)
    found: list[Array | int] = []
    for param in kernel.params:
        match param:
            case TensorParam(is_output=False):
                found.append(_random(rng, param.dtype, tuple(int(evaluate(e, sizes)) for e in param.shape)))
            case ScalarParam():
                found.append(_random(rng, param.dtype, ()))
            case IntegerParam():
                found.append(sizes[param.name])
            case TensorParam() | TensorMapParam():
                pass
    return found


def _random(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    match dtype.kind:
        case DTypeKind.FLOAT:
            values: Array = rng.standard_normal(shape)
        case DTypeKind.INT:
            values = rng.integers(-8, 9, shape)
        case DTypeKind.UINT:
            values = rng.integers(0, 9, shape)
        case DTypeKind.BOOL:
            values = rng.integers(0, 2, shape)
    return np.asarray(values).astype(dtype.numpy)


def difference(found: Array, wanted: Array) -> OutputDifference:
    """How far ``found`` is from ``wanted``, an array of the same shape; both are compared in float64."""
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    apart, size = np.abs(a[finite] - b[finite]), np.abs(b[finite])
    relative = np.divide(apart, size, where=size > 0, out=np.where(apart > 0, np.inf, 0.0))
    return OutputDifference(float(apart.max(initial=0)), float(relative.max(initial=0)), int((~finite & ~same).sum()))


def _launch(loaded: Loaded, given: Mapping[str, int], seed: int) -> tuple[Kernel, dict[str, int], list[Array | int]]:
    """The kernel of a program, its extents, and random arguments."""
    kernel = loaded.kernel()
    check_extents(kernel, given)
    sizes = complete(kernel.extents, given)
    return kernel, sizes, random_arguments(kernel, sizes, seed)


def exploration(loaded: Loaded, given: Mapping[str, int], seed: int) -> Exploration:
    """Every interleaving of a program on random inputs. Arguments and errors as for :func:`trial`."""
    kernel, sizes, arguments = _launch(loaded, given, seed)
    return kernel.explore(*arguments, extents=sizes)


def recorded(loaded: Loaded, given: Mapping[str, int], seed: int, interleaving: Interleaving | None) -> Timeline:
    """The timeline of a simulation of a program on random inputs. Arguments and errors as for :func:`trial`."""
    kernel, sizes, arguments = _launch(loaded, given, seed)
    return kernel.timeline(*arguments, seed=seed, interleaving=interleaving, extents=sizes)


def trial(loaded: Loaded, given: Mapping[str, int], seed: int, interleaving: Interleaving | None) -> str:
    """Simulate a program on random inputs; returns the inputs, and the difference of each output from the reference.

    Args:
        given: values of extents; the others get defaults.
        seed: determines the inputs and the interleaving.

    Raises:
        LaunchError: a value that the kernel does not allow, or a name that is not one of its extents.
        SimulationError: an error of the simulated kernel.
    """
    kernel, sizes, arguments = _launch(loaded, given, seed)
    outputs = kernel.simulate(*arguments, seed=seed, interleaving=interleaving, extents=sizes)
    lines = [f"{kernel.name}: {', '.join(f'{name}={value}' for name, value in sizes.items()) or 'no extents'}, seed {seed}"]
    references = None if loaded.fusion is None else loaded.fusion.evaluate(*arguments)
    for k, (param, out) in enumerate(zip(kernel.outputs, outputs, strict=True)):
        compared = "no fusion to compare with" if references is None else str(difference(out, references[k]))
        lines.append(f"  {param.name}: {param.dtype}{list(out.shape)}  {compared}")
    return "\n".join(lines)
