"""Vector clocks: who knows what of whom."""

from taskfuse.testing.machine.threads import Clock, MachineThreads, joined


def knows(threads: MachineThreads, t: int, other: int, epoch: int) -> bool:
    return threads.base[t].known[other] >= epoch


def test_nobody_knows_anybody_at_first() -> None:
    threads = MachineThreads(3, 1)
    assert not knows(threads, 0, 1, threads.own[1])
    assert len(threads.base[0].known) == 7  # memory, control, an mbarrier


def test_who_meets_knows_what_was_done_before_and_nothing_since() -> None:
    threads = MachineThreads(3, 0)
    before = threads.own[1]
    threads.synchronize([0, 1])
    assert knows(threads, 0, 1, before)
    assert not knows(threads, 0, 1, threads.own[1])
    assert not knows(threads, 2, 1, before)
    threads.synchronize([0, 2])
    assert knows(threads, 2, 1, before)  # what the other knew


def test_what_is_published_is_learned_by_who_waits() -> None:
    threads = MachineThreads(2, 0)
    before = threads.own[0]
    clock = threads.clock([0])
    assert threads.own[0] == before + 1
    threads.learn(1, clock)
    assert knows(threads, 1, 0, before)
    assert not knows(threads, 1, 0, threads.own[0])
    assert threads.base[1].known[2] == before  # control, too


def test_passing_together_is_control_and_no_memory() -> None:
    threads = MachineThreads(2, 0)
    before = threads.own[1]
    threads.pass_together([0, 1])
    assert not knows(threads, 0, 1, before)
    assert threads.base[0].known[2 + 1] >= before
    assert threads.own[1] == before + 1


def test_a_join_knows_what_any_knows() -> None:
    found = joined([Clock([1, 5], 1), Clock([4, 2], 2)])
    assert (found.known, found.done) == ([4, 5], 3)
    one = Clock([1, 1])
    assert joined([one, one]) is one


def test_what_is_merged_belongs_to_nobody_else() -> None:
    threads = MachineThreads(2, 0)
    made = threads.merged([threads.publish(0)], done=4)
    assert made.known is not threads.base[0].known
    assert made.done == 4
    assert made.known[0] == 1


def test_finished_operations() -> None:
    threads = MachineThreads(2, 0)
    base = threads.base[1]
    threads.finish(0, 6)
    assert threads.base[0].done == 6
    assert threads.base[1] is base
    same = threads.base[0]
    threads.finish(0, 2)
    assert threads.base[0] is same


def test_what_several_threads_know_is_what_each_knows() -> None:
    threads = MachineThreads(3, 0)
    threads.synchronize([0, 1])
    base = threads.base[0]
    assert threads.common([0, 1]) is base  # nobody's own last epoch
    threads.finish(0, 6)
    threads.finish(1, 2)
    assert threads.common([0, 1]).done == 2
    assert threads.common([0, 2]).known == [0] * 6


def test_what_has_happened_need_not_be_visible() -> None:
    threads = MachineThreads(2, 1, clusters=True)
    before = threads.own[0]
    clock = threads.merged([threads.publish(0)], done=4)
    assert threads.reads == 5
    control, ended = threads.control(clock), threads.ended(clock)
    assert (control.known, control.done, control.over) == ([0, 0, before, 0, 0, 0, 0], 0, 0)
    assert (ended.known, ended.done, ended.over) == ([0, 0, before, 0, 0, before, 0], 0, 4)
