"""What all schedulers share: sizes, what they give back, and what none of them takes."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

import taskfuse as tf
from taskfuse.count import count
from taskfuse.errors import TaskfuseError, UnsupportedError
from taskfuse.ir.scalar import sym
from taskfuse.schedulers import FallbackConfig, PointwiseConfig
from taskfuse.schedulers.schedule import ASSUMED, MAX_EXTENT, SANE, Chosen, Memo, Option, Sizes, check_call, check_wgmma, tries_parameters
from taskfuse.target import A100, DEFAULT, H100
from tests.errors import text_of, untyped


@dataclass(frozen=True)
class Words:
    words: str


FAST, SLOW = Option(Words("fast"), 1.0), Option(Words("slow"), 12.5)


def fusion(shape: list[Any] | None = None) -> tf.Fusion:
    with tf.Fusion("f") as made:
        made.add_output(tf.exp(tf.define_tensor(shape or ["N", 64], name="x")))
    return made


def chosen(option: Option[Words] = FAST, **more: Any) -> Chosen[Words]:
    return Chosen("rows", "of 8 rows", option, (FAST, SLOW), False, "code", **more)


def test_what_a_memo_finds_or_refuses_is_found_once() -> None:
    memo, calls = Memo(), list[str]()

    def found() -> int:
        calls.append("found")
        return 7

    def refused() -> int:
        calls.append("refused")
        raise UnsupportedError(what="this", reason="not here", help="there")

    assert [memo("a", found), memo("a", refused)] == [7, 7]
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="not here"):
            memo("b", refused)
    assert calls == ["found", "refused"]


# -- sizes --------------------------------------------------------------------------------------------------------------------------------


def test_what_is_given_then_what_is_known_then_what_is_assumed() -> None:
    dims: list[Any] = [tf.dim("A"), tf.dim("B", min=5000), tf.dim("C", max=7), tf.dim("D", min=3, max=9), tf.dim("E", multiple_of=3)]
    sizes = Sizes(fusion(dims), {"A": 3}, DEFAULT)
    assert [sizes(sym(name)) for name in "ABCDE"] == [3, 5000, 7, 9, 4098]
    assert Sizes(fusion(), None, DEFAULT)(sym("N")) == ASSUMED
    assert sizes(sym("A") * sym("C") + 1) == 22


def test_an_extent_is_one_at_least() -> None:
    sizes = Sizes(fusion(), {"N": 0}, DEFAULT)
    assert sizes(sym("N")) == 1
    assert sizes.elements(fusion().inputs[0]) == 64


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (3, "sizes is 3\nhelp: give a mapping from names of dimensions to extents, such as {'N': 1024}"),
        ({"M": 1}, "sizes has 'M', which is not a dimension of it\nhelp: its dimensions are: N"),
        ({"N": -1}, f"sizes has -1 for 'N'\nhelp: give an integer from 0 to {MAX_EXTENT}"),
        ({"N": True}, f"sizes has True for 'N'\nhelp: give an integer from 0 to {MAX_EXTENT}"),
        ({"N": 2.0}, f"sizes has 2.0 for 'N'\nhelp: give an integer from 0 to {MAX_EXTENT}"),
        ({"N": MAX_EXTENT + 1}, f"sizes has {MAX_EXTENT + 1} for 'N'\nhelp: give an integer from 0 to {MAX_EXTENT}"),
    ],
)
def test_what_cannot_be_sizes(given: object, text: str) -> None:
    assert text_of(lambda: Sizes(fusion(), untyped(given), DEFAULT)) == f"a schedule of fusion 'f' is not supported: {text}"


# -- what they give back --------------------------------------------------------------------------------------------------------------------


def test_the_choice_and_the_table_of_what_else_was_considered() -> None:
    found = chosen(expected="1 step", notes=("a note", "")).after([("other", "not its kind")])
    assert found.explain() == ("rows of 8 rows: chosen: fast\n1 step\na note\n\n     us  parameters\n    1.0  fast\n   12.5  slow\nnot other: not its kind")
    assert "slow" not in found.explain(shown=1)
    assert replace(found, given=True).explain().startswith("rows of 8 rows: given: fast")


def test_candidates_that_cost_the_same_are_no_table() -> None:
    assert replace(chosen(), alternatives=(FAST, replace(SLOW, us=1.0))).explain() == "rows of 8 rows: chosen: fast"


def test_a_count_is_believed_where_it_is_more() -> None:
    made = fusion([8, 64])
    tf.schedulers.pointwise(made)
    found = count(tf.lower(made), {}, DEFAULT)
    near, far = chosen().counted(found, found.us / SANE), chosen().counted(found, found.us / (2 * SANE))
    assert (near.is_far, near.us) == (False, found.us)
    assert (far.is_far, far.us) == (True, found.us)
    assert found.us > FAST.us
    assert replace(near, option=SLOW).us == SLOW.us
    multiplied = replace(found, products=1.0)  # by tensor cores
    assert chosen().counted(multiplied, found.us / SANE).us == FAST.us
    assert near.expected_by_count().us == found.us
    assert near.expected_by_count().alternatives == (near.expected_by_count().option, SLOW)
    assert "6.0 times its roofline of" in far.explain()
    assert not chosen().is_far
    assert chosen().expected_by_count() == chosen()


# -- what none takes ------------------------------------------------------------------------------------------------------------------------


def test_what_no_scheduler_takes() -> None:
    start = "a pointwise schedule of fusion 'f' is not supported: "
    scheduled = fusion()
    scheduled.outputs[0].axis(0).parallelize(tf.ParallelType.BIDx)
    nothing = tf.Fusion("f")
    for given, config, text in (
        (fusion(), 3, "config is 3, not a PointwiseConfig\nhelp: give a tf.schedulers.PointwiseConfig, or None"),
        (scheduled, None, "it has a schedule already\nhelp: give it a fusion without scheduling calls"),
        (nothing, None, "it has no outputs\nhelp: fusion.add_output(tensor)"),
    ):
        assert text_of(lambda given=given, config=config: check_call(given, "pointwise", config, PointwiseConfig)) == start + text
    check_call(fusion(), "pointwise", FallbackConfig(), FallbackConfig)
    with pytest.raises(TaskfuseError, match=r"tf\.schedulers\.pointwise"):
        check_call(3, "pointwise", None, PointwiseConfig)


def test_given_parameters_are_tried_on_a_copy_first() -> None:
    """Those that fail half way leave the fusion as it was."""

    @tries_parameters
    def halves(given: tf.Fusion, config: object = None, **more: object) -> str:
        tv = given.outputs[0].split(1, 2)
        if config is not None:
            tv.split(9, 2)
        return "done"

    one = fusion()
    before = str(one)
    with pytest.raises(UnsupportedError, match="a halves schedule of fusion 'f' is not supported: with 8, split") as caught:
        halves(one, 8)
    assert caught.value.help
    assert str(one) == before
    assert halves(one) == "done"
    assert str(one) != before


def test_products_of_groups_that_scheduling_calls_refuse_are_left_as_they_were() -> None:
    """Of one term: no swizzle has so few rows, which only the scheduling call finds."""
    with tf.Fusion("f") as grouped:
        x, w = tf.define_tensor([tf.dim("M", min=2), 1], dtype=tf.bfloat16), tf.define_tensor([5, 1, 4], dtype=tf.bfloat16)
        rows = tf.grouped_matmul(x, w, offsets=tf.table("t", 6, "M", tf.int64, rising=True), tile=2)
        grouped.add_output(rows * tf.define_tensor(["M", 1], dtype=tf.bfloat16))
    before = str(grouped)
    with pytest.raises(UnsupportedError, match="a matmul schedule of fusion 'f' is not supported: layouts"):
        tf.schedulers.matmul(grouped)
    assert str(grouped) == before


def test_wgmma_is_refused_elsewhere_than_on_hopper() -> None:
    check_wgmma(fusion(), "products", H100)
    said = text_of(lambda: check_wgmma(fusion(), "products", A100, "use another"), UnsupportedError)
    assert said == "a products schedule of fusion 'f' is not supported: it uses wgmma, which only sm_90a has; A100 is sm_80\nhelp: use another"
