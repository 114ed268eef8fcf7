"""Kernel IR as instructions: control flow of threads that part and meet, cursors, and the kernels that are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest

from taskfuse.errors import SimulationError
from taskfuse.ir.values import MODULAR, NATIVE
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.kir.nodes import Bind, For, If, Stmt
from taskfuse.kir.products import Shuffle
from taskfuse.kir.synchronization import Acquire, Advance, Barrier, CursorInit, SetMaxNReg, Wait, WaitGroup
from taskfuse.sim import compiler
from taskfuse.sim.compiler import MEANINGS, compiled
from taskfuse.sim.interleaving import Interleaving
from taskfuse.sim.simulate import simulate
from tests.sim.kernels import INTERLEAVINGS, X, kernel, load


def result(body: str, *declarations: str, interleaving: Interleaving = Interleaving.RANDOM) -> list[float]:
    (y,) = simulate(kernel(body, *declarations), [X], interleaving=interleaving, seed=3)
    return [float(v) for v in y]


def expected(f: Callable[[int], float]) -> list[float]:
    return [float(f(t)) for t in range(32)]


@pytest.mark.parametrize("interleaving", INTERLEAVINGS)
def test_threads_take_the_first_branch_whose_condition_holds(interleaving: Interleaving) -> None:
    text = """
    IF threadIdx.x < 3:
      y[threadIdx.x] = copy(1.0)
    ELSE IF threadIdx.x < 9:
      y[threadIdx.x] = copy(2.0)
    ELSE:
      y[threadIdx.x] = copy(3.0)
    """
    assert result(text, interleaving=interleaving) == expected(lambda t: 1 if t < 3 else 2 if t < 9 else 3)


@pytest.mark.parametrize("interleaving", INTERLEAVINGS)
@pytest.mark.parametrize("waits", ["", "      c = CURSOR(slots 2, slot 0, parity 0)\n"])
def test_branches_in_branches(interleaving: Interleaving, waits: str) -> None:
    """Under a part of the lanes at a time, and, where a cursor moves, by agents of their own."""
    text = f"""
    y[threadIdx.x] = copy(0.0)
    IF threadIdx.x < 16:
      y[threadIdx.x] = copy(1.0)
{waits}      IF threadIdx.x % 2 == 0:
        y[threadIdx.x] = copy(2.0)
    y[threadIdx.x] = add(y[threadIdx.x], 10.0)
    """
    assert result(text, interleaving=interleaving) == expected(lambda t: 10 + (t < 16) * (1 + (t % 2 == 0)))


@pytest.mark.parametrize("waits", ["", "      SYNC warp\n"])
def test_loops_of_as_many_trips_as_a_thread_wants(waits: str) -> None:
    text = f"""
    t = copy(0.0)
    FOR i in threadIdx.x//8..4:
{waits}      t = add(t, 1.0)
    y[threadIdx.x] = copy(t)
    """
    if waits:
        text = text.replace("threadIdx.x//8", "0")
    assert result(text, "LOCAL t: float32[]") == expected(lambda t: 4 if waits else 4 - t // 8)


def test_loops_without_trips_and_with_steps() -> None:
    text = "y[threadIdx.x] = copy(0.0)\nFOR i in {}:\n  y[i] = copy(1.0)"
    assert sum(result(text.format("5..5"))) == 0
    assert sum(result(text.format("7..3"))) == 0
    assert [k for k, v in enumerate(result(text.format("2..9 step 3"))) if v] == [2, 5, 8]


def test_a_loop_that_does_not_go_on() -> None:
    k = kernel("FOR i in 0..4 step N:\n  y[i] = copy(1.0)", "DIM N min 0", inputs="x: float32[32], z: float32[N]")
    with pytest.raises(SimulationError, match="loop over 'i' with step 0"):
        simulate(k, [X, np.zeros(0, np.float32)])


def test_cursors_count_positions() -> None:
    """Slot, parity and phase after some advances, as one number."""
    text = "y[threadIdx.x] = copy(0.0)\nSYNC block\nc = CURSOR(slots 3, slot 1, parity 1)\nc.advance({})\ny[c.slot + 4*c.parity + 8*c.phase] = copy(1.0)"
    for count in (0, 1, 2, 5, 9):
        position = 1 + count
        slot, wraps = position % 3, position // 3
        assert result(text.format(count)).index(1.0) == slot + 4 * (1 ^ wraps & 1) + 8 * wraps


def test_threads_whose_cursors_differ_wait_apart() -> None:
    text = """
    IF threadIdx.x == 0:
      INIT b[0] count 16
      INIT b[1] count 16
    SYNC block
    c = CURSOR(slots 2, slot 0, parity 0)
    c.advance(threadIdx.x // 16)
    ARRIVE b[c.slot]
    WAIT b[c.slot] parity 0
    y[threadIdx.x] = copy(x[threadIdx.x])
    """
    assert result(text, "MBARRIER b[2]") == [float(x) for x in X]


def test_a_kernel_is_compiled_once_for_each_kind_of_values() -> None:
    k = kernel("y[threadIdx.x] = copy(1.0)")
    assert compiled(k, NATIVE) is compiled(k, NATIVE)
    assert compiled(k, MODULAR) is not compiled(k, NATIVE)
    other = kernel("y[threadIdx.x] = copy(1.0)")
    assert other == k
    assert compiled(other, NATIVE) is not compiled(k, NATIVE)  # equal kernels may come from other lines


def test_the_last_kernels_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_CACHED_KERNELS", 2)
    compiler.kept_kernels.clear()
    kernels = [kernel(f"y[threadIdx.x] = copy({k}.0)") for k in range(3)]
    first = compiled(kernels[0], NATIVE)
    compiled(kernels[1], NATIVE)
    assert compiled(kernels[0], NATIVE) is first  # it is the last one now
    compiled(kernels[2], NATIVE)
    assert compiled(kernels[0], NATIVE) is first
    assert {key[0] for key in compiler.kept_kernels} == {id(kernels[0]), id(kernels[2])}


def test_instructions_know_their_statement_and_where_others_may_run() -> None:
    k: Kernel = kernel("IF threadIdx.x < 3:  # first\n  s[threadIdx.x] = copy(1.0)\nSYNC block\ny[threadIdx.x] = copy(1.0)", "SHARED s: float32[32]")
    found = compiled(k, NATIVE)
    assert len(found.code) == len(found.sources) == len(found.labels) == len(found.points)
    assert "first" in found.labels
    assert found.points[-1]  # the end of the kernel
    assert {type(s).__name__ for s, point in zip(found.sources, found.points, strict=True) if point} >= {"Barrier"}


COMPILED = {For, Bind, If, Barrier, Wait, Acquire, CursorInit, Advance, WaitGroup, Shuffle, SetMaxNReg}
"""What waits, parts threads, moves cursors, or does nothing."""


def test_every_statement_has_one_meaning() -> None:
    assert MEANINGS.keys() | COMPILED == set(get_args(Stmt))
    assert not MEANINGS.keys() & COMPILED


def test_what_others_see_is_a_point() -> None:
    """Instructions on elements that others see, and those that synchronize, are points of the interleaving; those on registers are none."""
    code = compiled(parse_kernel(load("gemm")), NATIVE)
    quiet, seen = (
        {type(s).__name__ for s, point in zip(code.sources, code.points, strict=True) if type(s) in MEANINGS and point is which} for which in (False, True)
    )
    assert quiet == {"Compute", "Commit", "WgmmaFence"}  # on registers
    assert {"StMatrix", "TmaLoad", "Wgmma", "Expect", "InitBarrier"} <= seen
