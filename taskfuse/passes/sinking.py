"""Code sinking: what one case of a choice alone reads is computed only where that case holds.

A concatenation reads each of its parts at some of its elements, and a thread computes an element of every part before it chooses one. A function that is not
chosen takes as long as one that is, or longer: the zeros that stand for a part outside its extent make quotients NaN, by the slow paths of functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import ClassVar

from taskfuse.ir.elementwise_function import FUNCTIONS
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import TRUE, Expr
from taskfuse.kir import Kernel, accesses, bodies, walk, with_bodies
from taskfuse.kir.nodes import Branch, Choose, Compute, If, Stmt
from taskfuse.kir.operands import Access
from taskfuse.kir.products import Wgmma

Body = tuple[Stmt, ...]
Conditions = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class SinkIntoCases:
    """Compute what one case of a choice alone reads only where that case holds.

    Requires: a verified kernel. Ensures: the same behavior: statements that write registers of one value, among them a function of many instructions, stand
    under the condition of the case that alone needs them. None changes places. Kernels with products in flight are unchanged: of a branch that reads their
    accumulators, ptxas would wait for each product.
    """

    name: ClassVar[str] = "sink-into-cases"

    def run(self, kernel: Kernel) -> Kernel:
        """The kernel with guarded computations."""
        if any(isinstance(s, Wgmma) for s in walk(kernel)) or not any(map(_is_function, walk(kernel))):
            return kernel
        return replace(kernel, body=_Sinking(kernel).body(kernel.body))


class _Sinking:
    """One run."""

    def __init__(self, kernel: Kernel) -> None:
        single = {b.name for b in kernel.buffers if MEDIA[b.memory].is_private and not b.shape}
        self._reads, writes = Counter[str](), Counter[str]()
        for stmt in walk(kernel):
            written, read = accesses(stmt)
            writes.update(a.buffer for a in written)
            self._reads.update(a.buffer for a in read)
        self._once = {name for name in single if writes[name] == 1}

    def body(self, body: Body) -> Body:
        """Statements under the conditions of choices behind them."""
        conditions: list[Conditions] = [()] * len(body)
        for place in range(len(body) - 1, -1, -1):  # the choices that read others first
            match body[place]:
                case Choose(cases=cases):
                    for case in cases:
                        found = self._alone(body, place, case.operand) if case.cond is not TRUE and isinstance(case.operand, Access) else []
                        if any(_is_function(body[k]) for k in found):
                            for k in found:
                                conditions[k] = (*conditions[k], case.cond)
                case _:
                    pass
        inside = (with_bodies(stmt, tuple(map(self.body, bodies(stmt)))) for stmt in body)
        return _under(zip(conditions, inside, strict=True))

    def _alone(self, body: Body, place: int, operand: Access) -> list[int]:
        """The places of statements before ``place`` whose results only this operand needs."""
        needed, found = Counter({operand.buffer: 1}), list[int]()
        for k in range(place - 1, -1, -1):
            match body[k]:
                case Compute(out=out) | Choose(out=out) if out.buffer in self._once and needed[out.buffer] == self._reads[out.buffer]:
                    found.append(k)
                    needed.update(a.buffer for a in accesses(body[k])[1])
                case _:
                    pass
        return found


def _under(parts: Iterable[tuple[Conditions, Stmt]]) -> Body:
    """Statements under their conditions, neighbors with the same one under one IF."""
    made: list[Stmt] = []
    for first, run in groupby(parts, key=lambda part: part[0][:1]):
        if first:
            body = _under((conditions[1:], stmt) for conditions, stmt in run)
            made.append(If((Branch(first[0], body),), location=body[0].location))
        else:
            made += [stmt for _, stmt in run]
    return tuple(made)


def _is_function(stmt: Stmt) -> bool:
    return isinstance(stmt, Compute) and stmt.op.rule in FUNCTIONS
