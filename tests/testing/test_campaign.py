"""Long runs: cases side by side, logs, runs that go on."""

from dataclasses import dataclass, field
from itertools import count
from operator import neg
from pathlib import Path

import pytest

from taskfuse.testing import maps, refutation, soundness
from taskfuse.testing.campaign import Log, look_at, parser, rows, run


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


@dataclass(slots=True)
class Texts:
    """A tally that counts each text once."""

    rows: int = 0
    seen: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, row: Found) -> bool:
        if row.text in self.seen:
            return False
        self.seen[row.text] = row.number
        self.rows += 1
        return True


def look(number: int) -> list[Found]:
    """No case at 3, 8, 13, ...; 10 has the text of 0."""
    return [] if number % 5 == 3 else [Found(number, str(number % 10))]


def ran(arguments: list[str], most: float = 1e9, first: int = 0) -> Texts:
    tally = Texts()
    options = parser("campaign", "A run.", cases=8).parse_args(arguments)
    numbers = range(first, first + options.cases) if most == 1e9 else count()
    run(Found, tally, look, numbers, options, done=lambda row: row.number, alarm=lambda row: "FOUND seven" * (row.text == "7"), most=most)
    return tally


def test_a_run_counts_logs_and_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    assert ran(["--cases", "12", "--log", str(log)]).seen == {str(n): n for n in (0, 1, 2, 4, 5, 6, 7, 9)}
    assert [row.number for row in rows(Found, log)] == [0, 1, 2, 4, 5, 6, 7, 9], "10 and 11 are 0 and 1 again"
    printed = capsys.readouterr().out
    assert printed.startswith("FOUND seven\n")
    assert "2 cases more made no kernel" in printed


def test_a_run_that_was_stopped_goes_on_behind_its_log(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    ran(["--cases", "9", "--log", str(whole)])
    ran(["--cases", "4", "--log", str(parts)])
    parts.write_text(parts.read_text() + '{"number": 99, "te')
    assert ran(["--cases", "9", "--log", str(parts), "--resume"]).rows == 7
    assert parts.read_text() == whole.read_text()


def test_a_run_ends_at_so_many_rows(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert ran(["--log", str(log)], most=5).rows == 5
    assert ran(["--log", str(log), "--resume"], most=5).rows == 5
    assert len(log.read_text().splitlines()) == 5


def test_a_log_of_another_seed_leaves_no_case_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    maps.main(["--cases", "3", "--seed", "1", "--log", str(log)])
    maps.main(["--cases", "3", "--seed", "2", "--log", str(log), "--resume"])
    found = {(row.seed, row.number) for row in rows(maps.MapsRow, log)}
    assert found == {(seed, n) for seed in (1, 2) for n in range(3) if maps.drawn(seed, n) is not None}


def test_tools_run_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert refutation.main(["--cases", "6", "--jobs", "2"]) == 0
    assert "6 different kernels" in capsys.readouterr().out
    assert soundness.main(["--cases", "2", "--mutants", "1", "--interleavings", "1"]) == 0
    assert "0 contradictions" in capsys.readouterr().out
