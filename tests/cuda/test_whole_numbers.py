"""Ranges of integers in registers, by all that is written to them."""

import pytest

from taskfuse.cuda.whole_numbers import WholeNumbers
from taskfuse.dtypes import bfloat16, float16, float32
from taskfuse.kir import parse_kernel
from taskfuse.kir.operands import Access

Found = tuple[int, int] | None


def ranges(*lines: str) -> list[Found]:
    """Of the registers x0, x1, ... that lines write, of the dtypes before them."""
    made = [line.partition(" ")[::2] for line in lines]
    local = "".join(f"  LOCAL x{k}: {dtype}[]\n" for k, (dtype, _) in enumerate(made))
    body = "\n".join(f"x{k} = {text}" for k, (_, text) in enumerate(made))
    head = "KERNEL k(a: uint8[4], f: bfloat16[4]) -> (b: bfloat16[4])\n  GRID (1, 1, 1)  BLOCK (4, 1, 1)\n"
    known = WholeNumbers(parse_kernel(f"{head}{local}\n{body}\nb[threadIdx.x] = copy(f[threadIdx.x])\n"))
    return [known.of(Access(f"x{k}", ())) for k in range(len(lines))]


@pytest.mark.parametrize(
    ("lines", "last"),
    [
        (("uint8 copy(a[0])",), (0, 255)),
        (("uint8 bitwise_and(a[0], 15)", "float32 cast.uint8(x0)", "float32 sub(x1, 8.0)", "bfloat16 cast.float32(x2)"), (-8, 7)),
        (("uint8 right_shift(a[0], 4)", "uint8 stack(x0 if threadIdx.x % 2 == 0, a[1] if threadIdx.x % 2 == 1)"), (0, 255)),
        (("float32 cast.uint8(a[0])", "float32 mul(x0, 2.0)", "bfloat16 cast.float32(x1)"), None),  # 509 is no number of it
        (("float32 cast.uint8(a[0])", "float32 mul(x0, 0.5)"), None),
        (("uint8 add(a[0], a[1])",), (0, 255)),  # it wraps
        (("uint8 sub(a[0], 1)", "float32 cast.uint8(x0)"), (0, 255)),
        (("float32 copy.float32(f[0])",), None),
        (("float32 cast.uint8(a[0])", "float32 exp(x0)"), None),
        (("float32 copy.float32(-3.0)", "bfloat16 abs.float32(x0)"), (3, 3)),
    ],
)
def test_ranges(lines: tuple[str, ...], last: Found) -> None:
    assert ranges(*lines)[-1] == last


def test_what_is_computed_of_itself_may_be_anything() -> None:
    text = "KERNEL k() -> (b: uint8[4])\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n  LOCAL x: uint8[]\n  LOCAL y: float32[]\n\n"
    text += "x = copy(3)\ny = copy(1.0)\nFOR i in 0..4:\n  x = bitwise_or(x, 4)\n  y = add(y, 1.0)\n  b[i] = copy(x)\n"
    known = WholeNumbers(parse_kernel(text))
    assert known.of(Access("x", ())) == (3, 255)
    assert known.of(Access("y", ())) is None


def test_which_floats_have_them() -> None:
    text = "KERNEL k(a: uint8[4]) -> (b: float32[4])\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n  LOCAL x: float32[]\n\n"
    text += "x = cast.uint8(a[0])\nx = copy(300.0)\nb[0] = copy(x)\n"
    known, x = WholeNumbers(parse_kernel(text)), Access("x", ())
    assert known.of(x) == (0, 300)
    assert [known.is_of(x, dtype) for dtype in (float32, float16, bfloat16)] == [True, True, False]
