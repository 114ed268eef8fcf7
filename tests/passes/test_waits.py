"""JoinWaits: products of several tensors, one after another, are waited for once, and the last ones where they are read."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.kir import parse_kernel, walk
from taskfuse.kir.operands import Queue
from taskfuse.kir.synchronization import WaitGroup
from taskfuse.lowering.steps import lower
from taskfuse.passes.waits import JoinWaits
from taskfuse.schedulers import BackToBackConfig
from tests.schedulers.back_to_backs import arrays, of_keys

HEAD = """\
KERNEL k(x: float32[4]) -> (y: float32[4])
  GRID (1, 1, 1)  BLOCK (128, 1, 1)
  SHARED s: bfloat16[8, 4, 2, 4, 8] align 512 @ 0
  LOCAL a: float32[16]
  LOCAL b: float32[16]
  LOCAL c: float32[16]

"""
S = "desc(s[0, 0, 0, 0, 0], swizzle 64, lbo 0, sbo 512, major K)"


def product(acc: str) -> str:
    return f"WGMMA.m64n32k16.bfloat16 {acc}[0], {S}, {S}, accumulate 0\nCOMMIT wgmma\n"


WAIT, LATE = "WAIT_GROUP wgmma <= 0\n", "WAIT_GROUP wgmma <= 1\n"
READS = {name: f"c[0] = copy({name}[0])\n" for name in "abc"}
CASES = {
    "two, and the first is read first": (
        product("a") + WAIT + product("b") + WAIT + READS["a"] + READS["c"] + READS["b"],
        product("a") + product("b") + LATE + READS["a"] + READS["c"] + WAIT + READS["b"],
    ),
    "two, and the last is read first": (
        product("a") + WAIT + product("b") + WAIT + READS["b"] + READS["a"],
        product("a") + product("b") + WAIT + READS["b"] + READS["a"],
    ),
    "three": (
        product("a") + WAIT + product("b") + WAIT + product("c") + WAIT + READS["b"],
        product("a") + product("b") + product("c") + WAIT + READS["b"],  # it writes c
    ),
    "nothing reads them": (product("a") + WAIT + product("b") + WAIT, product("a") + product("b") + WAIT),
    "something is read between": (product("a") + WAIT + READS["a"] + product("b") + WAIT,) * 2,
    "one accumulator": (product("a") + WAIT + product("a") + WAIT,) * 2,
    "a barrier between": (product("a") + WAIT + "SYNC block\n" + product("b") + WAIT,) * 2,
    "a barrier behind": (
        product("a") + WAIT + product("b") + WAIT + READS["a"] + "SYNC block\n" + READS["b"],
        product("a") + product("b") + LATE + READS["a"] + WAIT + "SYNC block\n" + READS["b"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_joined(name: str) -> None:
    before, after = CASES[name]
    found = str(JoinWaits().run(parse_kernel(HEAD + before))).split("\n\n", 1)[1]
    assert found.strip() == after.strip()


def waits(kernel: tf.Kernel) -> list[int]:
    return [s.pending for s in walk(kernel) if isinstance(s, WaitGroup) and s.queue is Queue.WGMMA]


def test_a_walk_with_and_without_it() -> None:
    """Scores and gradients of exponentials are in flight together; what is lowered is proved either way, and gives the same words."""
    fusion = of_keys(sizes=(64, 64))
    args = arrays(fusion, 64, 64)
    tf.schedulers.back_to_back(fusion, BackToBackConfig(1, 32, 2))
    kernels: dict[str, tf.Kernel] = {}
    joined = lower(fusion, after=lambda step, state: kernels.update({step.name: state.kernel}) if step.name == "read-places" else None)
    plain = kernels["read-places"]
    assert waits(plain) == [0, 0, 0, 0, 0, 0]
    assert waits(joined) == [1, 0, 0, 0, 0]  # of several behind the loop one is left
    for kernel in (plain, joined):
        assert kernel.verify().verdict.value == "proved"
    for one, other in zip(plain.simulate(*args), joined.simulate(*args, interleaving=tf.Interleaving.LOW_FIRST), strict=True):
        np.testing.assert_array_equal(one, other)
