"""Buffers: which there are, their offsets, reuse under a limit, lifetimes in branches, and Local arrays."""

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError
from taskfuse.ir.scalar import Const
from taskfuse.kir import walk
from taskfuse.kir.nodes import For
from tests.lowering.faults import missed
from tests.lowering.running import agrees, barriers, bind, buffer, numbers, refused

TIGHT = tf.LoweringOptions(shared_limit=0)


def offsets(kernel: tf.Kernel) -> dict[str, int]:
    """Shared buffer -> byte offset."""
    found = {b.name: b.offset for b in kernel.buffers if b.memory is MemoryType.Shared}
    assert all(isinstance(o, Const) for o in found.values())
    return {n: o.value for n, o in found.items() if isinstance(o, Const)}


def chain(links: int, columns: int = 8, dtype: tf.DType = tf.float32) -> tuple[tf.Fusion, list[tf.TensorView]]:
    """Every link turns the row around: each crosses threads and lives until the next is made."""
    with tf.Fusion("chain") as fusion:
        tvs = [tf.neg(tf.define_tensor([columns], dtype=dtype, name="x"))]
        for _ in range(links):
            tvs.append(tf.add(tf.flip(tvs[-1], 0), 1))
        fusion.add_output(tvs[-1])
    for tv in tvs:
        bind(tv, P.TIDx)
    return fusion, tvs


# -- offsets and reuse --------------------------------------------------------------------------------------------------------------


def test_offsets_are_aligned_and_apart() -> None:
    kernel = agrees(chain(3, columns=5)[0], numbers(5))
    assert offsets(kernel) == {"tv1": 0, "tv3": 32, "tv5": 64}  # 20 bytes each, rounded up to 16
    assert all(b.align == 16 for b in kernel.buffers if b.memory is MemoryType.Shared)


def test_offsets_count_bytes() -> None:
    fusion, _ = chain(2, columns=16, dtype=tf.float64)
    assert offsets(agrees(fusion, numbers(16, dtype="float64"))) == {"tv1": 0, "tv3": 128}


def test_memory_is_reused_above_the_limit_only() -> None:
    fusion, _ = chain(4)
    assert offsets(agrees(fusion, numbers(8), options=tf.LoweringOptions(shared_limit=128))) == {"tv1": 0, "tv3": 32, "tv5": 64, "tv7": 96}
    kernel = agrees(fusion, numbers(8), options=tf.LoweringOptions(shared_limit=127))
    assert offsets(kernel) == {"tv1": 0, "tv3": 32, "tv5": 0, "tv7": 32}
    assert missed(kernel, fusion, numbers(8)) == []


def test_a_gap_that_is_too_small_is_not_used() -> None:
    with tf.Fusion("gap") as fusion:
        x, y = tf.define_tensor([8], name="x"), tf.define_tensor([16], name="y")
        a, b = tf.neg(x), tf.neg(y)
        c = tf.add(tf.flip(a, 0), 1.0)
        d = tf.add(tf.flip(b, 0), 1.0)
        e = tf.add(tf.flip(d, 0), 1.0)
        for o in (c, e):
            fusion.add_output(o)
    for tv in (a, b, c, d, e):
        bind(tv, P.TIDx)
    kernel = agrees(fusion, numbers(8), numbers(16), options=TIGHT)
    at = offsets(kernel)
    assert at[a.name] == 0
    assert at[b.name] == 32
    assert at[d.name] == 96


def test_symbolic_buffers_stand_behind_the_constant_ones_and_are_never_reused() -> None:
    with tf.Fusion("symbolic") as fusion:
        x, y = tf.define_tensor(["N"], name="x"), tf.define_tensor([8], name="y")
        a, b = tf.neg(x), tf.neg(y)
        c, d = tf.add(tf.flip(a, 0), 1.0), tf.add(tf.flip(b, 0), 1.0)
        e = tf.add(tf.flip(c, 0), 1.0)
        fusion.add_output(d)
        fusion.add_output(e)
    for tv in (a, b, c, d, e):
        bind(tv, P.TIDx)
    kernel = agrees(fusion, numbers(10), numbers(8), options=TIGHT)
    assert [str(buffer(kernel, tv.name).offset) for tv in (b, a, c)] == ["0", "32", "16*ceildiv(N, 4) + 32"]


def test_lifetimes_reach_to_the_end_of_a_loop_that_reads_them() -> None:
    """a is made before the loop and read in it: b, made in the loop, must not lie on it."""
    with tf.Fusion("loop") as fusion:
        x, y = tf.define_tensor([8], name="x"), tf.define_tensor([4, 8], name="y")
        a, b = tf.neg(x), tf.neg(y)
        c = tf.add(tf.flip(b, 1), tf.flip(a, 0))
        d = tf.add(tf.flip(c, 1), 1.0)
        fusion.add_output(d)
    bind(a, P.TIDx)
    for tv in (b, c, d):
        bind(tv, P.Serial, P.TIDx)
    fusion.inline_most([b, c])
    kernel = agrees(fusion, numbers(8), numbers(4, 8), options=TIGHT)
    at = offsets(kernel)
    assert at[a.name] not in (at[b.name], at[c.name])
    # The barrier before the loop is not needed if the loop has a trip: one in its body orders a, too.
    assert len(missed(kernel, fusion, numbers(8), numbers(4, 8))) <= 1


def test_buffers_of_one_iteration_are_reused_in_it() -> None:
    with tf.Fusion("iteration") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        tvs = [tf.neg(x)]
        for _ in range(3):
            tvs.append(tf.add(tf.flip(tvs[-1], 1), 1.0))
        fusion.add_output(tvs[-1])
    for tv in tvs:
        bind(tv, P.Serial, P.TIDx)
    fusion.inline_most()
    kernel = agrees(fusion, numbers(4, 8), options=TIGHT)
    at = offsets(kernel)
    assert at[tvs[0].name] == at[tvs[2].name] != at[tvs[1].name]
    assert missed(kernel, fusion, numbers(4, 8)) == []


# -- branches -----------------------------------------------------------------------------------------------------------------------


def members(ptype: P, columns: int = 8) -> tuple[tf.Fusion, list[tf.TensorView]]:
    """Two members of a horizontal group, each with a row that crosses threads."""
    with tf.Fusion("members") as fusion:
        shared: list[tf.TensorView] = []
        tasks: list[tf.Task] = []
        for k in range(2):
            x = tf.define_tensor([columns], name=f"x{k}")
            a = tf.neg(x)
            b = tf.add(tf.flip(a, 0), 1.0)
            fusion.add_output(b)
            bind(a, P.TIDx)
            bind(b, P.TIDx)
            shared.append(a)
            tasks.append(fusion.task([a, b]))
    fusion.group(tasks).parallelize(ptype)
    return fusion, shared


def test_members_disjoint_in_threads_never_share_bytes() -> None:
    fusion, (a, b) = members(P.TIDy)
    at = offsets(agrees(fusion, numbers(8), numbers(8, seed=1), options=TIGHT))
    assert at[a.name] != at[b.name]


def test_members_disjoint_in_blocks_overlay_theirs() -> None:
    fusion, (a, b) = members(P.BIDx)
    kernel = agrees(fusion, numbers(8), numbers(8, seed=1))
    at = offsets(kernel)
    assert at[a.name] == at[b.name] == 0
    assert len(barriers(kernel)) == 2


def test_members_in_sequence_share_under_the_limit() -> None:
    fusion, (a, b) = members(P.TIDy)
    (group,) = (n for n in fusion.tasks.nodes if isinstance(n, tf.Group) and n is not fusion.tasks.root)
    group.ptype = None
    assert len(set(offsets(agrees(fusion, numbers(8), numbers(8, seed=1))).values())) == 2
    kernel = agrees(fusion, numbers(8), numbers(8, seed=1), options=TIGHT)
    at = offsets(kernel)
    assert at[a.name] == at[b.name] == 0
    assert missed(kernel, fusion, numbers(8), numbers(8, seed=1)) == []


def test_rings_of_a_vertical_group_stay_clear_of_each_other() -> None:
    with tf.Fusion("rings") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        c = tf.add(b, 1.0)
        fusion.add_output(c)
    for tv in (a, b, c):
        bind(tv, P.Serial, P.TIDx)
    fusion.group([fusion.task([tv]) for tv in (a, b, c)]).parallelize(P.TIDz)
    fusion.inline_most()
    a.circular_buffer(3)
    at = offsets(agrees(fusion, numbers(4, 8), options=TIGHT))
    assert at == {a.name: 0, b.name: 96}


def test_a_ring_may_lie_on_what_is_dead_before_its_group() -> None:
    with tf.Fusion("before") as fusion:
        x = tf.define_tensor([8], name="x")
        z = tf.neg(x)
        y = tf.add(tf.flip(z, 0), 1.0)
        a = tf.add(y, 1.0)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    for tv in (z, y, a, b):
        bind(tv, P.TIDx)
    fusion.task([z, y])
    fusion.group([fusion.task([a]), fusion.task([b])]).parallelize(P.TIDz)
    agrees(fusion, numbers(8), options=TIGHT)


# -- Local ------------------------------------------------------------------------------------------------------------------------------


def local(rows: int | str, columns: int = 4, flipped: bool = True) -> tf.Fusion:
    """A column per thread in registers."""
    with tf.Fusion("local") as fusion:
        x = tf.define_tensor([rows, columns], name="x")
        a = tf.neg(x)
        b = tf.add(tf.flip(a, 0) if flipped else a, 1.0)
        fusion.add_output(b)
    bind(a, P.Serial, P.TIDx)
    bind(b, P.Serial, P.TIDx)
    return fusion


def test_loops_that_index_registers_are_unrolled() -> None:
    kernel = agrees(local(5), numbers(5, 4))
    assert [str(e) for e in buffer(kernel, "tv1").shape] == ["5"]
    assert all(s.unroll for s in walk(kernel) if isinstance(s, For))
    fusion = local(5)
    fusion.tensors()[1].set_memory_type(MemoryType.Shared)
    assert not any(s.unroll for s in walk(agrees(fusion, numbers(5, 4))) if isinstance(s, For))


def test_a_local_array_has_a_constant_size_of_at_most_1024_elements() -> None:
    assert str(buffer(tf.lower(local(1024)), "tv1").shape[0]) == "1024"
    text = (
        "cannot lower tv1: it would be a Local array of {} elements per thread; a register array has a constant size of at most 1024\n"
        "help: inline it deeper (fusion.inline_most() does), bind an axis to threads, or set_memory_type(Shared)"
    )
    assert refused(lambda: tf.lower(local(1025)), LoweringError) == text.format(1025)
    symbolic = local("N", flipped=False)
    assert refused(lambda: tf.lower(symbolic), LoweringError) == text.format("N")


def test_inlining_makes_a_local_tensor_a_scalar() -> None:
    with tf.Fusion("scalar") as fusion:
        x = tf.define_tensor([5, 4], name="x")
        a = tf.neg(x)
        b = tf.add(a, 1.0)
        fusion.add_output(b)
    fusion.inline_most()
    kernel = agrees(fusion, numbers(5, 4))
    assert buffer(kernel, a.name).shape == ()
    assert not any(s.unroll for s in walk(kernel) if isinstance(s, For))


def test_a_buffer_that_nothing_uses_is_not_there() -> None:
    with tf.Fusion("unused") as fusion:
        x = tf.define_tensor([4], name="x")
        fusion.add_output(tf.neg(x))
    assert tf.lower(fusion).buffers == ()
