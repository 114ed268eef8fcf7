"""The reference evaluator: arguments, op maps, value modes."""

from typing import Any

import numpy as np
import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import float32
from taskfuse.ir.axes import AxisKind, axis, iteration_symbol, split_axes
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.evaluate import evaluate, evaluate_tensors
from taskfuse.ir.expr import FirstValid, IndexValue, Literal, Pointwise, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import eq, sym, table
from taskfuse.ir.values import MODULAR
from tests.ops.reference import evaluated, message, numbers


def identity(shape: list[Any], dtype: str = "float32") -> Fusion:
    with Fusion("f") as fusion:
        fusion.add_output(tf.copy(tf.define_tensor(shape, dtype, name="x")))
    return fusion


def test_wrong_arguments() -> None:
    fusion = identity(["S", 4, "2*S"])
    zeros = np.zeros
    assert message(lambda: evaluate(fusion, [])) == "fusion 'f': takes 1 arguments, got 0\nhelp: the arguments are: x: float32[S, 4, 2*S]"
    assert message(lambda: evaluate(fusion, [zeros((1, 4), "f")])) == "input 0 of fusion 'f': x has shape [S, 4, 2*S], the array [1, 4]"
    assert message(lambda: evaluate(fusion, [zeros((1, 4, 2))])) == (
        "input 0 of fusion 'f': x is float32, the array is float64\nhelp: pass it converted to float32"
    )
    assert message(lambda: evaluate(fusion, [zeros((1, 5, 2), "f")])) == "input 0 of fusion 'f': dimension 1 of x is 4, the array has 5"
    assert message(lambda: evaluate(fusion, [zeros((3, 4, 5), "f")])) == (
        "input 0 of fusion 'f': dimension 2 of x is 2*S = 6, the array has 5\nnote: S = 3 from dimension 0 of x"
    )
    assert message(lambda: evaluate(identity(["2*S"]), [zeros(5, "f")])) == "input 0 of fusion 'f': dimension 0 of x is 2*S, which cannot be 5"


def test_shared_symbols() -> None:
    with Fusion("f") as fusion:
        x, y = tf.define_tensor(["S"], name="x"), tf.define_tensor([2, "S"], name="y")
        fusion.add_output(x + y)
    assert message(lambda: evaluate(fusion, [np.zeros(3, "f"), np.zeros((2, 4), "f")])) == (
        "input 1 of fusion 'f': dimension 1 of y is S = 3, the array has 4\nnote: S = 3 from dimension 0 of x"
    )


def test_facts_are_checked() -> None:
    fusion = identity([tf.dim("S", multiple_of=4, min=8, max=16)])
    assert evaluate(fusion, [np.zeros(12, "f")])[0].shape == (12,)
    for size, reason in ((4, "4, less than its minimum 8"), (20, "20, more than its maximum 16"), (10, "10, not a multiple of 4")):
        assert message(lambda n=size: evaluate(fusion, [np.zeros(n, "f")])) == f"input 0 of fusion 'f': dimension 'S' is {reason}"


def test_undetermined_dimension() -> None:
    with Fusion("f") as fusion:
        fusion.add_output(tf.zeros(["N"]))
    help = "use the dimension itself as an extent of an input, or make it an argument: tf.define_integer"
    assert message(lambda: evaluate(fusion, [])) == f"fusion 'f': no input determines dimension 'N'\nhelp: {help}"


def test_wrong_scalars() -> None:
    with Fusion("f") as fusion:
        tf.define_tensor([1])
        n = tf.define_scalar("int8", "n")
        fusion.add_output(tf.copy(n))
    x = np.zeros(1, "f")
    assert evaluate(fusion, [x, 3])[0] == 3
    assert evaluate(fusion, [x, np.int8(3)])[0].dtype == np.int8
    assert message(lambda: evaluate(fusion, [x, 200])) == "input 1 of fusion 'f': n is int8, which cannot hold 200"
    assert message(lambda: evaluate(fusion, [x, 1.5])) == "input 1 of fusion 'f': n is int8, which cannot hold 1.5"
    assert message(lambda: evaluate(fusion, [x, np.float32(1)])) == "input 1 of fusion 'f': n is int8, got float32[]"
    assert message(lambda: evaluate(fusion, [x, np.zeros(1, np.int8)])) == "input 1 of fusion 'f': n is int8, got int8[1]"


@pytest.mark.parametrize(
    "x",
    [
        numbers((6, 4), "float32")[::-1, ::2],
        np.broadcast_to(np.float32(3), (3, 2)),
        numbers((3, 2), "float32").T,
        np.asfortranarray(numbers((3, 2), "float32")),
        np.zeros((0, 2), np.float32),
    ],
    ids=["negative", "zero", "transposed", "fortran", "empty"],
)
def test_strides(x: np.ndarray) -> None:
    found = evaluated(lambda a: tf.sum(a * 2, 1), x)
    np.testing.assert_allclose(found, (x * 2).sum(1), rtol=1e-6, atol=1e-6)


def test_outputs_are_new_arrays() -> None:
    fusion = identity([3])
    x = np.arange(3, dtype="f")
    (out,) = evaluate(fusion, [x])
    out[0] = 9
    assert x[0] == 0


def test_every_tensor() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([2])
        y = tf.exp(x)
        fusion.add_output(tf.neg(y))
    found = evaluate_tensors(fusion, [np.zeros(2, "f")])
    assert found[y].tolist() == [1, 1]
    assert set(found) == set(fusion.tensors())


def test_general_maps_are_gathers() -> None:
    x = numbers((5, 5), "float32")
    with Fusion("f") as fusion:
        a = tf.define_tensor([5, 5])
        i, j = iteration_symbol(0), iteration_symbol(1)
        for shape, index, expected in (
            ((5,), (i, i), np.diagonal(x)),
            ((2, 3), (i + j, 4 - j), x[np.add.outer([0, 1], [0, 1, 2]), [4, 3, 2]]),
            ((3, 2), (table([4, 0, 4], i), j * 0 + 2), np.broadcast_to(x[[4, 0, 4], 2][:, None], (3, 2))),
            ((3, 2), (j, table([1, 1, 2], i)), x[:2, [1, 1, 2]].T),
            ((4,), (i // 2, i % 2 + 3), x[[0, 0, 1, 1], [3, 4, 3, 4]]),
        ):
            out = fusion.new_tensor([axis(n) for n in shape], float32)
            fusion.add_output(fusion.define(Pointwise(out, ELEMENTWISE["copy"], (Read(a, index),))))
            (*_, found) = evaluate(fusion, [x])
            assert np.array_equal(found, expected)


def test_select_takes_the_first_valid_operand() -> None:
    with Fusion("f") as fusion:
        a = tf.define_tensor([1])
        i = iteration_symbol(0)
        out = fusion.new_tensor([axis(4)], float32)
        operands = (Read(a, (i - 2,), eq(i, 2)), Read(a, (i * 0,), eq(i % 2, 0)), IndexValue(i * 10))
        fusion.add_output(fusion.define(FirstValid(out, "choice", operands)))
    assert evaluate(fusion, [np.array([7], "f")])[0].tolist() == [7, 10, 7, 30]


def test_reduction_starts_at_its_init() -> None:
    with Fusion("f") as fusion:
        a = tf.define_tensor([3])
        out = fusion.new_tensor([axis(3, AxisKind.REDUCTION)], float32)
        read = Read(a, (iteration_symbol(0),))
        fusion.add_output(fusion.define(Reduction(out, COMBINES["add"], ELEMENTWISE["square"], (read,), Literal(0.5, float32))))
    assert evaluate(fusion, [np.array([1, 2, 3], "f")])[0] == 14.5


@pytest.mark.parametrize("size", [8, 7, 1])
def test_split_reduction(size: int) -> None:
    """A reduction over K whose logical domain keeps the outer part of a split of K."""
    with Fusion("f") as fusion:
        a = tf.define_tensor(["M", "K"])
        root = [axis(sym("M")), axis(sym("K"), AxisKind.REDUCTION)]
        split = split_axes(root[1], 4)
        out = fusion.new_tensor(root, float32, logical=[root[0], split.outer])
        out.schedule.transforms.append(split)
        read = Read(a, (iteration_symbol(0), iteration_symbol(1)))
        fusion.define(Reduction(out, COMBINES["add"], ELEMENTWISE["copy"], (read,), Literal(0.0, float32)))
        fusion.add_output(out)
    x = numbers((3, size), "float32")
    (found,) = evaluate(fusion, [x])
    expected = np.add.reduceat(x, np.arange(0, size, 4), axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_ring_accepts_words_and_gives_words() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor(["N"])
        fusion.add_output(tf.sum(x))
        fusion.add_output(tf.cast(tf.gt(x, 0), "int32"))
    words = np.array([2**63, 2**63, 5], np.uint64)
    total, positive = evaluate(fusion, [words], MODULAR)
    assert total == 5
    assert positive.dtype == np.int32
    (total, _) = evaluate(fusion, [np.array([1, 2, 3], "f")], MODULAR)
    assert total == 6


def test_ring_sums_are_equal_in_any_grouping() -> None:
    x = numbers((4, 6), "float32")
    whole = evaluated(lambda a: tf.sum(tf.exp(a)), x, values=MODULAR)
    rows = evaluated(lambda a: tf.sum(tf.sum(tf.exp(a), 1)), x, values=MODULAR)
    columns = evaluated(lambda a: tf.sum(tf.sum(tf.exp(a.T), 1)), x, values=MODULAR)
    assert whole == rows == columns


def test_matmul_does_not_store_its_iteration_space() -> None:
    n = 1024
    a = np.ones((n, n), np.float32)
    found = evaluated(lambda x: tf.matmul(x, x), a)
    assert (found == n).all()
