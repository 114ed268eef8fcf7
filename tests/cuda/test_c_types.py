"""C types, literals and conversions of dtypes, as text. Their values are in test_functions.py."""

import pytest

import taskfuse as tf
from taskfuse.cuda.c_types import c_type, convert, literal, rounded, wrapping_type
from taskfuse.dtypes import DTYPES, DType


@pytest.mark.parametrize(
    ("dtype", "stored", "wraps"),
    [
        (tf.float64, "double", "double"),
        (tf.float16, "unsigned short", "unsigned short"),
        (tf.float8_e4m3, "unsigned char", "unsigned char"),
        (tf.int8, "signed char", "unsigned"),  # unsigned char would be promoted to int
        (tf.int32, "int", "unsigned"),
        (tf.uint16, "unsigned short", "unsigned"),
        (tf.int64, "long long", "unsigned long long"),
        (tf.bool_, "bool", "bool"),
    ],
)
def test_types(dtype: DType, stored: str, wraps: str) -> None:
    assert c_type(dtype) == stored
    assert wrapping_type(dtype) == wraps


def test_every_dtype_has_a_type_of_its_size() -> None:
    sizes = {"bool": 1, "signed char": 1, "unsigned char": 1, "short": 2, "unsigned short": 2, "int": 4, "unsigned": 4, "float": 4, "double": 8}
    sizes |= {"long long": 8, "unsigned long long": 8}
    assert all(sizes[c_type(d)] == d.itemsize for d in DTYPES.values())


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, "float32", "0.1f"),
        (1, "float32", "1.0f"),
        (1e20, "float32", "1e+20f"),
        (16777217, "float32", "16777216.0f"),
        (-0.0, "float64", "-0.0"),
        (0.1, "float64", "0.1"),
        (1e-45, "float32", "1e-45f"),
        (float("inf"), "float32", "__int_as_float(0x7f800000)"),
        (float("-inf"), "float64", "-__longlong_as_double(0x7ff0000000000000)"),
        (float("nan"), "float32", "__int_as_float(0x7fffffff)"),
        (1.0, "bfloat16", "(unsigned short)0x3f80"),
        (1e9, "float8_e4m3", "(unsigned char)0x7f"),
        (-3, "int32", "-3"),
        (5, "int64", "5ll"),
        (-(2**31), "int32", "(-2147483647 - 1)"),
        (-(2**63), "int64", "(-9223372036854775807ll - 1)"),
        (-128, "int8", "-128"),
        (2**64 - 1, "uint64", "18446744073709551615ull"),
        (2**32 - 1, "uint32", "4294967295u"),
        (True, "bool", "true"),
        (2, "bool", "true"),
    ],
)
def test_literal(value: int | float | bool, dtype: str, text: str) -> None:
    assert literal(value, DTYPES[dtype]) == text


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        (tf.float32, tf.float32, "x"),
        (tf.float32, tf.bool_, "(x != 0)"),
        (tf.bfloat16, tf.bool_, "((x & 0x7fff) != 0)"),  # -0.0 is zero
        (tf.float8_e5m2, tf.bool_, "((x & 0x7f) != 0)"),
        (tf.int32, tf.float32, "((float)x)"),
        (tf.int64, tf.int8, "((signed char)x)"),
        (tf.int8, tf.float32, "float_of_char(x)"),
        (tf.uint16, tf.bfloat16, "to_bfloat16(float_of_ushort(x))"),
        (tf.bfloat16, tf.float32, "from_bfloat16(x)"),
        (tf.float32, tf.float16, "to_float16(x)"),
        (tf.float8_e4m3, tf.bfloat16, "to_bfloat16(from_float8_e4m3(x))"),
        (tf.float64, tf.float16, "double_to_float16(x)"),  # rounded once
        (tf.float64, tf.bfloat16, "to_bfloat16(((float)x))"),
        (tf.int64, tf.bfloat16, "to_bfloat16(((float)x))"),
        (tf.float32, tf.int32, "float_to_int(x)"),
        (tf.float64, tf.uint64, "double_to_ull(x)"),
        (tf.float32, tf.int8, "float_to_char(x)"),
        (tf.bfloat16, tf.uint8, "float_to_uchar(from_bfloat16(x))"),
        (tf.float64, tf.int8, "((signed char)min(max(double_to_int(x), -128), 127))"),
    ],
)
def test_conversions(source: DType, target: DType, text: str) -> None:
    assert convert("x", source, target).text == text


def test_numbers_that_bfloat16_has_are_not_rounded() -> None:
    """Those of 8 bits, whether integers or floats."""
    assert rounded("x", tf.uint8).text == "float_of_uchar(x)"
    assert rounded("x", tf.float8_e5m2).text == "from_float8_e5m2(x)"
    assert rounded("x", tf.int16).text == "rounded_to_bfloat16(float_of_short(x))"


def test_neighbors_are_rounded_into_one_register() -> None:
    assert convert("x", tf.float32, tf.bfloat16, packed=True).text == "to_packed_bfloat16(x)"
    assert convert("x", tf.float32, tf.float8_e4m3, packed=True).text == "to_float8_e4m3(x)"  # bytes are not packed so


def test_a_conversion_brings_what_it_calls() -> None:
    assert {h.name for h in convert("x", tf.float8_e4m3, tf.bfloat16).helpers} == {"to_bfloat16", "from_float8_e4m3"}
    assert not convert("x", tf.int32, tf.float32).helpers
