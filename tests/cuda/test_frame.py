"""Frames: the memory that one launch reads."""

from __future__ import annotations

import struct
import threading
from typing import Any

from tests.cuda.calls import COPY
from tests.cuda.fakes import FakeDriver, FakeTorch
from tests.cuda.launched import Case, tensor


def test_threads_do_not_share_a_frame(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    case.run((tensor(3, 32),))
    inner = driver.launched
    here, go = threading.Barrier(9), threading.Event()

    def slow(*args: Any) -> int:
        here.wait(10)  # all are inside the driver's call, their parameters written
        go.wait(10)
        return inner(*args)

    driver.on_launch = slow
    arrays = [tensor(3, 32) for _ in range(8)]
    threads = [threading.Thread(target=case.run, args=((x,),)) for x in arrays]
    for thread in threads:
        thread.start()
    here.wait(10)
    go.set()
    for thread in threads:
        thread.join()
    found = {launch.raw[[type(a).__name__ for a in case.sources[0].arguments].index("PointerArgument")] for launch in driver.launches[1:]}
    assert found == {struct.pack("<Q", x.data_ptr()) for x in arrays}
