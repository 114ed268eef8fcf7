"""Vertical groups on block types: rings in Global memory, who shares one, nesting, trips, refusals."""

from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P
from taskfuse.errors import DeadlockError, LoweringError
from taskfuse.kir import walk
from taskfuse.kir.nodes import AsyncCopy
from taskfuse.kir.synchronization import Acquire, Barrier, BarrierScope, Release, WaitGroup
from tests.lowering.running import Array, agrees, bind, numbers, refused

S, TX, TY, TZ, BX, BY, BZ = P.Serial, P.TIDx, P.TIDy, P.TIDz, P.BIDx, P.BIDy, P.BIDz


def chain(*shape: int | str | tf.Dim, length: int = 2) -> tuple[tf.Fusion, list[tf.TensorView]]:
    """``length`` tensors, each made from the one before."""
    with tf.Fusion("chain") as fusion:
        tv = tf.define_tensor(list(shape), name="x")
        made: list[tf.TensorView] = []
        for k in range(length):
            tv = tf.neg(tv) if k % 2 == 0 else tv + 1.0
            made.append(tv)
        fusion.add_output(tv)
    return fusion, made


def pair(*shape: int | str | tf.Dim, first: tuple[P, ...], second: tuple[P, ...], inline: int, stages: int = 2, group: P = BX) -> tf.Fusion:
    fusion, (a, b) = chain(*shape)
    bind(a, *first)
    bind(b, *second)
    a.inline_at(inline)
    a.circular_buffer(stages)
    fusion.group([fusion.task([a], "load"), fusion.task([b], "use")], "g").parallelize(group)
    return fusion


def rings(kernel: tf.Kernel) -> list[str]:
    """The semaphores: shape and releases per phase."""
    return [f"{s.name}[{', '.join(map(str, s.shape))}] {s.count}" for s in kernel.semaphores]


def proved(fusion: tf.Fusion, *args: Array) -> tf.Kernel:
    kernel = agrees(fusion, *args)
    kernel.verify().require()
    return kernel


@pytest.mark.parametrize("stages", [1, 2, 4, 7])
@pytest.mark.parametrize("trips", [0, 1, 3, 6])
def test_any_trips_and_stages(trips: int, stages: int) -> None:
    kernel = tf.lower(pair(tf.dim("N", min=0), 8, first=(S, TX), second=(S, TX), inline=1, stages=stages))
    x = numbers(trips, 8)
    for seed in range(8):
        assert np.array_equal(kernel.simulate(x, seed=seed)[0], 1 - x)


def test_the_loop_nest() -> None:
    kernel = proved(pair("B", "N", 64, first=(BX, S, TX), second=(BX, S, TX), inline=2), numbers(3, 5, 64))
    assert rings(kernel) == ["ch0.full[B, 2] 1", "ch0.empty[B, 2] 1"]
    assert [(b.name, b.memory, str(b.shape[0]), str(b.shape[1])) for b in kernel.buffers] == [("tv1", MemoryType.Global, "2", "B")]
    assert (
        "    FOR i1 in 0..N:\n"
        "      IF threadIdx.x == 0:\n"
        "        ACQUIRE ch0.full[blockIdx.x - B, ch0.c.slot] phases ch0.c.phase + 1\n"
        "      SYNC block  # what one thread has acquired, all have\n"
        "      FOR threadIdx.x in TIDx{64}:\n"
        "        tv2[blockIdx.x - B, i1, threadIdx.x] = add(tv1[ch0.c.slot, blockIdx.x - B, threadIdx.x], 1.0)\n"
        "      SYNC block  # before one thread releases for the block\n"
        "      IF threadIdx.x == 0:\n"
        "        RELEASE ch0.empty[blockIdx.x - B, ch0.c.slot]\n"
        "      ch0.c.advance(1)"
    ) in str(kernel)
    assert "# g: vertical on BIDx; no data enters; no data leaves" in str(kernel)


SHARING: dict[str, tuple[Callable[[], tf.Fusion], tuple[int, ...], list[str]]] = {
    # a shared loop is bound to blocks on both sides: each pair of blocks has its ring
    "paired": (lambda: pair(3, 5, 32, first=(BX, S, TX), second=(BX, S, TX), inline=2), (3, 5, 32), ["ch0.full[3, 2] 1", "ch0.empty[3, 2] 1"]),
    "paired on two types": (
        lambda: pair(3, 2, 5, 32, first=(BX, BY, S, TX), second=(BX, BY, S, TX), inline=3, group=BZ),
        (3, 2, 5, 32),
        ["ch0.full[3, 2, 2] 1", "ch0.empty[3, 2, 2] 1"],
    ),
    "paired by two digits": (
        lambda: pair(3, 2, 5, 32, first=(BX, BX, S, TX), second=(BX, BX, S, TX), inline=3),
        (3, 2, 5, 32),
        ["ch0.full[6, 2] 1", "ch0.empty[6, 2] 1"],
    ),
    "one block on each side": (lambda: pair(1, 5, 32, first=(BY, S, TX), second=(BY, S, TX), inline=2), (1, 5, 32), ["ch0.full[2] 1", "ch0.empty[2] 1"]),
    # other blocks read what a block makes: one ring
    "other numbers of blocks": (
        lambda: pair(5, 4, 2, 16, first=(S, S, BX, TX), second=(S, BX, S, TX), inline=1),
        (5, 4, 2, 16),
        ["ch0.full[2] 2", "ch0.empty[2] 4"],
    ),
    "blocks that exchange": (
        lambda: pair(5, 4, 4, 16, first=(S, S, BX, TX), second=(S, BX, S, TX), inline=1),
        (5, 4, 4, 16),
        ["ch0.full[2] 4", "ch0.empty[2] 4"],
    ),
    "not inlined": (lambda: pair(4, 32, first=(BX, TX), second=(BX, TX), inline=0), (4, 32), ["ch0.full[1] 4", "ch0.empty[1] 4"]),
    "blocks of one side": (lambda: pair(5, 4, 32, first=(S, S, TX), second=(S, BX, TX), inline=1), (5, 4, 32), ["ch0.full[2] 1", "ch0.empty[2] 4"]),
}


@pytest.mark.parametrize("name", SHARING)
def test_who_shares_a_ring(name: str) -> None:
    build, shape, expected = SHARING[name]
    assert rings(proved(build(), numbers(*shape))) == expected


def test_rows_dealt_out_to_blocks() -> None:
    """A persistent loop with a remainder: the last trip fills slots that hold nothing for some blocks."""
    fusion, (a, b) = chain(10, 32)
    for tv in (a, b):
        tv.split(0, 4)
        bind(tv, S, BX, TX)
    a.inline_at(2)
    a.circular_buffer(2)
    fusion.group([fusion.task([a]), fusion.task([b])]).parallelize(BX)
    assert rings(proved(fusion, numbers(10, 32))) == ["ch0.full[4, 2] 1", "ch0.empty[4, 2] 1"]


def test_several_roles_producers_and_consumers() -> None:
    with tf.Fusion("roles") as fusion:
        x = tf.define_tensor(["N", 40], name="x")
        a, b = tf.neg(x), x + 2.0
        c, d = a + b, a * 2.0
        y = c + d
        fusion.add_output(y)
    for tv in (a, b, c, d, y):
        bind(tv, S, TX)
    for tv in (a, b, c, d):
        tv.circular_buffer(2)
    fusion.inline_most()
    producers = fusion.group([fusion.task([a], "a"), fusion.task([b], "b")], "producers")
    group = fusion.group([producers, fusion.task([c], "c"), fusion.task([d], "d"), fusion.task([y], "y")], "g")
    producers.parallelize(BX)
    group.parallelize(BX)
    kernel = proved(fusion, numbers(6, 40))
    assert str(kernel.grid[0]) == "5"
    assert len(kernel.semaphores) == 8


@pytest.mark.parametrize(("inner", "outer"), [(TZ, BX), (TX, BY), (BX, BX)])
def test_vertical_groups_in_vertical_groups(inner: P, outer: P) -> None:
    fusion, made = chain("N", 64, length=4)
    for tv in made:
        bind(tv, S, TY if inner is TX else TX)
        if tv.uses:
            tv.circular_buffer(2)
    fusion.inline_most()
    tasks = [fusion.task([tv]) for tv in made]
    groups = [fusion.group(tasks[:2], "g1"), fusion.group(tasks[2:], "g2")]
    whole = fusion.group(groups, "g")
    for g in groups:
        g.parallelize(inner)
    whole.parallelize(outer)
    kernel = proved(fusion, numbers(5, 64))
    assert kernel.semaphores
    assert bool(kernel.mbarriers) is inner.is_thread


def test_block_groups_one_after_the_other() -> None:
    fusion, made = chain("N", 64, length=4)
    for tv in made:
        bind(tv, S, TX)
    for tv in (made[0], made[2]):
        tv.inline_at(1)
    tasks = [fusion.task([tv]) for tv in made]
    for g in (fusion.group(tasks[:2], "g1"), fusion.group(tasks[2:], "g2")):
        g.parallelize(BX)
    kernel = proved(fusion, numbers(5, 64))
    assert "SYNC grid" in str(kernel)
    assert str(kernel.grid[0]) == "2"


def test_the_founding_example_on_blocks() -> None:
    with tf.Fusion("cat") as fusion:
        x = tf.define_tensor(["B", "R", "S", "T"], name="x")
        parts = [tf.neg(x), tf.abs(x), x + 1.0, x * 2.0]
        ends = [tf.relu(p) for p in parts]
        y = tf.cat(ends, dim=2)
        z = tf.neg(y)
        fusion.add_output(z)
    producers = fusion.group([fusion.task([p, e]) for p, e in zip(parts, ends, strict=True)], "producers")
    group = fusion.group([producers, fusion.task([y, z], "cat")], "g")
    for tv in fusion.tensors():
        if not tv.is_input:
            bind(tv, BX, S, TY, TX)
    for e in ends:
        e.circular_buffer(3)
    fusion.inline_most()
    producers.parallelize(TY)
    group.parallelize(BX)
    kernel = proved(fusion, numbers(2, 7, 3, 8))
    assert rings(kernel) == ["ch0.full[B, 3] 1", "ch0.empty[B, 3] 1"]
    assert [b.name for b in kernel.buffers if b.memory is MemoryType.Global] == [e.name for e in ends]


def test_barriers_fit_the_region() -> None:
    """Roles of other widths: a named barrier of whole warps, an mbarrier for any thread set, nothing for one thread."""

    def kernel(width: int) -> tf.Kernel:
        fusion, (a, b) = chain(4, 96, length=2)
        a.split(1, width)
        bind(a, S, S, TX)
        bind(b, S, TX)
        a.inline_at(1)
        fusion.group([fusion.task([a], "load"), fusion.task([b], "use")], "g").parallelize(BX)
        return proved(fusion, numbers(4, 96))

    scopes = {width: {s.scope for s in walk(kernel(width)) if isinstance(s, Barrier)} for width in (1, 24, 32, 64)}
    assert scopes == {
        1: {BarrierScope.BLOCK},
        24: {BarrierScope.BLOCK},
        32: {BarrierScope.BLOCK, BarrierScope.WARP},
        64: {BarrierScope.BLOCK, BarrierScope.NAMED},
    }
    assert [m.name for m in kernel(24).mbarriers] == ["sync0"]


def test_one_thread_acquires_and_releases_for_its_block() -> None:
    kernel = tf.lower(pair("N", 64, first=(S, TX), second=(S, TX), inline=1))
    assert sum(isinstance(s, (Acquire, Release)) for s in walk(kernel)) == 4
    assert all(s.count.free == frozenset() for s in kernel.semaphores)


def test_what_leaves_the_group_and_comes_back_to_other_blocks() -> None:
    with tf.Fusion("after") as fusion:
        x = tf.define_tensor([4, 32], name="x")
        a = tf.neg(x)
        b = a + 1.0
        y = tf.neg(tf.permute(b, [1, 0]))
        fusion.add_output(y)
    bind(a, S, TX)
    bind(b, S, TX)
    bind(y, TX)
    a.inline_at(1)
    fusion.group([fusion.task([a]), fusion.task([b])], "g").parallelize(BX)
    kernel = proved(fusion, numbers(4, 32))
    assert "SYNC grid" in str(kernel)


def test_blocks_that_are_not_resident() -> None:
    kernel = tf.lower(pair("N", 8, first=(S, TX), second=(S, TX), inline=1))
    with pytest.raises(DeadlockError, match=r"ch0.empty\[0\] wants 1 phases; 0 phases are complete"):
        kernel.simulate(numbers(5, 8), resident=1)


# -- refusals ---------------------------------------------------------------------------------------------------------------------------


def test_roles_of_threads_in_other_blocks() -> None:
    """The boundary of a group on threads stays in one block."""
    fusion, made = chain("N", 64, length=3)
    for tv in made:
        bind(tv, S, TX)
    fusion.inline_most()
    inner = fusion.group([fusion.task([tv]) for tv in made[:2]], "inner")
    fusion.group([inner, fusion.task([made[2]])], "g").parallelize(TZ)
    inner.parallelize(BX)
    assert refused(lambda: tf.lower(fusion), LoweringError).startswith("cannot lower tv2: ")


def test_instances_cannot_take_turns() -> None:
    fusion = pair(4, 2, 32, first=(S, S, TX), second=(S, TY, TX), inline=2)
    assert refused(lambda: tf.lower(fusion), LoweringError) == (
        "cannot lower tv2: its axis 1 is bound to TIDy and Serial in tv1, which other blocks make: instances of a role cannot take turns at a ring"
        " between blocks\nhelp: bind the axis alike on both sides, or make it Serial in tv2"
    )


def test_the_copy_engine_fills_shared_memory() -> None:
    fusion, _ = chain(8, 64)
    copy = fusion.inputs[0].cache_after()
    for tv in fusion.tensors():
        if not tv.is_input:
            bind(tv, S)
    copy.set_atom(atoms.TMA_LOAD, (1,))
    copy.inline_at(1)
    rest = [tv for tv in fusion.tensors() if not tv.is_input and tv is not copy]
    fusion.group([fusion.task([copy], "load"), fusion.task(rest, "use")], "g").parallelize(BX)
    reason = "it is a boundary between blocks, which lies in Global memory; its atom"
    assert refused(lambda: tf.lower(fusion), LoweringError).startswith(f"cannot lower {copy.name}: {reason}")


def test_an_explicit_memory_type_that_blocks_do_not_share() -> None:
    fusion = pair(4, 32, first=(S, TX), second=(S, TX), inline=1)
    next(tv for tv in fusion.tensors() if tv.name == "tv1").set_memory_type(MemoryType.Shared)
    assert refused(lambda: tf.lower(fusion), LoweringError).startswith(
        "cannot lower tv1: it is set to Shared, but tv2 reads elements of tv1 that other indices of BIDx compute"
    )


# -- with other mechanisms --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("both", [True, False])
def test_blocks_of_a_cluster_take_part_one_by_one(both: bool) -> None:
    fusion, (a, b) = chain(4, 5, 2, 32)
    bind(a, BX, S, P.CIDx if both else S, TX)
    bind(b, BX, S, P.CIDx, TX)
    a.inline_at(2)
    a.circular_buffer(2)
    fusion.group([fusion.task([a]), fusion.task([b])]).parallelize(BX)
    kernel = agrees(fusion, numbers(4, 5, 2, 32))
    assert rings(kernel) == ["ch0.full[4, 2] 2", "ch0.empty[4, 2] 2"]


def test_asynchronous_copies_out_of_a_slot_are_done_before_it_is_handed_back() -> None:
    with tf.Fusion("copied") as fusion:
        a = tf.neg(tf.define_tensor([4, 5, 64], name="x"))
        copied = tf.copy(a)
        b = copied + 1.0
        fusion.add_output(b)
    for tv in (a, copied, b):
        bind(tv, BX, S, TX)
    for tv in (a, copied):
        tv.inline_at(2)
    a.circular_buffer(2)
    copied.set_memory_type(MemoryType.Shared)
    copied.set_atom(atoms.CP_ASYNC, ())
    fusion.group([fusion.task([a]), fusion.task([copied, b])]).parallelize(BX)
    kernel = agrees(fusion, numbers(4, 5, 64))
    order = [type(s) for s in walk(kernel) if isinstance(s, AsyncCopy | WaitGroup | Release)]
    assert order == [Release, AsyncCopy, WaitGroup, Release]
