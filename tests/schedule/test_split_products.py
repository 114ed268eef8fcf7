"""Products of float32 as sums of products of bfloat16: splits are exact, errors within the bounds, kernels right, and chosen for tensor cores."""

from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal, cast

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedule.split_products import SPLITS
from tests.schedulers.oracle import checked
from tests.thinning import in_turn

Name = Literal["bf16x3", "bf16x6", "bf16x9"]
NAMES: tuple[Name, ...] = ("bf16x3", "bf16x6", "bf16x9")
LEAST, GREATEST = 2.0**-110, float(np.finfo(np.float32).max)
floats = st.one_of(st.just(0.0), st.floats(LEAST, GREATEST, width=32), st.floats(-GREATEST, -LEAST, width=32))
fractions = st.integers(1 << 23, (1 << 24) - 1).map(lambda v: v / (1 << 23))
RNG = np.random.default_rng(0)


def product(m: Any, n: Any, k: Any, spec: str = "mk,kn->mn", dtype: tf.DType = tf.float32) -> tf.Fusion:
    extents: dict[str, Any] = {"m": m, "n": n, "k": k, "b": 2}
    with tf.Fusion("product") as fusion:
        x, y = (tf.define_tensor([extents[c] for c in axes], dtype=dtype, name=name) for axes, name in zip(spec.split("->")[0].split(","), "xy", strict=True))
        fusion.add_output(tf.einsum(spec, x, y, dtype=dtype))
    return fusion


def numbers(fusion: tf.Fusion) -> list[Any]:
    """Of different magnitudes, with signs."""
    shapes = ([int(str(e)) for e in tv.shape] for tv in fusion.inputs)
    return [(RNG.standard_normal(s) * np.exp2(RNG.integers(-8, 8, s))).astype(np.float32) for s in shapes]


def parts(fusion: tf.Fusion, count: int) -> list[tf.TensorView]:
    return [e.output for e in fusion.exprs() if e.output.dtype is tf.bfloat16][:count]


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float32, (1, 8), elements=floats))
def test_three_parts_are_the_number(x: Any) -> None:
    """Whatever number, the greatest ones included, whose parts are all normal."""
    split = tf.split_products(product(1, 1, 8), "bf16x9")
    three = parts(split, 3)
    split.add_output(*three)
    _, *found = split.evaluate(x, np.ones((8, 1), np.float32))
    total = sum(part.astype(np.float64) for part in found)
    assert np.array_equal(total, x.astype(np.float64))
    for part, smaller in pairwise(found):
        assert (np.abs(smaller.astype(np.float64)) <= 2.0**-8 * (1 + 2.0**-7) * np.abs(part.astype(np.float64))).all()


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(a=fractions, b=fractions)
def test_what_is_left_out_of_one_product(name: str, a: float, b: float) -> None:
    """The pairs that are multiplied, added exactly, against the product."""
    way = SPLITS[name]

    def split(v: float) -> list[float]:
        found, rest = list[float](), np.float32(v)
        for _ in range(way.parts):
            found.append(float(rest.astype(ml_dtypes.bfloat16)))
            rest = np.float32(rest - np.float32(found[-1]))
        return found

    x, y = split(a), split(b)
    made = sum((Fraction(x[i]) * Fraction(y[j]) for i, j in way.pairs), Fraction(0))
    exact = Fraction(float(np.float32(a))) * Fraction(float(np.float32(b)))
    assert abs(made - exact) <= Fraction(way.left_out) * abs(exact)


@pytest.mark.parametrize("spec", ["mk,kn->mn", "km,nk->mn", "bmk,kn->bmn", "bkm,bnk->bmn"])
@pytest.mark.parametrize("name", NAMES)
def test_errors_are_within_the_bound_and_shrink(name: Name, spec: str) -> None:
    k = 301
    fusion = product(17, 9, k, spec)
    x, y = numbers(fusion)
    exact, magnitudes = (np.einsum(spec, a.astype(np.float64), b.astype(np.float64)) for a, b in ((x, y), (np.abs(x), np.abs(y))))
    (made,) = tf.split_products(fusion, name).evaluate(x, y)
    errors = np.abs(made - exact) / magnitudes
    assert errors.max() <= SPLITS[name].bound(k)
    assert errors.max() <= SPLITS[name].left_out + 2.0**-23  # the reference adds in float64 and rounds once
    if name == "bf16x3":
        assert errors.max() > 2.0**-24  # it does leave something out


def test_the_order_is_from_the_smallest() -> None:
    for way in SPLITS.values():
        sizes = [i + j for i, j in way.pairs]
        assert sizes == sorted(sizes, reverse=True)
        assert len(set(way.pairs)) == len(way.pairs)
        assert {(j, i) for i, j in way.pairs} == set(way.pairs)
    assert [len(SPLITS[name].pairs) for name in NAMES] == [3, 6, 9]


@pytest.mark.parametrize(("name", "spec"), in_turn(NAMES, ["mk,kn->mn", "mk,nk->mn"]))
def test_kernels_are_proved_and_compute_the_split_product(name: Name, spec: str) -> None:
    split = tf.split_products(product(40, 24, 21, spec), name)
    checked(split, numbers(split))


@pytest.mark.parametrize("name", NAMES)
def test_tf_compile_takes_tensor_cores(name: Name) -> None:
    run = tf.compile(product(2048, 2048, 2048), target="H200", float32_products=name, cache=False)
    assert run.schedule is not None
    assert run.schedule.scheduler == "segmented"
    plain = tf.compile(product(2048, 2048, 2048), target="H200", cache=False).schedule
    assert plain is not None
    assert run.schedule.us < plain.us
    assert any("WGMMA" in str(kernel) for kernel in run.kernels)
    assert all(certificate.is_proved for certificate in run.certificates)


def test_tf_compile_computes_what_the_copy_does() -> None:
    fusion = product(33, 20, 40)
    x, y = numbers(fusion)
    (made,) = tf.compile(fusion, "sim", float32_products="bf16x3")(x, y)
    (wanted,) = tf.split_products(fusion, "bf16x3").evaluate(x, y)
    assert np.abs(made - wanted).max() <= 2.0**-20 * np.abs(wanted).max()
    (plain,) = tf.compile(fusion, "sim")(x, y)
    assert np.abs(made - plain).max() > 0


def test_a_tensor_is_split_once() -> None:
    with tf.Fusion("gram") as fusion:
        x = tf.define_tensor([20, 24], name="x")
        fusion.add_output(x @ x.T)
    split = tf.split_products(fusion, "bf16x3")
    assert len([tv for tv in split.tensors() if tv.dtype is tf.bfloat16]) == 4  # two parts, and their two orders
    given = [numbers(fusion)[0]]
    exact = given[0].astype(np.float64) @ given[0].astype(np.float64).T
    assert np.abs(split.evaluate(*given)[0] - exact).max() <= SPLITS["bf16x3"].bound(24) * (np.abs(given[0]).astype(np.float64) @ np.abs(given[0]).T).max()


def test_other_sums_stay() -> None:
    with tf.Fusion("others") as fusion:
        x, y = tf.define_tensor([4, 8], name="x"), tf.define_tensor([8, 4], dtype=tf.bfloat16, name="y")
        fusion.add_output(tf.sum(x * x, axis=1))
        fusion.add_output(tf.matmul(y, y.T, dtype=tf.float32))
        fusion.add_output(tf.matmul(tf.cast(x, tf.float64), tf.cast(x, tf.float64).T))
    assert str(tf.split_products(fusion, "bf16x9")) == str(fusion)


def test_symbolic_extents() -> None:
    fusion = product(tf.dim("M", min=1), "N", tf.dim("K", min=1))
    split = tf.split_products(fusion, "bf16x6")
    x, y = RNG.standard_normal((5, 7)).astype(np.float32), RNG.standard_normal((7, 3)).astype(np.float32)
    assert np.allclose(split.evaluate(x, y)[0], x.astype(np.float64) @ y, rtol=0, atol=1e-5)


def test_unknown_choices_are_errors() -> None:
    with pytest.raises(UnsupportedError, match="use one of 'ieee', 'bf16x3', 'bf16x6', 'bf16x9'"):
        tf.split_products(product(4, 4, 4), "bf16x4")
    for other in (["bf16x3"], None, 3):
        with pytest.raises(UnsupportedError, match="there is no such choice"):
            tf.compile(product(4, 4, 4), "sim", float32_products=cast("Any", other))
    assert str(tf.split_products(product(4, 4, 4), "ieee")) == str(product(4, 4, 4))
