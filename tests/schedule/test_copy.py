"""copy_fusion."""

import numpy as np

import taskfuse.ops as tf
from taskfuse.dtypes import float32
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.parser import parse_fusion
from taskfuse.ir.tasks import Group, Task
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.copy import copy_fusion


def scheduled() -> Fusion:
    with Fusion("f") as fusion:
        x = tf.define_tensor([4, tf.dim("S", min=1, multiple_of=2)], dtype=float32)
        k = tf.define_scalar(float32, "k")
        s = tf.sin(x)
        a, b = s * k, tf.cos(x)
        c = tf.cat([a, b], dim=0, form="scatter")
        d = tf.softmax(tf.cat([tf.permute(a, (1, 0)), tf.permute(b, (1, 0))], dim=0), axis=1)
        fusion.add_output(c)
        fusion.add_output(d)
    t1, t2 = fusion.task([s, a], "t1"), fusion.task([b])
    group = fusion.group([t1, t2], "pair")
    group.parallelize(P.TIDy)
    cache = x.cache_after()
    cache.set_memory_type(MemoryType.Shared).split(1, 4).circular_buffer(2)
    t1.add(cache)
    group.pingpong(cache.axis(0))
    fusion.inline_most()
    return fusion


def test_equal_but_apart() -> None:
    fusion = scheduled()
    copy, tensors = copy_fusion(fusion)
    assert list(tensors) == list(fusion.tensors())
    for old, new in tensors.items():
        assert new.fusion is copy
        assert (new.name, new.id, new.root, new.logical, new.dtype, new.location) == (old.name, old.id, old.root, old.logical, old.dtype, old.location)
        assert new.schedule == old.schedule
        assert new.origin is (None if old.origin is None else tensors[old.origin])
        assert [e.output for e in new.uses] == [tensors[e.output] for e in sorted(old.uses, key=lambda e: e.output.id)]
        owner = fusion.owner(old)
        assert copy.owner(new) is (None if owner is None else tensors[owner])
        a, b = fusion.definition(old), copy.definition(new)
        assert type(a) is type(b)
        assert (a is None) == old.is_input == new.is_input
        assert a is None or b is None or a.location == b.location
    assert copy.inputs == [tensors[tv] for tv in fusion.inputs]
    assert copy.outputs == [tensors[tv] for tv in fusion.outputs]
    assert [(s.name, s.location) for s in copy.scalars] == [(s.name, s.location) for s in fusion.scalars]
    assert (copy.name, copy.dims) == (fusion.name, fusion.dims)


def test_the_task_tree_is_copied() -> None:
    fusion = scheduled()
    copy, tensors = copy_fusion(fusion)
    assert len(copy.tasks.nodes) == len(fusion.tasks.nodes) == 3
    for old, new in zip(fusion.tasks.nodes, copy.tasks.nodes, strict=True):
        assert (new.name, new.location) == (old.name, old.location)
        match old, new:
            case Task(), Task():
                assert new.tensors == [tensors[tv] for tv in old.tensors]
            case Group(), Group():
                assert [m.name for m in new.members] == [m.name for m in old.members]
                assert (new.ptype, new.pingpong_axis, new.kind) == (old.ptype, old.pingpong_axis, old.kind)
            case _:
                raise AssertionError
    assert [m.name for m in copy.tasks.root.members] == [m.name for m in fusion.tasks.root.members]


def test_changes_do_not_leak() -> None:
    fusion = scheduled()
    copy, tensors = copy_fusion(fusion)
    before = [(tv.loop, tv.schedule.inline, tv.uses) for tv in fusion.tensors()]
    for tv in list(copy.tensors()):
        tv.schedule.inline = 0
    for tv in list(copy.tensors()):
        if tv.loop and tv.axis(0).ptype is P.Serial:
            tv.split(0, 2)
            tv.axis(0).parallelize(P.BIDx)
    tensors[fusion.inputs[0]].cache_after()
    assert [(tv.loop, tv.schedule.inline, tv.uses) for tv in fusion.tensors()] == before
    assert len(fusion.tensors()) < len(copy.tensors())


def test_the_copy_computes_the_same() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor(["M", "N"], dtype=float32)
        fusion.add_output(tf.softmax(x, axis=1))
    x.cache_after()
    array = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    copy, _ = copy_fusion(fusion)
    assert (evaluate(copy, [array])[0] == evaluate(fusion, [array])[0]).all()


def test_a_tensor_may_come_before_the_one_that_it_was_made_from() -> None:
    with Fusion("f") as f:
        y = tf.exp(tf.define_tensor([4], name="x"))
        f.add_output(y)
        y.cache_before()
    text = "\n".join(line for line in str(f).split("\n") if not line.startswith("ORDER"))
    copy, _ = copy_fusion(parse_fusion(text))
    assert str(copy) == text
