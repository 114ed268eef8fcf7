"""Tensor maps: what the driver is asked to encode, and what is refused."""

from typing import Any

import pytest

from taskfuse.cuda.abi import MapType
from taskfuse.cuda.arrays import ArrayView
from taskfuse.cuda.layout import Layout
from taskfuse.cuda.tensormap import encode, map_type
from taskfuse.dtypes import DTYPES, DType, bfloat16, bool_, float8_e4m3, float32, int8, int16, uint32, uint64
from taskfuse.errors import LaunchError
from taskfuse.kir import parse_kernel
from taskfuse.kir.declarations import TensorMapParam
from tests.cuda.fakes import FakeDriver

KERNEL = parse_kernel("KERNEL k(x: float32[32]) -> (y: float32[32])\n  GRID (1, 1, 1)  BLOCK (32, 1, 1)\n\ny[threadIdx.x] = copy(x[threadIdx.x])\n")


def encoded(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    *,
    dtype: DType = float32,
    pointer: int = 4096,
    swizzle: int = 0,
) -> tuple[Any, ...]:
    driver = FakeDriver()
    found = encode(driver, KERNEL, TensorMapParam("m", "x", box, swizzle), ArrayView(pointer, dtype, Layout.of(shape, strides, dtype.itemsize), 0))
    assert len(found) == 128
    return driver.maps[0] if driver.maps else ()


def test_axes_are_innermost_first_and_strides_in_bytes() -> None:
    assert encoded((5, 7, 64), (512, 64, 1), (2, 4, 64)) == (MapType.FLOAT32, 4096, (64, 7, 5), (256, 2048), (64, 4, 2), 0)
    assert encoded((100,), (1,), (32,), dtype=bfloat16, swizzle=64) == (MapType.BFLOAT16, 4096, (100,), (), (32,), 64)
    assert encoded((7, 5, 64), (64, 512, 1), (1, 1, 4))[3] == (2048, 256)  # transposed
    assert encoded((7, 64), (0, 1), (1, 4))[3] == (0,)  # broadcast


def test_the_stride_of_an_axis_of_extent_1_is_made_up() -> None:
    assert encoded((1, 3), (3, 1), (1, 4))[3] == (16,)
    assert encoded((2, 1, 5), (8, 5, 1), (1, 1, 4))[3] == (32, 32)
    assert encoded((1, 4, 1, 3), (0, 4, 0, 1), (1, 1, 1, 4))[3] == (16, 16, 64)


def test_an_empty_array_is_not_encoded() -> None:
    assert encoded((0, 64), (64, 1), (1, 4)) == ()


def test_types_have_the_size_of_the_dtype() -> None:
    bits = {"8": 8, "16": 16, "32": 32, "64": 64}
    for dtype in DTYPES.values():
        assert bits[map_type(dtype).name.lstrip("BFLOATUIN")] == dtype.bits
    assert [map_type(d) for d in (int8, bool_, float8_e4m3, int16, uint32, uint64)] == [
        *(MapType.UINT8, MapType.UINT8, MapType.UINT8, MapType.UINT16, MapType.UINT32, MapType.UINT64)
    ]


DEFAULTS: dict[str, Any] = {"shape": (5, 64), "strides": (64, 1), "box": (1, 4)}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"pointer": 4104}, "its address is not a multiple of 16\nhelp: pass an array whose first element is aligned to 16 bytes, such as a copy"),
        ({"strides": (64, 2)}, "its last axis has stride 2, not 1\nhelp: pass a contiguous copy"),
        (
            {"strides": (65, 1)},
            "axis 0 has a stride of 260 bytes; it must be a multiple of 16, not negative, below 2^40\n"
            "help: pad its rows, or pass a contiguous copy of such a shape",
        ),
        (
            {"strides": (-64, 1)},
            "axis 0 has a stride of -256 bytes; it must be a multiple of 16, not negative, below 2^40\n"
            "help: pad its rows, or pass a contiguous copy of such a shape",
        ),
        ({"box": (257, 4)}, "a box of [257, 4] elements; an axis of a box has 1 to 256"),
        ({"box": (8, 3)}, "a row of the box has 12 bytes; it must have a multiple of 16"),
        ({"box": (8, 16), "swizzle": 32}, "a row of the box has 64 bytes; it must have a multiple of 16, at most the 32 of its swizzle"),
        ({"shape": (1, 1, 1, 1, 1, 64), "strides": (64,) * 5 + (1,), "box": (1, 1, 1, 1, 1, 4)}, "it has 6 axes; a tensor map has 1 to 5"),
    ],
)
def test_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(LaunchError) as caught:
        encoded(**DEFAULTS | options)
    assert str(caught.value) == f"kernel 'k' cannot be launched: TMA cannot read or write 'x': {reason}"
