"""Products as terms of sums."""

from fractions import Fraction

import pytest

from taskfuse.check.rewrites.linear_forms import LinearForm
from taskfuse.check.rewrites.sides import Different
from taskfuse.check.rewrites.weighted_terms import ONE, Monomial, WeightedTerms
from taskfuse.dtypes import bfloat16
from taskfuse.ir.elementwise import ELEMENTWISE

EXP = ELEMENTWISE["exp"]


def exponential(constant: int) -> Monomial:
    return Monomial(exponents={EXP: LinearForm((), Fraction(constant))})


def test_exponents_of_a_product_add_up_and_types_are_joined() -> None:
    found = exponential(2) * Monomial(Fraction(3), narrowed=frozenset({bfloat16})) * exponential(-5)
    assert (found.coefficient, found.exponents[EXP].constant, found.narrowed) == (3, -3, {bfloat16})
    assert exponential(1).is_exponential
    assert not found.is_exponential


def test_reciprocals() -> None:
    found = (Monomial(Fraction(4)) * exponential(2)).inverse()
    assert (found.coefficient, found.exponents[EXP].constant) == (Fraction(1, 4), -2)
    with pytest.raises(Different, match="a divisor is 0"):
        Monomial(Fraction(0)).inverse()


def test_zero_is_left_out_but_for_the_constant_times_an_element() -> None:
    zero = Monomial(Fraction(0), has_zero=True)
    assert Monomial(Fraction(0)).is_left_out
    assert zero.is_left_out
    assert (zero * zero).has_zero
    assert not (Monomial(Fraction(0)) * zero).has_zero
    assert not Monomial().is_left_out


def test_a_part_has_the_constants_of_exponents() -> None:
    part = WeightedTerms((), (), Monomial(Fraction(2)) * exponential(3)).part()
    assert (part.coefficient, part.constants, part.roles, part.operands) == (2, {EXP: Fraction(3)}, (), ())
    assert WeightedTerms((), (), Monomial()).part().coefficient == ONE
