"""Address functions of the engines, against the PTX ISA's own words, and against a second reading of them."""

import numpy as np
import pytest

from taskfuse.ir.scalar import evaluate, sym
from taskfuse.ir.shared_layouts import SWIZZLES, Major, operand_alignment, operand_offset, operand_offsets, swizzle_period, swizzled, swizzled_place
from taskfuse.ir.types import MemoryType
from taskfuse.testing.machine.engines import MachineTile
from taskfuse.testing.machine.launch import MachinePlace


@pytest.mark.parametrize(("span", "bits"), [(0, 0), (32, 1), (64, 2), (128, 3)])
def test_swizzle_moves_chunks_within_a_span(span: int, bits: int) -> None:
    addresses = np.arange(4096)
    found = swizzled(addresses, span)
    for address, image in zip(addresses.tolist(), found.tolist(), strict=True):
        chunk, key = address >> 4, address >> 7
        assert image == (chunk ^ (key & ((1 << bits) - 1))) << 4 | (address & 15)
    np.testing.assert_array_equal(swizzled(found, span), addresses)
    np.testing.assert_array_equal(evaluate(swizzled_place(sym("a"), span), {"a": addresses}), found)
    period = swizzle_period(span)
    np.testing.assert_array_equal(swizzled(addresses + period, span), found + period)
    assert period == (8 * span or 128)
    assert operand_alignment(span) == (period if span else 16)


# PTX ISA, "Strides": the canonical layouts in units of 16 bytes (T elements), rows x k, as shape and stride of the digits of an index, inner digit first.
# K-major: ((8, m), (T, 2k)) : ((8T, SBO), (1, LBO)) without a swizzle, ((8, m), (T*s, k)) : ((T*s, SBO), (1, T)) with s chunks in a span.
# MN-major: ((T, 1, m), (8, k)) : ((1, T, SBO), (T, LBO)) without a swizzle, ((T*s, m), (8, k)) : ((1, LBO), (T*s, SBO)) with one.
def canonical(row: int, k: int, size: int, swizzle: int, lbo: int, sbo: int, major: Major) -> int:
    """The byte offset of one element of an operand."""
    chunk, span = 16 // size, (swizzle or 16) // size
    match major, swizzle:
        case Major.K, 0:
            return (row % 8 * chunk + k % chunk) * size + row // 8 * sbo + k // chunk * lbo
        case Major.K, _:
            return (row % 8 * span + k) * size + row // 8 * sbo
        case Major.MN, 0:
            return (row % chunk + k % 8 * chunk) * size + row // chunk * sbo + k // 8 * lbo
        case _:
            return (row % span + k % 8 * span) * size + row // span * lbo + k // 8 * sbo


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize(("major", "size"), [(Major.K, 1), (Major.K, 2), (Major.K, 4), (Major.MN, 2)])
def test_operands_lie_in_the_canonical_layouts(swizzle: int, major: Major, size: int) -> None:
    rows, k, lbo, sbo = 64, 32 // size, 4096, 1024
    found = operand_offsets(rows, k, size, swizzle, lbo, sbo, major)
    assert found.tolist() == [[canonical(r, c, size, swizzle, lbo, sbo, major) for c in range(k)] for r in range(rows)]
    offset = operand_offset(sym("r"), sym("c"), size, swizzle, lbo, sbo, major)
    assert int(evaluate(offset, {"r": 13, "c": k - 1})) == found[13, k - 1]
    tile = MachineTile(0, swizzle, lbo, sbo, major, size, MachinePlace("a", MemoryType.Shared, size, (rows, k), 0))
    chunks = {tile.swizzled(chunk) for chunk in tile.chunks(0, rows)}
    assert chunks == {address // 16 * 16 for address in swizzled(found, swizzle).ravel().tolist()}
