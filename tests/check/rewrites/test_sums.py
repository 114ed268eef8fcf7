"""Reductions of reductions and scans as sets of terms."""

import pytest

import taskfuse as tf
from taskfuse.check.rewrites.combined import compare_terms
from taskfuse.check.rewrites.elements import ElementPairs
from taskfuse.check.rewrites.sides import At, Definitions, Different
from taskfuse.check.rewrites.sums import TermSet, form_of, terms
from taskfuse.ir.scalar import Facts, const
from taskfuse.kir import Kernel
from taskfuse.kir.operands import Access
from tests.check.rewrites.rewritten import Build, reductions, rewritten


def split(f: tf.Fusion) -> None:
    """A sum over 21 in chunks of 4: the last has one term."""
    y = tf.sum(tf.define_tensor([3, 21], name="x"), axis=1)
    f.add_output(y)
    y.split(1, 4)
    y.rfactor([2])


def chunked(f: tf.Fusion) -> None:
    """A maximum over 21 in chunks of 7."""
    y = tf.max(tf.define_tensor([3, 21], name="x"), axis=1)
    f.add_output(y)
    reductions(f)[0].chunk_reduction(1, 7)


def scanned(f: tf.Fusion) -> None:
    """The sum of a scan."""
    y = tf.sum(tf.cumsum(tf.define_tensor([3, 21], name="x"), axis=1), axis=1)
    f.add_output(y)
    y.split(1, 4)
    y.rfactor([2])


def both(build: Build) -> tuple[Kernel, TermSet, TermSet]:
    kernel = rewritten(build)
    found: list[TermSet] = []
    for definitions in (kernel.written, kernel.definitions):
        at = At(Definitions.of(kernel, definitions), Access(kernel.outputs[0].name, (const(1),)))
        form = form_of(at)
        assert form is not None
        found.append(terms(at, form, ElementPairs(compare_terms), Facts()))
    return kernel, found[0], found[1]


@pytest.mark.parametrize("build", [split, chunked])
def test_a_reduction_of_reductions_has_the_terms_of_all(build: Build) -> None:
    _, written, now = both(build)
    assert [len(p.variables) for p in written.parts] == [1]
    (part,) = now.parts
    assert len(part.variables) == (1 if build is split else 2), "the chunk of an index is what its terms say"
    assert now.combine is written.combine
    assert all(isinstance(o.operand, Access) for o in part.operands)


def test_a_scan_has_the_terms_up_to_its_element() -> None:
    _, written, _ = both(scanned)
    (part,) = written.parts
    assert len(part.variables) == 2
    assert len(part.conditions) == 1


def test_another_dtype_has_no_terms_of_the_form() -> None:
    kernel = rewritten(split)
    at = At(Definitions.of(kernel, kernel.definitions), Access(kernel.outputs[0].name, (const(1),)))
    form = form_of(at)
    assert form is not None
    assert form_of(At(at.side, Access("x", (const(0), const(0))))) is None
    other = type(form)(form.combine, tf.float64, tf.float64)
    with pytest.raises(Different, match="float32, not float64"):
        terms(at, other, ElementPairs(compare_terms), Facts())
