"""What statements say that they write, element by element, and what they must read for that."""

import pytest

from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.values.claims import Instructions, flattened, taken
from taskfuse.check.values.solve import Open
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.scalar import const, evaluate, parse_expr, sym
from taskfuse.kir import parse_kernel, walk
from taskfuse.kir.nodes import Compute
from taskfuse.kir.products import LdMatrix, Mma
from tests.check.values.transposed import TRANSPOSED


def test_rows_of_a_matrix_are_where_lanes_address_them_and_registers_where_the_table_says() -> None:
    tree = StatementTree.of(parse_kernel(TRANSPOSED))
    instructions = Instructions(tree.kernel)
    nodes = [n for n in tree.leaves() if isinstance(n.stmt, LdMatrix) and n.stmt.transpose]
    assert nodes
    for node in nodes:
        assert isinstance(node.stmt, LdMatrix)
        assert node.stmt.holds is not None
        read = instructions.matrix_rows(node, node.stmt, "b_s", node.stmt.holds.index)
        assert dict(read.points) == {"tile.0": 16, "tile.1": 8}
        wrote = instructions.written(node, node.stmt.holds)
        lane = {"threadIdx.x": 5, "threadIdx.y": 0, "t": 1, "'fragment.register": 3}
        at = [int(evaluate(e, lane)) for e in wrote.element]
        assert at == [16 + 8 + 2 * (5 % 4) + 1, 5 // 4]  # register 3: the lower matrix, the second of two rows


def test_factors_of_a_product() -> None:
    tree = StatementTree.of(parse_kernel(TRANSPOSED))
    instructions = Instructions(tree.kernel)
    node = next(n for n in tree.leaves() if isinstance(n.stmt, Mma))
    assert isinstance(node.stmt, Mma)
    b = instructions.fragment(node, node.stmt, 1, "b_r", (sym("tile.2"), sym("tile.1")))
    assert b.buffer == "b_r"
    with pytest.raises(Open, match="factor B depends on the other one's axis"):
        instructions.fragment(node, node.stmt, 1, "b_r", (sym("tile.2"), sym("tile.0")))


def test_the_operand_that_a_step_takes() -> None:
    text = "KERNEL k(x: float32[4]) -> (y: float32[4])\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n  LOCAL a: float32[]\n\n"
    steps = "a = add(a, x[0])\na = add(x[1], a)\na = mul(a, x[2])\na = add(x[2], x[3])\n"
    found = [taken(s, COMBINES["add"]) for s in walk(parse_kernel(text + steps)) if isinstance(s, Compute)]
    assert [None if f is None else str(getattr(f, "index", f)) for f in found] == ["(0,)", "(1,)", None, None]


def test_places() -> None:
    shape = (sym("N"), const(4), const(8))
    assert flattened(shape, (sym("i"), sym("j"), sym("k")), 1) is parse_expr("8*j + k")
    assert flattened(shape, (sym("i"), sym("j"), sym("k")), 2) is parse_expr("k")
