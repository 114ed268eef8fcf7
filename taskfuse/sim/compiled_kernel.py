"""A compiled kernel: a list of instructions and their properties."""

from __future__ import annotations

from collections.abc import Callable

from taskfuse.ir.values import Values
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.nodes import AsyncCopy, Stmt, TmaLoad, TmaStore
from taskfuse.kir.operands import Access
from taskfuse.kir.products import LdMatrix, Mma, StMatrix, Wgmma
from taskfuse.kir.walk import walk
from taskfuse.sim.agent import Agent, Instruction
from taskfuse.sim.names import Names
from taskfuse.target import WARP


class SimulatedKernel(Names):
    """A compiled kernel.

    Attributes:
        code: instructions; sources, labels: the statement and the innermost branch label of each.
        points: true for instructions that others may observe, or that depend on others: interleavings differ only in the order of these.
        guards: by instruction, false where it would block.
        unit: threads that must be together for collective instructions: a warp, or 1 without such instructions.
        uses_engines: asynchronous engines read or write Shared memory.
        accumulators, factors: numbers of the Local buffers that wgmmas write, and of those that they only read.
    """

    def __init__(self, kernel: Kernel, values: Values) -> None:
        super().__init__(kernel, values)
        self.code: list[Instruction] = []
        self.sources: list[Stmt | None] = []
        self.labels: list[str | None] = []
        self.points: list[bool] = []
        self.guards: dict[int, Callable[[Agent], bool]] = {}
        statements = tuple(walk(kernel))
        self.unit = WARP if any(isinstance(s, Wgmma | Mma | LdMatrix | StMatrix) for s in statements) else 1
        self.uses_engines = any(_has(statements, kind) for kind in (AsyncCopy, TmaLoad, TmaStore, Wgmma))
        multiplies = [s for s in statements if isinstance(s, Wgmma)]
        self.accumulators = frozenset(self.numbers[s.acc.buffer] for s in multiplies)
        self.factors = frozenset(self.numbers[s.a.buffer] for s in multiplies if isinstance(s.a, Access))

    def emit(self, instruction: Instruction, stmt: Stmt | None, label: str | None, point: bool, guard: Callable[[Agent], bool] | None) -> int:
        """Add an instruction; returns its place."""
        if guard is not None:
            self.guards[len(self.code)] = guard
        self.code.append(instruction)
        self.points.append(point)
        self.sources.append(stmt)
        self.labels.append(label)
        return len(self.code) - 1


def _has(statements: tuple[Stmt, ...], kind: type) -> bool:
    return any(isinstance(s, kind) for s in statements)
