"""Reads at sums with a table's element: any number inside of the axis may be in the place of the sum."""

import pytest

from tests.executions import changed, gaps

HEAD = """\
KERNEL rows(x: float32[8], t: int32[5]) -> (y: float32[4, 8])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  SHARED s: float32[2, 4] align 16
  DEFINE s: float32[8] = copy(x[i0])
  DEFINE y: float32[4, 8] = pick(s[i1 + clamp(t[i0 of 5], 0, 8)] if i1 < clamp(t[i0 + 1 of 5], 0, 8) - clamp(t[i0 of 5], 0, 8), otherwise 0.0)

"""
DIGITS = """\
FOR i in 0..8:
  s[i//4, i % 4] = copy(x[i])  ~ value s[i]
FOR g in 0..4:
  FOR j in 0..8:
    y[g, j] = pad(s[(j + A)//4, (j + A) % 4] if j < B - A, otherwise 0.0)  ~ value y[g, j]
"""
SWIZZLED = """\
FOR i in 0..2:
  FOR k in 0..4:
    s[xor(i, k % 2), k] = copy(x[i + 2*k])  ~ value s[i + 2*k]
FOR g in 0..4:
  FOR j in 0..8:
    y[g, j] = pad(s[xor((j + A) % 2, (j + A)//2 % 2), (j + A)//2] if j < B - A, otherwise 0.0)  ~ value y[g, j]
"""


def kernel(body: str) -> str:
    return HEAD + body.replace("A", "clamp(t[g of 5], 0, 8)").replace("B", "clamp(t[g + 1 of 5], 0, 8)")


FUNCTIONS = """\
KERNEL rows(x: float32[8], t: int32[4]) -> (y: float32[4])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  SHARED s: float32[2, 4] align 16
  DEFINE s: float32[8] = copy(x[i0])
  DEFINE y: float32[4] = copy(s[max(min(7 - min(2*clamp(t[i0 of 4], 0, 9), i0 + 4), 9), 0)])

FOR i in 0..8:
  s[i//4, i % 4] = copy(x[i])  ~ value s[i]
FOR g in 0..4:
  y[g] = copy(s[(7 - min(2*clamp(t[g of 4], 0, 9), g + 4))//4, (7 - min(2*clamp(t[g of 4], 0, 9), g + 4)) % 4])  ~ value y[g]
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("g + 4)) % 4]", "g + 3)) % 4]"),
        ("g + 4))//4", "g + 4))//2 % 2"),
        ("(2*clamp(t[g of 4]", "(2*clamp(t[3 - g of 4]"),
        ("FOR i in 0..8:", "FOR i in 1..8:"),
    ],
)
def test_a_function_of_elements_is_any_number(old: str, new: str) -> None:
    """Also if the definition brings it into the axis, where it is anyway."""
    assert (gaps(changed(FUNCTIONS, old, new) if old else FUNCTIONS) == []) is (not old)


@pytest.mark.parametrize("body", [DIGITS, SWIZZLED])
def test_digits_of_a_sum_are_those_of_any_number(body: str) -> None:
    assert gaps(kernel(body)) == []


@pytest.mark.parametrize(
    ("body", "old", "new"),
    [
        (DIGITS, "(j + A) % 4", "j % 4"),
        (DIGITS, "(j + A) % 4", "(j + A + 1) % 4"),
        (DIGITS, "(j + A)//4", "(j + B)//4 % 2"),
        (DIGITS, "(j + A) % 4", "(A + 8 - j) % 4"),
        (DIGITS, "s[i//4, i % 4]", "s[i % 2, i//2]"),
        (DIGITS, "FOR i in 0..8:", "FOR i in 0..7:"),  # the last element is not written
        (DIGITS, "FOR i in 0..8:", "FOR i in 1..8:"),
        (DIGITS, "copy(x[i])  ~ value s[i]", "copy(x[7 - i])  ~ value s[7 - i]"),
        (DIGITS, "if j < B - A", "if j < B"),
        (SWIZZLED, "xor((j + A) % 2, (j + A)//2 % 2)", "(j + A) % 2"),
        (SWIZZLED, "xor(i, k % 2)", "xor(i, k//2)"),
        (SWIZZLED, "x[i + 2*k])  ~ value s[i + 2*k]", "x[4*i + k])  ~ value s[4*i + k]"),
    ],
)
def test_planted_faults(body: str, old: str, new: str) -> None:
    assert gaps(kernel(changed(body, old, new))) != []
