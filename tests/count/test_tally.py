"""The time that follows from what a launch does."""

from dataclasses import replace

from taskfuse.count import Count, Launch, Traffic
from taskfuse.target import DEFAULT, WARP

LAUNCH = Launch({}, {}, (1320, 1, 1), (128, 1, 1), (1, 1, 1), 10)
NOTHING = Count(LAUNCH, 0.0, 0.0, 0.0, {}, {}, 0.0, 0.0, 0.0, 0.0, DEFAULT)


def test_the_slowest_resource_decides_beside_others_that_are_as_busy() -> None:
    assert NOTHING.us == DEFAULT.launch_us
    bound = replace(NOTHING, reads={"x": Traffic(4e6, 4e6, 4e6, 4.3e6)})
    moved = 4.3e6 / DEFAULT.dram_bytes_per_us
    assert moved < bound.us - DEFAULT.launch_us < 1.02 * moved
    busy = replace(bound, instructions=moved * DEFAULT.cycles_per_us * DEFAULT.lanes / WARP)
    assert 1.2 * moved < busy.us - DEFAULT.launch_us < 1.3 * moved
    slow = replace(bound, chain=17_000.0)
    assert slow.us == DEFAULT.launch_us + 17_000 / DEFAULT.clock_mhz
    assert "chains of one thread" in str(slow)


def test_few_blocks_leave_multiprocessors_without_work() -> None:
    busy = replace(NOTHING, instructions=1e6)
    few = replace(busy, launch=replace(LAUNCH, grid=(2, 1, 1)))
    assert few.times["instructions"] > 60 * busy.times["instructions"]


def test_waves_of_blocks_wait_for_one_another() -> None:
    one = replace(NOTHING, chain=1000.0)
    two = replace(one, launch=replace(LAUNCH, grid=(2640, 1, 1)))
    between = DEFAULT.assumed.block_cycles / DEFAULT.clock_mhz
    assert two.times["chains of one thread"] == 2 * one.times["chains of one thread"] + between
