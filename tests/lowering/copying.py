"""Fusions whose tiles come by asynchronous copies (cp.async)."""

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P
from taskfuse.ir.types import THREAD_TYPES
from tests.lowering.cases import Case, Cases

TX, TY, TZ, BX = P.TIDx, P.TIDy, P.TIDz, P.BIDx


SHARED, COPY, LOAD, STORE = MemoryType.Shared, atoms.CP_ASYNC, atoms.TMA_LOAD, atoms.TMA_STORE


def ring(tv: tf.TensorView, inline: int, stages: int = 2) -> None:
    """A ring of slots in Shared memory."""
    tv.set_memory_type(SHARED)
    tv.inline_at(inline)
    tv.circular_buffer(stages)


def pipeline(
    rows: int | str = "M", columns: int = 64, *, tile: int = 8, width: int = 4, stages: int = 3, dtype: tf.DType = tf.float32, group: P | None = TY
) -> tf.Fusion:
    """load -> abs: tiles of ``tile`` rows, dealt out to two blocks; ``group`` makes two roles of it, ``None`` one."""
    with tf.Fusion("pipeline") as fusion:
        x = tf.define_tensor([tf.dim(rows, min=0) if isinstance(rows, str) else rows, columns], dtype=dtype, name="x")
        y = tf.abs(x)
        fusion.add_output(y)
    loaded = x.cache_after()
    for tv in (loaded, y):
        tv.split(0, tile)
        tv.split(0, 2)
        tv.axis(1).parallelize(BX)
    loaded.merge(2)
    if width > 1:
        loaded.split(2, width)
    loaded.split(2, 32)
    loaded.axis(3).parallelize(TX)
    loaded.set_atom(COPY, (4,) if width > 1 else ())
    y.split(3, 32)
    y.axis(4).parallelize(TX)
    ring(loaded, 2, stages)
    if group is not None:
        fusion.group([fusion.task([loaded], "load"), fusion.task([y], "use")], "roles").parallelize(group)
    return fusion


def brought(*kinds: str, columns: int = 32) -> tf.Fusion:
    """The sum of tensors that one role brings: by asynchronous copies, by stores of threads that negate them, or by bulk copies."""
    with tf.Fusion("bring") as fusion:
        inputs = [tf.define_tensor([4, 8, columns], name=f"x{k}") for k in range(len(kinds))]
        made = [tf.neg(x) if kind == "store" else tf.copy(x) for x, kind in zip(inputs, kinds, strict=True)]
        total = made[0]
        for tv in made[1:]:
            total = total + tv
        fusion.add_output(tf.abs(total))
    for tv, kind in zip(made, kinds, strict=True):
        if kind == "bulk":
            tv.set_atom(LOAD, (1, 2))
        else:
            tv.axis(2).parallelize(TX)
        if kind == "copy":
            tv.set_atom(COPY, ())
        ring(tv, 1)
    rest = [tv for tv in fusion.tensors() if tv not in {*inputs, *made}]
    for tv in rest:
        tv.axis(2).parallelize(TX)
    for tv in rest[:-1]:
        tv.inline_at(3)
    fusion.group([fusion.task(made, "bring"), fusion.task(rest, "use")]).parallelize(TZ)
    return fusion


def through(stages: int = 2) -> tf.Fusion:
    """By asynchronous copies into Shared memory, and out of it by a bulk copy."""
    with tf.Fusion("through") as fusion:
        a = tf.copy(tf.define_tensor([5, 8, 32], name="x"))
        y = tf.copy(a)
        fusion.add_output(y)
    a.axis(2).parallelize(TX)
    a.set_atom(COPY, ())
    ring(a, 1, stages)
    y.set_atom(STORE, (1, 2))
    fusion.group([fusion.task([a]), fusion.task([y])]).parallelize(TY)
    return fusion


def read(group: P | None) -> tf.Fusion:
    """One copied tensor, two readers in a group."""
    with tf.Fusion("read") as fusion:
        a = tf.copy(tf.define_tensor([4, 8, 32], name="x"))
        readers = tf.neg(a), tf.abs(a)
        for tv in readers:
            fusion.add_output(tv)
            tv.axis(2).parallelize(TX)
    a.split(2, 4)
    a.axis(2).parallelize(TX)
    a.set_atom(COPY, (3,))
    ring(a, 1)
    both = fusion.group([fusion.task([tv]) for tv in readers])
    fusion.group([fusion.task([a]), both]).parallelize(TZ)
    if group is not None:
        both.parallelize(group)
    return fusion


def made(group: P | None) -> tf.Fusion:
    """Two copied tensors, made in a group, and their sum."""
    with tf.Fusion("made") as fusion:
        copies = [tf.copy(tf.define_tensor([4, 8, 32], name=f"x{k}")) for k in range(2)]
        y = copies[0] + copies[1]
        fusion.add_output(y)
    for tv in copies:
        tv.axis(2).parallelize(TX)
        tv.set_atom(COPY, ())
        ring(tv, 1, 3)
    y.axis(2).parallelize(TX)
    both = fusion.group([fusion.task([tv]) for tv in copies])
    fusion.group([both, fusion.task([y])]).parallelize(TZ)
    if group is not None:
        both.parallelize(group)
    return fusion


def distributed() -> tf.Fusion:
    """An axis that is Serial in the copies and thread-bound in their reader: its instances take turns."""
    with tf.Fusion("distributed") as fusion:
        a = tf.copy(tf.define_tensor([4, 2, 32], name="x"))
        y = tf.neg(a)
        fusion.add_output(y)
    for tv in (a, y):
        tv.axis(2).parallelize(TX)
    y.axis(1).parallelize(TY)
    a.set_atom(COPY, ())
    ring(a, 2)
    fusion.group([fusion.task([a]), fusion.task([y])]).parallelize(TZ)
    return fusion


def two_tiles(stages: int = 2) -> tf.Fusion:
    """A product of two matrices whose tiles the one role copies, along the reduced axis."""
    with tf.Fusion("two_tiles") as fusion:
        a, b = (tf.define_tensor([8, tf.dim("K", min=0)], name=n) for n in "ab")
        c = a @ b.T
        fusion.add_output(c)
    tiles = [x.cache_after() for x in (a, b)]
    c.split(2, 4)
    c.reorder([2, 0, 1, 3])
    for tv in tiles:
        tv.split(1, 4)
        tv.reorder([1, 0, 2])
        tv.set_atom(COPY, ())
    for tv in (c, *tiles):
        tv.axis(1).parallelize(TY)
        tv.axis(2).parallelize(TX)
    for tv in tiles:
        ring(tv, 1, stages)
    return fusion


def no_room() -> tf.Fusion:
    """The last tile of a tensor that is stored as it is overhangs its storage."""
    with tf.Fusion("no_room") as fusion:
        x = tf.define_tensor([40], name="x")
        a = tf.copy(x)
        y = tf.flip(a, 0)
        fusion.add_output(y)
    a.set_memory_type(SHARED)
    a.set_allocation_domain([a.logical[0]])
    for tv in (a, y):
        tv.split(0, 32)
        tv.axis(1).parallelize(TX)
    a.set_atom(COPY, ())
    return fusion


def from_workspace() -> tf.Fusion:
    """The source is a tensor that the kernel itself has made, in Global memory."""
    with tf.Fusion("from_workspace") as fusion:
        x = tf.define_tensor([4, 32], name="x")
        w = tf.neg(x)
        a = tf.copy(w)
        y = tf.flip(a, 1)
        fusion.add_output(y)
    w.set_memory_type(MemoryType.Global)
    a.set_memory_type(SHARED)
    for tv in (w, a, y):
        tv.axis(0).parallelize(BX)
        tv.axis(1).parallelize(TX)
    a.set_atom(COPY, ())
    return fusion


TWO = ((4, 8, 32),) * 2


def cases() -> dict[str, Case]:
    """Fusions, the shapes of their arguments, and the dtype of these."""
    f32 = tf.float32
    found: dict[str, Case] = {
        "two roles": (pipeline, ((41, 64),), f32),
        "one role": (lambda: pipeline(group=None), ((41, 64),), f32),
        "one role, one slot": (lambda: pipeline(group=None, stages=1), ((41, 64),), f32),
        "roles on TIDz, one stage": (lambda: pipeline(group=TZ, stages=1, width=2), ((17, 64),), f32),
        "copy and store": (lambda: brought("copy", "store"), TWO, f32),
        "store and copy": (lambda: brought("store", "copy"), TWO, f32),
        "two copies": (lambda: brought("copy", "copy"), TWO, f32),
        "copy and bulk copy": (lambda: brought("copy", "bulk"), TWO, f32),
        "all kinds": (lambda: brought("copy", "store", "bulk"), ((4, 8, 32),) * 3, f32),
        "parts of warps": (lambda: brought("copy", "store", columns=24), ((4, 8, 24),) * 2, f32),
        "through": (through, ((5, 8, 32),), f32),
        "distributed": (distributed, ((4, 2, 32),), f32),
        "two tiles": (two_tiles, ((8, 10), (8, 10)), f32),
        "two tiles, one slot": (lambda: two_tiles(1), ((8, 10), (8, 10)), f32),
        "no room": (no_room, ((40,),), f32),
        "from a workspace": (from_workspace, ((4, 32),), f32),
    }
    for p in (None, *THREAD_TYPES):
        name = "in sequence" if p is None else p.value
        found[f"read, {name}"] = (lambda p=p: read(p), ((4, 8, 32),), f32)
        found[f"made, {name}"] = (lambda p=p: made(p), TWO, f32)
    for dtype, width in ((tf.float32, 1), (tf.float64, 1), (tf.float64, 2), (tf.bfloat16, 2), (tf.float16, 8), (tf.int8, 16), (tf.int32, 4)):
        found[f"{dtype} x {width}"] = (lambda dtype=dtype, width=width: pipeline(dtype=dtype, width=width), ((19, 64),), dtype)
    return found


CASES = Cases(cases())
