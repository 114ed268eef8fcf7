"""What the writes of a kernel say they hold: elements of a part are elements of its whole."""

import pytest

from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.values.claims import Instructions
from taskfuse.check.values.solve import Open
from taskfuse.check.values.writes import Writes
from taskfuse.kir import parse_kernel
from taskfuse.kir.nodes import Compute
from taskfuse.kir.operands import Content

TEXT = """\
KERNEL k(x: float32[N]) -> (y: float32[2*N])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  DEFINE a: float32[N] = exp(x[i0])
  DEFINE b: float32[N] = sin(x[i0])
  DEFINE y: float32[2*N] = whole a at (i0), b at (i0 + N)

FOR k in 0..ceildiv(N, 32):
  IF {condition}:
    y[32*k + threadIdx.x] = exp(x[32*k + threadIdx.x])  ~ value a[32*k + threadIdx.x]
"""


def writes(text: str) -> tuple[Writes, StatementTree]:
    kernel = parse_kernel(text)
    tree = StatementTree.of(kernel)
    return Writes(tree, Instructions(kernel)), tree


def test_elements_of_a_part_are_those_of_its_whole() -> None:
    found, tree = writes(TEXT.format(condition="32*k + threadIdx.x < N"))
    (node,) = tree.leaves()
    assert isinstance(node.stmt, Compute)
    assert node.stmt.holds is not None
    place = found.claim(node, node.stmt.holds)
    assert (place.tensor, [str(e) for e in place.element]) == ("y", ["32*k + threadIdx.x"])
    assert found.claims == {"y": [place]}
    assert [str(e) for e in found.shape("x")] == ["N"]
    assert [str(e) for e in found.shape("y", Content.BODY)] == ["2*N"]
    assert set(found.inputs) == {"x"}


def test_behind_the_end_of_a_part_there_is_another_one() -> None:
    found, tree = writes(TEXT.format(condition="32*k + threadIdx.x < 2*N"))
    (node,) = tree.leaves()
    assert isinstance(node.stmt, Compute)
    assert node.stmt.holds is not None
    with pytest.raises(Open, match="it may be past the end of a, where y has elements of another part"):
        found.claim(node, node.stmt.holds)
