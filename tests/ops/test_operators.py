"""Python's operators of tensors."""

from collections.abc import Callable
from typing import Any

import numpy as np

from taskfuse.dtypes import float32
from tests.ops.reference import evaluated, numbers


def test_operators() -> None:
    x, y = numbers((2, 3), "float32", low=1), numbers((3,), "float32", 1, low=1)
    binary: tuple[Callable[[Any, Any], Any], ...] = (
        *(lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b, lambda a, b: a // b, lambda a, b: a % b, lambda a, b: a**b),
        *(lambda a, b: 2 + a, lambda a, b: 2 - a, lambda a, b: 2 * a, lambda a, b: 2 / a, lambda a, b: 2 // a, lambda a, b: 2 % a, lambda a, b: 2**a),
        *(lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a > b, lambda a, b: a >= b, lambda a, b: -a, lambda a, b: abs(a)),
    )
    for build in binary:
        np.testing.assert_allclose(evaluated(build, x, y), build(x, y), rtol=1e-6)
    whole = numbers((4,), "int32")
    bits: tuple[Callable[[Any], Any], ...] = (lambda a: a & 3, lambda a: 1 | a, lambda a: a ^ 5, lambda a: ~a, lambda a: a << 1)
    reflected: tuple[Callable[[Any], Any], ...] = (lambda a: 3 & a, lambda a: a | 1, lambda a: 2 ^ a)
    for unary in (*bits, *reflected):
        assert (evaluated(unary, whole) == unary(whole)).all()
    assert evaluated(lambda a: a.astype(float32), whole).dtype == np.float32
