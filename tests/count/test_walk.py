"""What a launch does, counted from its statements."""

from pathlib import Path

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.count import Count, count
from taskfuse.kir import parse_kernel
from taskfuse.ops.merge import merged
from taskfuse.target import DEFAULT, LINE_BYTES

KERNELS = sorted((Path(__file__).parents[1] / "kernels").glob("*.kir"))
SIZE = 1 << 22


def copied(text: str, grid: int = SIZE // 256, declarations: str = "LOCAL t: float32[]") -> Count:
    """A kernel on float32[2048, 2048]; row ``r`` and column ``c`` stand for those of the thread's element."""
    body = text.replace("LINEAR", "(256*blockIdx.x + threadIdx.x)")
    head = f"KERNEL k(x: float32[{SIZE}]) -> (y: float32[{SIZE}])\n  GRID ({grid}, 1, 1)  BLOCK (256, 1, 1)\n  {declarations}\n\n"
    return count(parse_kernel(head + body), {})


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_every_kernel_can_be_counted(path: Path) -> None:
    kernel = parse_kernel(path.read_text())
    found = count(kernel, {e.name: max(e.min, 2 * e.multiple_of) for e in kernel.extents})
    assert found.us > DEFAULT.launch_us
    assert str(found)


def test_neighbors_move_what_they_ask_for() -> None:
    found = copied("y[LINEAR] = copy(x[LINEAR])\n")
    assert found.reads["x"].asked == found.reads["x"].moved == found.reads["x"].fetched == 4 * SIZE
    assert found.coalesced == 1.0
    assert found.idle_threads == found.idle_blocks == found.steps == 0


def test_a_column_moves_a_sector_for_each_element() -> None:
    found = copied(f"y[LINEAR] = copy(x[2048*(LINEAR % 2048) % {SIZE} + LINEAR//2048])\n")
    assert found.reads["x"].moved == 8 * found.reads["x"].asked
    assert found.reads["x"].fetched == 4 * SIZE


def test_a_thread_that_walks_a_row_finds_the_sector_of_the_trip_before() -> None:
    walked = "FOR k in 0..{trips}:\n  y[{trips}*LINEAR + k] = copy(x[{trips}*LINEAR + k])\n"
    found = copied(walked.format(trips=64), grid=SIZE // 256 // 64)
    assert found.steps == 64
    assert found.reads["x"].moved <= 1.6 * found.reads["x"].asked


def test_one_block_that_does_all_leaves_the_others_idle() -> None:
    walked = f"FOR k in 0..{SIZE // 256}:\n  IF blockIdx.x == 0:\n    y[256*k + threadIdx.x] = copy(x[256*k + threadIdx.x])\n"
    alone, together = copied(walked, grid=4), copied("y[LINEAR] = copy(x[LINEAR])\n")
    assert alone.idle_blocks == 0.75
    assert alone.us > 20 * together.us
    assert "75% of the blocks store nothing" in str(alone)


def test_threads_that_write_nothing_are_idle() -> None:
    found = copied("IF threadIdx.x < 64:\n  y[LINEAR] = copy(x[LINEAR])\n")
    assert found.idle_threads == 0.75
    assert found.reads["x"].asked == SIZE


def test_what_is_walked_twice_comes_from_memory_twice_only_if_it_does_not_stay() -> None:
    twice = "t = copy(x[LINEAR])\ny[LINEAR] = add(t, x[LINEAR])\n"
    found = copied(twice)
    assert found.reads["x"].moved == 2 * found.reads["x"].fetched


def test_banks_and_functions_count() -> None:
    shared = "SHARED s: float32[8192] align 16 @ 0\n  LOCAL t: float32[]"
    text = "s[{}] = copy(x[LINEAR])\ny[LINEAR] = exp(x[LINEAR])\n"
    straight, crooked = (copied(text.format(index), declarations=shared) for index in ("threadIdx.x", "32*threadIdx.x"))
    assert crooked.lookups > 8 * straight.lookups
    plain = copied("y[LINEAR] = neg(x[LINEAR])\n")
    assert straight.instructions > 3 * plain.instructions


def test_tensor_cores_take_the_time_of_their_products() -> None:
    with tf.Fusion("product") as fusion:
        a, b = (tf.define_tensor([4096, 4096], dtype=tf.bfloat16, name=name) for name in "ab")
        fusion.add_output(a @ b)
    tf.schedulers.matmul(fusion)
    found = count(tf.lower(fusion), {})
    cycles = 4096**3 * 2 / DEFAULT.tensor_bytes_per_cycle
    assert cycles <= found.products <= 1.1 * cycles
    assert found.us < 3 * cycles / DEFAULT.cycles_per_us


def test_symbolic_extents_take_the_values_given() -> None:
    with tf.Fusion("rows") as fusion:
        x = tf.define_tensor(["M", 256], name="x")
        fusion.add_output(tf.exp(x))
    y = fusion.outputs[0]
    y.axis(0).parallelize(P.BIDx)
    y.axis(1).parallelize(P.TIDx)
    kernel = tf.lower(fusion)
    few, many = (count(kernel, {"M": m}) for m in (64, 6400))
    assert many.fetched == 100 * few.fetched


@pytest.mark.parametrize("op", ["gather", "update"])
def test_lanes_that_read_one_index_find_one_row(op: str) -> None:
    """Of a row that an index names, neighbors are neighbors: of a gather, and of an update in place. Elements with an index each have a sector each."""

    def counted(shape: tuple[int, ...], columns: int) -> Count:
        with tf.Fusion("rows") as fusion:
            index = tf.define_tensor([*shape], dtype=tf.int64)
            if op == "gather":
                out = tf.take(tf.define_tensor([65536, columns]), index, 0)
            else:
                out = tf.index_add(tf.full([65536, columns], 0.0), 0, index, tf.define_tensor([*shape, columns]))
            fusion.add_output(tf.reshape(out, [65536 * columns]) if op == "gather" else out)
        tf.schedulers.auto(fusion)
        return count(tf.lower(fusion), {})

    rows, elements = counted((65536,), 64), counted((65536,), 1)
    assert rows.coalesced > 0.95
    assert elements.coalesced < 0.6


def test_an_index_in_registers_is_that_of_the_lanes_that_loaded_it() -> None:
    """Sums of rows of a table: neighbors have one index each, loaded into registers, and read neighbors."""
    with tf.Fusion("bag") as fusion:
        rows = tf.take(tf.define_tensor([65536, 256], dtype=tf.bfloat16), tf.define_tensor([512, 16], dtype=tf.int64), 0)
        fusion.add_output(tf.sum(rows, 1))
    tf.schedulers.reduction(fusion)
    counted = count(tf.lower(fusion), {})
    assert counted.coalesced > 0.7
    assert counted.lookups < 4 * counted.moved / LINE_BYTES


def test_iterations_of_an_unrolled_loop_do_not_wait_for_each_other() -> None:
    def chain(body: str) -> float:
        return copied(f"t[0] = copy(x[LINEAR])\nFOR k in 0..64{body}\ny[LINEAR] = copy(t[1])\n", declarations="LOCAL t: float32[64]").chain

    independent, one_by_one = chain(" UNROLL:\n  t[k] = exp(2.0)"), chain(":\n  t[k] = exp(2.0)")
    accumulated = chain(" UNROLL:\n  t[1] = add(t[1], 2.0)")
    assert 2 * independent < one_by_one
    assert accumulated >= 64 * DEFAULT.assumed.chain_cycles


def test_gathers_whose_indices_are_known_go_out_together() -> None:
    """A bisection waits for each of its steps; its neighbors read neighbors, which the cache has after the first read."""

    def chain(rows: int, length: int) -> Count:
        with tf.Fusion("merge") as fusion:
            fusion.add_output(merged(tf.define_tensor([rows, 2, length], dtype=tf.uint64), 2 * length))
        tf.schedulers.pointwise(fusion)
        return count(tf.lower(fusion), {})

    long, short = chain(128, 128), chain(512, 32)  # two more doublings: as many steps of a bisection, of two gathers each
    waits = (long.chain - short.chain) / DEFAULT.assumed.load_cycles
    assert 2 <= waits < 4  # instructions take the rest
    assert long.reads["tv0"].fetched == long.reads["tv0"].bytes
    assert long.lookups < 4 * 2 * 9 * 32768 / 32  # two lines of a gather, not 32


def test_elements_of_16_bits_are_widened_once_for_all_that_read_them() -> None:
    """Four rows of a factor in bfloat16, each for two columns: half an instruction beside each multiplication."""
    head = "KERNEL k(x: bfloat16[32, 4]) -> (y: float32[32, 4])\n  GRID (1, 1, 1)  BLOCK (32, 1, 1)\n"
    local = "  LOCAL a: {}[4]\n  LOCAL b: float32[2]\n  LOCAL c: float32[4, 2]\n\n"
    body = "FOR i in 0..4 UNROLL:\n  FOR j in 0..2 UNROLL:\n    c[i, j] = fma(a[i], b[j], c[i, j])\n"
    narrow, wide = (count(parse_kernel(head + local.format(dtype) + body)).instructions for dtype in ("bfloat16", "float32"))
    assert (wide, narrow) == (8, 12)
