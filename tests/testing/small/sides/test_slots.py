"""Rings whose slots lie in any memory."""

from taskfuse.testing.refutation import look
from taskfuse.testing.small.sides.slots import slots
from tests.testing.small.drawn import drawn, lacks, misjudged


def test_every_memory_and_engine_occurs() -> None:
    found = drawn(slots, 60)
    words = (
        "w[p.slot",
        "s[p.slot",
        "g[clusterIdx.x, p.slot",
        "on full[p.slot] across CIDx",
        "scope cluster",
        "COPY.async",
        "UPDATE",
        "by add",
        "bulk.read",
        "w.map(p.slot",
    )
    assert lacks(found, *words) == []


def test_what_is_proved_has_no_fault() -> None:
    found = drawn(slots, 8)
    assert misjudged(found) == []
    proved = [look(0, k, side, 1).proved for k, side in enumerate(found)]
    assert 0 < sum(proved) < len(proved)
