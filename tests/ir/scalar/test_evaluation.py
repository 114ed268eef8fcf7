"""The values of expressions, on numbers and on arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.ir.scalar import Expr, and_, compile_expr, element, evaluate, free_symbols, gt, is_boolean, lt, ne, not_, or_, select, sym, table
from tests.ir.scalar.generated import EXPRESSIONS, NAMES, POINTS
from tests.ir.scalar.nests import S, x, y


def test_evaluation_on_arrays_tolerates_lanes_without_a_value() -> None:
    e = select(gt(S, 0), x // S, -1) + table([1, 2], x)
    env = {"x": np.array([0, 1, 5]), "S": np.array([2, 0, 1])}
    for result in (evaluate(e, env), compile_expr(e, ["x", "S"])(env["x"], env["S"])):
        assert np.asarray(result)[:2].tolist() == [1, 1]


def test_conditions_evaluate_to_booleans_and_count_as_integers() -> None:
    cond = and_(lt(x, 3), ne(x, 1))
    assert is_boolean(cond)
    assert evaluate(cond, {"x": 0}) is True
    lanes = np.arange(4)
    for e in (cond, not_(cond), or_(lt(x, 1), gt(x, 2))):
        assert np.asarray(evaluate(e, {"x": lanes})).dtype == np.bool_
        assert compile_expr(e, ["x"])(lanes).dtype == np.bool_
    twice = lt(x, 3) + lt(x, 2)
    assert np.asarray(evaluate(twice, {"x": lanes})).tolist() == compile_expr(twice, ["x"])(lanes).tolist() == [2, 2, 1, 0]


def test_compiled_functions_are_cached_and_check_their_arguments() -> None:
    e = x // 4 * 8 + x // 4
    assert compile_expr(e, ["x"]) is compile_expr(e, ["x"])
    assert compile_expr(e, ["y", "x"])(0, 9) == 18
    assert compile_expr(3, [])() == 3
    with pytest.raises(ValueError, match=r"^no argument for 'S', 'x'$"):
        compile_expr(x + y * S, ["y"])


def test_a_false_condition_on_arrays_keeps_a_look_up_by_plain_integers_from_raising() -> None:
    """The index is the same in all lanes, and the table has no such entry; with plain integers alone, the condition is asked first."""
    lanes, tensor = np.arange(4), np.array([7, 8, 9])
    for found in (element(sym("t"), y, 3, 0, 9), table((7, 8, 9), y)):
        e = select(lt(x + y, 3), found, 0)
        run = compile_expr(e, ("t", "x", "y"))
        assert run(tensor, lanes, 5).tolist() == [0, 0, 0, 0]
        assert run(tensor, lanes, 1).tolist() == [8, 8, 0, 0]
        assert run(tensor, 0, 5) == 0


def test_a_false_condition_on_arrays_keeps_a_division_of_plain_integers_by_zero_from_raising() -> None:
    x, y, n = sym("x"), sym("y"), sym("n")
    for quotient in (y % n, y // n):
        compiled = compile_expr(and_(lt(x, n), lt(quotient, 2)), ("x", "y", "n"))
        assert not compiled(np.array([0, 1]), 3, 0).any()
        assert compiled(0, 3, 0) is False


@given(EXPRESSIONS, st.lists(POINTS, min_size=2, max_size=6))
def test_evaluate_and_compile_agree_on_integers_and_arrays(e: Expr, points: list[dict[str, int]]) -> None:
    values = [evaluate(e, point) for point in points]
    compiled = compile_expr(e, NAMES)
    assert values == [compiled(*(point[name] for name in NAMES)) for point in points]
    columns = {name: np.array([point[name] for point in points], dtype=np.int64) for name in NAMES}
    for result in (evaluate(e, columns), compiled(*columns.values())):
        np.testing.assert_array_equal(np.broadcast_to(result, len(points)), values)
        if is_boolean(e) and free_symbols(e):
            assert np.asarray(result).dtype == np.bool_
