"""Index expressions of fragments, against the tables of the instructions."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import atoms
from taskfuse.ir.atoms import Atom
from taskfuse.ir.expr import Read
from taskfuse.ir.fragments import Fragment
from taskfuse.ir.scalar import evaluate
from taskfuse.ir.storage import storage_operands
from taskfuse.lowering.fragments import HeldTile, atom_symbols, factor, operand, result


def product(atom: Atom) -> tuple[tf.TensorView, list[Read]]:
    """The tile of an atom and what it reads."""
    assert atom.tile is not None
    m, n, k = atom.tile
    with tf.Fusion("f") as fusion:
        a, b = tf.define_tensor([m, k], dtype=tf.bfloat16, name="a"), tf.define_tensor([n, k], dtype=tf.bfloat16, name="b")
        fusion.add_output(tf.matmul(a, b.T, dtype=tf.float32))
    tv = fusion.outputs[0].cache_before()
    tv.set_atom(atom, (0, 1, 2))
    expr = fusion.definition(tv)
    assert expr is not None
    return tv, [o for o in storage_operands(fusion, expr) if isinstance(o, Read)]


def finds(held: HeldTile, rows: int, columns: int) -> None:
    """Lane and register of every element are those that hold it by the table of the fragment."""
    found: Fragment = held.fragment
    r, c = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    at = {held.row: r, held.column: c}
    lanes, registers = (np.broadcast_to(np.asarray(evaluate(e, at)), r.shape) for e in (held.lane(), held.register()))
    row, column = found.position(lanes, registers)
    assert np.array_equal(row, r)
    assert np.array_equal(column, c)
    assert lanes.max() < found.threads
    assert registers.max() < found.count


def test_symbols_are_points_of_one_instruction() -> None:
    tv, _ = product(atoms.mma(16, 8, 16))
    assert list(atom_symbols(tv).values()) == ["v", "v1", "v2"]
    assert list(atom_symbols(tv)) == list(tv.schedule.atom_axes)


@pytest.mark.parametrize("atom", [atoms.mma(16, 8, 16), atoms.wgmma(64, 24, 16)], ids=lambda a: a.name)
def test_results(atom: Atom) -> None:
    tv, _ = product(atom)
    held = result(tv)
    assert (held.row, held.column) == ("v", "v1")
    assert atom.tile is not None
    finds(held, *atom.tile[:2])


def test_factors_of_mma() -> None:
    tv, (a, b) = product(atoms.mma(16, 8, 16))
    assert (factor(tv, a), factor(tv, b)) == (0, 1)
    left, right = operand(tv, a), operand(tv, b)
    assert left is not None
    assert right is not None
    assert (left.row, left.column) == ("v", "v2")  # rows by k
    assert (right.row, right.column) == ("v2", "v1")  # k by columns
    finds(left, 16, 16)
    finds(right, 16, 8)


def test_the_second_factor_of_wgmma_is_in_shared_memory() -> None:
    tv, (a, b) = product(atoms.wgmma(64, 24, 16))
    left = operand(tv, a)
    assert left is not None
    finds(left, 64, 16)
    assert operand(tv, b) is None


def test_a_read_of_rows_and_columns_is_no_factor() -> None:
    tv, (a, b) = product(atoms.mma(16, 8, 16))
    assert factor(tv, Read(a.tensor, (a.index[0], b.index[0]))) is None
    assert factor(tv, Read(a.tensor, (a.index[1], b.index[1]))) is None  # k alone


def test_without_an_atom_nothing_is_taken_from_a_fragment() -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([16, 16], name="x")
        y = tf.neg(x)
        fusion.add_output(y)
    expr = fusion.definition(y)
    assert expr is not None
    (read,) = storage_operands(fusion, expr)
    assert isinstance(read, Read)
    assert operand(y, read) is None


@pytest.mark.parametrize("atom", [atoms.LDMATRIX_X4, atoms.STMATRIX_X4, atoms.STMATRIX_X2], ids=lambda a: a.name)
def test_a_warp_loads_and_stores_matrices(atom: atoms.Atom) -> None:
    loads, columns = atom is atoms.LDMATRIX_X4, 8 if atom is atoms.STMATRIX_X2 else 16
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([16, columns], dtype=tf.bfloat16, name="x")
        fusion.add_output(tf.neg(tf.copy(x)))
    tv = next(e.output for e in fusion.exprs())
    tv.set_atom(atom, (0, 1))
    expr = fusion.definition(tv)
    assert expr is not None
    (read,) = storage_operands(fusion, expr)
    assert isinstance(read, Read)
    held = result(tv) if loads else operand(tv, read)
    assert held is not None
    finds(held, 16, columns)
    assert (operand(tv, read) is None) is loads
