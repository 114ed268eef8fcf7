"""Operands of random products: copies into Shared memory or registers, as the instruction needs them."""

import pytest

import taskfuse as tf
from taskfuse.ir.atoms import Instruction
from taskfuse.testing import RandomChooser
from taskfuse.testing.contractions import ContractionCase, contractions
from taskfuse.testing.operands import OperandNeeds, copied, feed, is_copy
from taskfuse.testing.program import Recorder
from tests.testing.choosers import Lowest

WGMMA, MMA = Instruction.WGMMA, Instruction.MMA


def product() -> tuple[Recorder, ContractionCase]:
    recorder = Recorder()
    a, b = (recorder.call(tf, "define_tensor", [64, 64], dtype=tf.bfloat16) for _ in range(2))
    acc = recorder.call(tf, "matmul", a, b, dtype=tf.float32)
    recorder.call(recorder.fusion, "add_output", acc)
    return recorder, contractions(acc)[0]


@pytest.mark.parametrize(
    ("needs", "shared", "registers"),
    [
        (OperandNeeds(WGMMA, 0, False, False), 1, 0),  # the simplest: from Shared memory
        (OperandNeeds(WGMMA, 1, True, False), 1, 0),
        (OperandNeeds(MMA, 0, False, False), 0, 1),
        (OperandNeeds(MMA, 1, True, False), 1, 1),  # ldmatrix brings the zeros past the end
    ],
)
def test_simplest(needs: OperandNeeds, shared: int, registers: int) -> None:
    recorder, c = product()
    found = feed(Lowest(), recorder, c.b if needs.which else c.a, c, needs)
    assert (len(found.shared), len(found.registers)) == (shared, registers)
    assert found.tensors == [s.tv for s in (*found.shared, *found.registers)]
    assert found.whole is not needs.ends_inside
    for tv in found.tensors:
        assert is_copy(recorder.fusion, tv)
        read = copied(recorder.fusion, tv)
        assert read is not None
        assert read.tensor.is_input or is_copy(recorder.fusion, read.tensor)


def test_matrices_are_loaded_from_shared_memory() -> None:
    for seed in range(20):
        recorder, c = product()
        found = feed(RandomChooser(seed), recorder, c.a, c, OperandNeeds(MMA, 0, False, True))
        assert not found.whole
        assert found.shared or not found.matrices


def test_the_second_factor_of_wgmma_is_in_shared_memory() -> None:
    for seed in range(10):
        recorder, c = product()
        assert feed(RandomChooser(seed), recorder, c.b, c, OperandNeeds(WGMMA, 1, False, False)).registers == []
