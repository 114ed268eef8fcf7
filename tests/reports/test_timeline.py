"""Timelines: what they record, their text, and the trace event file."""

import json
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import taskfuse as tf
from examples import pipeline, stream
from taskfuse.kir import parse_kernel
from taskfuse.reports.timeline import WIDTH
from taskfuse.sim import Interleaving, Timeline, timeline
from tests.golden import Golden
from tests.reports.streams import RING, X, streamed
from tests.sim.kernels import load, replaced


@pytest.mark.parametrize("interleaving", [Interleaving.ROUND_ROBIN, Interleaving.ASYNC_EARLY, Interleaving.ASYNC_LATE, Interleaving.RANDOM_FINE])
def test_the_file_is_a_trace(interleaving: Interleaving, tmp_path: Path) -> None:
    """Trace Event Format: complete events with a duration, metadata, and flows that start and end inside a slice, times in order."""
    path = tmp_path / "x.json"
    found = tf.lower(stream.build(blocks=2)).timeline(X, interleaving=interleaving)
    found.save(path)
    trace = json.loads(path.read_text(encoding="utf-8"))
    assert set(trace) == {"traceEvents", "displayTimeUnit"}
    events = trace["traceEvents"]
    common = {"ph", "ts", "pid", "tid", "name"}
    keys = {"M": common | {"args"}, "X": common | {"dur", "cat"}, "s": common | {"id", "cat"}, "f": common | {"id", "cat", "bp"}}
    slices: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for e in events:
        assert set(e) - {"args"} == keys[e["ph"]] - {"args"}
        assert all(isinstance(e[k], int) for k in ("ts", "pid", "tid"))
        if e["ph"] == "X":
            assert e["dur"] > 0
            slices.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    assert [e["ts"] for e in events] == sorted(e["ts"] for e in events)
    starts, ends = ({e["id"]: e for e in events if e["ph"] == ph} for ph in "sf")
    assert set(starts) == set(ends)
    assert len(starts) > 50
    for flow, start in starts.items():
        assert start["ts"] <= ends[flow]["ts"]
        for e in (start, ends[flow]):
            assert any(a <= e["ts"] < b for a, b in slices[e["pid"], e["tid"]]), e
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert named == set(slices)
    assert sorted(e["pid"] for e in events if e["name"] == "process_name") == [0, 1]


def test_texts(golden: Golden) -> None:
    golden.check("timelines/ring.txt", str(parse_kernel(RING).timeline(X[:8, :32])))
    golden.check("timelines/gemm.txt", str(multiplied()))


def test_examples_fit() -> None:
    """100 columns; every role works and waits, and fills or empties every slot."""
    for found in (streamed(Interleaving.ROUND_ROBIN), tf.lower(pipeline.build()).timeline(X[:2], X[0])):
        lines = str(found).split("\n")
        assert max(map(len, lines)) <= WIDTH
        assert len(lines) < 24
        for role in ("compute", "bend"):
            assert all(set("012.") <= set(line[24:]) for line in lines if line.startswith(role))


def test_other_widths_and_blocks() -> None:
    found = tf.lower(stream.build(blocks=2)).timeline(X)
    assert max(map(len, found.text(blocks=2, width=60).split("\n")[:-1])) <= 60
    assert "block (1, 0, 0)" in found.text(blocks=2)
    assert "and 1 more blocks" in found.text()


def multiplied() -> Timeline:
    k = parse_kernel(load("gemm"))
    a, b = (np.random.default_rng(2).standard_normal((n, 256)) for n in (256, 8))
    return k.timeline(a.astype(k.inputs[0].dtype.numpy), b.astype(k.inputs[1].dtype.numpy))


def test_wgmma() -> None:
    found = multiplied()
    assert found.error is None
    assert {"TMA load", "TMA store", "tensor core"} <= {lane.name for lane in found.lanes}


def drawn(found: Timeline, tmp_path: Path, blocks: int = 1) -> tuple[list[str], list[tuple[str, str]]]:
    """The texts, and the bars and marks: fill and note."""
    found.draw(tmp_path / "x.svg", blocks)
    root = ET.parse(tmp_path / "x.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    bars = [(e.get("fill", ""), e.findtext(f"{space}title", "")) for e in root.iter(f"{space}rect") if e.find(f"{space}title") is not None]
    return ["".join(e.itertext()) for e in root.iter(f"{space}text")], bars


def test_the_picture_of_a_ring(tmp_path: Path) -> None:
    texts, bars = drawn(timeline(parse_kernel(RING), [X[:3, :32]], interleaving=Interleaving.LOW_FIRST), tmp_path)
    assert texts[:2] == ["ring: 33 steps", "block (0, 0, 0)"]
    assert [t for t in texts if "threads" in t] == ["producer threads 0-31", "consumer threads 32-63"]
    assert {"full", "empty", "at work", "on slot 0", "on slot 1", "waits"} <= set(texts)
    waits = [note for fill, note in bars if fill.startswith("url(#hatch")]
    assert "WAIT empty[p.slot] parity p.parity" in waits
    assert all(note.removesuffix(" …").startswith(("WAIT", "SYNC")) for note in waits)
    marks = [note for _, note in bars if "is complete" in note]
    assert Counter(m.partition(":")[0] for m in marks) == {"full[0]": 2, "full[1]": 1, "empty[0]": 2, "empty[1]": 1}


def test_operations_in_flight_at_once_lie_below_each_other(tmp_path: Path) -> None:
    found = streamed(Interleaving.ASYNC_LATE)
    found.draw(tmp_path / "x.svg")
    rects = [e for e in ET.parse(tmp_path / "x.svg").getroot().iter("{http://www.w3.org/2000/svg}rect") if e.findtext("{http://www.w3.org/2000/svg}title")]
    boxes = [tuple(float(e.get(k, "")) for k in ("x", "y", "width", "height")) for e in rects]
    for (x, y, w, h), (x2, y2, w2, h2) in combinations([b for b in boxes if b[3] > 11], 2):
        assert x + w <= x2 + 1e-6 or x2 + w2 <= x + 1e-6 or y + h <= y2 + 1e-6 or y2 + h2 <= y + 1e-6
    assert any("TMA" in (e.findtext("{http://www.w3.org/2000/svg}title") or "") for e in rects)


def test_the_picture_of_a_run_that_fails_says_why(tmp_path: Path) -> None:
    broken = timeline(parse_kernel(replaced(RING, "ARRIVE empty[c.slot]", "")), [X[:8, :32]])
    texts, _ = drawn(broken, tmp_path)
    assert any("deadlock" in t for t in texts)


def test_more_blocks_are_counted(tmp_path: Path) -> None:
    found = tf.lower(pipeline.build()).timeline(X[:3], X[0])
    assert "and 2 more blocks" in drawn(found, tmp_path)[0]
    texts, _ = drawn(found, tmp_path, blocks=2)
    assert "and 1 more block" in texts
    assert sum(t.startswith("block (") for t in texts) == 2
