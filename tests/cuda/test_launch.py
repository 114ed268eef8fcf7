"""Launches on a driver that has no GPU: what it is asked to launch, in which order, and what is refused before it is asked."""

from __future__ import annotations

from tests.cuda.calls import COPY, EXCHANGE, OVERLAPPING
from tests.cuda.fakes import GPU, FakeDriver, FakeTorch, FakeTorchDevice
from tests.cuda.launched import SECOND, Case, tensor


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


def test_what_must_not_happen_in_another_context_asks_for_it_first(driver: FakeDriver, torch: FakeTorch) -> None:
    driver.devices = (GPU,)
    driver.current_context = 0
    fills: list[int] = []
    fill = driver.fill
    driver.fill = lambda *args: fills.append(driver.current_context) or fill(*args)
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
