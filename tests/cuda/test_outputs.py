"""What callers give as out=."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskfuse.kir.variant import ArgumentLayout
from tests.cuda.calls import COPY, OVERLAP
from tests.cuda.fakes import FakeDriver, FakeTensor, FakeTorch, FakeTorchDevice, Interface, aligned
from tests.cuda.launched import Case, tensor


def test_out(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    x, y = tensor(3, 32), tensor(3, 32)
    assert case.run((x,), out=y) == (y,)
    assert case.run((x,), out=(y,)) == (y,)
    assert case.arguments()["y"] == y.data_ptr()
    strided = FakeTensor(aligned((32, 3), "float32").T)
    case.run((x,), out=strided)
    assert case.sources[-1].variant.forms == (ArgumentLayout.DENSE, ArgumentLayout.STRIDED)
    assert torch.made == []


TWO = """
KERNEL k(x: float32[32]) -> (y: float32[32], z: int32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)

y[threadIdx.x] = copy(x[threadIdx.x])
z[threadIdx.x] = copy(1)
"""


def test_out_is_checked(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(TWO, driver)
    x, z = tensor(32), tensor(32, dtype="int32")
    memory = aligned((64,), "float32")
    one = FakeTensor(np.broadcast_to(memory[:1], (32,)))

    def refused(y: Any, *more: Any, x: Any = x) -> str:
        return case.error(x, out=(y, *more))

    assert refused(z) == "output 1 of fusion 'k': out= has 1 arrays; there are 2 outputs\nhelp: the outputs are: y, z"
    assert refused(z, z) == "output 0 of fusion 'k': 'y' has dtype float32, the array int32"
    assert refused(tensor(33), z) == "output 0 of fusion 'k': 'y' has shape [32], the array [33]"
    assert refused(tensor(32, device=1), z) == (
        "output 0 of fusion 'k': it is on device 1, other arrays are on device 0\nhelp: move all arrays of a call to one device"
    )
    assert refused(one, z) == (
        "output 0 of fusion 'k': two of its elements have one address: shape [32], strides [0]\nhelp: pass an array that is not a broadcast view"
    )
    assert refused(x, z) == "output 0 of fusion 'k': it overlaps input 'x'" + OVERLAP
    halves = FakeTensor(memory[::2]), FakeTensor(memory[1::2])
    assert refused(halves[1], z, x=halves[0]) == "output 0 of fusion 'k': it overlaps input 'x'" + OVERLAP
    behind = FakeTensor(memory[31:63].view("int32"), dtype="int32")
    assert refused(FakeTensor(memory[:32]), behind) == "output 1 of fusion 'k': it overlaps output 'y'" + OVERLAP
    cpu = FakeTensor(memory[:32], FakeTorchDevice("cpu"))
    assert refused(cpu, z) == ("output 0 of fusion 'k': 'y': the tensor is on cpu, not on a GPU\nhelp: pass x.cuda(), or x.numpy() for the simulator")
    assert driver.launches == []
    assert torch.made == []
    case.run((FakeTensor(memory[:32]),), out=(FakeTensor(memory[32:]), z))  # neighbors do not overlap


def test_read_only_arrays_are_no_outputs(driver: FakeDriver) -> None:
    case = Case(COPY, driver)
    x = Interface(driver, aligned((3, 32), "float32"), stream=9)
    out = Interface(driver, aligned((3, 32), "float32"), read_only=True)
    assert case.error(x, out=out) == "output 0 of fusion 'k': 'y': it is read-only"
