"""The engines of a block: commit queues, and Shared memory as they see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from taskfuse.kir.operands import Queue
from taskfuse.sim.block import Block
from taskfuse.sim.engines import Claim, Engines, Fifo, OperationState, wait
from taskfuse.sim.fault import Fault
from taskfuse.sim.memory import Region
from tests.sim.kernels import X, kernel
from tests.sim.machines import Launched


@dataclass(eq=False)
class Operation:
    """An operation in a queue."""

    progress: OperationState = OperationState.ISSUED
    waited: list[tuple[list[int], OperationState]] = field(default_factory=list[tuple[list[int], OperationState]])

    def holds(self, owner: int) -> bool:
        return True

    def waited_for(self, owners: Sequence[int], wanted: OperationState) -> None:
        self.waited.append(([*owners], wanted))


def queue(*batches: list[Operation], owner: int = 7) -> Fifo:
    found = Fifo(owner)
    for batch in batches:
        found.open += batch
        found.commit()
    return found


# -- queues -------------------------------------------------------------------------------------------------------------------------------


def test_a_commit_closes_the_batch() -> None:
    one, two = Operation(), Operation()
    found = queue([one], [])
    found.open.append(two)
    assert found.batches == [[one], []]  # an empty batch is one
    assert list(found.operations()) == [one, two]


@pytest.mark.parametrize(("pending", "covered"), [(0, 3), (1, 2), (3, 0), (5, 0)])
def test_all_but_the_last_batches_are_waited_for(pending: int, covered: int) -> None:
    found = queue(*([Operation()] for _ in range(3)))
    assert len(found.covered(pending)) == covered


def test_a_wait_passes_when_what_it_covers_is_done() -> None:
    old, young = Operation(OperationState.SOURCE_READ), Operation()
    found = queue([old], [young])
    assert not wait([found], 1, OperationState.DONE, None)
    assert old.waited == []
    assert wait([found], 1, OperationState.SOURCE_READ, None)
    assert old.waited == [([7], OperationState.SOURCE_READ)]
    assert len(found.batches) == 2  # it is not done: a later wait asks again
    old.progress = OperationState.DONE
    assert wait([found], 1, OperationState.DONE, None)
    assert old.waited[-1] == ([7], OperationState.DONE)
    assert found.batches == [[young]]
    assert young.waited == []


def test_queues_whose_operations_are_done_have_waited_though_another_has_not() -> None:
    done, open_ = Operation(OperationState.DONE), Operation()
    queues = [queue([done], owner=1), queue([open_], owner=2), queue([done], owner=3)]
    assert not wait(queues, 0, OperationState.DONE, None)
    assert (done.waited, open_.waited) == ([([1, 3], OperationState.DONE)], [])
    assert [len(q.batches) for q in queues] == [0, 1, 0]


def test_open_operations_are_not_waited_for() -> None:
    found = queue()
    found.open.append(Operation())
    assert wait([found], 0, OperationState.DONE, None)


# -- a block ------------------------------------------------------------------------------------------------------------------------------


BODY = """
y[threadIdx.x] = copy(0.0)
s[threadIdx.x] = copy(x[threadIdx.x])
SYNC block
y[threadIdx.x] = copy(s[threadIdx.x])
COPY.async s[threadIdx.x] <- x[threadIdx.x] width 1
COMMIT copy
WAIT_GROUP copy <= 0
"""


def engines(steps: int = 2) -> tuple[Engines, Block, Region]:
    """The engines of a block whose threads have written Shared memory, without a fence."""
    found = Launched(kernel(BODY, "SHARED s: float32[32] align 16 @ 64"), [X]).take(*[0] * steps)
    (block,) = found.blocks
    region = next(r for r in block.memory.regions if r.name == "s")
    return block.engines, block, region


def test_byte_addresses_are_of_the_buffer() -> None:
    found, _, region = engines()
    assert region.origin == 64
    index = found.index(region, np.array([64, 68]))
    assert index[1] - index[0] == region.step
    for address, byte in ((60, -4), (64 + 128, 128)):
        with pytest.raises(Fault, match="Shared 's' accessed out of bounds") as caught:
            found.index(region, np.array([64, address]))
        assert caught.value.notes == (f"byte {byte} of 128",)


def test_what_a_thread_wrote_is_visible_behind_its_fence() -> None:
    found, block, region = engines()
    addresses = 64 + 4 * np.arange(32)
    with pytest.raises(Fault, match=r"missing fence\.proxy\.async: Shared 's' was written by a thread") as caught:
        found.claim(region, addresses)
    assert caught.value.help == "the writer must execute fence.proxy.async after the write and before it publishes it"
    found.fence(block.machine.table.span(0, 31))  # all but the last
    found.claim(region, addresses[:31]).drop()
    with pytest.raises(Fault, match="missing fence"):
        found.claim(region, addresses)
    found.fence(block.machine.table.span(31, 32))
    found.claim(region, addresses).drop()


def test_a_claim_keeps_writers_away_until_it_is_dropped() -> None:
    found, block, region = engines()
    found.fence(block.machine.table.span(0, 32))
    claim = found.claim(region, 64 + 4 * np.arange(4))
    assert isinstance(claim, Claim)
    readers = found.proxy(region).readers
    assert readers[claim.index].tolist() == [1] * 4
    assert readers.sum() == 4
    claim.drop()
    assert readers.sum() == 0


def test_elements_are_gathered_as_they_lie_if_somebody_wrote_them() -> None:
    found, block, region = engines()
    found.fence(block.machine.table.span(0, 32))
    assert found.gather(region, 64 + 4 * np.array([3, 1, 31])).tolist() == [3.0, 1.0, 31.0]
    fresh, other, region = engines(steps=1)
    with pytest.raises(Fault, match="read of uninitialized Shared 's'"):
        fresh.gather(region, 64 + 4 * np.arange(2))
    assert len(fresh.gather(region, 64 + 4 * np.arange(2), np.zeros(2, np.bool_))) == 2  # nobody needs them
    assert other.number == 0


def test_who_exits_has_waited() -> None:
    found, block, _ = engines()
    table = block.machine.table
    found.fifo(Queue.COPY, 5).open.append(Operation())
    found.leave(table.span(0, 5))
    with pytest.raises(Fault, match="thread exits with an asynchronous copy that was never waited for") as caught:
        found.leave(table.span(5, 32))
    assert caught.value.thread == 5


def test_the_queue_of_wgmma_is_a_warps() -> None:
    found, block, _ = engines()
    found.fifo(Queue.WGMMA, 0).open.append(Operation())
    with pytest.raises(Fault, match="thread exits with a wgmma that was never waited for"):
        found.leave(block.machine.table.span(31, 32))


def test_the_last_threads_leave_no_load_behind() -> None:
    found, block, _ = engines()
    found.loads = 2
    found.leave(block.machine.table.span(0, 31))
    with pytest.raises(Fault, match="the block exits while 2 TMA loads are in flight"):
        found.leave(block.machine.table.span(0, 32))


def test_a_queue_is_its_owners() -> None:
    found, _, _ = engines()
    one = found.fifo(Queue.BULK, 3)
    assert found.fifo(Queue.BULK, 3) is one
    assert found.fifo(Queue.COPY, 3) is not one
    assert found.fifo(Queue.BULK, 4) is not one
