"""Points that are visited once: low digits need no table, and what leaves one out or takes one twice is told in the points as they are."""

import pytest

from taskfuse.check.statement_tree import Node, StatementTree
from taskfuse.check.values.cover import covered
from taskfuse.check.values.digits import without_digits
from taskfuse.check.values.runs import Visits
from taskfuse.check.values.solve import Open
from taskfuse.ir.scalar import Expr, const, parse_expr
from taskfuse.kir import parse_kernel

TEXT = "KERNEL k(x: float32[4]) -> (y: float32[4])\n  GRID (1, 1, 1)  BLOCK (4, 1, 1)\n\ny[threadIdx.x] = neg(x[threadIdx.x])\n"
PROGRAM = StatementTree.of(parse_kernel(TEXT))
(NODE,) = PROGRAM.leaves()
EXTENTS: tuple[Expr, ...] = (const(256), const(128))


def visits(point: tuple[str, str], conditions: tuple[str, ...] = (), **spans: int) -> Visits:
    assert isinstance(NODE, Node)
    e, c = (tuple(map(parse_expr, texts)) for texts in (point, conditions))
    return Visits(NODE, e, {name: (const(0), const(n)) for name, n in spans.items()}, c, NODE.context.ranges)


RIGHT = visits(("64*a + s", "32*(b//2) + 16*(b % 2) + t"), a=4, b=8, s=64, t=16)


def test_digits_go_where_all_else_is_a_multiple() -> None:
    (left,), extents = without_digits([RIGHT], EXTENTS)
    assert (list(left.spans), [str(e) for e in left.point], [str(e) for e in extents]) == (["b"], ["0", "2*(b//2) + b % 2"], ["1", "8"])
    assert not covered([RIGHT], EXTENTS, PROGRAM.root.context.constraints)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (visits(("64*a + s", "16*b + t"), a=4, b=8, s=63, t=16), "point [63, 0] is not visited"),
        (visits(("64*a + s", "16*b + t"), a=4, b=8, s=65, t=16), "visited 2 times"),
        (visits(("64*a + s", "16*b + s"), a=4, b=8, s=64), "point [0, 1] is not visited"),
        (visits(("64*a + s", "16*b + t"), ("s < 60",), a=4, b=8, s=64, t=16), "point [60, 0] is not visited"),
        (visits(("32*a + s", "16*b + t"), a=4, b=8, s=64, t=16), "visited 2 times"),
        (visits(("64*a + s", "16*(b//2) + t"), a=4, b=8, s=64, t=16), "visited 2 times"),
    ],
    ids=["short", "long", "on two axes", "under a condition", "other multiples", "its multiple twice"],
)
def test_other_digits_stay(wrong: Visits, reason: str) -> None:
    with pytest.raises(Open) as caught:
        covered([wrong], EXTENTS, PROGRAM.root.context.constraints)
    assert reason in caught.value.reason


def test_copies_have_the_same_digits() -> None:
    one, two = (visits((f"128*a + s + {k}", "t"), a=2, s=64, t=128) for k in (0, 64))
    assert not covered([one, two], EXTENTS, PROGRAM.root.context.constraints)
    short = visits(("128*a + s + 64", "t"), a=2, s=32, t=128)
    with pytest.raises(Open, match=r"point \[96, 0\] is not visited"):
        covered([one, short], EXTENTS, PROGRAM.root.context.constraints)
