"""Three verdicts on small kernels: what counts as agreement, what the run keeps, and what its generator makes."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from taskfuse.check import Verdict, verify
from taskfuse.kir import Kernel, parse_kernel, walk
from taskfuse.kir.nodes import AtomicUpdate, Bind, Choose, Compute, GatherCopy, Stmt, TmaLoad, VectorCopy
from taskfuse.kir.operands import Access, Descriptor, Queue
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import Arrive, Barrier, BarrierScope, Commit, WaitGroup
from taskfuse.sim import explore
from taskfuse.testing import agreement
from taskfuse.testing.agreement import UNCHANGED, AgreementRow, AgreementTally, case, compare, pattern
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.outcomes import Truth, explored, filled, misbehaves
from taskfuse.testing.small import KINDS, small_kernel

ROW = AgreementRow(0, 0, "pipeline", UNCHANGED, "0", Verdict.PROVED.value, Truth.HOLDS.value, "passes")


def test_a_run_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    assert agreement.main(["--cases", "60", "--seed", "5"]) == 0
    printed = capsys.readouterr().out
    assert "60 different kernels" in printed
    assert " 0 false accepts" in printed


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "new" / "parts"
    assert agreement.main(["--cases", "12", "--log", str(whole)]) == 0
    assert agreement.main(["--cases", "5", "--log", str(parts)]) == 0
    parts.write_text(parts.read_text() + '{"case": 99, "kin')  # killed while it wrote a line
    assert agreement.main(["--cases", "12", "--log", str(parts), "--resume"]) == 0
    assert parts.read_text() == whole.read_text()
    capsys.readouterr()
    assert agreement.main(["--log", str(whole), "--reprove"]) == 0
    assert "12 different kernels" in capsys.readouterr().out


def test_a_log_of_other_kernels_is_not_proved_anew(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert agreement.main(["--cases", "2", "--log", str(log)]) == 0
    log.write_text(log.read_text().replace('"seed": 0, "case": 1', '"seed": 7, "case": 1'))
    with pytest.raises(ValueError, match="case 1 of seed 7 is another kernel"):
        agreement.main(["--log", str(log), "--reprove"])


@pytest.mark.parametrize(
    ("static", "exhaustive", "some", "accept", "reject", "missed"),
    [
        (Verdict.PROVED, Truth.HOLDS, "passes", False, False, False),
        (Verdict.PROVED, Truth.FAILS, "passes", True, False, False),
        (Verdict.PROVED, Truth.CUT, "fails", True, False, False),
        (Verdict.REFUTED, Truth.HOLDS, "passes", False, True, False),
        (Verdict.REFUTED, Truth.HOLDS, "strict", False, True, False),
        (Verdict.REFUTED, Truth.HOLDS, "fails", False, False, True),
        (Verdict.REFUTED, Truth.CUT, "passes", False, False, False),
        (Verdict.OUTSIDE, Truth.FAILS, "fails", False, False, False),
    ],
)
def test_what_counts(static: Verdict, exhaustive: Truth, some: str, accept: bool, reject: bool, missed: bool) -> None:
    row = replace(ROW, static=static.value, exhaustive=exhaustive.value, random=some)
    assert (row.false_accept, row.false_reject, row.missed) == (accept, reject, missed)
    tally = AgreementTally()
    tally.add(row)
    assert (len(tally.accepts), sum(tally.rejects.values()), len(tally.missed)) == (accept, reject, missed)


def test_reasons_are_counted_without_names_and_numbers() -> None:
    assert (
        pattern("s0.full[1]: an arrival of phase 5 may come before phase 4 is complete\nmore") == "_: an arrival of phase _ may come before phase _ is complete"
    )


def test_the_generator_makes_every_kind() -> None:
    made = [small_kernel(RandomChooser(seed)) for seed in range(120)]
    kinds = Counter(s.kind for s in made)
    assert set(kinds) == {"pipeline", "pingpong", "exchange", "handover", "grid", "prefetch", "blocks", "cluster", "product", "warp", "updates"}
    text = "".join(str(s.kernel) for s in made)
    for word in ("<- x.map", "<- s", "on once.full", "SYNC named", "UNROLL", "round.advance", ".r1.advance", "DIM N max 4", ") % 3"):
        assert word in text, word
    for s in made[:40]:
        s.kernel.check_ir()
        assert parse_kernel(str(s.kernel)) == s.kernel


MOVES_DATA = {Bind, Choose, Compute, GatherCopy, AtomicUpdate, VectorCopy}  # at once, by one thread: what orders it are other statements


def synchronizes(s: Stmt) -> object:
    """A statement without its operands."""
    match s:
        case Barrier(scope=scope):
            return scope
        case Commit(queue=queue):
            return Commit, queue
        case WaitGroup(queue=queue, read_only=read_only):
            return WaitGroup, queue, read_only
        case Arrive(across=across) | TmaLoad(across=across):
            return type(s), bool(across)
        case Wgmma(a=a):
            return Wgmma, type(a)
        case _:
            return type(s)


def test_every_statement_that_synchronizes_is_there() -> None:
    made = [make(RandomChooser(seed)).kernel for _, make in KINDS for seed in range(30)]
    found = {synchronizes(s) for kernel in made for s in walk(kernel)}
    every: set[object] = {t for t in get_args(Stmt) if t not in MOVES_DATA} - {Barrier, Commit, WaitGroup, Arrive, TmaLoad, Wgmma}
    every |= {*BarrierScope, *((Commit, q) for q in Queue), *((WaitGroup, q, False) for q in Queue), (WaitGroup, Queue.BULK, True)}
    every |= {(t, across) for t in (Arrive, TmaLoad) for across in (False, True)} | {(Wgmma, Access), (Wgmma, Descriptor)}
    assert every <= found, every - found
    assert any("ARRIVE meet[0]\n  WAIT meet[0] parity m.parity" in str(kernel).replace("    ", "  ") for kernel in made)  # an mbarrier at which threads meet


def test_every_second_kernel_is_a_mutant() -> None:
    made = [case(0, number) for number in range(12)]
    assert [m is None or (m[1] == UNCHANGED) is (k % 2 == 0) for k, m in enumerate(made)] == [True] * 12


RACE = """\
KERNEL small(x: float32[2]) -> (y: float32[2])
  GRID (1, 1, 1)  BLOCK (2, 1, 1)
  LOCAL r: float32[]
  SHARED s: float32[2] align 8

s[threadIdx.x] = copy(x[threadIdx.x])
y[threadIdx.x] = copy(s[1 - threadIdx.x])
"""


def test_what_nobody_wrote_does_not_end_an_exploration() -> None:
    inputs = [np.ones(2, np.float32)]
    unwritten = parse_kernel(RACE.replace("s[threadIdx.x] = copy(x[threadIdx.x])\n", "").replace("s[1 - threadIdx.x]", "r"))
    assert explored(unwritten, inputs).truth is Truth.HOLDS  # it is wrong, but not by its interleaving
    assert misbehaves(unwritten, inputs) is None
    assert explored(parse_kernel(RACE), inputs).truth is Truth.FAILS
    twin = filled(unwritten)
    assert twin is not None
    twin.check_ir()
    assert filled(twin) is None


STORED = """\
KERNEL small(x: float32[32]) -> (y: float32[1, 32])
  TENSORMAP y.map = y box (1, 32) swizzle 0
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[2, 32] align 128

s[0, threadIdx.x] = copy(x[threadIdx.x])
s[1, threadIdx.x] = copy(s[1, threadIdx.x])
FENCE proxy.async
SYNC warp
IF threadIdx.x == 0:
  TMA y.map(0, 0) <- s[0, 0]
  COMMIT bulk
  WAIT_GROUP bulk <= 0
"""


def test_memory_that_is_filled_is_filled_for_engines_too() -> None:
    """A bulk store goes where the fill has stood, in Global memory: of the kernel with filled memory this is not a fault."""
    kernel = parse_kernel(STORED)
    assert verify(kernel).is_proved
    inputs = [np.ones(32, np.float32)]
    assert "uninitialized" in str(explore(kernel, inputs, in_step=16).failure)
    assert explored(kernel, inputs).truth is Truth.HOLDS
    assert explored(parse_kernel(STORED.replace("FENCE proxy.async", "PASS")), inputs).truth is Truth.FAILS


MIXED = """\
KERNEL small(x: float32[32]) -> (y: float32[2, 32])
  GRID (1, 1, 1)  BLOCK (32, 2, 1)
  SHARED s: float32[32] align 16

SYNC named 1, 32
y[threadIdx.y, threadIdx.x] = copy(x[threadIdx.x])
"""


def test_two_warps_that_share_a_barrier_and_no_data() -> None:
    """Whoever makes up its rounds, all ends well. The simulator forbids an arrival of 64 threads at once where 32 are expected."""
    mixed = replace(small_kernel(RandomChooser(0)), kernel=parse_kernel(MIXED), extents=({},))
    row = compare(0, 0, mixed, UNCHANGED, 1000, 1)
    assert (row.static, row.exhaustive, row.random) == (Verdict.OUTSIDE.value, Truth.HOLDS.value, "strict")
    assert not row.missed


@pytest.mark.parametrize(
    ("broken", "tool"), [("proof", "the checker"), ("explored", "exploration"), ("misbehaves", "simulator"), ("find_fault", "second machine")]
)
def test_an_error_of_a_tool_is_a_failure(broken: str, tool: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def failing(*_: object, **__: object) -> None:
        raise KeyError("what")

    monkeypatch.setattr(agreement, broken, failing)
    assert agreement.main(["--cases", "4", "--seed", "5"]) == 1
    printed = capsys.readouterr().out
    assert f"{tool} fails: KeyError: 'what'" in printed
    assert " 0 false accepts" in printed
    assert broken == "proof" or re.search(rf"^{tool} +\d+ +0 +0 +[1-4]$", printed, re.MULTILINE)


def test_launches_are_counted_by_ending() -> None:
    race = replace(small_kernel(RandomChooser(0)), kernel=parse_kernel(RACE), extents=({},))
    assert compare(0, 0, race, UNCHANGED, 1000, 1).launches == {"exploration: decided": 1, "simulator: decided": 8}
    assert compare(0, 0, race, UNCHANGED, 1, 1).launches == {"exploration: too long": 1, "simulator: decided": 8}
    tally = AgreementTally()
    tally.add(replace(ROW, launches={"exploration: too long": 1, "second machine: refused": 2}))
    assert "1 proved, and no launch decided anything" in str(tally)
    assert "second machine           0         0         2         0" in str(tally)


def test_a_hole_in_the_proof_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    race = replace(small_kernel(RandomChooser(0)), kernel=parse_kernel(RACE), extents=({},))
    assert compare(0, 0, race, UNCHANGED, 1000, 1).static == Verdict.REFUTED.value

    def credulous(_: Kernel) -> tuple[str, str]:
        return Verdict.PROVED.value, ""

    monkeypatch.setattr(agreement, "proof", credulous)
    assert compare(0, 0, race, UNCHANGED, 1000, 1).false_accept
