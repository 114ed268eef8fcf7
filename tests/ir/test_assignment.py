"""The partition completed: a task for every tensor with code."""

from contextlib import suppress

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

import taskfuse.ops as tf
from taskfuse.errors import TaskError
from taskfuse.ir.assignment import assign
from taskfuse.ir.expr import Read, reads
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tasks import leaves
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from tests.ir.nodes import Chain, placed


def test_assign_everything_claimed() -> None:
    k = Chain()
    k.fusion.task([k.a, k.b, k.c])
    k.fusion.task([k.d, k.e])
    assert placed(k.fusion) == {"tv1": "t1", "tv2": "t1", "tv3": "t1", "tv4": "t2", "tv5": "t2"}


def test_assign_nothing_claimed() -> None:
    k = Chain()
    tree = k.fusion.tasks
    assert placed(k.fusion) == dict.fromkeys(("tv1", "tv2", "tv3", "tv4", "tv5"), "t0")
    assert (tree.nodes, tree.root.members, k.a.task) == ([], [], None)


def test_assign_cuts_task_0_where_convexity_needs_it() -> None:
    k = Chain()
    k.fusion.task([k.b])
    assert placed(k.fusion) == {"tv1": "t0", "tv2": "t1", "tv3": "t0_1", "tv4": "t0", "tv5": "t0"}


def test_assign_cuts_around_groups_not_around_their_members() -> None:
    k = Chain()
    t1, t2 = k.fusion.task([k.b]), k.fusion.task([k.d])
    k.fusion.group([t1, t2])
    assert placed(k.fusion) == {"tv1": "t0", "tv2": "t1", "tv3": "t0_1", "tv4": "t2", "tv5": "t0_1"}


def test_assign_cuts_after_all_that_a_group_depends_on() -> None:
    """tv5 reads t2 alone, but t2 is one node with t1, which depends on tv2: one task for tv2 and tv5 would make a cycle with the group."""
    k = Chain()
    k.fusion.task([k.a])
    t2, t3 = k.fusion.task([k.c]), k.fusion.task([k.d])
    k.fusion.group([t2, t3])
    assert placed(k.fusion) == {"tv1": "t1", "tv2": "t0_1", "tv3": "t2", "tv4": "t3", "tv5": "t0_2"}


def test_assign_looks_behind_views() -> None:
    with Fusion() as fusion:
        first = tf.sin(tf.define_tensor([8, 4]))
        claimed = tf.cos(first)
        last = tf.exp(tf.permute(claimed, (1, 0)))
    fusion.task([claimed])
    assert placed(fusion) == {first.name: "t0", claimed.name: "t1", last.name: "t0_1"}


def read_by(tv: TensorView) -> tuple[Read, ...]:
    """What the definition of a computed tensor reads."""
    assert tv.definition is not None
    return tuple(reads(tv.definition))


@given(st.data())
def test_assign_is_convex(data: st.DataObject) -> None:
    """Whatever is claimed and grouped: tasks with the pieces of task 0 partition the tensors, and the nodes under the root form no cycle."""
    with Fusion() as fusion:
        tensors = [tf.define_tensor([8, 8])]
        for _ in range(data.draw(st.integers(2, 9))):
            a, b = (data.draw(st.sampled_from(tensors[-4:])) for _ in range(2))
            tensors.append(tf.add(a, tf.permute(b, (1, 0)) if data.draw(st.booleans()) else b))
    for _ in range(data.draw(st.integers(0, 4))):
        free = [tv for tv in tensors[1:] if tv.task is None]
        members = fusion.tasks.root.members
        with suppress(TaskError):
            if free and data.draw(st.booleans()):
                fusion.task(data.draw(st.lists(st.sampled_from(free), min_size=1, max_size=3, unique=True)))
            elif members:
                fusion.group(data.draw(st.lists(st.sampled_from(members), min_size=1, max_size=3, unique=True)))
    place = assign(fusion)
    assert set(place) == set(tensors[1:])
    assert all(place[tv] is tv.task for tv in place if tv.task is not None)
    below = {task: node for node in fusion.tasks.root.members for task in leaves(node)}
    graph: nx.DiGraph[str] = nx.DiGraph()
    for reader in place:
        for read in read_by(reader):
            tv = read.tensor if read.tensor in place or read.tensor.is_input else read_by(read.tensor)[0].tensor
            if tv in place:
                a, b = (below.get(place[x], place[x]).name for x in (tv, reader))
                graph.add_edges_from([(a, b)] if a != b else [])
    assert nx.is_directed_acyclic_graph(graph)


def test_a_view_cuts_nothing() -> None:
    with Fusion() as fusion:
        x = tf.define_tensor([8, 4])
        a = tf.sin(x)
        b = tf.cos(tf.permute(a, (1, 0)))
        c, d = tf.exp(b), tf.neg(a)
    fusion.task([a])
    fusion.task([b])
    found = placed(fusion)
    assert (found[c.name], found[d.name]) == ("t0_1", "t0_1")


def test_an_unclaimed_view_lies_in_no_task_and_a_claimed_one_has_code() -> None:
    with Fusion() as fusion:
        a = tf.sin(tf.define_tensor([8, 4]))
        view = tf.permute(a, (1, 0))
        tf.cos(view)
    assert view.name not in placed(fusion)
    fusion.task([view])
    assert placed(fusion)[view.name] == "t1"


def test_a_view_with_memory_or_that_is_an_output_is_placed() -> None:
    with Fusion() as fusion:
        a = tf.sin(tf.define_tensor([8, 4]))
        first, second = tf.permute(a, (1, 0)), tf.permute(a, (1, 0))
        fusion.add_output(second)
    first.set_memory_type(MemoryType.Shared)
    assert {placed(fusion)[tv.name] for tv in (first, second)} == {"t0"}
