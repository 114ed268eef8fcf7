"""Tasks and groups: what a task claims, names, register budgets, index types."""

import pytest

import taskfuse.ops as tf
from taskfuse.errors import TaskError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tasks import are_roles, around, joint
from taskfuse.ir.types import ParallelType as P
from tests.ir.nodes import CYCLE, Chain, composite, placed, refused, state


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
    load = k.fusion.task([k.a], "load")
    for name in ("load", "root"):
        refused(lambda name=name: k.fusion.task([k.b], name), f"{name}: there is already a node of this name")
    refused(lambda: k.fusion.group([load], "load"), "load: there is already a node of this name")
    refused(lambda: k.fusion.task([k.b], "a task"), "a task: a name is made of letters, digits and _")
    assert k.fusion.task([k.b], "t3").name == "t3"
    assert k.fusion.task([k.c]).name == "t4"


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


def test_where_the_ways_to_two_tasks_part() -> None:
    with Fusion() as fusion:
        x = tf.define_tensor([4])
        a, b = tf.sin(x), tf.cos(x)
        y = tf.add(a, b)
        fusion.add_output(y)
    s, c, t = (fusion.task([tv]) for tv in (a, b, y))
    beside = fusion.group([s, c])
    roles = fusion.group([beside, t])
    assert around(s) == [beside, roles, fusion.tasks.root]
    assert (joint(s, c), joint(s, t), joint(t, t)) == (beside, roles, roles)
    assert not are_roles(roles)
    beside.parallelize(P.TIDz)
    roles.parallelize(P.TIDy)
    assert [are_roles(group) for group in (beside, roles)] == [False, True]
