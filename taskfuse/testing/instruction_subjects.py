"""Small products on each tensor-core instruction, and updates of several elements by one, by name: subjects to plant wrong values in.

Each is a whole kernel of a few instructions, scheduled through the public calls: as small as the instruction admits, so that a launch takes a moment in the
simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import taskfuse as tf
from taskfuse import DType, Fusion, MemoryType, TensorView, atoms
from taskfuse import ParallelType as P
from taskfuse.ops.create import Extent
from taskfuse.testing.updates import in_boxes, in_vectors

SHARED = MemoryType.Shared


def product(name: str, a_shape: Sequence[Extent], b_shape: Sequence[Extent], dtype: DType, out: DType | None = None) -> tuple[Fusion, TensorView]:
    """``d = a @ b.T``, summed wide; ``out``: the dtype of the result."""
    with Fusion(name) as fusion:
        a, b = tf.define_tensor(a_shape, dtype=dtype, name="a"), tf.define_tensor(b_shape, dtype=dtype, name="b")
        acc = tf.matmul(a, b.T, dtype=tf.float32)
        fusion.add_output(tf.copy(acc) if out is None else tf.cast(acc, out))
    return fusion, acc


def loaded(dtype: DType, major: str = "K") -> Fusion:
    """wgmma: a role loads tiles by bulk copies (TMA) into a ring of two slots, a warpgroup multiplies 64 x 8 and stores from registers."""
    k = 32 // dtype.itemsize
    fusion, acc = product(f"wgmma_{dtype}", (64, 3 * k), (8, 3 * k), dtype)
    (d,) = fusion.outputs
    tiles = [tv.cache_after() for tv in fusion.inputs]
    acc.split(2, k).reorder([2, 0, 1, 3])
    acc.propagate(tiles, upto=1)
    acc.set_atom(atoms.wgmma(64, 8, k), (1, 2, 3))
    acc.in_flight(1)
    for tile in tiles:
        tile.set_memory_type(SHARED)
        tile.set_allocation_domain(tf.layouts.swizzled(32)).circular_buffer(3)
        tile.set_atom(atoms.TMA_LOAD, (1, 2))
        tile.inline_at(1)
    d.fragment((0, 1))
    fusion.group([fusion.task(tiles, name="load"), fusion.task([acc, d], name="mma")], name="roles").parallelize(P.TIDy)
    return fusion


def through_registers() -> Fusion:
    """wgmma whose first factor is in registers, where it is computed from a tile in Shared memory."""
    with Fusion("wgmma_registers") as fusion:
        a, b = tf.define_tensor([64, 48], dtype=tf.bfloat16, name="a"), tf.define_tensor([8, 48], dtype=tf.bfloat16, name="b")
        changed = tf.relu(a)
        acc = tf.matmul(changed, b.T, dtype=tf.float32)
        d = tf.copy(acc)
        fusion.add_output(d)
    tiles = [a.cache_after(), b.cache_after()]
    factor = tiles[0].cache_after()
    acc.split(2, 16).reorder([2, 0, 1, 3])
    acc.propagate([*tiles, factor, changed], upto=1)
    acc.set_atom(atoms.wgmma(64, 8, 16), (1, 2, 3))
    for tile in tiles:
        tile.set_memory_type(SHARED)
        tile.set_allocation_domain(tf.layouts.swizzled(32)).circular_buffer(2)
        tile.split(1, 8)
        tile.axis(2).parallelize(P.TIDx)
        tile.inline_at(1)
    factor.split(1, 16)
    factor.axis(1).parallelize(P.TIDx)
    factor.set_atom(atoms.LDMATRIX_X4, (2, 3))
    changed.fragment((1, 2))
    for tv in (factor, changed):
        tv.inline_at(1)
    d.fragment((0, 1))
    return fusion


def in_parts(along: P) -> Fusion:
    """wgmma whose summed axis is spread over an index: its halves are added at the end."""
    fusion, acc = product(f"wgmma_split_{along.value}", (64, 64), (8, 64), tf.bfloat16)
    (d,) = fusion.outputs
    tiles = [tv.cache_after() for tv in fusion.inputs]
    acc.split(2, 16).split(2, 2, inner=False).reorder([2, 3, 0, 1, 4])  # [part, step, 64, 8, 16]
    acc.axis(0).parallelize(along)
    acc.set_atom(atoms.wgmma(64, 8, 16), (2, 3, 4))
    for tile in tiles:
        tile.set_memory_type(SHARED)
        tile.split(1, 16).reorder([1, 0, 2])
        tile.set_allocation_domain(tf.layouts.swizzled(32))
        tile.split(1, 8).axis(2).parallelize(P.TIDx)
    d.fragment((0, 1))
    return fusion


def stored_by_boxes() -> Fusion:
    """wgmma whose result stmatrix stores to a swizzled tile in Shared memory, and a bulk store (TMA) to Global memory."""
    fusion, acc = product("wgmma_stored", (64, 32), (16, 32), tf.bfloat16, tf.bfloat16)
    (d,) = fusion.outputs
    tiles = [tv.cache_after() for tv in fusion.inputs]
    staged = d.cache_before()
    rounded = staged.cache_before()
    acc.split(2, 16).reorder([2, 0, 1, 3])
    acc.propagate(tiles, upto=1)
    acc.set_atom(atoms.wgmma(64, 16, 16), (1, 2, 3))
    for tile in tiles:
        tile.set_memory_type(SHARED)
        tile.set_allocation_domain(tf.layouts.swizzled(32)).circular_buffer(2)
        tile.set_atom(atoms.TMA_LOAD, (1, 2))
        tile.inline_at(1)
    rounded.fragment((0, 1))
    staged.set_memory_type(SHARED)
    staged.set_allocation_domain(tf.layouts.swizzled(32))
    staged.split(0, 16)
    staged.axis(0).parallelize(P.TIDx)
    staged.set_atom(atoms.STMATRIX_X4, (1, 2))
    d.set_atom(atoms.TMA_STORE, (0, 1))
    fusion.group([fusion.task(tiles, name="load"), fusion.task([acc, rounded, staged, d], name="mma")], name="roles").parallelize(P.TIDy)
    return fusion


def persistent() -> Fusion:
    """wgmma in a persistent kernel: two blocks compute two or more rows of tiles in groups, loads fill a ring ahead, extents are symbolic."""
    fusion, acc = product("wgmma_persistent", (tf.dim("M", min=65), tf.dim("K", multiple_of=8)), (tf.dim("N", multiple_of=8), "K"), tf.bfloat16)
    (d,) = fusion.outputs
    tiles = [tv.cache_after() for tv in fusion.inputs]
    acc.split(0, 64).split(2, 8).split(4, 16).reorder([0, 2, 1, 3, 4, 5])  # [mo, no, m, n, ko, k]
    acc.rasterize((0, 1), tf.tiles.grouped(2)).split(0, 2)  # [wave, block, m, n, ko, k]
    acc.axis(1).parallelize(P.BIDx)
    acc.propagate([d], upto=4)
    acc.reorder({4: 2}).propagate(tiles, upto=3)
    tf.parallelize_like(acc, [*tiles, d])
    acc.set_atom(atoms.wgmma(64, 8, 16), (3, 4, 5))
    for tile in tiles:
        tile.set_memory_type(SHARED)
        tile.set_allocation_domain(tf.layouts.swizzled(32)).circular_buffer(2)
        tile.set_atom(atoms.TMA_LOAD, (3, 4))
        tile.inline_at(3)
    d.fragment((2, 3))
    acc.inline_at(2)
    fusion.group([fusion.task(tiles, name="load"), fusion.task([acc, d], name="mma")], name="roles").parallelize(P.TIDy)
    return fusion


def clustered() -> Fusion:
    """wgmma by a cluster of two blocks along the rows: each loads half of every tile of ``b`` for both (TMA, multicast)."""
    fusion, acc = product("wgmma_cluster", (128, 48), (16, 48), tf.bfloat16)
    (d,) = fusion.outputs
    tiles = [tv.cache_after() for tv in fusion.inputs]
    acc.split(0, 64).split(3, 16).reorder([0, 3, 1, 2, 4])  # [rank, step, 64, 16, 16]
    acc.axis(0).parallelize(P.CIDx)
    acc.propagate([d], upto=1)
    acc.propagate(tiles, upto=2)
    tf.parallelize_like(acc, [*tiles, d])
    acc.set_atom(atoms.wgmma(64, 16, 16), (2, 3, 4))
    for tile, atom in zip(tiles, (atoms.TMA_LOAD, atoms.TMA_LOAD_MULTICAST), strict=True):
        tile.set_memory_type(SHARED)
        tile.set_allocation_domain(tf.layouts.swizzled(32)).circular_buffer(2)
        tile.set_atom(atom, (2, 3))
        tile.inline_at(2)
    d.fragment((1, 2))
    acc.inline_at(1)
    fusion.group([fusion.task(tiles, name="load"), fusion.task([acc, d], name="mma")], name="roles").parallelize(P.TIDy)
    return fusion


def by_warp(stages: int = 1, staged: bool = False) -> Fusion:
    """mma.sync by one warp, with factors loaded by ldmatrix.

    Args:
        stages: slots of the rings that asynchronous copies (cp.async) fill ahead; 1: vectorized copies without a ring.
        staged: stmatrix stores the result through Shared memory.
    """
    fusion, acc = product(f"mma_{stages}{'_staged' if staged else ''}", (16, 64), (16, 64), tf.bfloat16, tf.bfloat16)
    (d,) = fusion.outputs
    tiles = [tv.cache_after() for tv in fusion.inputs]
    factors = [tile.cache_after() for tile in tiles]
    acc.split(2, 16).reorder([2, 0, 1, 3])  # [step, 16, 16, 16]
    acc.propagate([*tiles, *factors], upto=1)
    acc.split(2, 8).reorder([0, 2, 1, 3, 4])
    acc.set_atom(atoms.mma(16, 8, 16), (2, 3, 4))
    acc.axis(1).parallelize(P.Unroll)
    for tile in tiles:
        tile.set_memory_type(SHARED)
        tile.set_allocation_domain(tf.layouts.swizzled(32)).circular_buffer(stages)
        tile.split(2, 8).merge(1)
        tile.axis(1).parallelize(P.TIDx)
        if stages > 1:
            tile.set_atom(atoms.CP_ASYNC, (2,))
        else:
            tile.axis(2).parallelize(P.Vectorize)
        tile.inline_at(1)
    for factor in factors:
        factor.set_atom(atoms.LDMATRIX_X4, (1, 2))
        factor.inline_at(1)
    factors[1].set_allocation_domain(tf.layouts.fragment(halves_first=True))
    if staged:
        tile = d.cache_before()
        rounded = tile.cache_before()
        rounded.fragment((0, 1))
        tile.set_memory_type(SHARED)
        tile.set_allocation_domain(tf.layouts.swizzled(32))
        tile.set_atom(atoms.STMATRIX_X4, (0, 1))
        d.split(1, 8).merge(0)
        d.axis(0).parallelize(P.TIDx)
        d.axis(1).parallelize(P.Vectorize)
    else:
        d.fragment((0, 1))
    return fusion


INSTRUCTIONS: Mapping[str, Callable[[], Fusion]] = MappingProxyType(
    {
        "wgmma:bf16": partial(loaded, tf.bfloat16),
        "wgmma:e4m3": partial(loaded, tf.float8_e4m3),
        "wgmma:tf32": partial(loaded, tf.float32),
        "wgmma:registers": through_registers,
        "wgmma:blocks": partial(in_parts, P.BIDz),
        "wgmma:threads": partial(in_parts, P.TIDy),
        "wgmma:stored": stored_by_boxes,
        "wgmma:persistent": persistent,
        "wgmma:cluster": clustered,
        "mma:ldmatrix": by_warp,
        "mma:stmatrix": partial(by_warp, staged=True),
        "mma:cp.async": partial(by_warp, stages=3),
        "update:vectors": in_vectors,
        "update:boxes": partial(in_boxes, slots=2, dtype=tf.int32),
        "update:blocks": partial(in_boxes, blocks=True),
    }
)
"""The functions that build the subjects, by name."""
