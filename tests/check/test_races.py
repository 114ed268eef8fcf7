"""Conflicting accesses: disjoint, of one thread, in slots of a ring, or ordered by a barrier; and what is none of these."""

import pytest

from taskfuse.check.races import Races
from taskfuse.check.tma_prefetch import TmaPrefetch
from taskfuse.reports.certificate import Verdict
from tests.check.edited import gaps
from tests.check.structured import structure


def reasons(body: str) -> list[str]:
    """Why accesses of a body may race."""
    found = structure(body)
    prefetch = TmaPrefetch(found.rings, found.multibuffers)
    races = Races(found.tree, found.threads, found.barriers, found.rings, found.paths, found.multibuffers, prefetch)
    return [o.reason for o in races.check() if o.verdict is not Verdict.PROVED]


STORE, SWAP = "s[0, threadIdx.x] = copy(x[0, threadIdx.x])\n", "s[1, threadIdx.x] = copy(s[0, 63 - threadIdx.x])\n"


@pytest.mark.parametrize(
    "body",
    [
        STORE + "SYNC block\n" + SWAP,
        STORE + SWAP.replace("63 - threadIdx.x", "threadIdx.x"),
        STORE + SWAP.replace("s[0", "s[2"),
        "FOR i in 0..N:\n  " + STORE + "  SYNC block\n  " + SWAP + "  SYNC block\n",
        "FOR i in 0..3:\n  s[i, threadIdx.x] = copy(x[0, threadIdx.x])\nSYNC block\ns[3, threadIdx.x] = copy(s[2, 63 - threadIdx.x])\n",
        "IF threadIdx.x < 32:\n  " + STORE + "IF threadIdx.x >= 32:\n  " + STORE,
    ],
)
def test_no_race(body: str) -> None:
    assert reasons(body) == []


AROUND = "FOR i in 0..N:\n  " + STORE + "  SYNC block\n  " + SWAP


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (STORE + SWAP, "nothing orders them in one iteration"),
        ("s[0, threadIdx.x//2] = copy(x[0, threadIdx.x])\n", "different threads may touch one element in one statement"),
        (AROUND, "nothing orders them in different iterations of the loop over i"),
        (f"IF threadIdx.x < 32:\n  {STORE}ELSE:\n  {SWAP}", "they stand in different arms, and nothing orders them"),
        (f"{STORE}IF threadIdx.x < 32:\n  SYNC warp\n{SWAP}", "nothing orders them in one iteration"),
    ],
)
def test_races(body: str, reason: str) -> None:
    assert reason in reasons(body)


def test_slots_of_a_ring() -> None:
    use, release = "    y[k, threadIdx.x] = add(s[c.slot, threadIdx.x], 1.0)\n", "    ARRIVE empty[c.slot]\n"
    assert gaps("ring", ("add(s[c.slot, ", "add(s[(c.slot + 1) % 2, "))
    assert any(gap.startswith("s: ") for gap in gaps("ring", (use + release, release + use)))


def test_what_is_in_flight_at_the_end() -> None:
    assert any("COPY.async" in gap or "in flight" in gap for gap in gaps("ahead", ("WAIT_GROUP copy <= 0\n", "")))
