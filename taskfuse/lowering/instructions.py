"""The builders of statements, one per instruction family that an atom may name."""

from __future__ import annotations

from collections.abc import Callable

from taskfuse.ir.atoms import Instruction
from taskfuse.ir.tensor import TensorView
from taskfuse.lowering import bulk, tensor_cores, vectors
from taskfuse.lowering.plan import PStmt
from taskfuse.lowering.statements import Statements

BUILDERS: dict[Instruction, Callable[[Statements, TensorView], list[PStmt]]] = {
    Instruction.VECTOR: vectors.vector_copy,
    Instruction.CP_ASYNC: vectors.async_copy,
    Instruction.TMA_LOAD: bulk.bulk_copy,
    Instruction.TMA_STORE: bulk.bulk_copy,
    Instruction.WGMMA: tensor_cores.wgmma,
    Instruction.MMA: tensor_cores.mma,
    Instruction.LDMATRIX: tensor_cores.ldmatrix,
    Instruction.STMATRIX: tensor_cores.stmatrix,
}
