"""Products by constants of products by constants, with ``fast_math``: ``(x * a) / b`` is ``x * (a / b)``, as where a function caps scores that are scaled.

NVRTC multiplies as it is told. The product of constants is rounded once, in place of one of the products. It stays a normal float32: others might be 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from taskfuse.cuda.compared import without_unread
from taskfuse.dtypes import float32
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.medium import MEDIA
from taskfuse.kir import Kernel, accesses, bodies, walk, with_bodies
from taskfuse.kir.nodes import Compute, Stmt
from taskfuse.kir.operands import Access, Immediate
from taskfuse.kir.walk import Body

MUL, DIV = ELEMENTWISE["mul"], ELEMENTWISE["div"]
LEAST, MOST = 2.0**-126, 2.0**126


def with_joined_factors(kernel: Kernel) -> Kernel:
    """A kernel in which no number in a register is a product by a constant of such a product that the same list of statements computes, where nothing else
    reads that."""
    private = {b.name for b in kernel.buffers if b.dtype is float32 and MEDIA[b.memory].is_private}
    scalars = {b.name for b in kernel.buffers if b.name in private and not b.shape}
    joined: set[str] = set()

    def visit(body: Body) -> Body:
        known: dict[Access, tuple[Access, float]] = {}
        found: list[Stmt] = []
        for s in body:
            multiple = _multiple(s)
            made = with_bodies(s, tuple(map(visit, bodies(s))))
            if multiple is not None and multiple[0] in known:
                x, factor = known[multiple[0]]
                if LEAST <= abs(factor * multiple[1]) <= MOST:
                    joined.add(multiple[0].buffer)
                    multiple = x, factor * multiple[1]
                    made = replace(made, op=MUL, operands=(x, Immediate(multiple[1], float32)))
            found.append(made)
            written = set(_written(s))
            known = {u: (x, k) for u, (x, k) in known.items() if u.buffer not in written and x.buffer not in written}
            if multiple is not None and isinstance(s, Compute) and s.out.buffer in scalars and multiple[0].buffer in private - written:
                known[s.out] = multiple
        return tuple(found) if any(a is not b for a, b in zip(found, body, strict=True)) else body

    body = visit(kernel.body)
    return kernel if body is kernel.body else without_unread(replace(kernel, body=body), joined)


def _written(s: Stmt) -> Iterator[str]:
    return (a.buffer for t in walk(s) for a in accesses(t)[0])


def _multiple(s: Stmt) -> tuple[Access, float] | None:
    """The element that a statement multiplies, or divides, by a constant in float32, and the factor."""
    match s:
        case Compute(op=op, operands=(Access() as x, Immediate(value=value)), dtype=dtype) if op in (MUL, DIV) and dtype is float32 and value:
            return x, float(value) if op is MUL else 1 / float(value)
        case Compute(op=op, operands=(Immediate(value=value), Access() as x), dtype=dtype) if op is MUL and dtype is float32 and value:
            return x, float(value)
        case _:
            return None
