"""The pictures of the documentation are what their script draws."""

import runpy
from pathlib import Path

import pytest

from tests.golden import Golden

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
DRAW = runpy.run_path(str(FOLDER / "draw.py"), run_name="draw")


@pytest.mark.parametrize("name", DRAW["PICTURES"])
def test_the_picture_is_current(name: str, golden: Golden) -> None:
    path, text = FOLDER / f"{name}.svg", str(DRAW["PICTURES"][name]())
    if golden.update:
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, "`python docs/pictures/draw.py` draws another one"


def test_every_picture_is_shown() -> None:
    shown = "".join(page.read_text(encoding="utf-8") for page in FOLDER.parent.glob("*.md"))
    assert {p.stem for p in FOLDER.glob("*.svg")} == set(DRAW["PICTURES"])
    assert [name for name in DRAW["PICTURES"] if f"pictures/{name}.svg" not in shown] == []


@pytest.mark.parametrize(("slots", "fill", "use", "lag"), [(1, 2, 3, 0), (2, 2, 3, 0), (3, 4, 1, 0), (2, 1, 1, 1), (3, 2, 2, 2)])
def test_the_times_obey_the_ring(slots: int, fill: int, use: int, lag: int) -> None:
    r = DRAW["ring"](slots, 7, fill, use, lag)
    for n in range(7):
        assert r.uses[n][0] >= r.fills[n][1]
        assert n < slots or r.fills[n][0] >= r.releases[n - slots] >= r.uses[n - slots][1]
    if not lag:
        assert r.uses[-1][1] - r.uses[2][1] == 4 * max(fill, use, (fill + use) / slots)  # what docs/pipeline.md says of the pace
