"""Bulk copies (TMA): boxes, swizzles, dtypes, remainders, rings; what is refused; every kernel compiles for sm_90a."""

from collections.abc import Callable

import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse.errors import SimulationError
from taskfuse.ir.expr import Update
from taskfuse.kir import walk
from taskfuse.kir.declarations import TensorMapParam
from taskfuse.kir.nodes import If, TmaStore
from taskfuse.kir.synchronization import Expect, FenceProxyAsync, InitBarrier, Wait, WaitGroup
from taskfuse.testing.updates import in_boxes
from tests.cuda.compiled import compiles, texts
from tests.lowering.bulk_cases import (
    BX,
    CASES,
    LOAD,
    SHARED,
    STORE,
    TX,
    TY,
    after_another_group,
    inner_zeros,
    made_and_read,
    side_by_side,
    stored_in_steps,
    stream,
    view,
)
from tests.lowering.faults import missed
from tests.lowering.running import agrees, buffer, numbers, refused


def box(kernel: tf.Kernel, name: str) -> TensorMapParam:
    """A tensor map by name."""
    return next(p for p in kernel.params if isinstance(p, TensorMapParam) and p.name == name)


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_numpy(name: str) -> None:
    agrees(CASES.lowered(name)[0], *CASES.operands(name))


@pytest.mark.parametrize("name", CASES)
def test_every_kernel_is_proved(name: str) -> None:
    CASES.lowered(name)[1].verify().require()


def test_every_kernel_compiles() -> None:
    compiles(texts({name: CASES.lowered(name)[1] for name in CASES}, "dense"))


# -- boxes --------------------------------------------------------------------------------------------------------------------------


def test_the_box_is_the_tile_and_the_swizzle_that_of_the_layout() -> None:
    kernel = CASES.lowered("bfloat16 128")[1]
    assert (box(kernel, "tv2.map").box, box(kernel, "tv2.map").swizzle, box(kernel, "tv2.map").tensor) == ((16, 64), 128, "x")
    assert buffer(kernel, "tv2").align == 1024
    kernel = CASES.lowered("4d both")[1]
    assert [(p.box, p.swizzle) for p in kernel.params if isinstance(p, TensorMapParam)] == [((2, 2, 2, 4), 0)] * 2


def test_a_box_takes_every_second_row() -> None:
    kernel = CASES.lowered("every second row")[1]
    assert (box(kernel, "tv2.map").box, box(kernel, "tv2.map").steps) == ((2, 64), (2, 1))
    assert "TENSORMAP tv2.map = x box (2, 64) step (2, 1) swizzle 0" in str(kernel)


def test_a_fill_brings_all_its_boxes() -> None:
    kernel = CASES.lowered("boxes, store=True")[1]
    assert [str(s.bytes) for s in walk(kernel) if isinstance(s, Expect)] == [str(3 * 8 * 32 * 4)]
    assert sum(isinstance(s, TmaStore) for s in walk(kernel)) == 1
    kernel = CASES.lowered("three loads")[1]
    assert [str(s.bytes) for s in walk(kernel) if isinstance(s, Expect)] == [str(3 * 8 * 32 * 4)]


def test_a_tensor_map_has_a_name_of_its_own() -> None:
    with tf.Fusion("names") as fusion:
        x = tf.define_tensor([8, 32], name="map_tv1")
        y = tf.neg(tf.copy(x))
        fusion.add_output(y)
    (a,) = (tv for tv in fusion.tensors() if tv not in {x, y})
    a.set_atom(LOAD, (0, 1))
    a.set_memory_type(SHARED)
    y.axis(1).parallelize(TX)
    fusion.group([fusion.task([a]), fusion.task([y])]).parallelize(TY)
    agrees(fusion, numbers(8, 32))


# -- rings --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_any_number_of_trips_over_any_number_of_stages(stages: int) -> None:
    fusion = stream(["M", 32], (8, 32), stages=stages)
    for rows in (0, 1, 8, 9, 31, 80):
        agrees(fusion, numbers(rows, 32))


@pytest.mark.parametrize("name", ["2d both", "load and stores", "load beside stores", "stored and read, apart=True", "added by blocks"])
def test_waits_and_arrivals_are_all_needed(name: str) -> None:
    fusion, kernel = CASES.lowered(name)
    assert set(missed(kernel, fusion, *CASES.operands(name))) <= {"Barrier before one lane arrives for the warp"}  # one of two in a row


def test_full_counts_the_engine_and_the_threads_that_store() -> None:
    def counts(name: str) -> dict[str, str]:
        return {s.barrier.name: str(s.count) for s in walk(CASES.lowered(name)[1]) if isinstance(s, InitBarrier)}

    assert counts("two loads")["ch0.full"] == "1"
    assert counts("load and stores")["ch0.full"] == "2"


def test_threads_that_do_not_arrive_do_not_wait() -> None:
    """Eight columns of threads, padded to a warp: four of the load's threads run its loop, and the first of them waits and copies."""
    kernel = CASES.lowered("3d load")[1]
    (first,) = (b for s in walk(kernel) if isinstance(s, If) for b in s.branches if any(isinstance(t, Expect) for t in b.body))
    assert str(first.cond) == "threadIdx.y == 0"
    assert [type(t) for t in first.body] == [Wait, Expect]


def test_what_threads_store_is_fenced_before_a_bulk_copy_reads_it_and_stores_are_retired() -> None:
    kernel = CASES.lowered("stored and read, apart=True")[1]
    assert sum(isinstance(s, FenceProxyAsync) for s in walk(kernel)) == 1
    assert [s.read_only for s in walk(kernel) if isinstance(s, WaitGroup)] == [True, False]
    assert not any(isinstance(s, FenceProxyAsync | WaitGroup) for s in walk(CASES.lowered("two loads")[1]))


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("read again")])
def test_an_output_that_a_bulk_copy_reads_again_is_fenced_in_global_memory(name: str) -> None:
    """Without the fence, the simulator and the proof name it; the barrier behind it is needed, too."""
    kernel = CASES.lowered(name)[1]
    assert [s.memory for s in walk(kernel) if isinstance(s, FenceProxyAsync)] == [MemoryType.Global]
    text = str(kernel)
    without = tf.parse_kernel(text.replace("FENCE proxy.async.global", "PASS"))
    assert "FENCE proxy.async.global of the writer" in without.verify().failures[-1].reason
    with pytest.raises(SimulationError, match=r"missing fence\.proxy\.async\.global: Global '\w+' was written by a thread"):
        without.simulate(*CASES.operands(name))
    lines = text.splitlines()
    (at,) = (k for k, line in enumerate(lines) if "FENCE proxy.async.global" in line)
    assert lines[at + 1].strip().startswith("SYNC ")
    missing = "\n".join((*lines[: at + 1], *lines[at + 2 :]))
    assert not tf.parse_kernel(missing + "\n").verify().is_proved


def test_bytes_that_bulk_copies_touch_are_no_other_buffers() -> None:
    fusion = after_another_group()
    kernel = agrees(fusion, *CASES.operands("after another group"), options=tf.LoweringOptions(shared_limit=1))
    assert len({str(b.offset) for b in kernel.buffers}) == 2


# -- what is refused ----------------------------------------------------------------------------------------------------------------


def one(columns: int = 64, tile: tuple[int, int] = (2, 32)) -> tuple[tf.Fusion, tf.TensorView, tf.TensorView]:
    """A copy of x in Shared memory, and a reader in another role, both tiled."""
    with tf.Fusion("one") as fusion:
        a = tf.copy(tf.define_tensor([16, columns], name="x"))
        y = tf.abs(a)
        fusion.add_output(y)
    a.set_memory_type(SHARED)
    for tv in (a, y):
        tv.split(0, tile[0])
        tv.split(2, tile[1])
        tv.reorder([0, 2, 1, 3])
    fusion.group([fusion.task([a], "load"), fusion.task([y], "use")], "g").parallelize(TY)
    return fusion, a, y


def tiled(rows: int = 2, columns: int = 32, width: int = 64) -> tf.Fusion:
    """Tiles of ``rows`` x ``columns`` of a [16, ``width``] tensor."""
    fusion, a, _ = one(width, (rows, columns))
    a.set_atom(LOAD, (2, 3))
    a.inline_at(2)
    return fusion


def without_a_channel() -> tf.Fusion:
    with tf.Fusion("alone") as fusion:
        a = tf.copy(tf.define_tensor([8, 32], name="x"))
        y = tf.copy(a)
        fusion.add_output(y)
    a.set_memory_type(SHARED)
    a.set_atom(LOAD, (0, 1))
    return fusion


def bound_to_a_thread() -> tf.Fusion:
    fusion, a, _ = one()
    a.set_atom(LOAD, (2, 3))
    a.axis(1).parallelize(TX)
    return fusion


def in_registers() -> tf.Fusion:
    with tf.Fusion("registers") as fusion:
        y = tf.abs(tf.copy(tf.define_tensor([8, 32], name="x")))
        fusion.add_output(y)
    next(tv for tv in fusion.tensors() if tv.name == "tv1").set_atom(LOAD, (0, 1))
    return fusion


def padded() -> tf.Fusion:
    fusion = tiled()
    next(tv for tv in fusion.tensors() if tv.name == "tv1").set_allocation_domain(tf.layouts.padded(4))
    return fusion


def swizzled_rows_of_two_spans() -> tf.Fusion:
    fusion = tiled(8, 32)
    next(tv for tv in fusion.tensors() if tv.name == "tv1").set_allocation_domain(tf.layouts.swizzled(64))
    return fusion


def six_axes() -> tf.Fusion:
    with tf.Fusion("six") as fusion:
        a = tf.copy(tf.define_tensor([2, 2, 2, 2, 2, 32], name="x"))
        y = tf.abs(a)
        fusion.add_output(y)
    a.set_memory_type(SHARED)
    a.set_atom(LOAD, (4, 5))
    fusion.group([fusion.task([a]), fusion.task([y])]).parallelize(TY)
    return fusion


def overhanging_inside() -> tf.Fusion:
    with tf.Fusion("inside") as fusion:
        a = tf.copy(tf.define_tensor([24, 32], name="x"))
        y = tf.copy(a)
        fusion.add_output(y)
    a.set_memory_type(SHARED)
    for tv in (a, y):
        tv.split(0, 6)
        tv.split(1, 4)
    y.set_atom(STORE, (2, 3))
    a.axis(-1).parallelize(TX)
    fusion.group([fusion.task([a]), fusion.task([y])]).parallelize(TY)
    return fusion


def unequal_blocks() -> tf.Fusion:
    with tf.Fusion("unequal") as fusion:
        loads = [tf.copy(tf.define_tensor([n, 8, 32])) for n in (4, 6)]
        outs = [tf.abs(tv) for tv in loads]
        for tv in outs:
            fusion.add_output(tv)
    for tv in loads:
        tv.set_memory_type(SHARED)
        tv.set_atom(LOAD, (1, 2))
    for tv in (*loads, *outs):
        tv.axis(0).parallelize(BX)
    fusion.group([fusion.task(loads), fusion.task(outs)]).parallelize(TY)
    return fusion


def shares_of_work_in_one_fill() -> tf.Fusion:
    with tf.Fusion("shares") as fusion:
        a = tf.copy(tf.define_tensor([7, 8, 32], name="x"))
        y = tf.abs(a)
        fusion.add_output(y)
    a.set_memory_type(SHARED)
    for tv in (a, y):
        tv.split(0, 3)
        tv.axis(1).parallelize(BX)
    a.set_atom(LOAD, (2, 3))
    fusion.group([fusion.task([a]), fusion.task([y])]).parallelize(TY)
    return fusion


def an_axis_that_it_lacks() -> tf.Fusion:
    """Rows of a consumer around a bulk copy that is not inlined into them."""
    with tf.Fusion("lacks") as fusion:
        x = tf.define_tensor([3, 8, 32], name="x")
        a = tf.copy(tf.define_tensor([8, 32], name="w"))
        y = x + a
        fusion.add_output(y)
    a.set_memory_type(SHARED)
    y.split(0, 1)
    y.propagate([a], 2)
    a.set_atom(LOAD, (2, 3))
    fusion.group([fusion.task([a]), fusion.task([y])]).parallelize(TY)
    return fusion


def a_part_of_an_assembly() -> tf.Fusion:
    with tf.Fusion("part") as fusion:
        x = tf.define_tensor([8, 32], name="x")
        a = tf.neg(x)
        b = tf.copy(a)
        fusion.add_output(tf.cat([b, tf.abs(x)], dim=0))
    a.set_memory_type(SHARED)
    b.set_atom(STORE, (0, 1))
    fusion.group([fusion.task([a]), fusion.task([b])]).parallelize(TY)
    return fusion


CANNOT = "cannot lower tv1: the atom tma_load cannot make its copy: "
REFUSED: dict[str, tuple[Callable[[], tf.Fusion], str]] = {
    "load of no channel": (
        without_a_channel,
        "cannot lower tv1: a bulk load completes at a barrier of a ring, and it has none\n"
        "help: make tv1 a boundary of a vertical group, or a ring in a loop: circular_buffer",
    ),
    "threads": (bound_to_a_thread, "cannot lower tv1: the atom tma_load is started by one thread\nhelp: bind none of its axes to a thread index"),
    "registers": (
        in_registers,
        "cannot lower tv1: the atom tma_load copies from an input to Shared memory\n"
        "help: cache_after() of an input and cache_before() of an output make such copies",
    ),
    "part of a cat": (
        a_part_of_an_assembly,
        "cannot lower tv2: the atom tma_store copies from Shared memory to an output\n"
        "help: cache_after() of an input and cache_before() of an output make such copies",
    ),
    "a step": (
        lambda: view(lambda x: x[::9, :]),
        "cannot lower tv2: the atom tma_load cannot make its copy: its elements are 9 x 1 from one to the next\n"
        "help: an axis of a box takes at least every 8th",
    ),
    "a step along rows": (
        lambda: view(lambda x: x[:, ::2]),
        "cannot lower tv2: the atom tma_load cannot make its copy: its 64 Bulk points span a box of 2 x 63 elements in Global memory\n"
        "help: bind to Bulk whole inner parts of splits, so that the tile is a dense box",
    ),
    "a step of what is stored": (
        stored_in_steps,
        "cannot lower tv1: the atom tma_store cannot make its copy: its elements are 2 x 1 from one to the next\n"
        "help: bind to Bulk whole inner parts of splits, so that the tile is a dense box",
    ),
    "zeros inside": (
        lambda: view(inner_zeros),
        "cannot lower tv1: the atom tma_load copies whole boxes, and its tensor has zeros where 2*i0 + v >= 3 does not hold\n"
        "help: split the axis so that a loop over its tiles ends where its terms do",
    ),
    "backwards": (
        lambda: view(lambda x: x[::-1, :]),
        "cannot lower tv2: the atom tma_load cannot make its copy: its 128 Bulk points span a box of 1 x 64 elements in Global memory\n"
        "help: bind to Bulk whole inner parts of splits, so that the tile is a dense box",
    ),
    "columns first": (
        lambda: view(lambda x: tf.permute(x, (1, 0))),
        "cannot lower tv2: the atom tma_load cannot make its copy: the innermost axis of its box is 8 bytes\n"
        "help: it must be a multiple of 16 bytes: use a wider tile",
    ),
    "a narrow box": (
        lambda: tiled(8, 3),
        CANNOT + "the innermost axis of its box is 12 bytes\nhelp: it must be a multiple of 16 bytes: use a wider tile",
    ),
    "a wide box": (
        lambda: tiled(2, 512, width=1024),
        CANNOT + "its box is 2 x 512 elements\nhelp: an axis of a box has at most 256: split it",
    ),
    "columns that begin within 16 bytes": (
        lambda: view(lambda x: x[:, 5:37]),
        CANNOT.replace("tv1", "tv2") + "its box starts at element 5 of the innermost axis, which is not provably a multiple of 16 bytes\n"
        "help: slice and tile the innermost axis at multiples of 16 bytes",
    ),
    "six axes": (
        six_axes,
        CANNOT + "the tensor in Global memory has 6 axes\nhelp: a bulk copy takes 1 to 5: merge axes with reshape",
    ),
    "padded rows": (
        padded,
        CANNOT + "element 32 of its box would lie at byte 144 of the tile in Shared memory\n"
        "help: a bulk copy writes boxes row-major, or under a swizzle of 32, 64 or 128 bytes that is a row of the box: "
        "set_allocation_domain(tf.layouts.swizzled(...)), or leave it unset",
    ),
    "rows of two spans": (
        swizzled_rows_of_two_spans,
        CANNOT + "element 16 of its box would lie at byte 512 of the tile in Shared memory\n"
        "help: a bulk copy writes boxes row-major, or under a swizzle of 32, 64 or 128 bytes that is a row of the box: "
        "set_allocation_domain(tf.layouts.swizzled(...)), or leave it unset",
    ),
    "a small slot": (
        lambda: tiled(3, 8),
        CANNOT
        + "its tile starts at byte 96*ch0.p.slot of its buffer\nhelp: a box must start at a multiple of 128 bytes: make the slots and tiles multiples of it",
    ),
    "overhang inside": (
        overhanging_inside,
        "cannot lower tv2: its atom tma_store clips at the end of the tensor, and its tile overhangs an axis of 6 inside it\n"
        "help: split by divisors, or split the tensor's own axis",
    ),
    "unequal blocks": (
        unequal_blocks,
        "cannot lower tv1: its bulk copies run under the guard blockIdx.x < 4, and every fill of a ring brings the same bytes\n"
        "help: split by divisors, or so that only the last tile overhangs",
    ),
    "shares of work": (
        shares_of_work_in_one_fill,
        "cannot lower tv1: one fill of its ring takes (-blockIdx.x)//3 + 3 bulk copies (loop axis 0): the bytes of a fill are a constant\n"
        "help: inline it into that loop, or split the axis by a constant",
    ),
    "a consumer's axis": (
        an_axis_that_it_lacks,
        "cannot lower tv2: loop axis 0 runs over an axis of a consumer inside one fill of its ring: bulk copies would write a tile again\n"
        "help: inline it into that loop, or give it no such axis (propagate with a smaller upto)",
    ),
    "two tasks": (
        lambda: made_and_read(True, True, tasks=side_by_side),
        "cannot lower the ring of tv2, tv3: the tasks t1, t2 start bulk copies of one fill\nhelp: put them into one task",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    build, expected = REFUSED[name]
    assert refused(lambda: tf.lower(build())) == expected


def test_what_a_bulk_copy_stores_is_not_read_again() -> None:
    fusion = stream((8, 32), (4, 32), load=False)
    (y,) = fusion.outputs
    with fusion:
        z = tf.neg(y)
        fusion.add_output(z)
    assert refused(lambda: tf.lower(fusion)).startswith(f"cannot lower {y.name}: the atom tma_store writes {y.name} later, and {z.name} reads it again\nhelp: ")


def test_a_bulk_store_of_a_tile_that_does_not_exist_is_not_started() -> None:
    """It would write nothing, but read storage that its source does not have."""
    with tf.Fusion("nothing") as fusion:
        x = tf.define_tensor([64], name="x")
        staged = tf.abs(x)
        y = tf.copy(staged)
        fusion.add_output(y)
    staged.set_memory_type(SHARED)
    y.split(0, 64).split(0, 3)
    y.set_atom(STORE, [2])
    kernel = agrees(fusion, numbers(64))
    assert any(isinstance(s, If) for s in walk(kernel))


@pytest.mark.parametrize("split", [False, True])
def test_a_bulk_store_finds_its_whole_box(split: bool) -> None:
    with tf.Fusion("room") as fusion:
        x = tf.define_tensor(["N"], name="x")
        staged = tf.abs(x)
        y = tf.copy(staged)
        fusion.add_output(y)
    staged.set_memory_type(SHARED)
    y.split(0, 32)
    if split:
        staged.split(0, 32)
    y.set_atom(STORE, [1])
    if split:
        for n in (20, 64):
            agrees(fusion, numbers(n))
    else:
        text = refused(lambda: tf.lower(fusion))
        assert text.startswith(f"cannot lower {y.name}: its box may extend past {staged.name} in Shared memory, which has N elements there")


# -- updates ------------------------------------------------------------------------------------------------------------------------


def test_an_update_waits_for_what_is_stored_and_who_reads_it_for_the_update() -> None:
    """A proxy fence and a barrier before the first; a full wait at the end of all, a wait for reads before a slot is written again."""
    kernel = CASES.lowered("added and read")[1]
    (sent,) = (s for s in walk(kernel) if isinstance(s, TmaStore))
    assert (str(kernel).count("FENCE proxy.async.global"), sent.combine and sent.combine.name) == (1, "add")
    assert [(s.pending, s.read_only) for s in walk(kernel) if isinstance(s, WaitGroup)] == [(0, True), (0, False), (0, False)]
    assert [(s.pending, s.read_only) for s in walk(CASES.lowered("added through 2")[1]) if isinstance(s, WaitGroup)] == [(1, True), (0, False)]
    assert "SYNC grid grid0, 96" in str(CASES.lowered("added by blocks")[1])
    assert not kernel.is_deterministic
    assert tf.lower(in_boxes(dtype=tf.int32)).is_deterministic


@pytest.mark.parametrize(("dtype", "by"), [(tf.int32, "bitwise_xor"), (tf.int64, "maximum"), (tf.uint64, "add")])
def test_functions_of_the_engine(dtype: tf.DType, by: str) -> None:
    kernel = agrees(in_boxes(dtype=dtype, combine=by), numbers(2, 32, dtype=dtype.numpy), numbers(3, 2, 32, dtype=dtype.numpy))
    assert kernel.verify().is_proved


def test_what_the_engine_does_not_combine() -> None:
    for dtype in (tf.float64, tf.int64):
        text = refused(lambda dtype=dtype: tf.lower(in_boxes(dtype=dtype)))
        assert text == f"cannot lower tv4: the atom tma_store does not combine {dtype} by add\nhelp: let threads make these updates"
    with tf.Fusion("named") as fusion:
        x, t, s = tf.define_tensor([4, 32]), tf.define_tensor([3], "int32"), tf.define_tensor([3, 32])
        fusion.add_output(tf.index_add(x, 0, t, tf.abs(s)))
    sent = next(e.output for e in fusion.exprs() if isinstance(e, Update))
    sent.set_atom(STORE, (1,))
    assert "the atom tma_store sends boxes, and integers of tv8's data name each element" in refused(lambda: tf.lower(fusion))
