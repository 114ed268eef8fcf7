"""A run of the simulator as lanes of spans: as text, picture and trace file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase, digits
from typing import Any

from taskfuse.reports.picture import timeline_picture
from taskfuse.reports.recording import Recording, SpanKind

WIDTH = 100  # columns of the text
_SLOTS = digits + ascii_lowercase
_BUSY = "="
_WAITS = "."


@dataclass(frozen=True, slots=True)
class Timeline(Recording):
    """A recorded run: readable as text, as a picture, or in a trace viewer."""

    def save(self, path: str | Path) -> None:
        """Write the trace event file (JSON) that Perfetto (ui.perfetto.dev) and chrome://tracing open; one step is one microsecond."""
        Path(path).write_text(json.dumps({"traceEvents": self.events(), "displayTimeUnit": "ms"}), encoding="utf-8")

    def draw(self, path: str | Path, blocks: int = 1) -> None:
        """Write a picture (SVG) of the first ``blocks`` blocks: a row per set of threads and engine, waits hatched, a color per slot."""
        Path(path).write_text(timeline_picture(self, blocks), encoding="utf-8")

    def events(self) -> list[dict[str, Any]]:
        """The trace events, by time: a process per block, a thread per lane, flows from arrivals to the waits that they end."""
        found: list[dict[str, Any]] = []
        for number, index in enumerate(self.blocks):
            found.append({"ph": "M", "ts": 0, "pid": number, "tid": 0, "name": "process_name", "args": {"name": f"{self.kernel} block {index}"}})
        for tid, lane in enumerate(self.lanes):
            name = f"{lane.name} ({lane.threads})" if lane.threads else lane.name
            found.append({"ph": "M", "ts": 0, "pid": lane.block, "tid": tid, "name": "thread_name", "args": {"name": name}})
            found.append({"ph": "M", "ts": 0, "pid": lane.block, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}})
        timed: list[dict[str, Any]] = []
        for span in self.spans:
            event = {"ph": "X", "ts": span.start, "dur": span.end - span.start, **self._row(span.lane), "name": span.name, "cat": span.kind.value}
            timed.append(event if span.slot < 0 else {**event, "args": {"slot": span.slot}})
        for number, flow in enumerate(self.flows):
            common = {"id": number, "name": flow.name, "cat": "arrival"}
            timed.append({"ph": "s", "ts": flow.source[1], **self._row(flow.source[0]), **common})
            timed.append({"ph": "f", "bp": "e", "ts": flow.target[1], **self._row(flow.target[0]), **common})
        return found + sorted(timed, key=lambda e: e["ts"])

    def _row(self, lane: int) -> dict[str, int]:
        return {"pid": self.lanes[lane].block, "tid": lane}

    # -- text ---------------------------------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return self.text()

    def text(self, blocks: int = 1, width: int = WIDTH) -> str:
        """One row per set of threads, engine and array of mbarriers; time from left to right.

        Args:
            blocks: how many blocks to show.
            width: columns of the text, at least 40.
        """
        labels = [f"{lane.name} {lane.threads}".strip() for lane in self.lanes]
        margin = max((len(t) for t in (*labels, *(c.barrier for c in self.completions))), default=0) + 2
        step = max(1, -(-self.steps // max(1, width - margin)))
        lines = [f"{self.kernel}: {self.steps} steps, {step} per column"]
        for number, index in enumerate(self.blocks[:blocks]):
            lines.append(f"block {index}")
            rows: dict[str, list[int]] = {}
            for k, lane in enumerate(self.lanes):
                if lane.block == number:
                    rows.setdefault(labels[k], []).append(k)
            lines += [f"{label:<{margin}}{self._picture(row, step)}".rstrip() for label, row in rows.items()]
            for name in dict.fromkeys(c.barrier for c in self.completions if c.block == number):
                lines.append(f"{name:<{margin}}{self._marks(number, name, step)}".rstrip())
        if len(self.blocks) > blocks:
            lines.append(f"and {len(self.blocks) - blocks} more blocks")
        lines.append(f"digits: works on that slot; {_BUSY}: works, no slot yet; {_WAITS}: waits; mbarriers: slots whose phase is over")
        if self.error is not None:
            lines.append(str(self.error))
        return "\n".join(lines)

    def _picture(self, lanes: list[int], step: int) -> str:
        """What some threads do, or the oldest operation of an engine; one character per ``step`` steps: what it is longest of them."""
        cells = [" "] * self.steps
        spans = sorted((s for s in self.spans if s.lane in lanes), key=lambda s: s.start)
        for span, follow in zip(spans, [*spans[1:], None], strict=True):
            # threads that do not wait are at work, though it may be others' turn
            end = span.end if follow is None or span.kind is SpanKind.OPERATION else follow.start
            for k in range(span.start, end):
                if cells[k] == " ":
                    cells[k] = _WAITS if span.kind is SpanKind.WAIT else _slot(span.slot)
        return "".join(_most(cells[k : k + step]) for k in range(0, self.steps, step))

    def _marks(self, block: int, barrier: str, step: int) -> str:
        """The slots of an array of mbarriers whose phases are complete, where that happens."""
        cells = [" "] * self.steps
        for c in self.completions:
            if c.block == block and c.barrier == barrier:
                cells[min(c.step, self.steps - 1)] = _slot(c.slot)
        return "".join(next((c for c in cells[k : k + step] if c != " "), " ") for k in range(0, self.steps, step))


def _slot(slot: int) -> str:
    return _BUSY if slot < 0 else _SLOTS[slot % len(_SLOTS)]


def _most(cells: Sequence[str]) -> str:
    counts: dict[str, int] = {}
    for cell in _seen(cells):
        counts[cell] = counts.get(cell, 0) + 1
    return max(counts, key=lambda c: counts[c]) if counts else " "


def _seen(cells: Sequence[str]) -> Iterator[str]:
    return (c for c in cells if c != " ")
