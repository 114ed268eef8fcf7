"""Launches on a driver that has no GPU: what it is asked to launch, in which order, and what is refused before it is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cuda.calls import COPY, EXCHANGE, OVERLAPPING
from tests.cuda.fakes import GPU, FakeDriver, FakeTensor, FakeTorch, FakeTorchDevice
from tests.cuda.launched import SECOND, Case, tensor

PART = """
KERNEL part(x: float32[N], pos: integer) -> (y: float32[pos + 4])
  DIM N min 4, pos max N - 4
  GRID (pos + 4, 1, 1)  BLOCK (1, 1, 1)

IF pos >= 0:
  y[blockIdx.x] = copy(x[blockIdx.x])
"""

COUNTED = """
KERNEL k(pos: integer) -> (y: float32[pos])
  DIM pos min 1
  GRID (pos, 1, 1)  BLOCK (1, 1, 1)

y[blockIdx.x] = copy(0.5)
"""


def test_a_call(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    x = tensor(3, 32)
    (y,) = case.run((x,))
    assert torch.made == [y]
    assert (y.shape, y.dtype, y.device) == ((3, 32), "float32", FakeTorchDevice("cuda", 0))
    (launch,) = driver.launches
    assert (launch.grid, launch.block, launch.shared, launch.stream, launch.attributes) == ((3, 1, 1), (32, 1, 1), 0, 11, (OVERLAPPING,))
    assert case.arguments() == {"x": x.data_ptr(), "y": y.data_ptr(), "N": 32}
    assert driver.log == [("launch", 11)]
    assert case.archs == ["sm_90"]


def test_streams(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)

    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 77

    class TorchStream:
        cuda_stream = 78

    class CuPyStream:
        ptr = 79

    for stream in (76, Protocol(), TorchStream(), CuPyStream(), 0):
        case.run((tensor(3, 32),), stream=stream)
    assert [launch.stream for launch in driver.launches] == [76, 77, 78, 79, 0]
    assert torch.used == [(handle, 0) for handle in (76, 77, 78, 79, 0)]  # outputs are made for that stream
    torch.streams[0] = 80
    case.run((tensor(3, 32),))
    assert driver.launches[-1].stream == 80
    assert case.error(tensor(3, 32), stream="s") == (
        "kernel 'k' cannot be launched: 's' is not a CUDA stream\nhelp: pass a handle, or an object with __cuda_stream__"
    )


def test_the_context_of_the_arrays_is_made_current_and_restored(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    case.run((tensor(3, 32),))
    case.run((tensor(3, 32, device=1),))
    driver.current_context = 0  # a thread that has none
    case.run((tensor(3, 32),))
    assert [launch.context for launch in driver.launches] == [GPU.context, SECOND.context, GPU.context]
    assert [launch.stream for launch in driver.launches] == [11, 12, 11]
    assert driver.current_context == 0
    assert driver.loaded == [(0, "k"), (1, "k")]
    assert len(case.sources) == 2  # one text, told of for each device that it is loaded on
    assert case.sources[0] is case.sources[1]


def test_with_one_gpu_a_launch_without_a_context_is_done_again(driver: FakeDriver, torch: FakeTorch) -> None:
    driver.devices = (GPU,)
    case = Case(COPY, driver)
    x = tensor(3, 32)
    case.run((x,))
    driver.current_context = 0  # a thread that has none
    (y,) = case.run((x,))
    assert [launch.context for launch in driver.launches] == [GPU.context] * 2
    assert torch.made[1:] == [y]  # not made again
    assert driver.current_context == 0
    driver.status = 700
    assert case.error(x).startswith("launch of kernel 'k': CUDA_ERROR_700")


def test_what_must_not_happen_in_another_context_asks_for_it_first(driver: FakeDriver, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.devices = (GPU,)
    driver.current_context = 0
    fills: list[int] = []
    fill = driver.fill

    def noted(*args: Any) -> int:
        fills.append(driver.current_context)
        return fill(*args)

    monkeypatch.setattr(driver, "fill", noted)
    case = Case(EXCHANGE, driver)
    for _ in range(2):
        case.run((tensor(4, 32),))
    assert fills == [GPU.context] * 2
    assert driver.current_context == 0


def test_a_launch_that_fails(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    driver.status = 700
    assert case.error(tensor(3, 32)) == (
        "launch of kernel 'k': CUDA_ERROR_700: as the test wants\n"
        "note: it may be the error of an earlier launch, which the driver tells of now; compute-sanitizer finds the place"
    )


@pytest.mark.parametrize("args", [(), (3,)])
def test_a_call_without_an_array_is_one_on_numpy_arrays_whatever_was_called_before(driver: FakeDriver, torch: FakeTorch, args: tuple[int, ...]) -> None:
    case = Case(COUNTED if args else COUNTED.replace("pos: integer", "").replace("  DIM pos min 1\n", "").replace("pos", "3"), driver)
    for _ in range(2):
        (y,) = case.run(args)
        assert type(y) is np.ndarray
        (y,) = case.run(args, out=tensor(3))
        assert type(y) is FakeTensor


def test_integers(driver: FakeDriver, torch: FakeTorch) -> None:
    """Another value is another plan: of the text that was compiled for the first."""
    case = Case(PART, driver)
    for pos in (0, 5, 12, 5):
        (y,) = case.run((tensor(16), pos))
        assert y.shape == (pos + 4,)
        assert case.arguments()["pos"] == pos
    assert len(case.sources) == 1
    assert driver.launches[1].grid == (9, 1, 1)
    assert case.error(tensor(16), 13) == "input 1 of fusion 'part': pos is 13; it must be at least 0, at most N - 4 where N is 16"
    assert case.error(tensor(16), 1.5) == "input 1 of fusion 'part': pos is an integer, got 1.5\nhelp: pass an int"
    assert case.error(tensor(16), tensor()).startswith("input 1 of fusion 'part': pos is an integer, got an array of type FakeTensor\nhelp: pass int(pos)")


def test_integers_that_do_not_fit_32_bits(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(PART.replace("max N - 4", "min 0").replace("pos + 4]", "4]").replace("(pos + 4,", "(4,").replace("x[blockIdx.x]", "0.5"), driver)
    for pos, wide in ((7, False), (1 << 31, True), (8, False)):
        case.run((tensor(16), pos))
        assert case.arguments()["pos"] == pos
        assert case.sources[-1].variant.wide == wide or pos == 8
    assert [s.variant.wide for s in case.sources] == [False, True]
