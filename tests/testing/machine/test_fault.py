"""What a run may find, in words."""

import pytest

from taskfuse.testing.machine.fault import FaultFound, FaultKind, MachineFault


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (MachineFault(FaultKind.RACE, "two writes", 3, "s[0] = copy(1.0)"), "race: two writes\n  thread 3: s[0] = copy(1.0)"),
        (MachineFault(FaultKind.PARTIAL, "half", None, "at its end"), "part of a warp: half\n  at its end"),
        (MachineFault(FaultKind.VALUE, "x", 0, "s", "extents {}, order 0"), "no value: x\n  thread 0: s\n  extents {}, order 0"),
    ],
)
def test_a_fault_in_words(fault: MachineFault, text: str) -> None:
    assert str(fault) == text


def test_what_ends_a_run_says_where() -> None:
    found = FaultFound(FaultKind.BOUNDS, "too far", 7, 2)
    assert (found.kind, found.reason, found.thread, found.site) == (FaultKind.BOUNDS, "too far", 7, 2)
    assert str(found) == "too far"
