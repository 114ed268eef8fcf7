"""Fragments against the formulas that the PTX ISA prints beside its figures."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from taskfuse.dtypes import float32
from taskfuse.ir.fragments import Fragment, column_of_term, four_matrices, matrices, term_of_column
from taskfuse.ir.matrix_instructions import OperandLayout
from taskfuse.ir.scalar import evaluate, sym
from tests.products import QUAD_PAIR_PRODUCTS, QuadPairProduct, held, mma_a, mma_accumulator, mma_b, wgmma_a, wgmma_accumulator

EVERY = [
    *(wgmma_accumulator(n) for n in (8, 24, 64, 256)),
    *(make(size) for make in (wgmma_a, mma_a, mma_b) for size in (1, 2, 4)),
    mma_accumulator(),
    *(matrices(count, transpose=transpose) for count in (1, 2, 4) for transpose in (False, True)),
    *(matrices(count, size) for count in (1, 2, 4) for size in (1, 4)),
    *(held(f) for p in QUAD_PAIR_PRODUCTS for f in (p.row.a_registers, p.row.b_registers, p.row.accumulator(8))),
]


@pytest.mark.parametrize("size", [1, 2])
def test_accumulators_become_terms_in_their_registers(size: int) -> None:
    """Registers of A, in the order of a lane's rows, have the elements that accumulators of the same lane and row are: a sum over columns is one over terms."""
    a, d = wgmma_a(size), wgmma_accumulator(64)
    terms, columns = np.arange(64), term_of_column(np.arange(64), size)
    assert np.array_equal(column_of_term(columns, size), terms)
    lanes, registers = d.owners()  # of a column of accumulators
    k = a.shape[1]
    own, place = a.owners()
    for row in (0, 8, 63):
        here = np.array([own[row, t % k] for t in columns])
        assert np.array_equal(here, lanes[row])
        order = np.array([a.count * (t // k) + place[row, t % k] for t in columns])
        for lane in set(here.tolist()):  # its columns of the row stay in their order
            mine = here == lane
            assert np.array_equal(np.argsort(order[mine]), np.argsort(registers[row][mine]))


Place = Callable[[int, int, int], int]
Table = npt.NDArray[np.int64]


def formula(fragment: Fragment, row: Place, column: Place) -> tuple[Table, Table]:
    """The fragment's rows and columns, from functions of the group id, the thread in the group, and the register."""
    lanes, registers = range(fragment.threads), range(fragment.count)
    table = np.array([[(row(t % 32 // 4, t % 4, i) + 16 * (t // 32), column(t % 32 // 4, t % 4, i)) for i in registers] for t in lanes])
    return table[..., 0], table[..., 1]


def same(fragment: Fragment, row: Place, column: Place) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(fragment.table(), formula(fragment, row, column), strict=True))


@pytest.mark.parametrize("fragment", EVERY, ids=lambda f: f"{f.figure}-{f.shape}")
def test_every_element_has_one_owner(fragment: Fragment):
    rows, columns = fragment.table()
    assert rows.shape == (fragment.threads // fragment.units, fragment.count)
    assert sorted(fragment.members().reshape(-1).tolist()) == list(range(fragment.threads))
    assert rows.size == fragment.shape[0] * fragment.shape[1]
    lanes, registers = fragment.owners()
    r, c = np.indices(fragment.shape)
    assert np.array_equal(rows[lanes, registers], r)
    assert np.array_equal(columns[lanes, registers], c)


@pytest.mark.parametrize("make", [mma_a, wgmma_a])
def test_a_of_16_bits(make: Callable[[int], Fragment]) -> None:
    # m16n8k16: row = groupID for 0 <= i < 2 || 4 <= i < 6, else groupID + 8; col = threadID*2 + (i & 1), + 8 for i >= 4
    assert same(make(2), lambda g, _, i: g if i in (0, 1, 4, 5) else g + 8, lambda _, t, i: t * 2 + (i & 1) + (8 if i >= 4 else 0))


@pytest.mark.parametrize("make", [mma_a, wgmma_a])
def test_a_of_8_bits(make: Callable[[int], Fragment]) -> None:
    # m16n8k32: row = groupID for 0 <= i < 4 || 8 <= i < 12, else groupID + 8; col = threadID*4 + (i & 3), + 16 for i >= 8
    assert same(make(1), lambda g, _, i: g if i // 4 in (0, 2) else g + 8, lambda _, t, i: t * 4 + (i & 3) + (16 if i >= 8 else 0))


@pytest.mark.parametrize("make", [mma_a, wgmma_a])
def test_a_of_tf32(make: Callable[[int], Fragment]) -> None:
    # m16n8k8: row = groupID for a0 and a2, else groupID + 8; col = threadID for a0 and a1, else threadID + 4
    assert same(make(4), lambda g, _, i: g if i in (0, 2) else g + 8, lambda _, t, i: t if i in (0, 1) else t + 4)


def test_b():
    # m16n8k16: row = threadID*2 + (i & 1), + 8 for i >= 2; k32: row = threadID*4 + (i & 3), + 16 for i >= 4; k8: threadID, + 4; col = groupID
    assert same(mma_b(2), lambda _, t, i: t * 2 + (i & 1) + (8 if i >= 2 else 0), lambda g, t, i: g)
    assert same(mma_b(1), lambda _, t, i: t * 4 + (i & 3) + (16 if i >= 4 else 0), lambda g, t, i: g)
    assert same(mma_b(4), lambda _, t, i: t + (4 if i else 0), lambda g, t, i: g)


def test_accumulators():
    # row = groupID for i < 2, else groupID + 8; col = threadID*2 + (i & 1); wgmma repeats that every 8 columns
    assert same(mma_accumulator(), lambda g, _, i: g if i < 2 else g + 8, lambda _, t, i: t * 2 + (i & 1))
    assert same(wgmma_accumulator(48), lambda g, _, i: g if i % 4 < 2 else g + 8, lambda _, t, i: t * 2 + (i & 1) + i // 4 * 8)


def test_matrices():
    # thread t holds elements 2*(t % 4) and + 1 of row t / 4, and with .trans those of column t / 4
    assert same(matrices(4), lambda g, _, i: g + i // 2 * 8, lambda _, t, i: t * 2 + (i & 1))
    assert same(matrices(2, transpose=True), lambda _, t, i: t * 2 + (i & 1) + i // 2 * 8, lambda g, t, i: g)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_four_matrices_are_an_a_operand(size: int):
    # matrix i holds rows 8 * (i % 2) and the 16 bytes i // 2 of A: the order in which ldmatrix.x4 fills the registers of A
    rows, columns = matrices(4, size).table()
    matrix = rows // 8
    found = rows % 8 + 8 * (matrix % 2), columns + 16 // size * (matrix // 2)
    assert all(np.array_equal(x, y) for x, y in zip(mma_a(size).table(), found, strict=True))
    assert size != 2 or all(np.array_equal(x, y) for x, y in zip(four_matrices().table(), found, strict=True))


def test_two_transposed_matrices_are_a_b_operand():
    # B (k x n, 16 bits) in row-major memory is read by ldmatrix.x2.trans, in column-major memory by ldmatrix.x2
    rows, columns = matrices(2, transpose=True).table()
    assert all(np.array_equal(x, y) for x, y in zip(mma_b(2).table(), (rows, columns), strict=True))


def test_positions_of_expressions_are_those_of_numbers():
    fragment = wgmma_accumulator(64)
    row, column = fragment.position(sym("t"), sym("v"))
    for t, v in ((0, 0), (37, 5), (127, 31)):
        assert (evaluate(row, {"t": t, "v": v}), evaluate(column, {"t": t, "v": v})) == fragment.position(t, v)
        assert (fragment.row(t, v), fragment.column(t, v)) == fragment.position(t, v)


def test_an_accumulator_row_is_an_a_operand():
    # two blocks of 8 columns of the accumulator, converted to 16 bits, are A of the next instruction in the same registers
    rows, columns = wgmma_accumulator(16).table()
    assert all(np.array_equal(x, y) for x, y in zip(wgmma_a(2).table(), (rows, columns), strict=True))


def test_transposed():
    rows, columns = mma_b(2).transposed().table()
    assert all(np.array_equal(x, y) for x, y in zip(mma_b(2).table(), (columns, rows), strict=True))


@pytest.mark.parametrize("product", QUAD_PAIR_PRODUCTS, ids=lambda p: p.name)
def test_quad_pairs(product: QuadPairProduct) -> None:
    """PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type": the formulas of every layout and of both accumulators."""
    a, b = (layout is OperandLayout.ROW for layout in product.layouts)
    for lane in range(32):
        high, low = 4 * (lane >= 16), lane % 4
        for i in range(4):
            assert held(product.row.a_registers).position(lane, i) == ((low + high, i) if a else (i + high, low))
            assert held(product.row.b_registers).position(lane, i) == ((low, i + high) if b else (i, low + high))
        for i in range(8):
            wide = ((lane & 1) + (i & 2) + high, (i & 4) + (lane & 2) + (i & 1))
            assert product.row.accumulator(8).position(lane, i) == (wide if product.sums is float32 else (low + high, i))
    pairs = product.row.accumulator(8).members().tolist()
    assert pairs == [[*range(4 * q, 4 * q + 4), *range(16 + 4 * q, 20 + 4 * q)] for q in range(4)]
