"""The steps of lowering: the list that ARCHITECTURE.md has, the text after each, and the rules of the plan between them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import taskfuse as tf
from examples import founding, stream
from taskfuse import ParallelType as P
from taskfuse.errors import TaskfuseError, VerifyError
from taskfuse.ir.scalar import lt, sym
from taskfuse.kir.synchronization import CursorInit, Wait
from taskfuse.kir.walk import expressions
from taskfuse.lowering import lower
from taskfuse.lowering.plan import PGuard, PLoop, PNode, PStmt, PSync, children
from taskfuse.lowering.plan_rules import verify_plan
from taskfuse.lowering.plan_text import changes, plan_texts, state_text
from taskfuse.lowering.state import LoweringOptions, State
from taskfuse.lowering.steps import STEPS, Step

ROOT = Path(__file__).parents[2]
NAMES = [step.name for step in STEPS]


def test_architecture_lists_them() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| ", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    assert rows == [(step.name, step.summary) for step in STEPS]


@pytest.mark.parametrize("step", STEPS, ids=NAMES)
def test_a_step_says_what_it_requires_and_ensures(step: Step) -> None:
    assert step.summary
    assert step.name in ("prepare", "drop-single-trips", "simplify-guards") or {"Requires:", "Ensures:"} <= set((step.change.__doc__ or "").split())


def test_a_step_without_what_it_requires_says_so() -> None:
    state = State(founding.build(), LoweringOptions())
    with pytest.raises(AttributeError, match="tree"):
        next(s for s in STEPS if s.name == "ranges").run(state)


@pytest.mark.parametrize("build", [founding.build, stream.build], ids=["founding", "stream"])
def test_texts(build: Callable[[], tf.Fusion]) -> None:
    texts: dict[str, str] = {}
    fusion = build()
    kernel = tf.lower(fusion)
    assert lower(fusion, after=lambda step, state: texts.update({step.name: state_text(state)})) == kernel
    assert list(texts) == NAMES
    assert texts[NAMES[-1]] == str(kernel)
    assert "WAIT" not in texts["nest"]
    assert "WAIT" in texts["endpoints"]
    assert " @ " not in texts["unroll"]
    assert " @ " in texts["layout"]
    for before, name in pairwise(NAMES):
        assert plan_texts(fusion, name) == (texts[before], texts[name])


def test_what_a_step_changes() -> None:
    before, after = plan_texts(founding.build(), "endpoints")
    added = [line[1:].strip() for line in changes(before, after).splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert "WAIT ch0.full[ch0.c.slot] parity ch0.c.parity" in added
    assert not [line for line in changes(before, after).splitlines() if line.startswith("-") and not line.startswith("---")]
    assert changes(after, after) == "nothing changed"


def test_there_is_no_such_step() -> None:
    with pytest.raises(TaskfuseError, match=r"no step 'nets'\nhelp: use one of prepare, order"):
        plan_texts(founding.build(), "nets")


# -- the rules ----------------------------------------------------------------------------------------------------------------------


def planned(until: str = "notes") -> State:
    """The state of a pipeline after a step."""
    state = State(stream.build(), LoweringOptions())
    for step in STEPS[: NAMES.index(until) + 1]:
        step.run(state)
    return state


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


def test_a_loop_variable_outside_of_its_loop() -> None:
    plan = planned().plan
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


def test_a_plan_is_verified_after_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def sabotage(state: State) -> None:
        state.plan.append(next(n for _, n in nodes(state.plan) if isinstance(n, PStmt) and n.stmt and any(e.free for a in n.writes for e in a.index)))

    broken = tuple(replace(s, change=sabotage) if s.name == "copies" else s for s in STEPS)
    monkeypatch.setattr(sys.modules["taskfuse.lowering.steps"], "STEPS", broken)
    fusion = stream.build()
    with pytest.raises(VerifyError, match="plan after step copies: "):
        tf.lower(fusion)
