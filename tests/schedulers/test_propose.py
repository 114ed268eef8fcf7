"""``fusion.partition()``: what it finds, what it leaves alone, and that its proposals obey the laws of tasks and groups."""

from collections.abc import Callable

import pytest

import taskfuse as tf
from examples import founding
from taskfuse.errors import UnsupportedError
from taskfuse.ir.partition import Part, ProposedTask
from taskfuse.testing import CaseOptions, RandomChooser
from taskfuse.testing.graphs import Graph
from taskfuse.testing.program import Recorder
from tests.errors import text_of
from tests.schedulers.partitioned import branches, product


def shape(part: Part) -> object:
    """The tree: a task as its tensors, a group as its index type and its members."""
    if isinstance(part, ProposedTask):
        return [*part.loads, *part.tensors]
    return (None if part.ptype is None else part.ptype.value, [shape(m) for m in part.members])


def test_the_founding_example_is_found() -> None:
    proposal = branches().partition()
    expected = founding.build()
    assert {frozenset(b.tensors) for b in proposal.tasks} == {frozenset(tv.name for tv in t.tensors) for t in expected.tasks.nodes if isinstance(t, tf.Task)}
    assert shape(proposal.top) == ("TIDz", [("TIDy", [["tv1", "tv5"], ["tv2", "tv6"], ["tv3", "tv7"], ["tv4", "tv8"]]), ["tv9", "tv10"]])


def test_a_product_is_a_role_that_loads_and_one_that_multiplies() -> None:
    fusion = product()
    proposal = fusion.partition()
    assert shape(proposal.top) == ("TIDy", [["a", "b"], (None, [["tv3"], ["tv5", "tv6", "tv7"]])])
    assert [b.name for b in proposal.tasks] == ["load", "math", "epilogue"]
    proposal.apply()
    assert {t.name: [tv.name for tv in t.tensors] for t in fusion.tasks.nodes if isinstance(t, tf.Task)}["load"] == ["tv8", "tv9"]
    (vertical,) = (g for g in fusion.tasks.groups() if g.ptype is not None)
    assert vertical.kind is tf.GroupKind.VERTICAL


@pytest.mark.parametrize(
    ("build", "tensors"),
    [
        (lambda: product(8, 8, 8), ["tv3", "tv5", "tv6", "tv7"]),  # each element is read 8 times only
        (lambda: unscheduled_softmax(), ["tv1", "tv3", "tv4", "tv5", "tv7", "tv8"]),
        (lambda: joined_pointwise(), ["tv2", "tv3", "tv4", "tv5", "tv6"]),
    ],
)
def test_one_body(build: Callable[[], tf.Fusion], tensors: list[str]) -> None:
    assert shape(build().partition().top) == tensors


def unscheduled_softmax() -> tf.Fusion:
    with tf.Fusion("softmax") as fusion:
        fusion.add_output(tf.softmax(tf.define_tensor(["M", "N"], name="x"), axis=1))
    return fusion


def joined_pointwise() -> tf.Fusion:
    """Branches that run over the points of what reads them: one loop has all of them."""
    with tf.Fusion("pointwise") as fusion:
        x, y = tf.define_tensor(["M"], name="x"), tf.define_tensor(["M"], name="y")
        fusion.add_output(tf.sin(x) * tf.cos(y) + tf.exp(x))
    return fusion


def test_independent_branches() -> None:
    """sin and cos share the loop over x with exp, beside which the cat has log; the sum has nothing to do with them."""
    with tf.Fusion("independent") as fusion:
        x, y = tf.define_tensor(["M"], name="x"), tf.define_tensor(["N", "N"], name="y")
        for tv in (tf.sin(x), tf.cos(x), tf.sum(y, axis=1), tf.cat([tf.exp(x), tf.log(y[0])], dim=0)):
            fusion.add_output(tv)
    proposal = fusion.partition()
    assert shape(proposal.top) == ("BIDx", [["tv2", "tv3", "tv5", "tv7", "tv8"], ["tv4"]])
    (group,) = proposal.groups
    assert group.parts < group.whole


def test_what_does_not_feed_the_join_goes_with_it() -> None:
    with tf.Fusion("beside") as fusion:
        x, y = tf.define_tensor([1 << 20], name="x"), tf.define_tensor([1 << 20], name="y")
        fusion.add_output(tf.cat([tf.sin(tf.exp(tf.tanh(x))), tf.cos(tf.log(tf.exp(y)))], dim=0))
        fusion.add_output(tf.tan(x))
    proposal = fusion.partition()
    assert shape(proposal.top) == ("TIDz", [("TIDy", [["tv2", "tv3", "tv4"], ["tv5", "tv6", "tv7"]]), ("TIDy", [["tv8"], ["tv9"]])])
    proposal.apply()
    fusion.check()


def test_roles_that_save_nothing_are_not_proposed_but_noted() -> None:
    """Two parts of a cat that do next to nothing: the bytes decide, with roles or without."""
    with tf.Fusion("thin") as fusion:
        x = [tf.define_tensor([64, 1 << 20], dtype=tf.float64, name=n) for n in "xy"]
        fusion.add_output(tf.sum(tf.cat([tf.neg(t) for t in x], dim=0), axis=1))
    proposal = fusion.partition()
    assert shape(proposal.top) == ["tv2", "tv3", "tv4", "tv5"]
    (rejected,) = proposal.rejected
    assert rejected.whole < 1.05 * rejected.parts
    assert proposal.explain().splitlines()[-1] == (
        "rejected: tv4 reads 2 parts at different points, where one body would compute all of them;"
        f" {rejected.parts:.2f} us with it, {rejected.whole:.2f} us without"
    )


def test_what_is_read_elsewhere_is_not_copied_for_one_role() -> None:
    """A copy of ``a`` in the load role would make the sum of its rows depend on that role."""
    with tf.Fusion("two") as fusion:
        a, b = tf.define_tensor([64, 128], name="a"), tf.define_tensor([128, 64], name="b")
        fusion.add_output(a @ b)
        fusion.add_output(tf.sum(a, axis=1))
    proposal = fusion.partition()
    assert [body.loads for body in proposal.tasks] == [("b",), (), ()]
    proposal.apply()
    fusion.check()


def test_refusals() -> None:
    assert text_of(lambda: founding.build().partition()) == "t1: fusion 'cat' has tasks already\nhelp: partition it before its first task is made"
    assert text_of(lambda: tf.Fusion("empty").partition()) == "fusion 'empty': it computes nothing\nhelp: add an output first"
    with pytest.raises(UnsupportedError, match="sizes has 'Q', which is not a dimension of it"):
        branches().partition(sizes={"Q": 3})


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_proposals_obey_the_laws(first: int) -> None:
    """Random math: every tensor is claimed, the groups are of their kinds, and the code says the same."""
    seen = 0
    for seed in range(first, first + 40):
        recorder = Recorder()
        graph = Graph(RandomChooser(seed), CaseOptions(), recorder)
        graph.grow()
        fusion = recorder.fusion
        copy = tf.copy_fusion(fusion)[0]
        proposal = fusion.partition(sizes={name: graph.sizes[name] for name in fusion.dims})
        exec(proposal.code, {"fusion": copy})
        proposal.apply()
        fusion.check()
        assert str(copy) == str(fusion)
        assert all(fusion.tasks.task_of(e.output) is not None for e in fusion.exprs() if not fusion.is_view(e.output))
        groups = {c.name: c for c in proposal.groups}
        assert [n.name for n in fusion.tasks.nodes] == [*(b.name for b in proposal.tasks), *groups]
        for group in fusion.tasks.groups():
            if group.ptype is not None:
                independent = groups[group.name].why.endswith("do not depend on each other")
                assert group.kind is (tf.GroupKind.HORIZONTAL if independent else tf.GroupKind.VERTICAL)
                assert independent or groups[group.name].whole >= 1.05 * groups[group.name].parts
                seen += 1
    assert seen > 5
