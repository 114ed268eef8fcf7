"""The last write before a read: in the same iteration, in an earlier one, in front of the loop."""

import pytest

from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.values.claims import Instructions, Place
from taskfuse.check.values.last_write import LastWrite, Look, around, in_other_arm
from taskfuse.check.values.questions import known_at
from taskfuse.check.values.solve import Open
from taskfuse.check.values.writes import Writes
from taskfuse.ir.scalar import parse_expr
from taskfuse.kir import parse_kernel
from taskfuse.kir.nodes import Compute

TEXT = """\
KERNEL k(x: float32[8]) -> (y: float32[8])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL t: float32[8]
  DEFINE a: float32[8] = exp(x[i0])
  DEFINE y: float32[8] = neg(a[i0])

t[0] = exp(x[0])  ~ value a[0]
FOR k in 0..7:
  y[k] = neg(t[k])  ~ value y[k]
  t[{next}] = exp(x[{next}])  ~ value a[{next}]
"""


def searched(text: str, element: str = "k") -> LastWrite:
    """The search for what the second statement reads."""
    kernel = parse_kernel(text)
    tree = StatementTree.of(kernel)
    writes = Writes(tree, Instructions(kernel))
    for node in tree.leaves():
        if isinstance(node.stmt, Compute) and node.stmt.holds is not None and node.stmt.out.buffer == "t":
            writes.claim(node, node.stmt.holds)
    read = tree.leaves()[1]
    index = (parse_expr("k"),)
    want = Place(read, "t", index, "a", (parse_expr(element),))
    last = LastWrite(writes)
    last.backwards(want, read, known_at(want), past=False)
    return last


def test_the_iteration_before_and_the_front_of_the_loop() -> None:
    hits = searched(TEXT.format(next="k + 1")).hits
    assert [h.node.number for h in sorted({h.node: h for h in hits}.values(), key=lambda h: h.node.number)] == [0, 3]


def test_another_element() -> None:
    with pytest.raises(Open, match="it finds another element of a on axis 0"):
        searched(TEXT.format(next="k + 1"), "k + 1")


def test_no_write_in_every_case() -> None:
    with pytest.raises(Open, match="no write of t is known to come before it in every case"):
        searched(TEXT.format(next="k + 1").replace("t[0] = exp(x[0])  ~ value a[0]", "t[1] = exp(x[1])  ~ value a[1]"))


def test_arms_and_loops_around() -> None:
    text = TEXT.split("t[0]", 1)[0] + "IF threadIdx.x < 8:\n  t[0] = copy(x[0])\nELSE:\n  FOR k in 0..7:\n    t[k] = copy(x[1])\ny[0] = copy(t[0])\n"
    one, two, three = StatementTree.of(parse_kernel(text)).leaves()
    assert in_other_arm(one, two)
    assert not in_other_arm(one, three)
    assert [str(e) for e in around(two).values()] == ["k"]
    assert Look((), around(two)).skip is None
