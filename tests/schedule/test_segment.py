"""segment: fusions that together compute what the whole does, in an order in which they can run."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

import taskfuse as tf
from taskfuse.errors import FusionError
from taskfuse.ir.storage import needed
from taskfuse.schedule.segment import SegmentedFusion
from tests.lowering.running import Array, numbers


def chain(extent: int | str = 4) -> tuple[tf.Fusion, list[tf.TensorView]]:
    """a = exp(x), b = sum(a), c = a / b, an output beside a."""
    with tf.Fusion("chain") as fusion:
        x = tf.define_tensor([extent, 6], name="x")
        a = tf.exp(x)
        b = tf.sum(a, 1, keepdims=True)
        c = a / b
        fusion.add_output(c)
        fusion.add_output(a)
    return fusion, [tv for tv in fusion.tensors() if not tv.is_input and not fusion.is_view(tv)]


def run(segmented: SegmentedFusion, given: dict[str, Array]) -> dict[str, npt.NDArray[np.generic]]:
    """The values of all tensors that pass between the segments, each segment evaluated in its turn."""
    values = dict(given)
    for part in segmented.segments:
        outs = part.evaluate(*(values[tv.name] for tv in part.inputs))
        values |= dict(zip((tv.name for tv in part.outputs), outs, strict=True))
    return values


@pytest.mark.parametrize("sizes", [[3], [1, 2], [2, 1], [1, 1, 1]], ids=str)
@pytest.mark.parametrize("extent", [4, "N"])
def test_segments_compute_what_the_whole_does(extent: int | str, sizes: Sequence[int]) -> None:
    fusion, code = chain(extent)
    ends = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
    groups = [code[p:q] for p, q in pairwise(ends)]
    text = str(fusion)
    found = tf.segment(fusion, groups)
    assert str(fusion) == text
    assert [part.name for part in found.segments] == [f"chain_{k}" for k in range(len(sizes))]
    x = numbers(4, 6)
    values = run(found, {"x": x})
    for tv, wanted in zip(fusion.outputs, fusion.evaluate(x), strict=True):
        np.testing.assert_array_equal(values[tv.name], wanted)


def test_segments_come_in_an_order_in_which_they_can_run() -> None:
    fusion, code = chain()
    found = tf.segment(fusion, [[tv] for tv in reversed(code)])
    assert [[tv.name for tv in part.outputs] for part in found.segments] == [[tv.name] for tv in code]


def test_a_piece_returns_what_others_need_and_no_more() -> None:
    fusion, (a, b, c, *_) = chain()
    first, second = tf.segment(fusion, [[a, b], [c]]).segments
    assert [tv.name for tv in first.outputs] == [a.name, b.name]
    assert [tv.name for tv in second.inputs] == [a.name, b.name]
    assert [tv.name for tv in second.outputs] == [c.name]


def test_segments_that_need_each_other() -> None:
    fusion, (a, b, c, *_) = chain()
    with pytest.raises(FusionError, match=rf"the segments \[{a.name}, {c.name}\] and \[{b.name}\] depend on each other"):
        tf.segment(fusion, [[a, c], [b]])


def test_the_parts_of_one_tensor_stay_together() -> None:
    """No segment would have it as an output. Parts that nothing but an unused concatenation joins may stand anywhere."""
    with tf.Fusion("parts") as fusion:
        x = tf.define_tensor([4, 6], name="x")
        a, b = tf.exp(x), tf.sin(x)
        whole, unused = tf.cat([a, b], 0), tf.cat([b, a], 1)
        fusion.add_output(whole, a, b)
    for tv in (whole, unused):
        tv.scatter()
    code = [e.output for e in needed(fusion)]
    with pytest.raises(FusionError, match=rf", the parts of {whole.name}, are in segments 0, 1"):
        tf.segment(fusion, [code[:-1], code[-1:]])
    fusion.outputs.remove(whole)
    code = [e.output for e in needed(fusion)]
    assert len(tf.segment(fusion, [[tv] for tv in code]).segments) == len(code)


def test_a_schedule_stays_whole() -> None:
    fusion, code = chain()
    code[0].split(0, 2)
    with pytest.raises(FusionError, match=r"it has a schedule already\n(.*\n)*help: segment a fusion without scheduling calls"):
        tf.segment(fusion, [code])


def test_an_extent_that_no_input_of_a_piece_tells_comes_with_the_tensor_that_does() -> None:
    with tf.Fusion("sizes") as fusion:
        x = tf.define_tensor(["N"], name="x")
        s = tf.sum(x)
        y = tf.exp(tf.broadcast_to(s, ["N"]))
        fusion.add_output(y)
    _, second = tf.segment(fusion, [[s], [y]]).segments
    assert sorted(tv.name for tv in second.inputs) == sorted(["x", s.name])
    assert set(second.dims) == {"N"}


def test_a_segment_that_reads_no_tensor_takes_one() -> None:
    """So it runs where the arguments are: it takes the smallest of them."""
    with tf.Fusion("masked") as fusion:
        x, b = tf.define_tensor(["N", 8], name="x"), tf.define_tensor([8], name="b")
        steps = tf.arange(8)
        y = tf.where(steps < 3, x, b)
        fusion.add_output(y)
    rest = [tv for tv in (e.output for e in needed(fusion)) if tv is not steps]
    first, second = tf.segment(fusion, [[steps], rest]).segments
    assert [tv.name for tv in first.inputs] == ["b"]
    assert {tv.name for tv in second.inputs} == {"x", "b", steps.name}
