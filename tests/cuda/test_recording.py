"""Recordings of launches: what was launched, in which order, by which thread."""

from __future__ import annotations

from threading import Thread

from taskfuse.cuda.recording import active, recording
from tests.cuda.calls import COPY
from tests.cuda.fakes import FakeDriver, FakeTorch
from tests.cuda.launched import Case, tensor


def test_what_is_launched_is_recorded(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    case.run((tensor(3, 32),))
    x, z = tensor(3, 32), tensor(3, 32)
    with recording() as seen:
        (y,) = case.run((x,))
        case.run((y,), out=z)
    assert [r.addresses for r in seen] == [(x.data_ptr(), y.data_ptr()), (y.data_ptr(), z.data_ptr())]
    assert all(r.launcher is case.run for r in seen)
    case.run((x,))
    assert len(seen) == 2
    assert not active


def test_each_thread_records_its_own(driver: FakeDriver, torch: FakeTorch) -> None:
    case, x = Case(COPY, driver), tensor(3, 32)

    def other() -> None:
        case.run((x,))

    with recording() as seen:
        thread = Thread(target=other)
        thread.start()
        thread.join()
        case.run((x,))
    assert len(seen) == 1
