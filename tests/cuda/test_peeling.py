"""Loops whose first and last iteration are printed by themselves: those with products under conditions that hold in all others, and no others."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cuda.peeling import peeled
from taskfuse.kir import Kernel, parse_kernel, walk
from taskfuse.kir.nodes import For, If
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import Commit, WaitGroup
from taskfuse.schedulers import AttentionConfig
from tests.schedulers.attentions import arrays, attention

PRODUCT = "WGMMA.m64n8k16.bfloat16 {0}[0], desc(s[0, 0], swizzle 32, lbo 0, sbo 256, major K), desc(s[0, 0], swizzle 32, lbo 0, sbo 256, major K), accumulate 1"
HEAD = """\
KERNEL k(x: float32[8]) -> (y: float32[8])
  DIM N min {0}
  GRID (1, 1, 1)  BLOCK (128, 1, 1)
  LOCAL a: float32[4]
  LOCAL b: float32[4]
  SHARED s: bfloat16[64, 16] align 1024

"""
LOOP = """\
FOR i in 0..N + 1:
  IF i < N:
    FENCE wgmma
    PRODUCT_A
    COMMIT wgmma
  IF i >= 1:
    FENCE wgmma
    PRODUCT_B
  COMMIT wgmma
  WAIT_GROUP wgmma <= 1
  IF i < N:
    a[0] = copy(x[i])
  WAIT_GROUP wgmma <= 0
"""


def made(loop: str = LOOP, least: int = 1) -> Kernel:
    return parse_kernel(HEAD.format(least) + loop.replace("PRODUCT_A", PRODUCT.format("a")).replace("PRODUCT_B", PRODUCT.format("b")))


def test_first_and_last_iteration() -> None:
    kernel = peeled(made())
    conditions = [s for s in walk(kernel) if isinstance(s, If)]
    assert conditions == []
    kinds = [s for s in walk(kernel) if isinstance(s, Wgmma | Commit | WaitGroup | For)]
    names = [s.acc.buffer if isinstance(s, Wgmma) else "c" if isinstance(s, Commit) else str(s.pending) if isinstance(s, WaitGroup) else "[" for s in kinds]
    assert " ".join(names) == "a c c 1 0 [ a c b c 1 0 b c 1 0"


def test_no_trip() -> None:
    """Where the loop may have one iteration, which has no products, other code is for that."""
    kernel = peeled(made(least=0))
    (choice,) = (s for s in walk(kernel) if isinstance(s, If) and len(s.branches) == 2)
    several, alone = (sum(isinstance(s, Wgmma) for s in walk(arm.body)) for arm in choice.branches)
    assert (several, alone) == (4, 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("IF i >= 1:", "IF i >= 2:"),  # more than the first iteration
        ("IF i < N:\n    FENCE", "IF i % 2 == 0:\n    FENCE"),
        ("FOR i in 0..N + 1:", "FOR i in 0..N + 1 step 2:"),
        ("IF i >= 1:", "IF i + threadIdx.x >= 1:"),  # of some threads
    ],
)
def test_other_loops_stay(old: str, new: str) -> None:
    kernel = made(LOOP.replace(old, new))
    assert peeled(kernel) is kernel


def test_a_loop_without_such_conditions_stays() -> None:
    kernel = made("FOR i in 0..N:\n  FENCE wgmma\n  PRODUCT_A\n  COMMIT wgmma\n  WAIT_GROUP wgmma <= 0\n")
    assert peeled(kernel) is kernel


@pytest.mark.parametrize(("keys", "is_changed"), [(192, True), (64, False)])
def test_what_is_printed_computes_the_same(keys: int, is_changed: bool) -> None:
    """A loop of one chunk has no iteration without conditions."""
    fusion = attention(32, sizes=(64, keys))
    tf.schedulers.attention(fusion, AttentionConfig(1, 64, 2, is_pipelined=True))
    kernel = tf.lower(fusion)
    printed = peeled(kernel)
    assert (printed is not kernel) == is_changed
    given = arrays(fusion, 64, keys)
    assert np.array_equal(printed.simulate(*given), kernel.simulate(*given))
