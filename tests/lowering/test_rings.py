"""Rings inside roles: their slots and cursors; loops of rings in registers, unrolled by slots."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError, ScheduleError
from taskfuse.ir.scalar import Expr, Facts, const, sym
from taskfuse.kir.synchronization import Advance, CursorInit
from taskfuse.lowering.plan import PGuard, PLoop, PNode, PSync, children, statements
from taskfuse.lowering.prefetch import Prefetch
from taskfuse.lowering.rings import unroll_rings
from tests.lowering.planned import Roles, roles
from tests.lowering.stepped import state_after
from tests.proofs import proved


def staged(stages: int) -> tf.Fusion:
    """Rows through Shared memory in one role; the reader reverses them, so that threads exchange."""
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([6, 32], name="x")
        a = tf.neg(x)
        b = tf.flip(a, 1) + 1.0
        fusion.add_output(b)
    for tv in (a, b):
        tv.axis(1).parallelize(P.TIDx)
    a.set_memory_type(MemoryType.Shared)
    a.inline_at(1)
    a.circular_buffer(stages)
    return fusion


def test_a_circular_buffer_in_one_role_is_a_ring_of_its_innermost_loop() -> None:
    state = state_after(staged(3), "rings")
    a = state.fusion.tensor("tv1")
    assert state.rings.loops == {"tv1": {state.shared_loops.path[a][0]: 3}}
    assert state.rings.slots(a) == 3
    assert str(state.rings.slot(a, state.tree.place[a])) == "tv1.ring.slot"
    assert state.rings.full(a) == "tv1.ring.full"
    x = state.fusion.tensor("x")
    assert state.rings.slots(x) == 0
    assert state.rings.slot(x, state.tree.place[a]) is None
    assert state_after(staged(1), "rings").rings.loops == {}


def test_a_boundary_is_its_channels_ring() -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([6, 32], name="x")
        a = tf.neg(x)
        b = a + 1.0
        fusion.add_output(b)
    for tv in (a, b):
        tv.axis(1).parallelize(P.TIDx)
    a.inline_at(1)
    a.circular_buffer(2)
    fusion.group([fusion.task([a], "load"), fusion.task([b], "use")]).parallelize(P.TIDy)
    state = state_after(fusion, "rings")
    a = state.fusion.tensor("tv1")
    assert state.rings.loops == {}
    assert state.rings.slots(a) == 2
    assert str(state.rings.slot(a, state.tree.place[a])) == "ch0.p.slot"


def cursors(plan: list[PNode], depth: int = 0) -> list[str]:
    """Initializations and advances, with the number of loops around them."""
    found: list[str] = []
    for n in plan:
        if isinstance(n, PSync):
            found += [f"{depth} start {s.name}" for s in n.stmts if isinstance(s, CursorInit)]
            found += [f"{depth} step {s.cursor}" for s in n.stmts if isinstance(s, Advance)]
        for block in children(n):
            found += cursors(block, depth + isinstance(n, PLoop))
    return found


def test_cursors_start_with_the_kernel_and_advance_in_each_iteration() -> None:
    assert cursors(state_after(staged(2), "cursors").plan) == ["0 start tv1.ring", "1 step tv1.ring"]


# -- rings in registers -------------------------------------------------------------------------------------------------------------------


def in_registers(r: Roles, trips: Expr, stages: int = 3, *, unroll: bool = False) -> tuple[list[PNode], Prefetch]:
    """A loop that uses a slot in each trip."""
    loop = PLoop("i", trips, unroll, [])
    ring = Prefetch((r.a,), stages, loop, in_registers=True)
    loop.body.append(r.step(r.a, sym(ring.slot) * 8 + sym("i")))
    return [loop], ring


def indices(plan: list[PNode]) -> list[str]:
    return [str(s.writes[0].index[0]) for s in statements(plan)]


@pytest.mark.parametrize(("trips", "unroll"), [(const(3), False), (const(2), False), (sym("N"), True)])
def test_few_trips_or_unrolled_ones_keep_their_form(trips: Expr, unroll: bool) -> None:
    plan, ring = in_registers(roles(), trips, unroll=unroll)
    unroll_rings(plan, [ring], Facts().with_range("N", 1, None))
    (loop,) = plan
    assert isinstance(loop, PLoop)
    assert loop.unroll
    assert indices(plan) == ["i + 8*(i % 3)"]


def test_many_trips_become_rounds_and_the_trips_that_are_left() -> None:
    plan, ring = in_registers(roles(), sym("N"))
    unroll_rings(plan, [ring], Facts().with_range("N", 1, None))
    rounds, rest = plan
    assert isinstance(rounds, PLoop)
    assert (rounds.var, str(rounds.extent), rounds.unroll) == ("i.q", "N//3", False)
    (slots,) = rounds.body
    assert isinstance(slots, PLoop)
    assert (slots.var, str(slots.extent), slots.unroll) == ("i.r", "3", True)
    assert isinstance(rest, PLoop)
    assert (rest.var, str(rest.extent), rest.unroll) == ("i.e", "2", True)
    (guard,) = rest.body
    assert isinstance(guard, PGuard)
    assert str(guard.cond) == "i.e < N % 3"
    # trip S*q + r uses slot r; trip S*(N // S) + e uses slot e
    assert indices(plan) == ["3*i.q + 9*i.r", "3*(N//3) + 9*i.e"]


def test_whole_rounds_leave_nothing() -> None:
    plan, ring = in_registers(roles(), const(12))
    unroll_rings(plan, [ring], Facts())
    (rounds,) = plan
    assert isinstance(rounds, PLoop)
    assert str(rounds.extent) == "4"


def test_rings_in_memory_and_other_loops_stay() -> None:
    r = roles()
    plan, ring = in_registers(r, sym("N"))
    before = list(plan)
    unroll_rings(plan, [Prefetch((r.a,), 3, ring.loop, in_registers=False)], Facts())
    assert plan == before
    other: list[PNode] = [PLoop("k", sym("N"), False, [r.step(r.a)])]
    unroll_rings(other, [ring], Facts())
    assert len(other) == 1


def test_a_loop_that_moves_another_cursor_is_not_cut_into_rounds() -> None:
    r = roles()
    plan, ring = in_registers(r, sym("N"))
    ring.loop.body.append(PSync((Advance("other", const(1)),), r.a))
    with pytest.raises(LoweringError, match="its ring of 3 slots in registers cuts a loop of N trips into rounds, and another ring takes a slot in each trip"):
        unroll_rings(plan, [ring], Facts())


def in_turn(
    stages: tuple[int, int] = (3, 3), names: tuple[str, str] = ("slots", "slots"), width: int = 32, *, dtype: tf.DType = tf.float32, reverse: bool = False
) -> tf.Fusion:
    """Two roles, each with two pieces of work, one after another."""
    with tf.Fusion("turns") as fusion:
        x, y = tf.define_tensor([6, 32], name="x"), tf.define_tensor(["N", width], dtype=dtype, name="y")
        a, b = tf.exp(x), tf.sin(y)
        u, v = tf.neg(a), tf.abs(b)
        fusion.add_output(u)
        fusion.add_output(v)
    for tv in (a, b, u, v):
        tv.axis(1).parallelize(P.TIDx)
    for tv, count, name in zip((a, b), stages, names, strict=True):
        tv.circular_buffer(count, name).inline_at(1)
    order = slice(None, None, -1 if reverse else 1)
    made, used = ([fusion.task([tv]) for tv in some] for some in ((a, b), (u, v)))
    fusion.group([fusion.group(made[order], "load"), fusion.group(used[order], "use")], "roles").parallelize(P.TIDy)
    return fusion


@pytest.mark.parametrize("reverse", [False, True])
def test_a_ring_of_several_tensors_goes_on_from_one_to_the_next(reverse: bool) -> None:
    """In the order in which the groups have their members; the cursors are not initialized anew."""
    fusion = in_turn(reverse=reverse)
    kernel = proved(tf.lower(fusion))
    assert ([b.name for b in kernel.buffers], [b.name for b in kernel.mbarriers]) == (["tv2"], ["ch0.full", "ch0.empty"])
    text = str(kernel)
    assert text.count("CURSOR") == 2
    assert (text.index("exp(") < text.index("sin(")) is not reverse
    x, y = np.linspace(0, 1, 192, dtype=np.float32).reshape(6, 32), np.ones((5, 32), np.float32)
    for out, wanted in zip(kernel.simulate(x, y, seed=1), fusion.evaluate(x, y), strict=True):
        np.testing.assert_allclose(out, wanted, rtol=1e-6)


def test_roles_that_take_the_slots_in_two_orders_are_not_proved() -> None:
    """The readers of one tensor and of the other change places: each would read what the other is to read."""
    text = tf.lower(in_turn()).text()
    head, uses = text.split("  ch0.c = CURSOR(slots 3, slot 0, parity 0)\n")
    first, second = uses.split("  FOR i0")
    bad = tf.parse_kernel(f"{head}  ch0.c = CURSOR(slots 3, slot 0, parity 0)\n  FOR i0{second.rstrip()}\n{first}")
    assert not bad.verify().is_proved


@pytest.mark.parametrize(
    ("fusion", "reason"),
    [
        (in_turn((3, 2)), "one has 3 slots, the other 2"),
        (in_turn(width=64), "run on different threads"),
        (in_turn(dtype=tf.float16), r"its ring's name gives it the storage of tv2, which is Shared float32\[3, 32\], not Shared float16\[3, 32\]"),
    ],
)
def test_rings_that_differ_are_not_shared(fusion: tf.Fusion, reason: str) -> None:
    with pytest.raises(LoweringError, match=reason):
        tf.lower(fusion)


def test_all_tensors_of_one_fill_name_their_rings() -> None:
    with tf.Fusion("half") as fusion:
        x, y = tf.define_tensor([6, 32], name="x"), tf.define_tensor([4, 32], name="y")
        a, b, c = tf.exp(x), tf.sin(x), tf.cos(y)
        fusion.add_output(a + b)
        fusion.add_output(-c)
    for tv in (a, b, c, *fusion.outputs):
        tv.axis(1).parallelize(P.TIDx)
    for tv in (a, b, c):
        tv.circular_buffer(2, "" if tv is a else "one").inline_at(1)
    loads, uses = fusion.group([fusion.task([a, b]), fusion.task([c])]), fusion.group([fusion.task([o]) for o in fusion.outputs])
    fusion.group([loads, uses]).parallelize(P.TIDy)
    with pytest.raises(LoweringError, match="name the rings of all tensors"):
        tf.lower(fusion)


@pytest.mark.parametrize(("stages", "ring", "reason"), [(2, 3, "not the name of a ring"), (1, "one", "has 1 slot")])
def test_names_of_rings(stages: int, ring: str, reason: str) -> None:
    with tf.Fusion("f") as fusion:
        a = tf.exp(tf.define_tensor([6, 32], name="x"))
        fusion.add_output(-a)
    with pytest.raises(ScheduleError, match=reason):
        a.circular_buffer(stages, ring)
