"""Options of cases: each mix has its own, and mixes of several take them in turn."""

from collections import Counter
from dataclasses import fields

import pytest

from taskfuse.testing.options import OPTIONS, TURNS, CaseOptions, Mix

SHARES = [f.name for f in fields(CaseOptions) if f.type == "int" and f.name not in ("ops", "rank", "elements", "depth", "bound_threads", "threads", "blocks")]


def test_every_mix_has_options() -> None:
    assert {*OPTIONS, *TURNS} == {*Mix}
    for turn in TURNS.values():
        assert {*turn} <= {*OPTIONS}


@pytest.mark.parametrize("mix", OPTIONS)
def test_shares_are_percentages(mix: Mix) -> None:
    options = OPTIONS[mix]
    assert {name: share for name in SHARES if not 0 <= (share := getattr(options, name)) <= 100} == {}
    assert min(options.sizes) >= 1
    assert mix.kind(7) is mix


def test_mixes_of_several_take_them_in_turn() -> None:
    n = len(TURNS[Mix.MIXED])
    assert Counter(Mix.MIXED.kind(seed) for seed in range(3 * n)) == {mix: 3 * k for mix, k in Counter(TURNS[Mix.MIXED]).items()}
    assert [Mix.EVERYTHING.kind(seed) for seed in range(len(TURNS[Mix.EVERYTHING]))] == [*TURNS[Mix.EVERYTHING]]


def test_small_cases_are_small() -> None:
    for seed in range(len(TURNS[Mix.SMALL])):
        options = Mix.SMALL.options(seed)
        assert (options.threads, options.blocks) == (64, 12)
        assert options.ops <= 4
        assert options.elements <= 128
