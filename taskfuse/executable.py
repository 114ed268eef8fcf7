"""Executables: a fusion lowered once, called on arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from taskfuse.errors import UnsupportedError
from taskfuse.ir.fusion import Fusion
from taskfuse.kir import Kernel
from taskfuse.location import caller
from taskfuse.lowering import LoweringOptions, lower
from taskfuse.sim import simulate


@dataclass(frozen=True, slots=True)
class Executable:
    """A compiled fusion.

    Attributes:
        kernel: its kernel.
    """

    kernel: Kernel = field(repr=False)

    def __call__(self, *args: NDArray[Any] | float | int, seed: int = 0) -> tuple[NDArray[Any], ...]:
        """Run it on NumPy arrays (and run-time scalars), in the simulator. Returns the outputs.

        Raises:
            InputError: arguments that do not fit the fusion's inputs.
            SimulationError: the kernel did something that a GPU would not forgive.
        """
        return simulate(self.kernel, args, seed=seed)


def compile(fusion: Fusion, backend: Literal["auto", "sim"] = "auto", options: LoweringOptions | None = None) -> Executable:
    """Lower ``fusion`` and return a function on arrays.

    Args:
        fusion: what to run; it is not changed.
        backend: ``"auto"`` and ``"sim"``: the simulator on NumPy arrays.
        options: how to lower.

    Raises:
        UnsupportedError: a backend that this version lacks.
        LoweringError: see :func:`lower`.
    """
    if backend not in ("auto", "sim"):
        raise UnsupportedError(what=f"backend '{backend}'", reason="this version runs kernels in the simulator", help='use backend="sim"', location=caller())
    return Executable(lower(fusion, options or LoweringOptions()))
