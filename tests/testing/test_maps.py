"""The proof of values against what definitions mean, on kernels with index maps of their own."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from taskfuse.check.values import cover, outputs
from taskfuse.kir import parse_kernel
from taskfuse.testing import maps
from taskfuse.testing.maps import Row, difference, drawn, look


def test_nothing_that_is_proved_computes_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    status = maps.main(["--cases", "80", "--seed", "17"])
    assert "; 0 false accepts" in capsys.readouterr().out
    assert status == 0


def test_kernels_of_every_kind_are_drawn_right_and_wrong() -> None:
    rows = [row for n in range(120) if (row := look(5, n)) is not None]
    found = Counter((row.kind, bool(row.fault)) for row in rows)
    assert min(found[kind, wrong] for kind in ("copied", "staged", "summed") for wrong in (False, True)) >= 3, found
    assert sum(bool(row.said) for row in rows) >= len(rows) // 2


def test_a_hole_in_the_proof_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    def credulous(*_: Any) -> bool:
        return False

    monkeypatch.setattr(cover, "covered", credulous)
    monkeypatch.setattr(outputs, "covered", credulous)
    rows = [row for n in range(120) if (row := look(17, n)) is not None]
    assert sum(row.false_accept for row in rows) >= 3


def test_a_checker_that_fails_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> None:
        raise KeyError("what")

    monkeypatch.setattr(maps, "proof", failing)
    row = next(row for n in range(9) if (row := look(1, n)) is not None)
    assert row.false_accept
    assert row.gap == "the checker fails: KeyError: 'what'"


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    maps.main(["--cases", "12", "--log", str(whole)])
    maps.main(["--cases", "5", "--log", str(parts)])
    parts.write_text(parts.read_text() + '{"number": 99, "kin')
    maps.main(["--cases", "12", "--log", str(parts), "--resume"])
    assert sorted(parts.read_text().splitlines()) == sorted(whole.read_text().splitlines())


def test_what_an_element_lacks_is_a_difference() -> None:
    head = "KERNEL k(x: float32[4]) -> (y: float32[4])\n  GRID (1, 1, 1)  BLOCK ({}, 1, 1)\n  DEFINE y: float32[4] = copy(x[i0])\n\n"
    text = head + "y[threadIdx.x] = copy(x[threadIdx.x])\n"
    assert difference(parse_kernel(text.format(4)), {}, 0) is None
    assert difference(parse_kernel(text.format(3)), {}, 0) is not None


def test_a_proved_kernel_with_a_fault_is_a_false_accept() -> None:
    row = Row(1, 2, "copied", "proved", "", "other words", 1)
    assert row.false_accept
    assert not Row(1, 2, "copied", "", "gap", "other words", 1).false_accept
    assert drawn(1, 0) is None or drawn(1, 0) == drawn(1, 0)
