"""Traversal and rewriting, over the texts written by hand: they have every kind of statement."""

from dataclasses import replace
from pathlib import Path

import pytest

from taskfuse.ir.scalar import Expr, const, substitute, sym
from taskfuse.kir import Kernel, accesses, barrier_slots, bodies, expressions, map_expressions, map_operand, map_stmts, parse_kernel, walk, with_bodies
from taskfuse.kir.nodes import AsyncCopy, Compute, For, If, Stmt, VectorCopy
from taskfuse.kir.operands import Access, BarrierSlot, IndexOf
from taskfuse.kir.synchronization import ArriveAsync
from taskfuse.kir.walk import is_deterministic, updating

PATHS = sorted((Path(__file__).parent.parent / "kernels").glob("*.kir"))
HEADER = "KERNEL k(x: float32[N], alpha: float32) -> (y: float32[N])\n  DIM N\n  GRID (1, 1, 1)  BLOCK (32, 1, 1)\n  LOCAL r: float32[]\n\n"


def parse(body: str) -> Kernel:
    return parse_kernel(HEADER + body)


def text(body: tuple[Stmt, ...]) -> str:
    base = parse("PASS")
    return str(Kernel(base.name, base.extents, base.params, base.grid, base.block, base.buffers, (), (), body)).removeprefix(HEADER)


def test_walk_is_in_the_order_of_the_text() -> None:
    kernel = parse("FOR i in 0..4:\n  IF i < 2:\n    r = neg(x[i])\n  ELSE:\n    r = abs(x[i])\n  y[i] = copy(r)\nSYNC block")
    assert [type(s).__name__ for s in walk(kernel)] == ["For", "If", "Compute", "Compute", "Compute", "Barrier"]
    assert list(walk(kernel.body)) == list(walk(kernel))
    assert list(walk(kernel.body[0])) == list(walk(kernel))[:-1]
    assert list(walk(replace(kernel, body=kernel.body[1:]))) == list(kernel.body[1:])  # what a kernel keeps is its own


def test_map_stmts_replaces_deletes_and_expands_innermost_first() -> None:
    kernel = parse("FOR i in 0..4:\n  r = neg(x[i])\n  y[i] = copy(r)\nSYNC block")
    seen: list[str] = []

    def change(stmt: Stmt) -> Stmt | tuple[Stmt, ...]:
        seen.append(type(stmt).__name__)
        match stmt:
            case Compute() if stmt.op.name == "neg":
                return (stmt, stmt)
            case Compute():
                return ()
            case _:
                return stmt

    assert text(map_stmts(kernel.body, change)) == "FOR i in 0..4:\n  r = neg(x[i])\n  r = neg(x[i])\nSYNC block"
    assert seen == ["Compute", "Compute", "For", "Barrier"]


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_nothing_changes_without_a_change(path: Path) -> None:
    kernel = parse_kernel(path.read_text())
    assert map_stmts(kernel.body, lambda s: s) is kernel.body
    for stmt in walk(kernel):
        assert with_bodies(stmt, bodies(stmt)) is stmt
        assert map_expressions(stmt, lambda e: e) == stmt


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_map_expressions_reaches_every_expression(path: Path) -> None:
    shift = {"threadIdx.x": sym("threadIdx.x") + 1, "t": sym("u")}

    def change(e: Expr) -> Expr:
        return substitute(e, shift)

    for stmt in walk(parse_kernel(path.read_text())):
        assert list(expressions(map_expressions(stmt, change))) == [change(e) for e in expressions(stmt)]


def test_accesses() -> None:
    kernel = parse("y[3] = fma(x[1], alpha, r)\nr = cat(x[2] if N < 3, otherwise 0.0)\nCOPY y[4] <- x[8] width 4\nSYNC block")
    found = [accesses(s) for s in kernel.body]
    r, one, two, eight = Access("r", ()), *(Access("x", (const(i),)) for i in (1, 2, 8))
    assert found == [((Access("y", (const(3),)),), (one, r)), ((r,), (two,)), ((Access("y", (const(4),)),), (eight,)), ((), ())]


def test_a_shuffle_reads_and_writes_registers() -> None:
    kernel = parse("SHUFFLE r <- r xor 16")
    (stmt,) = kernel.body
    r = Access("r", ())
    assert accesses(stmt) == ((r,), (r,))
    assert list(expressions(stmt)) == []
    assert map_expressions(stmt, lambda e: e + 1) == stmt
    assert text(kernel.body) == "SHUFFLE r <- r xor 16"


def test_accesses_and_mbarriers_of_asynchronous_statements() -> None:
    kernel = parse_kernel(next(p for p in PATHS if p.stem == "gemm").read_text())
    named = {
        type(s).__name__: ([a.buffer for a in accesses(s)[0]], [a.buffer for a in accesses(s)[1]], [b.name for b in barrier_slots(s)]) for s in walk(kernel)
    }
    assert named["TmaLoad"] == (["b_s"], [], ["full"])
    assert named["TmaStore"] == ([], ["d_s"], [])
    assert named["Wgmma"] == (["acc"], ["a_s", "b_s", "acc"], [])
    assert named["StMatrix"] == (["d_s"], ["d_r"], [])
    assert named["Wait"] == ([], [], ["full"])


def test_accesses_and_expressions_of_asynchronous_copies() -> None:
    kernel = parse_kernel(next(p for p in PATHS if p.stem == "async_ring").read_text())
    copy = next(s for s in walk(kernel) if isinstance(s, AsyncCopy))
    assert [[a.buffer for a in side] for side in accesses(copy)] == [["s"], ["x"]]
    assert list(expressions(copy)) == [*copy.out.index, *copy.source.index, copy.valid]
    moved = map_expressions(copy, lambda e: substitute(e, {"k": const(7)}))
    assert isinstance(moved, AsyncCopy)
    assert all("k" not in e.free for e in expressions(moved))
    arrive = next(s for s in walk(kernel) if isinstance(s, ArriveAsync))
    assert [b.name for b in barrier_slots(arrive)] == ["full"]
    assert map_expressions(arrive, lambda e: e + 1) == ArriveAsync(BarrierSlot("full", arrive.barrier.slot + 1))


def test_map_operand_and_with_bodies() -> None:
    assert map_operand(IndexOf(sym("i")), lambda e: e + 1) == IndexOf(sym("i") + 1)
    kernel = parse("IF N < 1:\n  r = neg(r)\nELSE:\n  r = abs(r)\nFOR i in 0..N:\n  r = neg(r)")
    branch, loop = kernel.body
    assert isinstance(branch, If)
    assert isinstance(loop, For)
    copy = VectorCopy(Access("r", ()), Access("r", ()), 2)
    assert bodies(with_bodies(branch, ((), (copy,)))) == ((), (copy,))
    assert with_bodies(loop, ((copy,),)) == For("i", const(0), sym("N"), const(1), False, (copy,))


def test_who_combines_and_whether_the_order_shows() -> None:
    head = """\
KERNEL k(s: {0}[8, 32]) -> (y: {0}[8, 32])
  TENSORMAP m = y box (8, 32) swizzle 0
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  SHARED t: {0}[8, 32] align 128

"""
    for line, combines in (
        ("UPDATE y[0, 0] by add of s[0, 0]", True),
        ("TMA m(0, 0) <- t[0, 0] by add", True),
        ("TMA m(0, 0) <- t[0, 0]", False),
        ("t[0, 0] = copy(s[0, 0])", False),
    ):
        floats, integers = (parse_kernel(head.format(dtype) + line + "\n") for dtype in ("float32", "int32"))
        found = updating(floats.body[0])
        assert (None if found is None else found.name) == ("add" if combines else None)
        assert is_deterministic(floats) is not combines
        assert is_deterministic(integers)
