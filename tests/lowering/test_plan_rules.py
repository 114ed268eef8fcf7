"""Rules of the plan between two steps."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

import taskfuse as tf
from examples import stream
from taskfuse import ParallelType as P
from taskfuse.errors import VerifyError
from taskfuse.ir.scalar import const, lt, sym
from taskfuse.kir.synchronization import CursorInit, Wait
from taskfuse.kir.walk import expressions
from taskfuse.lowering.plan import PGuard, PLoop, PNode, PStmt, PSync, children
from taskfuse.lowering.plan_rules import verify_plan
from taskfuse.lowering.state import State
from taskfuse.lowering.steps import STEPS
from tests.lowering.stepped import state_after


def planned(until: str = "notes") -> State:
    """The state of a pipeline after a step."""
    return state_after(stream.build(), until)


def nodes(plan: list[PNode]) -> Iterator[tuple[list[PNode], PNode]]:
    """All nodes with the blocks that hold them."""
    for n in plan:
        yield plan, n
        for block in children(n):
            yield from nodes(block)


def refused(plan: list[PNode]) -> str:
    """Why a plan breaks a rule."""
    with pytest.raises(VerifyError) as caught:
        verify_plan(plan, "sabotage")
    return str(caught.value)


def test_a_loop_variable_outside_its_loop() -> None:
    plan = planned("nest").plan
    loops = [n for _, n in nodes(plan) if isinstance(n, PLoop)]
    loop, user = next((n, s) for n in loops for _, s in nodes(n.body) if isinstance(s, PStmt) and any(n.var in e.free for e in expressions(s.stmt)))
    plan.append(user)
    assert f"uses {loop.var} outside its loop" in refused(plan)


def test_a_local_index_of_another_task() -> None:
    plan = planned("nest").plan
    tasks = {n.task.name: n for _, n in nodes(plan) if isinstance(n, PStmt)}
    one, other = sorted(tasks)[:2]
    tasks[one].guards = (lt(sym(f"at.TIDx.{other}"), 3),)
    assert f"in task {one} uses at.TIDx.{other}, a local index of another task" in refused(plan)


def test_a_wait_under_a_guard_of_threads() -> None:
    plan = planned().plan
    block, wait = next((b, n) for b, n in nodes(plan) if isinstance(n, PSync) and any(isinstance(s, Wait) for s in n.stmts))
    at = block.index(wait)
    block[at] = PGuard(lt(sym(P.TIDx.index_name), 5), [wait])
    assert "a wait or a barrier stands under threadIdx.x < 5, which depends on threadIdx.x" in refused(plan)
    block[at] = PGuard(lt(sym(P.BIDx.index_name), 5), [wait])
    verify_plan(plan, "sabotage")


def test_a_cursor_before_its_beginning() -> None:
    plan = planned().plan
    block, init = next((b, n) for b, n in nodes(plan) if isinstance(n, PSync) and any(isinstance(s, CursorInit) for s in n.stmts))
    assert isinstance(init, PSync)
    block.remove(init)
    block.append(init)
    name = next(s.name for s in init.stmts if isinstance(s, CursorInit))
    assert re.search(rf"uses {re.escape(name)}\.\w+ before the cursor is initialized|{re.escape(name)} is advanced before it is initialized", refused(plan))


def test_a_cursor_of_another_block() -> None:
    """What one arm of a dispatch initializes is not initialized in the next one, nor after a loop that may have no trips."""
    plan = planned().plan
    block, init = next((b, n) for b, n in nodes(plan) if isinstance(n, PSync) and any(isinstance(s, CursorInit) for s in n.stmts))
    assert isinstance(init, PSync)
    at = block.index(init)
    name = next(s.name for s in init.stmts if isinstance(s, CursorInit))
    block[at] = PLoop("once", const(1), False, [init])
    assert re.search(rf"{re.escape(name)}\S* (before the cursor|is advanced before it) is initialized", refused(plan))
    block[at] = init
    verify_plan(plan, "sabotage")


def test_a_plan_is_verified_after_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def sabotage(state: State) -> None:
        state.plan.append(next(n for _, n in nodes(state.plan) if isinstance(n, PStmt) and n.stmt and any(e.free for a in n.writes for e in a.index)))

    broken = tuple(replace(s, change=sabotage) if s.name == "copies" else s for s in STEPS)
    monkeypatch.setattr(sys.modules["taskfuse.lowering.steps"], "STEPS", broken)
    fusion = stream.build()
    with pytest.raises(VerifyError, match="plan after step copies: "):
        tf.lower(fusion)
