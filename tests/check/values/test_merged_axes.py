"""Axes of an element as one number: tiles over merged axes, and over digits of axes. Twins with a wrong inverse are refuted."""

import pytest

from taskfuse.check import Verdict
from taskfuse.kir import parse_kernel

ROWS = """\
KERNEL rows(x: float32[N, 7]) -> (y: float32[N, 7])
  DIM N
  GRID (ceildiv(7*N, 16), 1, 1)  BLOCK (16, 1, 1)
  SHARED s: float32[4, 4] align 16 @ 0
  DEFINE s: float32[N, 7] = copy(x[i0, i1])
  DEFINE y: float32[N, 7] = copy(s[i0, i1])

IF m < 7*N:
  s[threadIdx.x//4, xor(threadIdx.x % 4, threadIdx.x//4)] = copy(x[(m)//7, (m) % 7])  ~ value s[(m)//7, (m) % 7]
SYNC block
IF m < 7*N:
  y[(m)//7, (m) % 7] = copy(s[threadIdx.x % 4, xor(threadIdx.x//4, threadIdx.x % 4)])  ~ value y[(m)//7, (m) % 7]
"""
WINDOWS = """\
KERNEL windows(x: float32[N, 4, 15]) -> (y: float32[N, 4, 15])
  DIM N
  GRID (15*N, 1, 1)  BLOCK (4, 1, 1)
  SHARED s: float32[2, 2] align 16 @ 0
  DEFINE s: float32[N, 4, 15] = copy(x[i0, i1, i2])
  DEFINE y: float32[N, 4, 15] = copy(s[i0, i1, i2])

s[threadIdx.x//2, xor(threadIdx.x % 2, threadIdx.x//2)] = copy(x[PLACE])  ~ value s[PLACE]
SYNC block
y[PLACE] = copy(s[threadIdx.x % 2, xor(threadIdx.x//2, threadIdx.x % 2)])  ~ value y[PLACE]
"""


PLACE = "(m)//60, (m)//5 % 4, 5*((m)//20 % 3) + (m) % 5"
"""The window and the pixel of a number, and where that is in a window."""


def kernel(text: str, writer: str, reader: str, places: tuple[str, str, str, str] = (PLACE, PLACE, PLACE, PLACE)) -> str:
    """A kernel in which a thread writes the element of one number, and reads that of another one.

    Args:
        places: of ``x``, and of what is claimed and stored.
    """
    parts = text.split("PLACE")
    if len(parts) > 1:
        text = "".join(part + place for part, place in zip(parts, (*places, ""), strict=True))
    lines = text.split("SYNC block")
    return "SYNC block".join(line.replace("(m", f"({number}").replace("IF m ", f"IF {number} ") for line, number in zip(lines, (writer, reader), strict=True))


@pytest.mark.parametrize(
    ("text", "writer", "right", "wrong"),
    [
        (
            ROWS,
            "16*blockIdx.x + threadIdx.x",
            "16*blockIdx.x + threadIdx.x//4 + 4*(threadIdx.x % 4)",
            "16*blockIdx.x + threadIdx.x//4 + 4*((threadIdx.x + 1) % 4)",
        ),
        (WINDOWS, "4*blockIdx.x + threadIdx.x", "4*blockIdx.x + threadIdx.x//2 + 2*(threadIdx.x % 2)", "4*blockIdx.x + threadIdx.x"),
    ],
)
def test_a_number_says_the_element(text: str, writer: str, right: str, wrong: str) -> None:
    assert parse_kernel(kernel(text, writer, right)).verify().is_proved
    assert parse_kernel(kernel(text, writer, wrong)).verify().verdict is Verdict.REFUTED


@pytest.mark.parametrize("where", range(4))
@pytest.mark.parametrize(
    "wrong",
    ["(m)//60, (m)//5 % 4, 5*((m)//20 % 3) + (m + 1) % 5", "(m)//60, (m)//5 % 3, 5*((m)//20 % 3) + (m) % 5", "(m)//60, (m)//5 % 4, 5*((m)//15 % 3) + (m) % 5"],
)
def test_other_digits_are_other_elements(where: int, wrong: str) -> None:
    places = tuple(wrong if k == where else PLACE for k in range(4))
    writer, reader = "4*blockIdx.x + threadIdx.x", "4*blockIdx.x + threadIdx.x//2 + 2*(threadIdx.x % 2)"
    assert not parse_kernel(kernel(WINDOWS, writer, reader, (places[0], places[1], places[2], places[3]))).verify().is_proved
