"""Pictures as SVG: shapes in painting order, escaped text, and numbers that print alike on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

FONT = 11
"""Size of text, in pixels."""
_ADVANCE = 0.605  # of a character, in font sizes: that of common monospaced fonts
_INK, _LINE = "#222222", "#555555"

Point = tuple[float, float]


def text_width(text: str, size: int = FONT) -> float:
    """Width of a line of text, in pixels."""
    return len(text) * size * _ADVANCE


@dataclass(slots=True)
class Drawing:
    """A picture of a given size in pixels, on white."""

    width: float = 0
    height: float = 0
    _shapes: list[str] = field(default_factory=list[str])
    _definitions: dict[str, str] = field(default_factory=dict[str, str])

    def box(
        self, x: float, y: float, w: float, h: float, fill: str, *, line: str = _LINE, weight: float = 1, round: float = 3, dashed: bool = False, note: str = ""
    ) -> None:
        """A rectangle. ``note``: its tooltip."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        attributes = f'x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{round:g}" fill={quoteattr(fill)} stroke="{line}" stroke-width="{weight:g}"{dash}'
        self._shapes.append(f"<rect {attributes}><title>{escape(note)}</title></rect>" if note else f"<rect {attributes}/>")

    def text(self, x: float, y: float, text: str, *, size: int = FONT, anchor: str = "start", bold: bool = False, fill: str = _INK) -> None:
        """A line of text with its base line at ``y``; ``anchor``: start, middle or end."""
        weight = ' font-weight="bold"' if bold else ""
        color = "" if fill == _INK else f' fill="{fill}"'
        self._shapes.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight}{color}>{escape(text)}</text>')

    def line(self, points: Sequence[Point], *, line: str = _LINE, weight: float = 1, dashed: bool = False) -> None:
        """A polyline."""
        self._path("L".join(f"{x:g},{y:g}" for x, y in points), line, weight, "", dashed)

    def curve(self, points: Sequence[Point], *, line: str = _LINE, weight: float = 1, note: str = "") -> None:
        """A curve through points that it leaves downwards and reaches from above, with an arrow head at its end."""
        bends = "".join(f" C{a:g},{(b + d) / 2:g} {c:g},{(b + d) / 2:g} {c:g},{d:g}" for (a, b), (c, d) in pairwise(points))
        head = f"head{line.removeprefix('#')}"
        self._definitions[head] = (
            f'<marker id="{head}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse" orient="auto">'
            f'<path d="M0,0 L8,4 L0,8 z" fill="{line}"/></marker>'
        )
        self._path(f"{points[0][0]:g},{points[0][1]:g}{bends}", line, weight, f' marker-end="url(#{head})"', False, note)

    def _path(self, path: str, line: str, weight: float, extra: str, dashed: bool, note: str = "") -> None:
        dash = ' stroke-dasharray="3 3"' if dashed else ""
        attributes = f'd="M{path}" fill="none" stroke="{line}" stroke-width="{weight:g}"{dash}{extra}'
        self._shapes.append(f"<path {attributes}><title>{escape(note)}</title></path>" if note else f"<path {attributes}/>")

    def hatched(self, line: str) -> str:
        """A fill of thin slanted lines."""
        name = f"hatch{line.removeprefix('#')}"
        self._definitions[name] = (
            f'<pattern id="{name}" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            f'<rect width="5" height="5" fill="#ffffff"/><line x1="0" y1="0" x2="0" y2="5" stroke="{line}" stroke-width="1.6"/></pattern>'
        )
        return f"url(#{name})"

    def __str__(self) -> str:
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" fill="{_INK}">'
        ground = f'<rect width="{self.width:g}" height="{self.height:g}" fill="#ffffff"/>'
        definitions = [f"<defs>{''.join(self._definitions.values())}</defs>"] if self._definitions else []
        return "\n".join([head, *definitions, ground, *self._shapes, "</svg>", ""])
