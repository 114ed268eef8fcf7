"""The parameters of a kernel in the memory that a launch reads."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from taskfuse.cuda.parameters import divisor_bytes
from taskfuse.dtypes import bfloat16
from tests.cuda.fakes import FakeDriver, FakeTorch
from tests.cuda.launched import Case, tensor


def test_scalars(driver: FakeDriver, torch: FakeTorch) -> None:
    text = """
KERNEL k(x: float32[32], a: float32, h: bfloat16, n: int8, d: float64) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL t: float32[]

t = mul(x[threadIdx.x], a)
t = add(t, h)
t = add(t, d)
y[threadIdx.x] = add(t, n)
"""
    case = Case(text, driver)

    def packed(*scalars: Any) -> list[bytes]:
        case.run((tensor(32), *scalars))
        source = case.sources[-1]
        return [raw for a, raw in zip(source.arguments, driver.launches[-1].raw, strict=True) if type(a).__name__ == "ScalarArgument"]

    def expected(a: Any, h: Any, n: int, d: float) -> list[bytes]:
        with np.errstate(over="ignore"):
            return [np.asarray(v).astype(t).tobytes() for v, t in ((a, np.float32), (h, bfloat16.numpy), (n, np.int8), (d, np.float64))]

    for values in ((0.1, 0.1, -3, 0.1), (1e300, float("inf"), 127, -1e300), (2**53 + 1, 3, 0, 5), (True, 2, True, 1)):
        assert packed(*values) == expected(*values)
    assert packed(np.float32(0.5), bfloat16.numpy.type(2), np.int8(4), np.float64(3)) == expected(0.5, 2, 4, 3)
    torch.made.clear()
    assert case.error(tensor(32), 1.0, 1.0, 128, 1.0) == "input 3 of fusion 'k': n is int8, which cannot hold 128"
    assert case.error(tensor(32), 1.0, 1.0, 1.5, 1.0) == "input 3 of fusion 'k': n is int8, which cannot hold 1.5"
    assert torch.made == []


def test_divisors() -> None:
    for value in [*range(1, 200), 2**16, 2**31 - 1, 2**31 - 2, 2**30, 123456789]:
        d, multiplier, shift = struct.unpack("<3I", divisor_bytes(value))
        assert d == value
        for n in (0, 1, value - 1, value, value + 1, 5 * value - 1, 2**31 - 1, 2**30):
            if 0 <= n < 2**31:
                assert ((n * multiplier >> 32) + n) >> shift == n // value
    assert divisor_bytes(0) == divisor_bytes(1)


def test_tensor_maps_follow_the_addresses(driver: FakeDriver, torch: FakeTorch) -> None:
    with open("tests/kernels/double.kir", encoding="utf-8") as file:
        case = Case(file.read(), driver)
    x = tensor(20, 32)
    (y,) = case.run((x,))
    arguments = case.arguments()
    assert [int.from_bytes(arguments[name][:8], "little") for name in ("map_x", "map_y")] == [x.data_ptr(), y.data_ptr()]
    sizes = driver.parameter_sizes
    assert all(a % 64 == 0 for a, n in zip(driver.launches[0].addresses, sizes, strict=True) if n == 128)
    driver.log.clear()
    other = tensor(20, 32)
    (z,) = case.run((other,))
    assert driver.log == [("replace", other.data_ptr()), ("replace", z.data_ptr()), ("launch", 11)]
    case.run((other,), out=z)
    driver.log.clear()
    case.run((other,), out=z)
    assert driver.log == [("launch", 11)]  # the addresses in the maps are right already
