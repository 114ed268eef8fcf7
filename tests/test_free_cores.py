"""Cores that other processes need are not free, until these are done."""

from __future__ import annotations

import pytest

from taskfuse import free_cores


def test_other_processes_at_work_need_their_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_cores, "cores", lambda: 4)
    monkeypatch.setattr(free_cores, "_marks", None)
    assert free_cores.free_cores() == 4
    free_cores.share(6)
    assert free_cores.free_cores() == 4
    with free_cores.at_work(5):
        assert free_cores.free_cores() == 4, "its own core is one of those"
        with free_cores.at_work(0), free_cores.at_work(3):
            assert free_cores.free_cores() == 2
            with free_cores.at_work(1), free_cores.at_work(2), free_cores.at_work(4):
                assert free_cores.free_cores() == 1
        assert free_cores.free_cores() == 4
