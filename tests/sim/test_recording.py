"""Runs, recorded: lanes, spans, completions and flows."""

from collections import Counter
from itertools import pairwise

import pytest

from taskfuse.kir import parse_kernel
from taskfuse.reports.recording import SpanKind
from taskfuse.sim import Interleaving, explore, timeline
from tests.reports.streams import RING, X, streamed
from tests.sim.kernels import INTERLEAVINGS, replaced


def test_a_ring() -> None:
    found = timeline(parse_kernel(RING), [X[:3, :32]], interleaving=Interleaving.LOW_FIRST)
    assert [(lane.name, lane.threads) for lane in found.lanes] == [("producer", "threads 0-31"), ("consumer", "threads 32-63")]
    producer = [(s.kind, s.name, s.slot) for s in found.spans if s.lane == 0 and "ARRIVE" in s.name]
    assert producer == [(SpanKind.STATEMENT, "ARRIVE full[p.slot]", slot) for slot in (0, 1, 0)]
    assert [(s.name, s.slot) for s in found.spans if s.kind is SpanKind.WAIT and s.lane == 0] == [("SYNC block", -1), ("WAIT empty[p.slot] parity p.parity", 1)]
    assert sorted((c.barrier, c.slot) for c in found.completions) == [("empty", 0), ("empty", 0), ("empty", 1), ("full", 0), ("full", 0), ("full", 1)]
    # three waits for full, one for empty: the first two pass on a fresh barrier
    assert Counter(f.name for f in found.flows) == {"full[0]": 2, "full[1]": 1, "empty[0]": 1}
    for flow in found.flows:
        assert flow.source[1] < flow.target[1]


@pytest.mark.parametrize("interleaving", INTERLEAVINGS)
def test_spans_of_a_lane_do_not_overlap(interleaving: Interleaving) -> None:
    found = streamed(interleaving)
    for number in range(len(found.lanes)):
        spans = sorted((s.start, s.end) for s in found.spans if s.lane == number)
        assert all(0 <= start < end <= found.steps for start, end in spans)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
    trips = 3 * 4  # tiles of 8 x 64
    counts = Counter(s.name.split(" ")[0] for s in found.spans if s.kind is SpanKind.STATEMENT)
    assert (counts["TMA"], counts["EXPECT"], counts["COMMIT"]) == (2 * trips, trips, trips)
    assert Counter(c.barrier for c in found.completions) == {"ch0.full": trips, "ch1.full": trips, "ch0.empty": trips, "ch1.empty": trips}


def test_a_run_that_fails() -> None:
    found = parse_kernel(replaced(RING, "parity 1", "parity 0")).timeline(X[:3, :32])
    assert found.error is not None
    assert str(found).endswith(str(found.error))
    assert {(s.lane, s.name) for s in found.spans if s.end == found.steps and s.kind is SpanKind.WAIT} == {
        (0, "WAIT empty[p.slot] parity p.parity"),
        (1, "WAIT full[c.slot] parity c.parity"),
    }


def test_the_schedule_of_a_failure() -> None:
    k = parse_kernel(replaced(RING, "    WAIT full[c.slot] parity c.parity\n", ""))
    failure = explore(k, [X[:3, :32]]).failure
    assert failure is not None
    found = timeline(k, [X[:3, :32]], choices=failure.choices)
    assert found.error is None or str(found.error) == str(failure.error)
