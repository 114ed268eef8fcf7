"""Conversions to ``float8_e4m3`` of what is clamped to its range: the instruction that converts clamps, so neither the clamp nor a comparison for NaN is left.

``cast(minimum(x, 448))`` of an x that is not negative, such as an exponential, and ``cast(maximum(minimum(x, 448), -448))``, as torch quantizes, are
``cvt.rn.satfinite`` of x (PTX ISA, "cvt"): NaN stays NaN. Without the clamp what is greater would become NaN, for which each element is compared.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import takewhile
from typing import Final

from taskfuse.dtypes import float8_e4m3, float32
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule
from taskfuse.ir.medium import MEDIA
from taskfuse.kir import Kernel, accesses, bodies, map_stmts, walk, with_bodies
from taskfuse.kir.nodes import Compute, Stmt
from taskfuse.kir.operands import Access, Immediate
from taskfuse.kir.walk import Body

MOST: Final = float(float8_e4m3.max_value)
SATURATED: Final = replace(ELEMENTWISE["cast"], name="saturated_cast")
"""A conversion of float32 to ``float8_e4m3`` by which what is too great becomes the greatest number. Printing alone knows it."""
_LIMITS: Final = {ELEMENTWISE["minimum"]: MOST, ELEMENTWISE["maximum"]: -MOST}
_NOT_NEGATIVE: Final = frozenset(ELEMENTWISE[name] for name in ("exp", "exp2", "abs"))


def with_saturating_conversions(kernel: Kernel) -> Kernel:
    """A kernel of the same meaning with these conversions, and without the clamps that nothing else reads."""
    if not any(isinstance(s, Compute) and _limit(s) is not None for s in walk(kernel)):
        return kernel
    registers = {b.name for b in kernel.buffers if b.dtype is float32 and MEDIA[b.memory].is_private}
    narrow = {b.name for b in kernel.buffers if b.dtype is float8_e4m3} | {p.name for p in kernel.outputs if p.dtype is float8_e4m3}
    writers = [(access.buffer, s) for s in walk(kernel) for access in accesses(s)[0]]
    signed = {name for name, s in writers if not (isinstance(s, Compute) and s.op in _NOT_NEGATIVE)}
    clamped: set[str] = set()

    def rewritten(body: Body) -> Body:
        made: list[Stmt] = []
        for stmt in body:
            inner = bodies(stmt)
            stmt = with_bodies(stmt, tuple(map(rewritten, inner))) if inner else stmt
            clamps = _before(stmt, made) if isinstance(stmt, Compute) and stmt.out.buffer in narrow else []
            source = clamps[-1].operands[0] if clamps else None
            if isinstance(stmt, Compute) and isinstance(source, Access) and registers.issuperset(c.out.buffer for c in clamps):
                limits = {_limit(c) for c in clamps}
                if MOST in limits and (-MOST in limits or source.buffer in registers - signed):
                    clamped.update(c.out.buffer for c in clamps)
                    stmt = replace(stmt, op=SATURATED, operands=(source,))
            made.append(stmt)
        return body if all(a is b for a, b in zip(body, made, strict=True)) else tuple(made)

    found = rewritten(kernel.body)
    while unread := clamped - {access.buffer for s in walk(found) for access in accesses(s)[1]}:
        found = _without(found, unread)
        clamped -= unread
    return kernel if found is kernel.body else replace(kernel, body=found)


def _without(body: Body, buffers: AbstractSet[str]) -> Body:
    """A body without the computations of some buffers."""
    return map_stmts(body, lambda s: () if isinstance(s, Compute) and s.out.buffer in buffers else s)


def _limit(stmt: Compute) -> float | None:
    """The number by which a statement clamps float32; ``None``: it does something else."""
    match stmt:
        case Compute(op=op, operands=(Access(), Immediate(value=value)), dtype=dtype) if dtype is float32 and _LIMITS.get(op) == value:
            return _LIMITS[op]
        case _:
            return None


def _before(stmt: Compute, made: list[Stmt]) -> list[Compute]:
    """The clamps of what a statement converts, the last one first: those that stand right in front of it."""
    if stmt.op.rule is not DTypeRule.CAST or stmt.dtype is not float32:
        return []
    wanted = stmt.operands[0]
    found: list[Compute] = []
    for other in takewhile(lambda s: isinstance(s, Compute) and _limit(s) is not None, reversed(made)):
        if not isinstance(other, Compute) or other.out != wanted:
            break
        found.append(other)
        wanted = other.operands[0]
    return found
