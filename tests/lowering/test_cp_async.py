"""Asynchronous copies (cp.async): channels, mixed fills, asynchronous readers, rings inside a role; what is refused; every kernel compiles."""

from collections.abc import Callable
from functools import cache

import pytest

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P
from taskfuse.check import Verdict
from taskfuse.ir.types import THREAD_TYPES
from taskfuse.kir import walk
from taskfuse.kir.nodes import AsyncCopy, For, If, Stmt
from taskfuse.kir.operands import Queue
from taskfuse.kir.synchronization import ArriveAsync, BarrierScope, Commit, FenceProxyAsync, InitBarrier, WaitGroup
from tests.cuda.test_compile_all import compiles, texts
from tests.lowering.faults import is_caught, without
from tests.lowering.running import Array, agrees, buffer, numbers, refused, scopes

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


def test_a_loop_over_an_axis_of_a_reader_copies_once() -> None:
    """Copies are done at any later time and in no order: a second one of the same element, before the first is retired, would race with it."""
    with tf.Fusion("repeated") as fusion:
        x, y = tf.define_tensor([8], name="x"), tf.define_tensor(["N", 1], name="y")
        total = x + y
        fusion.add_output(total)
    loaded = x.cache_after()
    total.split(0, 4)
    total.propagate([loaded], 2)
    loaded.set_atom(COPY, ())
    loaded.set_memory_type(SHARED)
    assert agrees(fusion, numbers(8), numbers(10, 1)).verify().verdict is Verdict.PROVED


def shared_loop(*, merged: bool, stages: int = 1, inline: int = 1, group: P | None = None) -> tf.Fusion:
    """Copies in loops that mix an axis of their own with one of the reader: merged and split again, or swizzled."""
    with tf.Fusion("mixed") as fusion:
        x, y = tf.define_tensor([8], name="x"), tf.define_tensor([4, 8], name="y")
        total = x + y
        fusion.add_output(total)
    loaded = x.cache_after()
    if merged:
        total.merge(0)
        total.split(0, 16)
    else:
        total.split(1, 4)
        total.swizzle(2, 0)
    total.propagate([loaded])
    loaded.set_atom(COPY, ())
    ring(loaded, inline, stages)
    if group is not None:
        fusion.group([fusion.task([loaded]), fusion.task([total])]).parallelize(group)
    return fusion


@pytest.mark.parametrize("group", [TY, None])
@pytest.mark.parametrize("merged", [True, False])
def test_a_loop_that_mixes_an_axis_of_a_reader_copies_once(merged: bool, group: P | None) -> None:
    kernel = agrees(shared_loop(merged=merged, inline=0, group=group), numbers(8), numbers(4, 8))
    assert any(isinstance(s, If) and any(isinstance(c, AsyncCopy) for c in walk(s)) and str(s.branches[0].cond).endswith(" == 0") for s in walk(kernel))
    kernel.verify().require()


@pytest.mark.parametrize("group", [TY, None])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_fill_without_a_first_index_waits_for_each_copy(stages: int, group: P | None) -> None:
    """The reader's axis goes on from one fill to the next, so that a fill does not begin at its first index: elements are copied again."""
    kernel = agrees(shared_loop(merged=True, stages=stages, group=group), numbers(8), numbers(4, 8))
    (loop,) = (s for s in walk(kernel) if isinstance(s, For) and any(isinstance(c, WaitGroup) for c in s.body))
    assert [type(s) for s in loop.body][-2:] == [Commit, WaitGroup]
    kernel.verify().require()


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
    rest = [tv for tv in fusion.tensors() if tv not in (*inputs, *made)]
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


Case = tuple[Callable[[], tf.Fusion], tuple[tuple[int, ...], ...], tf.DType]
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


CASES = cases()
MIXED_WITH_BULK = ("copy and bulk copy", "all kinds")


@cache
def lowered(name: str) -> tuple[tf.Fusion, tf.Kernel]:
    """A case and its kernel."""
    fusion = CASES[name][0]()
    return fusion, tf.lower(fusion)


def operands(name: str) -> list[Array]:
    """Arguments of a case."""
    return [numbers(*shape, dtype=CASES[name][2].numpy, seed=k) for k, shape in enumerate(CASES[name][1])]


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_numpy(name: str) -> None:
    agrees(lowered(name)[0], *operands(name))


@pytest.mark.parametrize("name", [name for name in CASES if name not in MIXED_WITH_BULK])
def test_kernels_are_proved(name: str) -> None:
    lowered(name)[1].verify().require()


@pytest.mark.parametrize("name", MIXED_WITH_BULK)
def test_kernels_with_bulk_copies_are_not_refuted(name: str) -> None:
    assert lowered(name)[1].verify().verdict is not Verdict.REFUTED


@pytest.mark.parametrize("how", ["dense", "rows", "strided, wide"])
def test_every_kernel_compiles(how: str) -> None:
    bulk = (*MIXED_WITH_BULK, "through")
    compiles(texts({name: lowered(name)[1] for name in CASES if how == "dense" or name not in bulk}, how), "sm_90a")


def test_kernels_compile_for_sm_80() -> None:
    names = ("two roles", "one role", "copy and store", "two tiles", "float16 x 8")
    compiles(texts({name: lowered(name)[1] for name in names}, "dense"), "sm_80")


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("group", [TY, None])
def test_any_number_of_trips_over_any_number_of_stages(stages: int, group: P | None) -> None:
    fusion = pipeline(stages=stages, group=group)
    for rows in (0, 1, 9, 33):
        agrees(fusion, numbers(rows, 64), schedulers=(tf.Scheduler.ASYNC_LATE, tf.Scheduler.ASYNC_EARLY, tf.Scheduler.RANDOM_FINE))


# -- what stands where --------------------------------------------------------------------------------------------------------------


def counts(name: str) -> dict[str, str]:
    return {s.barrier.name: str(s.count) for s in walk(lowered(name)[1]) if isinstance(s, InitBarrier)}


def test_full_counts_each_kind_of_arrival() -> None:
    assert counts("two copies")["ch0.full"] == "32"  # every thread, for its copies
    assert counts("copy and store")["ch0.full"] == "33"  # and every warp, for its stores
    assert counts("copy and bulk copy")["ch0.full"] == "33"  # or the thread that announces bytes
    assert counts("all kinds")["ch0.full"] == "34"
    assert counts("parts of warps")["ch0.full"] == "48"  # of warps that are not whole every thread arrives, for both
    assert counts("through")["ch0.full"] == "1"  # threads wait for their copies, and arrive for what is then stored


def asynchronous(name: str) -> list[Stmt]:
    return [s for s in walk(lowered(name)[1]) if isinstance(s, AsyncCopy | ArriveAsync | Commit | WaitGroup | FenceProxyAsync)]


def test_what_waits_for_copies() -> None:
    assert [type(s) for s in asynchronous("two roles")] == [AsyncCopy, ArriveAsync]
    assert [type(s) for s in asynchronous("one role")] == [AsyncCopy, Commit, WaitGroup, AsyncCopy, Commit, WaitGroup]  # before, in and after the loop
    assert [type(s) for s in asynchronous("one role, one slot")] == [AsyncCopy, Commit, WaitGroup]
    assert [type(s) for s in asynchronous("through")][:4] == [AsyncCopy, Commit, WaitGroup, FenceProxyAsync]
    assert scopes(lowered("one role")[1]) == [BarrierScope.BLOCK]  # the ring makes the second barrier of an iteration unnecessary
    assert scopes(lowered("one role, one slot")[1]) == [BarrierScope.BLOCK, BarrierScope.BLOCK]


def test_copies_next_to_each_other_share_a_retire() -> None:
    assert [type(s) for s in asynchronous("two tiles, one slot")] == [AsyncCopy, AsyncCopy, Commit, WaitGroup]
    assert [type(s) for s in asynchronous("two tiles")] == [AsyncCopy, AsyncCopy, Commit, WaitGroup] * 2


def test_tails_are_filled_where_there_is_room() -> None:
    (filled,) = (s for s in walk(lowered("two roles")[1]) if isinstance(s, AsyncCopy))
    assert str(filled.valid).endswith("< M")
    (guarded,) = (s for s in walk(lowered("no room")[1]) if isinstance(s, AsyncCopy))
    assert guarded.valid is tf.scalar.TRUE


def test_the_instruction_is_that_of_the_size() -> None:
    def ptx(name: str) -> str:
        return lowered(name)[1].ptx("sm_80")

    assert "cp.async.cg.shared.global" in ptx("two roles")
    assert "cp.async.mbarrier.arrive.noinc" in ptx("two roles")
    assert "cp.async.ca.shared.global" in ptx("float32 x 1")
    assert "cp.async.ca.shared.global" in ptx("float64 x 1")
    assert "cp.async.commit_group" in ptx("one role")
    assert "cp.async.wait_group" in ptx("one role")


def test_storage_that_copies_fill_is_no_other_buffers() -> None:
    with tf.Fusion("after") as fusion:
        x = tf.define_tensor([4, 32], name="x")
        a = tf.copy(x)
        y = tf.neg(a)
        b = tf.flip(x, 1)
        z = tf.flip(b, 1)
        fusion.add_output(y)
        fusion.add_output(z)
    for tv in (a, y, b, z):
        tv.axis(1).parallelize(TX)
    a.set_atom(COPY, ())
    a.set_memory_type(SHARED)
    b.set_memory_type(SHARED)
    fusion.group([fusion.task([a]), fusion.task([y])]).parallelize(TY)
    fusion.task([b, z])
    kernel = agrees(fusion, numbers(4, 32), options=tf.LoweringOptions(shared_limit=1))
    assert str(buffer(kernel, a.name).offset) != str(buffer(kernel, b.name).offset)
    kernel.verify().require()


# -- what is needed ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["two roles", "one role", "one role, one slot", "copy and store", "through"])
def test_commits_retires_and_arrivals_are_all_needed(name: str) -> None:
    fusion, kernel = lowered(name)
    last = kernel.body[-1]  # behind a loop that fills ahead no copy is left, which only the conditions of all its trips say
    for s in (s for s in walk(kernel) if s is not last):
        if isinstance(s, ArriveAsync) or (isinstance(s, Commit | WaitGroup) and s.queue is Queue.COPY):
            broken = without(kernel, s)
            assert is_caught(broken, fusion, *operands(name), seeds=2)
            assert broken.verify().verdict is Verdict.REFUTED


# -- what is refused ----------------------------------------------------------------------------------------------------------------


def copied(dtype: tf.DType = tf.float32, columns: int = 64) -> tuple[tf.Fusion, tf.TensorView]:
    with tf.Fusion("copied") as fusion:
        a = tf.copy(tf.define_tensor([4, columns], dtype=dtype, name="x"))
        fusion.add_output(tf.abs(a))
    return fusion, a


def test_sizes() -> None:
    _, a = copied(tf.bfloat16)
    assert refused(lambda: a.set_atom(COPY, ())) == (
        "set_atom(tv1): 1 element of bfloat16 are less than the 4 bytes of the atom cp_async\nhelp: let it cover an axis of 2 or more"
    )
    a.split(1, 16)
    assert refused(lambda: a.set_atom(COPY, (2,))).startswith("set_atom(tv1): 16 elements of bfloat16 are more than the 16 bytes of the atom cp_async")


def test_only_copies() -> None:
    with tf.Fusion("computes") as fusion:
        y = tf.abs(tf.define_tensor([4, 4], name="x"))
        fusion.add_output(y)
    assert refused(lambda: y.set_atom(COPY, ())).startswith("set_atom(tv1): the atom cp_async copies, but the definition of tv1 computes")


def test_only_to_shared_memory() -> None:
    fusion, a = copied()
    a.set_atom(COPY, ())
    assert refused(lambda: tf.lower(fusion)) == (
        "cannot lower tv1: the atom cp_async copies from Global to Shared memory: x is in Global, tv1 in Local memory\n"
        "help: copy an input (cache_after), and set_memory_type(Shared)"
    )


def test_a_vector_is_inside_or_outside_as_a_whole() -> None:
    with tf.Fusion("torn") as fusion:
        a = tf.copy(tf.define_tensor([tf.dim("N")], name="x"))
        fusion.add_output(tf.flip(a, 0))
    a.split(0, 4)
    a.set_atom(COPY, (1,))
    a.set_memory_type(SHARED)
    assert refused(lambda: tf.lower(fusion)).startswith("cannot lower tv1: its vector axis of 4 does not divide what it splits")
