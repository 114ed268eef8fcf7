"""What walks and chunks side by side have in common: tensors by chunks, padded where chunks are short."""

from collections.abc import Callable

import pytest

import taskfuse as tf
from taskfuse.ir.expr import FirstValid, Literal
from tests.schedule.folded import Made, attention


def walk(made: Made) -> None:
    tf.cascade(made[1], 4)


def chunks(made: Made) -> None:
    tf.chunk_cascade(made[1], 2, 2)


@pytest.mark.parametrize("rewrite", [walk, chunks])
def test_short_chunks_fill_up_with_what_reductions_leave_as_it_is(rewrite: Callable[[Made], None]) -> None:
    made = attention(10)
    rewrite(made)
    pads = [e for e in made[0].exprs() if isinstance(e, FirstValid)]
    assert sorted(o.value for e in pads for o in e.operands if isinstance(o, Literal)) == [-float("inf"), 0.0, 0.0]  # scores; keys and values


@pytest.mark.parametrize("rewrite", [walk, chunks])
def test_whole_chunks_need_no_padding(rewrite: Callable[[Made], None]) -> None:
    made = attention(16)
    rewrite(made)
    assert not [e for e in made[0].exprs() if isinstance(e, FirstValid)]


def test_cascades_of_chunks_are_those_of_math_between_reductions() -> None:
    """What is computed of keys alone is computed by chunks, once."""
    fusion, reductions = attention()
    before = {tv.name for tv in fusion.tensors()}
    tf.chunk_cascade(reductions, 3)
    scores = [e.output for e in fusion.exprs() if e.output.name not in before and [str(a.extent) for a in e.output.logical] == ["M", "3", "ceildiv(N, 3)"]]
    assert len(scores) == len({tv.name for tv in scores}) == 6  # products, scaled, padded, less their maximum, exponentials, by a factor that waits
