"""The roofline that cost models share."""

from dataclasses import replace

import pytest

from taskfuse.schedulers.machine import dram_us, fill, issue_us, kernel_us
from taskfuse.target import A100, H200


def test_bytes_and_instructions() -> None:
    assert dram_us(H200, 4.3e6) == 1
    assert dram_us(H200, 4.3e6, 0.5) == 2
    assert issue_us(H200, 128 * 132 * 1700) == 1
    assert issue_us(H200, 128 * 1700, 1) == 1
    assert dram_us(A100, 1.8e6) == issue_us(A100, 128 * 108 * 1410) == 1


def test_a_kernel_takes_its_launch_and_the_longest() -> None:
    assert kernel_us(H200, 3.0, 7.0, 5.0) == 9.5
    assert kernel_us(replace(H200, launch_us=1.0), 3.0) == 4.0


@pytest.mark.parametrize(("threads", "share"), [(0, 0.0), (132 * 512, 0.5), (132 * 1024, 1.0), (10**9, 1.0)])
def test_few_threads_leave_bandwidth(threads: int, share: float) -> None:
    assert fill(H200, threads) == share
