"""Vector clocks: components, and what an operation comes after."""

from taskfuse.check.clocks import Clocks
from taskfuse.check.refuted import WorkBudget
from taskfuse.check.trace import Trace
from taskfuse.kir.operands import Queue
from tests.sim.kernels import kernel

COPY = """
COPY.async s[threadIdx.x] <- x[threadIdx.x] width 1
COMMIT copy
WAIT_GROUP copy <= 0
y[threadIdx.x] = copy(s[threadIdx.x])
"""


def launched() -> Clocks:
    k = kernel(COPY, "SHARED s: float32[4] align 16 @ 0", inputs="x: float32[4]", outputs="y: float32[4]", block="(4, 1, 1)")
    return Clocks(k, [Trace(k, {}, (0, 0, 0), WorkBudget())])


def test_each_queue_has_a_component() -> None:
    time = launched()
    assert (time.size, time.per) == (4, 4)
    assert [time.engines[t, Queue.COPY] for t in range(4)] == [4, 5, 6, 7]
    assert time.owners == [0, 1, 2, 3, 0, 1, 2, 3]
    assert time.copies == {4, 5, 6, 7}
    assert not time.stores
    assert (time.unit(3, 2), time.leader(3)) == (1, 0)


def test_an_operation_comes_after_what_its_thread_did() -> None:
    time = launched()
    assert time.tick(2) == 1
    clock = time.fork(2, 6)
    assert (clock[2], clock[6]) == (2, 1)
    assert time.clocks[2, 6] == 0  # the thread has not waited for it
