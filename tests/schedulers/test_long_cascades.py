"""Walks of few rows over many keys are cut into chunks where that is faster; others stay; both compute the same."""

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.identity import among
from taskfuse.ir.storage import needed
from taskfuse.schedule.parts import Parts
from taskfuse.schedulers.long_cascades import chunk_long_cascades
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.schedulers.walks import walks
from taskfuse.target import DEFAULT
from tests.schedulers.attentions import arrays, attention, latent


@pytest.mark.parametrize(
    ("heads", "rows", "keys"),
    [((1, 8), 4, 32768), ((1, 32), 16, 4096)],
)
def test_few_rows_and_many_keys(heads: tuple[int, ...], rows: int, keys: int | str) -> None:
    """Two kernels: one of the chunks, and one that joins them."""
    found = choose_segments(attention(128, heads=heads, sizes=(rows, keys)))
    assert [step.schedule.scheduler for step in found.steps] == ["attention", "normalization"]
    assert "tf.chunk_cascade(" in found.code
    assert "it is rewritten before" in found.explain()
    assert "chunk_cascade" in found.explain()


def test_chunks_of_keys_that_hold_their_values() -> None:
    """A kernel that takes the keys alone, and reads them once, is faster than one that takes the view of the values, too."""
    first, last = choose_segments(latent(576, 512, heads=(8,), sizes=(16, 8192))).steps
    assert [step.schedule.scheduler for step in (first, last)] == ["attention", "normalization"]
    assert len(first.fusion.inputs) == 2


@pytest.mark.parametrize(("heads", "rows", "keys"), [((4, 16), 4096, 4096), ((16, 32), 1, 4096), ((8,), 16, 128)])
def test_what_is_no_faster_so_stays(heads: tuple[int, ...], rows: int, keys: int) -> None:
    fusion = attention(64, heads=heads, sizes=(rows, keys))
    assert chunk_long_cascades(fusion, Sizes(fusion, None, DEFAULT)) is None


def test_any_number_of_keys() -> None:
    """One schedule for all of them, which is chosen for the sizes that are given."""
    fusion = attention(128, heads=(1, 8), sizes=(4, "N"))
    found = chunk_long_cascades(fusion, Sizes(fusion, {"N": 32768}, DEFAULT))
    assert found is not None
    args = arrays(fusion, 4, 1000)
    np.testing.assert_allclose(found.fusion.evaluate(*args)[0].astype(np.float64), fusion.evaluate(*args)[0].astype(np.float64), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("rows", [1, 3])
def test_few_queries_of_heads_that_have_keys_together_are_one_product(rows: int) -> None:
    """They are read as the rows of a view; a result that is one is a copy, or what the second kernel stores."""
    found = choose_segments(attention(128, heads=(1, 32), key_heads=(1, 8), sizes=(rows, 32768), enable_gqa=True))
    assert [step.schedule.scheduler for step in found.steps][:2] == ["attention", "normalization"]
    assert len(found.steps[0].views) == (rows > 1)
    assert [str(e) for e in found.steps[0].fusion.outputs[-1].shape[1:]] == ["1", "8", str(4 * rows), "128"]


def test_what_has_no_walk_stays() -> None:
    fusion = attention(44, heads=(2,), sizes=(1, 32768))  # not a multiple of 8
    assert chunk_long_cascades(fusion, Sizes(fusion, None, DEFAULT)) is None
    with tf.Fusion() as fusion:
        a, b, c = (tf.define_tensor([64, 64], dtype=tf.bfloat16) for _ in range(3))
        fusion.add_output(tf.matmul(tf.matmul(a, b), c))
    assert chunk_long_cascades(fusion, Sizes(fusion, None, DEFAULT)) is None


def test_the_form_computes_the_same() -> None:
    fusion = attention(32, heads=(2,), sizes=(3, 4000))
    found = chunk_long_cascades(fusion, Sizes(fusion, None, DEFAULT))
    assert found is not None
    args = arrays(fusion, 3, 4000)
    np.testing.assert_allclose(found.fusion.evaluate(*args)[0].astype(np.float64), fusion.evaluate(*args)[0].astype(np.float64), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(("heads", "rows", "keys"), [((2,), 3, 700), ((1, 2), 1, 640)])
def test_its_kernels_are_proved_and_right(heads: tuple[int, ...], rows: int, keys: int) -> None:
    fusion = attention(32, heads=heads, sizes=(rows, "N"))
    args = arrays(fusion, rows, keys)
    wanted = fusion.evaluate(*args)[0].astype(np.float64)
    found = chunk_long_cascades(fusion, Sizes(fusion, {"N": 4096}, DEFAULT))
    assert found is not None
    (walk,) = walks(found.fusion)
    rest = [e.output for e in needed(found.fusion) if not among(e.output, walk)]
    values: dict[str, Any] = dict(zip([tv.name for tv in fusion.inputs], args, strict=True))
    for tensors, scheduler in ((walk, tf.schedulers.attention), (rest, tf.schedulers.normalization)):
        part = Parts(found.fusion).extract(tensors, "part")
        scheduler(part)
        kernel = tf.lower(part)
        kernel.verify().require()
        made = kernel.simulate(*(values[tv.name] for tv in part.inputs), seed=1)
        values |= dict(zip([tv.name for tv in part.outputs], made, strict=True))
    np.testing.assert_allclose(values[fusion.outputs[0].name].astype(np.float64), wanted, rtol=2e-2, atol=2e-2)
