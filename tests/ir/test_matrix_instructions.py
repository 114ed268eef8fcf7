"""The table of matrix instructions, against the PTX ISA."""

from itertools import product

import pytest

from taskfuse.dtypes import DType, bfloat16, float8_e4m3, float8_e5m2, float16, float32, float64, int8, int32, uint8
from taskfuse.ir.matrix_instructions import (
    MATRIX_INSTRUCTIONS,
    Family,
    OperandLayout,
    accumulator_dtype,
    exists,
    find,
    in_registers,
    rows,
    shape_of,
    shapes,
    spans,
    transposes,
)

TYPES = (bfloat16, float16, float32, float8_e4m3, float8_e5m2, int8, uint8)


@pytest.mark.parametrize("family", Family)
def test_every_pair_of_types_has_one_row_or_none(family: Family) -> None:
    for a, b in product(TYPES, TYPES):
        found = [row for row in rows(family, a, b) if row.shape.layouts is None]
        alike = a is b or (a.itemsize == b.itemsize == 1 and a.is_float is b.is_float)
        assert len(found) == alike, (a, b)
        assert accumulator_dtype(a, b) is ((float32 if a.is_float else int32) if alike else None)


def test_rows_are_found_by_their_k() -> None:
    row = find(Family.WGMMA, bfloat16, bfloat16, 16)
    assert row is not None
    assert (row.m, row.k, row.sums, row.shape.threads) == (64, 16, float32, 128)
    assert find(Family.WGMMA, bfloat16, bfloat16, 8) is None
    assert find(Family.WGMMA, bfloat16, float16, 16) is None
    others = [r for r in MATRIX_INSTRUCTIONS if r.shape.layouts is None and r.a is not float64]
    assert {(r.k * r.a.itemsize, r.a.itemsize == r.b.itemsize) for r in others} == {(32, True)}


def test_float64() -> None:
    """PTX ISA, "mma.sync", shapes of .f64: m8n8k4 since sm_80, m16n8k4, k8 and k16 since sm_90."""
    found = {(r.m, r.k): r for r in rows(Family.MMA, float64, float64)}
    assert {at: r.arch for at, r in found.items()} == {(8, 4): 80, (16, 4): 90, (16, 8): 90, (16, 16): 90}
    assert found[16, 8].ptx(8) == "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64"
    assert find(Family.MMA, float64, float64, 4) is found[16, 4]
    assert find(Family.MMA, float64, float64, 4, m=8) is found[8, 4]
    assert accumulator_dtype(float64, float64) is float64
    assert accumulator_dtype(float64, float64, Family.WGMMA) is None
    assert not rows(Family.WGMMA, float64, float64)


@pytest.mark.parametrize(("m", "k", "a", "b", "c"), [(8, 4, 1, 1, 2), (16, 4, 2, 1, 4), (16, 8, 4, 2, 4), (16, 16, 8, 4, 4)])
def test_fragments_of_float64(m: int, k: int, a: int, b: int, c: int) -> None:
    """PTX ISA, "Matrix Fragments for mma.m8n8k4 / m16n8k4 / m16n8k8 / m16n8k16 with .f64 floating point type", element by element."""
    row = find(Family.MMA, float64, float64, k, m=m)
    assert row is not None
    assert row.a_registers is not None
    assert row.b_registers is not None
    acc = row.accumulator(8)
    assert (row.a_registers.count, row.b_registers.count, acc.count) == (a, b, c)
    for lane in range(32):
        group, own = lane // 4, lane % 4
        halves = m // 8
        assert [row.a_registers.position(lane, i) for i in range(a)] == [(group + 8 * (i % halves), own + 4 * (i // halves)) for i in range(a)]
        assert [row.b_registers.position(lane, i) for i in range(b)] == [(own + 4 * i, group) for i in range(b)]
        assert [acc.position(lane, i) for i in range(c)] == [(group + 8 * (i // 2), 2 * own + i % 2) for i in range(c)]


def test_quad_pairs() -> None:
    pairs = [row for row in MATRIX_INSTRUCTIONS if row.shape.layouts is not None]
    assert len(pairs) == 8
    assert {(r.m, r.widths, r.k, r.a, r.b, r.sums, r.shape.units, r.arch) for r in pairs} == {
        (8, (8,), 4, float16, float16, sums, 4, 70) for sums in (float32, float16)
    }
    layouts = OperandLayout.COLUMN, OperandLayout.ROW
    wide, narrow = (find(Family.MMA, float16, float16, 4, layouts, sums) for sums in (None, float16))
    assert wide is not None
    assert narrow is not None
    assert wide.ptx(8) == "mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32"
    assert narrow.ptx(8) == "mma.sync.aligned.m8n8k4.col.row.f16.f16.f16.f16"
    assert find(Family.MMA, float16, float16, 4) is None
    assert find(Family.MMA, bfloat16, bfloat16, 4, layouts) is None
    assert exists(Family.MMA, 8, 8, 4, layouts)
    assert not exists(Family.MMA, 8, 8, 8)
    assert shape_of(Family.MMA, 8, layouts) is wide.shape


@pytest.mark.parametrize(
    ("family", "a", "b", "k", "n", "text"),
    [
        (Family.WGMMA, bfloat16, bfloat16, 16, 128, "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"),
        (Family.WGMMA, float32, float32, 8, 8, "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32"),
        (Family.WGMMA, int8, uint8, 32, 16, "wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.u8"),
        (Family.MMA, float8_e4m3, float8_e5m2, 32, 8, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32"),
    ],
)
def test_spelling(family: Family, a: DType, b: DType, k: int, n: int, text: str) -> None:
    row = find(family, a, b, k)
    assert row is not None
    assert row.ptx(n) == text


def test_8_bit_floats_need_ada_or_hopper() -> None:
    assert {row.arch for row in rows(Family.MMA, float8_e4m3, float8_e4m3)} == {89}
    assert {row.arch for row in (*rows(Family.MMA, bfloat16, bfloat16), *rows(Family.MMA, int8, int8))} == {80}
    assert {row.arch for row in MATRIX_INSTRUCTIONS if row.shape.family is Family.WGMMA} == {90}


def test_what_may_lie_where() -> None:
    (wgmma,), (mma, *_) = rows(Family.WGMMA, bfloat16, bfloat16), rows(Family.MMA, bfloat16, bfloat16)
    assert wgmma.b_registers is None
    assert wgmma.transposes
    assert not mma.transposes
    assert not rows(Family.WGMMA, int8, int8)[0].transposes
    assert [d for d in (bfloat16, float16, float32, int8, float64) if transposes(d)] == [bfloat16, float16]
    held, other = in_registers(wgmma.shape, 16, float16)
    assert held is not None
    assert (held.count, other) == (8, None)  # 64 x 16 elements in 128 threads
    assert in_registers(shape_of(Family.MMA, 8, (OperandLayout.ROW, OperandLayout.ROW)), 4, float32) == (None, None)


def test_widths_of_integers_are_fewer() -> None:
    assert exists(Family.WGMMA, 64, 40, 16)
    assert exists(Family.WGMMA, 64, 48, 32)
    assert 40 in rows(Family.WGMMA, float8_e4m3, float8_e4m3)[0].widths
    assert 40 not in rows(Family.WGMMA, int8, int8)[0].widths
    assert not exists(Family.WGMMA, 64, 264, 16)
    assert not exists(Family.MMA, 16, 16, 16)
    assert spans(shapes(Family.WGMMA)) == "32 bytes"
    assert spans(shapes(Family.MMA)) == "8, 32, 64 or 128 bytes"
