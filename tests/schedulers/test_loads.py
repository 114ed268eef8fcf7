"""How tiles come into a ring: what the copy engine takes, the bytes of other copies, and how threads share them."""

import pytest

import taskfuse as tf
from taskfuse.ir import atoms
from taskfuse.schedulers.loads import LOADING_THREADS, TOGETHER, by_threads, copy_bytes, copy_cycles, is_bulk, told
from taskfuse.schedulers.script import Script
from taskfuse.target import DEFAULT


def rows(multiple: int, dtype: tf.DType = tf.bfloat16, rank: int = 2) -> tuple[tf.Fusion, tf.TensorView]:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([*(f"B{k}" for k in range(rank - 1)), tf.dim("K", multiple_of=multiple)], dtype=dtype, name="x")
        fusion.add_output(tf.neg(x))
    return fusion, x


@pytest.mark.parametrize(
    ("multiple", "dtype", "size", "bulk"),
    [
        (8, tf.bfloat16, 16, True),
        (24, tf.bfloat16, 16, True),
        (4, tf.bfloat16, 8, False),
        (2, tf.bfloat16, 4, False),
        (1, tf.bfloat16, 2, False),
        (1, tf.float32, 4, False),  # an element is all that a row is known to be a multiple of
        (2, tf.float32, 8, False),
        (16, tf.int8, 16, True),
        (2, tf.int8, 1, False),  # cp.async takes 4 bytes at least
        (1, tf.float64, 8, False),
    ],
)
def test_bytes_that_rows_are_multiples_of(multiple: int, dtype: tf.DType, size: int, bulk: bool) -> None:
    fusion, x = rows(multiple, dtype)
    assert copy_bytes(x, fusion.facts()) == size
    assert is_bulk(x, fusion.facts()) is bulk


def test_more_axes_than_a_tensor_map_has() -> None:
    five, x = rows(8, rank=5)
    assert is_bulk(x, five.facts())
    assert told(x, five.facts()) == ""
    six, y = rows(8, rank=6)
    assert not is_bulk(y, six.facts())
    assert told(y, six.facts()).endswith("copied by threads, 16 bytes at once: the copy engine takes 5 axes at most")


def test_what_would_make_it_faster_is_said() -> None:
    fusion, x = rows(2)
    text = "copied by threads, 4 bytes at once: for bulk copies declare rows of multiples of 16 bytes, tf.dim(..., multiple_of=8)"
    assert told(x, fusion.facts()).endswith(text)


def loops(size: int) -> tuple[Script, list[str]]:
    """The loops of the copy of a tile of 64 x 32 elements of 2 bytes."""
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([64, 32], dtype=tf.bfloat16, name="x")
        fusion.add_output(tf.neg(x))
    script = Script(fusion)
    copy = script.new(x, "cache_after")
    by_threads(script.on(copy), size, 2)
    return script, [f"{a.extent} {copy.schedule.ptype(a).value}" for a in copy.loop]


def test_copies_of_several_elements_are_asynchronous() -> None:
    script, found = loops(16)
    assert found == ["2 Serial", f"{LOADING_THREADS} TIDx", "8 Vectorize"]
    assert f"set_atom(atoms.{atoms.CP_ASYNC.name.upper()}, (-1,))" in script.text


def test_copies_of_one_element_are_issued_together() -> None:
    script, found = loops(2)
    assert found == ["1 Serial", f"{TOGETHER} Unroll", f"{LOADING_THREADS} TIDx"]
    assert "set_atom" not in script.text


def test_cycles_of_a_slot() -> None:
    """A part for each access, at least one latency; a latency more for each round of loads that are stored when they come."""
    latency, access = DEFAULT.products.copy_latency_cycles, DEFAULT.products.access_cycles
    tile = 16 * LOADING_THREADS
    assert copy_cycles((tile, tile), (0, 16), 2, DEFAULT) == latency > access
    assert copy_cycles((8 * tile, 8 * tile), (8, 8), 2, DEFAULT) == 32 * access > latency
    assert copy_cycles((3 * tile, 0), (2, 0), 2, DEFAULT) == 2 * latency + 24 * access  # 24 loads: rounds of 16
