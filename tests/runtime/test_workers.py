"""Processes that compile fusions: the executables, the errors; they stay for the next ones; few fusions stay here."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.runtime.proof import Standing
from taskfuse.runtime.workers import FEWEST, compiled_elsewhere, start, stop

ARGUMENTS = {"backend": "sim", "cache": False, "target": "H100"}


def compiled(fusions: Sequence[tf.Fusion], arguments: Mapping[str, Any] = ARGUMENTS, processes: int = 2) -> list[Any]:
    """What the processes answer."""
    return [answer.result(60) for answer in compiled_elsewhere(fusions, arguments, processes)]


def fusion(shift: float, ok: bool = True) -> tf.Fusion:
    with tf.Fusion("f") as made:
        x = tf.define_tensor([4], name="x")
        if ok:
            made.add_output(x + shift)
    return made


def test_executables_and_errors_come_back() -> None:
    fusions = [fusion(1.0), fusion(2.0), fusion(3.0, ok=False)]
    first, second, third = compiled(fusions)
    assert first(np.zeros(4, np.float32))[0][0] == 1
    assert second(np.zeros(4, np.float32))[0][0] == 2
    assert isinstance(third, TaskfuseError)


def test_symbolic_extents_come_with_what_a_call_is_expected_to_need() -> None:
    """The schedule is for the expected sizes, and a call with them finds its specialization."""
    with tf.Fusion("f") as made:
        made.add_output(tf.define_tensor(["N"], name="x") + 1.0)
    (answer,) = compiled_elsewhere([made], ARGUMENTS, 2, fewest=1, sizes=[{"N": 1 << 20}])
    run = answer.result(60)
    (special,) = run.specializations
    assert special.facts[0].multiple_of == 4
    assert run.at({"N": 1 << 20}) is special.run


def test_few_fusions_are_compiled_here() -> None:
    assert compiled([fusion(1.0)] * (FEWEST - 1), {}, 8) == [None] * (FEWEST - 1)
    assert compiled([fusion(1.0)] * FEWEST, {}, 1) == [None] * FEWEST


def test_a_fusion_that_others_will_follow_is_compiled_elsewhere() -> None:
    (answer,) = compiled_elsewhere([fusion(1.0)], ARGUMENTS, 2, fewest=1)
    assert answer.result(60)(np.zeros(4, np.float32))[0][0] == 1


def test_executables_come_as_texts() -> None:
    """The caller parses no body of a kernel; the schedule is what the cache of decisions keeps of one."""
    first, _ = compiled([fusion(1.0), fusion(2.0)])
    assert first.standing is Standing.PROVED
    assert not first._kernel.body
    assert first.schedule.scheduler == "pointwise"
    assert first.kernel.body


def test_many_fusions_for_few_processes() -> None:
    made = compiled([fusion(float(k)) for k in range(5)])
    assert [run(np.zeros(4, np.float32))[0][0] for run in made] == list(range(5))


def test_processes_stay_and_know_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = start(2)
    assert pool is not None
    assert start(2) is pool
    assert start(1) is None
    arguments = {"backend": "sim", "target": "H100"}
    monkeypatch.setenv("TASKFUSE_CACHE_BYTES", "of the test")
    found = compiled([fusion(1.0), fusion(2.0)], arguments)
    assert ["TASKFUSE_CACHE_BYTES" in str(error) for error in found] == [True, True]
    monkeypatch.undo()
    assert all(callable(run) for run in compiled([fusion(1.0), fusion(2.0)], arguments))
    assert start(2) is pool


FORKED = """
import os, signal
from taskfuse.runtime.proof import Standing
from taskfuse.runtime.workers import start, stop
pool = start(2)
ours, theirs = os.pipe()
child = os.fork()
if not child:
    os.write(theirs, b"other" if start(2) is not pool else b"same")
    signal.pause()
print(os.read(ours, 9).decode())
stop()  # the child still has all that the caller had open
print(os.waitpid(child, os.WNOHANG), pool.is_alive)
os.kill(child, signal.SIGKILL)
"""


def test_a_process_that_is_forked_of_the_caller_has_processes_of_its_own_and_does_not_hold_the_others() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("other\n(0, 0) False\n", "")


def test_results_that_cannot_be_read_are_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(stream: object) -> object:
        raise AttributeError("no such class")

    monkeypatch.setattr("taskfuse.runtime.workers.pickle.load", load)
    assert compiled([fusion(1.0), fusion(2.0)], {"backend": "sim"}) == [None, None]


def test_a_process_that_ends_leaves_its_fusion_to_the_caller() -> None:
    """A keyword that is no string is no error of taskfuse: the processes end."""
    fusions = [fusion(float(k)) for k in range(4)]
    options: Any = {"backend": "sim", 1: 1}
    assert compiled(fusions, options) == [None] * 4


def test_they_end() -> None:
    pool = start(2)
    assert pool is not None
    stop()
    assert not pool.is_alive


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
def test_as_many_as_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that may use one core of many compiles by itself."""
    monkeypatch.setattr(os, "cpu_count", lambda: 64)

    def one(_: int) -> set[int]:
        return {3}

    monkeypatch.setattr(os, "sched_getaffinity", one)
    assert start() is None
