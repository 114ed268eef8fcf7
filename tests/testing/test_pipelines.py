"""Stages and turns of schedules that lower: what they are tried on follows from the loops that tensors share."""

import taskfuse as tf
from taskfuse.testing import RandomChooser
from taskfuse.testing.pipelines import run_behind, take_turns
from taskfuse.testing.program import Recorder
from tests.lowering.pipelined import in_turn, staged


def recorded(fusion: tf.Fusion) -> Recorder:
    recorder = Recorder()
    recorder.fusion = fusion
    return recorder


def test_readers_run_behind() -> None:
    fusion = staged()
    fusion.outputs[0].pipeline_stage(0)
    kernel = run_behind(RandomChooser(1), recorded(fusion))
    assert kernel is not None
    assert kernel.verify().is_proved
    assert [tv.schedule.pipeline_stage for tv in fusion.outputs] == [1]
    assert fusion.inputs[0].schedule.pipeline_stage == 0


def test_instances_take_turns() -> None:
    fusion = in_turn()
    fusion.tensor("tv1").schedule.turns = None
    kernel = take_turns(RandomChooser(0), recorded(fusion))
    assert kernel is not None
    assert any(m.name == "turn0" for m in kernel.mbarriers)
    assert kernel.verify().is_proved


def test_what_shares_no_loop_is_left() -> None:
    with tf.Fusion("alone") as fusion:
        fusion.add_output(tf.exp(tf.define_tensor([8], name="x")))
    before = str(fusion)
    assert run_behind(RandomChooser(0), recorded(fusion)) is take_turns(RandomChooser(0), recorded(fusion)) is None
    assert str(fusion) == before
