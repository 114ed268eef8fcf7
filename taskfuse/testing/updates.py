"""Small fusions that send tiles to elements which no data names: subjects to plant wrong values and orders in."""

from __future__ import annotations

import taskfuse as tf
from taskfuse import DType, Fusion, MemoryType, TensorView, atoms
from taskfuse import ParallelType as P
from taskfuse.ir.axes import axis
from taskfuse.ir.axes import iteration_symbol as i
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.expr import Assemble, Read, Update
from taskfuse.ops.build import broadcast_read


def added(
    dtype: DType = tf.float32, combine: str = "add", tiles: int | str = 3, rows: int = 2, columns: int = 32
) -> tuple[Fusion, TensorView, TensorView, TensorView]:
    """``y = x``, combined with ``abs(s)`` [tiles, rows, columns] tile by tile: the fusion, what is stored first, what is sent, and the updates."""
    with Fusion("added") as fusion:
        x = tf.define_tensor([rows, columns], dtype, name="x")
        s = tf.define_tensor([tiles, rows, columns], dtype, name="s")
        start, made = tf.copy(x), tf.abs(s)
        sent = fusion.new_tensor([axis(a.extent) for a in made.logical], dtype)
        fusion.define(Update(sent, COMBINES[combine], (Read(start, (i(1), i(2))), broadcast_read(made, made.shape)), ()))
        y = fusion.new_tensor([axis(a.extent) for a in start.logical], dtype)
        parts = broadcast_read(start, start.shape), broadcast_read(sent, sent.shape)
        fusion.define(Assemble(y, parts, ((i(0), i(1)), (i(1), i(2)))))
        fusion.add_output(y)
    return fusion, start, made, sent


def in_boxes(
    *, slots: int = 1, blocks: bool = False, role: bool = False, read: bool = False, rows: int = 2, dtype: DType = tf.float32, combine: str = "add"
) -> Fusion:
    """The copy engine combines the tiles, two rows at a time, from ``slots`` slots.

    Args:
        blocks: a block has one tile.
        role: a role waits for the tiles, and sends them; read: the result is read again.
    """
    fusion, start, made, sent = added(dtype, combine, rows=rows)
    for tv in (start, made):
        tv.axis(-1).parallelize(P.TIDx)
    if rows % 2:
        for tv in (made, sent):
            tv.split(1, 2)
    made.set_memory_type(MemoryType.Shared)
    made.inline_at(len(made.loop) - 2)
    if slots > 1:
        made.circular_buffer(slots)
    sent.set_atom(atoms.TMA_STORE, (-2, -1))
    if blocks:
        for tv in (made, sent):
            tv.axis(0).parallelize(P.BIDx)
    if read:
        with fusion:
            z = tf.neg(fusion.outputs[0])
            fusion.add_output(z)
        z.axis(-1).parallelize(P.TIDx)
    if role:
        fusion.task([start])
        fusion.group([fusion.task([made]), fusion.task([sent])]).parallelize(P.TIDy)
    return fusion


def in_vectors(width: int = 4, dtype: DType = tf.float32, tiles: int | str = 3, columns: int = 32) -> Fusion:
    """Threads combine the tiles, ``width`` neighbors at a time."""
    fusion, start, made, sent = added(dtype, tiles=tiles, columns=columns)
    start.axis(-1).parallelize(P.TIDx)
    for tv in (made, sent):
        tv.split(2, width).axis(2).parallelize(P.TIDx)
    made.inline_at(3)
    sent.axis(3).parallelize(P.Vectorize)
    return fusion
