"""Where threads of a run wait: phases of mbarriers, meetings of barriers, counts of semaphores; blocks of a cluster reach each other."""

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest

from taskfuse.check.refuted import Refuted
from taskfuse.check.values.barriers import LaunchBarriers
from taskfuse.check.values.lanes import ExecutedLanes, ExecutedLaunch, ExecutionFrame
from taskfuse.ir.scalar import const
from taskfuse.ir.types import ParallelType
from taskfuse.kir import Kernel, parse_kernel, walk
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.synchronization import Acquire, Arrive, Barrier, Expect, InitBarrier, Release, Wait

T = TypeVar("T", bound=Stmt)

TEXT = """\
KERNEL k() -> (y: float32[1])
  GRID (4, 1, 1)  BLOCK (64, 1, 1)  CLUSTER (2, 1, 1)
  MBARRIER m[2]
  SEMAPHORE q[2] count 2

IF threadIdx.x == 0:
  INIT m[0] count 64
  INIT m[1] count 1
SYNC block
ARRIVE m[0]
WAIT m[0] parity 0
EXPECT m[1] bytes 32
WAIT m[1] parity 0
SYNC named 1, 32
SYNC cluster
RELEASE q[blockIdx.x//2]
ACQUIRE q[blockIdx.x//2] phases 1
"""


def run() -> tuple[Kernel, ExecutedLaunch, LaunchBarriers]:
    kernel = parse_kernel(TEXT)
    launch = ExecutedLaunch(kernel, {})
    return kernel, launch, LaunchBarriers(kernel, launch, {})


def threads(launch: ExecutedLaunch, *ids: int) -> ExecutedLanes:
    return ExecutedLanes(launch, np.array(ids), {}, [ExecutionFrame((), 0, "")])


def one(kernel: Kernel, kind: type[T], k: int = 0) -> T:
    return [s for s in walk(kernel) if isinstance(s, kind)][k]


def every(found: Any) -> bool:
    return bool(np.all(found))


def initialized() -> tuple[Kernel, ExecutedLaunch, LaunchBarriers]:
    kernel, launch, barriers = run()
    first = threads(launch, *(64 * b for b in range(4)))
    for k in range(2):
        barriers.act(one(kernel, InitBarrier, k), first)
    return kernel, launch, barriers


def test_an_mbarrier_completes_when_all_have_arrived() -> None:
    kernel, launch, barriers = initialized()
    wait, arrive = one(kernel, Wait), one(kernel, Arrive)
    here = threads(launch, *range(64))
    barriers.act(arrive, threads(launch, *range(63)))
    assert not every(barriers.ready(wait, here))
    barriers.act(arrive, threads(launch, 63))
    assert every(barriers.ready(wait, here))
    assert not every(barriers.ready(wait, threads(launch, 64)))  # that of another block
    barriers.act(arrive, here)
    assert not every(barriers.ready(wait, here))  # the next phase: the other parity


def test_bytes_hold_a_phase_open() -> None:
    kernel, launch, barriers = initialized()
    expect, wait = one(kernel, Expect), one(kernel, Wait, 1)
    lane = threads(launch, 0)
    barriers.act(expect, lane)
    assert not every(barriers.ready(wait, lane))
    cells = barriers.cells(lane, expect.barrier)
    barriers.loaded(cells, 16)
    assert not every(barriers.ready(wait, lane))
    barriers.loaded(cells, 16)
    assert every(barriers.ready(wait, lane))


def test_before_it_is_initialized() -> None:
    kernel, launch, barriers = run()
    with pytest.raises(Refuted, match="used before it is initialized"):
        barriers.act(one(kernel, Arrive), threads(launch, 0))


def test_slots_that_there_are_not() -> None:
    kernel, launch, barriers = initialized()
    slot = one(kernel, Wait).barrier
    for k in (-1, 2):
        with pytest.raises(Refuted, match=f"it has no slot {k}"):
            barriers.cells(threads(launch, 0), replace(slot, slot=const(k)))


@pytest.mark.parametrize(
    ("k", "some", "others", "elsewhere"),
    [(0, range(40), range(40, 64), range(64, 128)), (1, range(16), range(16, 32), range(64, 80)), (2, range(64), range(64, 128), range(128, 192))],
    ids=["block", "named", "cluster"],
)
def test_a_meeting_needs_all_of_it(k: int, some: range, others: range, elsewhere: range) -> None:
    kernel, launch, barriers = run()
    sync = one(kernel, Barrier, k)
    first, second, third = (threads(launch, *ids) for ids in (some, others, elsewhere))
    barriers.arrive(sync, first)
    barriers.arrive(sync, third)
    assert not every(barriers.ready(sync, first))
    barriers.arrive(sync, second)
    assert every(barriers.ready(sync, first))
    assert every(barriers.ready(sync, second))
    barriers.arrive(sync, second)  # the next meeting
    assert not every(barriers.ready(sync, second))
    assert every(barriers.ready(sync, first))


def test_a_semaphore_counts_releases_of_all_blocks_that_share_it() -> None:
    kernel, launch, barriers = run()
    release, acquire = one(kernel, Release), one(kernel, Acquire)
    barriers.act(release, threads(launch, 0))
    assert not every(barriers.ready(acquire, threads(launch, 64)))
    barriers.act(release, threads(launch, 64))
    assert every(barriers.ready(acquire, threads(launch, 64)))
    assert not every(barriers.ready(acquire, threads(launch, 128)))


def test_the_blocks_that_a_block_reaches() -> None:
    _, _, barriers = run()
    assert barriers.reached((ParallelType.CIDx,)).tolist() == [[0, 1], [0, 1], [2, 3], [2, 3]]


@pytest.mark.parametrize("number", [0, 16, 40])
def test_there_are_fifteen_named_barriers(number: int) -> None:
    kernel, launch, barriers = run()
    sync = replace(next(s for s in walk(kernel) if isinstance(s, Barrier) and s.id is not None), id=const(number))
    with pytest.raises(Refuted, match=f"there is no barrier {number}: ids are 1 to 15"):
        barriers.arrive(sync, threads(launch, *range(32)))
