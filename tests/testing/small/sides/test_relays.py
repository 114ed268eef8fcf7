"""Accesses in turn, and between them what shows and orders them."""

from taskfuse.testing.refutation import look
from taskfuse.testing.small.sides.relays import relays
from tests.testing.small.drawn import drawn, lacks, misjudged

PLANTED = (
    "SYNC block",
    "SYNC named",
    "SYNC warp",
    "SYNC cluster",
    "SYNC grid",
    "ARRIVE",
    "scope cluster",
    "FENCE proxy.async.global",
    "UPDATE",
    "by add",
    "COPY.async",
)


def test_every_scope_and_proxy_occurs() -> None:
    found = drawn(relays, 70)
    assert lacks(found, *PLANTED, "FOR k in 0..N", "ARRIVE.async", "bulk.read", "clusterIdx.x ==", "blockIdx.x ==") == []


def test_what_is_proved_has_no_fault() -> None:
    found = drawn(relays, 8)
    assert misjudged(found) == []
    proved = [look(0, k, side, 1).proved for k, side in enumerate(found)]
    assert 0 < sum(proved) < len(proved)
