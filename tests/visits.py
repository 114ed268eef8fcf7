"""What statements visit, written down for questions about it: symbols, their spans, points, conditions; and what they visit at given extents."""

from collections import Counter
from collections.abc import Sequence
from itertools import product

from taskfuse.check.statement_tree import Node, StatementTree
from taskfuse.check.values.runs import Span, Visits
from taskfuse.ir.scalar import Expr, const, evaluate, parse_expr
from taskfuse.kir import parse_kernel

TEXT = """\
KERNEL k(x: float32[4]) -> (y: float32[4])
  DIM N min 1, M min 1
  GRID (1, 1, 1)  BLOCK (4, 1, 1)

y[threadIdx.x] = neg(x[threadIdx.x])
"""
PROGRAM = StatementTree.of(parse_kernel(TEXT))
KNOWN = PROGRAM.root.context.constraints


def expressions(texts: Sequence[str]) -> tuple[Expr, ...]:
    return tuple(map(parse_expr, texts))


def visits(point: Sequence[str], conditions: Sequence[str] = (), /, **spans: int | str | tuple[int | str, int | str]) -> Visits:
    """The visits of a statement; a span is where it stops, or where it starts and stops."""
    node = PROGRAM.leaves()[0]
    assert isinstance(node, Node)

    def bound(e: int | str) -> Expr:
        return const(e) if isinstance(e, int) else parse_expr(e)

    ends: dict[str, Span] = {name: (bound(s[0]), bound(s[1])) if isinstance(s, tuple) else (const(0), bound(s)) for name, s in spans.items()}
    return Visits(node, expressions(point), ends, expressions(conditions), node.context.ranges)


def visited(statements: Sequence[Visits], env: dict[str, int]) -> Counter[tuple[int, ...]]:
    """How often each point is visited where symbols that do not run have given values: iteration by iteration, a span after those that it names."""
    found: Counter[tuple[int, ...]] = Counter()

    def go(v: Visits, left: list[str], here: dict[str, int]) -> None:
        if not left:
            if all(evaluate(c, here) for c in v.conditions):
                found[tuple(int(evaluate(e, here)) for e in v.point)] += 1
            return
        name = next(n for n in left if all(e is None or e.free.isdisjoint(left) for e in v.spans[n]))
        start, stop = v.spans[name]
        assert stop is not None
        for value in range(int(evaluate(start, here)), int(evaluate(stop, here))):
            go(v, [n for n in left if n != name], {**here, name: value})

    for v in statements:
        go(v, list(v.spans), env)
    return found


def box(extents: Sequence[Expr], env: dict[str, int]) -> list[tuple[int, ...]]:
    """All points of a box."""
    return list(product(*(range(int(evaluate(e, env))) for e in extents)))
