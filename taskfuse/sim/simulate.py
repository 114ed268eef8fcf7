"""``simulate``: a kernel on NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from taskfuse.ir.signatures import at_least, checked_first
from taskfuse.ir.values import NATIVE, Values
from taskfuse.kir.kernel import Kernel
from taskfuse.sim.interleaving import InStep, Interleaving, by_seed, policy
from taskfuse.sim.launch import Argument, Array, SimulatedLaunch, prepare
from taskfuse.sim.observer import Observer
from taskfuse.sim.stepper import Stepper
from taskfuse.target import WARP

RESIDENT_BLOCKS = 16  # at a time, where blocks do not wait for each other


@partial(checked_first, but=("args",))
def simulate(
    kernel: Kernel,
    args: Sequence[Argument],
    *,
    seed: int = 0,
    interleaving: Interleaving | None = None,
    choices: Sequence[int] | None = None,
    in_step: int = WARP,
    values: Values = NATIVE,
    max_steps: int = 10_000_000,
    extents: Mapping[str, int] | None = None,
    resident: int | None = None,
) -> tuple[Array, ...]:
    """Run a kernel.

    Args:
        kernel: the kernel.
        args: its inputs (arrays of any strides, which are not written), run-time scalars and integers, in the order of the parameters.
        seed: determines the interleaving; seed k without ``interleaving`` uses interleaving k modulo their number.
        interleaving: the order of threads and engines; see :class:`Interleaving`.
        choices: every choice of the run, as printed by an :class:`~taskfuse.sim.Exploration`; ``seed`` and ``interleaving`` are then ignored.
        in_step: with ``choices``: threads that start together.
        values: NATIVE numbers, or MODULAR words instead of floats.
        max_steps: the most statements of all agents together.
        extents: values of the extents that no input's shape determines.
        resident: blocks that run at a time; ``None``: 16, or all if blocks wait for each other.

    Returns:
        The outputs, in the order of the parameters.

    Raises:
        CallError: an option of another type, or below its least value.
        InputError: arguments that do not fit the kernel's parameters.
        SimulationError: undefined behavior on a GPU; :class:`DeadlockError` if no thread can continue.
    """
    at_least("simulate", 1, in_step=in_step, max_steps=max_steps, resident=1 if resident is None else resident)
    launch = prepare(kernel, args, values, extents)
    run(launch, seed, interleaving, choices, in_step, max_steps, resident=resident)
    return launch.results()


def run(
    launch: SimulatedLaunch,
    seed: int,
    interleaving: Interleaving | None,
    choices: Sequence[int] | None,
    in_step: int,
    max_steps: int,
    observer: Observer | None = None,
    resident: int | None = None,
) -> None:
    """Run a launch in the order given by the arguments of :func:`simulate`. Raises :class:`SimulationError`."""
    if choices is not None:
        machine = launch.machine(InStep(max(1, in_step // launch.code.unit)), max_steps, observer)
        Stepper(machine, launch.blocks(machine)).replay(choices)
        return
    seed = int(seed)
    machine = launch.machine(policy(by_seed(seed) if interleaving is None else interleaving, seed), max_steps, observer)
    enough = launch.number_of_blocks if launch.kernel.is_cooperative else max(RESIDENT_BLOCKS, launch.blocks_of_a_cluster)
    machine.run(launch.blocks(machine), enough if resident is None else resident)
