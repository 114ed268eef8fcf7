"""The body of a term of a reduction: what a statement that takes it is made of."""

from __future__ import annotations

from taskfuse.check.statement_tree import Node
from taskfuse.check.values.claims import Place, taken
from taskfuse.check.values.solve import Open
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.kir.nodes import Compute
from taskfuse.kir.operands import Access, Content, Holds, Operand
from taskfuse.kir.products import Mma, Wgmma
from taskfuse.kir.witness import Reduce

COPY, FMA, MUL = ELEMENTWISE["copy"], ELEMENTWISE["fma"], ELEMENTWISE["mul"]


def body_of(node: Node, holds: Holds, rule: Reduce) -> tuple[Operand, ...] | Place | Wgmma | Mma:
    """What a term is made of: operands, as a statement has them; the place that holds its body; or the factors of a product of matrices.

    Raises :class:`Open`.
    """
    match stmt := node.stmt:
        case Wgmma() | Mma() if rule.combine.op is ELEMENTWISE["add"] and rule.body is MUL:
            return stmt
        case Compute() if stmt.dtype is not rule.dtype:
            raise Open(f"it computes in {stmt.dtype}, not in {rule.dtype}", node)
        case Compute(op=op, operands=operands) if holds.content is Content.BODY and op is rule.body:
            return operands
        case _ if holds.content is Content.BODY:
            raise Open("it is not the body of its reduction", node)
        case Compute(op=op, out=out, operands=(*factors, acc)) if op is FMA and rule.body is MUL and rule.combine.op is ELEMENTWISE["add"] and acc == out:
            return tuple(factors)
        case _:
            match taken(stmt, rule.combine):
                case Access() as term if rule.body is not COPY:
                    return Place(node, term.buffer, term.index, holds.tensor, holds.index, content=Content.BODY)
                case term if term is not None and rule.body is COPY:
                    return (term,)
                case _:
                    raise Open("it takes no term of its reduction", node)
