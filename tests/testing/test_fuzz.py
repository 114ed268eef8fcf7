"""Random cases of a range of seeds: logs, processes, the table of verdicts."""

import subprocess
import sys
from pathlib import Path

import pytest

from taskfuse.testing import Mix, fusion_case, fuzz
from taskfuse.testing.case import Case
from taskfuse.testing.fuzz import main, reproduction
from tests.testing.failing import branches, swapped, wrong

FUZZ = ("--mix", "small", "--prove", "--orders", "0", "--interleavings", "1")


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert fuzz.main(["--cases", "6", "--log", str(whole), *FUZZ]) == 0
    expected = capsys.readouterr().out
    assert fuzz.main(["--cases", "3", "--log", str(parts), *FUZZ]) == 0
    assert fuzz.main(["--cases", "6", "--log", str(parts), "--resume", *FUZZ]) == 0
    assert parts.read_text() == whole.read_text()
    assert expected.splitlines()[-1] in capsys.readouterr().out


def test_runs_side_by_side_find_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    fuzz.main(["--cases", "4", "--log", str(one), *FUZZ])
    alone = capsys.readouterr().out
    fuzz.main(["--cases", "4", "--log", str(two), "--jobs", "2", *FUZZ])
    assert sorted(one.read_text().splitlines()) == sorted(two.read_text().splitlines())
    together = capsys.readouterr().out
    table = alone.index("mix  ")
    assert alone[table:] == together[together.index("mix  ") :]


def test_the_table_of_verdicts() -> None:
    table = fuzz.verdicts(
        [
            fuzz.FuzzRow(0, "rows", "lowered", "proved"),
            fuzz.FuzzRow(1, "rows", "refused"),
            fuzz.FuzzRow(2, "usual", "lowered", "proved at extents", "values: a gap"),
            fuzz.FuzzRow(3, "usual", "lowered", failure="wrong"),
        ]
    )
    assert [line.split() for line in table.splitlines()[1:]] == [
        ["all", "4", "3", "1", "1", "0", "1"],
        ["rows", "2", "1", "1", "0", "0", "0"],
        ["usual", "2", "2", "0", "1", "0", "1"],
        ["1", "proved", "at", "extents:", "values:", "a", "gap"],
    ]


def test_fuzz_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cases", "6", "--seed", "3"]) == 0
    out = capsys.readouterr().out
    assert "share of the cases that lower with:" in out
    assert out.endswith("checked, 0 failures\n")


def test_fuzz_as_a_command() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-m", "taskfuse.testing.fuzz", "--cases", "2", "--quiet"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("2 cases, ")
    assert done.stderr == ""


def test_fuzz_prints_a_reproduction(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def seeded(seed: int, mix: Mix) -> Case:
        assert mix is Mix.MIXED
        case = fusion_case(branches(2))
        return wrong(case, swapped) if seed == 8 else case

    monkeypatch.setattr("taskfuse.testing.fuzz.seeded_case", seeded)
    assert main(["--cases", "3", "--seed", "7", "--minimize", "5"]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"FAILED {reproduction(8)}\nthe simulated kernel gives what NumPy gives")
    assert out.endswith("3 cases, 3 checked, 1 failures\n")
