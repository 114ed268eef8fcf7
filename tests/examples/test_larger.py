"""Every example has its larger shapes; this needs no GPU."""

from __future__ import annotations

from tests.examples.cases import CASES
from tests.gpu.larger import LARGER


def test_every_example_has_larger_shapes() -> None:
    assert {case.name for case in CASES} == LARGER.keys()
