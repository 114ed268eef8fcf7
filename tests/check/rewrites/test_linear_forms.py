"""Exponents as linear forms, and what maxima bound."""

from fractions import Fraction
from math import inf

import pytest

import taskfuse as tf
from taskfuse.check.rewrites.combined import compare_terms
from taskfuse.check.rewrites.elements import ElementPairs
from taskfuse.check.rewrites.linear_forms import Guard, LinearForm, LinearForms, reference
from taskfuse.check.rewrites.sides import At, Definitions, Different
from taskfuse.ir.scalar import Facts, Sym, const, lt, sym
from taskfuse.kir import Kernel
from taskfuse.kir.operands import Access
from tests.check.rewrites.rewritten import rewritten

ONE = Fraction(1)
ROW, COLUMN = sym("i"), sym("j")


def kernel() -> Kernel:
    def build(f: tf.Fusion) -> None:
        x = tf.define_tensor([4, 32], name="x")
        run = tf.cummax(x, axis=1)
        top = tf.max(x, axis=1)
        safe = tf.where(tf.isfinite(top), top, 0.0)
        plain = tf.where(tf.isfinite(top), top, -inf)
        z = (x - tf.expand_dims(safe, 1)) * 0.5
        f.add_output(run, top, safe, plain, z, tf.where(tf.iota([4, 32], 1) < 8, x, -inf), x - x)

    return rewritten(build)


KERNEL = kernel()
SIDE = Definitions.of(KERNEL, KERNEL.definitions)
RUN, TOP, SAFE, PLAIN, Z, MASKED, NONE = (p.name for p in KERNEL.outputs)
FACTS = Facts().with_range("i", 0, 3).with_range("j", 0, 31)


def at(name: str, *index: Sym | int) -> At:
    return At(SIDE, Access(name, tuple(const(e) if isinstance(e, int) else e for e in index)))


def forms() -> LinearForms:
    return LinearForms(ElementPairs(compare_terms), frozenset())


def form(name: str, *index: Sym | int) -> LinearForm:
    found = forms().only(at(name, *index), FACTS)
    assert found is not None
    return found


def test_an_exponent_is_a_linear_form_that_remembers_its_guard() -> None:
    found = form(Z, ROW, COLUMN)
    assert dict(found.terms) == {at("x", ROW, COLUMN): Fraction(1, 2), at(TOP, ROW): Fraction(-1, 2)}
    assert found.guards == {Guard(at(TOP, ROW))}
    assert not found.raw


def test_a_reference_without_a_guard_is_raw() -> None:
    assert form(TOP, ROW).raw == {Guard(at(TOP, ROW))}
    assert form(SAFE, ROW).guards == {Guard(at(TOP, ROW))}


def test_an_infinity_guards_nothing() -> None:
    """``where(isfinite(m), m, -inf)`` is no number where m is none."""
    assert form(PLAIN, ROW).terms == ((at(PLAIN, ROW), ONE),)


def test_choices_by_indices_are_cases() -> None:
    inside, outside = forms().cases(at(MASKED, ROW, COLUMN), FACTS)
    assert inside.form.terms == ((at("x", ROW, COLUMN), ONE),)
    assert outside.form.constant == -inf
    assert forms().only(at(MASKED, ROW, 3), FACTS) is not None


def test_what_may_be_infinite_does_not_cancel() -> None:
    with pytest.raises(Different, match="may be infinite"):
        form(NONE, ROW, COLUMN)


@pytest.mark.parametrize(
    ("low", "high", "holds"),
    [
        (at("x", ROW, COLUMN), at(TOP, ROW), True),
        (at("x", ROW, COLUMN), at(RUN, ROW, COLUMN), True),
        (at("x", ROW, 3), at(RUN, ROW, 2), False),
        (at(RUN, ROW, COLUMN), at(TOP, ROW), True),
        (at(RUN, ROW, 3), at(RUN, ROW, 4), True),
        (at(RUN, ROW, 4), at(RUN, ROW, 3), False),
        (at(TOP, ROW), at(RUN, ROW, 31), True),
        (at(TOP, ROW), at(RUN, ROW, 30), False),
        (at("x", 1, COLUMN), at(TOP, 2), False),
        (at(TOP, 1), at(TOP, 2), False),
    ],
)
def test_maxima_bound_what_they_combine(low: At, high: At, holds: bool) -> None:
    assert forms().is_bounded(LinearForm(((low, ONE),)), high, FACTS) is holds


def test_bounds_hold_where_conditions_do() -> None:
    low, high = LinearForm(((at(RUN, ROW, COLUMN), ONE),)), at(RUN, ROW, sym("k"))
    facts = FACTS.with_range("k", 0, 31)
    assert not forms().is_bounded(low, high, facts)
    assert forms().is_bounded(low, high, facts.with_assumption(lt(COLUMN, sym("k"))))


def test_equal_maxima_bound_each_other() -> None:
    assert forms().is_same(at(TOP, ROW), at(RUN, ROW, 31), FACTS)
    assert not forms().is_same(at(TOP, ROW), at(RUN, ROW, 30), FACTS)


def test_references_are_maxima_of_floats_from_nothing_on() -> None:
    assert reference(at(TOP, ROW)) is not None
    assert reference(at(RUN, ROW, COLUMN)) is not None
    assert reference(at(Z, ROW, COLUMN)) is None


def test_a_bound_that_holds_for_all_elements_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    elements, start = ElementPairs(compare_terms), Facts()

    def question() -> tuple[LinearForm, At, Facts]:
        (i, facts), k = elements.fresh(const(4), start), elements.symbol()
        return LinearForm(((at(RUN, i, 31), ONE),)), at(TOP, i), facts.with_range(k.name, 0, 9).with_assumption(lt(i, k))

    def not_shown(self: LinearForms, form: LinearForm, by: At, facts: Facts) -> bool:
        return False

    assert LinearForms(elements, frozenset()).is_bounded(*question())
    monkeypatch.setattr(LinearForms, "_is_bounded", not_shown)
    assert LinearForms(elements, frozenset()).is_bounded(*question())
    assert not LinearForms(ElementPairs(compare_terms), frozenset()).is_bounded(*question())
