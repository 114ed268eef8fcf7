"""Dtypes and promotion."""

import copy
import itertools
import pickle

import numpy as np
import pytest

from taskfuse import dtypes
from taskfuse.dtypes import DTYPES, DType, as_dtype, result_type
from taskfuse.errors import DTypeError

IN_NUMPY = [d for d in DTYPES.values() if d.name.startswith(("bool", "int", "uint")) or d.name in ("float16", "float32", "float64")]


@pytest.mark.parametrize("a", IN_NUMPY, ids=str)
def test_promotion_is_that_of_numpy(a: DType) -> None:
    for b in IN_NUMPY:
        assert result_type(a, b).numpy == np.promote_types(a.numpy, b.numpy)
    for weak in (True, 3, 2.5):
        assert result_type(a, weak).numpy == np.result_type(a.numpy, weak)


def test_promotion_commutes_and_is_idempotent() -> None:
    for a, b in itertools.product(DTYPES.values(), repeat=2):
        assert result_type(a, b) is result_type(b, a)
        assert result_type(a, a) is a
        assert result_type(result_type(a, b), b) is result_type(a, b)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("bfloat16", "float16", "float32"),
        ("float8_e4m3", "float8_e5m2", "float16"),
        ("float8_e4m3", "float16", "float16"),
        ("float8_e5m2", "bfloat16", "bfloat16"),
        ("float8_e4m3", "bfloat16", "bfloat16"),
        ("float8_e4m3", "int8", "float16"),
        ("float8_e5m2", "bool", "float8_e5m2"),
        ("bfloat16", "uint8", "bfloat16"),
        ("bfloat16", "int16", "float32"),
        ("bfloat16", "int32", "float64"),
        ("float8_e4m3", "int64", "float64"),
        ("bfloat16", "float64", "float64"),
    ],
)
def test_promotion_beyond_numpy(a: str, b: str, expected: str) -> None:
    assert result_type(DTYPES[a], DTYPES[b]).name == expected


def test_promoted_float_holds_both() -> None:
    floats = [d for d in DTYPES.values() if d.is_float]
    for a, b in itertools.product(floats, repeat=2):
        wide = result_type(a, b)
        for narrow in (a, b):
            least = np.nextafter(np.zeros((), narrow.numpy), np.ones((), narrow.numpy))
            ends = np.array([narrow.max_value, narrow.min_value, float(least)]).astype(narrow.numpy)
            assert (ends.astype(wide.numpy).astype(np.float64) == ends.astype(np.float64)).all()


def test_weak_scalars_alone() -> None:
    assert result_type(True) is dtypes.bool_
    assert result_type(True, 1) is dtypes.int64
    assert result_type(1, 1.0) is dtypes.float64


def test_result_type_needs_an_operand() -> None:
    with pytest.raises(DTypeError) as caught:
        result_type()
    assert str(caught.value) == "result_type: needs an operand"


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_as_dtype(dtype: DType) -> None:
    assert as_dtype(dtype) is dtype
    assert as_dtype(dtype.name) is dtype
    assert as_dtype(dtype.numpy) is dtype
    assert as_dtype(dtype.numpy.type) is dtype
    assert dtype.itemsize == dtype.numpy.itemsize
    assert repr(dtype) == dtype.name


def test_as_dtype_of_python_types() -> None:
    assert [as_dtype(t) for t in (bool, int, float)] == [dtypes.bool_, dtypes.int64, dtypes.float64]


def test_as_dtype_refuses() -> None:
    with pytest.raises(DTypeError) as caught:
        as_dtype("float128")
    assert str(caught.value) == (
        "dtype: 'float128' is not a dtype of taskfuse\n"
        "help: use one of float64, float32, float16, bfloat16, float8_e4m3, float8_e5m2, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool"
    )
    with pytest.raises(DTypeError, match=r"'complex64' is complex: no dtype of taskfuse is\n.*last dimension of 2"):
        as_dtype("complex64")
    with pytest.raises(DTypeError, match="'real' is not a dtype of taskfuse"):
        as_dtype("real")


def test_compute_dtype() -> None:
    widened = {d.name for d in DTYPES.values() if d.compute is not d}
    assert widened == {"float16", "bfloat16", "float8_e4m3", "float8_e5m2"}
    assert all(DTYPES[name].compute is dtypes.float32 for name in widened)


def test_extremes() -> None:
    assert dtypes.float8_e4m3.lowest == -448.0
    assert dtypes.float8_e5m2.highest == float("inf")
    assert (dtypes.int8.lowest, dtypes.int8.highest) == (-128, 127)
    assert (dtypes.bool_.lowest, dtypes.bool_.highest) == (False, True)
    assert dtypes.bfloat16.precision == 8


def test_holds() -> None:
    assert dtypes.uint8.holds(255)
    assert not dtypes.uint8.holds(256)
    assert not dtypes.int8.holds(1.0)
    assert dtypes.float16.holds(3)
    assert dtypes.bool_.holds(True)
    assert not dtypes.bool_.holds(1)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_a_copy_is_the_dtype_itself(dtype: DType) -> None:
    """Also one that comes from another process: schedulers ask which dtype it is."""
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.copy(dtype) is copy.deepcopy(dtype) is dtype
