"""Fusions whose tiles come and go by bulk copies."""

from collections.abc import Callable, Sequence

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import Literal, Read
from taskfuse.ir.scalar import and_, const, ge, lt
from taskfuse.ir.tasks import Node
from taskfuse.ops.select import define_select
from taskfuse.testing.updates import in_boxes
from tests.lowering.cases import Case, Cases
from tests.lowering.running import bind

S, U, TX, TY, TZ, BX, BY = P.Serial, P.Unroll, P.TIDx, P.TIDy, P.TIDz, P.BIDx, P.BIDy


SHARED, LOAD, STORE = MemoryType.Shared, atoms.TMA_LOAD, atoms.TMA_STORE


def ring(tv: tf.TensorView, inline: int, stages: int = 2) -> None:
    """A ring of slots in Shared memory."""
    tv.set_memory_type(SHARED)
    tv.inline_at(inline)
    tv.circular_buffer(stages)


def stream(
    shape: Sequence[int | str], tile: Sequence[int], *, dtype: tf.DType = tf.float32, stages: int = 2, swizzle: int = 0, load: bool = True, store: bool = True
) -> tf.Fusion:
    """load -> abs -> store, or one of them left out; tiles are dealt out to two blocks."""
    with tf.Fusion("stream") as fusion:
        x = tf.define_tensor([tf.dim(e, min=0) if isinstance(e, str) else e for e in shape], dtype=dtype, name="x")
        y = tf.abs(x)
        fusion.add_output(y)
    x_s = x.cache_after() if load else None
    made = y.cache_before() if store else y
    n = len(tile)
    for tv in dict.fromkeys(t for t in (x_s, made, y) if t is not None):
        for k in reversed(range(n)):
            tv.split(k, tile[k])
        tv.reorder([*range(0, 2 * n, 2), *range(1, 2 * n, 2)])
        for _ in range(n - 1):
            tv.merge(0)
        tv.split(0, 2)
        tv.axis(1).parallelize(BX)
    tasks = [fusion.task([made], "compute")]
    if x_s is not None:
        x_s.set_atom(LOAD, range(2, 2 + n))
        ring(x_s, 2, stages)
        tasks.insert(0, fusion.task([x_s], "load"))
    if store:
        y.set_atom(STORE, range(2, 2 + n))
        ring(made, 2, stages)
        tasks.append(fusion.task([y], "store"))
    for tv in (x_s, made if store else None):
        if swizzle and tv is not None:
            tv.set_allocation_domain(tf.layouts.swizzled(swizzle))
    if tile[-1] > 32:
        made.split(-1, 32)
    made.axis(-1).parallelize(TX)
    fusion.group(tasks, "roles").parallelize(TY)
    return fusion


def made_and_read(*loads: bool, tasks: Callable[[tf.Fusion, list[tf.TensorView]], Node] | None = None, rows: int = 4) -> tf.Fusion:
    """The sum of inputs that a role brings, each by a bulk copy or (where not) by threads that negate it; ``tasks`` arranges the role."""
    with tf.Fusion("bring") as fusion:
        inputs = [tf.define_tensor([rows, 8, 32], name=f"x{k}") for k in range(len(loads))]
        brought = [tf.copy(x) if load else tf.neg(x) for x, load in zip(inputs, loads, strict=True)]
        total = brought[0]
        for tv in brought[1:]:
            total = total + tv
        total = tf.abs(total)
        fusion.add_output(total)
    for tv, load in zip(brought, loads, strict=True):
        if load:
            tv.set_atom(LOAD, (1, 2))
        ring(tv, 1)
    rest = [tv for tv in fusion.tensors() if tv not in {*inputs, *brought}]
    for tv in (*(tv for tv, load in zip(brought, loads, strict=True) if not load), *rest):
        tv.axis(2).parallelize(TX)
    for tv in rest[:-1]:
        tv.inline_at(3)
    role = fusion.task(brought, "bring") if tasks is None else tasks(fusion, brought)
    fusion.group([role, fusion.task(rest, "use")]).parallelize(TZ)
    return fusion


def side_by_side(fusion: tf.Fusion, tensors: list[tf.TensorView]) -> Node:
    """Each tensor in a task of its own, on TIDy."""
    return fusion.group([fusion.task([tv]) for tv in tensors], "bring").parallelize(TY)


def in_sequence(fusion: tf.Fusion, tensors: list[tf.TensorView]) -> Node:
    return fusion.group([fusion.task([tv]) for tv in tensors], "bring")


def read(group: P | None) -> tf.Fusion:
    """One tensor that a bulk copy brings, and two readers in a group."""
    with tf.Fusion("read") as fusion:
        a = tf.copy(tf.define_tensor([4, 8, 32], name="x"))
        readers = tf.neg(a), tf.abs(a)
        for tv in readers:
            fusion.add_output(tv)
            tv.axis(2).parallelize(TX)
    a.set_atom(LOAD, (1, 2))
    ring(a, 1)
    both = fusion.group([fusion.task([tv]) for tv in readers])
    fusion.group([fusion.task([a]), both]).parallelize(TZ)
    if group is not None:
        both.parallelize(group)
    return fusion


def written(group: P | None) -> tf.Fusion:
    """Two tensors that threads make, and a bulk copy of each, in a group."""
    with tf.Fusion("written") as fusion:
        x = tf.define_tensor([4, 8, 32], name="x")
        made = tf.neg(x), tf.abs(x)
        stores = [tf.copy(tv) for tv in made]
        for tv in stores:
            fusion.add_output(tv)
            tv.set_atom(STORE, (1, 2))
    for tv in made:
        tv.axis(2).parallelize(TX)
        ring(tv, 1)
    both = fusion.group([fusion.task([tv]) for tv in stores])
    fusion.group([fusion.task(made), both]).parallelize(TZ)
    if group is not None:
        both.parallelize(group)
    return fusion


def through(stages: int) -> tf.Fusion:
    """From Global to Shared to Global, by the copy engine alone."""
    with tf.Fusion("through") as fusion:
        a = tf.copy(tf.define_tensor([5, 8, 32], name="x"))
        y = tf.copy(a)
        fusion.add_output(y)
    a.set_atom(LOAD, (1, 2))
    y.set_atom(STORE, (1, 2))
    ring(a, 1, stages)
    fusion.group([fusion.task([a]), fusion.task([y])]).parallelize(TX)
    return fusion


def stored_and_read(apart: bool) -> tf.Fusion:
    """One tensor of threads that a bulk copy stores and other threads read."""
    with tf.Fusion("both") as fusion:
        a = tf.neg(tf.define_tensor([5, 8, 32], name="x"))
        y, z = tf.copy(a), tf.abs(a)
        fusion.add_output(y)
        fusion.add_output(z)
    y.set_atom(STORE, (1, 2))
    ring(a, 1)
    for tv in (a, z):
        tv.axis(2).parallelize(TX)
    uses = [fusion.task([y]), fusion.task([z])] if apart else [fusion.task([y, z])]
    fusion.group([fusion.task([a]), *uses]).parallelize(TY)
    return fusion


def boxes(store: bool, unroll: bool = False) -> tf.Fusion:
    """Three boxes per fill."""
    with tf.Fusion("boxes") as fusion:
        x = tf.define_tensor([4, 3, 8, 32], name="x")
        a = tf.copy(x)
        y = tf.neg(a)
        z = tf.copy(y) if store else y
        fusion.add_output(z)
    a.set_atom(LOAD, (2, 3))
    ring(a, 1)
    y.axis(3).parallelize(TX)
    if unroll:
        bind(a, U, U)
        bind(y, U)
    tasks = [fusion.task([a]), fusion.task([y])]
    if store:
        z.set_atom(STORE, (2, 3))
        ring(y, 1)
        tasks.append(fusion.task([z]))
        if unroll:
            bind(z, U)
    fusion.group(tasks).parallelize(TY)
    return fusion


def distributed() -> tf.Fusion:
    """The copy engine fills the slots of two instances in turn."""
    with tf.Fusion("distributed") as fusion:
        a = tf.copy(tf.define_tensor([5, 2, 8, 32], name="x"))
        y = tf.neg(a)
        fusion.add_output(y)
    a.set_atom(LOAD, (2, 3))
    ring(a, 2, 3)
    bind(y, S, TY, S, TX)
    fusion.group([fusion.task([a]), fusion.task([y])]).parallelize(TZ)
    return fusion


def matmul() -> tf.Fusion:
    """Tiles of both operands through one ring; the tiles overhang in m and n."""
    with tf.Fusion("matmul") as fusion:
        a, b = tf.define_tensor([20, 40], name="a"), tf.define_tensor([11, 40], name="b")
        c = a @ tf.permute(b, (1, 0))
        fusion.add_output(c)
    operands = [a.cache_after(), b.cache_after()]
    for axis, factor in ((0, 8), (2, 4), (4, 8)):
        c.split(axis, factor)
    c.reorder([0, 2, 4, 1, 3, 5])
    c.propagate(operands, 3)
    for tv in (c, *operands):
        bind(tv, BX, BY)
    c.axis(3).parallelize(TX)
    c.axis(4).parallelize(U)
    for tv in operands:
        tv.set_atom(LOAD, (3, 4))
        ring(tv, 3, 3)
    fusion.group([fusion.task(operands), fusion.task([c])]).parallelize(TY)
    return fusion


def view(of: Callable[[tf.TensorView], tf.TensorView]) -> tf.Fusion:
    """A bulk copy of a view of a [16, 64] tensor, or of a part of it with zeros around, two rows at a time."""
    with tf.Fusion("view") as fusion:
        seen = of(tf.define_tensor([16, 64], name="x"))
        a = tf.copy(seen) if fusion.is_view(seen) else seen
        y = tf.neg(a)
        fusion.add_output(y)
    for tv in (a, y):
        tv.split(0, 2)
    y.axis(-1).parallelize(TX)
    a.set_atom(LOAD, range(1, len(a.loop)))
    ring(a, 1)
    fusion.group([fusion.task([a]), fusion.task([y])]).parallelize(TY)
    return fusion


def inner_zeros(x: tf.TensorView) -> tf.TensorView:
    """``x`` with zeros in place of its first rows, which exist."""
    index = (iteration_symbol(0), iteration_symbol(1))
    return define_select(x.fusion, "zeros", x.shape, (Read(x, index, ge(index[0], 3)), Literal(0.0, x.dtype)), x.dtype)


def every_second_with_zeros(x: tf.TensorView) -> tf.TensorView:
    """Rows -3, -1, .. 19 of ``x``, which has 16."""
    row, column = 2 * iteration_symbol(0) - 3, iteration_symbol(1)
    return define_select(x.fusion, "rows", (const(12), x.shape[1]), (Read(x, (row, column), and_(ge(row, 0), lt(row, 16))), Literal(0.0, x.dtype)), x.dtype)


def stored_in_steps() -> tf.Fusion:
    """Every second row of four is stored at once."""
    with tf.Fusion("steps") as fusion:
        y = tf.neg(tf.define_tensor([16, 64], name="x"))
        fusion.add_output(y)
    made = y.cache_before()
    made.set_memory_type(SHARED)
    for tv in (made, y):
        tv.split(0, 4).split(1, 2).reorder({1: 2, 2: 1})
    made.axis(-1).parallelize(TX)
    y.set_atom(STORE, (2, 3))
    made.inline_at(2)
    return fusion


def after_another_group() -> tf.Fusion:
    """Two vertical groups one after another; bulk copies in the second only."""
    with tf.Fusion("after") as fusion:
        x, w = tf.define_tensor([4, 8, 32], name="x"), tf.define_tensor([4, 8, 32], name="w")
        a = tf.neg(w)
        b = tf.abs(a)
        c = tf.copy(x)
        d = tf.neg(c)
        fusion.add_output(b)
        fusion.add_output(d)
    for tv in (a, b, d):
        tv.axis(2).parallelize(TX)
    c.set_atom(LOAD, (1, 2))
    ring(a, 1)
    ring(c, 1)
    groups = [fusion.group([fusion.task([p]), fusion.task([q])]).parallelize(TY) for p, q in ((a, b), (c, d))]
    fusion.group(groups)
    return fusion


def outside(load: bool, store: bool) -> tf.Fusion:
    """Blocks of 16 rows in tiles of 8: of 37 rows the last block has a tile wholly outside the tensor."""
    with tf.Fusion("outside") as fusion:
        a = tf.copy(tf.define_tensor([37, 32], name="x"))
        b = tf.abs(a)
        y = tf.copy(b)
        fusion.add_output(y)
    for tv in (a, b, y):
        tv.split(0, 8)
        tv.split(0, 2)
        tv.axis(0).parallelize(BX)
    for tv in (a, b):
        tv.set_memory_type(SHARED)
        tv.inline_at(2)
    for tv, atom, wanted in ((a, LOAD, load), (y, STORE, store)):
        if wanted:
            tv.set_atom(atom, (2, 3))
    fusion.group([fusion.task([a]), fusion.task([b]), fusion.task([y])]).parallelize(TY)
    return fusion


def in_one_role(stages: int) -> tf.Fusion:
    """Threads write a ring that bulk stores of the same role read."""
    with tf.Fusion("staged") as fusion:
        x = tf.define_tensor([7, 8, 32], name="x")
        a = tf.abs(x)
        y = tf.copy(a)
        fusion.add_output(y)
    a.set_memory_type(SHARED)
    a.axis(2).parallelize(TX)
    y.set_atom(STORE, (1, 2))
    ring(a, 1, stages)
    return fusion


def again(
    roles: P | None = TY,
    *,
    made: P | None = None,
    tiles: P | None = None,
    inline: bool = False,
    loads: int = 1,
    of: Callable[[tf.TensorView], tf.TensorView] = lambda y: y,
) -> tf.Fusion:
    """An output that threads make and bulk copies read again.

    Args:
        roles: who computes with it beside the loads, on which type; ``None``: who loads does.
        made: what executes the rows of the output; ``tiles``: those of what is loaded.
        inline: it is made in the loop that loads it.
    """
    with tf.Fusion("again") as fusion:
        y = tf.neg(tf.define_tensor([4, 8, 32], name="x"))
        fusion.add_output(y)
        loaded = [tf.copy(of(y)) for _ in range(loads)]
        results = [tf.abs(tv) for tv in loaded]
        for tv in results:
            fusion.add_output(tv)
    for tv in loaded:
        tv.set_atom(LOAD, (1, 2))
        ring(tv, 1)
    for tv in (y, *results):
        tv.axis(2).parallelize(TX)
    if made is not None:
        y.axis(0).parallelize(made)
    for tv in (*loaded, *results):
        if tiles is not None:
            tv.axis(0).parallelize(tiles)
    if inline:
        y.inline_at(1)
    if roles is not None:
        fusion.task([y])
        fusion.group([fusion.task(loaded), fusion.task(results)]).parallelize(roles)
    return fusion


def cases() -> dict[str, Case]:
    """Kernels by name: how to build it, the shapes of its inputs, and their dtype."""
    found: dict[str, Case] = {}
    for load, store, which in ((True, True, "both"), (True, False, "load"), (False, True, "store")):
        for shape, tile in (((100,), (32,)), ((17, 40), (8, 16)), ((5, 9, 20), (2, 4, 8)), ((3, 3, 5, 12), (2, 2, 2, 4)), ((2, 3, 3, 3, 12), (1, 2, 2, 2, 8))):
            found[f"{len(tile)}d {which}"] = (lambda s=shape, t=tile, a=load, b=store: stream(s, t, load=a, store=b)), (shape,), tf.float32
    for dtype in (tf.float32, tf.bfloat16, tf.int8, tf.float64):
        for span in (0, 32, 64, 128):
            columns = (span or 32) * 8 // dtype.bits
            shape = (19, 2 * columns + 128 // dtype.bits)  # one tile, one tile, 16 bytes of a third
            found[f"{dtype} {span}"] = (lambda s=shape, c=columns, d=dtype, w=span: stream(s, (16, c), dtype=d, swizzle=w)), (shape,), dtype
    found |= {
        name: (build, shapes, tf.float32)
        for name, build, shapes in (
            ("two loads", lambda: made_and_read(True, True), ((4, 8, 32),) * 2),
            ("three loads", lambda: made_and_read(True, True, True), ((4, 8, 32),) * 3),
            ("load and stores", lambda: made_and_read(True, False), ((4, 8, 32),) * 2),
            ("load beside stores", lambda: made_and_read(True, False, tasks=side_by_side), ((4, 8, 32),) * 2),
            ("stores beside load", lambda: made_and_read(False, True, tasks=side_by_side), ((4, 8, 32),) * 2),
            ("load before stores", lambda: made_and_read(True, False, tasks=in_sequence), ((4, 8, 32),) * 2),
            ("loads of two tasks", lambda: made_and_read(True, True, tasks=in_sequence), ((4, 8, 32),) * 2),
            *((f"read in {p}", lambda p=p: read(p), ((4, 8, 32),)) for p in (None, TX, TY, TZ)),
            *((f"written in {p}", lambda p=p: written(p), ((4, 8, 32),)) for p in (None, TX, TY, TZ)),
            *((f"through {n}", lambda n=n: through(n), ((5, 8, 32),)) for n in (1, 2, 4)),
            *((f"stored and read, {apart=}", lambda a=apart: stored_and_read(a), ((5, 8, 32),)) for apart in (False, True)),
            *((f"boxes, {store=}", lambda s=store: boxes(s), ((4, 3, 8, 32),)) for store in (False, True)),
            ("boxes unrolled", lambda: boxes(True, unroll=True), ((4, 3, 8, 32),)),
            ("distributed", distributed, ((5, 2, 8, 32),)),
            ("matmul", matmul, ((20, 40), (11, 40))),
            ("rows of a view", lambda: view(lambda x: x[3:, :]), ((16, 64),)),
            ("columns of a view", lambda: view(lambda x: x[:, 4:36]), ((16, 64),)),
            ("every second row", lambda: view(lambda x: x[::2, :]), ((16, 64),)),
            ("every third row, to the last", lambda: view(lambda x: x[1::3, :]), ((16, 64),)),
            ("zeros around", lambda: view(lambda x: tf.pad(x, [(3, 2), (0, 0)])), ((16, 64),)),
            ("every second row, and zeros around", lambda: view(every_second_with_zeros), ((16, 64),)),
            ("another shape", lambda: view(lambda x: tf.reshape(x, (4, 4, 64))), ((16, 64),)),
            ("another axis", lambda: view(lambda x: tf.expand_dims(x, 1)), ((16, 64),)),
            ("after another group", after_another_group, ((4, 8, 32),) * 2),
            *(
                (f"tiles outside, {load=}, {store=}", lambda a=load, b=store: outside(a, b), ((37, 32),))
                for load, store in ((True, False), (False, True), (True, True))
            ),
            *(
                (f"read again, {name}", build, ((4, 8, 32),))
                for name, build in (
                    ("by a role", again),
                    ("by a plane", lambda: again(TZ)),
                    ("by its own role", lambda: again(None)),
                    ("twice", lambda: again(loads=2)),
                    ("in its loop", lambda: again(inline=True)),
                    ("other threads", lambda: again(made=TZ)),
                    ("its block", lambda: again(made=BX, tiles=BX)),
                    ("another block", lambda: again(made=BX)),
                    ("blocks of another type", lambda: again(made=BX, tiles=BY)),
                    ("a view", lambda: again(of=lambda y: y[1:])),
                    ("other axes first", lambda: again(None, of=lambda y: tf.permute(y, (1, 0, 2)))),
                )
            ),
            *((f"stored by its own role through {n}", lambda n=n: in_one_role(n), ((7, 8, 32),)) for n in (1, 2, 3)),
            *((f"added through {n}", lambda n=n: in_boxes(slots=n), ((2, 32), (3, 2, 32))) for n in (1, 2)),
            ("added by blocks", lambda: in_boxes(blocks=True), ((2, 32), (3, 2, 32))),
            ("added by a role", lambda: in_boxes(slots=2, role=True), ((2, 32), (3, 2, 32))),
            ("added and read", lambda: in_boxes(read=True), ((2, 32), (3, 2, 32))),
            ("added to part of a tile", lambda: in_boxes(rows=3), ((3, 32), (3, 3, 32))),
        )
    }
    return found


CASES = Cases(cases())
