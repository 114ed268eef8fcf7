"""Reports of ptxas as NVRTC 13.0 and 13.5 print them."""

import pytest

from taskfuse.cuda.resources import diagnostics, parse_resources
from taskfuse.reports.resources import Resources

PLAIN = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
ptxas info    : Compile time = 1.186 ms"""

CALLS = """\
ptxas info    : 24 bytes gmem, 8 bytes cmem[4]
ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
ptxas         .     32 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 18 registers, used 1 barriers, 56 bytes cumulative stack size, 40 bytes smem, 364 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compile time = 5.377 ms
ptxas info    : Function properties for _Z1ff
ptxas         .     24 bytes stack frame, 24 bytes spill stores, 20 bytes spill loads"""

OF_TWO = (
    """\
ptxas info    : Compiling entry function 'k2' for 'sm_90a'
ptxas info    : Function properties for k2
ptxas         .     16 bytes stack frame, 16 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 16 barriers, 16 bytes cumulative stack size, 16000 bytes smem
"""
    + PLAIN
)


def test_resources() -> None:
    assert parse_resources(PLAIN, "k") == Resources(8, 0, 0, 0, 0, 0)
    assert parse_resources(CALLS, "k") == Resources(registers=18, static_shared=40, stack=56, spill_stores=32, spill_loads=24, barriers=1, local_arrays=24)
    assert parse_resources(OF_TWO, "k2") == Resources(255, 16000, 16, 16, 12, 16)
    assert parse_resources(OF_TWO, "k") == Resources(8, 0, 0, 0, 0, 0)


SINE = """\
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
ptxas         .     {stack} bytes stack frame, {stores} bytes spill stores, {stores} bytes spill loads
ptxas info    : Used 26 registers, used 0 barriers, {stack} bytes cumulative stack size
ptxas info    : Function properties for __internal_trig_reduction_slowpathd
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"""


@pytest.mark.parametrize(("stack", "stores", "arrays"), [(40, 0, 0), (104, 0, 64), (416, 192, 184), (64, 200, 0)])
def test_arrays_in_local_memory(stack: int, stores: int, arrays: int) -> None:
    """What is on the stack beside spilled registers, each of which is stored once or more, and arguments of sines."""
    found = parse_resources(SINE.format(stack=stack, stores=stores), "k")
    assert found is not None
    assert (found.stack, found.spill_stores, found.local_arrays) == (stack, stores, arrays)


@pytest.mark.parametrize("log", ["", PLAIN.replace("'k'", "'kk'"), PLAIN.replace("Used", "Takes"), PLAIN.replace("spill", "spilt")])
def test_a_form_that_is_not_known_is_no_guess(log: str) -> None:
    assert parse_resources(log, "k") is None


SERIAL = "wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline"
WGMMA_HELP = "help: between an mma and the WaitGroup that covers it, nothing may touch its accumulator; see that the accumulators fit the registers of a thread"
BUDGET_HELP = "help: registers(n) needs a launch shape that is constant, and budgets that fit it: blocks of a multiple of 128 threads"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", []),
        ("ptxas info    : Overriding maximum register limit 256 for 'k' with  32 of maxrregcount option", []),
        (
            "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.",
            [f"'setmaxnreg' ignored; unable to determine register count at entry.\n{BUDGET_HELP}"],
        ),
        (
            f"ptxas info    : (C7511) Potential Performance Loss: {SERIAL} in the function 'k' in line 93\n"
            f"ptxas info    : (C7511) Potential Performance Loss: {SERIAL} in the function 'k' in line 120",
            [f"{SERIAL}\n{WGMMA_HELP}"],
        ),
        (
            "ptxas info    : (C7517) warpgroup.wait is injected in around line 44 by compiler to allow use of registers defined by GMMA in function 'k'",
            [f"warpgroup.wait is injected by compiler to allow use of registers defined by GMMA\n{WGMMA_HELP}"],
        ),
        (
            "ptxas info    : (C7517) wgmma.wait_group is injected in around line 46 by compiler to allow use of registers defined by GMMA in function 'k'",
            [f"wgmma.wait_group is injected by compiler to allow use of registers defined by GMMA\n{WGMMA_HELP}"],
        ),
        ("ptxas info    : (C7599) Potential Performance Loss: something new", ["something new"]),
        (
            "ptxas warning : Stack size for entry function 'k' cannot be statically determined",
            ["Stack size for entry function 'k' cannot be statically determined"],
        ),
    ],
)
def test_diagnostics(lines: str, expected: list[str]) -> None:
    log = f"{lines}\n{PLAIN}"
    found = diagnostics(log, parse_resources(log, "k"))
    assert [str(d) for d in found] == expected
    assert [d.of_registers for d in found] == ["wgmma" in text or "setmaxnreg" in text or "GMMA" in text for text in expected]


def test_spills_are_diagnosed() -> None:
    (found,) = diagnostics(CALLS, parse_resources(CALLS, "k"))
    assert found.of_registers
    assert str(found) == (
        "registers spill to local memory: 32 bytes stored, 24 loaded in the code of a thread, at 18 registers\n"
        "help: give a thread less to hold: smaller unrolled or vectorized axes, fewer tensors inlined together, or more threads; "
        "Shared memory for the largest"
    )
