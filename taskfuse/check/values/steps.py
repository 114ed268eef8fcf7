"""Steps of a reduction: what a statement combines with what was there. Functions that reductions combine with are commutative, so it stands on either side."""

from __future__ import annotations

from taskfuse.ir.elementwise import Combine
from taskfuse.kir.nodes import Compute, Stmt
from taskfuse.kir.operands import Operand


def taken(stmt: Stmt, combine: Combine) -> Operand | None:
    """The operand that a statement combines with its own result; ``None`` if it is no such step."""
    match stmt:
        case Compute(op=op, out=out, operands=(a, b)) if op is combine.op:
            return b if a == out else a if b == out else None
        case _:
            return None
