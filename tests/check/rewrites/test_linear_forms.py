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
I, J = sym("i"), sym("j")


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
    found = form(Z, I, J)
    assert dict(found.terms) == {at("x", I, J): Fraction(1, 2), at(TOP, I): Fraction(-1, 2)}
    assert found.guards == {Guard(at(TOP, I))}
    assert not found.raw


def test_a_reference_without_a_guard_is_raw() -> None:
    assert form(TOP, I).raw == {Guard(at(TOP, I))}
    assert form(SAFE, I).guards == {Guard(at(TOP, I))}


def test_an_infinity_guards_nothing() -> None:
    """``where(isfinite(m), m, -inf)`` is no number where m is none."""
    assert form(PLAIN, I).terms == ((at(PLAIN, I), ONE),)


def test_choices_by_indices_are_cases() -> None:
    inside, outside = forms().cases(at(MASKED, I, J), FACTS)
    assert inside.form.terms == ((at("x", I, J), ONE),)
    assert outside.form.constant == -inf
    assert forms().only(at(MASKED, I, 3), FACTS) is not None


def test_what_may_be_infinite_does_not_cancel() -> None:
    with pytest.raises(Different, match="may be infinite"):
        form(NONE, I, J)


@pytest.mark.parametrize(
    ("low", "high", "holds"),
    [
        (at("x", I, J), at(TOP, I), True),
        (at("x", I, J), at(RUN, I, J), True),
        (at("x", I, 3), at(RUN, I, 2), False),
        (at(RUN, I, J), at(TOP, I), True),
        (at(RUN, I, 3), at(RUN, I, 4), True),
        (at(RUN, I, 4), at(RUN, I, 3), False),
        (at(TOP, I), at(RUN, I, 31), True),
        (at(TOP, I), at(RUN, I, 30), False),
        (at("x", 1, J), at(TOP, 2), False),
        (at(TOP, 1), at(TOP, 2), False),
    ],
)
def test_maxima_bound_what_they_combine(low: At, high: At, holds: bool) -> None:
    assert forms().is_bounded(LinearForm(((low, ONE),)), high, FACTS) is holds


def test_bounds_hold_where_conditions_do() -> None:
    low, high = LinearForm(((at(RUN, I, J), ONE),)), at(RUN, I, sym("k"))
    facts = FACTS.with_range("k", 0, 31)
    assert not forms().is_bounded(low, high, facts)
    assert forms().is_bounded(low, high, facts.with_assumption(lt(J, sym("k"))))


def test_equal_maxima_bound_each_other() -> None:
    assert forms().is_same(at(TOP, I), at(RUN, I, 31), FACTS)
    assert not forms().is_same(at(TOP, I), at(RUN, I, 30), FACTS)


def test_references_are_maxima_of_floats_from_nothing_on() -> None:
    assert reference(at(TOP, I)) is not None
    assert reference(at(RUN, I, J)) is not None
    assert reference(at(Z, I, J)) is None
