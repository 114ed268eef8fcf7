"""Behavior of kernels: what all interleavings show, and what eight of them do."""

import numpy as np
import pytest

from taskfuse.errors import SimulationError
from taskfuse.ir.values import MODULAR
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.sim import simulate
from taskfuse.testing.launches import Ending, Launches, LongRun, Oracle, RefusedLaunch, key
from taskfuse.testing.outcomes import Truth, explored, filled, is_valid, misbehaves, no_verdict, other_words

X = np.arange(4, dtype=np.float32)
EXCHANGE = """\
KERNEL k(x: float32[4]) -> (y: float32[4])
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  SHARED s: float32[4] align 4 @ 0

s[threadIdx.x] = copy(x[threadIdx.x])
SYNC block
y[threadIdx.x] = copy(s[3 - threadIdx.x])
"""
RACE = EXCHANGE.replace("SYNC block\n", "")
UNWRITTEN = EXCHANGE.replace("s[threadIdx.x] = copy(x[threadIdx.x])\n", "IF threadIdx.x > 0:\n  s[threadIdx.x] = copy(x[threadIdx.x])\n")
WAITS = "IF threadIdx.x == 0:\n  INIT m[0] count 9\nSYNC block\nWAIT m[0] parity 0\n"
DEADLOCK = EXCHANGE.replace("  SHARED", "  MBARRIER m[1]\n  SHARED").replace("SYNC block\n", WAITS)


def of(text: str) -> Kernel:
    return parse_kernel(text)


def test_valid_kernels() -> None:
    assert is_valid(of(EXCHANGE))
    assert not is_valid(of(EXCHANGE.replace("s[3 - threadIdx.x]", "s[3, 0]")))


@pytest.mark.parametrize(("text", "truth"), [(EXCHANGE, Truth.HOLDS), (RACE, Truth.FAILS), (DEADLOCK, Truth.FAILS)])
def test_all_interleavings(text: str, truth: Truth) -> None:
    assert explored(of(text), [X]).truth is truth


def test_few_states_decide_nothing() -> None:
    assert explored(of(EXCHANGE), [X], limit=2).truth is Truth.CUT


def test_unwritten_memory_is_no_race() -> None:
    assert explored(of(UNWRITTEN), [X]).truth is Truth.HOLDS
    assert misbehaves(of(UNWRITTEN), [X]) is None


@pytest.mark.parametrize(("text", "reason"), [(RACE, ""), (DEADLOCK, "deadlock")])
def test_eight_interleavings(text: str, reason: str) -> None:
    found = misbehaves(of(text), [X])
    assert found is not None
    assert reason in found


def test_other_words() -> None:
    wanted = simulate(of(EXCHANGE), [X], values=MODULAR)
    assert other_words(of(EXCHANGE), [X], wanted) is None
    assert other_words(of(EXCHANGE.replace("3 - threadIdx.x", "threadIdx.x")), [X], wanted) == "other words"
    found = other_words(of(UNWRITTEN), [X], wanted)
    assert found is not None
    assert "uninitialized" in found
    again = of(EXCHANGE.replace("s[threadIdx.x] = copy", "FOR i in 0..99:\n  s[threadIdx.x] = copy"))
    assert other_words(again, [X], wanted) is None
    with pytest.raises(LongRun):
        other_words(again, [X], wanted, most=9)


def test_filled_memory_is_filled_once() -> None:
    twin = filled(of(UNWRITTEN), 3)
    assert twin is not None
    assert filled(twin) is None
    assert simulate(twin, [X])[0].tolist() == [3.0, 2.0, 1.0, 3.0]
    with pytest.raises(SimulationError, match="uninitialized"):
        simulate(of(UNWRITTEN), [X])


CLUSTER = """\
KERNEL k(x: float32[2, 4]) -> (y: float32[2, 4])
  GRID (2, 1, 1)  BLOCK (4, 1, 1)  CLUSTER (2, 1, 1)
  CLUSTER s: float32[2, 4] align 4 @ 0

IF threadIdx.x > 0:
  s[clusterIdx.x, threadIdx.x] = copy(x[blockIdx.x, threadIdx.x])
SYNC cluster
y[blockIdx.x, threadIdx.x] = copy(s[1 - clusterIdx.x, threadIdx.x])
SYNC cluster
"""


def test_each_block_of_a_cluster_fills_its_own_part() -> None:
    """The others may not have begun."""
    twin = filled(of(CLUSTER), 3)
    assert twin is not None
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert simulate(twin, [x])[0].tolist() == [[3.0, 5.0, 6.0, 7.0], [3.0, 1.0, 2.0, 3.0]]


def test_runs_are_counted_by_ending() -> None:
    launches = Launches()
    assert misbehaves(of(EXCHANGE), [X], launches=launches) is None
    assert launches == {key(Oracle.SIMULATOR, Ending.DECIDED): 8}


def test_errors_that_say_nothing_of_a_kernel() -> None:
    assert isinstance(no_verdict("k: 2048 threads per block; a block has at most 1024"), RefusedLaunch)
    assert isinstance(no_verdict("k: more than 20 steps"), LongRun)
    assert no_verdict("k: deadlock") is None
