"""Channels are found in the text of a kernel, whether lowering or a person wrote it."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from examples import founding, horizontal_fusion, matmul, nested_groups, pipeline
from taskfuse.errors import DeadlockError
from taskfuse.kir import Kernel, map_stmts, parse_kernel
from taskfuse.kir.channels import carried, channels
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.synchronization import Arrive
from taskfuse.lowering import lower
from tests.random_cases import random_case_of

KERNELS = Path(__file__).parents[1] / "kernels"


def kernel(name: str) -> Kernel:
    return parse_kernel((KERNELS / f"{name}.kir").read_text(encoding="utf-8"))


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_ring_of_the_copy_engine() -> None:
    (ring,) = channels(kernel("gemm")).channels
    assert (ring.name, ring.full, ring.empty, ring.slots) == ("full", "full", "empty", 3)
    assert ring.buffers == ("a_s", "b_s")
    assert [str(e) for e in (ring.slot_bytes, ring.filled, ring.read, ring.transaction_bytes)] == ["32768", "1", "8", "32768"]
    assert (ring.producers, ring.consumers) == (("load",), ("consumer",))


def test_a_ring_that_threads_fill() -> None:
    (ring,) = channels(kernel("ring")).channels
    assert [str(e) for e in (ring.slot_bytes, ring.filled, ring.read)] == ["128", "32", "32"]
    assert ring.transaction_bytes is None
    assert (ring.buffers, ring.producers, ring.consumers) == (("s",), ("producer",), ("consumer",))


def test_tables() -> None:
    assert lines(str(lower(pipeline.build()).channels())) == lines(
        """channel slots bytes/slot buffers full empty producer consumer
        ch0 3 128 tv2 ch0.full count 1 ch0.empty count 1 prepare bend
        ch1 3 128 tv3 ch1.full count 1 ch1.empty count 1 bend finish"""
    )
    assert lines(str(lower(founding.build()).channels())) == lines(
        """channel slots bytes/slot buffers full empty producer consumer
        ch0 1 16*S*T tv5 tv6 tv7 tv8 ch0.full count 4*S*T ch0.empty count 4*S*T group1 group2"""
    )
    assert str(lower(matmul.build()).channels()) == "no channels"
    assert str(channels(kernel("double"))) == "mbarriers of no channel: full[1]"
    assert "full count 1, 32768 bytes" in str(channels(kernel("gemm")))


@pytest.mark.parametrize("module", [founding, horizontal_fusion, nested_groups, pipeline], ids=lambda m: m.__name__)
def test_the_text_has_all_of_it(module: ModuleType) -> None:
    made = lower(module.build())
    assert parse_kernel(str(made)).channels() == made.channels()


def test_the_channels_of_lowering_are_found_again() -> None:
    seen = distributed = 0
    for seed in range(40):
        made = random_case_of(seed).kernel
        if made is None:
            continue
        table = made.channels()
        slots = {m.name: m.slots for m in made.mbarriers}
        assert [ch.full for ch in table.channels] == [name for name in slots if name.endswith(".full")]
        for ch in table.channels:
            assert (ch.full, ch.empty) == (f"{ch.name}.full", f"{ch.name}.empty")
            assert ch.slots == slots[ch.full] == slots[ch.empty]
            assert ch.producers
            assert ch.consumers
        assert not [m for m in table.others if m.name.endswith((".full", ".empty"))]
        seen += len(table.channels)
        distributed += any(m.name.endswith(".order") for m in table.others)
    assert seen > 40
    assert distributed


# -- what rings carry -----------------------------------------------------------------------------------------------------------------


def test_what_rings_carry() -> None:
    """Buffers, of a text without witness; those of blocks' semaphores; of a kernel that was lowered, tensors."""
    assert carried(kernel("gemm")) == {"full": ("a_s", "b_s"), "empty": ("a_s", "b_s")}
    assert carried(kernel("blocks")) == {"full": ("w",), "empty": ("w",)}
    assert carried(lower(founding.build())) == {"ch0.full": ("tv5", "tv6", "tv7", "tv8"), "ch0.empty": ("tv5", "tv6", "tv7", "tv8")}


def without(kernel: Kernel, barrier: str) -> Kernel:
    """The kernel without arrivals at a barrier."""

    def left(s: Stmt) -> Stmt | tuple[Stmt, ...]:
        return () if isinstance(s, Arrive) and s.barrier.name == barrier else s

    return replace(kernel, body=map_stmts(kernel.body, left))


@pytest.mark.parametrize("barrier", ["ch0.full", "ch0.empty"])
def test_a_hang_names_the_tensor(barrier: str) -> None:
    """Nobody arrives: the simulator and the proof say which ring stands still."""
    stuck = without(lower(pipeline.build()), barrier)
    with pytest.raises(DeadlockError) as error:
        stuck.simulate(np.zeros((1, 256), np.float32), np.zeros(256, np.float32))
    assert [n for n in error.value.notes if f"WAIT {barrier}" in n and n.endswith("; its ring carries tv2")]
    refuted = stuck.verify().failures[0]
    assert (refuted.subject, refuted.reason) == ("deadlock", "no thread can continue")
    assert [n for n in refuted.notes if f"WAIT {barrier}" in n and n.endswith("; its ring carries tv2)")]
