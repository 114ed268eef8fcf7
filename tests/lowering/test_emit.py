"""From the plan to kernel IR, node by node; and the notes of dispatches."""

import pytest

import taskfuse as tf
from examples import founding
from taskfuse import ParallelType as P
from taskfuse.ir.scalar import Expr, Facts, const, ge, lt, sym
from taskfuse.kir.nodes import Bind, Compute, For, If, Stmt
from taskfuse.kir.synchronization import Barrier, BarrierScope, CursorInit, FenceInit, InitBarrier
from taskfuse.lowering.emit import Emitter
from taskfuse.lowering.plan import PBind, PDispatch, PGuard, PLoop, PNode, PScope, children
from taskfuse.lowering.thread_ranges import ThreadRanges
from taskfuse.schedule.order import complete
from taskfuse.target import DEFAULT
from tests.lowering.planned import Roles, barrier, roles
from tests.lowering.stepped import state_after


def emitter(r: Roles) -> Emitter:
    return Emitter(r.fusion, ThreadRanges.of(r.fusion, complete(r.fusion)), DEFAULT)


def emitted(r: Roles, *nodes: PNode, facts: Facts | None = None) -> tuple[Stmt, ...]:
    return emitter(r).body(list(nodes), facts or Facts())


def guarded(r: Roles, *guards: Expr) -> PNode:
    return r.step(r.a, const(0), *guards)


def test_neighbors_of_equal_guards_are_one_if() -> None:
    r = roles()
    at = lt(sym("i"), 3)
    one, two, plain = emitted(r, guarded(r, at), guarded(r, at), guarded(r, lt(sym("i"), 4)), guarded(r))
    assert isinstance(one, If)
    assert isinstance(two, If)
    assert isinstance(plain, Compute)
    assert [str(s.branches[0].cond) for s in (one, two)] == ["i < 3", "i < 4"]
    assert [len(s.branches[0].body) for s in (one, two)] == [2, 1]


def test_guards_that_hold_are_not_asked() -> None:
    r = roles()
    (found,) = emitted(r, guarded(r, lt(sym("i"), 3)), facts=Facts().with_range("i", 0, 2))
    assert isinstance(found, Compute)
    (both,) = emitted(r, guarded(r, lt(sym("i"), 3), ge(sym("i"), 1)), facts=Facts().with_range("i", 0, 2))
    assert isinstance(both, If)
    assert str(both.branches[0].cond) == "i >= 1"


def test_local_indices_become_those_of_the_hardware_from_the_start_of_the_range() -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([8], name="x")
        a, b = tf.neg(x), tf.exp(x)
        for tv in (a, b):
            fusion.add_output(tv)
            tv.axis(0).parallelize(P.TIDx)
    one, two = fusion.task([a], "one"), fusion.task([b], "two")
    group = fusion.group([one, two], "g")
    group.parallelize(P.TIDx)
    r = Roles(fusion, a, b, one, two, group)
    emit = emitter(r)
    (first,) = emit.body([r.step(a, sym("at.TIDx.one"))], Facts())
    (second,) = emit.body([r.step(b, sym("at.TIDx.two"))], Facts())
    assert isinstance(first, Compute)
    assert isinstance(second, Compute)
    assert [str(s.out.index[0]) for s in (first, second)] == ["threadIdx.x", "threadIdx.x - 8"]


def test_loops_binds_scopes_and_dispatches() -> None:
    r = roles()
    body = r.step(r.a, sym("i"))
    (loop,) = emitted(r, PLoop("i", const(4), True, [guarded(r, lt(sym("i"), 4))]))
    assert isinstance(loop, For)
    assert (loop.var, str(loop.stop), loop.unroll) == ("i", "4", True)
    assert isinstance(loop.body[0], Compute)  # the range of the variable is known inside
    (bind,) = emitted(r, PBind(sym("threadIdx.x"), P.TIDx, const(32), [body]))
    assert isinstance(bind, Bind)
    (scope,) = emitted(r, r.load_scope(body))
    assert isinstance(scope, If)
    assert [(str(b.cond), b.label) for b in scope.branches] == [("threadIdx.y == 0", "load")]
    assert emitted(r, PScope(r.load, (), [body])) == emitted(r, body)  # nothing selects it
    (dispatch,) = emitted(r, PDispatch(r.group, [r.load_scope(body), r.use_scope(body)], "a note"))
    assert isinstance(dispatch, If)
    assert dispatch.note == "a note"
    assert [b.label for b in dispatch.branches] == ["load", "use"]


def test_guards_of_positions() -> None:
    r = roles()
    body = r.step(r.a)
    facts = Facts().with_range("i", 0, 2)
    assert emitted(r, PGuard(ge(sym("i"), 3), [body]), facts=facts) == ()  # a position that there is not
    (always,) = emitted(r, PGuard(lt(sym("i"), 3), [body]), facts=facts)
    assert isinstance(always, Compute)
    (inner,) = emitted(r, PGuard(lt(sym("i"), 2), [guarded(r, lt(sym("i"), 2))]), facts=facts)
    assert isinstance(inner, If)
    assert isinstance(inner.branches[0].body[0], Compute)  # it is known inside


def test_everything_has_the_line_of_its_origin() -> None:
    r = roles()
    found = emitted(r, r.step(r.b), barrier(r.a), r.load_scope(r.step(r.a)), PGuard(lt(sym("i"), 2), [r.step(r.b)]))
    assert [s.location for s in found] == [r.b.location, r.a.location, r.load.location, r.b.location]


def test_the_kernel_initializes_its_mbarriers_first() -> None:
    r = roles()
    emit = emitter(r)
    made = emit.kernel([r.step(r.a)], [], [("full", 2, const(32)), ("empty", 1, const(64))], ["c"], [], (CursorInit("p", 2, 0, 0),), ())
    first, sync, cursor, body = made.body
    assert isinstance(first, If)
    assert str(first.branches[0].cond) == "threadIdx.y == 0"  # one thread of the block
    inits = first.branches[0].body
    assert all(isinstance(s, InitBarrier) for s in inits)
    assert [(s.barrier.name, str(s.barrier.slot), str(s.count)) for s in inits if isinstance(s, InitBarrier)] == [
        ("full", "0", "32"),
        ("full", "1", "32"),
        ("empty", "0", "64"),
    ]
    assert not any(isinstance(s, FenceInit) for s in inits)  # no copy engine sees them
    assert isinstance(sync, Barrier)
    assert (sync.scope, str(sync.threads)) == (BarrierScope.BLOCK, "64")
    assert isinstance(cursor, CursorInit)
    assert isinstance(body, Compute)
    assert [m.name for m in made.mbarriers] == ["full", "empty"]
    assert [c.name for c in made.counters] == ["c"]
    assert [p.name for p in made.params] == ["x", r.b.name]
    assert tuple(map(str, made.block)) == ("1", "64", "1")


def test_without_mbarriers_nothing_is_initialized() -> None:
    r = roles()
    (only,) = emitter(r).kernel([r.step(r.a)], [], [], [], [], (), ()).body
    assert isinstance(only, Compute)


# -- notes --------------------------------------------------------------------------------------------------------------------------------


def notes(fusion: tf.Fusion) -> list[str]:
    """Of all dispatches."""
    found: list[str] = []

    def visit(plan: list[PNode]) -> None:
        for n in plan:
            found.extend([n.note] if isinstance(n, PDispatch) else [])
            for block in children(n):
                visit(block)

    visit(state_after(fusion, "notes").plan)
    return found


@pytest.mark.parametrize(("crosses", "kind"), [(True, "vertical"), (False, "horizontal")])
def test_kinds_of_groups(crosses: bool, kind: str) -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([6, 32], name="x")
        a = tf.neg(x)
        b = tf.exp(a if crosses else x)
        fusion.add_output(b)
        if not crosses:
            fusion.add_output(a)
    for tv in (a, b):
        tv.axis(1).parallelize(P.TIDx)
    fusion.group([fusion.task([a], "one"), fusion.task([b], "two")], "g").parallelize(P.TIDy)
    assert notes(fusion) == [f"g: {kind} on TIDy; no data enters; no data leaves"]


def test_channels_order_what_crosses_their_ends() -> None:
    assert notes(founding.build())[1] == "group1: horizontal on TIDy; no data enters; ch0 orders what leaves"


@pytest.mark.parametrize(
    ("exchanged", "behind", "expected"),
    [
        (False, False, "what enters stays with its thread; no data leaves"),
        (True, False, "a barrier orders what enters; no data leaves"),
        (True, True, "a barrier orders what enters; a barrier orders what leaves"),
    ],
)
def test_what_orders_the_data(exchanged: bool, behind: bool, expected: str) -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([32], name="x")
        a = tf.neg(x)
        members = [tf.exp(tf.flip(a, 0) if exchanged else a), tf.sin(tf.flip(a, 0) if exchanged else a)]
        outs = [tf.cat([tf.flip(m, 0) for m in members], 0)] if behind else members
        for tv in outs:
            fusion.add_output(tv)
    for tv in (a, *members):
        tv.axis(0).parallelize(P.TIDx)
    if behind:
        outs[0].split(0, 32).axis(1).parallelize(P.TIDx)
    fusion.task([a], "before")
    fusion.group([fusion.task([tv]) for tv in members], "g").parallelize(P.TIDy)
    assert notes(fusion) == [f"g: horizontal on TIDy; {expected}"]
