"""cache_after, cache_before and cache_fork."""

import numpy as np

import taskfuse.ops as tf
from taskfuse.dtypes import float32, int32
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.expr import Assemble, Pointwise, Reduction, reads
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import made_from, producers
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.keys import Keys
from tests.schedule.points import extents, kinds, pair, refused

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)


def test_cache_after_an_input() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([4, 6], dtype=float32)
        a, v = tf.sin(x), tf.permute(x, (1, 0))
        b = tf.cos(v)
        fusion.add_output(a)
        fusion.add_output(b)
    before = evaluate(fusion, [X])
    task = fusion.task([b])
    c = x.cache_after()
    assert (c.origin, c.dtype, extents(c), c.name) == (x, float32, ["4", "6"], "tv4")
    assert [e.output for e in x.uses] == [c]
    assert [e.output for e in c.uses] == [a, v]
    assert fusion.tasks.home(c) is None
    assert fusion.owner(c) is a
    assert task.tensors == [b]
    for old, new in zip(before, evaluate(fusion, [X]), strict=True):
        assert (old == new).all()


def test_cache_of_an_input_joins_a_task_that_keeps_the_order() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([4, 6], dtype=float32)
        a = tf.define_tensor([4, 6], dtype=float32)
        s = tf.sin(a)
        late = tf.cos(x)
        u = late * s
        early = tf.exp(x)
        w = tf.add(early, s)
        fusion.add_output(u)
        fusion.add_output(w)
    fusion.task([s, w, early], "first")
    fusion.task([late, u], "second")
    c = x.cache_after()
    home = fusion.tasks.home(c)
    assert home is not None
    assert home.name == "first"
    fusion.check()


def test_cache_after_a_claimed_tensor() -> None:
    _, a, b = pair(4, 6)
    t = a.fusion.task([a])
    c = a.cache_after()
    assert t.tensors == [a, c]
    assert [e.output for e in c.uses] == [b]
    d = c.cache_after()
    assert t.tensors == [a, c, d]


def test_cache_after_an_unclaimed_tensor_follows_it() -> None:
    _, a, b = pair(4, 6)
    c = a.cache_after()
    assert a.fusion.owner(c) is a
    d = b.cache_before()
    assert b.fusion.owner(d) is b


def test_cache_before_takes_over_the_computation() -> None:
    _, a, b = pair(4, 6)
    b.set_memory_type(MemoryType.Global)
    b.split(1, 4)
    b.axis(0).parallelize(P.BIDx)
    before = evaluate(b.fusion, [X])
    old = b.loop
    t = b.fusion.task([b])
    c = b.cache_before()
    assert c.loop == old
    assert extents(b) == extents(c) == ["4", "2", "4"]
    assert [b.axis(0).ptype, c.axis(0).ptype] == [P.BIDx, P.BIDx]
    assert t.tensors == [b, c]
    assert (c.schedule.memory, b.schedule.memory) == (None, MemoryType.Global)
    assert [e.output for e in a.uses] == [c]
    definition = b.fusion.definition(b)
    assert isinstance(definition, Pointwise)
    assert definition.op.name == "copy"
    assert b.fusion.outputs == [b]
    keys = Keys(b.fusion)
    assert all(keys.equal(x, y) for x, y in zip(b.loop, c.loop, strict=True))
    c.inline_at(3)
    assert (evaluate(b.fusion, [X])[0] == before[0]).all()


def test_cache_before_of_a_reduction() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([4, 6], dtype=float32)
        s = tf.sum(x, axis=1)
        fusion.add_output(s)
    s.split(0, 2).split(2, 3)
    c = s.cache_before()
    assert isinstance(fusion.definition(c), Reduction)
    assert (extents(c), kinds(c)) == (["2", "2", "2", "3"], "iirr")
    assert (extents(s), kinds(s), s.schedule.transforms) == (["4"], "i", [])
    np.testing.assert_allclose(evaluate(fusion, [X])[0], X.sum(1), rtol=1e-5, atol=1e-6)


def test_cache_before_keeps_the_allocation_and_foreign_axes() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([8, 16], dtype=float32)
        y = tf.define_tensor([4, 8, 16], dtype=float32)
        a = tf.sin(x)
        b = a + y
        fusion.add_output(b)
    b.propagate([a], upto=3)
    assert kinds(a) == "fii"
    a.set_allocation_domain(tuple(reversed(a.logical)))
    a.circular_buffer(2)
    c = a.cache_before()
    assert kinds(a) == kinds(c) == "fii"
    assert [x.extent for x in a.schedule.allocation or ()] == [a.logical[1].extent, a.logical[0].extent]
    assert a.schedule.allocation == (a.logical[1], a.logical[0])
    assert (a.schedule.stages, c.schedule.stages, c.schedule.allocation) == (2, 1, None)
    a.inline_at(3)
    c.inline_at(3)


def test_fork_of_an_output_that_is_read() -> None:
    """The output keeps its name and its memory; its readers read what computes it."""
    with Fusion("f") as fusion:
        x = tf.define_tensor([4, 6], dtype=float32)
        a = tf.sin(x)
        b = tf.cos(a)
        fusion.add_output(b)
        fusion.add_output(a)
    before = evaluate(fusion, [X])
    task = fusion.task([a, b])
    a.split(1, 4).axis(0).parallelize(P.BIDx)
    c = a.cache_fork()
    assert fusion.outputs == [b, a]
    assert [e.output for e in c.uses] == [a, b]
    assert a.uses == ()
    assert (extents(a), extents(c)) == (["4", "2", "4"], ["4", "2", "4"])
    assert [a.axis(0).ptype, c.axis(0).ptype] == [P.BIDx, P.BIDx]
    assert task.tensors == [a, b, c]
    for old, new in zip(before, evaluate(fusion, [X]), strict=True):
        assert (old == new).all()


def test_fork_of_a_part_that_is_read() -> None:
    """The part goes on being one: what others read lies in registers, not in the memory of the whole."""
    with Fusion("f") as fusion:
        x = tf.define_tensor([4, 6], dtype=float32)
        a, b = tf.sin(x), tf.cos(x)
        whole = tf.cat([a, b], dim=0, form="scatter")
        d = tf.exp(tf.permute(a, (1, 0)))
        fusion.add_output(whole)
        fusion.add_output(d)
    before = evaluate(fusion, [X])
    c = a.cache_fork()
    assert made_from(fusion, whole) == (a, b)
    assert producers(fusion, d) == producers(fusion, a) == (c,)
    for old, new in zip(before, evaluate(fusion, [X]), strict=True):
        assert (old == new).all()
    assert refused(lambda: b.cache_fork(), fusion) == "cache_fork(tv2): no expression reads it\nhelp: tv2.cache_before() puts a copy in front of it"


def test_cache_of_the_parts_of_a_cat() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([4, 6], dtype=float32)
        a, b = tf.sin(x), tf.cos(x)
        c = tf.cat([a, b], dim=0, form="scatter")
        fusion.add_output(c)
    before = evaluate(fusion, [X])[0]
    a.cache_after()
    b.cache_before()
    assert (evaluate(fusion, [X])[0] == before).all()


def assembled(fusion: Fusion, tv: TensorView) -> Assemble:
    found = fusion.definition(tv)
    assert isinstance(found, Assemble)
    return found


def test_refused() -> None:
    x, a, b = pair(4, 6)
    assert refused(lambda: b.cache_after(), a.fusion) == "cache_after(tv2): no expression reads it\nhelp: tv2.cache_before() puts a copy in front of it"
    assert refused(lambda: x.cache_before(), a.fusion) == "cache_before(tv0): an input has no definition\nhelp: tv0.cache_after() copies it for its readers"
    a.inline_at(1)
    assert refused(lambda: a.cache_after(), a.fusion) == ("cache_after(tv1): tv1 is inlined at 1\nhelp: call cache_after before inlining, or tv1.inline_at(0)")
    assert refused(lambda: a.cache_before(), a.fusion) == (
        "cache_before(tv1): tv1 is inlined at 1\nhelp: call cache_before before inlining, or tv1.inline_at(0)"
    )
    assert refused(lambda: a.cache_fork(), a.fusion) == "cache_fork(tv1): it is not an output"
    assert refused(lambda: x.cache_fork(), a.fusion) == "cache_fork(tv0): it is not an output"
    assert refused(lambda: b.cache_fork(), a.fusion) == "cache_fork(tv2): no expression reads it\nhelp: tv2.cache_before() puts a copy in front of it"
    with Fusion("g") as fusion:
        y = tf.define_tensor([4], dtype=float32)
    assert refused(lambda: y.cache_after(), fusion) == "cache_after(tv0): no expression reads it"


def test_updates_in_place_have_no_copies() -> None:
    """Nobody stores what is sent to elements of another tensor, and these are in one place. They may still be sent as they were."""
    with Fusion("g") as fusion:
        x, i = tf.define_tensor([4]), tf.define_tensor([6], int32)
        y = tf.index_add(x, 0, i, tf.take(x, i, 0))
        fusion.add_output(y)
    first, sent = (part.tensor for part in assembled(fusion, y).parts)
    said = f"({sent.name}): its values are combined with elements of {first.name} in place: nobody stores them\nhelp: call it on what is sent, or on the whole"
    for name in ("cache_after", "cache_before", "cache_fork"):
        assert refused(getattr(sent, name), fusion) == name + said
    assert refused(lambda: sent.duplicate([y]), fusion) == "duplicate" + said
    said = f"({first.name}): {sent.name} updates it in place\nhelp: leave this reader out"
    assert refused(lambda: first.cache_after(sent), fusion) == "cache_after" + said
    assert refused(lambda: first.duplicate([sent]), fusion) == "duplicate" + said
    assert "no expression reads it" in refused(lambda: first.cache_fork(), fusion)


def test_a_copy_for_each_factor() -> None:
    with Fusion("gram") as fusion:
        x = tf.define_tensor([3, 4], dtype=float32)
        product = tf.matmul(x, tf.transpose(x))
        also = tf.relu(x)
        fusion.add_output(product)
        fusion.add_output(also)
    left, right = x.cache_after(product, 0), x.cache_after(product, 1)
    assert left.shape == right.shape == x.shape
    definition = fusion.definition(product)
    assert definition is not None
    assert [read.tensor for read in reads(definition)] == [left, right]
    assert [use.output for use in x.uses if use.output not in {left, right}] == [also]
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert np.array_equal(evaluate(fusion, [a])[0], a @ a.T)
