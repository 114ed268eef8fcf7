"""Machines of small kernels, before or after some steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from taskfuse.ir.values import NATIVE
from taskfuse.kir import Kernel
from taskfuse.sim.block import Block
from taskfuse.sim.happens_before import HappensBefore
from taskfuse.sim.interleaving import InStep
from taskfuse.sim.launch import prepare
from taskfuse.sim.machine import Machine
from taskfuse.sim.stepper import Stepper


class Launched:
    """A launch whose steps are taken one by one, the first choice always; ``in_step``: threads that start together."""

    def __init__(self, kernel: Kernel, args: Sequence[Any] = (), in_step: int = 32) -> None:
        launch = prepare(kernel, list(args), NATIVE, None)
        self.order = HappensBefore({})
        self.machine: Machine = launch.machine(InStep(max(1, in_step // launch.code.unit)), 10_000, self.order)
        self.blocks: list[Block] = []
        self.stepper = Stepper(self.machine, self._watched(launch.blocks(self.machine)))

    def _watched(self, blocks: Any) -> Any:
        for pair in blocks:
            self.blocks.append(pair[0])
            yield pair

    def take(self, *choices: int) -> Launched:
        """Steps by the numbers of their choices."""
        for choice in choices:
            option = self.stepper.options()[choice]
            self.order.begin(option)
            self.stepper.take(option)
            self.order.end(option)
        return self
