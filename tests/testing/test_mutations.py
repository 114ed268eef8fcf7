"""Edits of kernels: each gives all kernels with the edit at one place, and leaves the rest."""

from __future__ import annotations

from dataclasses import replace

from taskfuse.kir import Kernel, parse_kernel, to_text
from taskfuse.kir.nodes import Compute, For, If, Stmt
from taskfuse.testing.mutations import Edit, all_bodies, at, change, drop, inner, moved, repeat, with_body

HEAD = """\
KERNEL k(x: float32[8]) -> (y: float32[8])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)

"""
TEXT = """\
y[0] = copy(x[0])
FOR i in 0..2:
  y[1] = copy(x[1])
  y[2] = copy(x[2])
IF x0 < 3:
  y[3] = copy(x[3])
""".replace("x0", "threadIdx.x")


def kernel() -> Kernel:
    return parse_kernel(HEAD + TEXT)


def order(made: Kernel) -> str:
    """The elements that are written, in the order of the text."""
    return "".join(line.strip()[2] for line in to_text(made).splitlines() if line.strip().startswith("y["))


def orders(edit: Edit) -> list[str]:
    return [order(m) for m in edit(kernel())]


def test_left_out() -> None:
    assert orders(drop(Compute)) == ["123", "023", "013", "012"]
    assert orders(drop(For, If)) == ["03", "012"]
    assert orders(drop(Compute, where=lambda s: isinstance(s, Compute) and str(s.out.index[0]) == "2")) == ["013"]


def test_twice() -> None:
    assert orders(repeat(Compute)) == ["00123", "01123", "01223", "01233"]


def test_changed() -> None:
    def other(s: Stmt) -> Stmt | None:
        return replace(s, out=replace(s.out, index=s.out.index)) if isinstance(s, Compute) and str(s.out.index[0]) == "1" else None

    assert orders(change(Compute, lambda s: s)) == []  # nothing new
    assert orders(change(Compute, lambda _: None)) == []
    assert orders(change(Compute, other)) == ["0123"]
    assert orders(change(For, lambda s: s.body if isinstance(s, For) else None)) == ["0123"]


def test_moved_past_neighbors_in_one_block() -> None:
    assert orders(moved(Compute, 1)) == ["1203", "0213"]
    assert orders(moved(Compute, -1)) == ["0312", "0213"]  # the last one with its guard
    assert orders(moved(For, 9)) == []


def test_a_guard_around_one_statement_is_looked_through() -> None:
    guard = kernel().body[2]
    assert isinstance(guard, If)
    assert inner(guard) is guard.branches[0].body[0]
    loop = kernel().body[1]
    assert inner(loop) is loop


def test_one_object_is_replaced() -> None:
    """Equal statements elsewhere stay."""
    twin = kernel().body[0]
    made = replace(kernel(), body=(twin, replace(twin)))
    assert order(at(made, twin, ())) == "0"
    assert at(made, twin, ()).body[0] is made.body[1]
    assert order(at(made, twin, (twin, twin))) == "000"


def test_bodies() -> None:
    made = kernel()
    assert [len(b) for b in all_bodies(made)] == [3, 2, 1]
    assert order(with_body(made, made.body, made.body[:1])) == "0"
    loop = made.body[1]
    assert isinstance(loop, For)
    assert order(with_body(made, loop.body, loop.body[::-1])) == "0213"
