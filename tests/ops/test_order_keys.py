"""Order keys: integers in the order of elements."""

from itertools import pairwise

import numpy as np
import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import DTYPES, as_dtype
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.order_keys import KeyLayout, of_rank_bits, rank_bits, rank_width
from tests.ops.reference import Array, evaluated

FLOATS = [-np.inf, -3e38, -2.5, -1.0, -1e-45, -0.0, 0.0, 1e-45, 1.0, 2.5, 3e38, np.inf, np.nan]


def rising(name: str) -> Array:
    """Elements of a dtype in order."""
    dtype = as_dtype(name)
    with np.errstate(all="ignore"):
        if dtype.is_float:
            return np.array(FLOATS if dtype.has_infinity else [n for n in FLOATS if not abs(n) > 3]).astype(dtype.numpy)
        if dtype.is_bool:
            return np.array([False, True])
        return np.array(sorted({dtype.min_value, dtype.min_value + 1, 0, 1, dtype.max_value - 1, dtype.max_value}), dtype.numpy)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", DTYPES)
def test_rank_bits_have_the_order_of_the_elements(name: str, descending: bool) -> None:
    x = rising(name)
    ranks = [int(r) for r in evaluated(lambda a: rank_bits(a, descending), x)]
    assert max(ranks) < 2 ** rank_width(as_dtype(name))
    for (a, rank), (b, after) in pairwise(zip(x.astype(np.longdouble), ranks, strict=True)):
        assert (rank == after) if a == b or (np.isnan(a) and np.isnan(b)) else (rank > after) if descending else (rank < after), (a, b)
    back = evaluated(lambda a: of_rank_bits(rank_bits(a, descending), a.dtype, descending), x)
    np.testing.assert_array_equal(back.astype(np.float64), x.astype(np.float64))


@pytest.mark.parametrize("name", [name for name, dtype in DTYPES.items() if dtype.bits < 64])
def test_keys_hold_the_element_and_its_index(name: str) -> None:
    x = np.stack([rising(name), rising(name)[::-1]], 1)

    def laid_out(a: TensorView) -> tuple[KeyLayout, TensorView]:
        layout = KeyLayout.of(a, 0, descending=True)
        assert layout is not None
        return layout, layout.keys(a)

    keys = evaluated(lambda a: laid_out(a)[1], x)
    assert all(len(set(keys[:, k])) == len(x) for k in (0, 1))
    values = evaluated(lambda a: laid_out(a)[0].values(laid_out(a)[1]), x).astype(np.float64)
    np.testing.assert_array_equal(values, x.astype(np.float64))
    assert not as_dtype(name).is_float or (np.signbit(values) == np.signbit(x.astype(np.float64)))[values == 0].all()
    assert (evaluated(lambda a: laid_out(a)[0].indices(laid_out(a)[1]), x) == np.arange(len(x))[:, None]).all()


def test_widths() -> None:
    with Fusion("f"):
        short, long = tf.define_tensor([4, 2**15], "bfloat16"), tf.define_tensor(["M", "N"], "bfloat16")
        assert (short_layout := KeyLayout.of(short, 1, descending=False)) is not None
        assert (long_layout := KeyLayout.of(long, 1, descending=False)) is not None
        assert (short_layout.key.name, long_layout.key.name, long_layout.index_bits) == ("uint32", "uint64", 31)
        assert KeyLayout.of(tf.define_tensor([4], "int64"), 0, descending=False) is None
        assert KeyLayout.of(tf.define_tensor([2**32], "int8"), 0, descending=False) is None
