"""Faults and deadlocks of the simulator name the user's line."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import DeadlockError, SimulationError
from taskfuse.ir.scalar import sym
from taskfuse.kir import map_expressions, map_stmts
from taskfuse.kir.nodes import Compute, Stmt
from taskfuse.kir.synchronization import Arrive, Barrier
from tests.lines import pipeline, snippet

X = np.ones((6, 32), np.float32)


def edited(edit: Callable[[Stmt], Stmt | tuple[Stmt, ...]]) -> tf.Kernel:
    kernel = tf.lower(pipeline())
    kernel.simulate(X)
    return replace(kernel, body=map_stmts(kernel.body, edit))


def lines(kernel: tf.Kernel) -> list[str]:
    with pytest.raises(SimulationError) as caught:
        kernel.simulate(X)
    return str(caught.value).split("\n")


def test_a_deadlock_names_the_line_of_each_wait() -> None:
    wrong = edited(lambda s: () if isinstance(s, Arrive) and s.barrier.name.endswith("empty") else s)
    found = lines(wrong)
    with pytest.raises(DeadlockError, match="deadlock: no thread can continue"):
        wrong.simulate(X)
    assert "in load: WAIT ch0.empty[ch0.p.slot] parity ch0.p.parity" in found[1]
    assert found[2:5] == snippet("a = tf.exp(x)", pipeline)
    assert "in use: WAIT ch0.full[ch0.c.slot] parity ch0.c.parity" in found[5]
    assert found[6:] == snippet("a = tf.exp(x)", pipeline)[:1]  # the source was shown above


def test_an_uninitialized_read() -> None:
    found = lines(edited(lambda s: () if isinstance(s, Compute) and s.out.buffer == "tv1" else s))
    assert "read of uninitialized Shared 'tv1'" in found[0]
    assert found[1:4] == snippet("y = a + 1.0", pipeline)


def test_out_of_bounds() -> None:
    def shifted(s: Stmt) -> Stmt:
        return map_expressions(s, lambda e: e + 1 if e is sym("threadIdx.x") else e) if isinstance(s, Compute) and s.out.buffer == "tv2" else s

    found = lines(edited(shifted))
    assert "accessed out of bounds" in found[0]
    assert found[1:4] == snippet("y = a + 1.0", pipeline)


def test_a_race() -> None:
    """Threads that disagree on an element."""

    def together(s: Stmt) -> Stmt:
        return replace(s, out=replace(s.out, index=(s.out.index[0], sym("threadIdx.x") // 2))) if isinstance(s, Compute) and s.out.buffer == "tv2" else s

    found = lines_of(edited(together), np.arange(6 * 32, dtype=np.float32).reshape(6, 32) / 100)
    assert "threads write different values to one element" in found[0]
    assert found[1:4] == snippet("y = a + 1.0", pipeline)


def lines_of(kernel: tf.Kernel, x: np.ndarray) -> list[str]:
    with pytest.raises(SimulationError) as caught:
        kernel.simulate(x)
    return str(caught.value).split("\n")


def test_a_barrier_that_not_all_reach() -> None:
    kernel = tf.lower(pipeline())
    (block,) = (s for s in kernel.body if isinstance(s, Barrier))
    wrong = replace(kernel, body=map_stmts(kernel.body, lambda s: (s, block) if isinstance(s, Arrive) and s.barrier.name.endswith("empty") else s))
    assert snippet("a = tf.exp(x)", pipeline)[0] in lines(wrong)
