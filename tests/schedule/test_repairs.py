"""Repairs of terms: the factor, put to work, gives what the term is with the other value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Literal, Operand, Read
from taskfuse.ir.scalar import sym
from taskfuse.ops.build import pointwise
from taskfuse.schedule.repairs import FREE, Repairs

Term = Callable[[tf.TensorView, tf.TensorView], tf.TensorView]

REPAIRED: dict[str, Term] = {
    "exp": lambda x, r: tf.exp(x - r),
    "scaled": lambda x, r: tf.exp2((x - r) * 1.5) * x,
    "both sides": lambda x, r: x * tf.exp(-(r - x)) * tf.exp(x - r),
    "quotient": lambda x, r: x / tf.exp(r),
    "masked": lambda x, r: tf.where(x > 0.2, tf.exp(x - r), 0.0),
    "divided": lambda x, r: tf.exp((x - r) / 2.0),
    "fused": lambda x, r: tf.exp(tf.fma(r, -1.0, x)),
    "function": lambda x, r: tf.exp(x - tf.sin(tf.abs(r) + 1.0)),
    "finite": lambda x, r: tf.exp(x - tf.where(tf.isfinite(r), r, 0.0)),
}
FACTORS: dict[str, Term] = {
    "factor": lambda x, r: x * r,
    "divisor": lambda x, r: -x / r,
    "both": lambda x, r: r * tf.exp(x) / (r * r),
    "function as factor": lambda x, r: x * tf.rsqrt(r * r + 1.0),
}
UNKNOWN: dict[str, Term] = {
    "sum": lambda x, r: x + r,
    "sum of exps": lambda x, r: tf.exp(x - r) + x,
    "sigmoid": lambda x, r: tf.sigmoid(x - r),
    "scaled by x": lambda x, r: tf.exp((x - r) * x),
    "condition": lambda x, r: tf.where(x > r, x, 0.0),
    "quotient of terms": lambda x, r: x / r,
    "function that may be infinite": lambda x, r: tf.exp(x - tf.log(r)),
}


@pytest.mark.parametrize("name", [*REPAIRED, *FACTORS])
def test_the_factor_makes_one_term_of_the_other(name: str) -> None:
    with tf.Fusion() as fusion:
        x, old, new = (tf.define_tensor(["N"], name=n) for n in ("x", "old", "new"))
        term = (REPAIRED | FACTORS)[name]
        before, after = term(x, old), term(x, new)
        repair = Repairs(fusion, old, as_factor=name in FACTORS).of(before)
        assert repair is not None
        assert repair.factor is not None

        def emit(function: str, *operands: Operand) -> Operand:
            values = [o.tensor if isinstance(o, Read) else o.value for o in operands if isinstance(o, Read | Literal)]
            return read(pointwise(ELEMENTWISE[function], values))

        def read(tv: tf.TensorView) -> Read:
            return Read(tv, (sym("i0"),))

        factor = repair.factor(read(old), read(new), emit)
        assert isinstance(factor, Read)
        fusion.add_output(before * factor.tensor)
        fusion.add_output(after)
    rng = np.random.default_rng(3)
    repaired, wanted = fusion.evaluate(*(rng.uniform(0.5, 2, 50).astype(np.float32) for _ in range(3)))
    np.testing.assert_allclose(repaired, wanted, rtol=1e-5)


@pytest.mark.parametrize("name", UNKNOWN)
def test_terms_without_a_factor(name: str) -> None:
    with tf.Fusion() as fusion:
        x, r = tf.define_tensor(["N"]), tf.define_tensor(["N"])
        repair = Repairs(fusion, r).of(UNKNOWN[name](x, r))
    assert repair is None or repair.factor is None


CLAMPS: dict[str, tuple[Term, bool]] = {
    "range": (lambda x, m: tf.maximum(tf.minimum(tf.exp(x - m), 448.0), -448.0), True),
    "shifted": (lambda x, m: tf.minimum(tf.exp2(x - (m - 8.0)), 256.0), True),
    "shifted twice": (lambda x, m: tf.minimum(448.0, tf.exp2(x - (m - 4.0) + 4.0) * 1.5), True),
    "below the greatest": (lambda x, m: tf.minimum(tf.exp2(x - (m - 8.0)), 255.0), False),
    "above the least": (lambda x, m: tf.maximum(tf.exp(x - m), 0.1), False),
    "of others": (lambda x, m: tf.minimum(tf.exp(x * 2.0 - m), 448.0), False),
    "from the other side": (lambda x, m: tf.minimum(tf.exp(m - x), 448.0), False),
}


@pytest.mark.parametrize("name", CLAMPS)
def test_a_clamp_that_changes_no_term_of_a_softmax(name: str) -> None:
    """Terms of what a maximum has taken in lie below it, so that a clamp to a range may be the term itself."""
    term, is_known = CLAMPS[name]
    with tf.Fusion() as fusion:
        x = tf.define_tensor(["M", "N"])
        top = tf.max(x, axis=1)
        found = Repairs(fusion, top).of(term(x, tf.expand_dims(top, 1)))
    assert (found is not None and found.factor is not None) is is_known


def test_the_maximum_of_other_rows_bounds_nothing() -> None:
    with tf.Fusion() as fusion:
        x = tf.define_tensor([8, 8])
        top = tf.max(x, axis=1)
        found = Repairs(fusion, top).of(tf.minimum(tf.exp(x - top), 448.0))
    assert found is None


def test_a_function_that_is_no_factor_of_a_sum_of_one() -> None:
    """A sum is put off as if it were 1, where a logarithm is 0."""
    with tf.Fusion() as fusion:
        x, r = tf.define_tensor(["N"]), tf.define_tensor(["N"])
        term = x * tf.log(r)
        found = Repairs(fusion, r, as_factor=True).of(term)
    assert found is None or found.factor is None


def test_what_does_not_read_it_is_free() -> None:
    with tf.Fusion() as fusion:
        x, r = tf.define_tensor(["N"]), tf.define_tensor(["N"])
        other = tf.exp(x + r)
        assert Repairs(fusion, r).of(tf.exp(x)) is FREE
        assert Repairs(fusion, r, (other,)).of(tf.exp(other)) is FREE
