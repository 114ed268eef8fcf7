"""What threads wait at, without a kernel around it."""

from collections.abc import Callable

import pytest

from taskfuse.testing.machine.barriers import MOST_PENDING
from taskfuse.testing.machine.fault import FaultKind
from tests.testing.machine.machines import Parts, fault

# -- scopes ---------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arrives", "waits"), [(True, True), (True, False), (False, True), (False, False)])
def test_an_arrival_from_another_block_shows_stores_at_the_scope_of_the_cluster(arrives: bool, waits: bool) -> None:
    parts = Parts(blocks=2, slots=1, clusters=True)
    parts.init(2)
    before = parts.threads.own[64], parts.threads.own[1]
    parts.barriers.arrive(64, 1, 0, cluster=arrives)
    parts.barriers.arrive(1, 1, 0)
    assert not parts.barriers.waits(2, 1, 0, 0, cluster=waits)
    known = parts.threads.base[2].known
    assert known[1] >= before[1]  # a thread of the own block
    assert (known[64] >= before[0]) is (arrives and waits)
    assert known[128 + 64] >= before[0]  # it has come
    assert known[parts.threads.reads + 64] >= before[0]  # and has read


def test_the_bytes_of_a_load_show_nothing_else() -> None:
    parts = Parts()
    parts.init(1)
    parts.barriers.arrive(1, 1, 0, 128)
    before = parts.threads.own[1]
    parts.barriers.bytes_come(1, 1, 0, 128, 3, parts.threads.clock([1]))
    assert not parts.barriers.waits(2, 1, 0, 0)
    known, done = parts.threads.base[2].known, parts.threads.base[2].done
    assert (known[1] < before, known[64 + 1] >= before, done) == (True, True, 3)


# -- mbarriers ----------------------------------------------------------------------------------------------------------------------------


def test_a_phase_is_complete_with_its_arrivals() -> None:
    parts = Parts()
    parts.init(2)
    barriers = parts.barriers
    assert barriers.waits(5, 1, 0, 0)  # it sleeps
    before = parts.threads.own[1]
    barriers.arrive(1, 1, 0)
    assert parts.woken == []
    barriers.arrive(2, 1, 0)
    assert parts.woken == [5]
    assert not barriers.waits(5, 1, 0, 0)
    assert parts.threads.base[5].known[1] >= before
    assert barriers.waits(5, 2, 0, 1)  # the next phase


def test_bytes_count_beside_arrivals() -> None:
    parts = Parts()
    parts.init(1)
    parts.barriers.arrive(1, 1, 0, 128)
    assert parts.barriers.waits(1, 2, 0, 0)
    parts.barriers.bytes_come(1, 3, 0, 128, 0, parts.threads.clock([1]))
    assert not parts.barriers.waits(1, 2, 0, 0)


def test_initialization() -> None:
    parts = Parts()
    barriers = parts.barriers
    assert fault(lambda: barriers.arrive(0, 1, 0), FaultKind.LIFE) == "an mbarrier is used before it is initialized"
    for count in (0, MOST_PENDING + 1):
        assert fault(lambda count=count: barriers.initialize(0, 1, 0, count), FaultKind.COUNT) == f"an mbarrier that counts {count} arrivals"
    barriers.initialize(0, 1, 0, 1)
    assert fault(lambda: barriers.initialize(1, 1, 0, 1), FaultKind.LIFE) == "an mbarrier is initialized twice"
    assert fault(lambda: barriers.arrive(1, 2, 0), FaultKind.LIFE).startswith("nothing orders the initialization")
    barriers.arrive(0, 2, 0)  # its own
    assert fault(lambda: barriers.used_by_engine(0, 2, 0), FaultKind.LIFE).startswith("the initializer of this mbarrier has not fenced it")


def test_an_arrival_too_many() -> None:
    """The arrivals of one phase: of the next ones nobody knows that the phase before is complete."""
    parts = Parts()
    parts.init(1)
    parts.barriers.arrive(1, 1, 0)
    reason = fault(lambda: parts.barriers.arrive(2, 1, 0), FaultKind.PHASE)
    assert reason == "an arrival of phase 1 may come before phase 0 is complete"
    assert not parts.barriers.waits(2, 1, 0, 0)
    parts.barriers.arrive(2, 1, 0)


def test_a_wait_that_may_pass_in_the_phase_before() -> None:
    parts = Parts()
    parts.init(1)
    barriers = parts.barriers
    for t in (1, 2):
        barriers.waits(t, 1, 0, t - 1)
        barriers.arrive(1, 1, 0)
        parts.threads.learn(1, parts.threads.base[1])
        barriers.waits(1, 1, 0, t - 1)
    assert fault(lambda: barriers.waits(9, 2, 0, 1), FaultKind.PHASE).startswith("a wait for phase 1 may pass early")


def test_a_phase_that_may_be_over_before_a_wait() -> None:
    """Thread 5 has passed phase 0, and nobody waits for it before phase 1 is complete."""
    parts = Parts()
    parts.init(1)
    barriers = parts.barriers
    barriers.arrive(1, 1, 0)
    assert not barriers.waits(1, 1, 0, 0)
    assert not barriers.waits(5, 1, 0, 0)
    assert fault(lambda: barriers.arrive(1, 2, 0), FaultKind.PHASE) == "phase 1 may complete before a wait for phase 0 is over"


def test_strange_numbers() -> None:
    parts = Parts()
    parts.init(1)
    assert fault(lambda: parts.barriers.waits(0, 1, 0, 2), FaultKind.PHASE) == "the parity 2"
    assert fault(lambda: parts.barriers.arrive(0, 1, 0, -1), FaultKind.COUNT) == "-1 bytes cannot be expected"
    assert fault(lambda: parts.barriers.arrive(0, 1, 0, MOST_PENDING + 1), FaultKind.COUNT)


# -- barriers -----------------------------------------------------------------------------------------------------------------------------


def all_but_one(meets: Callable[[int], bool], threads: range) -> None:
    assert all(meets(t) for t in threads[:-1])
    assert not meets(threads[-1])


def test_a_barrier_of_the_block() -> None:
    parts = Parts(block_threads=64)
    before = parts.threads.own[3]
    all_but_one(lambda t: parts.barriers.barrier(("block", 0), t, 1, 64), range(64))
    assert sorted(parts.woken) == [*range(63)]
    assert parts.threads.base[60].known[3] >= before


def test_one_warp_at_two_barriers_of_the_block() -> None:
    parts = Parts(block_threads=64)
    for t in range(63):
        parts.barriers.barrier(("block", 0), t, t // 16, 64)
    assert fault(lambda: parts.barriers.barrier(("block", 0), 63, 3, 64), FaultKind.PARTIAL) == "threads of one warp are at different barriers of the block"


@pytest.mark.parametrize(
    ("number", "expected", "reason"),
    [
        (0, 32, "there is no named barrier 0"),
        (16, 32, "there is no named barrier 16"),
        (1, 33, "a named barrier of 33 threads"),
        (1, 0, "a named barrier of 0 threads"),
        (1, 96, "a named barrier of 96 threads"),
    ],
)
def test_named_barriers_that_there_are_not(number: int, expected: int, reason: str) -> None:
    parts = Parts(block_threads=64)
    assert fault(lambda: parts.barriers.named(0, 1, number, expected), FaultKind.COUNT) == reason


def test_who_comes_to_a_named_barrier_expects_as_many() -> None:
    parts = Parts(block_threads=64)
    assert parts.barriers.named(0, 1, 3, 64)
    assert fault(lambda: parts.barriers.named(1, 1, 3, 32), FaultKind.COUNT) == "32 threads at a barrier where others expect 64"


def test_a_warp_meets_without_those_that_have_exited() -> None:
    parts = Parts(block_threads=40)
    assert list(parts.barriers.lanes(35)) == [*range(32, 40)]
    assert all(parts.barriers.warp_barrier(t, 1) for t in range(32, 39))
    parts.barriers.exits(39)
    assert sorted(parts.woken) == [*range(32, 39)]
    assert not Parts(block_threads=1).barriers.warp_barrier(0, 1)


# -- counters and semaphores --------------------------------------------------------------------------------------------------------------


def test_an_acquire_waits_for_releases_and_learns_from_them() -> None:
    parts = Parts()
    barriers = parts.barriers
    assert not barriers.acquires(9, "s", 0)
    assert barriers.acquires(9, "s", 2)
    before = parts.threads.own[0]
    barriers.release(0, "s")
    assert parts.woken == []
    barriers.release(1, "s")
    assert parts.woken == [9]
    assert not barriers.acquires(9, "s", 2)
    assert parts.threads.base[9].known[0] >= before


def test_an_acquire_learns_of_the_first_releases_alone() -> None:
    parts = Parts()
    barriers = parts.barriers
    for t in range(3):
        barriers.release(t, "s")
    for releases in (3, 1, 2):  # in any order
        t = 10 + releases
        assert not barriers.acquires(t, "s", releases)
        assert [parts.threads.base[t].known[u] > 0 for u in range(3)] == [u < releases for u in range(3)]


def test_rounds_of_a_counter() -> None:
    parts = Parts()
    assert [parts.barriers.arrive_at_counter(t, "g", 2) for t in range(5)] == [2, 2, 4, 4, 6]
