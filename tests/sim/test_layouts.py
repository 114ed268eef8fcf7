"""Address functions of the engines, against the PTX ISA's own words."""

import numpy as np
import pytest

from taskfuse.sim.layouts import accumulator_fragment, stmatrix_sources, swizzle_period, swizzled


@pytest.mark.parametrize(("span", "bits"), [(0, 0), (32, 1), (64, 2), (128, 3)])
def test_swizzle_moves_chunks_within_a_span(span: int, bits: int) -> None:
    addresses = np.arange(4096)
    found = swizzled(addresses, span)
    for address, image in zip(addresses.tolist(), found.tolist(), strict=True):
        chunk, key = address >> 4, address >> 7
        assert image == (chunk ^ (key & ((1 << bits) - 1))) << 4 | (address & 15)
    np.testing.assert_array_equal(swizzled(found, span), addresses)
    period = swizzle_period(span)
    np.testing.assert_array_equal(swizzled(addresses + period, span), found + period)
    assert period == (8 * span or 128)


def test_accumulators_cover_the_tile_once() -> None:
    rows, columns = accumulator_fragment(24)
    assert rows.shape == columns.shape == (128, 12)
    assert set(zip(rows.reshape(-1).tolist(), columns.reshape(-1).tolist(), strict=True)) == {(r, c) for r in range(64) for c in range(24)}
    # figure "WGMMA .m64nNk16 register fragment layout for accumulator matrix D": thread 5 holds (1, 2), (1, 3), (9, 2), (9, 3), (1, 10) ...
    assert list(zip(rows[5].tolist(), columns[5].tolist(), strict=True))[:5] == [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10)]


def test_stmatrix_rows_come_from_four_lanes() -> None:
    lanes, registers = stmatrix_sources()
    assert lanes[10].tolist() == [8, 8, 9, 9, 10, 10, 11, 11]
    assert registers[10].tolist() == [2, 3, 2, 3, 2, 3, 2, 3]
