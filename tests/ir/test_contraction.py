"""Which axes of a reduction its two factors have."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse.ops as tf
from taskfuse.dtypes import float32
from taskfuse.ir.contraction import Factors, axes_of, factors
from taskfuse.ir.expr import Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Expr, const
from taskfuse.ir.storage import storage_reads

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


def test_slices_have_their_axes() -> None:
    """An axis that an index shifts is an axis of the factor all the same: of one that is read elsewhere, not of none."""
    with Fusion("f") as fusion:
        x, w = tf.define_tensor([4, 6], dtype=float32), tf.define_tensor([5, 3], dtype=float32)
        fusion.add_output(tf.matmul(x[:, 1:], w))
    (reduction,) = (e for e in fusion.exprs() if isinstance(e, Reduction))
    found = factors(fusion, reduction)
    assert found is not None
    assert found.make_a_matrix
    names = {reduction.output.root[p].extent for p in found.rows}, {reduction.output.root[p].extent for p in found.columns}
    assert names == ({const(4)}, {const(3)})
    assert axes_of(found.a) == found.rows | found.shared


def test_given_reads() -> None:
    """Reads that are known better take the place of those in storage."""
    with Fusion("f") as fusion:
        x, w = tf.define_tensor([4, 5], dtype=float32), tf.define_tensor([5, 3], dtype=float32)
        fusion.add_output(tf.matmul(x, w))
    (reduction,) = (e for e in fusion.exprs() if isinstance(e, Reduction))
    a, b = storage_reads(fusion, reduction)
    found = factors(fusion, reduction, [replace(a, index=(const(0), a.index[1])), b])
    assert found is not None
    assert not found.rows
    assert len(found.columns) == 1


def test_as_matrices() -> None:
    """The last of rows, columns and reduced axes are m, n and k, unless another column axis is asked for; all others are batch axes, or summed beside k."""
    with Fusion("f") as fusion:
        x, w = tf.define_tensor([2, 3, 4, 5], dtype=float32), tf.define_tensor([2, 4, 5, 6, 7], dtype=float32)
        fusion.add_output(tf.einsum("bmkl,bklno->bmno", x, w))
    (reduction,) = (e for e in fusion.exprs() if isinstance(e, Reduction))
    found = factors(fusion, reduction)
    assert found is not None
    found = found if found.a.tensor is x else found.swapped()
    axes = found.as_matrices(reduction.output)
    shown = [axes.extent(p) for p in (*axes.batch, axes.m, axes.n, *axes.summed, axes.k)]
    assert shown == [const(n) for n in (2, 6, 3, 7, 4, 5)]
    other = found.as_matrices(reduction.output, min(found.columns))
    assert other.extent(other.n) is const(6)
