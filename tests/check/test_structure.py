"""Unrolled loops in the proof: loops like others, copied out where that leaves something open. Whatever is found, both trees are of one kernel."""

from pathlib import Path

import pytest

from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.structure import Structure
from taskfuse.kir import parse_kernel
from taskfuse.kir.products import Wgmma

TESTS = Path(__file__).parent.parent
PINGPONG = (TESTS / "goldens" / "examples" / "gemm_pingpong.kir").read_text(encoding="utf-8")
FRAGMENTS = (TESTS / "kernels" / "gemm_rs.kir").read_text(encoding="utf-8")
ANOTHER = "its accumulators are accumulators of a wgmma of another shape, or at other registers, that may be in flight"


def products(tree: StatementTree) -> int:
    return sum(isinstance(n.stmt, Wgmma) for n in tree.leaves())


def never(tree: StatementTree) -> StatementTree:
    raise AssertionError(f"{tree.kernel.name} is copied out")


def test_a_kernel_that_is_proved_in_loops_is_not_copied_out(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = parse_kernel(PINGPONG)
    tree = StatementTree.of(kernel)
    assert tree.has_copies
    assert (products(tree), products(tree.copied_out())) == (1, 8)
    monkeypatch.setattr(StatementTree, "copied_out", never)
    assert kernel.verify().is_proved


def test_what_is_in_flight_may_depend_on_the_copy() -> None:
    """Two fragments in turn, one batch in flight: of which wgmma a fragment is, only the copies say."""
    kernel = parse_kernel(FRAGMENTS)
    tree = StatementTree.of(kernel)
    assert (products(tree), products(tree.copied_out())) == (1, 4)
    assert kernel.verify().is_proved
    bad = parse_kernel(FRAGMENTS.replace("WAIT_GROUP wgmma <= 1", "WAIT_GROUP wgmma <= 2")).verify()
    assert not bad.is_proved
    assert "its operand registers are accessed while it may be in flight" in str(bad)


def test_accumulators_of_iterations_are_the_same_or_apart() -> None:
    assert "tv3[64*i19]" in PINGPONG
    for place in ("32*i19", "64*i19 + 8*i18", "64*i19 + i18//3"):
        bad = parse_kernel(PINGPONG.replace("tv3[64*i19]", f"tv3[{place}]")).verify()
        assert not bad.is_proved, place
        assert any(o.reason == ANOTHER for o in bad.argument), str(bad)


def test_structure_of_the_copies_is_found_once() -> None:
    structure = Structure.of(StatementTree.of(parse_kernel(FRAGMENTS)))
    assert structure.copied_out is structure.copied_out
    assert structure.copied_out.copied_out.tree is structure.copied_out.tree
