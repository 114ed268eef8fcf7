"""Ways of a segment: found once for all segments that are equal, by an offer where that will do, with views as arrays where they have rows."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.expr import Reduction
from taskfuse.ir.storage import needed
from taskfuse.schedule.parts import Parts
from taskfuse.schedulers.budget import Budget, Work
from taskfuse.schedulers.segment_ways import KnownCandidates, RowViews, Ways
from taskfuse.target import DEFAULT


class Counted(Budget):
    """It remembers what was spent."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Work] = []

    def spend(self, work: Work, size: int) -> None:
        self.found.append(work)


def norms(*lengths: int) -> tf.Fusion:
    """A norm of each of several inputs."""
    with tf.Fusion("norms") as fusion:
        for k, length in enumerate(lengths):
            x = tf.define_tensor([64, length], name=f"x{k}")
            fusion.add_output(x / tf.sum(x, 1, keepdims=True))
    return fusion


def ways(fusion: tf.Fusion, budget: Budget) -> list[Ways]:
    """Of each norm."""
    known, parts, rows, code = KnownCandidates(None, DEFAULT, budget), Parts(fusion), RowViews(fusion), [e.output for e in needed(fusion)]
    return [Ways(known, parts, rows, code[k : k + 2]) for k in range(0, len(code), 2)]


@pytest.mark.parametrize(("lengths", "forms"), [((128, 128, 128), 1), ((128, 256, 128), 2)])
def test_equal_segments_are_scheduled_once_each_in_its_names(lengths: tuple[int, ...], forms: int) -> None:
    budget = Counted()
    found = ways(norms(*lengths), budget)
    us = [one.us for one in found]
    assert us[0] == us[2]
    assert set(budget.found) == {Work.OFFERED}  # nothing is scheduled for a price
    spent = len(budget.found)
    alone = Counted()
    for one in {length: ways(norms(length), alone)[0] for length in lengths}.values():
        assert one.us in us
    assert spent == len(alone.found)
    assert len({length for length in lengths}) == forms
    steps = [one.step for one in found]
    for k, step in enumerate(steps):
        assert step is not None
        assert f"x{k}" in step.schedule.code
        assert step.fusion.inputs[0].name == f"x{k}"


def test_rows_are_offered_and_scheduled_when_they_are_wanted() -> None:
    budget = Counted()
    (found,) = ways(norms(128), budget)
    us = found.us
    offered = len(budget.found)
    step = found.step
    assert step is not None
    assert step.schedule.us == us
    assert step.schedule.scheduler == "normalization"
    assert budget.found[offered:] == [Work.SCHEDULED]


def test_a_view_without_last_axes_of_one_element_is_an_array() -> None:
    """Neighbors in memory lie along an axis before: transposed in tiles, as without these axes."""
    times: list[float] = []
    for ones in ((), (1,), (1, 1)):
        with tf.Fusion("turned") as fusion:
            x = tf.define_tensor([4, 3456, 512, *ones], dtype=tf.bfloat16, name="x")
            fusion.add_output(tf.copy(tf.reshape(x, [4, 3456, 512]).permute(0, 2, 1)))
        copied = [e.output for e in needed(fusion)]
        assert len(RowViews(fusion).of(copied)) == (1 if ones else 0)
        times.append(Ways(KnownCandidates(None, DEFAULT, Budget()), Parts(fusion), RowViews(fusion), copied).us)
    assert times[0] == times[1] == times[2]
    with tf.Fusion("own") as fusion:  # what a segment computes itself is no array before it runs
        x = tf.define_tensor([64, 64, 1], name="x")
        fusion.add_output(tf.exp(tf.reshape(tf.exp(x), [64, 64])))
    code = [e.output for e in needed(fusion)]
    assert RowViews(fusion).of(code) == ()
    assert len(RowViews(fusion).of(code[1:])) == 1


def test_a_view_with_rows_is_an_array_to_a_product_and_one_of_its_own_tensors_is_not() -> None:
    with tf.Fusion("heads") as fusion:
        x, w = tf.define_tensor([64, 256], dtype=tf.bfloat16, name="x"), tf.define_tensor([64, 64], dtype=tf.bfloat16, name="w")
        head, other = x[:, 64:128], tf.exp(x)[:, :64]
        fusion.add_output(head @ w, other @ w)
    rows, code = RowViews(fusion), needed(fusion)
    products = [e.output for e in code if isinstance(e, Reduction)]
    assert {tv.name for tv in rows.of(products)} == {head.name, other.name}
    assert [tv.name for tv in rows.of([e.output for e in code])] == [head.name]


def test_a_view_of_what_the_segment_assembles_is_no_input_of_it() -> None:
    """Counts are an assembly: no code makes it, but that of its parts does."""
    with tf.Fusion("counts") as fusion:
        x, w = tf.define_tensor([13], dtype=tf.int32), tf.define_tensor([1, 13], dtype=tf.int64)
        fusion.add_output(tf.matmul(tf.expand_dims(tf.bincount(x, 4), 1), w))
    args = np.arange(13, dtype=np.int32) % 3, np.arange(13)[None]
    (out,), (expected,) = tf.compile(fusion, backend="sim", cache=False)(*args), fusion.evaluate(*args)
    assert np.array_equal(out, expected)


def test_each_element_of_a_pair_has_axes_of_its_own() -> None:
    """The ranks of the elements of rows: threads share the comparisons of an element, whose other elements lie along another axis of the same tensor."""
    with tf.Fusion("ranks") as fusion:
        x = tf.define_tensor([12, 33], dtype=tf.int32, name="x")
        fusion.add_output(tf.sum(tf.cast(tf.gt(tf.expand_dims(x, 1), tf.expand_dims(x, 2)), tf.int32), 2), name="ranks")
    rows, code = RowViews(fusion), [e.output for e in needed(fusion)]
    (other,) = rows.of(code)
    segmented = tf.segment(fusion, [[tv.name for tv in code]], views=[[other.name]])
    chosen = tf.schedulers.reduction(segmented.segments[0])
    assert chosen.config.threads > 1
    run = tf.compile(segmented, "sim", cache=False)
    given = np.random.default_rng(0).permutation(12 * 33).astype(np.int32).reshape(12, 33)
    assert np.array_equal(run(given)[0], (-given).argsort(1).argsort(1))
