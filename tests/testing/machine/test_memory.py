"""Cells: accesses that nothing orders, and writes that no fence shows to engines."""

from taskfuse.testing.machine.fault import FaultKind
from taskfuse.testing.machine.memory import MachineOperation
from tests.testing.machine.machines import Parts, fault


def test_reads_never_race_and_who_wrote_may_read() -> None:
    parts = Parts()
    for t in range(4):
        parts.memory.read(t, 7, 0)
    parts.memory.write(5, 8, 0)
    parts.memory.read(5, 8, 1)
    parts.memory.write(5, 8, 2)


def test_a_write_that_nothing_orders() -> None:
    parts = Parts()
    parts.memory.write(0, 7, 3)
    assert fault(lambda: parts.memory.read(1, 7, 4), FaultKind.RACE) == "nothing orders a write and a read of one element; the other is statement 3"
    assert fault(lambda: parts.memory.write(1, 7, 4), FaultKind.RACE) == "nothing orders two writes of one element; the other is statement 3"
    parts.synchronize([0, 1])
    parts.memory.read(1, 7, 4)
    assert fault(lambda: parts.memory.write(2, 7, 5), FaultKind.RACE).startswith("nothing orders two writes")


def test_a_read_that_nothing_orders() -> None:
    parts = Parts()
    parts.memory.read(0, 7, 3)
    assert fault(lambda: parts.memory.write(1, 7, 4), FaultKind.RACE).startswith("nothing orders a read and a write")
    parts.memory.write(0, 7, 5)  # its own


def test_other_cells_are_nobodys_business() -> None:
    parts = Parts()
    parts.memory.write_all(0, range(4), 1)
    parts.memory.write_all(1, range(4, 8), 1)
    assert fault(lambda: parts.memory.read_all(2, range(3, 5), 2), FaultKind.RACE)


def operation(parts: Parts, t: int, *, generic: bool = False) -> MachineOperation:
    return parts.memory.operation(parts.threads.clock([t]), t, 9, generic=generic)


def test_an_engine_sees_what_was_fenced_before_it_began() -> None:
    parts = Parts()
    fences = parts.threads.shared_fences
    parts.memory.write(0, 7, 1)
    early = operation(parts, 0)
    assert fault(lambda: parts.memory.engine_reads(early, [7], fences), FaultKind.PROXY) == "no proxy fence of the writer stands behind statement 1"
    parts.fence(0)
    parts.memory.engine_reads(operation(parts, 0), [7], fences)
    assert fault(lambda: parts.memory.engine_writes(operation(parts, 1), [7], fences), FaultKind.RACE)  # nothing orders the write and its start


def test_asynchronous_copies_of_threads_need_no_fence() -> None:
    parts = Parts()
    parts.memory.write(0, 7, 1)
    parts.memory.engine_reads(operation(parts, 0, generic=True), [7], [])


def test_what_an_engine_writes_is_ordered_for_who_knows_that_it_is_done() -> None:
    parts = Parts()
    op = operation(parts, 0)
    parts.memory.engine_writes(op, [7], parts.threads.shared_fences)
    assert fault(lambda: parts.memory.read(0, 7, 2), FaultKind.RACE)  # also for who issued it
    parts.threads.finish(0, 3 << op.bit)
    parts.memory.read(0, 7, 2)


def test_what_an_engine_reads_may_be_written_when_it_has_read() -> None:
    parts = Parts()
    op = operation(parts, 0)
    parts.memory.engine_reads(op, [7], parts.threads.shared_fences)
    assert fault(lambda: parts.memory.write(0, 7, 2), FaultKind.RACE)
    parts.threads.finish(0, 1 << op.read_bit)
    parts.memory.write(0, 7, 2)


def test_a_copy_is_seen_by_an_engine_behind_a_wait_and_a_fence() -> None:
    parts = Parts()
    fences = parts.threads.shared_fences
    copy = operation(parts, 0, generic=True)
    parts.memory.engine_writes(copy, [7], [])
    parts.threads.finish(0, 3 << copy.bit)
    assert fault(lambda: parts.memory.engine_reads(operation(parts, 0), [7], fences), FaultKind.PROXY).startswith("a copy that its issuer has not waited for")
    copy.waited = parts.threads.own[0]
    assert fault(lambda: parts.memory.engine_reads(operation(parts, 0), [7], fences), FaultKind.PROXY).startswith("no proxy fence")
    parts.fence(0)
    parts.memory.engine_reads(operation(parts, 0), [7], fences)


def test_a_slot_is_filled_again_when_its_reads_and_its_last_fill_are_over() -> None:
    parts = Parts(blocks=2, slots=1, clusters=True)
    fences = parts.threads.shared_fences
    load = operation(parts, 0)
    parts.memory.engine_writes(load, [7], fences, fills=True)
    parts.threads.finish(64, 3 << load.bit)
    parts.memory.read(64, 7, 1)
    parts.threads.learn(0, parts.threads.ended(parts.threads.merged([parts.threads.publish(64)])))  # as by an arrival at the scope of the block
    parts.memory.engine_writes(operation(parts, 0), [7], fences, fills=True)
    assert fault(lambda: parts.memory.read(0, 7, 2), FaultKind.RACE)
    parts.memory.read_all(64, [8], 1)
    parts.threads.learn(0, parts.threads.ended(parts.threads.merged([parts.threads.publish(64)])))
    assert fault(lambda: parts.memory.engine_writes(operation(parts, 0), [8], fences), FaultKind.RACE)  # but nothing else
    assert fault(lambda: parts.memory.write(0, 8, 2), FaultKind.RACE)
