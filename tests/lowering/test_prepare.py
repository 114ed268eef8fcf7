"""Preparation: a copy without what nobody needs, in which every boundary is only a boundary."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.errors import TaskfuseError
from taskfuse.ir.expr import Assemble
from taskfuse.ir.storage import producers
from taskfuse.lowering.prepare import check_supported, prepare


def load_use(*, output: bool = False, own: bool = False, group: P | None = P.TIDy) -> tf.Fusion:
    """``a`` crosses from load to use; it may be an output, too, or read in its own task."""
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([8], name="x")
        a = tf.exp(x)
        b = tf.neg(a)
        fusion.add_output(b)
        if output:
            fusion.add_output(a)
        mine = [a, tf.sin(a)] if own else [a]
        for tv in mine[1:]:
            fusion.add_output(tv)
    made = fusion.group([fusion.task(mine, "load"), fusion.task([b], "use")], "g")
    if group is not None:
        made.parallelize(group)
    return fusion


def same(before: tf.Fusion, after: tf.Fusion) -> None:
    x = np.linspace(0.1, 1.0, 8, dtype=np.float32)
    for one, other in zip(before.evaluate(x), after.evaluate(x), strict=True):
        assert np.array_equal(one, other)


def copies(before: tf.Fusion) -> list[str]:
    """The tensors that preparation adds."""
    text = str(before)
    after = prepare(before)
    assert str(before) == text
    same(before, after)
    return sorted({tv.name for tv in after.tensors()} - {tv.name for tv in before.tensors()})


def test_a_boundary_that_is_only_a_boundary_stays() -> None:
    assert copies(load_use()) == []


@pytest.mark.parametrize("options", [{"output": True}, {"own": True}, {"output": True, "own": True}])
def test_one_that_is_more_gets_a_copy_in_its_own_task(options: dict[str, Any]) -> None:
    fusion = load_use(**options)
    assert copies(fusion) == ["tv1.b"]
    after = prepare(fusion)
    copy, a, b = after.tensor("tv1.b"), after.tensor("tv1"), after.tensor("tv2")
    assert producers(after, copy) == (a,)
    assert producers(after, b) == (copy,)
    task = after.tasks.task_of(copy)
    assert task is not None
    assert task.name == "load"


@pytest.mark.parametrize("group", [None, P.TIDy])
def test_groups_that_are_not_vertical_need_none(group: P | None) -> None:
    if group is None:
        assert copies(load_use(output=True, group=None)) == []
        return
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([8], name="x")
        outs = [tf.exp(x), tf.sin(x)]
        for tv in outs:
            fusion.add_output(tv)
    fusion.group([fusion.task([tv]) for tv in outs]).parallelize(group)
    assert copies(fusion) == []


def test_the_ring_is_the_copys() -> None:
    fusion = load_use(own=True)
    a = fusion.tensor("tv1")
    for tv in (a, fusion.tensor("tv2"), fusion.tensor("tv3")):
        tv.split(0, 4)
    a.inline_at(1)
    a.circular_buffer(3)
    after = prepare(fusion)
    copy = after.tensor("tv1.b")
    assert (copy.schedule.stages, after.tensor("tv1").schedule.stages) == (3, 1)
    assert [str(e.extent) for e in copy.loop] == ["2", "4"]
    assert copy.schedule.inline == 1


def test_memory_and_layout_of_a_boundary_go_to_its_copy() -> None:
    fusion = load_use(own=True)
    a = fusion.tensor("tv1")
    a.set_memory_type(MemoryType.Shared)
    a.set_allocation_domain(tf.layouts.padded(1))
    after = prepare(fusion)
    copy, old = after.tensor("tv1.b").schedule, after.tensor("tv1").schedule
    assert copy.memory is MemoryType.Shared
    assert copy.allocation is not None
    assert old.memory is None
    assert old.allocation is None


def test_what_no_output_needs_is_gone_but_what_a_task_claims() -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([8], name="x")
        fusion.add_output(tf.neg(x))
        tf.exp(x)
        claimed = tf.sin(x)
    fusion.task([claimed], "mine")
    names = {tv.name for tv in prepare(fusion).tensors()}
    assert names == {"x", fusion.outputs[0].name, claimed.name}


@pytest.mark.parametrize("output", [False, True])
def test_each_part_of_an_assembly_is_a_tensor_of_its_own(output: bool) -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([4], name="x")
        a = tf.neg(x)
        fusion.add_output(tf.cat([a, a], 0, "scatter"))
        if output:
            fusion.add_output(a)
    (one,) = (e for e in fusion.exprs() if isinstance(e, Assemble))
    first, second = one.parts
    fusion.define(replace(one, parts=(first, replace(second, tensor=first.tensor))))  # one tensor at two places
    after = prepare(fusion)
    (whole,) = (e for e in after.exprs() if isinstance(e, Assemble))
    parts = [p.tensor for p in whole.parts]
    assert len(set(parts)) == 2
    assert not any(p.is_output for p in parts)
    x = np.arange(4, dtype=np.float32)
    for one, other in zip(fusion.evaluate(x), after.evaluate(x), strict=True):
        assert np.array_equal(one, other)


def test_roles_in_the_blocks_of_a_cluster_are_not_built_yet() -> None:
    check_supported(load_use())
    with pytest.raises(TaskfuseError, match="rings between the blocks of a cluster are not supported yet"):
        check_supported(load_use(group=P.CIDx))


def test_a_view_that_gets_code_after_what_it_reads_is_inlined() -> None:
    """The view has a loop of its reader, in which it reads all that is inlined there."""
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([4, 5])
        s = tf.sum(x, axis=1)
        v = tf.expand_dims(s, 1)
        y = x - v
        fusion.add_output(y)
    y.propagate([v], upto=1)
    y.propagate([s], upto=1)
    fusion.inline_most()
    fusion.task([v])
    with pytest.raises(TaskfuseError, match="a view, got code of its own from a task, and axis 0 of"):
        tf.lower(fusion)
    s.inline_at(0)
    assert tf.lower(fusion).verify().verdict.value == "proved"


def test_a_view_in_a_task_is_claimed_before_what_it_reads_is_inlined() -> None:
    def transposed(first: bool) -> tf.Fusion:
        with tf.Fusion("f") as fusion:
            x = tf.define_tensor([2, 3])
            a = tf.neg(x)
            t = tf.permute(a, [1, 0])
            y = tf.copy(t)
            fusion.add_output(y)
        y.rasterize([0, 1], tf.tiles.raster())
        y.propagate([a])
        if not first:
            fusion.inline_most()
        tasks = [fusion.task([a]), fusion.task([t, y])]
        if first:
            fusion.inline_most()
        fusion.group(tasks).parallelize(P.TIDz)
        return fusion

    with pytest.raises(TaskfuseError, match="a view, got code of its own"):
        tf.lower(transposed(first=False))
    kernel = tf.lower(transposed(first=True))
    assert kernel.verify().verdict.value == "proved"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(kernel.simulate(x)[0], -x.T)
