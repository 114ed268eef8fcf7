"""Elements that combine terms, by whichever form both have."""

from dataclasses import replace

import pytest

import taskfuse as tf
from taskfuse.check.rewrites.combined import compare_terms
from taskfuse.check.rewrites.elements import ElementPairs
from taskfuse.check.rewrites.sides import At, Definitions, Different
from taskfuse.check.rewrites.verify import rewritings
from taskfuse.ir.scalar import Facts, const
from taskfuse.kir import parse_kernel
from taskfuse.kir.operands import Access
from tests.check.rewrites.rewritten import is_proved, rewritten


def split(f: tf.Fusion) -> None:
    """A sum over 21 in chunks of 4."""
    y = tf.sum(tf.define_tensor([3, 21], name="x"), axis=1)
    f.add_output(y)
    y.split(1, 4)
    y.rfactor([2])


def scaled(f: tf.Fusion) -> None:
    """The same of products."""
    y = tf.sum(tf.define_tensor([3, 21], name="x") * 2.0, axis=1)
    f.add_output(y)
    y.split(1, 4)
    y.rfactor([2])


def test_sums_are_compared_as_sets_or_as_products() -> None:
    for build in (split, scaled):
        kernel = rewritten(build)
        a, b = (At(Definitions.of(kernel, d), Access(kernel.outputs[0].name, (const(1),))) for d in (kernel.written, kernel.definitions))
        compare_terms(ElementPairs(compare_terms), a, b, Facts())


def test_different_sums_say_why() -> None:
    one, other = rewritten(split), rewritten(scaled)
    a, b = (At(Definitions.of(k, k.definitions), Access(k.outputs[0].name, (const(1),))) for k in (one, other))
    with pytest.raises(Different, match="multiplied by 2"):
        compare_terms(ElementPairs(compare_terms), a, b, Facts())


def test_what_is_no_reduction_has_no_terms() -> None:
    kernel = rewritten(split)
    side = replace(Definitions.of(kernel, kernel.written), definitions={})
    element = At(side, Access("x", (const(1), const(2))))
    with pytest.raises(Different, match="no reduction"):
        compare_terms(ElementPairs(compare_terms), element, element, Facts())


@pytest.mark.parametrize(("init", "proved"), [("0.0", True), ("-0.0", False)])
def test_zeros_are_not_neutral_to_a_sum_from_a_negative_zero(init: str, proved: bool) -> None:
    text = """\
KERNEL k(x: float32[N, 4]) -> (y: float32[N])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE a: float32[N, 6] = pick(x[i0, i1] if i1 < 4, otherwise 0.0)
  DEFINE y: float32[N] over (N, 6) at (i0) = reduce add of copy(a[i0, i1]) from INIT
  WRITTEN y: float32[N] over (N, 4) at (i0) = reduce add of copy(x[i0, i1]) from INIT

PASS
"""
    assert is_proved(rewritings(parse_kernel(text.replace("INIT", init)))) is proved
