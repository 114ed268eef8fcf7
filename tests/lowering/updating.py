"""Fusions that send tiles to elements which no data names."""

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P
from taskfuse.ir.axes import axis
from taskfuse.ir.axes import iteration_symbol as i
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.expr import Assemble, Read, Update
from taskfuse.ops.build import broadcast_read


def added(
    dtype: tf.DType = tf.float32, combine: str = "add", tiles: int | str = 3, rows: int = 2, columns: int = 32
) -> tuple[tf.Fusion, tf.TensorView, tf.TensorView, tf.TensorView]:
    """``y = x``, combined with ``abs(s)`` [tiles, rows, columns] tile by tile: the fusion, what is stored first, what is sent, and the updates."""
    with tf.Fusion("added") as fusion:
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
    *, slots: int = 1, blocks: bool = False, role: bool = False, read: bool = False, rows: int = 2, dtype: tf.DType = tf.float32, by: str = "add"
) -> tf.Fusion:
    """The copy engine combines the tiles, from ``slots`` slots.

    Args:
        blocks: a block has one tile.
        role: a role waits for the tiles, and sends them; ``read``: the result is read again.
    """
    fusion, start, made, sent = added(dtype, by, rows=rows)
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
