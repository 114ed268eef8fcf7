"""Tables in expressions, and the symbols that are not integers."""

from __future__ import annotations

from taskfuse.ir.scalar import Expr, element, elements_of, integers_of, lookups_of, lt, select, sym, upper_bound

G, M, g, w = (sym(n) for n in ("G", "M", "g", "w"))


def at(index: Expr) -> Expr:
    return element(sym("t"), index, G + 1, 0, M)


def place(sought: Expr) -> Expr:
    return upper_bound(sym("t"), G + 1, 0, M, sought)


def test_what_stands_inside_another_one_comes_behind_it() -> None:
    inner = at(g)
    outer = place(inner + w)
    assert lookups_of(at(outer) + 1) == (at(outer), outer, inner)
    assert elements_of(at(outer) + 1) == (at(outer), inner)


def test_each_is_named_once() -> None:
    e = select(lt(at(g), w), at(g), place(w) + place(w))
    assert sorted(map(str, lookups_of(e))) == sorted(map(str, (at(g), place(w))))


def test_integers_are_all_symbols_but_the_tables() -> None:
    assert integers_of(at(place(w)) + g) == {"G", "M", "g", "w"}
    assert integers_of(g + w) == {"g", "w"}
    assert (at(g) + w).free == {"t", "G", "M", "g", "w"}
