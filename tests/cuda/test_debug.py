"""Debug builds wait and report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cuda.debug import REPORT, empty_report
from taskfuse.errors import InputError
from tests.cuda.fakes import FakeDriver, FakeTensor, FakeTorch
from tests.cuda.launched import Case, tensor
from tests.lines import pipeline, snippet


def test_debug_builds_wait_and_report(driver: FakeDriver, torch: FakeTorch) -> None:
    with open("tests/kernels/ring.kir", encoding="utf-8") as file:
        case = Case(file.read(), driver, debug=True)
    case.run((tensor(9, 32),))
    assert driver.log[1:] == [("launch", 11), ("synchronize", 11)]
    driver.capturing = True
    case.run((tensor(9, 32),))
    assert driver.log[-1] == ("launch", 11)
    driver.capturing, driver.sync_error = False, True
    assert case.error(tensor(9, 32)) == "cuStreamSynchronize: CUDA_ERROR_719: as the test wants\nnote: in kernel 'ring', or before it"
    inner = driver.launched
    points = [point.barrier for point in case.sources[0].waits]

    def hang(*args: Any) -> int:
        status = inner(*args)
        address = case.arguments()["report"]
        limit = REPORT.unpack(empty_report(2000))[-1]
        driver.copy_to_device(
            address, np.frombuffer(REPORT.pack(1, points.index("full"), 2, 1, 0, 0, 0, 33, 0, 0, limit), np.uint8).ctypes.data, REPORT.size, 0
        )
        return status

    driver.on_launch = hang
    text = case.error(tensor(9, 32))
    assert text.startswith("kernel 'ring' hangs: ")
    assert "full[2]" in text
    assert "-->" not in text  # a text that nobody wrote in a file has no lines
    assert text.endswith("note: no wait may take longer than 2000 ms (TASKFUSE_WATCHDOG_MS); the CUDA context is lost")


def test_a_hang_names_the_line_of_the_wait(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(tf.lower(pipeline(9)), driver, debug=True)
    case.run((tensor(9, 32),))
    driver.sync_error = True
    inner = driver.launched
    points = [point.barrier for point in case.sources[0].waits]

    def hang(*args: Any) -> int:
        status = inner(*args)
        report = np.frombuffer(REPORT.pack(1, points.index("ch0.full"), 1, 1, 0, 0, 0, 3, 1, 0, 1), np.uint8)
        driver.copy_to_device(case.arguments()["report"], report.ctypes.data, REPORT.size, 0)
        return status

    driver.on_launch = hang
    found = case.error(tensor(9, 32)).split("\n")
    where = "use: block (0, 0, 0), thread (3, 1, 0) waits at ch0.full[1], whose ring carries tv1,"
    assert found[0] == f"kernel 'pipeline' hangs: {where} for the end of phase parity 1"
    assert found[1:4] == snippet("a = tf.exp(x)", pipeline)


RISING = """
KERNEL k(x: float32[M], offsets: int32[G + 1] rising 0..M) -> (y: float32[G])
  DIM G min 1, M min 1
  GRID (G, 1, 1)  BLOCK (1, 1, 1)

y[blockIdx.x] = copy(x[min(clamp(offsets[blockIdx.x of G + 1], 0, M), M - 1)])
"""


def test_debug_builds_look_at_tables_that_are_promised_to_rise(driver: FakeDriver, torch: FakeTorch) -> None:
    case, x = Case(RISING, driver, debug=True), tensor(8)
    falls = FakeTensor(np.repeat(np.array([8, 5, 6, 0], np.int32), 2)[::-2])
    assert "table 'offsets' does not rise from 0 to M = 8: element 1 is 6, element 2 is 5" in case.error(x, falls)
    assert not driver.launches
    case.run((x, FakeTensor(np.array([0, 3, 8], np.int32))))
    assert len(driver.launches) == 1
    Case(RISING, driver).run((x, falls))  # other builds do not wait for a table
    driver.capturing = True  # nor can one that is recorded
    case.run((x, falls))
    assert len(driver.launches) == 3


def test_host_arrays_are_looked_at_before_they_are_copied(driver: FakeDriver, torch: FakeTorch) -> None:
    with pytest.raises(InputError, match="does not rise from 0 to M = 8: element 0 is 3"):
        Case(RISING, driver).run((np.zeros(8, np.float32), np.array([3, 8], np.int32)))
    assert not driver.launches
