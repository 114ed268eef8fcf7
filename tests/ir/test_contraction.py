"""Which axes of a reduction its two factors have."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse.ops as tf
from taskfuse.dtypes import float32
from taskfuse.ir.contraction import Factors, factors
from taskfuse.ir.expr import Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Expr, const

EXTENTS = {letter: 2 + number for number, letter in enumerate("abcdefgh")}


def extents(found: Factors, reduction: Reduction) -> dict[str, list[Expr]]:
    """The extents of each class of axes: here each letter has its own."""
    classes = {"rows": found.rows, "columns": found.columns, "summed": found.summed, "batch": found.batch, "shared": found.shared}
    return {name: sorted((reduction.output.root[p].extent for p in positions), key=str) for name, positions in classes.items()}


@settings(max_examples=25, deadline=None)
@given(st.permutations("abcdefgh"), st.lists(st.integers(1, 2), min_size=4, max_size=4))
def test_axes_of_einsum(letters: list[str], sizes: list[int]) -> None:
    """Letters that only the first operand has are rows; those of both that the result lacks are summed."""
    taken = iter(letters)
    rows, columns, summed, batch = ([next(taken) for _ in range(size)] for size in sizes)
    a, b, out = "".join(rows + summed + batch), "".join(batch + summed + columns), "".join(columns + batch + rows)
    with Fusion("f") as fusion:
        x, y = (tf.define_tensor([EXTENTS[s] for s in operand], dtype=float32) for operand in (a, b))
        fusion.add_output(tf.einsum(f"{a},{b}->{out}", x, y))
    (reduction,) = (e for e in fusion.exprs() if isinstance(e, Reduction))
    found = factors(fusion, reduction)
    assert found is not None
    swapped = found.a.tensor is y
    expected = {"rows": rows, "columns": columns, "summed": summed, "batch": batch, "shared": summed + batch}
    wanted = {name: sorted((const(EXTENTS[s]) for s in given), key=str) for name, given in expected.items()}
    assert extents(found.swapped() if swapped else found, reduction) == wanted
    assert found.make_a_matrix


@pytest.mark.parametrize(("subscripts", "shapes"), [("ak,k->a", ([4, 5], [5])), ("k,k->", ([5], [5])), ("bk,bk->b", ([4, 5], [4, 5]))])
def test_no_matrix(subscripts: str, shapes: tuple[list[int], list[int]]) -> None:
    with Fusion("f") as fusion:
        x, y = (tf.define_tensor(shape, dtype=float32) for shape in shapes)
        fusion.add_output(tf.einsum(subscripts, x, y))
    (reduction,) = (e for e in fusion.exprs() if isinstance(e, Reduction))
    found = factors(fusion, reduction)
    assert found is not None
    assert not found.make_a_matrix


def test_no_factors() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([4, 5], dtype=float32)
        fusion.add_output(x.sum(1))
        fusion.add_output(x + x)
    assert [factors(fusion, e) for e in fusion.exprs()] == [None, None]
