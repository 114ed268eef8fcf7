"""Fields of statements: what traversal finds in them and puts back."""

from typing import get_args

from taskfuse.ir.scalar import const, sym
from taskfuse.kir import parse_kernel
from taskfuse.kir.fields import KINDS, fields_of, with_buffers
from taskfuse.kir.nodes import Compute, For, GatherCopy, Stmt, TmaLoad
from taskfuse.kir.operands import Access, WritingStmt
from taskfuse.kir.products import Mma, Wgmma
from taskfuse.kir.walk import all_accesses

CLASSES = get_args(Stmt)


def test_uses() -> None:
    load = fields_of(TmaLoad)
    assert (load.written, load.read, load.slots, load.maps) == (("out",), (), ("barrier",), ("map",))
    for product in (Wgmma, Mma):
        found = fields_of(product)
        assert found.written == ("acc",)
        assert [name for name, _ in found.read] == ["a", "b", "acc"]
    gather = fields_of(GatherCopy)
    assert [name for name, _ in gather.kinds] == ["holds", "out", "source", "values"]
    assert [name for name, _ in gather.read] == ["source", "values"]
    assert {c.__name__ for c in CLASSES if fields_of(c).written} == {c.__name__ for c in CLASSES if issubclass(c, WritingStmt)} - {"TmaStore"}


def test_a_kind_rebuilds_what_it_finds() -> None:
    kind = KINDS[Access]
    access = Access("x", (sym("i"), const(2)))
    assert list(kind.expressions(access)) == [sym("i"), const(2)]
    assert kind.rebuilt(access, lambda e: e + 1) == Access("x", (sym("i") + 1, const(3)))
    assert kind.reads(access) == (access,)


def test_other_buffers_in_the_places_of_some() -> None:
    """Elements that are written and read, operands of a descriptor, cases; what a statement holds keeps the tensor's name."""
    kernel = parse_kernel(
        "KERNEL k(x: float32[4]) -> (y: float32[4])\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n  SHARED s: float32[4] align 16\n  SHARED t: float32[4] align 16\n"
        "  DEFINE s: float32[4] = neg(x[i0])\n  DEFINE y: float32[4] = add(s[i0], s[i0])\n\n"
        "FOR i in 0..4:\n  s[i] = neg(x[i])  ~ value s[i]\n  y[i] = add(s[i], s[i])  ~ value y[i]\n"
    )
    (loop,) = kernel.body
    assert isinstance(loop, For)
    first, second = (with_buffers(s, {"s": "t"}) for s in loop.body)
    assert [a.buffer for a in all_accesses(first)] == ["t", "x"]
    assert [a.buffer for a in all_accesses(second)] == ["y", "t", "t"]
    assert isinstance(first, Compute)
    assert first.holds is not None
    assert first.holds.tensor == "s"
