"""The proof of values against what definitions mean, on kernels with index maps of their own."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from taskfuse.check import defined
from taskfuse.check.constraints import Constraints
from taskfuse.check.defined import Demand
from taskfuse.check.values import cover, neutral_terms, outputs, reductions, starts, term_coverage, verify, written
from taskfuse.check.values.choices import CheckedChoices
from taskfuse.check.values.claims import ClaimedWrite, Place
from taskfuse.check.values.questions import inside, known_at
from taskfuse.ir.scalar import Expr
from taskfuse.kir import parse_kernel
from taskfuse.testing import maps
from taskfuse.testing.maps import MapsRow, MapsTally, difference, drawn, look


def test_nothing_that_is_proved_computes_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    status = maps.main(["--cases", "80", "--seed", "17"])
    assert "; 0 false accepts" in capsys.readouterr().out
    assert status == 0


def test_kernels_of_every_kind_are_drawn_right_and_wrong() -> None:
    rows = [row for n in range(130) for row in look(7, n)]
    found = Counter((row.kind, bool(row.fault)) for row in rows)
    assert min(found[kind, wrong] for kind in ("copied", "staged", "summed", "gathered") for wrong in (False, True)) >= 3, found
    assert min(found["padded", wrong] for wrong in (False, True)) >= 1, found
    assert sum(bool(row.said) for row in rows) >= len(rows) // 2


def test_a_hole_in_the_proof_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    def credulous(*_: Any, **__: Any) -> bool:
        return False

    for module in (cover, outputs, term_coverage):
        monkeypatch.setattr(module, "covered", credulous)
    rows = [row for n in range(120) for row in look(17, n)]
    assert not any(row.error for row in rows)
    assert sum(row.false_accept for row in rows) >= 3


def test_a_sum_without_its_start_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    def anything(a: float, b: float) -> bool:
        return True

    monkeypatch.setattr(starts, "is_same_number", anything)
    assert look(79, 164)[0].false_accept
    assert look(79, 917)[0].false_accept


def test_a_table_of_which_some_entries_are_looked_at_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> bool:
        return False

    monkeypatch.setattr(verify, "is_sampled", never)
    assert look(80, 36)[0].false_accept


def test_a_constant_that_no_type_changes_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not look(17, 4618)[0].false_accept

    def unchanged(value: float, *_: Any) -> float:
        return value

    monkeypatch.setattr(neutral_terms, "number", unchanged)
    assert look(17, 4618)[0].false_accept


def test_an_element_without_a_range_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not look(17, 1160)[0].false_accept
    asked = defined.demands

    def some(e: Expr) -> tuple[Demand, ...]:
        return tuple(d for d in asked(e) if not d.what.startswith("the room between"))

    monkeypatch.setattr(defined, "demands", some)
    assert look(17, 1160)[0].false_accept


@pytest.mark.parametrize(("broken", "tool"), [("proof", "the checker"), ("meaning", "the reference")])
def test_an_error_of_a_tool_is_a_failure(broken: str, tool: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def failing(*_: Any) -> None:
        raise KeyError("what")

    monkeypatch.setattr(maps, broken, failing)
    row = next(row for n in range(9) for row in look(1, n))
    assert not row.false_accept
    assert f"{tool} fails: KeyError: 'what'" in row.error
    assert maps.main(["--cases", "4", "--seed", "1"]) == 1
    assert "ERROR seed 1" in capsys.readouterr().out


def test_launches_that_decide_nothing_are_counted() -> None:
    tally = MapsTally()
    tally.add(MapsRow(1, 2, "copied", "proved", "", "", {"simulator: too long": 3}))
    tally.add(MapsRow(1, 3, "copied", "", "gap", "", {"simulator: refused": 1}))
    assert "copied   not run, proved" in str(tally)
    assert "simulator                0         3         1         0" in str(tally)
    assert "1 proved kernels were not run" in str(tally)


def test_definitions_without_a_value_are_wrong_ones() -> None:
    text = "KERNEL k(x: float32[4]) -> (y: float32[4])\n  GRID (1, 1, 1)  BLOCK (4, 1, 1)\n  DEFINE y: float32[4] = copy(x[i0 + 1])\n\n"
    found = difference(parse_kernel(text + "y[threadIdx.x] = copy(x[threadIdx.x])\n"), {}, 0)
    assert found == "definitions without a value: index 1 to 4 of axis 0 is outside 0..4"


def test_what_an_element_lacks_is_a_difference() -> None:
    head = "KERNEL k(x: float32[4]) -> (y: float32[4])\n  GRID (1, 1, 1)  BLOCK ({}, 1, 1)\n  DEFINE y: float32[4] = copy(x[i0])\n\n"
    text = head + "y[threadIdx.x] = copy(x[threadIdx.x])\n"
    assert difference(parse_kernel(text.format(4)), {}, 0) is None
    assert difference(parse_kernel(text.format(3)), {}, 0) is not None


def test_a_proved_kernel_with_a_fault_is_a_false_accept() -> None:
    row = MapsRow(1, 2, "copied", "proved", "", "other words", {"simulator: decided": 1})
    assert row.false_accept
    assert not replace(row, said="").false_accept


def test_seed_and_number_make_a_kernel_again() -> None:
    def texts(seed: int) -> list[str | None]:
        return [None if (small := drawn(seed, n)) is None else str(small.kernel) for n in range(12)]

    assert texts(1) == texts(1) != texts(2)
    assert len({text for text in texts(1) if text is not None}) > 6


def test_padded_parts_show_a_condition_of_another_element(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of a part were once proved under the condition of the whole's element."""
    shown = (436, 575)

    def of_the_whole(choices: CheckedChoices, w: ClaimedWrite) -> tuple[Place, Constraints]:
        return w.place, known_at(w.place).given(*inside(w.place.element, choices.writes.shape(w.place.tensor)))

    assert not any(row.false_accept for number in shown for row in look(5, number))
    monkeypatch.setattr(CheckedChoices, "_own", of_the_whole)
    assert all(row.false_accept for number in shown for row in look(5, number))


def test_accumulators_that_iterations_share_show(monkeypatch: pytest.MonkeyPatch) -> None:
    def anything(*_: Any) -> None:
        return None

    monkeypatch.setattr(reductions, "own_accumulators", anything)
    assert look(5, 340)[0].false_accept
    assert look(5, 396)[0].false_accept


def test_cursors_that_move_show(monkeypatch: pytest.MonkeyPatch) -> None:
    def still(*_: Any) -> bool:
        return True

    monkeypatch.setattr(written, "stays", still)
    assert look(5, 123)[0].false_accept
    assert look(5, 158)[0].false_accept
