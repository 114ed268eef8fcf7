"""What is known about symbols."""

from __future__ import annotations

import pytest

from taskfuse.ir.scalar import (
    Facts,
    eq,
    le,
    lt,
    parse_expr,
    prove,
    sym,
)
from tests.ir.scalar.nests import DIMS, S, i0, x


def test_facts_are_immutable_and_shared() -> None:
    facts = DIMS.with_range("i0", 0, S - 1)
    assert DIMS.with_range("i0", 0, S - 1) is facts
    assert facts.with_range("i0", 0, S - 1) is facts
    assert facts.with_ranges({"i1": (0, S), "x": (0, 3)}) is facts.with_ranges({"i1": (0, S), "x": (0, 3)})
    assert facts.with_ranges({"i1": (0, S), "x": (0, 3)}) is not facts.with_ranges({"i1": (0, S), "x": (0, 4)})
    assert facts.with_assumption(lt(x, 3)) is facts.with_assumption(lt(x, 3))
    assert facts.with_assumption(1) is facts
    assert not prove(lt(i0, S), DIMS)


def test_a_range_cannot_depend_on_itself() -> None:
    with pytest.raises(ValueError, match="the range of 'S' depends on 'S'"):
        DIMS.with_range("i0", 0, S - 1).with_range("S", 0, i0)


def test_facts_about_some_symbols_are_those_that_bear_on_them() -> None:
    start = Facts().with_range("N", 1, None).with_assumption(le(sym("N"), 99))
    one = start.with_range("i", 0, parse_expr("N - 1"))
    two = one.with_range("j", 0, 7)
    all_of_them = two.with_assumption(lt(sym("j"), sym("i"))).with_range("k", 0, 3)
    assert all_of_them.about(frozenset("i")) is two.with_assumption(lt(sym("j"), sym("i")))  # a condition connects i with j
    assert two.with_range("k", 0, 3).about(frozenset("i")) is one
    assert two.about(frozenset("j")) is Facts.about(two, frozenset("j"))
    assert two.about(frozenset("N")).ranges.keys() == {"N"}  # bounds lead from i to N, not back
    assert one.about(frozenset("iN")) is one
    assert prove(lt(sym("j"), 98), all_of_them)


def test_facts_of_some_symbols_alone_leave_out_what_connects_them_with_others() -> None:
    start = Facts().with_range("N", 1, None)
    one = start.with_range("i", 0, parse_expr("N - 1"))
    alone = one.with_assumption(lt(2 * sym("i"), sym("N")))
    both = alone.with_range("j", 0, 7).with_assumption(lt(sym("j"), sym("i")))
    assert both.closely(frozenset("i")) is alone
    assert both.closely(frozenset("j")) is start.with_range("j", 0, 7)
    assert both.closely(frozenset("ij")) is both
    table = parse_expr("clamp(t[i of N], 0, 9)")
    assert both.with_assumption(lt(table, 5)).closely(frozenset("i")) is alone.with_assumption(lt(table, 5))  # a table is no symbol


def test_facts_of_other_origins_are_kept_as_a_whole() -> None:
    replaced = Facts().with_range("i", 0, 9).with_range("j", 0, 9).with_range("i", 0, 5)
    assert replaced.about(frozenset("j")) is replaced


def test_facts_about_symbols_of_other_names() -> None:
    start = Facts()
    facts = start.with_range("N", 1, None).with_range("i", 0, parse_expr("N - 1")).with_assumption(eq(sym("i") % 4, 0))
    found = facts.renamed({"i": sym("k")})
    assert found is Facts.renamed(facts, {"i": sym("k")})
    assert found is not None
    assert str(found.ranges["k"][1]) == "N - 1"
    assert prove(eq(sym("k") % 2, 0), found)
    assert not prove(eq(sym("i") % 2, 0), found)
    assert start.with_multiple("i", 8).renamed({"i": sym("k")}) is None
