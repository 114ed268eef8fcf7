"""Asynchronous engines and the queues in which threads wait for them, without a kernel around it."""

import math

import numpy as np
import pytest

from taskfuse.ir.shared_layouts import SWIZZLES, Major, operand_offsets, swizzled
from taskfuse.ir.types import MemoryType
from taskfuse.testing.machine.engines import Batches, Box, MachineRegisters, MachineTile, WgmmaFactors
from taskfuse.testing.machine.fault import FaultKind
from taskfuse.testing.machine.launch import GLOBAL, MachinePlace
from taskfuse.testing.machine.memory import MachineOperation
from taskfuse.testing.machine.threads import Clock
from tests.testing.machine.machines import Parts, fault

TENSOR = MachinePlace("x", MemoryType.Global, 4, (4, 32), GLOBAL, is_input=True)
OUT = MachinePlace("y", MemoryType.Global, 4, (4, 32), GLOBAL + 4096)
SLOT = MachinePlace("s", MemoryType.Shared, 4, (2, 4, 32), 1024)


def operation(bit: int) -> MachineOperation:
    return MachineOperation(Clock([]), bit, bit + 1, 0, 0)


# -- queues -------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pending", "waited"), [(0, [0, 1, 2]), (1, [0, 1]), (2, [0]), (3, []), (5, [])])
def test_all_but_the_last_batches_are_finished(pending: int, waited: list[int]) -> None:
    """Of more than there are, none is."""
    batches = Batches()
    for k in range(3):
        batches.open.append(operation(k))
        batches.commit()
    batches.open.append(operation(3))
    assert [op.bit for op in batches.finished(pending)] == waited
    assert [op.bit for op in batches.all()] == [0, 1, 2, 3]


# -- tiles --------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("major", Major)
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_a_tile_reads_the_bytes_that_its_layout_says(swizzle: int, major: Major) -> None:
    """Against the other table of layouts: the same 16 bytes, of each row, at each step."""
    span = swizzle or 16
    lbo, sbo = (128, 256) if swizzle == 0 else (8 * span if major is Major.MN else 0, 8 * span * (2 if major is Major.MN else 1))
    tile = MachineTile(4096, swizzle, lbo, sbo, major, 2, SLOT)
    found = {tile.swizzled(c) for c in tile.chunks(0, 64)}
    places = operand_offsets(64, 16, 2, swizzle, lbo, sbo, major) + 4096
    expected = {int(a) // 16 * 16 for a in np.asarray(swizzled(places, swizzle)).ravel()}
    assert found == expected


# -- bulk copies --------------------------------------------------------------------------------------------------------------------------


def box(*coords: int, shape: tuple[int, ...] = (2, 32), tensor: MachinePlace = TENSOR, swizzle: int = 0, steps: tuple[int, ...] = (1, 1)) -> Box:
    return Box(tensor, coords, shape, swizzle, steps)


def test_a_load_brings_its_bytes_to_the_barrier() -> None:
    parts = Parts()
    parts.init(1)
    parts.engines.load(0, 1, 1024, SLOT, box(0, 0), [(0, 0)])
    parts.barriers.arrive(0, 2, 0, 256)
    assert fault(lambda: parts.memory.read(0, 1024 // 4, 3), FaultKind.RACE)
    parts.engines_go_on()
    assert not parts.barriers.waits(0, 2, 0, 0)
    parts.memory.read(0, 1024 // 4, 3)
    parts.engines.ends(0, parts.threads.clock([0]))


@pytest.mark.parametrize(("first", "step", "touched"), [(3, 1, {3}), (-1, 1, {0}), (1, 2, {1, 3}), (-2, 3, {1}), (2, 8, {2})])
def test_a_box_counts_whole_and_touches_what_lies_in_the_tensor(first: int, step: int, touched: set[int]) -> None:
    given = box(first, 0, tensor=OUT, steps=(step, 1))
    assert given.size == 256
    parts = Parts()
    parts.engines.store(0, 1, 1024, SLOT, given)
    assert {(cell * 4 - OUT.base) // 128 for cell in parts.memory.cells if cell * 4 >= GLOBAL} == touched


def test_boxes_that_there_are_not() -> None:
    parts = Parts()
    store = parts.engines.store
    empty = MachinePlace("e", MemoryType.Global, 4, (0, 32), GLOBAL)
    assert fault(lambda: store(0, 1, 1024, SLOT, box(0, 0, tensor=empty)), FaultKind.BOUNDS).startswith("a copy of 'e', which has no element")
    assert fault(lambda: store(0, 1, 1024, SLOT, box(0, 1, tensor=OUT)), FaultKind.ALIGNMENT) == "a box at 1 along the last axis of 'y'"
    assert fault(lambda: store(0, 1, 1024 + 1024, SLOT, box(0, 0, tensor=OUT)), FaultKind.BOUNDS) == "a box of 256 bytes leaves 's'"
    assert fault(lambda: store(0, 1, 1024 + 64, SLOT, box(0, 0, tensor=OUT)), FaultKind.ALIGNMENT) == "a box at byte 1088 of Shared memory"
    assert fault(lambda: store(0, 1, 1024 + 128, SLOT, box(0, 0, tensor=OUT, swizzle=128)), FaultKind.ALIGNMENT)  # 8 lines of a swizzle


def test_a_store_is_waited_for_by_its_thread() -> None:
    parts = Parts()
    engines = parts.engines
    engines.store(0, 1, 1024, SLOT, box(0, 0, tensor=OUT))
    engines.commit(0, bulk=True)
    engines.wait_for_bulk(0, 0, read_only=True)
    parts.memory.write(0, 1024 // 4, 2)  # the source has been read
    assert fault(lambda: engines.exits(0, 3), FaultKind.LIFE) == "a bulk store is in flight when its thread exits"
    engines.wait_for_bulk(0, 0, read_only=False)
    engines.exits(0, 3)


def test_updates_by_one_function_need_no_order() -> None:
    def second(function: str | None, other: int | None = None) -> None:
        """Thread 0 adds a box; then another thread or its engine goes on, without an order."""
        parts = Parts()
        parts.engines.store(0, 1, 1024, SLOT, box(0, 0, tensor=OUT), "add")
        if other is None:
            parts.engines.store(5, 2, 1024, SLOT, box(0, 0, tensor=OUT), function)
        else:
            parts.memory.update(other, [OUT.base // 4], 2, "add")

    second("add")
    assert "a write and an update" in fault(lambda: second("maximum"), FaultKind.RACE)
    assert "two writes" in fault(lambda: second(None), FaultKind.RACE)
    assert "two updates" in fault(lambda: second(None, 5), FaultKind.RACE)


def test_a_load_in_flight_at_the_end() -> None:
    parts = Parts()
    parts.init(1)
    parts.engines.load(0, 1, 1024, SLOT, box(0, 0), [(0, 0)])
    clock = parts.threads.clock([0])
    assert fault(lambda: parts.engines.ends(0, clock), FaultKind.LIFE) == "a load is in flight when its block exits"
    parts.engines.ends(1, clock)  # another block's


# -- asynchronous copies ------------------------------------------------------------------------------------------------------------------


def test_copies_are_done_for_who_waits_or_for_who_waits_for_an_arrival() -> None:
    parts = Parts()
    engines = parts.engines
    engines.copy(0, 1, [7], [])
    engines.commit(0, bulk=False)
    assert fault(lambda: parts.memory.read(0, 7, 2), FaultKind.RACE)
    engines.wait_for_copies(0, 0)
    parts.memory.read(0, 7, 2)
    other = Parts()
    other.init(1)
    other.engines.copy(0, 1, [7], [])
    assert fault(lambda: other.engines.exits(0, 2), FaultKind.LIFE) == "an asynchronous copy is in flight when its thread exits"
    other.engines.arrive_after_copies(0, 2, 0)
    other.engines.exits(0, 2)  # the arrival covers it
    other.engines_go_on()
    assert not other.barriers.waits(5, 3, 0, 0)
    other.memory.read(5, 7, 4)


# -- wgmma --------------------------------------------------------------------------------------------------------------------------------


OPERAND = MachinePlace("t", MemoryType.Shared, 2, (64, 64), 0)
GROUP = range(128)


def product(first: int = 0, n: int = 64, b: int = 0) -> WgmmaFactors:
    tile = MachineTile(b, 128, 0, 1024, Major.K, 2, OPERAND)
    return WgmmaFactors(MachineRegisters("acc", first, n // 2), (n,), MachineTile(0, 128, 0, 1024, Major.K, 2, OPERAND), tile, n, False)


def fenced() -> Parts:
    parts = Parts(block_threads=128)
    parts.engines.fence_registers(GROUP)
    return parts


def test_registers_belong_to_a_wgmma_until_it_is_waited_for() -> None:
    parts = fenced()
    parts.engines.wgmma(1, GROUP, product())
    assert fault(lambda: parts.engines.register(5, 2, "acc", 31), FaultKind.REGISTERS) == "register 31 of 'acc' belongs to a wgmma in flight"
    parts.engines.register(5, 2, "acc", 32)
    for w in range(4):
        lanes = GROUP[32 * w : 32 * w + 32]
        parts.engines.commit_wgmma(lanes)
        parts.engines.wait_for_wgmma(lanes, 0)
    parts.engines.register(5, 2, "acc", 31)
    parts.engines.exits(5, 3)


def test_fences_stand_between_registers_and_wgmma() -> None:
    bare = Parts(block_threads=128)
    assert fault(lambda: bare.engines.wgmma(1, GROUP, product()), FaultKind.REGISTERS) == "a wgmma without FENCE wgmma before it"
    parts = fenced()
    parts.engines.register(5, 1, "acc", 3)
    assert fault(lambda: parts.engines.wgmma(1, GROUP, product()), FaultKind.REGISTERS).startswith("no FENCE wgmma stands between the access of register 3")


def test_accumulators_of_another_shape_or_place() -> None:
    parts = fenced()
    parts.engines.wgmma(1, GROUP, product())
    parts.engines.wgmma(2, GROUP, product())
    parts.engines.wgmma(2, GROUP, product(first=32))
    for other in (product(n=32), product(first=16), product(first=31)):
        assert fault(lambda other=other: parts.engines.wgmma(3, GROUP, other), FaultKind.REGISTERS).endswith(
            "belongs to a wgmma in flight of another shape or at other registers"
        )


def test_tiles_at_fault() -> None:
    for at, kind, reason in (
        (8, FaultKind.ALIGNMENT, "a tile at byte 8 of Shared memory"),
        (112, FaultKind.ALIGNMENT, "a tile at byte 112 of Shared memory"),  # its 32 bytes leave the span
        (1024, FaultKind.BOUNDS, "a tile reads byte 8192 of the 8192 of 't'"),
    ):
        parts = fenced()
        assert fault(lambda parts=parts, at=at: parts.engines.wgmma(1, GROUP, product(b=at)), kind) == reason
    assert math.prod(OPERAND.shape) * 2 == OPERAND.size == 8192
