"""Helpers that synchronize: they compile where they say so, and nowhere older; what they call comes with them."""

import re

import pytest

from taskfuse.cuda import instructions
from taskfuse.cuda.instructions import (
    BOUNDED_ACQUIRE,
    BOUNDED_WAIT,
    GRID_BLOCKS_BOUNDED,
    GRID_THREADS_BOUNDED,
    REPORT,
    TRY_WAIT,
    WAIT,
    cluster_index,
    set_registers,
)
from taskfuse.cuda.nvrtc import CompileOptions, compile_ptx
from taskfuse.cuda.text import Helper, closure

CONSTANTS = [h for h in vars(instructions).values() if isinstance(h, Helper)]
EVERY = [*CONSTANTS, *(cluster_index(d) for d in "xyz"), set_registers(40, 168), set_registers(240, 168)]


@pytest.mark.parametrize("arch", [80, 90])
def test_they_compile_where_they_say_so(arch: int) -> None:
    helpers = closure(h for h in EVERY if h.arch <= arch)
    text = "\n".join(h.text for h in helpers)
    assert compile_ptx(f'{text}\nextern "C" __global__ void k() {{}}\n', "k", CompileOptions(arch=f"sm_{arch}a" if arch == 90 else f"sm_{arch}"))


@pytest.mark.parametrize("helper", EVERY, ids=lambda h: h.name)
def test_what_a_helper_calls_comes_with_it(helper: Helper) -> None:
    """Every name of another helper in its text is one that it requires, itself or through another."""
    names = {h.name for h in EVERY} - {helper.name}
    called = {name for name in re.findall(r"\b(\w+)\(", helper.text) if name in names}
    assert called <= {h.name for h in closure([helper])}
    assert re.search(rf"\b{helper.name}\(", helper.text)


@pytest.mark.parametrize("helper", [BOUNDED_WAIT, GRID_THREADS_BOUNDED, GRID_BLOCKS_BOUNDED, BOUNDED_ACQUIRE], ids=lambda h: h.name)
def test_bounded_waits_report(helper: Helper) -> None:
    assert REPORT in closure([helper])


def test_asm_is_not_moved_across_memory() -> None:
    """Everything that orders memory is volatile and clobbers it."""
    for helper in EVERY:
        for text in re.findall(r"asm[^;]*?\((?:[^()]|\([^()]*\))*\);", helper.text):
            if any(word in text for word in ("mbarrier", "barrier", "fence", "acquire", "release", "griddepcontrol")):
                assert text.startswith("asm volatile"), helper.name
                assert '"memory"' in text, helper.name


def test_a_wait_tries_until_it_passes() -> None:
    assert WAIT.requires == (TRY_WAIT,)
    assert "mbarrier.try_wait.parity" in TRY_WAIT.text
    assert "mbarrier.test_wait.parity" in TRY_WAIT.text  # sm_80


def test_registers_go_up_or_down_from_what_the_launch_gives() -> None:
    assert "setmaxnreg.dec.sync.aligned.u32 40;" in set_registers(40, 168).text
    assert "setmaxnreg.inc.sync.aligned.u32 240;" in set_registers(240, 168).text
    assert set_registers(40, 168).arch == 90


def test_the_place_of_a_block_in_its_cluster() -> None:
    assert {f"%%cluster_ctaid.{d}" in cluster_index(d).text for d in "xyz"} == {True}
