"""Questions that differ in the numbers of names."""

from taskfuse.ir.scalar import Expr, Facts, parse_expr, simplify, sym
from taskfuse.ir.scalar.alike import counted

FACTS = Facts().with_range("N", 1, None)


def test_questions_that_differ_in_numbers_are_one() -> None:
    asked: list[tuple[Expr, Facts]] = []
    for inner, outer in ((3, 12), (140, 141)):
        facts = FACTS.with_range(f"r.{inner}", 0, parse_expr("N - 1")).with_range(f"r.{outer}", 0, sym(f"r.{inner}"))
        e, known, back = counted(parse_expr(f"min(r.{inner}, r.{outer}) + i{outer}"), facts)
        assert {name: str(e) for name, e in back.items()} == {"r.0": f"r.{inner}", "r.1": f"r.{outer}", "i0": f"i{outer}"}
        asked.append((e, known))
    assert asked[0][0] is asked[1][0]
    assert asked[0][1] is asked[1][1]


def test_the_order_of_numbers_stays() -> None:
    one = counted(parse_expr("min(r.3, 2*r.12)"), FACTS)[0]
    assert one is counted(parse_expr("min(r.1, 2*r.2)"), FACTS)[0]
    assert one is not counted(parse_expr("min(r.12, 2*r.3)"), FACTS)[0]


def test_names_with_more_than_one_number_stay() -> None:
    e = parse_expr("tv3.stride.1 + tv7 + i4")
    assert str(counted(e, FACTS)[0]) == "i0 + tv3.stride.1 + tv7"


def test_facts_that_derive_from_unknown_ones_keep_their_names() -> None:
    facts = Facts().with_multiple("i4", 8)
    e = parse_expr("i4 % 8")
    assert counted(e, facts) == (e, facts, {})


def test_answers_are_about_the_symbols_asked_for() -> None:
    facts = FACTS.with_range("i7", 0, 3).with_range("i9", 0, 3)
    e = parse_expr("min(clamp(a[i7 of 9], 0, 5), i9 + 5)")
    assert simplify(e, facts) is parse_expr("clamp(a[i7 of 9], 0, 5)")
