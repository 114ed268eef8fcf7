"""Where elements lie in their store, and what faults call them."""

from taskfuse.dtypes import float16, float32
from taskfuse.ir.types import MemoryType
from taskfuse.sim.region import Region


def test_elements_of_shared_memory_begin_at_their_byte() -> None:
    region = Region("a_s", 1, float16, MemoryType.Shared, (4, 3, 8), origin=64)
    assert (region.strides, region.elements, region.start, region.step) == ((24, 8, 1), 96, 32, 1)
    assert str(region) == "Shared 'a_s'"


def test_registers_of_one_thread_are_as_far_apart_as_a_block_has_threads() -> None:
    region = Region("acc", 0, float32, MemoryType.Local, (4,), threads=128)
    assert (region.start, region.step) == (0, 128)


def test_inputs_are_constant() -> None:
    region = Region("x", 2, float32, MemoryType.Global, (), is_input=True)
    assert region.is_constant
    assert (region.elements, str(region)) == (1, "input 'x'")
