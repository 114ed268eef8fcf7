"""Factors that no copy engine or tensor core takes are packed by kernels of their own where that is faster; all shapes and layouts compute the same."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR
from taskfuse.schedulers.packed_products import pack_products
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.target import DEFAULT
from tests.schedulers.attentions import attention, values_of_8_bits
from tests.schedulers.oracle import checked
from tests.schedulers.tried import arguments


def product(m: Any, n: Any, k: Any, dtype: tf.DType = tf.bfloat16, a: str = "mk", b: str = "nk", out: tf.DType | None = None) -> tf.Fusion:
    extents = {"m": m, "n": n, "k": k}
    sums = tf.int32 if dtype.itemsize == 1 and not dtype.is_float else tf.float32
    with tf.Fusion("product") as fusion:
        x, y = (tf.define_tensor([extents[c] for c in axes], dtype=dtype, name=name) for axes, name in ((a, "a"), (b, "b")))
        z = tf.einsum(f"{a},{b}->mn", x, y, dtype=sums)
        fusion.add_output(z if out is None else tf.cast(z, out))
    return fusion


def packs(fusion: tf.Fusion, **sizes: int) -> bool:
    return pack_products(fusion, Sizes(fusion, sizes or None, DEFAULT)) is not None


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float8_e4m3, tf.int8])
@pytest.mark.parametrize(("a", "b"), [("mk", "nk"), ("km", "kn")])
def test_rows_of_odd_length_are_packed(dtype: tf.DType, a: str, b: str) -> None:
    found = choose_segments(product(4095, 4095, 4095, dtype, a, b))
    assert found.steps[-1].schedule.scheduler == "matmul"
    assert "pack_factors" in found.code
    assert not any("copied by threads" in note for note in found.steps[-1].schedule.notes)


def test_what_makes_a_factor_packs_it_beside_a_copy_of_the_other() -> None:
    with tf.Fusion("layer") as fusion:
        x, w = tf.define_tensor([4096, 1023], dtype=tf.bfloat16, name="x"), tf.define_tensor([1023, 777], dtype=tf.bfloat16, name="w")
        fusion.add_output(tf.gelu(tf.relu(x) @ w))
    run = tf.compile(fusion, "sim", cache=False)
    assert run.schedule is not None
    assert "pack_factors(2, 8, [0, 1])" in run.schedule.code
    assert len(run.kernels) == 2
    assert "TMA" in str(run.kernels[-1])
    assert run.schedule.us < 40


def test_factors_of_float32_are_turned_once() -> None:
    """By a kernel for each, or for both if they are one tensor; not by the threads of each tile."""
    with tf.Fusion("gram") as gram:
        x = tf.define_tensor([4096, 4096], name="x")
        gram.add_output(x @ x.T)
    for fusion, copies in ((product(4096, 4096, 4096, tf.float32), 2), (product(4096, 4096, 4096, tf.float32, a="km"), 1), (gram, 1)):
        found = choose_segments(fusion)
        assert [step.schedule.scheduler for step in found.steps] == [*["transpose"] * copies, "simt_gemm"]
        assert "turned=True" in found.code
        assert "turned(" not in found.steps[-1].schedule.code


def test_a_batch_of_one_is_no_axis() -> None:
    with tf.Fusion("one") as fusion:
        x, w = tf.define_tensor([1, 4096, 1023], dtype=tf.bfloat16), tf.define_tensor([1, 1023, 777], dtype=tf.bfloat16)
        fusion.add_output(x @ w)
    assert packs(fusion)


def heads(batch: int, heads: int, m: int, k: int, n: int) -> tf.Fusion:
    """A product for each head, whose factors are views: of scores, and of keys side by side."""
    with tf.Fusion("heads") as fusion:
        scores = tf.define_tensor([batch, heads, m, k], dtype=tf.bfloat16, name="scores")
        values = tf.define_tensor([batch, k, heads * n], dtype=tf.bfloat16, name="values")
        rows = tf.reshape(scores, [batch * heads, m, k])
        columns = tf.reshape(tf.permute(tf.reshape(values, [batch, k, heads, n]), [0, 2, 1, 3]), [batch * heads, k, n])
        fusion.add_output(tf.matmul(rows, columns, dtype=tf.float32))
    return fusion


def test_views_of_odd_rows_are_packed() -> None:
    assert packs(heads(2, 12, 453, 453, 64))
    fusion = heads(2, 3, 13, 11, 8)
    packed, _ = tf.copy_fusion(fusion)
    packed.outputs[0].pack_factors(3, 8)
    given = arguments(fusion)
    assert checked(packed, given).steps
    assert np.array_equal(evaluate(packed, given, MODULAR)[0], evaluate(fusion, given, MODULAR)[0])


@pytest.mark.parametrize("dtype", [tf.float8_e4m3, tf.int8])
def test_factors_of_8_bits_are_transposed_alone(dtype: tf.DType) -> None:
    found = choose_segments(product(4096, 4096, 4096, dtype, "mk", "kn"))
    assert [step.schedule.scheduler for step in found.steps] == ["transpose", "matmul"]
    assert found.steps[0].arguments == ("b",)


def test_a_tensor_times_itself_is_packed_where_tensor_cores_do_not_take_it() -> None:
    """As rows it lies as they take it, and as columns it does not."""
    with tf.Fusion("square") as fusion:
        x = tf.define_tensor([4096, 4096], dtype=tf.int8, name="x")
        fusion.add_output(tf.matmul(x, x, dtype=tf.int32))
    script = pack_products(fusion, Sizes(fusion, None, DEFAULT))
    assert script is not None
    assert script.lines[-1].endswith("pack_factors(2, 16, [1])")


def test_a_factor_that_the_same_kernel_computes_is_packed_there() -> None:
    """Packing costs no pass of its own over what another kernel makes."""
    with tf.Fusion("product") as fusion:
        a, b = tf.define_tensor([2048, 1023], dtype=tf.bfloat16, name="a"), tf.define_tensor([2048, 1023], dtype=tf.bfloat16, name="b")
        fusion.add_output(tf.matmul(tf.exp(a), b.T, dtype=tf.float32))
    found = choose_segments(fusion)
    assert found.steps[-1].schedule.scheduler == "matmul"
    assert len([part for step in found.steps for part in step.parts]) == 3


@pytest.mark.parametrize(
    "fusion",
    [
        product(4096, 4096, 4096),
        product(4096, 4096, 4096, a="km", b="kn"),
        product(4095, 4093, 4096),
        product(16, 16, 24, tf.float8_e4m3, b="kn"),
        product(4096, 4096, 4096, tf.float32, a="km", b="kn"),
        product(64, 64, 64, tf.float32),
    ],
    ids=["rows of 16 bytes", "either major", "odd rows and columns", "small", "float32 with k first", "small, float32"],
)
def test_what_gains_nothing_stays(fusion: tf.Fusion) -> None:
    assert not packs(fusion)


def test_symbolic_extents() -> None:
    fusion = product("M", "N", "K")
    assert packs(fusion)
    assert not packs(product("M", "N", tf.dim("K", multiple_of=8)))
    form = pack_products(fusion, Sizes(fusion, None, DEFAULT))
    assert form is not None
    x, y = (np.random.default_rng(0).standard_normal(shape).astype(tf.bfloat16.numpy) for shape in ((5, 9), (3, 9)))
    assert np.array_equal(evaluate(fusion, [x, y], MODULAR)[0], evaluate(form.fusion, [x, y], MODULAR)[0])


@settings(max_examples=7, deadline=None)
@given(
    m=st.integers(1, 70),
    n=st.integers(1, 70),
    k=st.integers(1, 90),
    dtype=st.sampled_from([tf.bfloat16, tf.float16, tf.float8_e4m3, tf.float8_e5m2, tf.int8, tf.uint8]),
    a=st.sampled_from(["mk", "km"]),
    b=st.sampled_from(["nk", "kn"]),
)
def test_kernels_of_packed_products_are_proved_and_right(m: int, n: int, k: int, dtype: tf.DType, a: str, b: str) -> None:
    """Shapes of every alignment, in the simulator: each kernel proved, and the words of the math without packing."""
    fusion = product(m, n, k, dtype, a, b)
    packed, _ = tf.copy_fusion(fusion)
    packed.outputs[0].pack_factors(2, 16 // dtype.itemsize)
    given = arguments(fusion)
    found = checked(packed, given)
    assert found.steps
    assert np.array_equal(evaluate(packed, given, MODULAR)[0], evaluate(fusion, given, MODULAR)[0])


def test_values_beside_exponentials_of_8_bits_are_packed_in_the_order_of_accumulators() -> None:
    def lines(fusion: tf.Fusion) -> list[str]:
        script = pack_products(fusion, Sizes(fusion, None, DEFAULT))
        return [] if script is None else [line.split(".")[-1] for line in script.lines[1:]]

    assert lines(values_of_8_bits(batch=(2,), is_packed=False)) == ["pack_factors(3, 16, [1], as_columns=True)"]
    assert lines(values_of_8_bits(sizes=(5, 70), is_packed=False)) == []  # queries and keys alone would be no walk
    assert lines(attention(sizes=(64, 64))) == []  # values of 16 bits are read as they are
