"""Draws the pictures of the documentation: ``python docs/pictures/draw.py`` writes the SVG files beside it.

The times in those of docs/pipeline.md come from the rules of a ring (a fill waits until its slot is empty, a use until it is full), with given
durations. The others are what taskfuse itself draws, of the examples.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import taskfuse as tf

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import founding
import pipeline

UNIT = 26  # width of one step of time
ROW = 30
MARGIN = 116
SLOTS = ("#9ecae1", "#fdd0a2", "#c7e9c0", "#dadaeb")  # a color per slot
WAITING = "#ececec"
LINE = "#444444"


@dataclass(slots=True)
class Drawing:
    """Shapes, from the top left."""

    width: int
    height: int
    shapes: list[str] = field(default_factory=list[str])

    def box(self, x: float, y: float, w: float, h: float, fill: str, label: str = "", *, dashed: bool = False) -> None:
        """A box with a label in its middle."""
        dash = ' stroke-dasharray="3 2"' if dashed else ""
        self.shapes.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="2" fill="{fill}" stroke="{LINE}" stroke-width="0.8"{dash}/>')
        if label:
            self.text(x + w / 2, y + h / 2 + 4, label)

    def text(self, x: float, y: float, label: str, anchor: str = "middle", size: int = 11) -> None:
        """A line of text whose base line is at ``y``."""
        self.shapes.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}">{label}</text>')

    def line(self, *points: tuple[float, float], arrow: bool = False, dashed: bool = False) -> None:
        """A line through points, with an arrow head at its end."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        extra = (' marker-end="url(#head)"' if arrow else "") + (' stroke-dasharray="3 2"' if dashed else "")
        self.shapes.append(f'<polyline points="{path}" fill="none" stroke="{LINE}"{extra}/>')

    def __str__(self) -> str:
        head = (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0,0 L8,4 L0,8 z" fill="{LINE}"/></marker></defs>'
        )
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" fill="#222222">', head]
        lines.append(f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>')
        return "\n".join([*lines, *self.shapes, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class Ring:
    """When what happens to the positions of a ring: begin and end of each fill and use, and when its slot is released."""

    slots: int
    fills: list[tuple[int, int]]
    uses: list[tuple[int, int]]
    releases: list[int]


def ring(slots: int, trips: int, fill: int, use: int, lag: int = 0) -> Ring:
    """A ring whose fills and uses take so long. With a lag, a use gives back the slot of the one ``lag`` before; the rest follows at the end."""
    fills: list[tuple[int, int]] = []
    uses: list[tuple[int, int]] = []
    releases: list[int] = []
    for n in range(trips):
        # position n needs the release of n - slots, which a use before n + lag - slots + 1 has made
        begin = max(fills[-1][1] if fills else 0, releases[n - slots] if n >= slots else 0)
        fills.append((begin, begin + fill))
        start = max(uses[-1][1] if uses else 0, fills[n][1])
        uses.append((start, start + use))
        if n >= lag:
            releases.append(uses[n][1])
    releases += [uses[-1][1]] * (trips - len(releases))
    return Ring(slots, fills, uses, releases)


def at(time: float) -> float:
    """Where a time is."""
    return MARGIN + UNIT * time


def row(d: Drawing, y: float, name: str, spans: Sequence[tuple[int, int]], slots: int, first: int = 0, step: int = 1) -> None:
    """A role: boxes for its positions, gray between them where it waits."""
    d.text(MARGIN - 10, y + ROW / 2 + 4, name, "end")
    before = 0
    for k, (begin, end) in enumerate(spans):
        n = first + k * step
        if begin > before:
            d.box(at(before), y + 9, UNIT * (begin - before), ROW - 18, WAITING)
        d.box(at(begin), y + 3, UNIT * (end - begin), ROW - 6, SLOTS[n % slots], str(n))
        before = end


def phases(d: Drawing, y: float, name: str, completions: Sequence[int], until: int) -> None:
    """An mbarrier: a box per phase, with its parity; it ends where the phase completes."""
    d.text(MARGIN - 10, y + ROW / 2 + 4, name, "end")
    before = 0
    for k, time in enumerate([*completions, until]):
        label = f"{k}: parity {k % 2}" if time - before > 2 else str(k)
        d.box(at(before), y + 7, UNIT * (time - before), ROW - 14, ("#ffffff", "#d0d0d0")[k % 2], label)
        before = time


def axis(d: Drawing, y: float) -> None:
    """The direction of time."""
    d.line((at(0), y), (d.width - 14, y), arrow=True)
    d.text(MARGIN - 10, y + 4, "time", "end")


def anatomy() -> Drawing:
    """Two roles, three slots, two arrays of mbarriers."""
    d = Drawing(640, 236)
    d.box(20, 76, 130, 84, "#f7f7f7")
    d.text(85, 100, "producer", size=13)
    d.text(85, 122, "cursor p")
    d.text(85, 140, "starts: slot 0, parity 1")
    d.box(490, 76, 130, 84, "#f7f7f7")
    d.text(555, 100, "consumer", size=13)
    d.text(555, 122, "cursor c")
    d.text(555, 140, "starts: slot 0, parity 0")
    for s in range(3):
        x = 212 + 74 * s
        d.box(x, 96, 66, 44, SLOTS[s], f"slot {s}")
        d.box(x + 4, 40, 58, 24, "#ffffff", f"full[{s}]")
        d.box(x + 4, 172, 58, 24, "#ffffff", f"empty[{s}]")
    d.line((150, 112), (208, 112), arrow=True)
    d.text(179, 105, "fill")
    d.line((432, 112), (488, 112), arrow=True)
    d.text(460, 105, "use")
    d.line((85, 76), (85, 52), (210, 52), arrow=True)
    d.text(148, 44, "arrive")
    d.line((434, 52), (555, 52), (555, 74), arrow=True)
    d.text(494, 44, "wait")
    d.line((555, 160), (555, 184), (438, 184), arrow=True)
    d.text(494, 202, "arrive")
    d.line((212, 184), (85, 184), (85, 162), arrow=True)
    d.text(148, 202, "wait")
    return d


def cycle() -> Drawing:
    """Fills and uses of two slots, with the phases of their mbarriers."""
    trips, slots = 6, 2
    r = ring(slots, trips, fill=2, use=3)
    until = r.releases[-1] + 2
    d = Drawing(int(at(until)) + 24, 24 + ROW * 6 + 34)
    row(d, 10, "producer", r.fills, slots)
    row(d, 10 + ROW, "consumer", r.uses, slots)
    for s in range(slots):
        phases(d, 18 + ROW * (2 + s), f"full[{s}]", [r.fills[n][1] for n in range(s, trips, slots)], until)
        phases(d, 26 + ROW * (4 + s), f"empty[{s}]", [r.releases[n] for n in range(s, trips, slots)], until)
    axis(d, d.height - 16)
    return d


def trailing() -> Drawing:
    """A consumer whose reads are asynchronous: it gives back the slot of the use before."""
    trips, slots = 6, 3
    r = ring(slots, trips, fill=2, use=2, lag=1)
    releases = [*r.releases[:-1], r.uses[-1][1] + 2]  # at the end, when the last read is waited for
    d = Drawing(int(at(releases[-1] + 2)) + 24, 24 + ROW * 4 + 52)
    row(d, 10, "producer", r.fills, slots)
    row(d, 10 + ROW, "consumer issues", r.uses, slots)
    d.text(MARGIN - 10, 10 + ROW * 3 + 4, "engine reads", "end")
    below = 14 + ROW * 4 + 8
    d.text(MARGIN - 10, below + 4, "consumer arrives", "end")
    for time in releases:
        d.line((at(time), 10 + 2 * ROW - 3), (at(time), below - 8), dashed=True)
    for n, (begin, end) in enumerate(r.uses):
        d.box(at(begin + 0.6), 14 + ROW * (2 + n % 2), UNIT * (end - begin + 0.9), ROW - 8, SLOTS[n % slots], str(n), dashed=True)
    for n, time in enumerate(releases):
        d.text(at(time), below + 4, str(n))
    axis(d, d.height - 16)
    return d


def turns() -> Drawing:
    """Two instances of a consumer share a ring; the turn goes round."""
    trips, slots = 6, 2
    fills: list[tuple[int, int]] = []
    uses: list[tuple[int, int]] = []
    busy = [0, 0]
    turn = 0
    for n in range(trips):
        begin = max(fills[-1][1] if fills else 0, turns_release(uses, n - slots))
        fills.append((begin, begin + 1))
        start = max(turn, busy[n % 2], fills[n][1])
        uses.append((start, start + 2))
        turn = start + 2
        busy[n % 2] = start + 4  # the rest of its iteration overlaps the other's turn
    until = uses[-1][1] + 3
    d = Drawing(int(at(until)) + 24, 24 + ROW * 3 + 66)
    row(d, 10, "producer", fills, slots)
    for i in range(2):
        mine = uses[i::2]
        y = 18 + ROW * (1 + i) + 14 * i
        row(d, y, f"instance {i}", mine, slots, i, 2)
        for _, end in mine:
            d.box(at(end), y + 3, UNIT * 2, ROW - 6, "#ffffff", "rest")
    low, high = 18 + ROW * 2 - 3, 18 + ROW * 2 + 14 + 3
    for n, (_, end) in enumerate(uses[:-1]):
        d.line((at(end), low if n % 2 == 0 else high), (at(end), high if n % 2 == 0 else low), arrow=True)
    d.text(MARGIN - 10, (low + high) / 2 + 4, "turn", "end")
    axis(d, d.height - 16)
    return d


def turns_release(uses: Sequence[tuple[int, int]], n: int) -> int:
    """When the slot of a position is given back; 0 if there is no such position."""
    return uses[n][1] if n >= 0 else 0


def drawn(draw: Callable[[Path], None]) -> str:
    """What a method that writes a file draws."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.svg"
        draw(path)
        return path.read_text(encoding="utf-8")


def fusion() -> str:
    """The founding example."""
    return drawn(founding.build().draw)


def timeline() -> str:
    """Three roles of examples/pipeline.py."""
    x, scale = np.ones((1, 200), np.float32), np.ones(200, np.float32)
    return drawn(tf.lower(pipeline.build(stages=2)).timeline(x, scale).draw)


def tile_list() -> str:
    """Four problems with little and much to add up, in the given order."""
    problems = tuple(tf.tiles.Problem(m, n, k) for m, n, k in ((384, 256, 128), (384, 256, 1024), (256, 384, 128), (256, 384, 1024)))
    return tf.tiles.picture(tf.tiles.WorkList(problems, (128, 128), 12))


PICTURES: dict[str, Callable[[], object]] = {
    "ring": anatomy,
    "phases": cycle,
    "lag": trailing,
    "turns": turns,
    "fusion": fusion,
    "timeline": timeline,
    "tile_list": tile_list,
}
"""The pictures, by the names of their files."""


def main() -> None:
    """Write all of them."""
    for name, draw in PICTURES.items():
        (Path(__file__).parent / f"{name}.svg").write_text(str(draw()), encoding="utf-8")


if __name__ == "__main__":
    main()
