"""Small kernels in which a cursor, a thread or a wait says what a statement does: right and wrong, and no wrong one is proved."""

from collections import Counter
from collections.abc import Iterator

import pytest

from taskfuse.check.values import last_write, overlaid_storage, reductions, scans
from taskfuse.testing.maps import MapsRow, look
from taskfuse.testing.small.selected import selected
from tests.testing.small.drawn import drawn, lacks


def rows(count: int) -> Iterator[MapsRow]:
    for n in range(6, 7 * count, 7):
        yield from look(5, n)


def no(*_: object) -> bool:
    return False


def yes(*_: object) -> bool:
    return True


def none(*_: object) -> tuple[()]:
    return ()


def test_every_way_is_drawn() -> None:
    assert not lacks(drawn(selected, 60), "p.advance(1)", "SHARED w", "SHARED o", "SHARED acc", "LOCAL acc", "LOCAL one", "LOCAL other", "CLUSTER s")


def test_kernels_are_right_and_wrong() -> None:
    found = [*rows(25)]
    assert min(Counter(bool(row.fault) for row in found)[wrong] for wrong in (False, True)) >= 5
    assert not any(row.false_accept or row.error for row in found)


def test_what_cursors_say_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "is_said_alike", yes)
    monkeypatch.setattr(scans, "moves_of", none)
    assert sum(row.false_accept for row in rows(20)) >= 2


def test_another_arm_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not look(5, 482)[0].false_accept
    for module in (last_write, overlaid_storage):
        monkeypatch.setattr(module, "in_concurrent_arm", no)
    assert look(5, 482)[0].false_accept
