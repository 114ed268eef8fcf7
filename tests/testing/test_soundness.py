"""Launches that are too long decide nothing; one that gives other words is a contradiction."""

from dataclasses import replace

import numpy as np
import pytest

from taskfuse.ir.values import MODULAR
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.sim import simulate
from taskfuse.testing import soundness
from taskfuse.testing.case import Case, seeded_case
from taskfuse.testing.checks import CaseProof, CaseStanding
from taskfuse.testing.launches import LongRun
from taskfuse.testing.options import Mix
from taskfuse.testing.outcomes import other_words
from taskfuse.testing.soundness import RESPECIFIED, SoundnessRow, SoundnessTally, contradiction

COUNT = """\
KERNEL count(x: float32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)

FOR k in 0..64:
  y[threadIdx.x] = copy(x[{0}])
"""
X = np.arange(32, dtype=np.float32)


def test_a_long_run_decides_nothing() -> None:
    right, wrong = parse_kernel(COUNT.format("threadIdx.x")), parse_kernel(COUNT.format("31 - threadIdx.x"))
    wanted = simulate(right, (X,), values=MODULAR)
    assert other_words(right, (X,), wanted) is None
    assert other_words(wrong, (X,), wanted) == "other words"
    for kernel in (right, wrong):
        with pytest.raises(LongRun, match="steps"):
            other_words(kernel, (X,), wanted, most=16)


def some_case() -> Case:
    return next(c for c in (seeded_case(k, Mix.SMALL) for k in range(20)) if c.kernel is not None)


def test_launches_are_counted_by_ending() -> None:
    case = some_case()
    assert case.kernel is not None
    done = contradiction([case], case.kernel, 2, 0)
    assert (done.launches, done.failure, done.error) == ({"simulator: decided": 2, "second machine: decided": 1}, "", "")
    done = contradiction([case], case.kernel, 2, 0, most=1)
    assert (done.launches, done.failure, done.error) == ({"simulator: too long": 2, "second machine: decided": 1}, "", "")
    tally = SoundnessTally()
    row = SoundnessRow(0, 0, "small", "kernel", "unchanged", "proved", launches={"simulator: too long": 2, "second machine: refused": 1})
    tally.add(row)
    assert "         1         1         0         2         1         0 small        kernel   proved" in str(tally)
    assert "simulator                0         2         0         0" in str(tally)
    assert "1 of these were not run" in str(tally)
    assert str(tally).endswith("0 errors of the checker or an oracle\n0 contradictions")
    tally.add(replace(row, failure="other words"))
    assert str(tally).endswith("1 contradictions")
    tally.add(replace(row, error="the checker fails: KeyError"))
    assert "1 errors of the checker or an oracle" in str(tally)


def test_an_output_that_nothing_stores_is_a_contradiction() -> None:
    (other,) = (op for op in RESPECIFIED if op.name == "another output")
    cases = (seeded_case(seed, Mix.SMALL) for seed in range(40))
    case, more = next((c, k) for c in cases if c.kernel is not None for k in other.apply(c.kernel))
    assert "were not written" in contradiction([case], more, 1, 0).failure


def failing(*_: object, **__: object) -> None:
    raise KeyError("what")


@pytest.mark.parametrize(
    ("broken", "said"),
    [("evaluate", "the reference fails: KeyError: 'what'"), ("find_fault", "second machine fails: KeyError"), ("proof", "the checker fails: KeyError")],
)
def test_an_error_of_a_tool_is_a_failure(broken: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(soundness, broken, failing)
    assert soundness.main(["--cases", "4", "--seed", "3", "--mutants", "0", "--sizes", "1", "--interleavings", "1"]) == 1
    shown = capsys.readouterr().out
    assert "ERROR seed" in shown
    assert said in shown
    assert "0 contradictions" in shown


def test_soundness_in_small(capsys: pytest.CaptureFixture[str]) -> None:
    assert soundness.main(["--cases", "3", "--seed", "3", "--mutants", "2", "--sizes", "2", "--interleavings", "1"]) == 0
    assert "0 contradictions" in capsys.readouterr().out


def test_a_proof_that_takes_anything_is_contradicted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def credulous(_: Kernel, __: object) -> CaseProof:
        return CaseProof(CaseStanding.PROVED)

    monkeypatch.setattr(soundness, "proof", credulous)
    assert soundness.main(["--cases", "6", "--seed", "4", "--mutants", "4", "--sizes", "2", "--interleavings", "2"]) == 1
    shown = capsys.readouterr().out
    assert "order, " in shown
    assert "values, " in shown
    assert "definitions, " in shown
    assert "CONTRADICTION" in shown
