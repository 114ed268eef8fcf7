"""The layout of nested boxes: layers by dependency at every level, so that edges lead downwards, and edges that go around boxes.

Members of one box that do not depend on each other are placed side by side, others below each other. So every edge ends below its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from taskfuse.svg import Point

GAP, DROP, MARGIN, HEAD = 18.0, 30.0, 12.0, 20.0
"""Distance between boxes of a row; between rows; between a box and its content; height of its title."""
WIDEST = 1500.0
"""The greatest width of a row."""
_CLEAR = 5.0  # between an edge and a box that it passes
_SAMPLES = 24


@dataclass(slots=True, eq=False)
class DrawnBox:
    """A box with boxes in it, or a leaf.

    Attributes:
        width, height: given for a leaf; for any other box computed, with the given values as minimum.
        inside: the boxes in it, in the preferred order.
        x, y: its top left corner; computed.
    """

    width: float = 0.0
    height: float = 0.0
    inside: list[DrawnBox] = field(default_factory=list["DrawnBox"])
    x: float = 0.0
    y: float = 0.0

    def leaves(self) -> Iterator[DrawnBox]:
        """The leaves in this box, or the box itself."""
        if not self.inside:
            yield self
        for box in self.inside:
            yield from box.leaves()


def arrange(root: DrawnBox, edges: Iterable[tuple[DrawnBox, DrawnBox]]) -> None:
    """Place all boxes in ``root``. ``edges``: from leaf to leaf. Where they form a cycle between the members of a box, one of them leads upwards."""
    above: dict[DrawnBox, DrawnBox] = {}

    def visit(box: DrawnBox) -> None:
        for inner in box.inside:
            above[inner] = box
            visit(inner)

    visit(root)
    lifted: dict[DrawnBox, list[tuple[DrawnBox, DrawnBox]]] = {}
    for a, b in edges:
        path_a, path_b = _path(a, above), _path(b, above)
        parent, (x, y) = next((above[x], (x, y)) for x, y in zip(path_a, path_b, strict=False) if x is not y)
        lifted.setdefault(parent, []).append((x, y))
    _measure(root, lifted)
    _shift(root, 0.0, 0.0)


def _path(box: DrawnBox, above: Mapping[DrawnBox, DrawnBox]) -> list[DrawnBox]:
    """The boxes around a box, from outside inwards, without the root, and the box."""
    found = [box]
    while found[-1] in above:
        found.append(above[found[-1]])
    return found[-2::-1]


def _measure(box: DrawnBox, lifted: Mapping[DrawnBox, list[tuple[DrawnBox, DrawnBox]]]) -> None:
    """Sizes of a box and of all in it, and places relative to it."""
    if not box.inside:
        return
    for inner in box.inside:
        _measure(inner, lifted)
    edges = lifted.get(box, [])
    rows = [row for layer in _layers(box.inside, edges) for row in _broken(layer)]
    inner_width = max(box.width - 2 * MARGIN, *(_length(row) for row in rows))
    sources: dict[DrawnBox, list[DrawnBox]] = {}
    for a, b in edges:
        sources.setdefault(b, []).append(a)
    y = HEAD + MARGIN / 2
    for row in rows:
        ordered = sorted(row, key=lambda b: _center(sources.get(b, ()), row.index(b), inner_width, len(row)))
        x = MARGIN + (inner_width - _length(row)) / 2
        height = max(b.height for b in row)
        for b in ordered:
            b.x, b.y = x, y
            x += b.width + GAP
        y += height + DROP
    box.width, box.height = inner_width + 2 * MARGIN, y - DROP + MARGIN


def _center(sources: Iterable[DrawnBox], place: int, width: float, count: int) -> float:
    """The preferred position of a box: below its sources, else by its place in the row."""
    centres = [s.x + s.width / 2 for s in sources]
    return sum(centres) / len(centres) if centres else MARGIN + width * (place + 0.5) / count


def _layers(boxes: list[DrawnBox], edges: list[tuple[DrawnBox, DrawnBox]]) -> list[list[DrawnBox]]:
    """Boxes by the longest way that leads to them; those that nothing leads to just above the first of their readers."""
    before: dict[DrawnBox, set[DrawnBox]] = {b: set() for b in boxes}
    after: dict[DrawnBox, set[DrawnBox]] = {b: set() for b in boxes}
    for a, b in edges:
        before[b].add(a)
        after[a].add(b)
    level: dict[DrawnBox, int] = {}

    def find(box: DrawnBox) -> int:
        if box not in level:
            level[box] = 0  # where the edges form a cycle, the one that closes it is left out
            level[box] = max((1 + find(b) for b in before[box]), default=0)
        return level[box]

    for b in boxes:
        find(b)
    for b in boxes:
        if not before[b] and after[b]:
            level[b] = min(level[c] for c in after[b]) - 1
    return [row for k in range(max(level.values()) + 1) if (row := [b for b in boxes if level[b] == k])]


def _broken(layer: list[DrawnBox]) -> list[list[DrawnBox]]:
    """A layer in rows of about one length, none longer than :data:`WIDEST` if that can be."""
    count = -(-_length(layer) // WIDEST)
    if count <= 1:
        return [layer]
    rows: list[list[DrawnBox]] = [[]]
    for box in layer:
        if rows[-1] and _length([*rows[-1], box]) > max(WIDEST, box.width):
            rows.append([])
        rows[-1].append(box)
    return rows


def _length(row: list[DrawnBox]) -> float:
    return sum(b.width for b in row) + GAP * (len(row) - 1)


def _shift(box: DrawnBox, x: float, y: float) -> None:
    box.x, box.y = box.x + x, box.y + y
    for inner in box.inside:
        _shift(inner, box.x, box.y)


# -- edges ----------------------------------------------------------------------------------------------------------------------------------


def route(start: Point, end: Point, obstacles: Iterable[DrawnBox]) -> list[Point]:
    """The points of a curve from ``start`` down to ``end`` around ``obstacles``, crossing as few as possible."""
    between = [b for b in obstacles if b.y + b.height > start[1] + 1 and b.y < end[1] - 1]
    straight = [start, end]
    if end[1] < start[1] or not _hits(straight, between):
        return straight
    lanes = sorted({x for b in between for x in (b.x - _CLEAR - 3, b.x + b.width + _CLEAR + 3)}, key=lambda x: (abs(x - start[0]) + abs(x - end[0]), x))
    ways = [straight, *(_detour(start, end, x, between) for x in lanes)]
    return min(ways, key=lambda way: _hits(way, between))


def _detour(start: Point, end: Point, x: float, between: list[DrawnBox]) -> list[Point]:
    """Down a lane at ``x``, from the top of the first obstacle to the bottom of the last one."""
    top, bottom = min(b.y for b in between), max(b.y + b.height for b in between)
    top, bottom = max(top, start[1] + DROP / 2), min(bottom, end[1] - DROP / 2)
    return [start, (x, top), (x, bottom), end] if top < bottom else [start, (x, (start[1] + end[1]) / 2), end]


def _hits(way: list[Point], boxes: list[DrawnBox]) -> int:
    """How many boxes a curve comes too close to."""
    points = [p for a, b in pairwise(way) for p in _samples(a, b)]
    return sum(any(b.x - _CLEAR < x < b.x + b.width + _CLEAR and b.y - 1 < y < b.y + b.height + 1 for x, y in points) for b in boxes)


def _samples(a: Point, b: Point) -> Iterator[Point]:
    """Points of the cubic with vertical tangents that :meth:`taskfuse.svg.Drawing.curve` draws."""
    middle = (a[1] + b[1]) / 2
    for k in range(_SAMPLES + 1):
        t = k / _SAMPLES
        u = 1 - t
        p, q, r, s = u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t
        yield (p + q) * a[0] + (r + s) * b[0], p * a[1] + (q + r) * middle + s * b[1]
