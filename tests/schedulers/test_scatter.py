"""Updates of elements that data names, scheduled automatically."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.kir import walk
from taskfuse.kir.nodes import AtomicUpdate
from taskfuse.schedulers.segmentation import Segmentation
from taskfuse.target import A100
from tests.calls import Math
from tests.testing.ptx.compiled import compared


def index_add(dtype: tf.DType = tf.float32, rows: int | str = "V", points: int | str = "N") -> tf.Fusion:
    with tf.Fusion("index_add") as fusion:
        x, i, s = tf.define_tensor([rows, 8], dtype, name="x"), tf.define_tensor([points], "int32", name="i"), tf.define_tensor([points, 8], dtype, name="s")
        fusion.add_output(tf.index_add(x, 0, i, tf.mul(s, 2)))
    return fusion


def test_one_kernel_that_is_proved_for_all_extents() -> None:
    fusion = index_add()
    chosen = tf.schedulers.scatter(fusion, tf.schedulers.ScatterConfig(32, 3))
    assert chosen.problem == f"of {4096 * 8} updates"
    assert chosen.config.words == "updates in place, 3 blocks of 32 threads"
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    assert kernel.is_cooperative
    assert not kernel.is_deterministic
    generator = np.random.default_rng(0)
    for v, n in ((1, 1), (5, 40), (70, 3)):
        x, s = (generator.integers(-9, 9, (k, 8)).astype(np.float32) for k in (v, n))
        i = generator.integers(-v - 2, v + 2, n).astype(np.int32)
        expected = x.copy()
        kept = (i >= -v) & (i < v)
        np.add.at(expected, i[kept], 2 * s[kept])
        for seed in range(2):
            assert (kernel.simulate(x, i, s, seed=seed)[0] == expected).all()


def test_blocks_take_points_that_are_neighbors_if_their_number_is_known() -> None:
    fusion = index_add(rows=4, points=160)
    tf.schedulers.scatter(fusion, tf.schedulers.ScatterConfig(32, 3))
    kernel = tf.lower(fusion)
    (update,) = (s for s in walk(kernel) if isinstance(s, AtomicUpdate))
    assert str(update.values[0].source.index[0]) == "threadIdx.x//8 + 56*blockIdx.x + 4*i1"  # 14 trips of 4 points
    assert kernel.verify().is_proved
    generator = np.random.default_rng(0)
    x, s = (generator.integers(-9, 9, (k, 8)).astype(np.float32) for k in (4, 160))
    i = np.sort(generator.integers(0, 4, 160)).astype(np.int32)
    expected = x.copy()
    np.add.at(expected, i, 2 * s)
    assert (kernel.simulate(x, i, s)[0] == expected).all()


def test_what_its_ptx_does() -> None:
    fusion = index_add(tf.int32)
    tf.schedulers.scatter(fusion, tf.schedulers.ScatterConfig(32, 2))
    assert tf.lower(fusion).is_deterministic
    assert compared(tf.lower(fusion)).difference is None


def test_compile_takes_what_it_expects_to_be_faster() -> None:
    run = tf.compile(index_add(rows=50257, points=1024), backend="sim")
    assert run.schedule is not None
    assert run.schedule.scheduler == "scatter"
    assert not run.is_deterministic
    fusion = index_add(rows=50257, points=16)
    fusion.outputs[0].unscatter()
    assert tf.compile(fusion, backend="sim").is_deterministic


def test_updates_of_neighbors_take_turns() -> None:
    def expected(bins: int) -> float:
        with tf.Fusion("counts") as fusion:
            fusion.add_output(tf.bincount(tf.define_tensor([1 << 20], tf.int64, name="i"), bins))
        return tf.schedulers.scatter(fusion).option.us

    assert expected(64) > 200  # of 512 bytes: 234 us were measured on an H200
    assert expected(1 << 16) < 30


def test_16_bits_are_summed_in_32() -> None:
    run = tf.compile(index_add(tf.bfloat16, 300, 100), backend="sim")
    assert isinstance(run.schedule, Segmentation)
    assert all(c.is_proved for c in run.certificates)


def rows(columns: int) -> tuple[Math, tuple[tuple[int | str, ...], ...]]:
    return lambda x, i, s: tf.index_add(x, 0, i, s), (("V", columns), ("N",), ("N", columns))


VECTORS: dict[str, tuple[Math, tuple[tuple[int | str, ...], ...], int]] = {
    "rows of 12": (*rows(12), 4),
    "rows of 6": (*rows(6), 2),
    "rows of 5": (*rows(5), 1),
    "rows of no known length": (lambda x, i, s: tf.index_add(x, 0, i, s), (("V", "C"), ("N",), ("N", "C")), 1),
    "segments, whose numbers are computed": (lambda s, i: tf.segment_sum(s, i, 7), (("N", 8), ("N",)), 4),
    "an axis before": (lambda x, i, s: tf.index_add(x, 1, i, s), ((3, "V", 8), ("N",), (3, "N", 8)), 4),
    "an integer for each element": (lambda x, i, s: tf.scatter_add(x, 0, i, s), (("V", 8), ("N", 8), ("N", 8)), 1),
    "what is updated is sent, too": (lambda x, i: tf.index_add(x, 0, i, x), (("N", 8), ("N",)), 4),
    "one number for a row": (lambda x, i, s: tf.index_add(x, 0, i, tf.expand_dims(s, 1) * tf.ones([1, 8])), (("V", 8), ("N",), ("N",)), 4),
}


@pytest.mark.parametrize(("columns", "threads"), [(80, 320), (300, 225), (1200, 300), (128, 256)])
def test_threads_stand_on_whole_rows(columns: int, threads: int) -> None:
    """So that a thread has its place in the rows of all trips, and the proof of many rows ends."""
    with tf.Fusion("f") as fusion:
        x, i, s = tf.define_tensor([64, columns], name="x"), tf.define_tensor([249216], dtype=tf.int64, name="i"), tf.define_tensor([249216, columns], name="s")
        fusion.add_output(tf.index_add(x, 0, i, s))
    assert tf.schedulers.scatter(fusion).config == tf.schedulers.ScatterConfig(threads, 528, 4)
    assert tf.lower(fusion).verify().is_proved


@pytest.mark.parametrize("name", VECTORS)
def test_neighbors_are_updated_together(name: str) -> None:
    """Where no integer says the place of one of them: proved, the right sums, and in PTX."""
    math, shapes, vector = VECTORS[name]
    with tf.Fusion("f") as fusion:
        fusion.add_output(math(*(tf.define_tensor(list(shape), "int32" if k == 1 else "float32") for k, shape in enumerate(shapes))))
    chosen = tf.schedulers.scatter(fusion)
    kernel = tf.lower(fusion)
    assert chosen.config.vector == vector
    assert {s.width for s in walk(kernel) if isinstance(s, AtomicUpdate)} == {vector}
    assert kernel.verify().is_proved
    sizes, generator = {"V": 5, "N": 9, "C": 3}, np.random.default_rng(0)
    arguments = [
        generator.integers(-6, 6, [sizes[e] if isinstance(e, str) else e for e in shape]).astype(np.int32 if k == 1 else np.float32)
        for k, shape in enumerate(shapes)
    ]
    assert (kernel.simulate(*arguments, seed=1)[0] == fusion.evaluate(*arguments)[0]).all()
    if vector > 1:
        assert compared(kernel).difference is None


def test_single_elements_are_a_choice_and_all_that_others_have() -> None:
    fusion = index_add(rows=64, points=32)
    chosen = tf.schedulers.scatter(fusion)
    assert chosen.config.words == "updates in place, 1 blocks of 256 threads, 4 neighbors together"
    assert [o.config.vector for o in chosen.alternatives] == [4, 4, 4, 1]
    assert tf.schedulers.scatter(index_add(rows=64, points=32), target=A100).config.vector == 1
    assert tf.schedulers.scatter(index_add(tf.int32, 64, 32)).config.vector == 1


def test_refused() -> None:
    with tf.Fusion("f") as fusion:
        fusion.add_output(tf.exp(tf.define_tensor(["N"])))
    with pytest.raises(UnsupportedError, match="no update goes to tv1"):
        tf.schedulers.scatter(fusion)
    with tf.Fusion("f") as fusion:
        x, i = tf.define_tensor(["N", 4]), tf.define_tensor(["N"], "int32")
        fusion.add_output(tf.index_add(x, 0, i, tf.cumsum(x, 1)))
    with pytest.raises(UnsupportedError, match="is not elementwise"):
        tf.schedulers.scatter(fusion)


def test_updates_of_what_is_no_part_are_refused() -> None:
    fusion = tf.parse_fusion(str(index_add()).replace("update add(tv7[v0", "update add(x[v0"))
    with pytest.raises(UnsupportedError, match="the two are not parts of one tensor whose first part is"):
        tf.lower(fusion)
