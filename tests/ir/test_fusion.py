"""The graph: names, definitions and readers, outputs, facts about dimensions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import FusionError
from taskfuse.ir.expr import Pointwise


def chain() -> tuple[tf.Fusion, list[tf.TensorView]]:
    """x, a = sin(x), b = cos(a), c = exp(a)."""
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor(["S"], name="x")
        a = tf.sin(x)
        b, c = tf.cos(a), tf.exp(a)
    return fusion, [x, a, b, c]


@pytest.mark.parametrize("name", ["", 5])
def test_names_are_text(name: Any) -> None:
    fusion, (x, *_) = chain()
    with fusion:
        for call in (lambda: tf.define_tensor([4], name=name), lambda: tf.define_scalar(name=name), lambda: x.named(name)):
            with pytest.raises(FusionError, match=f"{name!r} is not a name"):
                call()
    assert [tv.name for tv in fusion.tensors()] == ["x", "tv1", "tv2", "tv3"]


def test_tensors_and_scalars_have_one_name_each() -> None:
    fusion, (x, a, *_) = chain()
    with fusion:
        alpha = tf.define_scalar(name="alpha")
        with pytest.raises(FusionError, match="there is already a tensor named 'x'"):
            tf.define_tensor([4], name="x")
        with pytest.raises(FusionError, match="there is already a scalar named 'alpha'"):
            tf.define_tensor([4], name="alpha")
        with pytest.raises(FusionError, match="there is already a value named 'x'"):
            a.named("x")
        with pytest.raises(FusionError, match="there is already a value named 'alpha'"):
            tf.define_scalar(name="alpha")
        x.named("tv4")
        assert tf.tan(a).name == "tv5", "tv4 is taken"
    assert alpha.name == "alpha"
    assert fusion.tensor("tv4") is x
    with pytest.raises(FusionError, match="there is no tensor named 'x'"):
        fusion.tensor("x")


def test_readers_are_those_of_the_present_definition() -> None:
    fusion, (x, a, b, c) = chain()
    assert [e.output for e in fusion.uses(a)] == [b, c]
    old = fusion.definition(c)
    assert isinstance(old, Pointwise)
    with fusion:
        made = fusion.definition(tf.tan(x))
    assert isinstance(made, Pointwise)
    fusion.define(Pointwise(c, made.op, made.operands))
    assert [e.output for e in fusion.uses(a)] == [b]
    assert {e.output.name for e in fusion.uses(x)} == {"tv1", "tv3", "tv4"}
    assert [e.output.name for e in fusion.exprs()] == ["tv1", "tv2", "tv3", "tv4"]


def test_expressions_stand_behind_what_they_read() -> None:
    fusion, (_, a, b, c) = chain()
    with fusion:
        late = fusion.definition(tf.tan(c))
    assert isinstance(late, Pointwise)
    fusion.define(Pointwise(b, late.op, late.operands))  # b now reads c, which was made behind it
    assert [e.output for e in fusion.exprs()][:3] == [a, c, b]


def test_what_nothing_reads_is_removed_with_what_it_alone_reads() -> None:
    fusion, (x, a, b, c) = chain()
    fusion.add_output(b)
    fusion.remove_unread([c])
    assert fusion.tensors() == (x, a, b)
    fusion.remove_unread([b, a, x])
    assert fusion.tensors() == (x, a, b), "an output stays, and what it reads"


REFUSED_OUTPUTS: list[tuple[Callable[[tf.Fusion, tf.TensorView, tf.TensorView], object], str]] = [
    (lambda f, x, b: f.add_output(3), "3 is not a tensor"),
    (lambda f, x, b: f.add_output(chain()[1][1]), "tv1 belongs to fusion 'f'"),
    (lambda f, x, b: f.add_output(b, name="x"), "there is already a value named 'x'"),
    (lambda f, x, b: f.add_output(name="y"), "one name, 'y', for 0 outputs"),
]


@pytest.mark.parametrize(
    ("give", "reason"),
    REFUSED_OUTPUTS,
)
def test_outputs_that_are_refused_change_nothing(give: Callable[[tf.Fusion, tf.TensorView, tf.TensorView], object], reason: str) -> None:
    fusion, (x, _, b, _) = chain()
    with pytest.raises(FusionError) as caught:
        give(fusion, x, b)
    assert caught.value.message == f"fusion 'f': {reason}"
    assert fusion.outputs == []
    assert fusion.results == []


def test_an_input_and_an_output_given_again_are_results_without_code() -> None:
    fusion, (x, _, b, _) = chain()
    fusion.add_output(b, x, b)
    assert fusion.outputs == [b]
    assert [result.tensor for result in fusion.results] == [b, x, b]


def test_facts_about_a_dimension_are_given_once() -> None:
    with tf.Fusion("f") as fusion:
        tf.define_tensor(["S"])
        tf.define_tensor([tf.dim("S", min=2)])
        tf.define_tensor(["S"])
        assert fusion.dims["S"].min == 2
        with pytest.raises(FusionError, match=r"dimension 'S' is given twice with different facts: tf.dim\('S', min=2\) and tf.dim\('S', min=3\)"):
            tf.define_tensor([tf.dim("S", min=3)])


def test_arguments_by_name() -> None:
    with tf.Fusion("f") as fusion:
        x, y = tf.define_tensor([2], name="x"), tf.define_tensor([2], name="y")
        fusion.add_output(x - y)
    ones, zeros = np.ones(2, "f"), np.zeros(2, "f")
    for found in (fusion.evaluate(y=ones, x=zeros), fusion.evaluate(zeros, y=ones)):
        assert found[0].tolist() == [-1, -1]
    with pytest.raises(FusionError, match="'x' is not one of the remaining arguments"):
        fusion.evaluate(zeros, x=ones)


def test_a_fusion_is_open_inside_its_block_alone() -> None:
    with tf.Fusion("outer") as outer:
        with tf.Fusion("inner") as inner:
            assert tf.Fusion.current() is inner
        assert tf.Fusion.current() is outer
    with pytest.raises(FusionError, match="no fusion is open here"):
        tf.Fusion.current()


def test_code_comes_in_the_order_that_is_given() -> None:
    """Where readers leave a choice; texts keep it, and tensors that are made later come behind."""
    fusion, (_, a, b, c) = chain()
    fusion.add_output(b, c)
    a.set_memory_type(tf.MemoryType.Global)
    fusion.order([c, b])
    assert [tv.name for tv in fusion.tensors()] == ["x", "tv1", "tv3", "tv2"]
    for found in (fusion, tf.parse_fusion(str(fusion))):
        text = str(tf.lower(found))
        assert text.index("exp(") < text.index("cos(")
    with fusion:
        assert tf.neg(a).name == "tv4"
    fusion.order([b, a])
    text = str(tf.lower(fusion))
    assert text.index("sin(") < text.index("cos(")
    other, (x, *_) = chain()
    wrong: list[Any] = [[b, b], [x], [b, other.tensor("tv2")], [3]]
    for given in wrong:
        with pytest.raises(FusionError, match="is not a computed tensor of it, or is given twice"):
            fusion.order(given)
