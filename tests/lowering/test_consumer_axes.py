"""Outputs that share a consumer's axis: every element is stored once, whatever runs over what it lacks."""

import numpy as np
import pytest

from taskfuse.testing.case import seeded_case
from taskfuse.testing.options import Mix
from tests.proofs import proved

# Random cases of bulk copies in which an output lacks an axis of work that is merged with its own and dealt out to blocks, or looped over.
MERGED = (5, 12, 17, 107)
LOOPED = (6, 36, 66)


@pytest.mark.parametrize("seed", [*MERGED, *LOOPED])
def test_elements_are_stored_once(seed: int) -> None:
    case = seeded_case(seed, Mix.STREAMS)
    assert case.kernel is not None
    proved(case.kernel, case.sizes)
    arguments = case.arguments()
    for found, expected in zip(case.kernel.simulate(*arguments), case.fusion.evaluate(*arguments), strict=True):
        np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=2e-2, atol=1e-2)
