"""Random fusions of all ops: what they are made of, and that what is wrong is found."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ops.registry import OPS, OpKind
from taskfuse.testing import anything
from taskfuse.testing.anything import SYMBOLIC, case, check, check_extents, main
from taskfuse.testing.signatures import NOT_DRAWN, drawn, patterns
from tests.calls import always


def test_all_kinds_of_ops_are_drawn() -> None:
    made = Counter(line.partition("tf.")[2].partition("(")[0] for seed in range(150) for line in case(seed).program.lines)
    by_kind = Counter(OPS[name].kind for name in made if name in OPS)
    assert by_kind.keys() == set(OpKind) - {OpKind.MISSING}
    never = {name for name, row in OPS.items() if row.kind is not OpKind.MISSING and name not in made and not (name in drawn() and patterns(name))}
    assert never <= NOT_DRAWN.keys(), never - NOT_DRAWN.keys()


def test_what_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with tf.Fusion("square") as fusion:
        fusion.add_output(tf.square(tf.define_tensor([4, 6], name="x")))
    x = np.ones((4, 6), np.float32)
    assert len(check(fusion, [x]).steps) == 1

    def doubled(*args: object) -> tuple[object, ...]:
        return (x + x,)

    monkeypatch.setattr(anything, "evaluate", doubled)
    with pytest.raises(AssertionError, match="is wrong"):
        check(fusion, [x])


def test_what_is_wrong_at_an_extent_of_0_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = case(28, SYMBOLIC)
    assert found.sizes
    check_extents(found)

    class Wrong:
        def __call__(self, *args: Any) -> list[Any]:
            return [x + 1 if 0 in np.shape(args[0]) else x for x in found.fusion.evaluate(*args)]

    monkeypatch.setattr(tf, "compile", always(Wrong()))
    with pytest.raises(AssertionError, match="is wrong at"):
        check_extents(found)


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["--seeds", "3", "5"]) == 0
    assert capsys.readouterr().out.endswith("2 cases, 0 failures\n")
    assert main(["--seeds", "0", "2", "--extents"]) == 0
    assert capsys.readouterr().out.endswith("2 cases, 0 failures\n")

    def wrong(*args: object) -> None:
        raise AssertionError("tv1 is wrong")

    monkeypatch.setattr(anything, "check", wrong)
    assert main(["--seeds", "3", "4"]) == 1
    assert "FAILED python -m taskfuse.testing.anything --seeds 3 4" in capsys.readouterr().out
