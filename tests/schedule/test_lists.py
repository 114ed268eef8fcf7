"""Every scheduling call rejects an argument that is not a list, an axis or an atom, at the user's line."""

from collections.abc import Callable
from typing import Any

import pytest

import taskfuse as tf
from taskfuse.errors import TaskfuseError


class Case:
    """x: float32[4, 6], a = exp(x) and its sum along 1, an output."""

    def __init__(self) -> None:
        self.fusion = tf.Fusion("case")
        with self.fusion:
            self.x = tf.define_tensor([4, 6], name="x")
            self.a = tf.exp(self.x).named("a")
            self.s = tf.sum(self.a, 1).named("s")
            self.fusion.add_output(self.s)


NOTHING: Any = None
CALLS: list[tuple[Callable[[Any], object], str]] = [
    (lambda c: c.a.set_atom("cp_async", [0]), "set_atom(a): 'cp_async' is not an atom"),
    (lambda c: c.a.set_atom(None, [0]), "set_atom(a): None is not an atom"),
    (lambda c: c.a.set_atom(tf.atoms.CP_ASYNC, None), "set_atom(a): None is not a list of axes"),
    (lambda c: c.a.reorder(None), "reorder(a): None is not a list of axes"),
    (lambda c: c.a.reorder(1), "reorder(a): [1] is not a permutation of the 2 axes"),
    (lambda c: c.a.reorder("ij"), "reorder(a): 'ij' is not a list of axes"),
    (lambda c: c.a.rasterize(None, []), "rasterize(a): None is not a list of axes"),
    (lambda c: c.a.rasterize([0, 1], None), "rasterize(a): None is not a list of maps"),
    (lambda c: c.a.fragment(None), "fragment(a): None is not a list of axes"),
    (lambda c: c.s.rfactor(None), "rfactor(s): None is not a list of axes"),
    (lambda c: c.a.inline_at(None), "inline_at(a): None is not a position of an axis"),
    (lambda c: c.a.inline_at(1.5), "inline_at(a): 1.5 is not a position of an axis"),
    (lambda c: c.a.duplicate(None), "duplicate(a): None is not a list of tensors"),
    (lambda c: c.a.recompute(None), "recompute(a): None is not a list of tensors"),
    (lambda c: c.a.propagate(None), "propagate(a): None is not a list of tensors"),
    (lambda c: c.a.propagate([None]), "propagate(a): None is not a tensor"),
    (lambda c: c.fusion.inline_most([None]), "fusion 'case': inline_most: None is not a tensor"),
    (lambda c: c.fusion.task(None), "t1: None is not a list of tensors"),
    (lambda c: c.fusion.group(None), "group1: None is not a list of tasks and groups"),
    (lambda c: c.fusion.group(c.fusion.task([c.a])), "group1: t1 is not a list of tasks and groups"),
    (lambda c: c.fusion.group([c.fusion.task([c.a])]).pingpong(0), "group1: pingpong: 0 is not an axis"),
    (lambda c: c.fusion.task([c.a]).registers("many"), "t1: 'many' registers"),
    (lambda c: tf.segment(c.fusion, NOTHING), "fusion 'case': segments is None, not a list"),
    (lambda c: c.a.set_allocation_domain(None), "set_allocation_domain(a): None is not a list of axes"),
    (lambda c: c.a.set_allocation_domain([1, 0]), "set_allocation_domain(a): 1 is not an axis"),
    (lambda c: c.a.set_allocation_domain([c.s.axis(0)]), "set_allocation_domain(a): an axis of s is given"),
    (lambda c: tf.lower(tf.Fusion("empty")), "cannot lower fusion 'empty': it has no outputs, so that there is nothing to compute"),
]


@pytest.mark.parametrize(("call", "what"), CALLS)
def test_what_is_refused_says_why(call: Callable[[Any], object], what: str) -> None:
    with pytest.raises(TaskfuseError) as caught:
        call(Case())
    assert str(caught.value).splitlines()[0] == what
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    assert caught.value.help is not None


def test_axes_of_the_tensor_are_an_allocation_domain() -> None:
    c = Case()
    c.a.set_memory_type(tf.MemoryType.Shared).set_allocation_domain([c.a.axis(1), c.a.axis(0)])
    assert c.a.schedule.allocation == (c.a.loop[1], c.a.loop[0])
    assert tf.lower(c.fusion).verify().is_proved


def test_one_axis_alone_is_a_list() -> None:
    c = Case()
    copy = c.x.cache_after()
    last: Any = -1
    copy.split(1, 2).set_atom(tf.atoms.VECTOR, last)
    assert copy.schedule.atom is tf.atoms.VECTOR
