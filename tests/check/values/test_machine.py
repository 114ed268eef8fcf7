"""One legal run: every thread executes what it would alone, in the order of its text, however threads part and meet again."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from taskfuse.check.refuted import Refuted, WorkBudget
from taskfuse.check.values.barriers import LaunchBarriers
from taskfuse.check.values.lanes import ExecutedLanes, ExecutedLaunch
from taskfuse.check.values.machine import LaunchExecution
from taskfuse.ir.scalar import evaluate
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.kir.nodes import Compute, For, If, Stmt

HEAD = "KERNEL k() -> (y: float32[1])\n  GRID (2, 1, 1)  BLOCK ({block}, 1, 1)\n  LOCAL r: float32[64]\n\n"
INDICES = ("threadIdx.x", "blockIdx.x")


def trace(kernel: Kernel, *, apart: bool = False) -> dict[tuple[int, int], list[int]]:
    """The registers that each thread of each block writes, one after another."""
    launch = ExecutedLaunch(kernel, {})
    found: dict[tuple[int, int], list[int]] = {(b, t): [] for b in range(launch.blocks) for t in range(launch.threads)}

    def execute(stmt: Stmt, lanes: ExecutedLanes) -> None:
        assert isinstance(stmt, Compute)
        for number, k in zip(lanes.ids.tolist(), np.broadcast_to(lanes.values(stmt.out.index[0]), len(lanes.ids)).tolist(), strict=True):
            found[divmod(number, launch.per)].append(k)

    LaunchExecution(kernel, launch, LaunchBarriers(kernel, launch, {}), WorkBudget(10**6, 10**9), execute, lambda _: apart).run()
    return found


def alone(body: tuple[Stmt, ...], env: dict[str, int]) -> Iterator[int]:
    """What one thread writes that goes through the text by itself."""
    for s in body:
        match s:
            case For(var=var, start=start, stop=stop, step=step, body=inner):
                for value in range(*(int(evaluate(e, env)) for e in (start, stop, step))):
                    yield from alone(inner, {**env, var: value})
            case If(branches=branches):
                arm = next((b for b in branches if evaluate(b.cond, env)), None)
                yield from alone(arm.body, env) if arm is not None else ()
            case Compute(out=out):
                yield int(evaluate(out.index[0], env))
            case _:
                pass


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Loops and arms whose bounds and conditions depend on the thread, with barriers between some of them at the outermost level."""
    lines: list[str] = []
    conditions = ("threadIdx.x < 3", "threadIdx.x % 2 == 0", "blockIdx.x == 1", "i0 < threadIdx.x", "i0 + i1 == 2", "threadIdx.x == 0")
    stops = ("2", "threadIdx.x", "blockIdx.x + 1", "3 - threadIdx.x", "i0", "0")

    def block(indent: str, names: tuple[str, ...]) -> None:
        for _ in range(draw(st.integers(1, 2))):
            match draw(st.sampled_from(["for", "if", "set"] if len(indent) < 6 else ["set"])):
                case "for" if len(names) < 2:
                    name = f"i{len(names)}"
                    stop = draw(st.sampled_from([s for s in stops if "i0" not in s or names]))
                    lines.append(f"{indent}FOR {name} in {draw(st.integers(0, 1))}..{stop}:")
                    block(indent + "  ", (*names, name))
                case "if":
                    usable = [c for c in conditions if all(n in names for n in ("i0", "i1") if n in c)]
                    lines.append(f"{indent}IF {draw(st.sampled_from(usable))}:")
                    block(indent + "  ", names)
                    if draw(st.booleans()):
                        lines.append(f"{indent}ELSE IF {draw(st.sampled_from(usable))}:")
                        block(indent + "  ", names)
                    if draw(st.booleans()):
                        lines.append(f"{indent}ELSE:")
                        if draw(st.booleans()):
                            block(indent + "  ", names)
                        else:
                            lines.append(f"{indent}  PASS")
                case _:
                    place = "".join(f"{weight}*{name} + " for name, weight in zip(names, (100, 1000), strict=False))  # says the iteration
                    lines.append(f"{indent}r[{place}{len(lines)}] = copy(0.0)")

    for _ in range(draw(st.integers(1, 3))):
        block("", ())
        if draw(st.booleans()):
            lines.append("SYNC block")
    return HEAD.format(block=5) + "\n".join(lines) + "\n"


@settings(max_examples=20)
@given(texts(), st.booleans())
@example(HEAD.format(block=5) + "FOR i0 in 0..2:\n  FOR i1 in 0..threadIdx.x:\n    r[100*i0 + 1000*i1] = copy(0.0)\n", True)
@example(HEAD.format(block=5) + "FOR i0 in 0..2:\n  IF i0 == 2:\n    PASS\n  ELSE:\n    FOR i1 in 0..3:\n      r[100*i0 + 1000*i1] = copy(0.0)\n", True)
def test_a_thread_does_what_it_does_alone(text: str, apart: bool) -> None:
    kernel = parse_kernel(text)
    for (b, t), wrote in trace(kernel, apart=apart).items():
        assert wrote == list(alone(kernel.body, {"blockIdx.x": b, "threadIdx.x": t}))


def test_the_first_arm_that_holds() -> None:
    arms = ("IF threadIdx.x < 1:", "ELSE IF threadIdx.x < 3:", "ELSE IF threadIdx.x < 2:", "ELSE:")
    text = "".join(f"{arm}\n  r[{k}] = copy(0.0)\n" for k, arm in enumerate(arms))
    found = trace(parse_kernel(HEAD.format(block=4) + text))
    assert [found[0, t] for t in range(4)] == [[0], [1], [1], [3]]


def test_nobody_passes_a_barrier_before_all_have_come() -> None:
    order: list[int] = []
    text = HEAD.format(block=4) + "IF threadIdx.x == 0:\n  FOR i in 0..3:\n    r[i] = copy(0.0)\nSYNC block\nr[9] = copy(0.0)\n"
    kernel = parse_kernel(text)
    launch = ExecutedLaunch(kernel, {})

    def execute(stmt: Stmt, lanes: ExecutedLanes) -> None:
        assert isinstance(stmt, Compute)
        order.extend(np.unique(lanes.values(stmt.out.index[0])).tolist())

    LaunchExecution(kernel, launch, LaunchBarriers(kernel, launch, {}), WorkBudget(10**6, 10**9), execute, lambda _: False).run()
    assert order[-1] == 9
    assert order.count(9) == 1
    assert set(order[:-1]) == {0, 1, 2}


STUCK = {
    "some never come": ("IF threadIdx.x < 2:\n  SYNC block\n", "no thread can continue"),
    "a part of a warp": ("IF threadIdx.x < 16:\n  SHUFFLE r[0] <- r[1] xor 1\n", "a part of a warp executes it"),
}


@pytest.mark.parametrize("name", STUCK)
def test_who_waits_for_ever(name: str) -> None:
    body, reason = STUCK[name]
    with pytest.raises(Refuted) as caught:
        trace(parse_kernel(HEAD.format(block=32) + body))
    assert caught.value.reason == reason
    assert caught.value.notes


def test_cursors_go_round() -> None:
    text = HEAD.format(block=1) + "c = CURSOR(slots 3, slot 1, parity 0)\nFOR i in 0..4:\n  r[c.slot*10 + c.parity*100 + c.phase] = copy(0.0)\n  c.advance(2)\n"
    kernel = parse_kernel(text.replace("float32[64]", "float32[400]"))
    assert trace(kernel)[0, 0] == [10, 101, 121, 12]
