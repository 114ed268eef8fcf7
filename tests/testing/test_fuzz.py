"""Random cases of a range of seeds: logs, processes, the table of verdicts."""

from pathlib import Path

import pytest

from taskfuse.testing import fuzz

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
            fuzz.Row(0, "rows", "lowered", "proved"),
            fuzz.Row(1, "rows", "refused"),
            fuzz.Row(2, "usual", "lowered", "proved at extents", "values: a gap"),
            fuzz.Row(3, "usual", "lowered", failure="wrong"),
        ]
    )
    assert [line.split() for line in table.splitlines()[1:]] == [
        ["all", "4", "3", "1", "1", "0", "1"],
        ["rows", "2", "1", "1", "0", "0", "0"],
        ["usual", "2", "2", "0", "1", "0", "1"],
        ["1", "proved", "at", "extents:", "values:", "a", "gap"],
    ]
