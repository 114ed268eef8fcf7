"""Random parameters of schedulers of products: they differ, and their texts make them again."""

from __future__ import annotations

import pytest

import taskfuse as tf
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.parameters import DRAWN


@pytest.mark.parametrize("name", DRAWN)
def test_texts_make_parameters_again(name: str) -> None:
    drawn = [found for seed in range(60) if (found := DRAWN[name](RandomChooser(seed))) is not None]
    assert all(eval(given.text, {"tf": tf}) == given.value for given in drawn)
    assert len({given.text for given in drawn}) == len({given.value for given in drawn}) > 20


def test_all_kinds_of_parameters_are_drawn() -> None:
    configs = [found.value for seed in range(120) if (found := DRAWN["matmul"](RandomChooser(seed))) is not None]
    assert {c.half for c in configs} == {None, *tf.tiles.Half}
    assert {c.kind for c in configs} == {*tf.schedulers.MatmulKind}
    assert {c.cluster for c in configs} == {1, 2}
    assert {c.residents for c in configs} == {1, 2}
    lists = [found.value for seed in range(20) if (found := DRAWN["products"](RandomChooser(seed))) is not None]
    assert {c.is_dynamic for c in lists} == {True, False}
