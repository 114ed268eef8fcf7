"""Rings that a role fills ahead for itself: any number of trips over any number of slots, in Shared memory and in registers; what each statement is for."""

import pytest

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P
from taskfuse.check import Verdict
from taskfuse.errors import LoweringError, SimulationError
from taskfuse.kir import walk
from taskfuse.kir.nodes import Choose, For, If
from taskfuse.kir.operands import Access
from taskfuse.kir.synchronization import BarrierScope, Commit, CursorInit, Expect, InitBarrier, WaitGroup
from tests.lowering.copying import pipeline, two_tiles
from tests.lowering.running import agree, agrees, bind, buffer, numbers, refused, scopes
from tests.proofs import proved

S, TX, BX = P.Serial, P.TIDx, P.BIDx
SHARED, LOCAL = MemoryType.Shared, MemoryType.Local
LATE = (tf.Interleaving.ASYNC_LATE, tf.Interleaving.ASYNC_EARLY, tf.Interleaving.RANDOM_FINE)


def reversed_rows(stages: int = 3, rows: int | str = "N", memory: MemoryType = SHARED) -> tf.Fusion:
    """Rows of 8 that other threads read, a row per trip."""
    with tf.Fusion("rows") as fusion:
        x = tf.define_tensor([tf.dim(rows, min=0) if isinstance(rows, str) else rows, 8], name="x")
        a = tf.neg(x)
        fusion.add_output(tf.add(tf.flip(a, 1) if memory is SHARED else a, 1.0))
    for tv in (a, fusion.outputs[0]):
        bind(tv, S, TX)
    a.inline_at(1)
    a.set_memory_type(memory)
    a.circular_buffer(stages)
    return fusion


def summed(stages: int = 2, rows: int | str = "N", *, unroll: bool = False) -> tf.Fusion:
    """Sums of columns; each thread loads the elements of later rows to registers before it adds one."""
    with tf.Fusion("summed") as fusion:
        x = tf.define_tensor([tf.dim(rows, min=0) if isinstance(rows, str) else rows, 8], name="x")
        y = tf.sum(tf.abs(x), 0)
        fusion.add_output(y)
    loaded = x.cache_after()
    for tv in (t for t in fusion.tensors() if t is not x):
        tv.axis(-1).parallelize(TX)
    if unroll:
        y.axis(0).parallelize(P.Unroll)
    fusion.inline_most()
    loaded.circular_buffer(stages)
    return fusion


def nested(stages: int = 3, memory: MemoryType = SHARED) -> tf.Fusion:
    """The loop of the ring stands in another one, with as many trips as somebody says: one ring goes on over all of it."""
    with tf.Fusion("nested") as fusion:
        x = tf.define_tensor([3, tf.dim("N", min=0), 32], name="x")
        a = tf.copy(x)
        fusion.add_output(tf.neg(tf.flip(a, 2) if memory is SHARED else a))
    for tv in (a, fusion.outputs[0]):
        bind(tv, S, S, TX)
    if memory is SHARED:
        a.set_atom(atoms.CP_ASYNC, ())
    a.set_memory_type(memory)
    a.inline_at(2)
    a.circular_buffer(stages)
    return fusion


def through_registers() -> tf.Fusion:
    """Tiles go through registers to a ring in Shared memory: the loads move with the stores."""
    fusion = reversed_rows()
    a = fusion.tensors()[1]
    loaded = fusion.inputs[0].cache_after()
    loaded.axis(1).parallelize(TX)
    loaded.inline_at(2)
    assert a.schedule.stages == 3
    return fusion


def in_a_role() -> tf.Fusion:
    """A consumer of a channel: it loads from a slot to registers ahead of what it computes."""
    with tf.Fusion("role") as fusion:
        x = tf.define_tensor([4, 6, 32], name="x")
        made = tf.exp(x)
        y = tf.sum(made, 1)
        fusion.add_output(y)
    held = made.cache_after()
    for tv in (made, held, y):
        tv.axis(2).parallelize(TX)
    made.set_memory_type(SHARED)
    made.inline_at(1)
    made.circular_buffer(2)
    held.inline_at(3)
    held.circular_buffer(2)
    fusion.group([fusion.task([made], "make"), fusion.task([held, y], "use")], "roles").parallelize(P.TIDy)
    return fusion


def by_bulk(stages: int = 3, rows: int | str = "M", *, inner: bool = False) -> tf.Fusion:
    """The sum of two matrices whose tiles bulk copies bring, all in one role; ``inner``: the loop of the ring stands in another one."""
    with tf.Fusion("bulk") as fusion:
        xs = [tf.define_tensor([tf.dim(rows, min=0) if isinstance(rows, str) else rows, 64], name=n) for n in "xz"]
        y = xs[0] + xs[1]
        fusion.add_output(y)
    tiles = [x.cache_after() for x in xs]
    y.split(0, 8)
    if inner:
        y.split(0, 2)
    y.axis(-1).parallelize(TX)
    depth = 2 if inner else 1
    y.propagate(tiles, upto=depth)
    for tile in tiles:
        tile.set_memory_type(SHARED)
        tile.set_atom(atoms.TMA_LOAD, (depth, depth + 1))
        tile.inline_at(depth)
        tile.circular_buffer(stages)
    return fusion


@pytest.mark.parametrize("stages", [2, 4])
def test_bulk_copies_run_ahead(stages: int) -> None:
    fusion = by_bulk(stages)
    for rows in (0, 1, 9, 40):
        kernel = agrees(fusion, numbers(rows, 64), numbers(rows, 64, seed=1), interleavings=LATE)
    kernel.verify().require()
    assert scopes(kernel) == [BarrierScope.BLOCK]  # before a slot is filled again
    assert {str(s.count) for s in walk(kernel) if isinstance(s, InitBarrier)} == {"1"}
    assert {str(s.bytes) for s in walk(kernel) if isinstance(s, Expect)} == {"4096"}  # of both tiles
    assert "mbarrier.try_wait.parity" in kernel.ptx("sm_90a")


@pytest.mark.parametrize("stages", [2, 3])
def test_no_thread_that_waits_for_a_bulk_copy_is_left_behind_by_the_only_reader(stages: int) -> None:
    with tf.Fusion("one_reader") as fusion:
        x, z = (tf.define_tensor([40, 64], name=n) for n in "xz")
        y, other = tf.neg(x), tf.neg(z)
        fusion.add_output(y)
        fusion.add_output(other)
    tile = x.cache_after()
    y.split(0, 8)
    y.propagate([tile], upto=1)
    tile.set_memory_type(SHARED)
    tile.set_atom(atoms.TMA_LOAD, (1, 2))
    tile.inline_at(1)
    tile.circular_buffer(stages)
    other.axis(1).parallelize(TX)
    kernel = agrees(fusion, numbers(40, 64), numbers(40, 64, seed=1), interleavings=LATE)
    kernel.verify().require()
    assert scopes(kernel) == [BarrierScope.BLOCK]  # before a slot is filled again


@pytest.mark.parametrize("rows", [0, 4, 8, 16, 40])
def test_bulk_copies_of_few_trips_are_proved(rows: int) -> None:
    agrees(by_bulk(3, rows), numbers(rows, 64), numbers(rows, 64), interleavings=LATE[:1]).verify().require()


def test_bulk_copies_in_an_inner_loop() -> None:
    kernel = agrees(by_bulk(3, 48, inner=True), numbers(48, 64), numbers(48, 64, seed=1), interleavings=LATE)
    kernel.verify().require()


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_copies_are_in_flight_for_any_number_of_trips(stages: int) -> None:
    fusion = pipeline(group=None, stages=stages)
    for rows in (0, 1, 9, 17, 90):
        kernel = agrees(fusion, numbers(rows, 64), interleavings=LATE)
    kernel.verify().require()
    (pending,) = {s.pending for s in walk(kernel) if isinstance(s, WaitGroup) and s.pending} or {0}
    assert pending == stages - 2
    assert scopes(kernel) == [BarrierScope.BLOCK]


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_stores_run_ahead_with_one_barrier_per_trip(stages: int) -> None:
    fusion = reversed_rows(stages)
    for rows in (0, 1, 2, 3, 7):
        kernel = agrees(fusion, numbers(rows, 8))
    kernel.verify().require()
    assert scopes(kernel) == [BarrierScope.BLOCK]


@pytest.mark.parametrize("stages", [2, 3])
def test_registers_are_loaded_ahead(stages: int) -> None:
    fusion = summed(stages)
    kernel = tf.lower(fusion)
    for rows in range(2 * stages + 2):
        agree(kernel, fusion, numbers(rows, 8), interleavings=LATE[:1])
    proved(kernel, *({"N": rows} for rows in range(2 * stages + 2)))
    assert str(buffer(kernel, "tv3").shape[0]) == str(stages)
    assert not any(isinstance(s, CursorInit) for s in walk(kernel))
    kernel.ptx("sm_80")


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
def test_a_loop_that_is_unrolled_anyway_stays_one(rows: int) -> None:
    kernel = agrees(summed(3, rows, unroll=True), numbers(rows, 8), interleavings=LATE[:1])
    kernel.verify().require()
    assert not any(isinstance(s, For) and s.var.endswith((".q", ".r", ".e")) for s in walk(kernel))


def test_a_loop_of_a_known_number_of_trips_is_unrolled_by_it() -> None:
    """``ceildiv(N, 12)`` is 1 for every ``N`` that there may be."""
    with tf.Fusion("one_trip") as fusion:
        x = tf.define_tensor([tf.dim("N", min=1, max=11)], name="x")
        fusion.add_output(tf.neg(x))
    loaded = x.cache_after()
    for tv in (loaded, fusion.outputs[0]):
        tv.split(0, 12)
        tv.axis(1).parallelize(TX)
    loaded.inline_at(1)
    loaded.circular_buffer(2)
    kernel = agrees(fusion, numbers(5), interleavings=LATE[:1])
    proved(kernel, {"N": 1}, {"N": 5}, {"N": 11})
    assert not any(isinstance(s, For) for s in walk(kernel))


def test_what_the_first_trip_never_reads_is_not_in_its_fill() -> None:
    with tf.Fusion("parts") as fusion:
        x, y = tf.define_tensor([3, 4], name="x"), tf.define_tensor([2, 4], name="y")
        fusion.add_output(tf.cat([tf.neg(x), tf.neg(y)], 0, "gather"))
    out = fusion.outputs[0]
    held, made = out.cache_before(), fusion.tensors()[2:4]
    held.inline_at(1)
    held.circular_buffer(2)
    for tv in (*made, held, out):
        tv.axis(1).parallelize(TX)
    kernel = agrees(fusion, numbers(3, 4), numbers(2, 4), interleavings=LATE[:1])
    kernel.verify().require()
    first = next(s for s in walk(kernel) if isinstance(s, Choose))
    assert [c.operand for c in first.cases if isinstance(c.operand, Access)] == [Access(made[0].name, (tf.scalar.ZERO,))]


def test_copies_past_the_end_read_nothing() -> None:
    """The loop goes on for 8 rows; that row 4 of at most 4 is never copied is known without the arguments."""
    with tf.Fusion("short") as fusion:
        x = tf.define_tensor([tf.dim("M", min=1, max=4), 8], name="x")
        fusion.add_output(tf.neg(x))
    loaded = x.cache_after()
    for tv in (loaded, fusion.outputs[0]):
        tv.split(0, 4)
        tv.split(1, 8)
        tv.axis(2).parallelize(P.Unroll)
        tv.axis(3).parallelize(TX)
    loaded.set_atom(atoms.CP_ASYNC, ())
    loaded.set_memory_type(SHARED)
    loaded.inline_at(3)
    loaded.circular_buffer(4)
    for rows in (1, 3, 4):
        kernel = agrees(fusion, numbers(rows, 8), interleavings=LATE)
    proved(kernel, *({"M": rows} for rows in (1, 2, 3, 4)))


@pytest.mark.parametrize("memory", [SHARED, LOCAL])
def test_rings_in_inner_loops(memory: MemoryType) -> None:
    fusion = nested(memory=memory)
    for trips in (0, 1, 2, 5):
        kernel = agrees(fusion, numbers(3, trips, 32), interleavings=LATE)
    proved(kernel, *({"N": trips} for trips in (0, 1, 2, 5)))


def test_rings_in_an_unrolled_loop() -> None:
    """No copy is in flight from one iteration of the outer loop to the next, so the proof need not tell its copies apart."""
    fusion = nested()
    for tv in fusion.tensors()[1:]:
        tv.axis(0).parallelize(P.Unroll)
    for trips in (0, 1, 5):
        kernel = agrees(fusion, numbers(3, trips, 32), interleavings=LATE)
    kernel.verify().require()
    assert any(isinstance(s, For) and s.unroll and not s.var.endswith(".p") for s in walk(kernel))


def test_what_a_fill_alone_is_made_of_moves_with_it() -> None:
    fusion = through_registers()
    kernel = agrees(fusion, numbers(5, 8))
    kernel.verify().require()
    loop = next(s for s in walk(kernel) if isinstance(s, For) and not s.var.endswith(".p"))
    assert len([s for s in loop.body if isinstance(s, If)]) == 1  # the load and the store of a later row


def test_registers_ahead_in_a_consumer() -> None:
    kernel = agrees(in_a_role(), numbers(4, 6, 32), tolerance=1e-6)
    kernel.verify().require()


def test_rings_of_one_loop_share_slots_cursor_and_batch() -> None:
    fusion = two_tiles(3)
    fusion.tensors()[-1].circular_buffer(2)
    for columns in (0, 3, 4, 10, 40):
        kernel = agrees(fusion, numbers(8, columns), numbers(8, columns, seed=1), interleavings=LATE)
    kernel.verify().require()
    assert [s.slots for s in walk(kernel) if isinstance(s, CursorInit)] == [3]
    assert len([s for s in walk(kernel) if isinstance(s, Commit)]) == 2
    assert {str(buffer(kernel, tv.name).shape[0]) for tv in fusion.tensors() if tv.schedule.stages > 1} == {"3"}


def test_copies_that_write_an_element_again_are_waited_for_in_between() -> None:
    """A copied tensor lacks the outer axis of its reader; two copies to one element must not be in flight."""
    with tf.Fusion("again") as fusion:
        x, w = tf.define_tensor([32], name="x"), tf.define_tensor([3, 32], name="w")
        y = tf.expand_dims(x, 0) * w
        fusion.add_output(y)
    copied = x.cache_after()
    copied.set_memory_type(SHARED)
    y.axis(1).parallelize(TX)
    y.propagate([copied])
    tf.parallelize_like(y, [copied])
    copied.set_atom(atoms.CP_ASYNC, ())
    kernel = agrees(fusion, numbers(32), numbers(3, 32))
    kernel.verify().require()


# -- what each statement is for ---------------------------------------------------------------------------------------------------------

FAULTS = {
    "no wait_group": ("  WAIT_GROUP copy <= 1\n", ""),
    "a wait_group for one less": ("WAIT_GROUP copy <= 1", "WAIT_GROUP copy <= 2"),
    "no barrier": ("  SYNC block  # tv2 crosses TIDx in t0\n", ""),
    "a prologue of one trip less": ("0..2 UNROLL", "0..1 UNROLL"),
    "no commit before the loop": ("  COMMIT copy\nFOR i0 in", "FOR i0 in"),
    "no commit in the loop": ("  COMMIT copy\n  FOR blockIdx", "  FOR blockIdx"),
    "a fill of the next slot": ("tv2.ring.slot + 2", "tv2.ring.slot + 1"),
    "a fill of the slot in use": ("(tv2.ring.slot + 2) % 3", "tv2.ring.slot"),
    "two slots": ("% 3, i5", "% 2, i5"),
    "two advances": ("  tv2.ring.advance(1)", "  tv2.ring.advance(1)\n  tv2.ring.advance(1)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_refuted(fault: str) -> None:
    text = str(tf.lower(pipeline(group=None)))
    old, new = FAULTS[fault]
    assert old in text
    assert tf.parse_kernel(text.replace(old, new)).verify().verdict is Verdict.REFUTED


BARRIER, WAIT = "  SYNC block  # tv3 crosses TIDx in t0\n", "  WAIT tv3.ring.full[tv3.ring.slot] parity tv3.ring.parity\n"
BULK_FAULTS = {
    "no barrier": (BARRIER, ""),
    "the barrier behind the fill": (WAIT, WAIT + BARRIER),
    "no wait": (WAIT, ""),
    "a wait of some": (WAIT, "  IF threadIdx.x < 32:\n  " + WAIT),
    "a fill of the next slot": ("tv3.ring.slot + 2", "tv3.ring.slot + 1"),
    "a fill of the slot in use": ("(tv3.ring.slot + 2) % 3", "tv3.ring.slot"),
    "a fill of another slot than the barrier's": ("TMA tv3[(tv3.ring.slot + 2) % 3", "TMA tv3[(tv3.ring.slot + 1) % 3"),
    "one fill more": ("i0 + 2 < ceildiv(M, 8)", "i0 + 2 < ceildiv(M, 8) + 1"),
    "one fill less": ("i0 + 2 < ceildiv(M, 8)", "i0 + 2 < ceildiv(M, 8) - 1"),
    "a prologue of one trip less": ("0..2 UNROLL", "0..1 UNROLL"),
    "half of the bytes": ("bytes 4096", "bytes 2048"),
    "a count of two": ("count 1", "count 2"),
    "the phase before": ("slot 0, parity 0", "slot 0, parity 1"),
    "no advance": ("\n  tv3.ring.advance(1)", ""),
}


@pytest.mark.parametrize("fault", BULK_FAULTS)
def test_faults_of_bulk_copies_are_refuted(fault: str) -> None:
    text = str(tf.lower(by_bulk()))
    old, new = BULK_FAULTS[fault]
    assert old in text
    if "behind" in fault:
        text = text.replace(BARRIER, "")
    assert tf.parse_kernel(text.replace(old, new)).verify().verdict is Verdict.REFUTED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  tv2.ring.advance(1)\n", ""),  # every trip uses one slot
        ("\nWAIT_GROUP copy <= 0", ""),  # that no copy is left would take the conditions of all trips to show
    ],
)
def test_what_is_not_proved(old: str, new: str) -> None:
    text = str(tf.lower(pipeline(group=None)))
    assert old in text
    assert not tf.parse_kernel(text.replace(old, new)).verify().is_proved


def test_whoever_fills_late_reads_what_nobody_wrote() -> None:
    """The proof says nothing of results; the simulator finds storage that nobody has filled."""
    text = str(tf.lower(reversed_rows())).replace("0..2 UNROLL", "0..1 UNROLL")
    with pytest.raises(SimulationError, match="read of uninitialized Shared 'tv1'"):
        tf.parse_kernel(text).simulate(numbers(4, 8))


def test_a_barrier_between_stores_and_reads() -> None:
    text = str(tf.lower(reversed_rows()))
    assert tf.parse_kernel(text.replace("  SYNC block  # tv1 crosses TIDx in t0\n", "")).verify().verdict is Verdict.REFUTED


# -- what is not filled ahead -----------------------------------------------------------------------------------------------------------


def running(memory: MemoryType) -> tf.Fusion:
    """What is stored in the ring is also an output."""
    with tf.Fusion("running") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        a = tf.neg(x)
        b = tf.copy(a)
        fusion.add_output(tf.abs(b))
        fusion.add_output(tf.exp(a))
    for tv in (a, b, *fusion.outputs):
        bind(tv, S, TX)
    a.inline_at(2)
    b.inline_at(1)
    b.set_memory_type(memory)
    b.circular_buffer(2)
    return fusion


def test_a_fill_made_of_what_others_read_stays() -> None:
    kernel = agrees(running(SHARED), numbers(4, 8), tolerance=1e-6)
    kernel.verify().require()
    assert not any(isinstance(s, For) and s.var.endswith(".p") for s in walk(kernel))


def lowering(fusion: tf.Fusion) -> str:
    return refused(lambda: tf.lower(fusion), LoweringError)


def test_texts_of_refusals() -> None:
    help_text = "help: set_memory_type(Shared), or circular_buffer(1)"
    assert lowering(running(LOCAL)) == (
        f"cannot lower tv2: its ring of 2 slots in registers cannot be filled ahead: it is made from tv1, which tv4 reads as well\n{help_text}"
    )
    fusion = by_bulk()
    tile = fusion.tensors()[-1]
    tile.circular_buffer(1)
    assert lowering(fusion) == (
        f"cannot lower {tile.name}: a bulk load completes at a barrier of a ring, and it has none\n"
        f"help: make {tile.name} a boundary of a vertical group, or a ring in a loop: circular_buffer"
    )
    with tf.Fusion("sums") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        a = tf.sum(x, 1)
        fusion.add_output(tf.neg(a))
    a.inline_at(1)
    a.circular_buffer(2)
    assert lowering(fusion) == f"cannot lower tv1: its ring of 2 slots in registers cannot be filled ahead: tv1 is a reduction\n{help_text}"


def test_a_fill_of_a_trip_that_no_block_has_is_left_out() -> None:
    with tf.Fusion("rows") as fusion:
        x = tf.define_tensor([7, 4], name="x")
        held = tf.neg(x)
        ahead = tf.copy(held)
        y = tf.exp(ahead)
        fusion.add_output(y)
    for tv in (held, ahead, y):
        tv.split(0, 3)
        tv.axis(1).parallelize(P.BIDx)
        tv.axis(2).parallelize(P.TIDx)
    held.set_memory_type(MemoryType.Shared)
    ahead.inline_at(2)
    ahead.circular_buffer(2)
    kernel = agrees(fusion, numbers(7, 4))
    assert "tv1[3]" not in kernel.text()
