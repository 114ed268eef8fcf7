"""Barriers of two roles in blocks of a symbolic extent: what is made, and what its generator knows."""

from collections import Counter
from functools import cache

import pytest

from taskfuse.errors import TaskfuseError
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.machine import find_fault
from taskfuse.testing.outcomes import is_valid
from taskfuse.testing.refutation import look
from taskfuse.testing.small.sides.role_pairs import RolePair, role_pairs
from taskfuse.testing.small.sides.side import Side


def made(seed: int) -> Side | None:
    try:
        side = role_pairs(RandomChooser(seed))
    except TaskfuseError:
        return None
    return side if is_valid(side.kernel) else None


@cache
def sides() -> list[tuple[int, Side]]:
    return [(seed, side) for seed in range(120) if (side := made(seed)) is not None]


def test_they_are_of_all_kinds_right_and_wrong() -> None:
    kinds = Counter((side.kind, side.right) for _, side in sides())
    for kind in ("meet", "handover", "named"):
        assert min(kinds[f"pair of roles: {kind}", right] for right in (True, False)) >= 3, kinds
    text = "".join(str(side.kernel) for _, side in sides())
    for word in ("DIM N", "max 2", "FOR k in 0..M", "ELSE IF", "BLOCK (N, 1, 1)", "BLOCK (32, N, 1)", "count N", "SYNC named 1, 32*"):
        assert word in text, word


def test_the_second_machine_finds_what_is_known() -> None:
    for seed, side in sides():
        fault = find_fault(side.kernel, side.extents, 2)
        assert side.right is None or (fault is None) == side.right, f"seed {seed}: {fault}\n{side.kernel}"


def test_what_is_proved_has_no_fault() -> None:
    rows = [look(0, seed, side, 1) for seed, side in sides()]
    assert not any(row.false_accept or row.error for row in rows)
    assert sum(row.proved for row in rows) >= len(rows) // 4


@pytest.mark.parametrize(
    ("first", "second", "counts"),
    [("threadIdx.y < 2", "threadIdx.y >= 2", (2, 3)), ("threadIdx.y <= 2", "threadIdx.y >= 2", (3, 2)), ("threadIdx.y == N", "threadIdx.y == N - 1", (0, 1))],
)
def test_a_thread_of_both_roles_has_the_first_one(first: str, second: str, counts: tuple[int, int]) -> None:
    one, two = RolePair("threadIdx.y", 32, first, second, (5,)).count(5)
    assert (one, two) == (32 * counts[0], 32 * counts[1])
    at_lines = RolePair("threadIdx.x", 1, first.replace("y", "x"), second.replace("y", "x"), (5,)).count(5)
    assert at_lines == counts
