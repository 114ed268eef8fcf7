"""Products in place by factors that are often exactly 1: sums relative to a running maximum, which are multiplied in each step of a walk.

While the maximum stays, the factor is a choice of 1, and the product of many registers changes nothing. It costs a comparison to leave it out (as
FlashAttention-4, arXiv:2603.05451, does in more cases, where the maximum grew by little).
"""

from __future__ import annotations

from taskfuse.dtypes import float32
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Const, const, substitute
from taskfuse.kir import Kernel, accesses, walk
from taskfuse.kir.nodes import Compute, For, Stmt
from taskfuse.kir.operands import Access, Immediate

LEAST, MOST = 64, 4
"""The least number of products, and the most factors, for which a branch pays."""


class FactorsOfOne:
    """The registers of a kernel that are often 1."""

    def __init__(self, kernel: Kernel) -> None:
        self.private = {b.name for b in kernel.buffers if b.dtype is float32 and MEDIA[b.memory].is_private}
        chosen, others = set[str](), set[str]()
        for s in walk(kernel):
            for out in accesses(s)[0]:
                (chosen if _is_choice_of_one(s) else others).add(out.buffer)
        self.names = (chosen - others) & self.private

    def of(self, loop: For) -> tuple[Access, ...]:
        """The factors by which an unrolled loop multiplies registers in place, if they are few, and often 1; nothing for another loop."""
        match loop.body:
            case (Compute(op=op, operands=(x, Access() as f), dtype=dtype) as s,) if loop.unroll:
                is_product = op is ELEMENTWISE["mul"] and dtype is float32 and x == s.out
            case _:
                return ()
        if not (isinstance(loop.start, Const) and isinstance(loop.stop, Const) and isinstance(loop.step, Const)):
            return ()
        trips = range(loop.start.value, loop.stop.value, loop.step.value)
        if not is_product or len(trips) < LEAST or f.buffer not in self.names or s.out.buffer not in self.private:
            return ()
        found = dict.fromkeys(Access(f.buffer, tuple(substitute(e, {loop.var: const(k)}) for e in f.index)) for k in trips)
        return tuple(found) if len(found) <= MOST else ()


def _is_choice_of_one(s: Stmt) -> bool:
    if not isinstance(s, Compute) or s.op.rule is not DTypeRule.SELECT or s.dtype is not float32:
        return False
    return any(isinstance(o, Immediate) and o.value == 1 for o in s.operands[1:])
