"""What is known about symbols."""

from __future__ import annotations

import pytest

from taskfuse.ir.scalar import (
    lt,
    prove,
)
from tests.ir.scalar.nests import DIMS, S, i0, x


def test_facts_are_immutable_and_shared() -> None:
    facts = DIMS.with_range("i0", 0, S - 1)
    assert DIMS.with_range("i0", 0, S - 1) is facts
    assert facts.with_range("i0", 0, S - 1) is facts
    assert facts.with_ranges({"i1": (0, S), "x": (0, 3)}) is facts.with_ranges({"i1": (0, S), "x": (0, 3)})
    assert facts.with_ranges({"i1": (0, S), "x": (0, 3)}) is not facts.with_ranges({"i1": (0, S), "x": (0, 4)})
    assert facts.with_assumption(lt(x, 3)) is facts.with_assumption(lt(x, 3))
    assert facts.with_assumption(1) is facts
    assert not prove(lt(i0, S), DIMS)


def test_a_range_cannot_depend_on_itself() -> None:
    with pytest.raises(ValueError, match="the range of 'S' depends on 'S'"):
        DIMS.with_range("i0", 0, S - 1).with_range("S", 0, i0)
