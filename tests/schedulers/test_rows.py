"""The schedule of rows: loads before uses, barriers, vectors, registers of partitions."""

from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse.count import count
from taskfuse.kir import walk
from taskfuse.kir.nodes import VectorCopy
from taskfuse.kir.synchronization import BarrierScope
from taskfuse.schedulers import Keep, RowConfig
from taskfuse.schedulers.row_cost import RowProblem, estimate
from taskfuse.target import as_target
from tests.proofs import proved
from tests.schedulers.rows import barriers, check, layer_norm, make, softmax


def test_a_row_in_registers_is_loaded_once_before_its_use() -> None:
    kernel = check(make(layer_norm, (4, 1024)), RowConfig(64, 1, 2, keep=Keep.REGISTERS))
    loads = [s for s in walk(kernel) if isinstance(s, VectorCopy) and s.source.buffer == "x"]
    assert [s.width for s in loads] == [8]
    assert barriers(kernel) == [BarrierScope.BLOCK] * 2
    held = {b.name: b for b in kernel.buffers if b.memory is MemoryType.Local}
    assert [str(e) for e in held[loads[0].out.buffer].shape] == ["2", "8"]
    assert held[loads[0].out.buffer].dtype is tf.bfloat16  # not its float32 copy


def test_a_row_of_a_warp_needs_no_barrier() -> None:
    kernel = check(make(softmax, (8, 256)), RowConfig(32, 4, 1, keep=Keep.REGISTERS))
    assert barriers(kernel) == []
    assert not any(b.memory is MemoryType.Shared for b in kernel.buffers)


def test_wide_and_narrow_elements_share_vectors() -> None:
    """The vector is of the narrowest elements; wider ones take several accesses."""
    with tf.Fusion("rms_norm") as fusion:
        x = tf.define_tensor([4, 128], dtype=tf.bfloat16, name="x")
        y = tf.rms_norm(tf.cast(x, tf.float32) + tf.define_tensor([4, 128], dtype=tf.float32, name="y"))
        fusion.add_output(y)
    kernel = check(fusion, RowConfig(16, 2, 1, keep=Keep.REGISTERS))
    widths = {s.source.buffer: s.width for s in walk(kernel) if isinstance(s, VectorCopy) and s.source.buffer in "xy"}
    assert widths == {"x": 8, "y": 4}


def test_registers_are_given_within_partitions() -> None:
    """25 blocks of two warps with 40 registers are not there: a fourth of the registers holds 12 warps."""
    problem = RowProblem(1 << 16, 8192, phases=3, reductions=2, held=((Keep.REGISTERS, 4),))
    config = RowConfig(64, 1, 2, blocks=8, keep=Keep.REGISTERS)
    found = estimate(problem, config)
    assert (found.registers, found.residents) == (40, 24)
    fusion = make(softmax, (5, 8192))
    tf.schedulers.normalization(fusion, config)
    assert tf.lower(fusion).resources("sm_90").compiled.spill_stores == 0


def exact(fusion: tf.Fusion, scheduler: Callable[..., object], config: RowConfig) -> tf.Kernel:
    """The kernel of a copy, proved, and equal to the reference."""
    ours, _ = tf.copy_fusion(fusion)
    scheduler(ours, config)
    kernel = tf.lower(ours)
    proved(kernel)
    args = [np.random.default_rng(0).normal(size=[int(str(e)) for e in tv.shape]).astype(tv.dtype.numpy) for tv in fusion.inputs]
    assert np.allclose(kernel.simulate(*args)[0], fusion.evaluate(*args)[0], rtol=1e-5)
    return kernel


def test_a_thread_has_several_short_rows() -> None:
    """All of its loads come before the first use; neighboring threads have neighboring rows."""
    with tf.Fusion("pool") as fusion:
        x = tf.define_tensor([3, 8, 16], name="x")
        fusion.add_output(tf.max(tf.reshape(x, [3, 4, 2, 8, 2]), (2, 4)))
    kernel = exact(fusion, tf.schedulers.reduction, RowConfig(1, 16, 2, each=3))
    loads = [s for s in walk(kernel) if isinstance(s, VectorCopy) and s.source.buffer == "x"]
    assert [s.width for s in loads] == [2]
    held = next(b for b in kernel.buffers if b.name == loads[0].out.buffer)
    assert [str(e) for e in held.shape] == ["3", "2", "2"]
    assert barriers(kernel) == []


def test_rows_across_vectors_stay_in_different_banks() -> None:
    """Kept in Shared memory, a tile [rows of threads, columns of threads, vector] has the vectors of a warp side by side."""
    with tf.Fusion("columns") as fusion:
        fusion.add_output(tf.softmax(tf.define_tensor([32, 64], name="x"), 0))
    kernel = exact(fusion, tf.schedulers.normalization, RowConfig(4, 8, 4, keep=Keep.SHARED))
    counted = count(kernel, {}, as_target("H100"))
    words = 32 * 64 * 4 / 128
    assert counted.lookups <= 8 * words  # four accesses of each element, and as much for everything else: no access waits for banks


def test_arrays_that_end_in_an_axis_of_one_take_no_vectors() -> None:
    """Neighboring threads store neighbors, where a vector would have each store every fourth element."""
    with tf.Fusion("one") as fusion:
        fusion.add_output(tf.softmax(tf.expand_dims(tf.define_tensor([4, 64], name="x"), 2), (1, 2)))
    found = tf.schedulers.normalization(tf.copy_fusion(fusion)[0])
    assert "along vectors of 1" in found.explain()


def of_blocks(*shape: int | str) -> tf.Fusion:
    with tf.Fusion("blocks") as fusion:
        x = tf.define_tensor(list(shape), name="x")
        fusion.add_output(tf.sum(tf.exp(x)), tf.max(x))
    return fusion


@pytest.mark.parametrize("shape", [(256,), (250,), (6, 40), (3, 7, 8)])
def test_threads_join_the_results_of_blocks(shape: tuple[int, ...]) -> None:
    """Of each reduction, a result of each block is in memory; after one barrier of the grid a thread reads one of them."""
    kernel = exact(of_blocks(*shape), tf.schedulers.reduction, RowConfig(8, 1, 1, blocks=4))
    assert barriers(kernel).count(BarrierScope.GRID) == 1
    assert [str(e) for b in kernel.buffers if b.memory is MemoryType.Global for e in b.shape] == ["4", "4"]
    assert "part.BIDy" not in str(kernel)


def test_a_thread_joins_all_results_of_blocks_of_rows_of_unknown_length() -> None:
    fusion = of_blocks("N")
    tf.schedulers.reduction(fusion, RowConfig(8, 1, 1, blocks=4))
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    assert "part.BIDy" in str(kernel)


def test_a_reduced_axis_of_one_element_stands_beside_kept_ones() -> None:
    """It is an axis of the rows that the results lack, and their parts, in memory, lack it, too."""
    with tf.Fusion("columns") as fusion:
        fusion.add_output(tf.sum(tf.define_tensor([1, 64, 24], name="x"), (0, 1)))
    exact(fusion, tf.schedulers.reduction, RowConfig(8, 4, 2, blocks=4))


@pytest.mark.parametrize(
    ("right", "wrong"), [("< 15", "< 14"), ("in 0..4:", "in 0..3:"), ("x[(16*", "x[(15*"), ("% 10)", "% 9)"), ("0..4 UNROLL", "0..3 UNROLL")]
)
def test_parts_over_several_axes_that_lack_terms_are_not_proved(right: str, wrong: str) -> None:
    """60 vectors of rows of ten, in parts of 16: the last one is shorter."""
    with tf.Fusion("total") as fusion:
        fusion.add_output(tf.sum(tf.exp(tf.define_tensor([6, 40], name="x"))))
    tf.schedulers.reduction(fusion, RowConfig(4, 1, 1, blocks=4))
    text = tf.lower(fusion).text(witness=True)
    assert right in text
    assert tf.parse_kernel(text).verify().is_proved
    assert not tf.parse_kernel(text.replace(right, wrong)).verify().is_proved


@pytest.mark.parametrize("axes", [(0, 2), (1, 2), (0, 1, 2)])
def test_factors_that_lack_some_of_the_reduced_axes(axes: tuple[int, ...]) -> None:
    """Threads share the index of all reduced axes, of which such a factor has some: it is read where it is used, not before."""
    with tf.Fusion("scaled") as fusion:
        x, s, w = (tf.define_tensor(shape, name=name) for shape, name in (([4, 6, 40], "x"), ([4, 1, 1], "s"), ([6, 1], "w")))
        fusion.add_output(tf.sum((x - s) * w / s, axes))
    for config in (RowConfig(8, 1, 2), RowConfig(4, 1, 1, blocks=3)):
        exact(fusion, tf.schedulers.reduction, config)
