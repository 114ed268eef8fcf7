"""A kernel as a Python generator that one thread executes."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from taskfuse.kir import parse_kernel
from taskfuse.kir.nodes import For
from taskfuse.testing.machine.python_kernel import PythonKernel, compiled

HEAD = """\
KERNEL k(x: float32[64], i: int32[64]) -> (y: float32[64])
  DIM N
  GRID (1, 1, 1)  BLOCK (64, 1, 1)
  LOCAL r: float32[4]
  SHARED s: float32[64] align 16 @ 0
  MBARRIER b[2]
  SEMAPHORE g[4] count 3

"""


class Machine:
    """Notes what it is told. ``answers``: what calls give back, one after another."""

    fine = False

    def __init__(self, answers: dict[str, list[Any]]) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        if name in ("memory", "barriers", "engines", "launch", "semaphores"):
            return self

        def call(*args: Any, **named: Any) -> Any:
            self.said.append((name, *args, *named.values()))
            left = self.answers.get(name, [])
            return left.pop(0) if left else False

        return call

    def __getitem__(self, key: str | int) -> Any:
        found: dict[str | int, Any] = {"g": ((4,), 3), 0: (4,), 1: 3}
        return found[key]  # type of key: a name, or what is asked of it

    @property
    def threads(self) -> int:
        return 64

    @property
    def blocks(self) -> int:
        return 1


def run(body: str, t: int = 3, *, answers: dict[str, list[Any]] | None = None, **extents: int) -> tuple[list[tuple[Any, ...]], int]:
    """What a thread tells the machine, without the numbers of thread and statement; how often it sleeps."""
    code = compiled(parse_kernel(HEAD + body.strip("\n") + "\n"))
    scope: dict[str, Any] = {"entry": operator.getitem}
    exec(code.code, scope)
    scope |= {name: extents[symbol] for symbol, name in code.symbols.items() if symbol in extents}
    for number in range(5):
        scope |= {f"B{number}": 1000 * number, f"E{number}_0": 64}
    machine = Machine(answers or {})
    sleeps = sum(1 for _ in scope["thread"](machine, t, 0, 0, 10, 0, 0, 0, 0, 0, 0, t, 0, 0))
    return machine.said, sleeps


def names(body: str, t: int = 3, **extents: int) -> list[str]:
    return [call[0] for call in run(body, t, answers=None, **extents)[0]]


def test_a_computation_reads_and_writes() -> None:
    said, sleeps = run("s[threadIdx.x] = add(y[threadIdx.x], x[threadIdx.x])")
    assert [call[:3] for call in said] == [("read", 3, (2000 + 12) // 4), ("write", 3, (4000 + 12) // 4)]  # of an input nobody asks
    assert sleeps == 0


def test_loops_count_their_steps() -> None:
    assert names("FOR k in 0..N:\n  s[k] = copy(1.0)", N=3) == ["write", "step"] * 3
    assert names("FOR k in 0..N:\n  s[k] = copy(1.0)", N=0) == []
    assert names("FOR k in 0..4 step N:\n  s[k] = copy(1.0)", N=2) == ["write", "step"] * 2


def test_a_step_that_does_not_go_on_is_told() -> None:
    class Endless(Exception):
        pass

    def told(self: Machine, *args: Any) -> None:
        raise Endless

    machine = type("M", (Machine,), {"endless": told})
    code = compiled(parse_kernel(HEAD + "FOR k in 0..4 step N:\n  s[k] = copy(1.0)\n"))
    scope: dict[str, Any] = {name: 0 for symbol, name in code.symbols.items() if symbol == "N"}
    scope |= {f"{letter}{n}{rest}": 64 for n in range(5) for letter, rest in (("B", ""), ("E", "_0"))}
    exec(code.code, scope)
    with pytest.raises(Endless):
        list(scope["thread"](machine({}), 0, 0, 0, 0, *[0] * 9))


def test_a_branch_is_taken_by_who_meets_its_condition() -> None:
    text = "IF threadIdx.x < 3:\n  s[0] = copy(1.0)\nELSE:\n  SYNC warp"
    assert names(text, t=2) == ["write"]
    assert names(text, t=3) == ["warp_barrier"]


def test_a_choice_reads_one_operand_and_does_not_ask_for_the_last() -> None:
    text = "s[0] = cat(y[0] if threadIdx.x < 3, y[1] if threadIdx.x >= 3)"
    for t, element in ((0, 0), (5, 1)):
        said, _ = run(text, t=t)
        assert [call[2] for call in said if call[0] == "read"] == [(2000 + 4 * element) // 4]


def test_a_gather_reads_what_is_inside() -> None:
    text = "GATHER s[0] <- y[v] at v = i[0] of 64"
    for value, read in ((5, True), (-1, False), (64, False)):
        said, _ = run(text, answers={"anything": [value]})
        assert any(call[0] == "read" for call in said) is read
        assert said[-1][0] == "write"


def test_waits_sleep_until_they_pass() -> None:
    said, sleeps = run("WAIT b[1] parity 0", answers={"waits": [True, True, False]})
    assert sleeps == 2
    assert {call[1:] for call in said} == {(3, 0, 11, 0, False)}  # the place of the mbarrier: that of the block, and 1
    _, once = run("SYNC block", answers={"barrier": [True]})
    assert once == 1  # a barrier is not asked again


def test_semaphores() -> None:
    said, _ = run("RELEASE g[2]\nACQUIRE g[2] phases N", N=2)
    assert said[0] == ("release", 3, ("g", 2))
    assert said[1] == ("acquires", 3, ("g", 2), 6)  # phases of 3 releases


@pytest.mark.parametrize(("advance", "place"), [(1, (1, 0, 0)), (2, (0, 1, 1)), (5, (1, 0, 2)), (-1, (-1, 0, 0)), (-2, (0, 1, -1))])
def test_cursors_advance_as_c_divides(advance: int, place: tuple[int, int, int]) -> None:
    """Quotients are rounded to zero."""
    code = "c = CURSOR(slots 2, slot 0, parity 0)\nc.advance(N)\ny[c.slot + 8] = copy(1.0)\ny[c.parity + 16] = copy(1.0)\ny[c.phase + 24] = copy(1.0)"
    said, _ = run(code, N=advance)
    slot, parity, phase = (call[2] - 500 for call in said if call[0] == "write")
    assert (slot - 8, (parity - 16) & 1, phase - 24) == (place[0], place[1] & 1, place[2])


def test_copies_and_queues() -> None:
    text = "COPY.async s[4*threadIdx.x] <- y[4*threadIdx.x] width 4 if threadIdx.x < N\nCOMMIT copy\nWAIT_GROUP copy <= 1\nARRIVE.async b[0]"
    said, _ = run(text, N=9)
    assert [call[0] for call in said] == ["copy", "commit", "wait_for_copies", "arrive_after_copies"]
    assert (said[0][3], said[0][4]) == (range(1012, 1016), range(512, 516))
    assert said[1] == ("commit", 3, False)
    assert said[2] == ("wait_for_copies", 3, 1)
    said, _ = run(text, N=0)
    assert said[0][4] == ()  # it writes zeros, and reads nothing


def test_statements_are_numbered_in_the_order_of_the_text() -> None:
    found: PythonKernel = compiled(parse_kernel(HEAD + "FOR k in 0..N:\n  s[k] = copy(1.0)\nSYNC block\n"))
    assert isinstance(found.sites[0], For)
    assert [type(s).__name__ for s in found.sites] == ["For", "Compute", "Barrier"]
    assert set(found.lines) == {-1, 0, 1, 2}
    assert (found.shared_cell, found.global_cell) == (4, 16)
