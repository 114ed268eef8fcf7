"""Hypothesis strategies (needs ``hypothesis``). A failing case is shrunk through the generator's choices, so it stays a case that can be made.

Property-test the schedules of your own math::

    from hypothesis import given
    from taskfuse.testing import check_case, random_schedule
    from taskfuse.testing.strategies import choosers

    @given(choosers())
    def test_any_schedule(chooser):
        check_case(random_schedule(chooser, my_fusion(), {"N": 7}))
"""

from __future__ import annotations

from hypothesis import strategies as st

from taskfuse.testing.case import Case, random_case
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.options import CaseOptions


class DrawChooser(Chooser):
    """Answers with what Hypothesis draws."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def integer(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))

    def __repr__(self) -> str:
        return "DrawChooser()"


@st.composite
def choosers(draw: st.DrawFn) -> Chooser:
    """Choosers whose answers Hypothesis draws, and shrinks."""
    return DrawChooser(draw(st.data()))


@st.composite
def cases(draw: st.DrawFn, options: CaseOptions | None = None) -> Case:
    """Random cases, most of which lower."""
    return random_case(DrawChooser(draw(st.data())), options)
