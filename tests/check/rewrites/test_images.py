"""Maps of terms to those that were written: each is met once."""

import re

import pytest

import taskfuse as tf
from taskfuse.check.rewrites.combined import compare_terms
from taskfuse.check.rewrites.elements import ElementPairs
from taskfuse.check.rewrites.sides import At, Definitions, Different
from taskfuse.ir.scalar import Facts, const
from taskfuse.kir import Kernel
from taskfuse.kir.operands import Access
from tests.check.rewrites.rewritten import changed, rewritten


def split(f: tf.Fusion) -> None:
    """A sum over 21 in chunks of 4."""
    y = tf.sum(tf.define_tensor([3, 21], name="x"), axis=1)
    f.add_output(y)
    y.split(1, 4)
    y.rfactor([2])


def compare(kernel: Kernel) -> None:
    a, b = (At(Definitions.of(kernel, d), Access(kernel.outputs[0].name, (const(1),))) for d in (kernel.written, kernel.definitions))
    compare_terms(ElementPairs(compare_terms), a, b, Facts())


def test_chunks_meet_each_term_once() -> None:
    compare(rewritten(split))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("i1//4", "i1//3", "nothing shows that the term at [r.4] is met"),  # terms are missing
        ("x[i0, i1]", "x[i0, i1//2]", "x[1, r.6] was written, and x[1, r.6//2] is there"),  # terms are met twice
    ],
)
def test_other_terms_of_chunks(old: str, new: str, reason: str) -> None:
    with pytest.raises(Different, match=re.escape(reason)):
        compare(changed(rewritten(split), old, new))
