"""Rings inside roles: their slots and cursors; loops of rings in registers, unrolled by slots."""

import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError
from taskfuse.ir.scalar import Expr, Facts, const, sym
from taskfuse.kir.synchronization import Advance, CursorInit
from taskfuse.lowering.plan import PGuard, PLoop, PNode, PSync, children, statements
from taskfuse.lowering.prefetch import Prefetch
from taskfuse.lowering.rings import unroll_rings
from tests.lowering.planned import Roles, roles
from tests.lowering.stepped import state_after


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
    assert state.rings.loops == {"tv1": (state.shared_loops.path[a][0], 3)}
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
