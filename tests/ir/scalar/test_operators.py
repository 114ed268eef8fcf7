"""Python's operators of expressions: what is answered, what is refused, what is left to Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from taskfuse.errors import SymbolError
from taskfuse.ir.scalar import (
    const,
    lt,
)
from tests.ir.scalar.nests import x as x_
from tests.ir.scalar.nests import y

x: Any = x_  # operators that type checkers refuse, too


def test_an_expression_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match=r"^whether .* holds is not known: it depends on values that are known only at a call"):
        bool(lt(x, y))


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: bool(x + 1), "whether x + 1 holds"),
    (lambda: int(2 * x), "the value of 2*x"),
    (lambda: "0"[x], "the value of x"),
    (lambda: x < 3, "whether x < 3 holds"),
    (lambda: x >= y, "whether x >= y holds"),
    (lambda: 2 * x == 4, "whether 2*x == 4 holds"),
    (lambda: x == 1.0, "whether x == 1.0 holds"),
    (lambda: x / 2, "the value of x / 2"),
    (lambda: 2**x, "the value of 2 ** x"),
    (lambda: x * 0.5, "the value of x * 0.5"),
]


@pytest.mark.parametrize(
    ("ask", "what"),
    REFUSED,
)
def test_what_symbols_decide_is_refused(ask: Callable[[], object], what: str) -> None:
    with pytest.raises(SymbolError, match="^" + re.escape(what) + " is not known"):
        ask()


def test_what_they_do_not_decide_is_answered() -> None:
    assert x - x < 1
    assert x + 1 > x
    assert (2 * x == 3) is False  # it is even
    assert x != 0.5
    assert x != "x"
    assert (x == y) is False  # of two expressions: whether they are one
    assert x**2 is x * x
    assert x**0 is const(1)


def test_constants_are_integers_to_python() -> None:
    three: Any = const(3)
    assert (three, three < 4, 2 / const(4), three**-1, const(2) ** 0.5) == (3, True, 0.5, 3**-1, 2**0.5)
    assert [7, 8, 9, 10][three] == 10
    assert hash(three) == hash(3)
    assert not const(0)
    assert f"{three:03}" == "003"
    assert np.int64(2) * x is 2 * x


def test_what_is_no_number_is_left_to_python() -> None:
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \+: 'Sym' and 'str'"):
        _ = x + "1"
    with pytest.raises(TypeError, match=r"'<' not supported between instances of 'Sym' and 'str'"):
        _ = x < "1"
