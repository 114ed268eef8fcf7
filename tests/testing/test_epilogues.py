"""Epilogues of random products: what is computed on registers, what is staged in Shared memory and how it is stored."""

import taskfuse as tf
from taskfuse.ir.types import MemoryType
from taskfuse.testing import RandomChooser
from taskfuse.testing.contractions import contractions
from taskfuse.testing.epilogues import cut, stage
from taskfuse.testing.program import Recorder
from tests.testing.choosers import Lowest


def product() -> tuple[Recorder, tf.TensorView]:
    """``relu(a @ b)`` in bfloat16, and its sum of products."""
    recorder = Recorder()
    a, b = (recorder.call(tf, "define_tensor", [64, 64], dtype=tf.bfloat16) for _ in range(2))
    acc = recorder.call(tf, "matmul", a, b, dtype=tf.float32)
    recorder.call(recorder.fusion, "add_output", recorder.call(tf, "cast", recorder.call(tf, "relu", acc), tf.bfloat16))
    return recorder, acc


def test_elementwise_readers_are_computed_on_registers() -> None:
    recorder, acc = product()
    result = cut(Lowest(), recorder, acc)
    assert result.tv is acc
    assert [tv.definition is not None for tv in result.registers] == [True, True]
    assert result.tensors == result.registers


def test_an_output_that_is_the_product_gets_one_of_its_own() -> None:
    recorder = Recorder()
    a, b = (recorder.call(tf, "define_tensor", [64, 64], dtype=tf.bfloat16) for _ in range(2))
    acc = recorder.call(tf, "matmul", a, b, dtype=tf.float32)
    recorder.call(recorder.fusion, "add_output", acc)
    result = cut(Lowest(), recorder, acc)
    assert result.tv is not acc
    assert result.registers == [acc]


def test_staged_tiles() -> None:
    kinds: set[tuple[int, int]] = set()
    for seed in range(24):
        recorder, acc = product()
        result = cut(RandomChooser(seed), recorder, acc)
        c = contractions(result.tv)[0]
        stage(RandomChooser(100 + seed), recorder, result, c)
        assert len(result.stores) == len(result.staged)
        assert all(tv.schedule.memory is MemoryType.Shared for tv in result.staged)
        assert all(tv.is_output for tv in result.stores)
        kinds.add((len(result.staged), len(result.matrices)))
    assert kinds == {(0, 0), (1, 0), (1, 1)}
