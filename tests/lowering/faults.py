"""Planted faults: kernels with one statement of synchronization taken away."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

import taskfuse as tf
from taskfuse.errors import SimulationError
from taskfuse.kir import map_stmts, walk
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.synchronization import Arrive, Barrier, Wait
from tests.lowering.running import Array


def without(kernel: tf.Kernel, fault: Stmt) -> tf.Kernel:
    """The kernel without one statement (the object itself)."""
    return replace(kernel, body=map_stmts(kernel.body, lambda s: () if s is fault else s))


def faults(kernel: tf.Kernel) -> Iterator[tuple[str, tf.Kernel]]:
    """Every kernel that lacks one barrier, wait or arrival, with what it lacks."""
    seen: set[int] = set()
    for s in walk(kernel):
        if isinstance(s, Barrier | Wait | Arrive) and id(s) not in seen:
            seen.add(id(s))
            yield f"{type(s).__name__} {s.note if isinstance(s, Barrier) else s.barrier.name}", without(kernel, s)


def is_caught(kernel: tf.Kernel, fusion: tf.Fusion, *args: Array, seeds: int = 20) -> bool:
    """True if an interleaving makes the kernel fail or give another result than NumPy."""
    wanted = fusion.evaluate(*args)
    for seed in range(seeds):
        for interleaving in tf.Interleaving:
            try:
                found = kernel.simulate(*args, seed=seed, interleaving=interleaving, max_steps=200_000)
            except SimulationError:
                return True
            if any(not np.array_equal(a, b) for a, b in zip(found, wanted, strict=True)):
                return True
    return False


def missed(kernel: tf.Kernel, fusion: tf.Fusion, *args: Array) -> list[str]:
    """What can be taken away without any interleaving noticing."""
    return [what for what, broken in faults(kernel) if not is_caught(broken, fusion, *args)]
