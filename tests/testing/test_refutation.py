"""The static proof against the second machine, on kernels with side conditions."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

import pytest

from taskfuse.errors import TaskfuseError
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.testing import refutation
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.machine import find_fault
from taskfuse.testing.outcomes import is_valid
from taskfuse.testing.refutation import RefutationRow, RefutationTally, case
from taskfuse.testing.small.sides import SIDES


def test_nothing_that_is_proved_has_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    status = refutation.main(["--cases", "100", "--seed", "17"])
    printed = capsys.readouterr().out
    assert " 0 false accepts" in printed, printed
    assert status == 0


@pytest.mark.parametrize("kind", range(len(SIDES)))
def test_the_machine_finds_what_the_generator_knows(kind: int) -> None:
    _, make = SIDES[kind]
    said: Counter[tuple[bool | None, bool]] = Counter()
    for seed in range(kind % 2, 25, 2):
        try:
            side = make(RandomChooser(seed))
        except TaskfuseError:
            continue
        assert parse_kernel(str(side.kernel)) == side.kernel
        if not is_valid(side.kernel):
            continue
        found = find_fault(side.kernel, side.extents, 2)
        said[side.right, found is None] += 1
        assert side.right is not True or found is None, f"{found}\n{side.kernel}"
    assert sum(said.values()) >= 5
    assert said[False, True] <= said[False, False]


def test_a_hole_in_the_proof_shows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def credulous(_: Kernel, __: Mapping[str, int] | None = None) -> str:
        return ""

    monkeypatch.setattr(refutation, "gap", credulous)
    assert refutation.main(["--cases", "20"]) == 1
    assert "FALSE ACCEPT seed 0" in capsys.readouterr().out


ROW = RefutationRow(0, 0, "kind", "0", True, True, "", "", "", True, {"second machine: decided": 1})


@pytest.mark.parametrize(
    ("changed", "accept", "reject", "mistaken"),
    [
        ({}, False, False, False),
        ({"fault": "race"}, True, False, True),
        ({"proved": False, "gap": "g", "at": '{"N": 1}', "fault": "race"}, True, False, False),
        ({"proved": False, "gap": "g"}, False, True, False),
        ({"proved": False, "gap": "g", "looked": False, "right": False}, False, False, False),
        ({"right": False}, False, False, True),
        ({"right": None, "fault": "race", "proved": False, "gap": "g", "error": "the checker fails: KeyError"}, False, False, False),
        ({"proved": False, "gap": "g", "error": "the checker fails: KeyError"}, False, False, False),
        ({"right": False, "launches": {"second machine: too long": 1}}, False, False, False),
    ],
)
def test_what_counts(changed: Mapping[str, object], accept: bool, reject: bool, mistaken: bool) -> None:
    row = RefutationRow(**json.loads(json.dumps(asdict(ROW) | dict(changed))))
    assert (row.false_accept, row.false_reject) == (accept, reject)
    tally = RefutationTally()
    tally.add(row)
    tally.add(row)
    assert (tally.rows, len(tally.accepts), len(tally.mistaken)) == (1, accept, mistaken)
    assert (len(tally.errors), tally.idle) == (bool(row.error), "second machine: too long" in row.launches)


@pytest.mark.parametrize(("broken", "tool"), [("gap", "the checker"), ("find_fault", "second machine")])
def test_an_error_of_a_tool_is_a_failure(broken: str, tool: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def failing(*_: object, **__: object) -> None:
        raise KeyError("what")

    monkeypatch.setattr(refutation, broken, failing)
    assert refutation.main(["--cases", "4"]) == 1
    printed = capsys.readouterr().out
    assert f"{tool} fails: KeyError: 'what'" in printed
    assert " 0 false accepts" in printed


def test_launches_are_counted_by_ending(capsys: pytest.CaptureFixture[str]) -> None:
    refutation.main(["--cases", "6"])
    assert re.search(r"^second machine +\d+ +0 +0 +0$", capsys.readouterr().out, re.MULTILINE)


def test_the_generator_makes_every_kind() -> None:
    made = [side for number in range(600) if (side := case(4, number)) is not None]
    assert len({side.kind.split(":")[0] for side in made}) == len(SIDES)
    assert {side.right for side in made} == {True, False, None}
    text = "".join(str(side.kernel) for side in made)
    for word in ("threadIdx.x == threadIdx.y", "step threadIdx", "SYNC named threadIdx", "COPY.async", "LDMATRIX", "RESIDENT 2", ".trip", "advance(-1)"):
        assert word in text, word
