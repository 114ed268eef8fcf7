"""Barriers that all of their participants reach, each of them equally often; and why others are none."""

import pytest

from taskfuse.kir.synchronization import Barrier
from taskfuse.reports.certificate import Verdict
from tests.check.structured import nodes, structure


def reasons(body: str, block: str = "(64, 1, 1)") -> list[str]:
    return [o.reason for o in structure(body, block).barriers.obligations if o.verdict is not Verdict.PROVED]


@pytest.mark.parametrize(
    "body",
    [
        "SYNC block",
        "IF blockIdx.x < 2:\n  SYNC block",
        "FOR i in 0..N:\n  SYNC block",
        "IF threadIdx.x < 32:\n  SYNC warp",
        "FOR i in 0..threadIdx.x//32:\n  SYNC warp",
        "IF threadIdx.x < 32:\n  SYNC named 1, 32",
        "SYNC named threadIdx.x//32 + 1, 32",
    ],
)
def test_all_come(body: str) -> None:
    found = structure(body)
    assert [o.reason for o in found.barriers.obligations if o.verdict is not Verdict.PROVED] == []
    assert [*found.barriers.at] == nodes(found, Barrier)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("IF threadIdx.x < 32:\n  SYNC block", "only threads with threadIdx.x < 32 reach a barrier of the whole block"),
        ("IF threadIdx.x < 16:\n  SYNC warp", "only a part of a warp reaches a barrier of the whole warp: threads with threadIdx.x < 16"),
        ("FOR i in 0..4:\n  IF threadIdx.x < 8*i:\n    SYNC block", "the set of threads that reach it varies: "),
        ("IF threadIdx.x < 32:\n  SYNC named 1, 64", "32 threads reach barrier 1, but 64 are expected"),
    ],
)
def test_some_do_not(body: str, reason: str) -> None:
    found = structure(body)
    assert not found.barriers.at
    (said,) = reasons(body)
    assert said.startswith(reason), said


def test_trips_that_differ_between_threads() -> None:
    (said,) = reasons("FOR i in 0..threadIdx.x:\n  SYNC block")
    assert said == "the trip count of the loop over i differs between threads"


def test_one_name_for_two_groups() -> None:
    found = reasons("IF threadIdx.x < 32:\n  SYNC named 1, 32\nELSE:\n  SYNC named 1, 32")
    assert found
    assert all("use the same barrier for another purpose" in r for r in found)


def test_the_indices_on_which_threads_agree_to_meet() -> None:
    found = structure("SYNC block\nSYNC named threadIdx.x//32 + 1, 32\nSYNC warp")
    points = [found.barriers.at[n].sync_point for n in nodes(found, Barrier)]
    assert [None if p is None else (p.threads, p.alike) for p in points] == [(frozenset(), frozenset()), (frozenset(), frozenset({"threadIdx.x"})), None]
