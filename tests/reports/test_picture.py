"""The picture of a recording."""

import xml.etree.ElementTree as ET

from taskfuse.errors import SimulationError
from taskfuse.reports.picture import timeline_picture
from taskfuse.reports.recording import Lane, PhaseCompletion, Recording, Span, SpanKind

LANES = (Lane(0, "load", "threads 0-31"), Lane(1, "load", "threads 0-31"))
SPANS = (Span(0, SpanKind.STATEMENT, "ARRIVE full[0]", 0, 2, 0), Span(0, SpanKind.WAIT, "WAIT full[1]", 2, 8, 1), Span(1, SpanKind.STATEMENT, "x", 0, 3))


def texts(recording: Recording, blocks: int) -> list[str]:
    root = ET.fromstring(timeline_picture(recording, blocks))
    return ["".join(e.itertext()) for e in root.iter() if e.tag.endswith("text")]


def test_rows_and_slots() -> None:
    recording = Recording("k", 8, ((0, 0, 0), (1, 0, 0)), LANES, SPANS, (PhaseCompletion(0, "full", 0, 2),), ())
    found = texts(recording, 1)
    assert found[0] == "k: 8 steps"
    assert {"block (0, 0, 0)", "load threads 0-31", "full", "on slot 0", "waits", "and 1 more block"} <= set(found)
    assert "block (1, 0, 0)" not in found
    both = texts(recording, 2)
    assert "block (1, 0, 0)" in both
    assert not [t for t in both if t.endswith("more block")]


def test_what_ended_the_run_is_said() -> None:
    error = SimulationError(kernel="k", reason="read of uninitialized s")
    assert any("read of uninitialized s" in t for t in texts(Recording("k", 8, ((0, 0, 0),), LANES[:1], SPANS[:2], (), (), error), 1))
