"""What launches of one signature have in common: workspaces, counters, attributes."""

from __future__ import annotations

from tests.cuda.calls import COPY, EXCHANGE
from tests.cuda.fakes import GPU, FakeDriver, FakeTorch
from tests.cuda.launched import Case, tensor


def test_workspaces_and_barriers_across_blocks(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(EXCHANGE, driver)
    case.run((tensor(4, 32),))
    y, memory = torch.made
    arguments = case.arguments()
    begin = memory.data_ptr()
    assert memory.shape == (256 + 4 * 32 * 4,)
    assert (arguments["grid_counters"], arguments["w"], arguments["y"]) == (begin, begin + 256, y.data_ptr())
    assert driver.log == [("fill", begin, 0, 256, 11), ("launch", 11)]
    assert driver.launches[0].attributes == ((2, 1, 0, 0),)
    driver.resident = 1
    case.run((tensor(132, 32),))
    assert case.error(tensor(133, 32)) == (
        "kernel 'k' cannot be launched: its 133 blocks wait for each other, and fake GPU holds 132 of them at once\n"
        "help: use fewer blocks, each with more work, or blocks with fewer threads or less Shared memory"
    )
    driver.devices = (GPU._replace(cooperative=False),)
    assert case.error(tensor(5, 32)) == "kernel 'k' cannot be launched: its blocks wait for each other, and fake GPU does not launch cooperatively"


def test_only_code_that_waits_for_the_stream_is_launched_early(driver: FakeDriver, torch: FakeTorch) -> None:
    driver.function_arch = 80
    case = Case(COPY, driver)
    case.run((tensor(3, 32),))
    assert driver.launches[0].attributes == ()
