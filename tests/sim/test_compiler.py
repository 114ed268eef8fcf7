"""Every class of statements is compiled: as one instruction by its meaning, or by the compiler itself."""

from typing import get_args

from taskfuse.ir.values import NATIVE
from taskfuse.kir import parse_kernel
from taskfuse.kir.nodes import Bind, For, If, Stmt
from taskfuse.kir.products import Shuffle
from taskfuse.kir.synchronization import Acquire, Advance, Barrier, CursorInit, SetMaxNReg, Wait, WaitGroup
from taskfuse.sim.compiler import MEANINGS, compiled
from tests.sim.kernels import load

COMPILED = {For, Bind, If, Barrier, Wait, Acquire, CursorInit, Advance, WaitGroup, Shuffle, SetMaxNReg}
"""What waits, parts threads, moves cursors, or does nothing."""


def test_every_statement_has_one_meaning() -> None:
    assert MEANINGS.keys() | COMPILED == set(get_args(Stmt))
    assert not MEANINGS.keys() & COMPILED


def test_what_others_see_is_a_point() -> None:
    """Instructions on elements that others see, and those that synchronize, are points of the interleaving; those on registers are none."""
    code = compiled(parse_kernel(load("gemm")), NATIVE)
    quiet, seen = (
        {type(s).__name__ for s, point in zip(code.sources, code.points, strict=True) if type(s) in MEANINGS and point is which} for which in (False, True)
    )
    assert quiet == {"Compute", "Commit", "WgmmaFence"}  # on registers
    assert {"StMatrix", "TmaLoad", "Wgmma", "Expect", "InitBarrier"} <= seen


def test_a_kernel_is_compiled_once() -> None:
    kernel = parse_kernel(load("ring"))
    assert compiled(kernel, NATIVE) is compiled(kernel, NATIVE)
