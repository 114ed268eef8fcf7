"""Boxes and tiles: the bytes that they touch, where they may begin, and what is said of those that are not known to fit."""

import pytest

from taskfuse.check import Verdict, verify
from taskfuse.kir import parse_kernel

BOX = """\
KERNEL box(x: float32[N, 32]) -> (y: float32[8, 32])
  DIM N min {least}
  TENSORMAP m = y box (8, 32) swizzle {swizzle}
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[{shape}] align 1024

FOR i in 0..8:
  s[{row}, threadIdx.x] = copy(x[i, threadIdx.x])
FENCE proxy.async
SYNC block
IF threadIdx.x == 0:
  TMA m({at}, 0) <- s[{first}]
  COMMIT bulk
  WAIT_GROUP bulk <= 0
"""


def box(shape: str = "8, 32", row: str = "i", first: str = "0, 0", least: int = 8, swizzle: int = 0, at: str = "0") -> str:
    return BOX.format(shape=shape, row=row, first=first, least=least, swizzle=swizzle, at=at)


@pytest.mark.parametrize(
    "text",
    [
        box(),
        box(swizzle=128),
        box(shape="2, 8, 32", row="1, i", first="1, 0, 0"),
        box(shape="N, 32", first="N - 8, 0", row="N - 8 + i"),
        box(shape="N, 32"),
        box(shape="3, N, 32", row="1, i", first="1, 0, 0", least=8),
        box(shape="64, 4, 8", row="8*i + threadIdx.x//32, threadIdx.x//8", first="0, 0, 0").replace(
            "threadIdx.x] = copy(x", "threadIdx.x % 8] = copy(x"
        ),  # rows of the box over several axes
    ],
)
def test_boxes_that_fit_are_proved(text: str) -> None:
    certificate = verify(parse_kernel(text))
    certificate.require()
    assert "boxes and tiles: 1 boxes and tiles lie inside their buffers" in str(certificate)
    assert "alignment: " in str(certificate)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (box(shape="N, 32", first="N - 4, 0", row="N - 8 + i"), "its box of 1024 bytes from byte 128*N - 512 on is not known to lie inside the buffer"),
        (box(shape="N, 32", least=4).replace("0..8", "0..N"), "its box of 1024 bytes from byte 0 on is not known to lie inside the buffer"),
        (box(shape="2, 8, 32", row="1, i", first="1, 1, 0"), "its box of 1024 bytes from byte 1152 on is not known to lie inside the buffer"),
    ],
)
def test_boxes_that_may_not_fit_are_refuted(text: str, reason: str) -> None:
    certificate = verify(parse_kernel(text))
    assert certificate.verdict is Verdict.REFUTED
    assert reason in [o.reason for o in certificate.failures]


def test_an_empty_tensor_has_no_map() -> None:
    text = box().replace("-> (y: float32[8, 32])", "-> (y: float32[M, 32])").replace("DIM N", "DIM M, N")
    failures = verify(parse_kernel(text)).failures
    assert f"{failures[0].subject}: {failures[0].reason}" == "y: a transfer of an empty tensor: it has no map"
    assert failures[1].reason == "a transfer where extent M of 'y' may be 0: an empty tensor has no map"
    verify(parse_kernel(text.replace("IF threadIdx.x == 0:", "IF threadIdx.x == 0 && M > 0:"))).require()
    verify(parse_kernel(text.replace("DIM M", "DIM M min 1"))).require()
