"""Fields of statements: what traversal finds in them and puts back."""

from typing import get_args

from taskfuse.ir.scalar import const, sym
from taskfuse.kir.fields import KINDS, fields_of
from taskfuse.kir.nodes import Gather, Stmt, TmaLoad
from taskfuse.kir.operands import Access, WritingStmt
from taskfuse.kir.products import Mma, Wgmma

CLASSES = get_args(Stmt)


def test_uses() -> None:
    load = fields_of(TmaLoad)
    assert (load.written, load.read, load.slots, load.maps) == (("out",), (), ("barrier",), ("map",))
    for product in (Wgmma, Mma):
        found = fields_of(product)
        assert found.written == ("acc",)
        assert [name for name, _ in found.read] == ["a", "b", "acc"]
    gather = fields_of(Gather)
    assert [name for name, _ in gather.kinds] == ["holds", "out", "source", "values"]
    assert [name for name, _ in gather.read] == ["source", "values"]
    assert {c.__name__ for c in CLASSES if fields_of(c).written} == {c.__name__ for c in CLASSES if issubclass(c, WritingStmt)} - {"TmaStore"}


def test_a_kind_rebuilds_what_it_finds() -> None:
    kind = KINDS[Access]
    access = Access("x", (sym("i"), const(2)))
    assert list(kind.expressions(access)) == [sym("i"), const(2)]
    assert kind.rebuilt(access, lambda e: e + 1) == Access("x", (sym("i") + 1, const(3)))
    assert kind.reads(access) == (access,)
