"""The digits of a number are the only values that give it."""

from itertools import product

import pytest

from taskfuse.check.rewrites.digits import digits_of
from taskfuse.ir.scalar import Evaluation, Expr, Facts, const, sym

A, B, C, N = sym("a"), sym("b"), sym("c"), sym("n")
EXTENTS: dict[str, Expr] = {"a": const(2), "b": const(3), "c": const(4)}


@pytest.mark.parametrize("e", [A, A + 2 * B, 5 + C + 4 * A + 8 * B, B + 3 * C - 7], ids=str)
def test_each_number_has_its_digits(e: Expr) -> None:
    found = digits_of(e, N, EXTENTS, Facts())
    assert found is not None
    assert found.values.keys() == e.free
    numbers = set[int]()
    for values in product(*(range(int(str(EXTENTS[name]))) for name in found.values)):
        at = dict(zip(found.values, values, strict=True))
        n = int(Evaluation(at).of(e))
        there = Evaluation({"n": n})
        assert {name: there.of(value) for name, value in found.values.items()} == at
        assert 0 <= there.of(found.rest) < there.of(found.size)
        numbers.add(n)
    assert len(numbers) == Evaluation({}).of(found.size)


@pytest.mark.parametrize("e", [2 * A, A + 3 * B, A + B, A * B, A + 2 * B + 5 * C, A // 2], ids=str)
def test_others_have_none(e: Expr) -> None:
    assert digits_of(e, N, EXTENTS, Facts()) is None
