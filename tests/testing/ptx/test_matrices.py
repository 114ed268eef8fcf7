"""Fragments of tensor-core instructions: a product of matrices put into registers by the tables of the PTX ISA, element by element."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from taskfuse.testing.ptx.floats import BF16, F32, decoder, encoder
from taskfuse.testing.ptx.matrices import load_matrices, mma, store_matrices, swizzled, wgmma

RNG = np.random.default_rng(0)


def small(rows: int, columns: int) -> NDArray[np.int64]:
    return RNG.integers(-3, 4, (rows, columns))


def pair(low: float, high: float) -> int:
    encode = encoder(BF16)
    return encode(low) | encode(high) << 16


def test_a_product_of_16_bits() -> None:
    """PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"."""
    a, b, c = small(16, 16), small(16, 8), small(16, 8)
    lanes: dict[int, tuple[int, ...]] = {}
    for lane in range(32):
        group, member = lane >> 2, lane % 4
        left = [pair(a[r, k], a[r, k + 1]) for k in (2 * member, 2 * member + 8) for r in (group, group + 8)]
        right = [pair(b[k, group], b[k + 1, group]) for k in (2 * member, 2 * member + 8)]
        sums = [encoder(F32)(c[r, 2 * member + j]) for r in (group, group + 8) for j in (0, 1)]
        lanes[lane] = (*left, *right, *sums)
    found = mma("m16n8k16.row.col.f32.bf16.bf16.f32", lanes)
    assert found is not None
    product = a @ b + c
    for lane, words in found.items():
        group, member = lane >> 2, lane % 4
        assert [decoder(F32)(w) for w in words] == [product[r, 2 * member + j] for r in (group, group + 8) for j in (0, 1)]


def test_a_product_of_bytes() -> None:
    """PTX ISA, "Matrix Fragments for mma.m16n8k32"."""
    a, b = small(16, 32), small(32, 8)

    def four(numbers: list[int]) -> int:
        return sum((x & 255) << 8 * k for k, x in enumerate(numbers))

    lanes: dict[int, tuple[int, ...]] = {}
    for lane in range(32):
        group, member = lane >> 2, lane % 4
        left = [four([int(a[r, k + j]) for j in range(4)]) for k in (4 * member, 4 * member + 16) for r in (group, group + 8)]
        right = [four([int(b[k + j, group]) for j in range(4)]) for k in (4 * member, 4 * member + 16)]
        lanes[lane] = (*left, *right, 1, 2, 3, 0xFFFFFFFF)
    found = mma("m16n8k32.row.col.s32.s8.s8.s32", lanes)
    assert found is not None
    product = a @ b
    for lane, words in found.items():
        group, member = lane >> 2, lane % 4
        wanted = [product[r, 2 * member + j] for r in (group, group + 8) for j in (0, 1)]
        assert list(words) == [int(x + y) & 0xFFFFFFFF for x, y in zip(wanted, (1, 2, 3, -1), strict=True)]


@pytest.mark.parametrize("transposed", [False, True])
def test_matrices_in_shared_memory(transposed: bool) -> None:
    memory = bytearray(RNG.integers(0, 256, 1024).astype(np.uint8).tobytes())
    words = f"m8n8.x2{'.trans' if transposed else ''}.shared.b16"
    addresses = {lane: 16 * (lane * 7 % 32) for lane in range(32)}
    found = load_matrices(words, addresses, lambda at, n: bytes(memory[at : at + n]))
    assert found is not None
    rows = [np.frombuffer(memory[addresses[8 + r] : addresses[8 + r] + 16], np.uint16) for r in range(8)]  # of the second matrix
    lane = 13  # row 3, elements 2 and 3
    first, second = (rows[2][3], rows[3][3]) if transposed else (rows[3][2], rows[3][3])
    assert found[lane][1] == int(first) | int(second) << 16
    stored = store_matrices(words, addresses, found)
    assert stored is not None
    assert all(memory[at : at + 16] == row for at, row in stored)
    assert len(stored) == 16


def test_swizzles() -> None:
    assert [swizzled(128 * row, 128) for row in range(9)] == [128 * row + 16 * (row % 8) for row in range(9)]
    assert [swizzled(128 * row + 16, 32) for row in range(4)] == [16, 128, 272, 384]
    assert sorted(swizzled(16 * k, 64) for k in range(64)) == [16 * k for k in range(64)]


@pytest.mark.parametrize("span", [0, 128])
def test_products_of_a_warpgroup(span: int) -> None:
    """Rows of 64 numbers of bfloat16 in Shared memory: A and B with consecutive k (PTX ISA, "Shared Memory Matrix Layout")."""
    a, b = small(64, 16), small(8, 16)
    memory = bytearray(1 << 15)

    def put(base: int, matrix: NDArray[np.int64]) -> None:
        for i, k in np.ndindex(matrix.shape):
            at = base + (128 * int(i) + 2 * int(k) if span else i // 8 * 256 + i % 8 * 16 + k // 8 * 128 + k % 8 * 2)
            memory[swizzled(at, span) : swizzled(at, span) + 2] = encoder(BF16)(float(matrix[i, k])).to_bytes(2, "little")

    put(0, a)
    put(1 << 14, b)
    stride, leading, mode = (1024, 16, 1) if span else (256, 128, 0)
    of = leading >> 4 << 16 | stride >> 4 << 32 | mode << 62
    none = dict.fromkeys(range(128), (0,) * 4)
    operands = [of, of | (1 << 14) >> 4, 0, 1, 1, 0, 0]
    found = wgmma("m64n8k16.f32.bf16.bf16", operands, none, None, lambda at, n: bytes(memory[at : at + n]))
    assert found is not None
    product = a @ b.T
    for thread, words in found.items():
        row, column = 16 * (thread // 32) + thread % 32 // 4, 2 * (thread % 4)
        assert [decoder(F32)(w) for w in words] == [product[r, column + j] for r in (row, row + 8) for j in (0, 1)]
    again = wgmma("m64n8k16.f32.bf16.bf16", [*operands[:2], 1, *operands[3:]], found, None, lambda at, n: bytes(memory[at : at + n]))
    assert again is not None
    assert decoder(F32)(again[0][0]) == 2 * product[0, 0]


def test_forms_that_are_not_known() -> None:
    assert mma("m8n8k4.row.col.f32.f16.f16.f32", {}) is None
    assert mma("m8n8k4.row.col.f32.f16.f16.f16", {}) is None
    assert mma("m16n8k16.row.col.satfinite.s32.s8.s8.s32", dict.fromkeys(range(32), ())) is None
    assert load_matrices("m16n16.x1.shared.b8", {}, lambda at, n: b"") is None
    assert store_matrices("m16n16.x1.shared.b8", {}, {}) is None
    assert wgmma("m64n8k16.f32.bf16.bf16", [0, 0, 1, -1, 1, 0, 0], dict.fromkeys(range(128), (0,) * 4), None, lambda at, n: b"") is None
