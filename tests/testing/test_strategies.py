"""Hypothesis draws the choices of a case, and shrinks them to the simplest."""

from hypothesis import Phase, find, given, settings

from taskfuse.testing.case import Case
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.options import POINTWISE
from taskfuse.testing.strategies import cases, choosers


@given(choosers())
@settings(max_examples=20)
def test_answers_are_in_range(chooser: Chooser) -> None:
    assert -3 <= chooser.integer(-3, 5) <= 5
    assert sorted(chooser.order("abc")) == ["a", "b", "c"]
    assert chooser.chance(100)
    assert not chooser.chance(0)


def test_a_choice_shrinks_to_the_simplest() -> None:
    def is_large(chooser: Chooser) -> bool:
        return chooser.integer(0, 1000) >= 17

    found = find(choosers(), is_large, settings=settings(max_examples=200, phases=(Phase.generate, Phase.shrink), database=None))
    assert repr(found) == "DrawChooser()"


def test_cases_have_the_options() -> None:
    found: list[Case] = []

    @given(cases(POINTWISE))
    @settings(max_examples=3, phases=(Phase.generate,), database=None)
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    assert found
    assert all(case.options is POINTWISE for case in found)
