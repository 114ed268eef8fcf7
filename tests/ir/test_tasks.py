"""The laws of tasks and groups that the task tree keeps: partition, tree, convexity, kind (docs/tasks-and-groups.md)."""

from collections.abc import Callable
from contextlib import suppress

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse.ops as tf
from taskfuse.dtypes import bfloat16
from taskfuse.errors import TaskError
from taskfuse.ir.assignment import assign
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import Pointwise, Read, reads
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tasks import leaves
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import GroupKind, MemoryType
from taskfuse.ir.types import ParallelType as P


class Chain:
    """a = sin(x), b = cos(a), c = exp(b), and apart from these d = tan(x), e = neg(d)."""

    def __init__(self) -> None:
        with Fusion("chain") as self.fusion:
            self.x = tf.define_tensor([8], name="x")
            self.a = tf.sin(self.x)
            self.b = tf.cos(self.a)
            self.c = tf.exp(self.b)
            self.d = tf.tan(self.x)
            self.e = tf.neg(self.d)


def refused(call: Callable[[], object], message: str, *, notes: tuple[str, ...] = (), help: str | None = None) -> None:
    """``call`` raises a :class:`TaskError` with exactly these texts, located in this folder's tests."""
    with pytest.raises(TaskError) as caught:
        call()
    error = caught.value
    assert (error.message, error.notes, error.help) == (message, notes, help)
    assert error.location is not None
    assert error.location.file.endswith("test_tasks.py")


def state(fusion: Fusion) -> object:
    """All that a refused call must leave as it was."""
    tree = fusion.tasks
    groups = [(g.name, g.ptype, [m.name for m in g.members], [m.parent is g for m in g.members]) for g in tree.groups()]
    tasks = [(t.name, [tv.name for tv in t.tensors]) for t in leaves(tree.root)]
    return groups, tasks, [n.name for n in tree.nodes], [str(tv.task) for tv in fusion.tensors()]


def placed(fusion: Fusion) -> dict[str, str]:
    return {tv.name: task.name for tv, task in assign(fusion).items()}


CYCLE = "put the nodes on the cycle into one member, or split a member in two"

# -- law 1: partition ------------------------------------------------------------------------------------------------------------------------


def test_a_task_claims_its_tensors() -> None:
    k = Chain()
    t = k.fusion.task([k.a, k.b])
    assert (t.name, t.tensors, str(t), repr(t)) == ("t1", [k.a, k.b], "t1", "t1")
    assert (k.a.task, k.b.task, k.c.task, k.x.task) == (t, t, None, None)
    assert k.fusion.task([k.c], "last").name == "last"
    assert k.fusion.task([k.d]).name == "t3"


def test_a_tensor_is_claimed_once() -> None:
    k = Chain()
    k.fusion.task([k.a])
    before = state(k.fusion)
    refused(lambda: k.fusion.task([k.b, k.a]), "t2: tv1 belongs to task t1 already", help="t2.add(tv1) moves it")
    assert state(k.fusion) == before
    refused(lambda: k.fusion.task([k.b, k.b]), "t2: tv2 is given twice")
    assert state(k.fusion) == before


def test_an_input_is_not_claimed() -> None:
    k = Chain()
    before = state(k.fusion)
    message, help = "t1: x is an input: it is not computed, so no task contains it", "claim the tensors that read it, or x.cache_after()"
    refused(lambda: k.fusion.task([k.a, k.x]), message, help=help)
    assert state(k.fusion) == before
    task = k.fusion.task([k.a])
    refused(lambda: task.add(k.x), message, help=help)


def test_a_tensor_of_another_fusion_is_not_claimed() -> None:
    k, other = Chain(), Chain()
    refused(lambda: k.fusion.task([other.a]), "t1: tv1 belongs to fusion 'chain'")
    task = k.fusion.task([k.a])
    refused(lambda: task.add(other.a), "t1: tv1 belongs to fusion 'chain'")


def test_a_task_is_not_empty() -> None:
    k = Chain()
    refused(lambda: k.fusion.task([]), "t1: a task needs at least one tensor")
    t1, t2 = k.fusion.task([k.a]), k.fusion.task([k.b])
    before = state(k.fusion)
    refused(lambda: t2.add(k.a), "t1: moving tv1 to t2 would leave t1 empty")
    assert state(k.fusion) == before
    assert t1.tensors == [k.a]


def test_add_claims_or_moves() -> None:
    k = Chain()
    t1, t2 = k.fusion.task([k.a, k.b]), k.fusion.task([k.d])
    assert t2.add(k.e) is t2
    assert t2.add(k.e).tensors == [k.d, k.e]
    t2.add(k.b)
    assert (t1.tensors, t2.tensors, k.b.task) == ([k.a], [k.d, k.e, k.b], t2)


def test_a_move_that_breaks_a_law_is_taken_back() -> None:
    k = Chain()
    t1, t2 = k.fusion.task([k.a, k.b, k.c]), k.fusion.task([k.d])
    before = state(k.fusion)
    notes = ("tv1 in t1 is read by tv2 in t2", "tv2 in t2 is read by tv3 in t1")
    refused(lambda: t2.add(k.b), "root: its members depend on each other in a cycle", notes=notes, help=CYCLE)
    assert state(k.fusion) == before
    assert t1.tensors == [k.a, k.b, k.c]
    k.fusion.task([k.e])
    refused(lambda: t1.add(k.e), "t3: moving tv5 to t1 would leave t3 empty")


def test_a_claim_by_add_that_breaks_a_law_is_taken_back() -> None:
    k = Chain()
    task = k.fusion.task([k.a])
    before = state(k.fusion)
    notes = ("tv1 in t1 is read by tv2 in no task", "tv2 in no task is read by tv3 in t1")
    refused(lambda: task.add(k.c), "root: its members depend on each other in a cycle", notes=notes, help=CYCLE)
    assert state(k.fusion) == before


def test_names_are_unique_identifiers() -> None:
    k = Chain()
    k.fusion.task([k.a], "load")
    for name in ("load", "root"):
        refused(lambda name=name: k.fusion.task([k.b], name), f"{name}: there is already a node of this name")
    refused(lambda: k.fusion.group([k.a.task], "load"), "load: there is already a node of this name")
    refused(lambda: k.fusion.task([k.b], "a task"), "a task: a name is made of letters, digits and _")
    assert k.fusion.task([k.b], "t3").name == "t3"
    assert k.fusion.task([k.c]).name == "t4"


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
        for read in reads(reader.definition):
            tv = read.tensor if read.tensor in place or read.tensor.is_input else reads(read.tensor.definition)[0].tensor
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


def composite() -> tuple[Fusion, TensorView, TensorView]:
    """``total`` is made inside the call that makes ``out``."""
    with Fusion() as fusion:
        out = tf.sum(tf.define_tensor(["B", 16], dtype=bfloat16), 0)
    (total,) = (tv for tv in fusion.tensors() if fusion.owner(tv) is out)
    return fusion, total, out


def test_what_a_call_makes_follows_its_result() -> None:
    fusion, total, out = composite()
    assert (fusion.tasks.home(total), fusion.tasks.home(out)) == (None, None)
    task = fusion.task([out])
    assert (total.task, fusion.tasks.home(total)) == (None, task)
    assert placed(fusion) == {total.name: "t1", out.name: "t1"}


def test_what_a_call_makes_may_be_claimed() -> None:
    fusion, total, out = composite()
    first, second = fusion.task([total]), fusion.task([out])
    assert (fusion.tasks.home(total), fusion.tasks.home(out)) == (first, second)
    assert placed(fusion) == {total.name: "t1", out.name: "t2"}


# -- law 2: tree ---------------------------------------------------------------------------------------------------------------------------


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


# -- law 3: convexity ------------------------------------------------------------------------------------------------------------------------


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


# -- law 4: kind -----------------------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("change", [lambda f, v: f.add_output(v), lambda f, v: v.set_memory_type(MemoryType.Shared)])
def test_the_kind_follows_a_view_that_gets_storage(change: Callable[[Fusion, TensorView], object]) -> None:
    with Fusion() as fusion:
        view = tf.permute(tf.define_tensor([8, 4]), (1, 0))
        first, second = tf.sin(view), tf.cos(view)
    fusion.set_owner(view, first)
    group = fusion.group([fusion.task([first]), fusion.task([second])])
    assert group.kind is GroupKind.HORIZONTAL
    change(fusion, view)
    assert group.kind is GroupKind.VERTICAL


@pytest.mark.parametrize("count", [16, 41, 264])
def test_register_budgets(count: int) -> None:
    k = Chain()
    task = k.fusion.task([k.a])
    group = k.fusion.group([task])
    help = "setmaxnreg takes a multiple of 8 from 24 to 256"
    refused(lambda: task.registers(count), f"t1: {count} registers", help=help)
    refused(lambda: group.registers(count), f"group1: {count} registers", help=help)
    assert (task.budget, group.budget) == (None, None)
    assert (task.registers(24).budget, group.registers(256).budget) == (24, 256)


@pytest.mark.parametrize("ptype", [P.Serial, P.Unroll, P.Vectorize, P.Mma, P.Bulk])
def test_a_group_is_parallelized_on_an_index_type(ptype: P) -> None:
    k = Chain()
    group = k.fusion.group([k.fusion.task([k.a])])
    refused(lambda: group.parallelize(ptype), f"group1: a group cannot be parallelized on {ptype.value}", help="use a block or thread index")
    assert group.ptype is None


def test_one_index_type_per_group() -> None:
    k = Chain()
    group = k.fusion.group([k.fusion.task([k.a])]).parallelize(P.TIDx)
    refused(lambda: group.parallelize(P.TIDy), "group1: it is parallelized on TIDx already", help="one index type per group")
    assert group.ptype is P.TIDx


@pytest.mark.parametrize("name", ["t0", "t0_1"])
def test_the_names_of_the_tasks_of_unclaimed_tensors_are_taken(name: str) -> None:
    with Fusion("f") as fusion:
        a = tf.neg(tf.define_tensor([4]))
    with pytest.raises(TaskError) as caught:
        fusion.task([a], name)
    assert (caught.value.message, caught.value.help) == (
        f"{name}: this name is reserved for the tasks of unclaimed tensors",
        "give the node another name",
    )
    assert fusion.task([a], "t00").name == "t00"
