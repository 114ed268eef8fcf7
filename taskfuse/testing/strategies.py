"""Hypothesis strategies (needs ``hypothesis``). Hypothesis shrinks a failing case through the generator's choices, so it stays a valid case.

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
    """Answers drawn by Hypothesis."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def integer(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))

    def __repr__(self) -> str:
        return "DrawChooser()"


@st.composite
def choosers(draw: st.DrawFn) -> Chooser:
    """Choosers whose answers Hypothesis draws and shrinks."""
    return DrawChooser(draw(st.data()))


@st.composite
def cases(draw: st.DrawFn, options: CaseOptions | None = None) -> Case:
    """Random cases, most of which lower."""
    return random_case(DrawChooser(draw(st.data())), options)
