"""Mechanisms of a schedule: each is seen where the schedule has it."""

import pytest

import taskfuse as tf
from taskfuse import MemoryType, ParallelType
from taskfuse.testing.instruction_subjects import INSTRUCTIONS
from taskfuse.testing.mechanisms import mechanisms


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wgmma:bf16", {"wgmma", "wgmma of bfloat16", "wgmma from Shared memory", "tma_load", "in_flight"}),
        ("wgmma:e4m3", {"circular buffer in Shared memory", "allocation domain", "group on threads"}),
        ("wgmma:registers", {"wgmma from registers", "ldmatrix_x4"}),
        ("wgmma:blocks", {"parts of an atom's sum on threads or blocks"}),
        ("wgmma:persistent", {"tile order"}),
        ("wgmma:cluster", {"cluster", "tma_load_multicast"}),
        ("mma:cp.async", {"mma", "cp_async"}),
    ],
)
def test_products(name: str, expected: set[str]) -> None:
    assert expected <= mechanisms(INSTRUCTIONS[name]())


def test_others() -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([8, 32])
        y = tf.sum(x, 1)
        fusion.add_output(y)
    assert mechanisms(fusion) == set()
    copy = x.cache_after()
    copy.set_memory_type(MemoryType.Shared)
    copy.set_allocation_domain(tf.layouts.padded(1))
    y.axis(1).parallelize(ParallelType.TIDx)
    fusion.task([y]).registers(64)
    assert mechanisms(fusion) == {"allocation domain", "reduction on threads or blocks", "register budgets"}
