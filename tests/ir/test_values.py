"""Value modes: native numbers and modular values."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.dtypes import DTYPES, DType, bool_, float8_e4m3, float16, float32, float64, int8, int32, int64, uint8, uint32, uint64
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule, Elementwise
from taskfuse.ir.values import MODULAR, NATIVE, Values

WORDS = st.integers(0, 2**64 - 1).map(lambda n: np.array([n], np.uint64))


def modular(name: str, *args: np.ndarray) -> np.ndarray:
    op = ELEMENTWISE[name]
    out = bool_ if op.rule is DTypeRule.BOOL else float32
    return MODULAR.apply(op, args, [float32] * len(args), float32, out)


@given(WORDS, WORDS, WORDS)
def test_ring_laws(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    assert modular("add", a, modular("add", b, c)) == modular("add", modular("add", a, b), c)
    assert modular("mul", a, modular("mul", b, c)) == modular("mul", modular("mul", a, b), c)
    assert modular("add", a, b) == modular("add", b, a)
    assert modular("mul", a, modular("add", b, c)) == modular("add", modular("mul", a, b), modular("mul", a, c))
    assert modular("fma", a, b, c) == modular("add", modular("mul", a, b), c)
    assert modular("sub", a, b) == modular("add", a, modular("neg", b))
    assert modular("div", modular("add", a, b), c) == modular("add", modular("div", a, c), modular("div", b, c))
    assert modular("maximum", a, modular("maximum", b, c)) == modular("maximum", modular("maximum", a, b), c)


@given(WORDS, WORDS)
def test_ring_hashes_tell_operands_and_functions_apart(a: np.ndarray, b: np.ndarray) -> None:
    assert modular("sin", a) != modular("cos", a)
    assert modular("exp", a) == modular("exp", a)
    if a != b:
        assert modular("sin", a) != modular("sin", b)
        assert modular("atan2", a, b) != modular("atan2", b, a)
        assert modular("div", a, b) != modular("div", b, a) or (a == 0 and b == 0)
    assert modular("lt", a, b) == (a < b)


def test_ring_is_the_same_in_every_process() -> None:
    code = (
        "import numpy as np; from taskfuse.ir.values import MODULAR; from taskfuse.ir.elementwise import ELEMENTWISE; from taskfuse.dtypes import float32;"
        "print(int(MODULAR.apply(ELEMENTWISE['tanh'], [MODULAR.literal(0.25, float32)], [float32], float32, float32)))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7", "PYTHONPATH": "."})
    assert int(other.stdout) == int(modular("tanh", MODULAR.literal(0.25, float32)))


def test_ring_words_of_floats() -> None:
    words = MODULAR.encode(np.array([0.0, -0.0, 1.0, 2.0, -1.0, np.inf, -np.inf], np.float32), float32)
    assert words.tolist() == [0, 0, 1, 2, 2**64 - 1, 2**64 - 1, 0]
    assert MODULAR.literal(0.5, float16) == MODULAR.literal(0.5, float64)
    assert MODULAR.literal(0.5, float32) != MODULAR.literal(0.25, float32)
    assert MODULAR.encode(np.array([np.nan], np.float32), float32) == MODULAR.encode(np.array([-np.nan], np.float64), float64)
    given_words = np.array([1, 2**63], np.uint64)
    assert MODULAR.encode(given_words, float32) is given_words


def test_ring_casts() -> None:
    assert MODULAR.cast(np.array([1, -2], np.int8), int8, float32).tolist() == [1, 2**64 - 2]
    assert MODULAR.cast(np.array([3], np.uint8), uint8, float32).tolist() == [3]
    words = np.array([5, 2**40], np.uint64)
    assert MODULAR.cast(words, float32, float16) is words
    assert MODULAR.cast(words, float32, int32).dtype == np.int32
    assert MODULAR.cast(np.array([0, 9], np.uint64), float32, bool_).tolist() == [False, True]
    assert MODULAR.cast(np.array([300], np.int32), int32, uint8).tolist() == [44]


@pytest.mark.parametrize("values", [NATIVE, MODULAR], ids=lambda v: v.name)
@pytest.mark.parametrize("name", COMBINES)
def test_neutral_elements(values: Values, name: str) -> None:
    combine = COMBINES[name]
    for dtype in DTYPES.values():
        if (combine.op.rule is DTypeRule.LOGICAL and not dtype.is_bool) or (combine.op.rule is DTypeRule.BITWISE and dtype.is_float):
            continue
        if combine.op.rule is DTypeRule.FLOAT and dtype is not float64:  # each step rounds
            continue
        array = values.encode(np.arange(6).reshape(2, 3).astype(dtype.numpy), dtype)
        neutral = values.literal(combine.neutral(dtype), dtype)
        assert (values.combine(combine, array, neutral, dtype) == array).all()
        empty = values.reduce(combine, array[:, :0], (1,), dtype)
        assert (empty == neutral).all()
        assert empty.shape == (2,)
        assert empty.dtype == values.storage(dtype)
        one_by_one = values.combine(combine, values.combine(combine, array[:, 0], array[:, 1], dtype), array[:, 2], dtype)
        np.testing.assert_allclose(values.reduce(combine, array, (1,), dtype), one_by_one, rtol=1e-15 if name == "logaddexp" else 0)


def operand_dtypes(op: Elementwise) -> list[DType]:
    match op.rule:
        case DTypeRule.LOGICAL:
            return [bool_]
        case DTypeRule.BITWISE:
            return [bool_, int32]
        case DTypeRule.SHIFT:
            return [int32]
        case DTypeRule.OF_BITS:
            return [uint32, uint64]
        case DTypeRule.FLOAT | DTypeRule.DIVIDE | DTypeRule.BITS:
            return [float32, float64, float16]
        case DTypeRule.NUMERIC:
            return [float32, float16, int32]
        case _:
            return [float32, float8_e4m3, int32, bool_]


@pytest.mark.parametrize("values", [NATIVE, MODULAR], ids=lambda v: v.name)
@pytest.mark.parametrize("op", ELEMENTWISE.values(), ids=str)
def test_every_row_is_total_and_silent(values: Values, op: Elementwise) -> None:
    for dtype in operand_dtypes(op):
        special = [0, -1, 1, 3, float("inf"), float("-inf"), float("nan"), 1e30] if dtype.is_float else [0, 1, 1, 0]
        with np.errstate(all="ignore"):
            array = values.encode(np.array(special).astype(dtype.numpy), dtype)
        out = op.result_dtype(dtype)
        args = [array, array[::-1], array][: op.arity]
        dtypes = [dtype] * op.arity
        if op.rule is DTypeRule.SELECT:
            args[0], dtypes[0] = np.arange(len(array)) % 2 == 0, bool_
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = values.apply(op, args, dtypes, op.compute_dtype(dtypes, out), out)
            scalar = values.apply(op, [a[1] for a in args], dtypes, op.compute_dtype(dtypes, out), out)
        assert result.dtype == values.storage(out)
        assert result.shape == array.shape
        assert scalar.shape == ()
        if op.commutative:
            swapped = values.apply(op, [args[1], args[0]], dtypes, op.compute_dtype(dtypes, out), out)
            assert np.array_equal(swapped, result, equal_nan=values is NATIVE and out.is_float)


def test_small_floats_are_computed_in_float32_and_rounded_once() -> None:
    a, b, c = (np.array([x], np.float16) for x in (1.001, 1.001, -1.002))
    fused = NATIVE.apply(ELEMENTWISE["fma"], [a, b, c], [float16] * 3, float32, float16)
    expected = (a.astype(np.float64) * b + c).astype(np.float16)
    assert fused == expected
    assert fused != a * b + c


def test_steps_in_small_floats_are_not_rounded() -> None:
    a, b, t = (np.array([x], np.float16) for x in (0.655, -0.655, 0.655))
    (found,) = NATIVE.apply(ELEMENTWISE["lerp"], (a, b, t), (float16,) * 3, float16, float16)
    wide = [x.astype(np.float32) for x in (a, b, t)]
    (wanted,) = ELEMENTWISE["lerp"].function(*wide).astype(np.float16)
    (stepwise,) = ELEMENTWISE["lerp"].function(a, b, t)
    assert found == wanted != stepwise
    assert NATIVE.apply(ELEMENTWISE["lt"], (a, t), (float16,) * 2, float16, bool_).dtype == np.bool_


def test_native_conversions_from_float_clamp() -> None:
    given_floats = np.array([np.nan, np.inf, -np.inf, 2.9, -2.9, 1e30, 2.0**63], np.float64)
    assert NATIVE.cast(given_floats, float64, int8).tolist() == [0, 127, -128, 2, -2, 127, 127]
    assert NATIVE.cast(given_floats, float64, int64).tolist() == [0, 2**63 - 1, -(2**63), 2, -2, 2**63 - 1, 2**63 - 1]
    assert NATIVE.cast(given_floats, float64, uint64).tolist() == [0, 2**64 - 1, 0, 2, 0, 2**64 - 1, 2**63]
    assert NATIVE.cast(given_floats, float64, bool_).tolist() == [True] * 7


def test_integer_powers() -> None:
    base, power = np.array([2, 2, 1, -1, -1, 0, -3], np.int32), np.array([3, -1, -5, -3, -2, -1, 3], np.int32)
    result = NATIVE.apply(ELEMENTWISE["pow"], [base, power], [int32, int32], int32, int32)
    assert result.tolist() == [8, 0, 1, -1, 1, 0, -27]


def test_native_sums_are_rounded_once() -> None:
    ones = np.full(4096, 0.1, np.float16)
    total = NATIVE.reduce(COMBINES["add"], ones, (0,), float32)
    assert total == np.float32(ones.astype(np.float64).sum())
