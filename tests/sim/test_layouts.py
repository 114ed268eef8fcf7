"""Address functions of the engines, against the PTX ISA's own words."""

import numpy as np
import pytest

from taskfuse.sim.layouts import swizzle_period, swizzled


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
