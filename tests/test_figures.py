"""Figures of the cost models."""

from itertools import pairwise

from taskfuse.figures import AssumedFigures, AttentionFigures, ProductFigures
from taskfuse.target import TARGETS


def test_wider_loads_reach_more_of_the_bandwidth() -> None:
    shares = [AssumedFigures().load_share(size) for size in (1, 2, 4, 8, 16)]
    assert all(a < b for a, b in pairwise(shares))
    assert shares[-1] == 1


def test_threads_with_more_of_the_result_load_less() -> None:
    shares = sorted((rows * columns, share) for (rows, columns), share in ProductFigures().simt_shares)
    assert all(a[1] < b[1] for a, b in pairwise(shares) if a[0] < b[0])


def test_more_warpgroups_hide_more_of_the_softmax() -> None:
    assert all(a > b for a, b in pairwise(AttentionFigures().exposed))


def test_what_nobody_measured_is_alike_for_all() -> None:
    assert {t.assumed for t in TARGETS.values()} == {AssumedFigures()}
