"""Every example has its larger shapes and its bound on a GPU; this needs none."""

from __future__ import annotations

from tests.examples.cases import CASES
from tests.gpu.larger import LARGER, ULP


def test_every_example_has_larger_shapes_and_a_bound() -> None:
    assert {case.name for case in CASES} == LARGER.keys() == ULP.keys()
