"""Batches of products under one condition of the threads: one branch for those that multiply, one for the others."""

from __future__ import annotations

import pytest

from taskfuse.cuda.guarded_batches import guards_of_batches, with_guarded_batches
from taskfuse.cuda.nvrtc import CompileOptions, compile_ptx
from taskfuse.cuda.source import emit
from taskfuse.kir import Kernel, parse_kernel, walk
from taskfuse.kir.nodes import If, Stmt
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import Commit, WaitGroup, WgmmaFence
from taskfuse.testing.ptx.compare import compare
from tests.lowering.shared_tiles import kernel as of_parts

PRODUCT = "WGMMA.m64n8k16.bfloat16 {0}[0], desc(s[0, 0], swizzle 32, lbo 0, sbo 256, major K), desc(s[0, 0], swizzle 32, lbo 0, sbo 256, major K), accumulate 1"
HEAD = """\
KERNEL k(x: float32[8]) -> (y: float32[8])
  DIM N min 0
  GRID (1, 1, 1)  BLOCK (128, 2, 1)
  LOCAL a: float32[4]
  LOCAL b: float32[4]
  SHARED s: bfloat16[64, 16] align 1024

"""
LOOP = """\
FOR i in 0..N:
  FENCE wgmma
  FOR threadIdx.y in TIDy{2}:
    FOR k in 0..2 UNROLL:
      IF GUARD:
        PRODUCT_A
  COMMIT wgmma
  WAIT_GROUP wgmma <= 1
WAIT_GROUP wgmma <= 0
"""


def made(loop: str = LOOP, guard: str = "64*threadIdx.y < N") -> Kernel:
    return parse_kernel(HEAD + loop.replace("GUARD", guard).replace("PRODUCT_A", PRODUCT.format("a")).replace("PRODUCT_B", PRODUCT.format("b")))


def kinds(body: tuple[Stmt, ...]) -> str:
    names: dict[type[Stmt], str] = {WgmmaFence: "fence", Wgmma: "wgmma", Commit: "commit", WaitGroup: "wait"}
    return " ".join(names[type(s)] for s in walk(body) if type(s) in names)


def test_both_arms_are_a_batch() -> None:
    kernel = with_guarded_batches(made())
    (choice,) = (s for s in walk(kernel) if isinstance(s, If))
    others, multiplying = choice.branches
    assert str(others.cond) == "64*threadIdx.y >= N"
    assert kinds(others.body) == "fence commit wait"
    assert kinds(multiplying.body) == "fence wgmma commit wait"


@pytest.mark.parametrize(
    ("guard", "loop"),
    [
        ("i < N - 1", LOOP),  # the same for all threads: nothing that ptxas takes for another batch
        ("threadIdx.y + k < N", LOOP),  # not for all products of the batch
        ("64*threadIdx.y < N", LOOP.replace("        PRODUCT_A", "        PRODUCT_A\n        PRODUCT_B")),
        ("64*threadIdx.y < N", LOOP.replace("  COMMIT", "  PRODUCT_B\n  COMMIT")),
        ("64*threadIdx.y < N", LOOP.replace("  FENCE wgmma\n", "")),
    ],
)
def test_other_batches_stay_as_they_are(guard: str, loop: str) -> None:
    kernel = made(loop, guard)
    assert with_guarded_batches(kernel) == kernel
    assert guards_of_batches(kernel) == frozenset()


@pytest.mark.parametrize("name", ["ragged", "padded"])
def test_threads_do_what_kernel_ir_says(name: str) -> None:
    kernel = of_parts(name)
    source = emit(kernel)
    assert compare(kernel, source, compile_ptx(source.text, source.name, CompileOptions())).difference is None
