"""Fusions that the blocks of a cluster compute together."""

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P
from taskfuse.ir.atoms import Atom
from tests.lowering.running import bind

S, TX, TY, TZ, BX, BY, CX, CY = P.Serial, P.TIDx, P.TIDy, P.TIDz, P.BIDx, P.BIDy, P.CIDx, P.CIDy


def pointwise(*ptypes: P, extents: tuple[int | str, ...] = (6, 4, 32)) -> tf.Fusion:
    with tf.Fusion("pointwise") as fusion:
        y = tf.abs(tf.define_tensor([tf.dim(e, min=0) if isinstance(e, str) else e for e in extents], name="x"))
        fusion.add_output(y)
    bind(y, *ptypes)
    return fusion


def shared(
    heads: int = 2,
    cluster: int = 2,
    *,
    rows: int = 16,
    columns: int = 32,
    blocks: int = 2,
    stages: int = 2,
    store: bool = False,
    dtype: tf.DType = tf.float32,
    swizzle: int = 0,
    on: P = CX,
    atom: Atom = atoms.TMA_LOAD_MULTICAST,
) -> tf.Fusion:
    """``y[n, h] = x[n] * w[h]``: the blocks of a cluster have one head each, and tiles of x in common."""
    with tf.Fusion("shared") as fusion:
        x = tf.define_tensor([tf.dim("N", min=0), rows, columns], dtype=dtype, name="x")
        w = tf.define_tensor([heads], dtype=dtype, name="w")
        y = tf.expand_dims(x, 1) * tf.expand_dims(w, [1, 2])
        fusion.add_output(y)
    x_s = x.cache_after()
    made = y.cache_before() if store else y
    y.split(0, blocks)
    y.split(2, cluster)  # [trip, block, head / cluster, head % cluster, row, column]
    bind(y, S, BX, S, on)
    others = [x_s, *([made] if store else [])]
    y.propagate(others, upto=4)
    tf.parallelize_like(y, others)
    made.axis(-1).parallelize(TX)
    ring(x_s, 4, stages)
    x_s.set_atom(atom, (4, 5))
    if swizzle:
        x_s.set_allocation_domain(tf.layouts.swizzled(swizzle))
    tasks = [fusion.task([x_s], "load"), fusion.task([made], "compute")]
    if store:
        ring(made, 4, stages)
        y.set_atom(atoms.TMA_STORE, (4, 5))
        tasks.append(fusion.task([y], "store"))
    fusion.group(tasks, "roles").parallelize(TY)
    return fusion


def ring(tv: tf.TensorView, inline: int, stages: int) -> None:
    tv.set_memory_type(MemoryType.Shared)
    tv.inline_at(inline)
    tv.circular_buffer(stages)


def grid(*multicast: bool, k: int = 3) -> tf.Fusion:
    """``y[m, n] = sum over k of a[m, k] * b[n, k]`` by blocks (m, n): those with one m have tiles of a in common, those with one n tiles of b."""
    with tf.Fusion("grid") as fusion:
        a, b = tf.define_tensor([2, k, 8, 32], name="a"), tf.define_tensor([2, k, 8, 32], name="b")
        p = tf.expand_dims(a, 1) * tf.expand_dims(b, 0)  # [m, n, k, 8, 32]
        y = tf.sum(p, 2)
        fusion.add_output(y)
    a_s, b_s = a.cache_after(), b.cache_after()
    bind(y, CX, CY, S, S, TX)
    y.propagate([a_s, b_s, p], upto=3)
    for tv in (a_s, b_s, p):
        bind(tv, CX, CY)
    for tv, m in zip((a_s, b_s), multicast, strict=True):
        ring(tv, 3, 2)
        tv.set_atom(atoms.TMA_LOAD_MULTICAST if m else atoms.TMA_LOAD, (3, 4))
    p.axis(4).parallelize(TX)
    p.inline_at(5)
    fusion.group([fusion.task([a_s, b_s], "load"), fusion.task([p, y], "compute")], "roles").parallelize(TY)
    return fusion
