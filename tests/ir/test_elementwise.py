"""The table of elementwise functions, against what its columns say."""

import numpy as np
import pytest

from taskfuse.dtypes import DTYPES, bool_, float64, int32
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule, Elementwise
from tests.ir.elements import elements


@pytest.mark.parametrize("row", [row for row in ELEMENTWISE.values() if row.commutative], ids=str)
def test_commutative_functions_are(row: Elementwise) -> None:
    dtype = bool_ if row.rule is DTypeRule.LOGICAL else int32 if row.rule in (DTypeRule.BITWISE, DTypeRule.SHIFT) else float64
    x, y = np.meshgrid(elements(dtype)[1:], elements(dtype)[1:])
    rest = [x] * (row.arity - 2)
    np.testing.assert_array_equal(row.function(x, y, *rest), row.function(y, x, *rest))


def test_names_of_numpy() -> None:
    assert ELEMENTWISE["sin"].numpy_name == "sin"
    for row in ELEMENTWISE.values():
        assert not row.numpy_name or hasattr(np, row.numpy_name), row
    assert len(DTYPES) >= 14


@pytest.mark.parametrize(("name", "wanted"), [("round", [0, -2, 2]), ("floor", [0, -2, 2]), ("ceil", [1, -1, 3]), ("trunc", [0, -1, 2])])
def test_every_float_is_rounded_to_an_integer(name: str, wanted: list[int]) -> None:
    row = ELEMENTWISE[name]
    for dtype in (d for d in DTYPES.values() if d.is_float):
        assert row.function(np.array([0.25, -1.75, 2.5]).astype(dtype.numpy)).astype(float).tolist() == wanted, dtype
    assert row.function(np.array([3, -1], np.int8)).tolist() == [3, -1]
