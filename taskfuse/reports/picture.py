"""The picture of a recorded run: a row per lane, time from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskfuse.reports.recording import Recording, Span, SpanKind
from taskfuse.svg import FONT, Drawing, text_width

SLOTS = ("#9ecae1", "#fdd0a2", "#a1d99b", "#dadaeb", "#fcc5c0", "#c7c7c7", "#fff2ae", "#b3e2cd")
"""A color per slot, in turn."""
_NO_SLOT, _WAIT, _GRID = "#eeeeee", "#bdbdbd", "#dddddd"
_BAR, _ROW, _TICKS, _BORDER = 18.0, 26.0, 16.0, 10.0
_WIDE, _LEAST, _MOST = 960.0, 0.75, 16.0  # pixels: of all steps, of one step
_DEEPEST = 4  # operations of an engine that are shown beside each other
_TICK_STEPS = (1, 2, 5)
_MARKS = "marks: a phase of that slot's mbarrier is complete"


@dataclass(frozen=True, slots=True)
class _Bar:
    """One color from step to step."""

    kind: SpanKind
    slot: int
    start: int
    end: int
    note: str


def timeline_picture(timeline: Recording, blocks: int) -> str:
    """See :meth:`taskfuse.reports.timeline.Timeline.draw`."""
    return _TimelinePicture(timeline, blocks).draw()


class _TimelinePicture:
    """One picture in progress."""

    def __init__(self, timeline: Recording, blocks: int) -> None:
        self.timeline = timeline
        self.blocks = min(blocks, len(timeline.blocks))
        self.drawing = Drawing()
        self.names = [f"{lane.name} {lane.threads}".strip() for lane in timeline.lanes]
        names = [name for name, lane in zip(self.names, timeline.lanes, strict=True) if lane.block < self.blocks]
        self.margin = max(map(text_width, (*names, *(c.barrier for c in timeline.completions), "block (0, 0, 0)"))) + 2 * _BORDER
        self.scale = min(max(_WIDE / max(timeline.steps, 1), _LEAST), _MOST)
        self.y = 2 * _BORDER + FONT
        self.used: set[int] = set()

    def draw(self) -> str:
        timeline, drawing = self.timeline, self.drawing
        drawing.text(_BORDER, self.y - _BORDER / 2, f"{timeline.kernel}: {timeline.steps} steps", bold=True)
        self.y += _BORDER / 2
        top = self.y
        for number in range(self.blocks):
            self._block(number)
        lines = [] if timeline.error is None else str(timeline.error).splitlines()
        least = max((text_width(line) for line in lines), default=0.0) + 2 * _BORDER
        drawing.width = max(self.margin + max(timeline.steps * self.scale, text_width(_MARKS)) + 2 * _BORDER, least)
        self._axis(top)
        self._key()
        drawing.height = self.y + _BORDER
        return str(drawing)

    def _x(self, step: float) -> float:
        return round(self.margin + step * self.scale, 2)

    # -- rows -------------------------------------------------------------------------------------------------------------------------

    def _block(self, number: int) -> None:
        timeline = self.timeline
        self.drawing.text(_BORDER, self.y + 12, f"block {timeline.blocks[number]}", fill="#555555")
        self.y += _TICKS + 4
        rows: dict[str, list[int]] = {}
        for k, lane in enumerate(timeline.lanes):
            if lane.block == number:
                rows.setdefault(self.names[k], []).append(k)
        for name, lanes in rows.items():
            if spans := [s for s in timeline.spans if s.lane in lanes]:
                self._row(name, spans)
        for barrier in dict.fromkeys(c.barrier for c in timeline.completions if c.block == number):
            self.drawing.text(self.margin - _BORDER, self.y + 11, barrier, anchor="end")
            for c in timeline.completions:
                if c.block == number and c.barrier == barrier:
                    self._mark(c.step, c.slot, f"{barrier}[{c.slot}]: a phase is complete at step {c.step}")
            self.y += _TICKS
        self.y += _BORDER

    def _row(self, name: str, spans: Sequence[Span]) -> None:
        """What some threads do, or the operations of an engine, those that overlap below each other."""
        self.drawing.text(self.margin - _BORDER, self.y + 13, name, anchor="end")
        levels: list[int] = []
        for bar in _bars(spans):
            level = next((k for k, end in enumerate(levels) if end <= bar.start), len(levels))
            if level == len(levels):
                levels.append(0)
            levels[level] = bar.end
            if level < _DEEPEST:
                self._bar(bar, self.y + level * _BAR)
        self.y += _BAR * min(max(len(levels), 1), _DEEPEST) + (_ROW - _BAR)

    def _bar(self, bar: _Bar, y: float) -> None:
        x = self._x(bar.start)
        width = self._x(bar.end) - x
        if bar.kind is SpanKind.WAIT:
            self.drawing.box(x, y + 4, width, _BAR - 8, self.drawing.hatched(_WAIT), line=_WAIT, weight=0.6, round=0, note=bar.note)
            return
        self.drawing.box(x, y, width, _BAR, self._color(bar.slot), line="#ffffff", weight=0.6, round=1, note=bar.note)
        if bar.slot >= 0 and width >= text_width(str(bar.slot)) + 4:
            self.drawing.text(x + width / 2, y + 13, str(bar.slot), anchor="middle")

    def _mark(self, step: int, slot: int, note: str) -> None:
        self.drawing.box(self._x(step) - 2, self.y + 2, 4, 11, self._color(slot), line="#555555", weight=0.6, round=1, note=note)

    def _color(self, slot: int) -> str:
        if slot < 0:
            return _NO_SLOT
        self.used.add(slot % len(SLOTS))
        return SLOTS[slot % len(SLOTS)]

    # -- around them ------------------------------------------------------------------------------------------------------------------

    def _axis(self, top: float) -> None:
        """Numbers of steps, about a hundred pixels apart."""
        step = next(n * 10**k for k in range(12) for n in _TICK_STEPS if n * 10**k * self.scale >= 80)
        for k in range(0, self.timeline.steps + 1, step):
            self.drawing.line([(self._x(k), top + 2), (self._x(k), self.y - _BORDER)], line=_GRID, weight=0.6, dashed=True)
            self.drawing.text(self._x(k), top + 10, str(k), size=FONT - 2, anchor="middle", fill="#777777")
        self.y += 4

    def _key(self) -> None:
        x = self.margin
        items = [(_NO_SLOT, "at work")] if any(s.slot < 0 and s.kind is not SpanKind.WAIT for s in self.timeline.spans) else []
        items += [(SLOTS[k], f"on slot {k}") for k in sorted(self.used)] + [(self.drawing.hatched(_WAIT), "waits")]
        for fill, text in items:
            self.drawing.box(x, self.y, 14, 12, fill, line="#999999", weight=0.6, round=1)
            self.drawing.text(x + 19, self.y + 10, text, size=FONT - 1)
            x += 19 + text_width(text, FONT - 1) + 16
        self.y += 18
        if self.timeline.completions:
            self.drawing.text(self.margin, self.y + 10, _MARKS, size=FONT - 1, fill="#555555")
            self.y += 18
        if more := len(self.timeline.blocks) - self.blocks:
            self.drawing.text(self.margin, self.y + 10, f"and {more} more block{'s' * (more > 1)}", size=FONT - 1, fill="#555555")
            self.y += 18
        for line in [] if self.timeline.error is None else str(self.timeline.error).splitlines():
            self.drawing.text(_BORDER, self.y + 10, line, fill="#b30000")
            self.y += 15


def _bars(spans: Sequence[Span]) -> list[_Bar]:
    """Spans that show alike and follow each other, in one. Threads that do not wait are at work until their next span, though it may be others' turn."""
    found: list[_Bar] = []
    ordered = sorted(spans, key=lambda s: (s.start, s.end))
    for span, follow in zip(ordered, [*ordered[1:], None], strict=True):
        end = span.end if follow is None or span.kind is SpanKind.OPERATION else max(span.end, follow.start)
        last = found[-1] if found else None
        if last is not None and span.kind is not SpanKind.OPERATION and (last.kind, last.slot, last.end) == (span.kind, span.slot, span.start):
            note = last.note if last.note.endswith(" …") else f"{last.note} …"
            found[-1] = _Bar(span.kind, span.slot, last.start, end, note)
        elif end > span.start:
            found.append(_Bar(span.kind, span.slot, span.start, end, span.name))
    return found
