"""Random products on tensor cores, rows of awkward lengths, tensors computed elsewhere: exact under every interleaving, proved or said not to be.

`make fuzz` checks as many as wanted, of every kind.
"""

from collections.abc import Sequence

import pytest

from taskfuse.testing import CheckError, Distribution, Effort, Mix, check_case
from taskfuse.testing.fuzz import failure, reproduction
from tests.random_cases import random_case_of

EFFORT = Effort(interleavings=3, orders=1, prove=True)
"""Three of the eight kinds of interleavings: which ones follows from the case."""
SEEDS = {Mix.PRODUCTS: (0, 1, 2, 3, 5, 6, 9, 11), Mix.ROWS: (0, 1, 2, 3, 4, 5, 8, 11), Mix.REWRITES: (0, 1, 2, 3, 4, 5, 10, 11)}
"""Together they have every statement, function, rule, memory and mechanism that the first twelve of each kind have."""
HALVES = [slice(0, 4), slice(4, 8)]


def check(mix: Mix, seeds: Sequence[int]) -> None:
    for seed in seeds:
        try:
            check_case(random_case_of(seed, mix), EFFORT)
        except CheckError as error:
            pytest.fail(failure(reproduction(seed, mix, EFFORT), error, budget=100), pytrace=False)


@pytest.mark.parametrize("some", HALVES, ids=["first", "last"])
def test_products(some: slice) -> None:
    check(Mix.PRODUCTS, SEEDS[Mix.PRODUCTS][some])


@pytest.mark.parametrize("some", HALVES, ids=["first", "last"])
def test_rows_and_rewrites(some: slice) -> None:
    check(Mix.ROWS, SEEDS[Mix.ROWS][some])
    check(Mix.REWRITES, SEEDS[Mix.REWRITES][some])


def test_most_products_lower_with_what_they_draw_on() -> None:
    seen = Distribution()
    for seed in range(40):
        seen.add(random_case_of(seed, Mix.PRODUCTS))
    assert seen.crashed == 0
    assert seen.lowered >= 0.7 * seen.cases, seen.text()
    for mechanism, floor in {"wgmma": 10, "mma": 5, "tma_load": 4, "ldmatrix_x4": 4, "tile order": 4, "group on threads": 12, "allocation domain": 10}.items():
        assert seen.kept[mechanism] >= floor, seen.table()
        assert seen.kept[mechanism] >= 0.6 * seen.drawn[mechanism], seen.table()


def test_registers_are_read_only_where_an_atom_under_a_guard_has_set_them() -> None:
    check(Mix.PRODUCTS, [7024])


@pytest.mark.parametrize("seed", [100012, 100040, 100182, 100368])
def test_everything_together(seed: int) -> None:
    """An empty axis in registers; bulk loads of a task with fewer threads; semaphores at extents; loads for a cluster in one role."""
    check(Mix.EVERYTHING, [seed])


@pytest.mark.parametrize("seed", [162, 203])
def test_rows_of_fusions_that_have_no_axis(seed: int) -> None:
    check(Mix.ROWS, [seed])
