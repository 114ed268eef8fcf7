"""The names of a kernel, as the compiler needs them: numbers and types, and the kernel's expressions, each compiled once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from taskfuse.dtypes import DType
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Expr
from taskfuse.ir.values import Values
from taskfuse.kir.declarations import ScalarParam, TensorMapParam, TensorParam
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.operands import Access, Operand
from taskfuse.sim.agent import Instruction
from taskfuse.sim.lanes import CompiledExpr
from taskfuse.sim.memory import Site


class Names:
    """The names of a kernel.

    Attributes:
        dtypes: of tensor arguments and buffers; ``scalars``: of run-time scalars.
        maps: TMA descriptors.
        numbers: number of each tensor argument and buffer, in order of declaration.
        fixed: symbols that no statement changes.
    """

    def __init__(self, kernel: Kernel, values: Values) -> None:
        self.kernel = kernel
        self.values = values
        tensors = [p for p in kernel.params if isinstance(p, TensorParam)]
        self.dtypes: dict[str, DType] = {d.name: d.dtype for d in (*tensors, *kernel.buffers)}
        self.scalars: dict[str, DType] = {p.name: p.dtype for p in kernel.params if isinstance(p, ScalarParam)}
        self.maps = {p.name: p for p in kernel.params if isinstance(p, TensorMapParam)}
        self.numbers = {name: number for number, name in enumerate(self.dtypes)}
        self.fixed = frozenset((*(e.name for e in kernel.extents), *(p.name for p in kernel.tables)))
        visible = {p.name for p in tensors if p.is_output} | {*kernel.in_place.values()} | {b.name for b in kernel.buffers if not MEDIA[b.memory].is_private}
        self._visible = frozenset(visible)
        self._codes: dict[Expr, CompiledExpr] = {}

    def expr(self, expr: Expr) -> CompiledExpr:
        """The compiled expression."""
        found = self._codes.get(expr)
        if found is None:
            found = self._codes[expr] = CompiledExpr(expr, self.fixed)
        return found

    def site(self, access: Access, width: int = 1) -> Site:
        """The compiled access."""
        return Site(self.numbers[access.buffer], tuple(map(self.expr, access.index)), width)

    def is_point(self, *operands: Operand) -> bool:
        """True if others may observe an access to one of these."""
        return any(isinstance(o, Access) and o.buffer in self._visible for o in operands)


@dataclass(frozen=True, slots=True)
class Meaning:
    """The semantics of a class of statements that become one instruction, for any agent.

    Attributes:
        instruction: makes the instruction of a statement.
        is_point: others may observe it, or it depends on others, even if none of its elements is visible to others.
    """

    instruction: Callable[[Names, Any], Instruction]
    is_point: bool = False


Meanings = Mapping[type[Stmt], Meaning]
