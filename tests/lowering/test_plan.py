"""The plan: walked, projected, copied at other indices."""

from collections.abc import Iterator

from taskfuse.ir.scalar import Expr, Facts, const, lt, prove, sym
from taskfuse.ir.types import ParallelType as P
from taskfuse.kir.nodes import Compute
from taskfuse.kir.operands import BarrierSlot
from taskfuse.kir.synchronization import Wait
from taskfuse.lowering.plan import (
    LoopVariables,
    Needs,
    PBind,
    PDispatch,
    PGuard,
    PLoop,
    PNode,
    PScope,
    PStmt,
    PSync,
    base_name,
    children,
    is_base,
    moved,
    selected,
    statements,
)
from tests.lowering.planned import Roles, barrier, roles


def example() -> tuple[Roles, list[PNode], PSync]:
    """One node of each kind."""
    r = roles()
    i, n = sym("i"), sym("N")
    sync = PSync((Wait(BarrierSlot("full", i), const(0)),), r.a)
    load = r.load_scope(PLoop("k", n - i, False, [PBind(i, P.TIDx, n + i, [r.step(r.a, i)])]), sync)
    use = r.use_scope(PGuard(lt(i, 3), [r.step(r.b, i + 1, lt(i, n))]))
    return r, [PDispatch(r.group, [load, use])], sync


def nodes(plan: list[PNode]) -> Iterator[PNode]:
    for n in plan:
        yield n
        for block in children(n):
            yield from nodes(block)


def test_children_and_statements() -> None:
    r, plan, _ = example()
    assert [len(children(n)) for n in nodes(plan)] == [2, 1, 1, 0, 0, 1, 0]  # a dispatch, loop, bind, statement, sync, guard, statement
    assert [s.tv for s in statements(plan)] == [r.a, r.b]


def test_a_projection_keeps_what_holds_a_leaf() -> None:
    r, plan, sync = example()
    (dispatch,) = selected(plan, lambda n: n is sync)
    assert isinstance(dispatch, PDispatch)
    (member,) = dispatch.members
    assert member.node is r.load
    assert member.body == [sync]
    assert selected(plan, lambda n: False) == []
    (whole,) = selected(plan, lambda n: True)
    assert isinstance(whole, PDispatch)
    assert len(whole.members) == 2
    assert whole is not plan[0]  # what it takes apart is not the original
    assert len(list(nodes(plan))) == 7


def test_a_copy_at_other_values_has_them_everywhere() -> None:
    _, plan, _ = example()
    copy = moved(plan, {"i": sym("q") * 4}, lambda facts: facts.with_range("q", 0, 1))
    text = [str(x) for n in nodes(copy) for x in values(n)]
    assert text == [
        "threadIdx.y == 0",
        "threadIdx.y == 1",
        "N - 4*q",
        "4*q",
        "4*q + N",
        "4*q",
        "4*q",
        "4*q",
        "4*q",
        "4*q < 3",
        "4*q < N",
        "4*q + 1",
        "4*q + 1",
        "4*q + 1",
    ]
    assert not any("q" in e.free for n in nodes(plan) for e in values(n))  # the original is as it was
    statement = next(statements(copy))
    assert prove(lt(sym("q"), 2), statement.facts)


def values(n: PNode) -> list[Expr]:
    match n:
        case PDispatch():
            return [c for m in n.members for c in m.conds]
        case PScope():
            return list(n.conds)
        case PLoop():
            return [n.extent]
        case PBind():
            return [n.index, n.extent]
        case PGuard():
            return [n.cond]
        case PSync():
            return [s.barrier.slot for s in n.stmts if isinstance(s, Wait)]
        case PStmt():
            assert isinstance(n.stmt, Compute)
            return [*n.guards, *n.stmt.out.index, *n.writes[0].index, *n.reads[0].index]


def test_facts_move_with_the_symbols() -> None:
    r = roles()
    s = r.step(r.a)
    s.facts = Facts().with_range("i", 0, 7).with_range("k", 0, sym("i")).with_multiple("M", 4).with_multiple("i", 2).with_assumption(lt(sym("i"), sym("M")))
    (copy,) = moved([s], {"i": sym("q") + 1}, lambda facts: facts)
    assert isinstance(copy, PStmt)
    assert "i" not in copy.facts.ranges
    assert [str(b) for b in copy.facts.ranges["k"] if b is not None] == ["0", "q + 1"]
    assert prove(lt(sym("q") + 1, sym("M")), copy.facts)
    assert not prove(lt(sym("i"), 8), copy.facts)  # it has another meaning now
    assert {str(e): k for e, k in copy.facts.multiples.items()} == {"M": 4}


def test_local_indices_have_names_of_their_own() -> None:
    r = roles()
    name = base_name(P.TIDx, r.load)
    assert name == "at.TIDx.load"
    assert is_base(name)
    assert not is_base("i0")
    assert base_name(P.TIDy, r.load) != base_name(P.TIDx, r.use) != name


def test_loop_variables_are_numbered_when_asked_for() -> None:
    r = roles()
    one, two = r.loop(5), r.loop(3)
    variables = LoopVariables()
    assert [variables.name(loop) for loop in (two, one, two)] == ["i0", "i1", "i0"]
    assert variables.symbol(one) is sym("i1")


def test_alignments_only_grow() -> None:
    r = roles()
    needs = Needs()
    for size in (16, 128, 64):
        needs.align(r.a, size)
    assert needs.alignments == {r.a.name: 128}


def test_nodes_are_themselves() -> None:
    """Equal nodes at two places are two: the steps find them by identity."""
    r = roles()
    assert r.step(r.a) != r.step(r.a)
    assert barrier(r.a) != barrier(r.a)
