"""Copies of elements as they are, in the text."""

import re

from taskfuse.cuda.source import emit
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.variant import ArgumentLayout, Variant
from tests.cuda.adding import checked


def lines(kernel: Kernel, *forms: ArgumentLayout, wide: bool = False) -> list[str]:
    """The statements of the kernel's text, without its head."""
    tensors = sum(isinstance(p, TensorParam) for p in kernel.params)
    text = emit(kernel, Variant(forms or (ArgumentLayout.DENSE,) * tensors, wide)).text
    return [line.strip() for line in text[text.index('extern "C"') :].split("\n")]


def vector(width: int = 4, memory: str = "LOCAL r: float32[4]") -> Kernel:
    return checked(f"""\
KERNEL k(x: float32[N, 64]) -> (y: float32[N, 64])
  DIM N
  GRID (N, 1, 1)  BLOCK (16, 1, 1)
  {memory}

COPY r[0] <- x[blockIdx.x, 4*threadIdx.x] width {width}
COPY y[blockIdx.x, 4*threadIdx.x] <- r[0] width {width}
""")


def test_a_vector_is_one_instruction() -> None:
    found = lines(vector())
    assert "copy16(&r[0], &x[blockIdx_x * 64 + 4 * threadIdx_x]);" in found
    assert "copy16(&y[blockIdx_x * 64 + 4 * threadIdx_x], &r[0]);" in found
    assert any("copy8(" in line for line in lines(vector(2)))


def test_rows_that_are_aligned_are_vectors_strided_ones_are_not() -> None:
    rows = lines(vector(), ArgumentLayout.ROWS, ArgumentLayout.DENSE)
    assert sum("copy16(" in line for line in rows) == 2
    strided = lines(vector(), ArgumentLayout.STRIDED, ArgumentLayout.DENSE)
    assert sum("copy16(" in line for line in strided) == 1
    start = strided.index("for (int e = 0; e < 4; ++e) {")
    assert strided[start - 1] == "#pragma unroll"
    assert re.fullmatch(r"r\[e\] = x\[.*\* x_stride1\];", strided[start + 1])


GATHER = """\
KERNEL k(x: float32[M, 4], i: int64[8]) -> (y: float32[8, 4])
  DIM M
  GRID (1, 1, 1)  BLOCK (8, 1, 1)

GATHER y[threadIdx.x, 0] <- x[v, 0] at v = i[threadIdx.x] of M
"""


def test_a_gather_counts_from_the_end_and_gives_zero_outside() -> None:
    found = lines(checked(GATHER))
    text = "\n".join(found)
    value = re.search(r"long long (\w+_value) = i\[", text)
    assert value is not None
    at = value.group(1)
    assert f"if ({at} < 0) {at} += (long long)M;" in found
    assert f"if ({at} >= 0 && {at} < (long long)M) {{" in found
    assert any(re.fullmatch(r"const int \w+ = \(int\)\w+_value;", line) for line in found)
    otherwise = found.index("} else {")
    assert found[otherwise + 1].endswith("= 0.0f;")


def test_an_extent_past_32_bits_keeps_the_value_wide() -> None:
    assert any(re.match(r"const long long v = v_value;", line) for line in lines(checked(GATHER), wide=True))


def copied(dtype: str = "float32", width: int = 4, valid: str = "") -> Kernel:
    return checked(f"""\
KERNEL k(x: {dtype}[N, 64]) -> (y: {dtype}[N, 64])
  DIM N
  GRID (N, 1, 1)  BLOCK (16, 1, 1)
  SHARED s: {dtype}[64] align 16 @ 0

COPY.async s[4*threadIdx.x] <- x[blockIdx.x, 4*threadIdx.x] width {width}{valid}
COMMIT copy
WAIT_GROUP copy <= 0
SYNC block
y[blockIdx.x, threadIdx.x] = copy(s[threadIdx.x])
""")


def test_asynchronous_copies() -> None:
    assert "async_copy16(&s[4 * threadIdx_x], &x[blockIdx_x * 64 + 4 * threadIdx_x]);" in lines(copied())
    strided = lines(copied(), ArgumentLayout.STRIDED, ArgumentLayout.DENSE)
    assert any(line.startswith("async_copy4(&s[4 * threadIdx_x + e], ") for line in strided)


def test_elements_too_small_for_one_are_stored_and_published() -> None:
    strided = lines(copied("bfloat16"), ArgumentLayout.STRIDED, ArgumentLayout.DENSE)
    assert any(line.startswith("s[4 * threadIdx_x + e] = x[") for line in strided)
    assert any(line.startswith("__threadfence_block();") for line in strided)


def test_what_is_not_there_is_zero() -> None:
    valid = " if threadIdx.x < 7"
    text = "\n".join(lines(copied(valid=valid)))
    assert "async_copy16_or_zero(&s[4 * threadIdx_x], &x[blockIdx_x * 64 + 4 * threadIdx_x], threadIdx_x < 7);" in text
    small = "\n".join(lines(copied("bfloat16", valid=valid), ArgumentLayout.STRIDED, ArgumentLayout.DENSE))
    assert re.search(r"s\[4 \* threadIdx_x \+ e\] = threadIdx_x < 7 \? x\[.*\] : \(unsigned short\)0x0000;", small)
