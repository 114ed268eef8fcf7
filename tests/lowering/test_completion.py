"""Asynchronous copies (cp.async): channels, mixed fills, asynchronous readers, rings inside a role; what is refused; every kernel compiles."""

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.check import Verdict
from taskfuse.kir import walk
from taskfuse.kir.nodes import AsyncCopy, For, If
from taskfuse.kir.operands import Queue
from taskfuse.kir.synchronization import ArriveAsync, Commit, InitBarrier, WaitGroup
from tests.cuda.compiled import Unoptimized, compiles, texts
from tests.lowering.copying import CASES, COPY, SHARED, TX, TY, pipeline, ring
from tests.lowering.faults import is_caught, without
from tests.lowering.running import agrees, buffer, numbers, refused


def test_a_loop_over_an_axis_of_a_reader_copies_once() -> None:
    """Copies are done at any later time and in no order: a second one of the same element, before the first is waited for, would race with it."""
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


MIXED_WITH_BULK = ("copy and bulk copy", "all kinds")


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_numpy(name: str) -> None:
    agrees(CASES.lowered(name)[0], *CASES.operands(name))


@pytest.mark.parametrize("name", [name for name in CASES if name not in MIXED_WITH_BULK])
def test_kernels_are_proved(name: str) -> None:
    CASES.lowered(name)[1].verify().require()


@pytest.mark.parametrize("name", MIXED_WITH_BULK)
def test_kernels_with_bulk_copies_are_not_refuted(name: str) -> None:
    assert CASES.lowered(name)[1].verify().verdict is not Verdict.REFUTED


@pytest.mark.parametrize("how", ["dense", "rows", "strided, wide"])
def test_every_kernel_compiles(how: str) -> None:
    bulk = (*MIXED_WITH_BULK, "through")
    compiles(texts({name: CASES.lowered(name)[1] for name in CASES if how == "dense" or name not in bulk}, how))


def test_kernels_compile_for_sm_80() -> None:
    names = ("two roles", "one role", "copy and store", "two tiles", "float16 x 8")
    compiles(texts({name: CASES.lowered(name)[1] for name in names}, "dense"), Unoptimized("sm_80"))


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("group", [TY, None])
def test_any_number_of_trips_over_any_number_of_stages(stages: int, group: P | None) -> None:
    fusion = pipeline(stages=stages, group=group)
    for rows in (0, 1, 9, 33):
        agrees(fusion, numbers(rows, 64), interleavings=(tf.Interleaving.ASYNC_LATE, tf.Interleaving.ASYNC_EARLY, tf.Interleaving.RANDOM_FINE))


def counts(name: str) -> dict[str, str]:
    return {s.barrier.name: str(s.count) for s in walk(CASES.lowered(name)[1]) if isinstance(s, InitBarrier)}


def test_full_counts_each_kind_of_arrival() -> None:
    assert counts("two copies")["ch0.full"] == "32"  # every thread, for its copies
    assert counts("copy and store")["ch0.full"] == "33"  # and every warp, for its stores
    assert counts("copy and bulk copy")["ch0.full"] == "33"  # or the thread that announces bytes
    assert counts("all kinds")["ch0.full"] == "34"
    assert counts("parts of warps")["ch0.full"] == "48"  # of warps that are not whole every thread arrives, for both
    assert counts("through")["ch0.full"] == "1"  # threads wait for their copies, and arrive for what is then stored


def test_tails_are_filled_where_there_is_room() -> None:
    (filled,) = (s for s in walk(CASES.lowered("two roles")[1]) if isinstance(s, AsyncCopy))
    assert str(filled.valid).endswith("< M")
    (guarded,) = (s for s in walk(CASES.lowered("no room")[1]) if isinstance(s, AsyncCopy))
    assert guarded.valid is tf.scalar.TRUE


def test_the_instruction_is_that_of_the_size() -> None:
    def ptx(name: str) -> str:
        return CASES.lowered(name)[1].ptx("sm_80")

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


@pytest.mark.parametrize("name", ["two roles", "one role", "one role, one slot", "copy and store", "through"])
def test_commits_retires_and_arrivals_are_all_needed(name: str) -> None:
    fusion, kernel = CASES.lowered(name)
    last = kernel.body[-1]  # behind a loop that fills ahead no copy is left, which only the conditions of all its trips say
    for s in (s for s in walk(kernel) if s is not last):
        if isinstance(s, ArriveAsync) or (isinstance(s, Commit | WaitGroup) and s.queue is Queue.COPY):
            broken = without(kernel, s)
            assert is_caught(broken, fusion, *CASES.operands(name), seeds=2)
            assert broken.verify().verdict is Verdict.REFUTED


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
