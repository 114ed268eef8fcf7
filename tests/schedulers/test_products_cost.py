"""The cost model of lists of products: the slowest block decides."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taskfuse.errors import UnsupportedError
from taskfuse.schedulers.cost import MatmulProblem, estimate
from taskfuse.schedulers.products_cost import ProductsConfig, configurations, ends_of_claims, estimate_list, order_of, rank_lists, work_list

TEXT = tuple(MatmulProblem(m, n, k) for m, n, k in ((1152, 768, 128), (1152, 768, 1024), (768, 1152, 128), (768, 1152, 1024)))
CONFIG = ProductsConfig(128, 128, stages=6, blocks=108)


def test_sorted_lists_are_faster_where_depths_differ() -> None:
    by_k, given = (estimate_list(TEXT, ProductsConfig(128, 128, stages=6, blocks=108, is_sorted=s)) for s in (True, False))
    assert given.us > 1.3 * by_k.us
    assert (by_k.most, by_k.tiles, by_k.imbalance) == (2, 216, pytest.approx(1))
    assert order_of(TEXT, CONFIG) == (1, 3, 0, 2)
    assert work_list(TEXT, CONFIG).starts == (0, 54, 108, 162, 216)


def test_a_list_of_one_problem_takes_what_the_problem_takes() -> None:
    one = MatmulProblem(4096, 4096, 1024)
    config = ProductsConfig(128, 256, blocks=132)
    assert estimate_list([one], config).us == pytest.approx(estimate(one, config.of_one(8)).us)


def test_claimed_tiles_even_out_what_sorting_does_not() -> None:
    causal = tuple(MatmulProblem(512, 2048, 512 * (row + 1)) for row in range(8))
    chosen = rank_lists(causal, may_claim=True)[0]
    assert chosen.config.is_dynamic
    assert chosen.row.endswith("sorted, claimed")
    dealt = estimate_list(causal, replace(chosen.config, is_dynamic=False))
    assert chosen.imbalance < dealt.imbalance
    assert chosen.us < dealt.us
    assert not any(e.config.is_dynamic for e in rank_lists(causal))


def test_claims_cost_where_tiles_are_equal() -> None:
    equal = (MatmulProblem(4224, 4096, 1024),) * 2
    assert not rank_lists(equal, may_claim=True)[0].config.is_dynamic
    config = ProductsConfig(128, 128, stages=4, blocks=132)
    assert estimate_list(equal, replace(config, is_dynamic=True)).us > estimate_list(equal, config).us


def test_blocks_claim_the_next_tile_when_they_come_to_it() -> None:
    ends = ends_of_claims(np.array([4.0, 1.0]), np.array([3, 5]), 2)  # 4 + 4 | 4 + 1 + 1 + 1 + 1, then 1 more
    assert sorted(ends) == [8.0, 9.0]


def test_candidates_fit_all_products() -> None:
    found = list(configurations([TEXT[0], MatmulProblem(512, 512, 512, sides=2)]))
    assert found
    assert all(c.tile_m % 64 == 0 and c.blocks <= 132 for c in found)
    ranked = rank_lists(TEXT)
    assert [e.us for e in ranked] == sorted(e.us for e in ranked)
    assert {e.config.is_sorted for e in ranked} == {True, False}
    assert not any(c.is_sorted for c in configurations([TEXT[0], TEXT[2]]))


def test_parameters_that_make_no_schedule() -> None:
    wrong: Any = 2
    with pytest.raises(UnsupportedError, match="use True or False"):
        ProductsConfig(is_sorted=wrong)
    with pytest.raises(UnsupportedError, match="accumulators"):
        ProductsConfig(256, 256)
