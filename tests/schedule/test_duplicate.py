"""duplicate: a tensor computed a second time for some of its readers."""

from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import TaskfuseError
from taskfuse.ir.expr import Pointwise
from tests.errors import text


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(TaskfuseError) as caught:
        call()
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    return text(caught.value)


def graph() -> tuple[tf.Fusion, tf.TensorView, tf.TensorView, tf.TensorView]:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([4, 6], name="x")
        a = tf.exp(x)
        s = tf.sum(a, 1, keepdims=True)
        y = a / s
        fusion.add_output(y)
    return fusion, x, a, y


def test_chosen_readers_read_the_new_one() -> None:
    fusion, _, a, y = graph()
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    before = fusion.evaluate(x)[0]
    new = a.duplicate([y])
    assert (new.origin, new.dtype) == (a, a.dtype)
    assert isinstance(new.definition, Pointwise)
    assert new.definition.op.name == "exp"
    assert [u.output for u in new.uses] == [y]
    assert y not in {u.output for u in a.uses}
    assert (fusion.evaluate(x)[0] == before).all()
    assert np.allclose(tf.lower(fusion).simulate(x)[0], before)
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)


def test_a_reduction_is_reduced_twice() -> None:
    fusion, _, _, y = graph()
    total = next(tv for tv in fusion.tensors() if any(a.is_reduction for a in tv.root))
    (view,) = [u.output for u in total.uses]
    fusion.add_output(total)
    new = total.duplicate([view])
    assert [str(a.extent) for a in new.root if a.is_reduction] == ["6"]
    x = np.ones((4, 6), np.float32)
    assert np.allclose(fusion.evaluate(x)[0], 1 / 6)
    assert y.is_output


def test_it_joins_the_task() -> None:
    fusion, _, a, y = graph()
    task = fusion.task([a], "t")
    assert a.duplicate([y]).task is task


def test_refusals() -> None:
    fusion, x, a, _ = graph()
    readers = ", ".join(u.output.name for u in a.uses)
    help = "help: x.cache_after().duplicate(...) reads it a second time"
    assert refused(lambda: x.duplicate([a])) == f"duplicate(x): an input has no definition\n{help}"
    assert refused(lambda: a.duplicate([])) == f"duplicate({a.name}): no reader is given\nhelp: its readers are {readers}"
    assert refused(lambda: a.duplicate([a])) == f"duplicate({a.name}): {a.name} does not read it\nhelp: its readers are {readers}"
    everyone = [u.output for u in a.uses]
    expected = f"duplicate({a.name}): all of its readers are given, so the original would have no reader\nhelp: leave out one of them"
    assert refused(lambda: a.duplicate(everyone)) == expected
    total = next(tv for tv in fusion.tensors() if any(a.is_reduction for a in tv.root))
    total.split(1, 2)
    part = total.rfactor([1])
    assert refused(lambda: part.duplicate([total])) == f"duplicate({part.name}): rfactor made it, or took a part of it\nhelp: duplicate it before rfactor"


def test_parts_of_an_assembly_are_duplicated_themselves() -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([4], name="x")
        whole = tf.cat([tf.exp(x), tf.neg(x)], form="scatter")
        one, two = tf.sin(whole), tf.cos(whole)
        fusion.add_output(one)
        fusion.add_output(two)
    assert refused(lambda: whole.duplicate([one])) == (
        f"duplicate({whole.name}): it is assembled from parts, each of which has one place\nhelp: duplicate the parts"
    )
