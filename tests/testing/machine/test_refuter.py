"""The search for a fault in small launches: which are run, in which orders, and where it ends."""

from __future__ import annotations

from typing import Any

import pytest

from taskfuse.kir import parse_kernel
from taskfuse.testing.launches import Launches
from taskfuse.testing.machine import FaultKind, find_fault, refuter
from taskfuse.testing.machine.machine import Order, SecondMachine
from tests.lowering.over_clusters import (
    EARLY_EXIT,
    NOT_AFTER,
    NOT_BEFORE,
    OF_A_BLOCK,
    OUTSIDE,
    SOMETIMES,
    STORED_THERE,
    TOO_FEW,
    UNORDERED,
    exchange,
    meet,
)

TEXT = """\
KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N min 1 max 64
  GRID (1, 1, 1)  BLOCK (32, 1, 1)

IF threadIdx.x < N:
  SYNC warp
  y[threadIdx.x] = copy(x[threadIdx.x])
"""
SMALL = parse_kernel(TEXT)
RACE = parse_kernel(TEXT.replace("y[threadIdx.x]", "y[threadIdx.x % 8]"))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Order, int]]:
    """The launches that are run: N, the order, the seed."""
    found: list[tuple[int, Order, int]] = []

    class Noted(SecondMachine):
        def __init__(self, code: Any, launch: Any, order: Order, seed: int, most_steps: int) -> None:
            found.append((launch.values["N"], order, seed))
            super().__init__(code, launch, order, seed, most_steps)

    monkeypatch.setattr(refuter, "SecondMachine", Noted)
    return found


def test_each_launch_in_a_few_orders(runs: list[tuple[int, Order, int]]) -> None:
    assert find_fault(SMALL, [{"N": 8}, {"N": 3}], 4) is None
    orders = [Order.RANDOM, Order.FIRST, Order.LAST, Order.RANDOM]
    assert runs == [(n, order, seed) for n in (8, 3) for seed, order in enumerate(orders)]


def test_without_synchronization_one_order_says_all(runs: list[tuple[int, Order, int]]) -> None:
    assert find_fault(parse_kernel(TEXT.replace("  SYNC warp\n", "")), [{"N": 8}], 4) is None
    assert len(runs) == 1


def test_what_is_no_launch_is_left_out(runs: list[tuple[int, Order, int]]) -> None:
    endings = Launches()
    assert find_fault(SMALL, [{}, {"N": 65}, {"N": 8}], 1, endings=endings) is None
    assert [n for n, _, _ in runs] == [8]
    assert endings == {"second machine: refused": 2, "second machine: decided": 1}


def test_the_first_fault_ends_the_search(runs: list[tuple[int, Order, int]]) -> None:
    found = find_fault(RACE, [{"N": 8}, {"N": 9}, {"N": 10}], 1)
    assert found is not None
    assert found.kind is FaultKind.RACE
    assert found.launch == "extents {'N': 9}, order 0 (random)"
    assert found.statement == "y[threadIdx.x % 8] = copy(x[threadIdx.x])"
    assert [n for n, _, _ in runs] == [8, 9]


def test_a_run_that_is_too_long_says_nothing_of_its_launch(runs: list[tuple[int, Order, int]]) -> None:
    long = parse_kernel(TEXT.replace("  SYNC warp\n", "  SYNC warp\n  FOR k in 0..100*N:\n    SYNC warp\n"))
    endings = Launches()
    assert find_fault(long, [{"N": 8}, {"N": 7}], 3, most_steps=50, endings=endings) is None
    assert [n for n, _, _ in runs] == [8, 7]
    assert endings == {"second machine: too long": 2}


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ((UNORDERED,), FaultKind.LIFE),  # nobody knows that the other block has begun
        ((OF_A_BLOCK,), FaultKind.LIFE),
        ((EARLY_EXIT,), FaultKind.LIFE),
        (STORED_THERE, FaultKind.LIFE),
        ((OUTSIDE,), FaultKind.BOUNDS),
        ((("s[clusterIdx.x, threadIdx.x] = copy(x", "s[0, threadIdx.x] = copy(x"), ("\n\ns[", "\n\nSYNC cluster\ns[")), FaultKind.RACE),
    ],
)
def test_memory_of_other_blocks(changes: tuple[tuple[str, str], ...], kind: FaultKind) -> None:
    assert find_fault(exchange()) is None
    found = find_fault(exchange(*changes), orders=3)
    assert found is not None
    assert found.kind is kind


@pytest.mark.parametrize("change", [NOT_BEFORE, NOT_AFTER, TOO_FEW, SOMETIMES])
def test_threads_that_meet_through_one_of_each_block(change: tuple[str, str]) -> None:
    assert find_fault(meet(), orders=3) is None
    assert find_fault(meet(change), orders=3) is not None


DECREASING = """\
KERNEL k(t: int32[3]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)

IF clamp(t[2 of 3], 0, 9) < clamp(t[1 of 3], 0, 9):
  y[0] = copy(1.0)
"""


def test_tables_hold_anything_in_other_orders() -> None:
    fault = find_fault(parse_kernel(DECREASING), orders=8)
    assert fault is not None
    assert fault.kind is FaultKind.RACE
    assert find_fault(parse_kernel(DECREASING), orders=1) is None
    assert find_fault(parse_kernel(DECREASING.replace("int32[3]", "int32[3] rising 0..9")), orders=8) is None


CLAIMED = """\
KERNEL claimed(x: float32[N, 32]) -> (y: float32[N, 32])
  DIM N max 9
  GRID (4, 1, 1)  BLOCK (32, 1, 1)
  QUEUE q[N]

FOR i in 0..N of q:
  y[i//2, threadIdx.x] = copy(x[i, threadIdx.x])
"""


def test_blocks_claim_in_turn() -> None:
    """Two numbers of one element: a race if they are claimed by different blocks."""
    fault = find_fault(parse_kernel(CLAIMED), [{"N": 6}], 2)
    assert fault is not None
    assert fault.kind is FaultKind.RACE
    assert find_fault(parse_kernel(CLAIMED.replace("y[i//2", "y[i")), [{"N": 6}], 2) is None
