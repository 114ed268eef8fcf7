"""Choices: the last case is read wherever the others fail, since the CUDA text does not ask for its condition; so a case holds everywhere."""

import pytest

from taskfuse.check import Verdict
from taskfuse.kir import parse_kernel

TEXT = """\
KERNEL pick(x: float32[{size}], w: float32[15]) -> (y: float32[15])
  GRID (1, 1, 1)  BLOCK (15, 1, 1)

y[threadIdx.x] = cat({cases})
"""


@pytest.mark.parametrize(
    ("size", "cases", "proved"),
    [
        # None: a case holds everywhere, and the last one reads outside
        (7, "x[threadIdx.x] if threadIdx.x < 7, w[threadIdx.x - 7] if threadIdx.x >= 7", True),
        (7, "x[threadIdx.x] if threadIdx.x < 7, w[threadIdx.x - 7] if threadIdx.x >= 7 && threadIdx.x < 15", True),
        (7, "x[threadIdx.x] if threadIdx.x < 7, otherwise w[threadIdx.x - 7]", True),
        (7, "x[threadIdx.x] if threadIdx.x < 6, w[threadIdx.x - 7] if threadIdx.x >= 7", False),
        (7, "x[threadIdx.x] if threadIdx.x < 0, w[threadIdx.x - 1] if threadIdx.x > 0", False),
        (7, "x[threadIdx.x] if threadIdx.x < 7", False),
        (15, "x[threadIdx.x] if threadIdx.x < 7", False),
        (15, "x[threadIdx.x] if threadIdx.x < 15", True),
        (7, "x[threadIdx.x] if threadIdx.x < 7, otherwise w[threadIdx.x - 8]", None),
    ],
)
def test_the_last_case_is_read_wherever_the_others_fail(size: int, cases: str, proved: bool | None) -> None:
    certificate = parse_kernel(TEXT.format(size=size, cases=cases)).verify()
    assert certificate.is_proved is bool(proved), str(certificate)
    if not proved:
        assert certificate.verdict is Verdict.REFUTED
        assert ("outside" if proved is None else "whether a case of a choice holds") in certificate.failures[0].reason


SHARED = """\
KERNEL pick(x: float32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[64] align 16

s[threadIdx.x] = copy(x[threadIdx.x])
y[threadIdx.x] = cat(x[threadIdx.x] if threadIdx.x < 31, s[threadIdx.x {other}] if threadIdx.x >= {cut})
"""


@pytest.mark.parametrize(("other", "cut", "proved"), [("- 0", 31, True), ("- 1", 31, False), ("- 1", 30, False)])
def test_what_the_last_case_reads_is_ordered(other: str, cut: int, proved: bool) -> None:
    certificate = parse_kernel(SHARED.format(other=other, cut=cut)).verify()
    assert certificate.is_proved is proved, str(certificate)
