"""Long runs: cases side by side, logs, runs that go on."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from operator import neg
from pathlib import Path

import pytest

from taskfuse.testing import fuzz, refutation, soundness
from taskfuse.testing.campaign import Log, look_at, rows


@dataclass(frozen=True, slots=True)
class Found:
    number: int
    text: str = ""


def test_cases_are_looked_at_in_order_or_side_by_side() -> None:
    assert [*look_at(neg, range(30))] == [-n for n in range(30)]
    assert sorted(look_at(neg, range(30), jobs=2)) == [*range(-29, 1)]
    endless = look_at(neg, count(), jobs=2)
    assert next(endless) <= 0
    endless.close()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_ends_in_time(jobs: int) -> None:
    assert [*look_at(neg, count(), jobs, seconds=0)] == []


def test_what_fails_in_a_process_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(look_at(reciprocal, range(3), jobs=2))


def reciprocal(number: int) -> float:
    return 1 / number


def test_a_log_is_read_back_but_for_a_line_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "new" / "log.jsonl"
    log = Log(Found, path, resume=True)
    for k in range(3):
        log.add(Found(k, "ä"))
    path.write_text(path.read_text("utf-8") + '{"number": 7, "te', "utf-8")
    again = Log(Found, path, resume=True)
    assert again.kept == [*rows(Found, path)] == [Found(0, "ä"), Found(1, "ä"), Found(2, "ä")]
    assert Log(Found, path, resume=False).kept == []
    assert path.read_text("utf-8") == ""


FUZZ = ("--mix", "small", "--prove", "--orders", "0", "--interleavings", "1")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [(fuzz, FUZZ), (soundness, ("--mutants", "1", "--interleavings", "1"))],
    ids=["fuzz", "soundness"],
)
def test_a_run_that_was_stopped_goes_on(tool: object, arguments: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = fuzz.main if tool is fuzz else soundness.main
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["--cases", "6", "--log", str(whole), *arguments]) == 0
    expected = capsys.readouterr().out
    assert main(["--cases", "3", "--log", str(parts), *arguments]) == 0
    assert main(["--cases", "6", "--log", str(parts), "--resume", *arguments]) == 0
    assert parts.read_text() == whole.read_text()
    assert (expected.splitlines()[-1] if tool is fuzz else "0 contradictions") in capsys.readouterr().out


def test_runs_side_by_side_find_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    fuzz.main(["--cases", "4", "--log", str(one), *FUZZ])
    alone = capsys.readouterr().out
    fuzz.main(["--cases", "4", "--log", str(two), "--jobs", "2", *FUZZ])
    assert sorted(one.read_text().splitlines()) == sorted(two.read_text().splitlines())
    together = capsys.readouterr().out
    table = alone.index("mix  ")
    assert alone[table:] == together[together.index("mix  ") :]
    refutation.main(["--cases", "6", "--jobs", "2"])
    assert "6 different kernels" in capsys.readouterr().out


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
