"""Places in a plan: the blocks of a node's code, the loops around it, and scopes that are split around uses."""

import pytest

from taskfuse.ir.scalar import ONE, TRUE, const, sym
from taskfuse.ir.types import ParallelType as P
from taskfuse.lowering.insertion_points import frame, leaves, level_blocks, loop_of, loops_around, split_around
from taskfuse.lowering.plan import PBind, PDispatch, PGuard, PLoop, PNode, PScope, PStmt
from taskfuse.schedule.order import complete
from tests.lowering.planned import Roles, barrier, roles


def loop(r: Roles, *body: PNode, number: int = 0, trips: int = 8) -> PLoop:
    return PLoop(f"i{number}", const(trips), False, list(body), r.loop(number))


def test_the_blocks_of_one_iteration_of_a_loop_are_its_bodies_in_every_scope() -> None:
    r = roles()
    one, two = loop(r, r.step(r.a)), loop(r, r.step(r.a))
    other = loop(r, r.step(r.b))
    two.loop = one.loop
    bind = PBind(const(0), P.TIDx, ONE, [two])
    plan: list[PNode] = [PDispatch(r.group, [r.load_scope(one), r.use_scope(other)]), PDispatch(r.group, [r.load_scope(bind)])]
    assert level_blocks(plan, r.load, one.loop) == [one.body, two.body]
    assert level_blocks(plan, r.use, one.loop) == [[other]]  # its scope: the loop stands elsewhere
    assert level_blocks(plan, r.load, None) == [[one], [bind]]


def test_the_innermost_scopes_of_a_node_count() -> None:
    r = roles()
    inner = PScope(r.load, (), [r.step(r.a)])
    plan: list[PNode] = [PScope(r.load, (), [r.step(r.b), inner])]
    assert level_blocks(plan, r.load, None) == [inner.body]


def test_loops_around_a_node_are_those_of_several_trips() -> None:
    r = roles()
    scope = PDispatch(r.group, [r.load_scope(r.step(r.a))])
    once = loop(r, scope, number=1, trips=1)
    outer = loop(r, PGuard(TRUE, [once]), number=0)
    made = PLoop("q", const(4), False, [outer])  # no loop of the nest
    assert loops_around([made], r.load) == {outer.loop}
    assert loops_around([made], r.use) == set()


def test_the_one_copy_of_a_loop_and_its_block() -> None:
    r = roles()
    one = loop(r, r.step(r.a))
    bind = PBind(const(0), P.TIDx, const(32), [one])
    plan: list[PNode] = [r.load_scope(bind)]
    assert loop_of(plan, r.load, one.loop) == (bind.body, one)
    assert loop_of(plan, r.use, one.loop) is None
    again = loop(r, r.step(r.a))
    again.loop = one.loop
    bind.body.append(again)
    assert loop_of(plan, r.load, one.loop) is None  # several


def test_a_cursor_starts_in_the_role_if_that_is_one_piece_under_no_loop() -> None:
    r = roles()
    tree = complete(r.fusion)
    arm = r.load_scope(r.step(r.a))
    other = r.use_scope(r.step(r.b))
    plan: list[PNode] = [PDispatch(r.group, [arm, other])]
    assert frame(plan, r.group, r.load, tree) is arm.body
    looped: list[PNode] = [loop(r, *plan)]
    assert frame(looped, r.group, r.load, tree) is looped
    twice: list[PNode] = [*plan, PDispatch(r.group, [r.load_scope(r.step(r.a))])]
    assert frame(twice, r.group, r.load, tree) is twice
    assert frame(twice, r.group, r.use, tree) is other.body


def test_leaves_in_the_order_of_the_text() -> None:
    r = roles()
    one, two, sync = r.step(r.a), r.step(r.b), barrier(r.a)
    plan: list[PNode] = [loop(r, one, PDispatch(r.group, [r.load_scope(sync), r.use_scope(PGuard(TRUE, [two]))]))]
    assert list(leaves(plan)) == [one, sync, two]


def touches(s: PStmt) -> bool:
    """Statements at index 1 use the channel."""
    return s.writes[0].index == (const(1),)


def test_a_scope_is_split_where_structure_stands_before_the_first_use_or_behind_the_last() -> None:
    r = roles()
    before, use, after = loop(r, r.step(r.a)), r.step(r.a, const(1)), loop(r, r.step(r.a), number=1)
    block: list[PNode] = [r.load_scope(before, use, after)]
    (first, k), (last, m) = split_around([block], touches, False)
    assert [[*n.body] for n in block if isinstance(n, PScope)] == [[before], [use], [after]]
    assert all(isinstance(n, PScope) and n.node is r.load and n.conds for n in block)
    assert (first, k, last, m) == (block, 1, block, 1)


def test_statements_before_and_after_split_nothing() -> None:
    r = roles()
    block: list[PNode] = [r.load_scope(r.step(r.a), r.step(r.a, const(1)), r.step(r.a))]
    split_around([block], touches, False)
    assert len(block) == 1


def test_first_and_last_use_stand_in_different_blocks() -> None:
    r = roles()
    one, two = [r.step(r.a), r.step(r.a, const(1))], [r.step(r.a, const(1)), r.step(r.a)]
    blocks: list[list[PNode]] = [list(one), list(two)]
    assert split_around(blocks, touches, False) == ((blocks[0], 1), (blocks[1], 0))


def test_inside_the_bound_loop_that_holds_all_uses() -> None:
    r = roles()
    bind = PBind(sym("t"), P.TIDx, const(32), [r.step(r.a), r.step(r.a, const(1))])
    block: list[PNode] = [bind]
    assert split_around([block], touches, True) == ((bind.body, 1), (bind.body, 1))
    assert split_around([block], touches, False) == ((block, 0), (block, 0))


def test_an_endpoint_without_a_use_is_a_mistake_of_ours() -> None:
    r = roles()
    with pytest.raises(AssertionError, match="touches its channel nowhere"):
        split_around([[r.step(r.a)]], touches, False)
