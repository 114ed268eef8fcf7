"""Random lists of unlike products."""

from __future__ import annotations

import random

import pytest

from taskfuse.kir import Kernel, parse_kernel
from taskfuse.testing import lists
from tests.calls import always


def test_one_seed_is_one_list() -> None:
    drawn = [lists.draw_shapes(random.Random(seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(2 <= len(shapes) <= lists.MOST and all(n % 8 == k % 8 == 0 for _, n, k in shapes) for shapes in drawn)


def test_a_list_is_one_fusion_with_an_output_for_each() -> None:
    fusion = lists.list_of([(3, 8, 16), (5, 16, 8)])
    assert [tuple(map(str, tv.shape)) for tv in fusion.outputs] == [("3", "8"), ("5", "16")]


def test_the_command_tells_what_is_not_proved(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(lists, "draw_shapes", always([(64, 64, 64), (64, 64, 64)]))
    assert lists.main(["--seeds", "3", "4"]) == 0
    assert capsys.readouterr().out == "1 lists, 0 failures\n"
    kernel = lists.list_kernel([(64, 64, 64), (64, 64, 64)])
    monkeypatch.setattr(lists, "list_kernel", always(_broken(kernel)))
    assert lists.main(["--seeds", "3", "4"]) == 1
    assert capsys.readouterr().out.startswith("FAILED python -m taskfuse.testing.lists --seeds 3 4\n")


def _broken(kernel: Kernel) -> Kernel:
    return parse_kernel(kernel.text(witness=True).replace("SYNC block", "SYNC warp", 1))
