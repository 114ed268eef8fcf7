"""Behavior of a kernel: under every interleaving (:func:`explored`), or under each of the simulator's interleavings (:func:`misbehaves`); its results
(:func:`other_words`).

The first two check whether the interleaving matters, not whether results are right: a kernel that reads the same uninitialized memory in every
interleaving is still synchronized.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.errors import SimulationError, TaskfuseError
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Expr, const, eq, evaluate, sym
from taskfuse.ir.types import MemoryType
from taskfuse.ir.values import MODULAR
from taskfuse.kir import Kernel
from taskfuse.kir.clusters import ranks
from taskfuse.kir.declarations import Counter
from taskfuse.kir.nodes import Branch, Compute, For, If, Stmt
from taskfuse.kir.operands import Access, Immediate
from taskfuse.kir.synchronization import Barrier, BarrierScope, FenceProxyAsync
from taskfuse.sim import Interleaving, explore, simulate
from taskfuse.testing.launches import Ending, Launches, LongRun, NoVerdict, Oracle, RefusedLaunch, key

Argument = NDArray[Any] | float | int

# A kernel with the same wrong results under every interleaving has no race.
VALUES = ("uninitialized", "were not written", "no case of the choice holds")
LIMITS = ("threads per block", "bytes of Shared memory")
STEPS = " steps"
MOST = 300_000

FEW = 16
"""Blocks with at most this many threads are explored thread by thread; larger ones by half warps."""


def is_valid(kernel: Kernel) -> bool:
    """True if a kernel obeys the rules of kernel IR."""
    try:
        kernel.check_ir()
    except TaskfuseError:
        return False
    return True


class Truth(Enum):
    """Verdict of exploration. HOLDS: all interleavings have the same result. FAILS: one differs or fails. CUT: no failure up to the limits."""

    HOLDS = "holds"
    FAILS = "fails"
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class Explored:
    """The outcome of an exploration, and the failure of an interleaving."""

    truth: Truth
    reason: str = ""


def explored(
    kernel: Kernel, arguments: Sequence[Argument], extents: Mapping[str, int] | None = None, limit: int = 3000, in_step: int | None = None
) -> Explored:
    """All interleavings of one launch, up to ``limit`` states.

    An interleaving ends at a read of uninitialized memory; the kernel is then explored again with all its memory filled first, to explore the
    statements after the read.

    Args:
        in_step: threads that run in step; ``None``: one in small blocks, else half a warp.
    """
    if in_step is None:
        threads = [int(evaluate(e, dict(extents or {}))) for e in kernel.block]
        in_step = 1 if threads[0] * threads[1] * threads[2] <= FEW else 16
    found = explore(kernel, arguments, values=MODULAR, extents=extents, limit=limit, in_step=in_step, max_steps=MOST)
    if found.failure is None:
        return Explored(Truth.HOLDS if found.complete else Truth.CUT)
    if found.failure.error is not None and no_verdict(str(found.failure.error).split("\n")[0]) is not None:
        return Explored(Truth.CUT)
    reason = "results differ between interleavings" if found.failure.error is None else str(found.failure.error).split("\n")[0].removeprefix(f"{kernel.name}: ")
    if any(text in reason for text in VALUES):
        twin = filled(kernel)
        if twin is not None:
            return explored(twin, arguments, extents, limit, in_step)
    return Explored(Truth.FAILS, reason)


def filled(kernel: Kernel, value: int = 0) -> Kernel | None:
    """The kernel with ``value`` in its registers, Shared memory, workspace and outputs at the start; ``None`` if it already fills them."""
    if kernel.name.endswith(FILLED):
        return None
    every: list[Stmt] = []
    one: list[Stmt] = []
    first: list[Stmt] = []
    for name, dtype, shape, memory in [
        *((p.name, p.dtype, p.shape, MemoryType.Global) for p in kernel.outputs),
        *((b.name, b.dtype, b.shape, b.memory) for b in kernel.buffers),
    ]:
        medium = MEDIA[memory]
        indices: list[Expr] = [sym(f"fill{k}") for k in range(len(shape))]
        if medium.is_by_rank:  # each block fills its own part
            indices[0] = ranks(kernel.cluster, ())[0]
        zero: Stmt = Compute(Access(name, tuple(indices)), ELEMENTWISE["copy"], (Immediate(bool(value) if dtype.is_bool else value, dtype),), dtype)
        for k in reversed(range(medium.is_by_rank, len(shape))):
            zero = For(f"fill{k}", const(0), shape[k], const(1), not medium.has_addresses, (zero,))
        (every if memory is MemoryType.Local else one if memory is MemoryType.Shared or medium.is_by_rank else first).append(zero)
    threads, blocks = (x * y * z for x, y, z in (kernel.block, kernel.grid))
    thread, block = (eq(sym(f"{index}.x") + sym(f"{index}.y") + sym(f"{index}.z"), 0) for index in ("threadIdx", "blockIdx"))
    lone = blocks is const(1)
    barrier = Barrier(BarrierScope.BLOCK, threads) if lone else Barrier(BarrierScope.GRID, threads * blocks, counter=COUNTER)
    shown = (FenceProxyAsync(MemoryType.Shared), FenceProxyAsync(MemoryType.Global))  # engines may read or write what is filled
    start = (*every, If((Branch(thread, (*one, If((Branch(block, tuple(first)),)), *shown)),)), barrier)
    counters = kernel.counters if lone else (*kernel.counters, Counter(COUNTER))
    return replace(kernel, name=kernel.name + FILLED, counters=counters, body=(*start, *kernel.body))


UNWRITTEN = "read of uninitialized"
FILLS = (0, 3)
"""Initial values of memory that a kernel may read uninitialized: its results must not depend on them."""


def other_words(
    kernel: Kernel,
    arguments: Sequence[Argument],
    wanted: Sequence[NDArray[Any]],
    seed: int = 0,
    interleaving: Interleaving | None = None,
    extents: Mapping[str, int] | None = None,
    most: int = MOST,
) -> str | None:
    """How the modular results of a launch differ from ``wanted``; ``None`` if they are equal.

    A kernel that reads uninitialized memory must give them for any content of it.

    Raises:
        RefusedLaunch: a block would have too many threads or bytes.
        LongRun: it takes more than ``most`` steps.
        TaskfuseError: the arguments are not those of the kernel.
    """

    def run(launched: Kernel) -> str | None:
        found = simulate(launched, arguments, seed=seed, interleaving=interleaving or Interleaving.RANDOM, values=MODULAR, max_steps=most, extents=extents)
        return None if equal(found, wanted) else "other words"

    try:
        return run(kernel)
    except (SimulationError, ZeroDivisionError, IndexError) as error:
        reason = str(error).split("\n")[0]
        if (undecided := no_verdict(reason)) is not None:
            raise undecided from error
        if UNWRITTEN not in reason:
            return reason
    try:
        for value in FILLS:
            twin = filled(kernel, value)
            found = reason if twin is None else run(twin)
            if found is not None:
                return f"{reason}, and the words depend on it"
    except (SimulationError, ZeroDivisionError, IndexError) as error:
        found = str(error).split("\n")[0]
        if (undecided := no_verdict(found)) is not None:
            raise undecided from error
        return found
    return None


def no_verdict(reason: str) -> NoVerdict | None:
    """The ending of a run whose error says nothing about the kernel; ``None`` for any other error."""
    if any(text in reason for text in LIMITS):
        return RefusedLaunch(reason)
    return LongRun(reason) if reason.endswith(STEPS) else None


def equal(found: Sequence[NDArray[Any]], wanted: Sequence[NDArray[Any]]) -> bool:
    """True if all elements are equal; NaN equals NaN."""
    return all(a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in zip(found, wanted, strict=True))


FILLED = "_filled"
COUNTER = "filled"


def misbehaves(
    kernel: Kernel, arguments: Sequence[Argument], extents: Mapping[str, int] | None = None, rounds: int = 1, launches: Launches | None = None
) -> str | None:
    """The race, deadlock or misuse of barriers, memory or engines that one of the simulator's eight interleavings shows in ``rounds`` rounds;
    ``None`` if none does. ``launches`` counts the runs by their endings."""
    launches = Launches() if launches is None else launches
    seen: list[tuple[NDArray[Any], ...] | str] = []
    for seed, interleaving in enumerate([*Interleaving] * rounds):
        try:
            seen.append(simulate(kernel, arguments, seed=seed, interleaving=interleaving, values=MODULAR, max_steps=MOST, extents=extents))
            launches[key(Oracle.SIMULATOR, Ending.DECIDED)] += 1
        except SimulationError as error:
            reason = str(error).split("\n")[0]
            undecided = no_verdict(reason)
            launches[key(Oracle.SIMULATOR, Ending.DECIDED if undecided is None else undecided.ending)] += 1
            if undecided is not None:
                continue
            if not any(text in reason for text in VALUES):
                return f"{interleaving.value}: {reason}"
            seen.append(reason)
    for found in seen[1:]:
        if isinstance(found, str) or isinstance(seen[0], str):
            if isinstance(found, str) is not isinstance(seen[0], str):
                return f"only some interleavings read what nobody wrote: {found if isinstance(found, str) else seen[0]}"
        elif any(not np.array_equal(a, b) for a, b in zip(found, seen[0], strict=True)):
            return "results differ between interleavings"
    return None
