"""Rules of definitions at points: reductions whose terms end, sums that are rescaled, choices without a case, places outside."""

import numpy as np
import pytest

from taskfuse.dtypes import float32, int64
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import const, lt, sym
from taskfuse.ir.values import NATIVE
from taskfuse.kir.operands import Access, ChoiceCase, Immediate, IndexOf
from taskfuse.kir.point_values import Array, Ints, PointValues, UndefinedElementError, existing
from taskfuse.kir.witness import Definition, Find, Pick, Reduce

X = np.arange(1.0, 7.0, dtype=np.float32)


class OfX(PointValues):
    """One tensor, and a scalar."""

    def __init__(self) -> None:
        super().__init__({"N": 6}, NATIVE, {"x": float32, "s": float32, "w": int64})

    def elements(self, name: str, index: tuple[Ints, ...], count: int) -> Array:
        array = {"x": X, "w": np.array([2, -1, 6, -7])}[name]
        return array[existing(index, array.shape)]

    def scalar(self, name: str) -> Array:
        return np.asarray(3.0, np.float32)


def points(*axes: list[int]) -> dict[str, Ints]:
    return OfX().point([np.array(a) for a in axes])


def read(name: str, axis: int) -> Access:
    return Access(name, (sym(f"i{axis}"),))


def test_terms_end_and_belong_to_their_results() -> None:
    rule = Reduce(COMBINES["add"], ELEMENTWISE["copy"], (read("x", 1),), Immediate(10.0, float32), float32, ends=((1, const(2)),))
    found = OfX().reduced(rule, points([0, 0, 0, 1, 1], [0, 1, 2, 1, 3]), np.array([0, 0, 0, 1, 1]), 3)
    assert found.tolist() == [13.0, 12.0, 10.0]


def test_factors_are_taken_where_other_axes_have_no_terms() -> None:
    """At the second index along the rescaled axis no term is left, and the factor counts all the same."""
    ends = ((1, const(2)), (2, const(1)))
    rule = Reduce(COMBINES["add"], ELEMENTWISE["copy"], (read("x", 1), read("x", 1)), Immediate(0.0, float32), float32, rescaled=1, ends=ends)
    found = OfX().reduced(rule, points([0, 0, 0], [0, 1, 2], [0, 1, 0]), np.array([0, 0, 0]), 1)
    assert found.tolist() == [2.0], "1, by the factor 2; the third index is past the end"


def test_choices_and_searches() -> None:
    pick = Definition("p", float32, (const(4),), (const(4),), (sym("i0"),), Pick((ChoiceCase(lt(sym("i0"), 2), read("x", 0)),)))
    assert isinstance(pick.rule, Pick)
    assert OfX().at_points(pick, pick.rule, points([0, 1]), 2).tolist() == [1.0, 2.0]
    with pytest.raises(UndefinedElementError, match="no case of p"):
        OfX().at_points(pick, pick.rule, points([0, 2]), 2)
    find = Definition("f", float32, (const(4),), (const(4),), (sym("i0"),), Find(Access("x", (sym("v0"),)), (read("w", 0),), (sym("N"),)))
    assert isinstance(find.rule, Find)
    assert OfX().at_points(find, find.rule, points([0, 1, 2, 3]), 4).tolist() == [3.0, 6.0, 0.0, 0.0]


def test_operands_and_what_does_not_exist() -> None:
    assert OfX().operand(IndexOf(sym("i0") + sym("N")), points([4]), 1).tolist() == [10]
    assert OfX().dtype(IndexOf(sym("i0"))) is int64
    with pytest.raises(UndefinedElementError, match="index 6 to 6 of axis 0"):
        OfX().operand(read("x", 0), points([6]), 1)
