"""Both lists of definitions, computed at small extents."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check.rewrites.instances import FIRST_WORK, MOST, WIDE, Instance, instance
from taskfuse.ir.evaluate import evaluate
from taskfuse.kir import Kernel, parse_kernel
from tests.check.rewrites.rewritten import changed, rewritten


def kernel(rows: int | str = "M", columns: int = 21) -> Kernel:
    def split(f: tf.Fusion) -> None:
        y = tf.sum(tf.define_tensor([rows, columns], name="x"), axis=1)
        f.add_output(y)
        y.split(1, 4)
        y.rfactor([2])

    return rewritten(split)


def found(of: Kernel) -> Instance:
    return instance(of, [p.name for p in of.outputs])


def test_equal_results_are_evidence_that_says_where() -> None:
    result = found(kernel())
    assert result.output is None
    assert "modular words" in result.reason
    assert "M = " in result.reason


@pytest.mark.parametrize("rows", [3, "M"])
def test_a_difference_names_the_element(rows: int | str) -> None:
    planted = changed(kernel(rows), "x[i0, i1]", "x[i0, i1//2]")
    result = found(planted)
    assert result.output == planted.outputs[0].name
    assert "was written as" in result.reason
    assert bool(result.notes) is (rows == "M"), "the extents, if there are any"


def test_definitions_without_values_are_no_evidence() -> None:
    result = found(changed(kernel(), "i1//4", "i1//3"))  # beyond the chunks
    assert result.output is None
    assert result.reason == "it cannot be computed"


def test_negative_extents_are_no_evidence() -> None:
    """Where N and M are less than 4, the space is none; their product, by which sizes are chosen, is not negative."""
    kernel = parse_kernel(
        "KERNEL k(x: float32[(N - 4)*(M - 4)]) -> (y: float32[])\n  DIM N min 1, M min 1\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n"
        "  DEFINE y: float32[] over (N - 4, M - 4) at () = reduce add of copy(x[i0*(M - 4) + i1]) from 0.0\n"
        "  WRITTEN y: float32[] over ((N - 4)*(M - 4)) at () = reduce add of copy(x[i0]) from 0.0\n\nPASS\n"
    )
    assert found(kernel).output is None
    assert not kernel.verify().is_proved


def test_of_many_elements_a_few_are_computed() -> None:
    result = found(kernel(MOST, 21))
    assert result.output is None
    assert result.reason == "4 elements, computed in modular words, are"
    wrong = found(changed(kernel(MOST, 21), "x[i0, i1]", "x[i0, i1//2]"))
    assert wrong.output is not None
    assert "was written as" in wrong.reason


def test_what_is_too_large_is_said_and_no_evidence() -> None:
    result = found(kernel(4, 2 * FIRST_WORK))
    assert result.output is None
    assert "too large" in result.reason
    assert not result.compared


def test_a_first_element_may_need_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each output, whatever others need: else what was rewritten to half of its terms would count as right."""
    for name, most in (("MOST", 0), ("WORK", 64), ("FIRST_WORK", 1 << 17)):
        monkeypatch.setattr(f"taskfuse.check.rewrites.instances.{name}", most)
    large = kernel(4, 1 << 8)
    right, wrong = (found(k) for k in (large, changed(large, "x[i0, i1]", "x[i0, i1//2]")))
    assert (right.output, right.compared, wrong.output) == (None, frozenset(p.name for p in large.outputs), large.outputs[0].name)


def test_extents_without_elements_are_no_evidence() -> None:
    """Every output has the same elements where it has none."""
    empty = parse_kernel(
        "KERNEL k(x: float32[N, M]) -> (y: float32[N], z: float32[M])\n  DIM N max 0, M min 1\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n"
        "  DEFINE y: float32[N] = copy(x[i0, 0])\n  DEFINE z: float32[M] over (N, M) at (i1) = reduce add of copy(x[i0, i1]) from 0.0\n"
        "  WRITTEN y: float32[N] = copy(x[i0, M - 1])\n  WRITTEN z: float32[M] over (N, M) at (i1) = reduce add of copy(x[i0, i1]) from 0.0\n\nPASS\n"
    )
    assert found(empty).compared == {"z"}


def test_float64_rounds_no_sum_to_a_narrower_type() -> None:
    """Else results that differ by rounding alone would refute what was rewritten."""
    with tf.Fusion() as fusion:
        x = tf.define_tensor([3], dtype=tf.float16)
        fusion.add_output(tf.sum(x, axis=0))
        fusion.add_output(tf.cumsum(x, axis=0))
        fusion.add_output(tf.matmul(tf.expand_dims(x, 0), tf.expand_dims(x, 1)))
    values = np.array([1.0, 2.0**-12, 2.0**-13], np.float16)
    total, sums, product = evaluate(fusion, [values], WIDE)
    assert total == sums[-1] == 1 + 2.0**-12 + 2.0**-13
    assert product == 1 + 2.0**-24 + 2.0**-26
