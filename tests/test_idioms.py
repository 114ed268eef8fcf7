"""The fusions of benchmarks/idioms: every one is read, and prints what was read; some are compiled and compared."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import idioms
from taskfuse.target import H200


def test_texts() -> None:
    assert len(idioms.names()) == 240
    for name in idioms.names():
        for fusion in idioms.read(name):
            assert fusion.name == name
            assert str(fusion).rstrip() + "\n" in (idioms.FOLDER / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name", ["half_gram_f32", "take_scalar_index", "stack_int64_middle", "cat_slice_35", "zero_bf16_mm", "three_symbolic", "swin_window_bf16"]
)
def test_some_of_them(name: str) -> None:
    line = idioms.row(name, large=False, target=H200)
    assert "WRONG" not in line
    assert "Error" not in line


def test_what_is_wrong_is_said() -> None:
    fusion, _ = idioms.read("take_scalar_index")
    given = idioms.arguments(fusion)
    wanted = fusion.evaluate(*given)
    assert idioms.wrong(fusion, wanted, wanted) == ""
    assert "WRONG" in idioms.wrong(fusion, [x + 1 for x in wanted], wanted)
