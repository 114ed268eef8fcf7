"""The schedule of rows: loads before uses, barriers, vectors, registers of partitions."""

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse.kir import walk
from taskfuse.kir.nodes import VectorCopy
from taskfuse.kir.synchronization import BarrierScope
from taskfuse.schedulers import Keep, RowConfig
from taskfuse.schedulers.row_cost import RowProblem, estimate
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
    assert (found.registers, found.residents) == (48, 20)
    fusion = make(softmax, (5, 8192))
    tf.schedulers.normalization(fusion, config)
    assert tf.lower(fusion).resources("sm_90").compiled.spill_stores == 0
