"""Planted faults: what the proof accepts behaves in every interleaving, and what it refuses, it refuses for a reason."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import taskfuse as tf
from examples import stream
from taskfuse.check import Verdict, verify
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.testing import faults
from taskfuse.testing.mutations import Operator
from taskfuse.testing.operators import OPERATORS
from taskfuse.testing.outcomes import is_valid, misbehaves

TESTS = Path(__file__).parent.parent
X = np.random.default_rng(0)
ARGUMENTS: dict[str, list[npt.NDArray[Any]]] = {
    "ring": [X.normal(size=(5, 32)).astype(np.float32)],
    "double": [X.normal(size=(16, 32)).astype(np.float32)],
    "exchange": [X.normal(size=(3, 4, 32)).astype(np.float32)],
    "rotate": [X.normal(size=(3, 32)).astype(np.float32)],
    "async_ring": [X.normal(size=(9, 32)).astype(np.float32)],
    "async_tile": [X.normal(size=(5, 32)).astype(np.float32)],
    "ahead": [X.normal(size=(5, 32)).astype(np.float32)],
    "blocks": [X.normal(size=(2, 5, 4)).astype(np.float32)],
    "stream": [X.normal(size=(13, 12)).astype(np.float32)],
    "share": [X.normal(size=(5, 4, 32)).astype(np.float32)],
}
BUILT: dict[str, Callable[[], tf.Fusion]] = {"stream": lambda: stream.build(blocks=2, rows=4, columns=32, warps=1, stages=2)}
TRIED = {
    "ahead": (
        "drop wait_group",
        "wait for one less",
        "wait_group later",
        "drop commit",
        "commit later",
        "copy later",
        "drop warp barrier",
        "barrier later",
        "drop advance",
        "one slot less in a cursor",
        "write the next slot",
        "one trip less",
        "drop guard",
    ),
    "stream": (
        "drop proxy fence",
        "proxy fence later",
        "wait_group later",
        "wait for sources only",
        "commit later",
        "wait later",
        "barrier later",
        "barrier earlier",
    ),
    "share": ("drop cluster barrier", "arrive at one block only", "count one block of a cluster", "slot empty in one block", "barrier earlier"),
    "blocks": (
        "flip parity",
        "drop acquire",
        "acquire later",
        "drop barrier after acquire",
        "release earlier",
        "warp barrier for a larger one",
        "advance earlier",
    ),
}


@cache
def kernel(name: str) -> Kernel:
    if name in BUILT:
        return tf.lower(BUILT[name]())
    path = TESTS / "kernels" / f"{name}.kir"
    return parse_kernel((path if path.exists() else TESTS / "goldens" / "examples" / f"{name}.kir").read_text(encoding="utf-8"))


def mutants(op: Operator, name: str) -> Iterator[Kernel]:
    return (m for m in op.apply(kernel(name)) if is_valid(m))


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_is_proved_behaves(name: str) -> None:
    proved = [(op.name, m) for op in OPERATORS if op.name in TRIED.get(name, (op.name,)) for m in mutants(op, name) if verify(m).is_proved]
    assert [(what, found) for what, m in proved if (found := misbehaves(m, ARGUMENTS[name])) is not None] == []


def test_every_operator_plants_something() -> None:
    hosts = ("stream", "share", "ahead", "ring", "async_ring", "double", "exchange", "rotate", "gemm", "pipeline", "horizontal_fusion", "blocks", "meet")
    silent = {op.name for op in OPERATORS if all(next(mutants(op, h), None) is None for h in hosts)}
    # no example has a distributed ring, a shuffle, boxes that are combined, or copies across two types of blocks
    assert silent <= {"turn to instance 0", "shuffle in half a warp", "store a box that is to be combined", "reach fewer blocks"}


WRONG = {
    "ring": (
        "drop arrive", "repeat arrive", "arrive at slot 0", "drop wait", "flip parity", "cursor starts anew", "drop advance", "advance by one more",
        "one slot more in a cursor", "one slot less in a cursor", "count one more", "count one less", "drop init", "drop barrier after init", "arrive earlier",
        "block barrier inside a role", "role begins one thread early", "one trip more", "write the next slot", "read the next slot",
    ),
    "double": (
        "expect more bytes", "expect fewer bytes", "arrive without bytes", "drop expect", "drop load", "drop proxy fence", "drop wait_group", "wait later",
    ),
    "exchange": ("drop named barrier", "warp barrier for a larger one", "one id for all named barriers", "named barrier of more threads", "barrier later"),
    "rotate": ("drop grid barrier",),
    "share": (
        "drop cluster barrier", "block barrier for the cluster's", "arrive at one block only", "copy to one block only", "count one block of a cluster",
        "slot empty in one block", "drop barrier after init", "expect more bytes", "expect fewer bytes", "arrive earlier", "wait later", "drop wait",
    ),
    "pipeline": ("drop warp barrier", "arrive by all threads", "drop guard", "overlay buffers", "count threads for warps", "arrive much earlier"),
    "stream": (
        "drop proxy fence", "proxy fence later", "drop wait_group", "wait for one less", "wait_group later", "drop commit", "commit later", "expect more bytes",
        "expect fewer bytes", "drop load", "barrier earlier", "one trip less", "drop arrive", "flip parity",
    ),
    "async_ring": (
        "drop async arrive", "repeat async arrive", "arrive at once for copies", "async arrive earlier", "copy later", "copy what is not there", "drop wait",
        "wait later", "count threads for warps", "count one less",
    ),
    "async_tile": ("drop commit", "commit later", "drop wait_group", "wait for one less", "wait_group later", "drop block barrier", "barrier earlier"),
    "gemm": ("wait for one less", "registers of one warpgroup more"),
    "blocks": (
        "drop acquire", "acquire one phase less", "acquire one phase more", "acquire later", "drop barrier after acquire", "drop release", "repeat release",
        "release earlier", "drop barrier before release", "semaphore of one release more", "semaphore of one release less", "all blocks use the first ring",
        "cursor starts anew", "drop advance", "advance by one more", "one slot less in a cursor", "write the next slot", "read the next slot", "one trip more",
        "one trip less", "drop block barrier",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "operator"), [(name, op) for name, ops in WRONG.items() for op in ops])
def test_faults_are_refuted(name: str, operator: str) -> None:
    op = next(op for op in OPERATORS if op.name == operator)
    assert any(verify(m).verdict is Verdict.REFUTED for m in mutants(op, name))


SHUFFLE = """\
KERNEL sums(x: float32[64]) -> (y: float32[64])
  GRID (1, 1, 1)  BLOCK (64, 1, 1)
  LOCAL r: float32[]

r = copy(x[threadIdx.x])
SHUFFLE r <- r xor 16
y[threadIdx.x] = copy(r)
"""


def test_shuffles_are_of_whole_warps() -> None:
    whole = parse_kernel(SHUFFLE)
    verify(whole).require()
    (half,) = next(op for op in OPERATORS if op.name == "shuffle in half a warp").apply(whole)
    assert str(verify(half).failures[0]).startswith("refuted: SHUFFLE: 16 of 32 lanes of a warp reach it")
    first = verify(parse_kernel(SHUFFLE.replace("SHUFFLE r", "FOR i in 0..threadIdx.x:\n  SHUFFLE r"))).failures[0]
    assert first.verdict is Verdict.REFUTED


def test_a_release_after_a_retire_by_others_is_none() -> None:
    text = str(kernel("stream"))
    line = "      WAIT_GROUP bulk.read <= 0\n"
    assert line in text
    verify(parse_kernel(text)).require()
    first = verify(parse_kernel(text.replace(line, "      IF threadIdx.x == 1:\n        WAIT_GROUP bulk.read <= 0\n"))).failures[0]
    assert first.verdict is Verdict.REFUTED


def test_a_fence_behind_the_meeting_is_too_late() -> None:
    text = str(kernel("stream"))
    pair = "    FENCE proxy.async\n    SYNC warp  # before one lane arrives for the warp\n"
    assert pair in text
    late = verify(parse_kernel(text.replace(pair, "".join(reversed(pair.splitlines(keepends=True)))))).failures[0]
    assert late.verdict is Verdict.REFUTED
    assert "without FENCE proxy.async of the writer" in late.reason


def test_a_trailing_cursor_that_runs_ahead_is_not_a_ring() -> None:
    text = str(kernel("gemm")).replace("r.advance(1)", "r.advance(2)", 1)
    assert any("advances by more than one position" in o.reason for o in verify(parse_kernel(text)).argument)


def test_kill_table_in_small(capsys: pytest.CaptureFixture[str]) -> None:
    assert faults.main(["--small", "1", "--cases", "1", "--seed", "16", "--mutants", "1"]) == 0
    assert len(capsys.readouterr().out.strip("\n").split("\n")) == 3 + len(OPERATORS)


def test_a_release_in_a_loop_of_its_own_is_no_trailing_one() -> None:
    text = str(kernel("ring")) + "\n"
    loop = (
        "  FOR k in 0..N:\n    WAIT full[c.slot] parity c.parity\n    y[k, threadIdx.x] = add(s[c.slot, threadIdx.x], 1.0)\n"
        "    ARRIVE empty[c.slot]\n    c.advance(1)\n"
    )
    apart = (
        "  r = CURSOR(slots 2, slot 0, parity 0)\n"
        + loop.replace("    ARRIVE empty[c.slot]\n", "")
        + "  FOR k in 0..N:\n    ARRIVE empty[r.slot]\n    r.advance(1)\n"
    )
    assert loop in text
    first = verify(parse_kernel(text.replace(loop, apart))).failures[0]
    assert first.verdict is Verdict.REFUTED
