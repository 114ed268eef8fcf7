"""Results of 16 bits: by which instructions floats are rounded, and that moves between elements of one dtype round nothing."""

import re

import pytest

import taskfuse as tf
from taskfuse.cuda.source import emit
from taskfuse.dtypes import DType


def text(dtype: DType, vector: bool, divides: bool = False, alone: bool = False) -> str:
    """The body of ``-(x * y) + y``, or of the quotient, whose steps round, in registers of their own."""
    with tf.Fusion("chain") as fusion:
        x, y = (tf.define_tensor([4096], dtype=dtype, name=name) for name in "xy")
        product = tf.copy(-(x * y))
        fusion.add_output(product / y if divides else tf.exp(product) if alone else product + y)
    config = tf.schedulers.PointwiseConfig(vector=8 if vector else 1, columns=128, rows=1, unroll=1)
    tf.schedulers.pointwise(fusion, config)
    return emit(tf.lower(fusion)).text.split("__global__")[1]


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16], ids=str)
def test_only_what_vectors_store_is_rounded_in_pairs(dtype: DType) -> None:
    body = text(dtype, vector=True, alone=True)
    one = "rounded_to_bfloat16" if dtype is tf.bfloat16 else "to_float16"
    assert len(re.findall(rf"\b{one}\(", body)) == 2  # the product and its negation
    assert len(re.findall(rf"\bto_packed_{dtype}\(", body)) == 1
    assert "to_packed" not in text(dtype, vector=False, alone=True)
    assert "16x2_sum(two_1, word(&" in text(dtype, vector=True)  # two at a time round by themselves


def test_bfloat16_that_stays_in_registers_is_the_rounded_float() -> None:
    """Between computations: what a vector loads or stores is bits."""
    body = text(tf.bfloat16, vector=True)
    assert len(re.findall(r"^  float \w+;$", body, re.M)) == 3
    assert len(re.findall(r"^  alignas\(16\) unsigned short \w+\[8\];$", body, re.M)) == 3
    assert "bits_of_bfloat16(" not in body
    with tf.Fusion("both") as fusion:
        x = tf.define_tensor([4096], dtype=tf.bfloat16, name="x")
        y = -x
        fusion.add_output(tf.copy(tf.copy(y)))
        fusion.add_output(tf.exp(y))
    tf.schedulers.pointwise(fusion, tf.schedulers.PointwiseConfig(vector=1, columns=128, rows=1, unroll=1))
    assert "= bits_of_bfloat16(" in emit(tf.lower(fusion)).text.split("__global__")[1]  # a copy rounds nothing again


def test_copies_within_a_dtype_convert_nothing() -> None:
    copies = [line for line in text(tf.bfloat16, vector=True, alone=True).splitlines() if re.fullmatch(r"\s*\w+(\[\w+\])? = \w+(\[\w+\])?;", line)]
    assert copies


def test_quotients_of_bfloat16_take_no_branch() -> None:
    assert "bfloat16_quotient(" in text(tf.bfloat16, vector=True, divides=True)
    assert "usual_quotient(" in text(tf.float16, vector=True, divides=True)
