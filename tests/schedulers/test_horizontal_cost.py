"""What it brings to run fusions side by side: a model of multiprocessors as they fill."""

import pytest

import taskfuse as tf
from taskfuse.schedulers.horizontal_cost import duration
from taskfuse.target import DEFAULT
from tests.errors import text_of
from tests.schedulers.members import pointwise, softmax


def test_many_small_ones_gain() -> None:
    horizontal_cost = tf.horizontal_cost([pointwise(5000, f"p{k}") for k in range(8)])
    assert horizontal_cost.pays
    assert horizontal_cost.us > 7 * DEFAULT.launch_us  # the launches, at least


def test_a_large_one_beside_one_that_fills_a_multiprocessor_does_not() -> None:
    large, wide = pointwise(1 << 26, "large"), softmax(528, 32768, "wide", threads=1024)
    text = text_of(lambda: tf.horizontal([large, wide]))
    assert text.startswith("fusion 'horizontal': side by side its members are not expected to be faster than one after another\nnote: ")
    assert text.endswith(
        "us lost\nhelp: leave out the member that costs the others most, give it fewer threads, registers or bytes of Shared memory, or force=True"
    )
    assert tf.horizontal([large, wide], force=True).outputs
    assert not tf.horizontal_cost([large, wide]).pays


def test_registers_that_would_spill_are_a_reason() -> None:
    fat, wide = softmax(4, 32 * 150, "fat", threads=32), pointwise(4096, "wide", threads=1024)
    horizontal_cost = tf.horizontal_cost([fat, wide])
    assert [m.name for m in horizontal_cost.spilled] == ["fat"]
    assert horizontal_cost.us > 0
    assert not horizontal_cost.pays
    assert "fat would spill: a thread of a block of 1024 has at most 64 registers" in horizontal_cost.explain()


def test_sizes_are_named_as_in_the_new_fusion() -> None:
    members = [pointwise("N", "a"), pointwise("N", "b")]
    few, many = (tf.horizontal_cost(members, sizes={"a_N": n, "b_N": 64}) for n in (64, 1 << 24))
    assert [m.blocks for m in few.members] == [1, 1]
    assert many.members[0].blocks == (1 << 24) // 64
    assert many.alone[0] > few.alone[0]
    assert "sizes has 'N', which is not a dimension of it" in text_of(lambda: tf.horizontal_cost(members, sizes={"N": 3}))


def test_waves_fill_with_the_next_members_blocks() -> None:
    """Two members of half a wave each take the time of one, side by side; each block moves as many bytes."""
    half = tf.horizontal_cost([pointwise(64 * 66, "a", 64), pointwise(64 * 66, "b", 64)]).members
    assert duration(half, 1) == pytest.approx(duration(half[:1], 1))
    assert duration([*half, *half], 1) == pytest.approx(2 * duration(half, 1))
