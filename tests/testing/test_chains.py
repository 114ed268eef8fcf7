"""Random chains of functions in registers."""

from collections import Counter

import numpy as np
import pytest

from taskfuse.cuda.source import emit
from taskfuse.dtypes import DType, bfloat16, float32, int32, uint8
from taskfuse.kir.verify import verify_kernel
from taskfuse.testing.chains import chain, functions


def test_one_seed_is_one_kernel() -> None:
    one, again, other = chain(3), chain(3), chain(4)
    assert str(one.kernel) == str(again.kernel) != str(other.kernel)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one.arguments, again.arguments, strict=True))


def test_chains_are_what_the_printer_distinguishes() -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        made = chain(seed)
        verify_kernel(made.kernel)
        text = emit(made.kernel).text.split("__global__")[1]
        seen.update(word for word in ("set_word(", "  float r", "copy16(", "__shfl_xor_sync", "#pragma unroll", "to_float8_e4m3(") if word in text)
    assert min(seen.values()) >= 3, seen
    assert len(seen) == 6


@pytest.mark.parametrize("dtype", [bfloat16, float32, int32, uint8])
def test_functions_have_one_right_result(dtype: DType) -> None:
    names = {op.name for op in functions(dtype)}
    assert {"add", "mul", "maximum"} <= names
    assert "where" in names
    assert not names & {"exp", "sin", "tanh", "cast", "copysign"}
