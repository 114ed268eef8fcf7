"""Batch and sequence of what a linear layer multiplies are one axis, where everything reads both together; results hold what the reference says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check import Verdict
from taskfuse.ir.scalar import Expr
from taskfuse.ir.storage import needed
from taskfuse.runtime import coalesced_axes
from taskfuse.runtime.coalesced_axes import coalesced
from taskfuse.runtime.result_views import bases

B, S, K, N = 3, 5, 64, 32
Shape = list[int | str]


def tensor(shape: Shape, name: str, dtype: tf.DType = tf.bfloat16) -> tf.TensorView:
    return tf.define_tensor(shape, dtype, name=name)


def layer(*, split: bool = False) -> tf.Fusion:
    """A linear layer with bias, function and residual; ``split``: the rows are one axis up to the bias, as torch traces it."""
    with tf.Fusion("layer") as fusion:
        x, w, bias, residual = tensor(["B", "S", K], "x"), tensor([K, N], "w"), tensor([N], "bias"), tensor(["B", "S", N], "residual")
        y = (tf.reshape(x, [-1, K]) if split else x) @ w + bias
        fusion.add_output(tf.relu(tf.reshape(y, (*x.shape[:2], N)) if split else y) + residual, name="y")
    return fusion


def arrays(fusion: tf.Fusion, extents: dict[str, int]) -> list[Any]:
    draw = np.random.default_rng(0)
    shapes = [[extents.get(str(e)) or int(str(e)) for e in tv.shape] for tv in fusion.inputs]
    return [draw.integers(-2, 3, shape).astype(tv.dtype.numpy) for shape, tv in zip(shapes, fusion.inputs, strict=True)]


@pytest.mark.parametrize("split", [False, True])
def test_rows_of_a_layer_are_one_axis(split: bool) -> None:
    fusion = layer(split=split)
    found = bases(fusion)
    assert found is not None
    assert [tuple(map(str, tv.shape)) for tv in found.fusion.outputs] == [("B*S", str(N))]
    assert all(str(e.output.shape[0]) in ("B*S", str(N)) for e in needed(found.fusion))
    run = tf.compile(fusion, sizes={"B": 32, "S": 260})
    assert all(c.is_proved and "is what was written" in str(c) for c in run.certificates)
    given = arrays(fusion, {"B": B, "S": S})
    (mine,), (wanted,) = run(*given), fusion.evaluate(*given)
    assert mine.shape == wanted.shape == (B, S, N)
    assert np.array_equal(mine, wanted)
    out = np.zeros((B, S, N), wanted.dtype)
    assert run(*given, out=out)[0] is out
    assert np.array_equal(out, wanted)


def test_elements_of_other_rows_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The view of the first input has the next element of a sequence in the place of each."""
    right = coalesced_axes.digits

    def beside(place: Expr, extents: Sequence[Expr]) -> list[Expr]:
        monkeypatch.undo()
        first, second = right(place, extents)
        return [first, (second + 1) % extents[1]]

    monkeypatch.setattr(coalesced_axes, "digits", beside)
    with tf.Fusion("layer") as fusion:
        fusion.add_output(tensor([2, 3, 4], "x") @ tensor([4, 2], "w") + tensor([2, 3, 2], "residual"))
    found = bases(fusion)
    assert found is not None
    assert tf.lower(found.fusion).verify().verdict is Verdict.REFUTED


def test_three_axes_and_a_norm_behind_the_product() -> None:
    with tf.Fusion("norm") as fusion:
        y = tf.cast(tensor(["B", "H", "W", K], "x") @ tensor([K, N], "w"), tf.float32)
        scaled = y * tf.rsqrt(tf.mean(y * y, 3, keepdims=True) + 1.0)
        fusion.add_output(scaled)
        fusion.add_output(tf.permute(tf.cast(y, tf.bfloat16), [1, 0, 2, 3]))
    made = coalesced(fusion)
    assert made is not None
    found = bases(fusion)
    assert found is not None
    assert {str(e.output.shape[0]) for e in needed(found.fusion)} == {"B*H*W"}
    given = arrays(fusion, {"B": B, "H": 2, "W": S})
    assert all(np.array_equal(a, b) for a, b in zip(made.evaluate(*given), fusion.evaluate(*given), strict=True))


def test_what_is_read_by_one_of_the_axes_stays() -> None:
    """A table of positions has a row for each place in a sequence, and a mean over a sequence ends with it; rows of whole tiles gain nothing."""

    def stays(make: str, length: int | str = "S") -> bool:
        with tf.Fusion(make) as fusion:
            y = tensor(["B", length, K], "x") @ tensor([K, N], "w")
            match make:
                case "positions":
                    y = y + tensor([length, N], "table")
                case "means":
                    y = tf.mean(y, 1)
                case _:
                    pass
            fusion.add_output(y)
        return coalesced(fusion) is None

    assert stays("positions")
    assert stays("means")
    assert stays("whole tiles", 512)
    assert not stays("rows")
