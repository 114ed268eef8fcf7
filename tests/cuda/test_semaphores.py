"""Semaphores in CUDA C++: the instructions, the memory that a launch brings, bounded waits."""

from __future__ import annotations

from pathlib import Path

import pytest

import taskfuse as tf
from taskfuse.cuda.debug import Timeout, WaitPoint
from taskfuse.cuda.signature import WorkspaceArgument
from taskfuse.cuda.source import emit
from taskfuse.kir import parse_kernel
from taskfuse.kir.variant import ArgumentLayout, Variant
from tests.cuda.fakes import FakeDriver, FakeTorch
from tests.cuda.launched import Case, tensor

TEXT = (Path(__file__).parents[1] / "kernels" / "blocks.kir").read_text(encoding="utf-8")


def test_the_text() -> None:
    source = emit(parse_kernel(TEXT))
    assert source.cooperative
    assert "semaphore_acquire(&empty[blockIdx_x * 2 + p_slot], 2, p_phase);" in source.text
    assert "semaphore_acquire(&full[(blockIdx_x - 2) * 2 + a_slot], 1, a_phase + 1);" in source.text
    assert "semaphore_release(&full[blockIdx_x * 2 + p_slot]);" in source.text
    assert "if (++p_slot == 2) p_slot = 0, p_parity ^= 1, ++p_phase;" in source.text
    spaces = [a for a in source.arguments if isinstance(a, WorkspaceArgument)]
    assert [(a.name, str(a.bytes), a.zero) for a in spaces] == [("w", "64", False), ("full", "32", True), ("empty", "32", True)]


@pytest.mark.parametrize(
    ("slots", "advance", "lines"),
    [
        (1, "1", "p_parity ^= 1, p_phase += 1;"),
        (1, "3", "p_parity ^= 3 & 1, p_phase += 3;"),
        (4, "0 - 3", "const auto at = (p_slot + 1) % 4;\n      p_parity ^= wraps & 1, p_phase += wraps, p_slot = at;"),
        (4, "3", "p_slot += 3;\n      p_parity ^= p_slot / 4 & 1, p_phase += p_slot / 4, p_slot %= 4;"),
    ],
)
def test_cursors_count_their_phases(slots: int, advance: str, lines: str) -> None:
    text = TEXT.replace("p = CURSOR(slots 2", f"p = CURSOR(slots {slots}").replace("p.advance(1)", f"p.advance({advance})")
    assert lines in emit(parse_kernel(text)).text
    assert "_phase" not in emit(parse_kernel((Path(__file__).parents[1] / "kernels" / "ring.kir").read_text(encoding="utf-8"))).text


@pytest.mark.parametrize("debug", [False, True])
def test_it_compiles(debug: bool) -> None:
    ptx = parse_kernel(TEXT).ptx(debug=debug)
    assert ptx.count("red.release.gpu.global.add.u64") == 3
    assert "ld.acquire.gpu.global.u64" in ptx
    assert parse_kernel(TEXT).cubin(debug=debug)


def test_symbolic_rings_compile() -> None:
    with tf.Fusion("rows") as fusion:
        x = tf.define_tensor(["B", "N", 48], name="x")
        a = tf.exp(x)
        b = tf.sin(a)
        fusion.add_output(b)
    for tv in (a, b):
        tv.axis(0).parallelize(tf.ParallelType.BIDx)
        tv.axis(2).parallelize(tf.ParallelType.TIDx)
    a.circular_buffer(3)
    a.inline_at(2)
    fusion.group([fusion.task([a]), fusion.task([b])]).parallelize(tf.ParallelType.BIDx)
    kernel = tf.lower(fusion)
    source = emit(kernel, Variant((ArgumentLayout.DENSE, ArgumentLayout.DENSE), wide=True))
    assert [str(a.bytes) for a in source.arguments if isinstance(a, WorkspaceArgument) and a.zero] == ["24*B", "24*B"]
    assert kernel.cubin()


def test_semaphores_are_zero_when_a_launch_begins(driver: FakeDriver, torch: FakeTorch) -> None:
    case = Case(TEXT, driver)
    for _ in range(2):
        driver.log.clear()
        case.run((tensor(2, 5, 4),))
        memory = torch.made[-1]
        begin = memory.data_ptr()
        arguments = case.arguments()
        assert sorted((arguments["full"], arguments["empty"])) == [begin, begin + 256]
        assert arguments["w"] == begin + 512
        assert driver.log == [("fill", begin, 0, 512, 11), ("launch", 11)]
        assert driver.launches[-1].attributes == ((2, 1, 0, 0),)  # cooperative


def test_more_blocks_than_are_resident_are_refused(driver: FakeDriver, torch: FakeTorch) -> None:
    text = TEXT.replace("GRID (6, 1, 1)", "GRID (6, 100, 1)")
    driver.resident = 4
    assert Case(text, driver).error(tensor(2, 5, 4)) == (
        "kernel 'blocks' cannot be launched: its 600 blocks wait for each other, and fake GPU holds 528 of them at once\n"
        "help: use fewer blocks, each with more work, or blocks with fewer threads or less Shared memory"
    )


def test_a_bounded_wait_reports_the_phase() -> None:
    source = emit(parse_kernel(TEXT), debug=True)
    assert source.waits[0] == WaitPoint(("producer",), "empty", "phase", carries=("w",))
    assert "semaphore_acquire_bounded(&empty[blockIdx_x * 2 + p_slot], 2, p_phase, report, 0, p_slot);" in source.text
    waits = "producer: block (0, 0, 0), thread (0, 0, 0) waits at empty[1], whose ring carries w, for the end of phase 3"
    assert str(Timeout(source.waits[0], 1, 3, (0, 0, 0), (0, 0, 0))) == waits
