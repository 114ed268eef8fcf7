"""Planning: arrays checked against a kernel, and the variant that they allow."""

from __future__ import annotations

from typing import cast

import numpy as np

from taskfuse.cuda.launch_plan import LaunchPlan, LaunchPlans
from taskfuse.kir.variant import ArgumentLayout
from tests.cuda.calls import COPY
from tests.cuda.fakes import FakeDriver, FakeTensor, FakeTorch, FakeTorchDevice, aligned
from tests.cuda.launched import Case, tensor


def test_the_variant_follows_from_the_arrays(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    wide = tensor(3, 64)
    for view, form, strides in (
        (wide.array[:, :32], ArgumentLayout.ROWS, {"x.0": 64}),
        (wide.array[::-1, 32:], ArgumentLayout.ROWS, {"x.0": -64}),
        (wide.array[:, ::2], ArgumentLayout.STRIDED, {"x.0": 64, "x.1": 2}),
        (np.broadcast_to(wide.array[:1, :1], (3, 32)), ArgumentLayout.STRIDED, {"x.0": 0, "x.1": 0}),
        (tensor(32, 3).array.T, ArgumentLayout.STRIDED, {"x.0": 1, "x.1": 3}),
    ):
        case.run((FakeTensor(view),))
        assert {source.variant.forms[0] for source in case.sources[-1:]} <= {form, ArgumentLayout.STRIDED}
        arguments = case.arguments()
        assert {name: v for name, v in arguments.items() if name.startswith("x.")} == strides
        assert arguments["x"] == view.ctypes.data
    assert [s.variant.forms for s in case.sources] == [(ArgumentLayout.ROWS, ArgumentLayout.DENSE), (ArgumentLayout.STRIDED, ArgumentLayout.DENSE)]


def test_vectors_ask_for_alignment(driver: FakeDriver, torch: FakeTorch) -> None:
    text = """
KERNEL k(x: float32[M, 128]) -> (y: float32[M, 128])
  DIM M
  GRID (M, 1, 1)  BLOCK (32, 1, 1)
  LOCAL r: float32[4] align 16

COPY r[0] <- x[blockIdx.x, 4*threadIdx.x] width 4
COPY y[blockIdx.x, 4*threadIdx.x] <- r[0] width 4
"""
    case = Case(text, driver)
    wide = tensor(3, 256).array
    views = [tensor(3, 128).array, wide[:, :128], wide[:, 4:132], wide[:, 2:130], aligned((3, 128), "float32", 4), aligned((3, 130), "float32")[:, :128]]
    for view in views:
        case.run((FakeTensor(view),))
    dense, rows, strided = ((form, ArgumentLayout.DENSE) for form in (ArgumentLayout.DENSE, ArgumentLayout.ROWS, ArgumentLayout.STRIDED))
    assert [s.variant.forms for s in case.sources] == [dense, rows, strided]
    assert [launch.function for launch in driver.launches] == [0xF001, 0xF002, 0xF002, 0xF003, 0xF003, 0xF003]


TABLES = """
KERNEL k(x: float32[32], t: int32[2], n: int32[2] lengths of 32) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)

y[threadIdx.x] = copy(x[clamp(t[1 of 2], 0, 31)])
IF threadIdx.x < clamp(n.offsets[1 of 3], 0, 32):
  y[threadIdx.x] = copy(x[threadIdx.x])
"""


def test_tables_are_read_where_they_lie(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(TABLES, driver)
    x, wide = tensor(32), aligned((8,), "int32")
    t, n = FakeTensor(wide[:4:2], dtype="int32"), FakeTensor(wide[7:3:-3], dtype="int32")
    case.run((x, t, n))
    assert {name: v for name, v in case.arguments().items() if "." in name} == {"t.0": 2, "n.0": -3}
    assert "t[1 * t_stride0]" in case.sources[-1].text
    for table, name in ((0, "t"), (1, "n")):
        tables = [tensor(2, dtype="int32"), tensor(2, dtype="int32")]
        memory = aligned((32,), "float32")
        tables[table] = FakeTensor(memory[:2].view("int32"), dtype="int32")
        assert f"it overlaps input '{name}'" in case.error(x, *tables, out=FakeTensor(memory))


def test_large_spans_take_64_bits(driver: FakeDriver, torch: FakeTorch) -> None:
    class Far(FakeTensor):
        def stride(self) -> tuple[int, ...]:
            return (2**31, 1)

    case = Case(COPY, driver)
    case.run((Far(aligned((2, 32), "float32")),))
    assert case.sources[-1].variant.wide
    assert case.arguments()["x.0"] == 2**31


def test_signatures_are_forgotten_when_there_are_many() -> None:
    plans, dropped = LaunchPlans(limit=4), cast(LaunchPlan, object())
    for k in range(4):
        plans.add(k, dropped)
    plans.add(4, dropped)
    assert plans.older(0) is dropped  # used again: it stays
    for k in range(5, 9):
        plans.add(k, dropped)
    kept = [k for k in range(9) if plans.young.get(k) or plans.older(k)]
    assert 0 in kept or len(kept) >= 4
    assert 1 not in kept
    assert len(plans.young) <= 4


def test_arguments_are_checked(driver: FakeDriver, torch: FakeTorch) -> None:
    text = """
KERNEL k(x: float32[M, 32], z: float32[M]) -> (y: float32[M, 32])
  DIM M min 2 max 100 multiple_of 2
  GRID (M, 1, 1)  BLOCK (32, 1, 1)

y[blockIdx.x, threadIdx.x] = mul(x[blockIdx.x, threadIdx.x], z[blockIdx.x])
"""
    case = Case(text, driver)
    x, z = tensor(4, 32), tensor(4)
    assert case.error(x) == "input 1 of fusion 'k': 1 arguments given, 2 expected\nhelp: the arguments are: x, z"
    assert case.error(x, tensor(4, dtype="float64")) == "input 1 of fusion 'k': 'z' has dtype float64, not float32\nhelp: pass it converted to float32"
    assert case.error(x, tensor(4, 1)) == "input 1 of fusion 'k': 'z' has 2 axes, not 1"
    assert case.error(x, tensor(5)) == "input 1 of fusion 'k': axis 0 of 'z' has extent 5, but M is 4"
    assert case.error(tensor(4, 31), z) == "input 0 of fusion 'k': axis 1 of 'x' has extent 31, not 32"
    assert case.error(tensor(5, 32), tensor(5)) == "input 0 of fusion 'k': M is 5; it must be at least 2, at most 100, a multiple of 2"
    assert case.error(x, tensor(4, device=1)) == (
        "input 1 of fusion 'k': 'z' is on device 1, other arrays are on device 0\nhelp: move all arrays of a call to one device"
    )
    odd = FakeTensor(aligned((4,), "float32", 2))
    assert case.error(x, odd) == (
        "input 1 of fusion 'k': 'z' starts at an address that is not a multiple of the 4 bytes of its elements\nhelp: pass an aligned copy"
    )
    cpu = FakeTensor(z.array, FakeTorchDevice("cpu"))
    assert case.error(x, cpu) == ("input 1 of fusion 'k': 'z': the tensor is on cpu, not on a GPU\nhelp: pass x.cuda(), or x.numpy() for the simulator")
    assert case.error(x, tensor(4, dtype="complex64")) == "input 1 of fusion 'k': 'z': taskfuse has no dtype complex64"
    assert driver.log == []
    assert torch.made == []
    case.run((x, z))


def test_integers_that_do_not_fit_64_bits_are_refused(driver: FakeDriver, torch: FakeTorch) -> None:
    text = """
KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N
  GRID (1, 1, 1)  BLOCK (1, 1, 1)

FOR k in 0..N:
  y[(k*k*k*k*k + k)//(k*k*k*k + 1)] = copy(x[k])
"""
    case = Case(text, driver)
    for n, wide in ((60, False), (5000, True)):
        case.run((tensor(n),))
        assert case.sources[-1].variant.wide is wide
    assert "its integers do not fit 64 bits at N = 10000" in case.error(tensor(10000))


def test_coordinates_of_bulk_copies_that_do_not_fit_32_bits_are_refused(driver: FakeDriver, torch: FakeTorch) -> None:
    text = """
KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N
  TENSORMAP m = x box (32) swizzle 0
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  SHARED s: float32[32] align 128
  MBARRIER full[1]

FOR k in 0..N:
  TMA s[0] <- m(4*k*k*k*k) on full[0]
"""
    case = Case(text, driver)
    case.run((tensor(100),))
    assert not case.sources[-1].variant.wide
    assert "coordinates of its bulk copies do not fit 32 bits at N = 300" in case.error(tensor(300))
