"""Which line of the user's each node of a plan comes from."""

from dataclasses import replace

from taskfuse.ir.scalar import TRUE, const
from taskfuse.ir.types import ParallelType as P
from taskfuse.kir import walk
from taskfuse.kir.nodes import Branch, If
from taskfuse.kir.synchronization import Barrier, BarrierScope
from taskfuse.location import Location
from taskfuse.lowering.locations import Locations, located
from taskfuse.lowering.plan import PBind, PDispatch, PGuard, PLoop
from tests.lines import line_of
from tests.lowering.planned import barrier, roles


def test_a_statement_comes_from_the_line_of_its_tensor() -> None:
    r = roles()
    lines = Locations(r.fusion)
    for tv, text in ((r.a, "a = tf.neg"), (r.b, "b = tf.add")):
        for n in (r.step(tv), barrier(tv)):
            found = lines.of_node(n)
            assert found is not None
            assert found.line == line_of(text, roles)


def test_scopes_and_dispatches_come_from_tasks_and_groups() -> None:
    r = roles()
    lines = Locations(r.fusion)
    for n, text in ((r.load_scope(), "load = "), (r.use_scope(), "use = "), (PDispatch(r.group, []), "group = ")):
        found = lines.of_node(n)
        assert found is not None
        assert found.line == line_of(text, roles)


def test_loops_and_guards_come_from_the_first_statement_inside() -> None:
    r = roles()
    lines = Locations(r.fusion)
    inside = [barrier(r.a), r.step(r.b)]  # tensor code goes before synchronization
    for n in (PLoop("i", const(2), False, [*inside]), PBind(const(0), P.TIDx, const(2), [*inside]), PGuard(TRUE, [*inside])):
        found = lines.of_node(n)
        assert found is not None
        assert found.line == line_of("b = tf.add", roles)
    only = lines.of_node(PGuard(TRUE, [barrier(r.a)]))
    assert only is not None
    assert only.line == line_of("a = tf.neg", roles)
    assert lines.of_node(PGuard(TRUE, [])) is None


def test_tasks_and_groups_that_nobody_made_come_from_their_first_tensor() -> None:
    r = roles()
    r.load.location = None
    r.group.location = None
    lines = Locations(r.fusion)
    assert lines.of(r.load) == r.a.location
    assert lines.of(r.group) == r.a.location


def test_an_input_has_its_own_line_and_a_redefined_tensor_that_of_its_expression() -> None:
    r = roles()
    x = r.fusion.tensor("x")
    at = Location("elsewhere.py", 3)
    expr = r.fusion.definition(r.b)
    assert expr is not None
    r.fusion.define(replace(expr, location=at))
    lines = Locations(r.fusion)
    assert lines.of(x) == x.location
    assert lines.of(r.b) == at


def test_all_statements_of_a_piece_get_its_line() -> None:
    at = Location("user.py", 7)
    made = located((If((Branch(TRUE, (Barrier(BarrierScope.BLOCK, const(32)),)),)),), at)
    assert [s.location for s in walk(made)] == [at, at]
