"""Loops over reduced axes end at once where nobody reads what they sum up."""

from __future__ import annotations

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.ir.expr import Reduction
from taskfuse.ir.scalar import Facts, parse_expr
from taskfuse.lowering.unread_results import condition_of_reads, somewhere

FACTS = Facts().with_range("i", 0, 7).with_range("j", 0, parse_expr("N - 1"))


@pytest.mark.parametrize(
    ("condition", "known", "relaxed"),
    [
        ("8*b + i < n", "bn", "n - 8*b > 0"),
        ("n <= 8*b + i", "bn", "8*b - n + 7 >= 0"),
        ("8*b + i < n && b < m", "bnm", "n - 8*b > 0 && b < m"),
        ("8*b - j < n", "bnN", "n + N - 8*b - 1 > 0"),
        ("b < n", "bn", "b < n"),
        ("i % 3 < n", "n", "1"),
        ("u < n", "n", "1"),
        ("clamp(t[8*b + i of 64], 0, 9) < n", "bn", "1"),
    ],
)
def test_what_holds_if_a_condition_does_somewhere(condition: str, known: str, relaxed: str) -> None:
    assert somewhere(parse_expr(condition), set(known), FACTS) is parse_expr(relaxed)


def masked(reader: str = "") -> tuple[tf.Fusion, tf.TensorView, tf.TensorView]:
    """A fusion, its product, and the choice between that and zero."""
    with tf.Fusion("masked") as fusion:
        a, b = tf.define_tensor((2, 8, 4), name="a"), tf.define_tensor((2, 4, 3), name="b")
        kept = tf.grouped_matmul_masked(a, b, tf.table("counts", 2, 8))
        fusion.add_output(kept)
        (product,) = (e.output for e in fusion.exprs() if isinstance(e, Reduction))
        if reader:
            fusion.add_output(tf.relu(product) if reader == "another" else product)
    return fusion, product, kept


def test_which_results_nobody_reads() -> None:
    fusion, product, kept = masked()
    assert str(condition_of_reads(fusion, product)) == "i1 < clamp(counts[i0 of 2], 0, 8)"
    assert condition_of_reads(fusion, kept) is None
    for reader in ("another", "the caller"):
        fusion, product, _ = masked(reader)
        assert condition_of_reads(fusion, product) is None


def test_rows_of_padding_take_no_trips() -> None:
    fusion, product, kept = masked()
    for tv in (product, kept):
        tv.axis(0).parallelize(P.BIDx)
        tv.axis(1).parallelize(P.BIDy)
    kernel = tf.lower(fusion)
    trips = "select(blockIdx.y < clamp(counts[blockIdx.x of 2], 0, 8), 4, 0)"
    assert f"0..{trips}" in str(kernel)
    kernel.verify().require()
    fewer = kernel.text(witness=True).replace(trips, trips.replace("blockIdx.y <", "blockIdx.y + 1 <"))
    assert not tf.parse_kernel(fewer).verify().is_proved
    rng = np.random.default_rng(0)
    a, b = rng.integers(-2, 3, (2, 8, 4)).astype(np.float32), rng.integers(-2, 3, (2, 4, 3)).astype(np.float32)
    for counts in ([0, 8], [3, -1], [100, 5]):
        args = a, b, np.array(counts, np.int32)
        assert (kernel.simulate(*args)[0] == fusion.evaluate(*args)[0]).all()
