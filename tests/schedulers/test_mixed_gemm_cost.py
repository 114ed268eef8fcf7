"""Parameters of ``mixed_gemm`` that fit, and what they are expected to take."""

from dataclasses import replace

import pytest

from taskfuse.errors import UnsupportedError
from taskfuse.schedulers.mixed_gemm_cost import MixedGemmConfig, MixedProblem, ranked
from taskfuse.target import H100

FOUR_BITS = MixedProblem(14336, 8, 4096, packed=2, itemsize=1, is_integer=True, multiplied=2, target=H100)


def test_runs_of_lanes() -> None:
    """Two neighbors of a pair lie in both halves of a word: 4 elements of 4 bits apart, 2 of 8 bits; floats lie side by side."""
    signed = replace(FOUR_BITS, packed=1)
    floats = replace(signed, is_integer=False)
    assert [(p.bits, p.apart, p.run, p.group) for p in (FOUR_BITS, signed, floats)] == [(4, 4, 8, 32), (8, 2, 4, 16), (8, 1, 8, 32)]


def test_all_parameters_fit() -> None:
    found = ranked(FOUR_BITS)
    assert [option.us for option in found] == sorted(option.us for option in found)
    for c in (option.config for option in found):
        assert FOUR_BITS.k % c.tile_k == 0
        assert c.tile_k % (c.parts * FOUR_BITS.group) == 0
        assert c.threads <= 1024
        assert c.stages >= 2


def test_half_the_rows_take_less() -> None:
    """Of as many multiprocessors: no more than in proportion, since waits stay."""
    whole, half = (ranked(replace(FOUR_BITS, m=m))[0].us for m in (14336, 7168))
    assert whole / 2 < half < whole


def test_what_does_not_divide() -> None:
    with pytest.raises(UnsupportedError, match="multiples of 16 rows and 8 columns"):
        MixedGemmConfig(40, 8, 16, 256, 2, 2)
