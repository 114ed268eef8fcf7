"""Processes that compile fusions: the executables, the errors; they stay for the next ones; few fusions stay here."""

import subprocess
import sys

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.runtime.workers import FEWEST, compiled_elsewhere, start, stop


def fusion(shift: float, ok: bool = True) -> tf.Fusion:
    with tf.Fusion("f") as made:
        x = tf.define_tensor([4], name="x")
        if ok:
            made.add_output(x + shift)
    return made


def test_executables_and_errors_come_back() -> None:
    fusions = [fusion(1.0), fusion(2.0), fusion(3.0, ok=False)]
    first, second, third = compiled_elsewhere(fusions, {"backend": "sim", "cache": False, "target": "H100"}, 2)
    assert first(np.zeros(4, np.float32))[0][0] == 1
    assert second(np.zeros(4, np.float32))[0][0] == 2
    assert isinstance(third, TaskfuseError)


def test_few_fusions_are_compiled_here() -> None:
    assert compiled_elsewhere([fusion(1.0)] * (FEWEST - 1), {}, 8) == [None] * (FEWEST - 1)
    assert compiled_elsewhere([fusion(1.0)] * FEWEST, {}, 1) == [None] * FEWEST


def test_many_fusions_for_few_processes() -> None:
    made = compiled_elsewhere([fusion(float(k)) for k in range(5)], {"backend": "sim", "cache": False, "target": "H100"}, 2)
    assert [run(np.zeros(4, np.float32))[0][0] for run in made] == list(range(5))


def test_processes_stay_and_know_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = start(2)
    assert pool is not None
    assert start(2) is pool
    assert start(1) is None
    arguments = {"backend": "sim", "target": "H100"}
    monkeypatch.setenv("TASKFUSE_CACHE_BYTES", "of the test")
    found = compiled_elsewhere([fusion(1.0), fusion(2.0)], arguments, 2)
    assert ["TASKFUSE_CACHE_BYTES" in str(error) for error in found] == [True, True]
    monkeypatch.undo()
    assert all(callable(run) for run in compiled_elsewhere([fusion(1.0), fusion(2.0)], arguments, 2))
    assert start(2) is pool


FORKED = """
import os, signal
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
    assert compiled_elsewhere([fusion(1.0), fusion(2.0)], {"backend": "sim"}, 2) == [None, None]


def test_a_process_that_ends_leaves_its_fusion_to_the_caller() -> None:
    """An argument that ``taskfuse.compile`` does not have is no error of taskfuse: the processes end."""
    fusions = [fusion(float(k)) for k in range(4)]
    assert compiled_elsewhere(fusions, {"backend": "sim", "unknown": 1}, 2) == [None] * 4


def test_they_end() -> None:
    pool = start(2)
    assert pool is not None
    stop()
    assert not pool.is_alive
