"""The stage of a tensor, by name."""

from __future__ import annotations

from collections.abc import Callable

import taskfuse as tf
from taskfuse import Fusion, MemoryType, TensorView, atoms
from taskfuse import ParallelType as P

BF16, SHARED = tf.bfloat16, MemoryType.Shared


Transform = Callable[[TensorView, int, int], object]


NESTS: dict[str, Transform] = {
    "inner": lambda tv, f, g: tv.split(0, f).split(1, g),
    "outer": lambda tv, f, g: tv.split(0, f).split(0, g),
    "from outside": lambda tv, f, g: tv.split(0, f, inner=False).split(1, g, inner=False),
    "merged": lambda tv, f, g: tv.split(0, f).merge(0).split(0, g),
    "merged inside": lambda tv, f, g: tv.split(0, f).split(1, g).merge(1).split(1, 3),
    "other way round": lambda tv, f, g: tv.split(0, f).reorder([1, 0]).merge(0).split(0, g),
}


LAYOUTS: dict[str, Callable[[TensorView], object]] = {
    "loops": lambda tv: None,
    "padded": lambda tv: tv.set_allocation_domain(tf.layouts.padded(1)),
    "rowmajor": lambda tv: tv.set_allocation_domain(tf.layouts.rowmajor()),
    "padded rows": lambda tv: tv.set_allocation_domain(tf.allocation(tv).pad(0, 5)),
    "one row": lambda tv: tv.set_allocation_domain(tf.allocation(tv).merge(0).pad(0, 7)),
    "split otherwise": lambda tv: tv.set_allocation_domain(tf.allocation(tv).split(0, 2).pad(0, 3)),
}


def threads(tv: TensorView) -> None:
    tv.axis(0).parallelize(P.TIDx)


def both(tv: TensorView) -> None:
    threads(tv)
    tv.axis(1).parallelize(P.TIDx)


def unrolled(tv: TensorView) -> None:
    tv.axis(len(tv.loop) - 1).parallelize(P.Unroll)


def asynchronous(tv: TensorView) -> None:
    threads(tv)
    tv.set_atom(atoms.CP_ASYNC, [])


WHO: dict[str, Callable[[TensorView], object]] = {
    "serial": lambda tv: None,
    "threads": threads,
    "digits": both,
    "unroll": unrolled,
    "cp_async": asynchronous,
}


def of(n: int | str, nest: str, f: int, g: int, layout: str, who: str, math: Callable[[TensorView], TensorView] = tf.sum, through: bool = False) -> Fusion:
    """A sum of a padded copy, both split alike; ``through``: through a copy in registers."""
    with Fusion("edges") as fusion:
        x = tf.define_tensor([n], name="x")
        out = math(x)
        fusion.add_output(out)
    tile = x.cache_after()
    tile.set_memory_type(SHARED)
    inner = [tile.cache_after()] if through else []
    for tv in (tile, *inner, out):
        NESTS[nest](tv, f, g)
    LAYOUTS[layout](tile)
    WHO[who](tile)
    fusion.inline_most()
    if not through:
        tile.inline_at(0)
    return fusion
