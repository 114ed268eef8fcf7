"""The laws of tasks and groups that the task tree keeps: partition, tree, convexity, kind (docs/tasks-and-groups.md)."""

from collections.abc import Callable

import pytest

import taskfuse.ops as tf
from taskfuse.errors import TaskError
from taskfuse.ir.assignment import assign
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import Pointwise, Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tasks import leaves
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import GroupKind, MemoryType
from taskfuse.ir.types import ParallelType as P
from tests.ir.nodes import CYCLE, Chain, composite, placed, refused, state


def test_groups_form_a_tree_and_the_rest_hangs_under_the_root() -> None:
    k = Chain()
    root = k.fusion.tasks.root
    t1, t2, t3, t4 = (k.fusion.task([tv]) for tv in (k.a, k.b, k.c, k.d))
    assert root.members == [t1, t2, t3, t4]
    inner = k.fusion.group([t2, t1])
    assert (inner.name, inner.members, inner.parent, t1.parent) == ("group1", [t2, t1], root, inner)
    assert root.members == [inner, t3, t4]
    outer = k.fusion.group([inner, t3], "all")
    assert root.members == [outer, t4]
    assert list(leaves(root)) == [t2, t1, t3, t4]
    assert list(k.fusion.tasks.groups()) == [root, outer, inner]
    k.fusion.check()


def test_a_node_has_one_parent() -> None:
    k = Chain()
    t1, t2 = k.fusion.task([k.a]), k.fusion.task([k.b])
    k.fusion.group([t1])
    before = state(k.fusion)
    refused(lambda: k.fusion.group([t2, t1]), "group2: t1 is a member of group1 already", help="a node has one parent")
    refused(lambda: k.fusion.group([t2, t2]), "group2: t2 is given twice")
    refused(lambda: k.fusion.group([]), "group2: a group needs at least one member")
    refused(lambda: k.fusion.group([k.fusion.tasks.root]), "group2: root holds everything and is not a member")
    assert state(k.fusion) == before


def test_a_node_of_another_fusion_is_no_member() -> None:
    k, other = Chain(), Chain()
    task = other.fusion.task([other.a])
    refused(lambda: k.fusion.group([task]), "group1: t1 belongs to fusion 'chain'")


def test_tasks_without_a_cycle() -> None:
    k = Chain()
    k.fusion.task([k.a, k.b])
    k.fusion.task([k.c])
    k.fusion.check()


def test_two_tasks_in_a_cycle() -> None:
    k = Chain()
    k.fusion.task([k.b])
    before = state(k.fusion)
    notes = ("tv1 in t2 is read by tv2 in t1", "tv2 in t1 is read by tv3 in t2")
    refused(lambda: k.fusion.task([k.a, k.c]), "root: its members depend on each other in a cycle", notes=notes, help=CYCLE)
    assert state(k.fusion) == before


def test_a_cycle_through_an_unclaimed_tensor() -> None:
    k = Chain()
    notes = ("tv1 in t1 is read by tv2 in no task", "tv2 in no task is read by tv3 in t1")
    refused(lambda: k.fusion.task([k.a, k.c]), "root: its members depend on each other in a cycle", notes=notes, help=CYCLE)


def test_a_cycle_through_an_unclaimed_view() -> None:
    with Fusion() as fusion:
        a = tf.sin(tf.define_tensor([8, 4]))
        b = tf.cos(a)
        view = tf.permute(b, (1, 0))
        c = tf.exp(view)
    fusion.task([b])
    notes = ("tv1 in t2 is read by tv2 in t1", "tv2 in t1 is read by tv4 in t2")
    refused(lambda: fusion.task([a, c]), "root: its members depend on each other in a cycle", notes=notes, help=CYCLE)


def test_a_view_between_two_tensors_of_a_task_is_no_cycle() -> None:
    with Fusion() as fusion:
        a = tf.sin(tf.define_tensor([8, 4]))
        b = tf.cos(tf.permute(a, (1, 0)))
    task = fusion.task([a, b])
    fusion.check()
    assert placed(fusion) == {a.name: task.name, b.name: task.name}


def test_a_cycle_between_a_group_and_a_task() -> None:
    k = Chain()
    t1, t2, t3 = (k.fusion.task([tv]) for tv in (k.a, k.b, k.c))
    before = state(k.fusion)
    notes = ("tv1 in t1 is read by tv2 in t2", "tv2 in t2 is read by tv3 in t3")
    refused(lambda: k.fusion.group([t3, t1]), "root: its members depend on each other in a cycle", notes=notes, help=CYCLE)
    assert state(k.fusion) == before
    k.fusion.group([t1, t2, t3])


def test_a_cycle_through_a_tensor_that_follows_its_call() -> None:
    k = Chain()
    k.fusion.set_owner(k.a, k.c)
    notes = ("tv1 in t1 is read by tv2 in no task", "tv2 in no task is read by tv3 in t1")
    refused(lambda: k.fusion.task([k.c]), "root: its members depend on each other in a cycle", notes=notes, help=CYCLE)
    k.fusion.task([k.b, k.c])
    k.fusion.check()
    assert k.fusion.tasks.place(k.a) == "t1"


def test_check_finds_a_cycle_that_a_changed_definition_makes() -> None:
    k = Chain()
    k.fusion.task([k.a, k.d])
    definition = k.d.definition
    assert isinstance(definition, Pointwise)
    k.fusion.define(Pointwise(k.d, definition.op, (Read(k.b, (iteration_symbol(0),)),)))
    notes = ("tv1 in t1 is read by tv2 in no task", "tv2 in no task is read by tv4 in t1")
    refused(k.fusion.check, "root: its members depend on each other in a cycle", notes=notes, help=CYCLE)


def test_rebuild_checks_once_at_the_end() -> None:
    k = Chain()

    def build() -> None:
        k.fusion.task([k.a, k.c]).add(k.d)
        k.fusion.task([k.b])

    notes = ("tv1 in t1 is read by tv2 in t2", "tv2 in t2 is read by tv3 in t1")
    refused(lambda: k.fusion.tasks.rebuild(build), "root: its members depend on each other in a cycle", notes=notes, help=CYCLE)
    fusion, total, out = composite()
    with fusion:
        tf.exp(total)
    copy = fusion.tensors()[-1]
    fusion.set_owner(copy, total)

    def lawful() -> None:
        fusion.task([out])
        fusion.task([total])

    fusion.tasks.rebuild(lawful)
    assert fusion.tasks.home(copy) is total.task


def test_kind_horizontal() -> None:
    k = Chain()
    group = k.fusion.group([k.fusion.task([k.a, k.b]), k.fusion.task([k.d])])
    assert group.kind is GroupKind.HORIZONTAL
    assert group.parallelize(P.TIDy) is group
    assert group.ptype is P.TIDy


def test_kind_vertical() -> None:
    k = Chain()
    group = k.fusion.group([k.fusion.task([k.c]), k.fusion.task([k.a]), k.fusion.task([k.b])])
    assert group.kind is GroupKind.VERTICAL
    group.parallelize(P.BIDx)
    k.fusion.check()


def test_dependencies_pass_through_what_lies_outside() -> None:
    k = Chain()
    first, last, other = k.fusion.task([k.a]), k.fusion.task([k.d]), k.fusion.task([k.c])
    assert k.b.task is None
    assert k.fusion.tasks.dependencies(k.fusion.tasks.root) == [(first, other)]
    assert k.fusion.group([first, last]).kind is GroupKind.HORIZONTAL


def test_kind_counts_what_follows_a_member() -> None:
    """``total`` lies in the task of ``out``, so a reader of ``total`` depends on that task."""
    fusion, total, out = composite()
    with fusion:
        reader = tf.exp(total)
    group = fusion.group([fusion.task([out]), fusion.task([reader])])
    assert assign(fusion)[total] is out.task
    assert group.kind is GroupKind.VERTICAL


def test_kind_of_one_member() -> None:
    k = Chain()
    group = k.fusion.group([k.fusion.task([k.a])])
    assert group.kind is GroupKind.BOTH
    group.parallelize(P.CIDx)


NEITHER_NOTES = ("t2 depends on t1", "t3 is connected to neither")
NEITHER_HELP = "group t1 with t2; with those as members, group1 is horizontal"


def test_kind_neither() -> None:
    k = Chain()
    t1, t2, t3 = k.fusion.task([k.a]), k.fusion.task([k.b]), k.fusion.task([k.d])
    group = k.fusion.group([t1, t2, t3])
    assert group.kind is GroupKind.NEITHER
    refused(lambda: group.parallelize(P.TIDx), "group1: it is neither horizontal nor vertical", notes=NEITHER_NOTES, help=NEITHER_HELP)
    assert group.ptype is None
    k.fusion.check()


def test_the_proposed_regrouping_is_horizontal() -> None:
    k = Chain()
    t1, t2, t3, t4 = (k.fusion.task([tv]) for tv in (k.a, k.b, k.d, k.e))
    together = k.fusion.group([t1, t2, t3, t4])
    help = "group t1 with t2, and t3 with t4; with those as members, group1 is horizontal"
    refused(lambda: together.parallelize(P.TIDx), "group1: it is neither horizontal nor vertical", notes=NEITHER_NOTES, help=help)
    other = Chain()
    t1, t2, t3, t4 = (other.fusion.task([tv]) for tv in (other.a, other.b, other.d, other.e))
    group = other.fusion.group([other.fusion.group([t1, t2]), other.fusion.group([t3, t4])])
    assert group.kind is GroupKind.HORIZONTAL
    group.parallelize(P.TIDx)


def test_check_finds_a_kind_that_is_lost() -> None:
    k = Chain()
    t1, t2, t3 = k.fusion.task([k.a]), k.fusion.task([k.b, k.e]), k.fusion.task([k.d])
    group = k.fusion.group([t1, t2, t3])
    assert group.kind is GroupKind.VERTICAL
    group.parallelize(P.TIDx)
    before = state(k.fusion)
    k.fusion.check()
    refused(lambda: t3.add(k.e), "group1: it is neither horizontal nor vertical", notes=NEITHER_NOTES, help=NEITHER_HELP)
    assert state(k.fusion) == before


def test_the_kind_is_right_after_a_refused_call() -> None:
    k = Chain()
    t1, t2, t3 = k.fusion.task([k.a]), k.fusion.task([k.b, k.e]), k.fusion.task([k.d])
    group = k.fusion.group([t1, t2, t3]).parallelize(P.TIDx)
    with pytest.raises(TaskError, match="group1: it is neither horizontal nor vertical"):
        t3.add(k.e)
    assert group.kind is GroupKind.VERTICAL


def test_the_kind_follows_owners() -> None:
    k = Chain()
    with k.fusion:
        other = tf.neg(k.a)
    group = k.fusion.group([k.fusion.task([k.b]), k.fusion.task([other])])
    assert group.kind is GroupKind.HORIZONTAL
    k.fusion.set_owner(k.a, k.b)
    assert group.kind is GroupKind.VERTICAL


STORED: list[Callable[[Fusion, TensorView], object]] = [lambda f, v: f.add_output(v), lambda f, v: v.set_memory_type(MemoryType.Shared)]


@pytest.mark.parametrize("change", STORED)
def test_the_kind_follows_a_view_that_gets_storage(change: Callable[[Fusion, TensorView], object]) -> None:
    with Fusion() as fusion:
        view = tf.permute(tf.define_tensor([8, 4]), (1, 0))
        first, second = tf.sin(view), tf.cos(view)
    fusion.set_owner(view, first)
    group = fusion.group([fusion.task([first]), fusion.task([second])])
    assert group.kind is GroupKind.HORIZONTAL
    change(fusion, view)
    assert group.kind is GroupKind.VERTICAL
