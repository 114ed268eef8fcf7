"""The code of one kernel: compiled and loaded once on each device."""

from __future__ import annotations

import pytest

from taskfuse.errors import CudaError
from tests.cuda.calls import COPY
from tests.cuda.fakes import GPU, FakeDriver, FakeTorch
from tests.cuda.launched import Case, tensor


def test_a_second_call_compiles_and_loads_nothing(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(COPY, driver)
    outs = [case.run((x,))[0] for x in (tensor(3, 32), tensor(3, 32), tensor(5, 64))]
    assert len(case.sources) == len(driver.loaded) == 1
    assert [launch.grid[0] for launch in driver.launches] == [3, 3, 5]
    assert len({y.data_ptr() for y in outs}) == 3
    assert case.arguments()["y"] == outs[2].data_ptr()
    assert all(a % 8 == 0 for launch in driver.launches for a in launch.addresses)


def test_architectures(driver: FakeDriver, torch: FakeTorch) -> None:
    x = tensor(3, 32)

    def refused(arch: str) -> str:
        return Case(COPY, driver, arch=arch).error(x)

    for arch in ("sm_80", "sm_90", "sm_90a"):
        case = Case(COPY, driver, arch=arch)
        if arch == "sm_80":
            assert case.error(x).splitlines()[0] == ("kernel 'k' cannot be launched: arch is sm_80; it needs sm_80, and fake GPU is sm_90")
            continue
        case.run((x,))
        assert case.archs == [arch]
    assert refused("sm_100a") == (
        "kernel 'k' cannot be launched: arch is sm_100a; it needs sm_80, and fake GPU is sm_90\nhelp: use arch=\"sm_90\", or leave it out"
    )
    with open("tests/kernels/gemm.kir", encoding="utf-8") as file:
        gemm = file.read()
    case = Case(gemm, driver)
    case.run((tensor(128, 64, dtype="bfloat16"), tensor(128, 64, dtype="bfloat16")))
    assert case.archs == ["sm_90a"]
    assert driver.strict == [False, False, True]  # it counts on its registers
    Case(gemm, driver, lenient=True).run((tensor(128, 64, dtype="bfloat16"), tensor(128, 64, dtype="bfloat16")))
    assert driver.strict == [False, False, True, False]
    driver.devices = (GPU._replace(arch=100),)
    assert Case(gemm, driver).error(tensor(128, 64, dtype="bfloat16"), tensor(128, 64, dtype="bfloat16")) == (
        "kernel 'gemm' cannot be launched: it has instructions of sm_90a only; fake GPU is sm_100"
    )


def test_a_first_call_while_a_graph_is_captured(driver: FakeDriver, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    def function(*args: object) -> None:
        raise CudaError(what="cuModuleLoadData", name="CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", reason="not permitted")

    monkeypatch.setattr(driver, "function", function)
    assert Case(COPY, driver).error(tensor(3, 32)) == (
        "cuModuleLoadData: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: not permitted\nhelp: call it with such arrays once before the capture: that loads the kernel"
    )
