"""Edits of values: the operands of a statement, one by one, and the statement with another one there."""

from taskfuse.dtypes import uint8, uint16, uint32, uint64
from taskfuse.ir.scalar import TRUE, and_, const, lt, sym
from taskfuse.kir import held, parse_kernel, walk
from taskfuse.kir.nodes import Compute
from taskfuse.kir.operands import Access
from taskfuse.testing.value_edits import in_each, index_of, moved_bounds, reads, rewritten, shapes, similar, with_holds, writers, writes
from tests.testing.planted import SUMS

KERNEL = parse_kernel(SUMS)
START, TERM, VALUE = writers(KERNEL)


def test_sites() -> None:
    assert isinstance(START, Compute)
    assert [site.operand for site in (*reads(START), *writes(START))] == [*START.operands, START.out]
    assert isinstance(TERM, Compute)
    for k, site in enumerate(reads(TERM)):
        changed = site.put(TERM.out)
        assert isinstance(changed, Compute)
        assert changed.operands == (*TERM.operands[:k], TERM.out, *TERM.operands[k + 1 :])
        assert changed.out == TERM.out
    (site,) = writes(VALUE)
    changed = site.put(Access("acc", ()))
    assert isinstance(changed, Compute)
    assert (changed.out, changed.holds) == (Access("acc", ()), held(VALUE))


def test_expressions_change_with_the_witness_or_without() -> None:
    honest = rewritten(VALUE, lambda e: e + 1, lies=False)
    lying = rewritten(VALUE, lambda e: e + 1, lies=True)
    assert held(honest) == held(VALUE) != held(lying)
    assert isinstance(honest, Compute)
    assert isinstance(lying, Compute)
    assert isinstance(VALUE, Compute)
    assert honest.out == lying.out != VALUE.out
    assert held(with_holds(VALUE, None)) is None


def test_indices_one_by_one() -> None:
    mutants = list(in_each(reads, index_of(lambda e, n: n - 1))(KERNEL))
    found = [o for mutant in mutants for s in walk(mutant) if isinstance(s, Compute) for o in s.operands if isinstance(o, Access)]
    assert len(mutants) == 4
    assert {o.buffer for o in found if const(3) in o.index} == {o.buffer for o in found if const(7) in o.index} == {"x", "z"}
    assert shapes(KERNEL)["x"] == (const(8), const(4))
    assert list(in_each(reads, lambda kernel, operand: [operand])(KERNEL)) == []  # an unchanged kernel has no mistake


def test_other_dtypes_of_a_kind() -> None:
    assert set(similar(uint8)) == {uint16, uint32, uint64}


def test_the_last_comparison_moves() -> None:
    i, j = sym("i"), sym("j")
    assert moved_bounds(1)(and_(lt(i, 3), lt(j, 4))) is and_(lt(i, 3), lt(j - 1, 4))
    assert moved_bounds(1)(TRUE) is TRUE
