"""Stages of software pipelines and turns: what a call accepts, and that the text of a fusion says it."""

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.errors import ScheduleError


def made() -> tuple[tf.Fusion, tf.TensorView, tf.TensorView]:
    with tf.Fusion("pipelined") as f:
        x = tf.define_tensor([8, 32])
        a = tf.exp(x)
        f.add_output(tf.neg(a))
    return f, x, a


def test_text_and_copy() -> None:
    f, _, a = made()
    assert a.pipeline_stage(1).take_turns(P.TIDy) is a
    text = str(f)
    assert "pipeline_stage 1; turns TIDy" in text
    assert str(tf.parse_fusion(text)) == text
    assert str(tf.copy_fusion(f)[0]) == text
    a.pipeline_stage(0)
    assert "pipeline_stage" not in str(f)


@pytest.mark.parametrize("stage", [2, -1, "1", None])
def test_other_stages(stage: object) -> None:
    _, _, a = made()
    with pytest.raises(ScheduleError, match="is not a stage"):
        a.pipeline_stage(stage)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("ptype", [P.BIDx, P.Serial, "TIDx", None])
def test_turns_of_other_indices(ptype: object) -> None:
    _, _, a = made()
    with pytest.raises(ScheduleError, match="is not a thread index type"):
        a.take_turns(ptype)  # pyright: ignore[reportArgumentType]


def test_inputs_and_views() -> None:
    _, x, a = made()
    view = tf.reshape(a, [256])
    with pytest.raises(ScheduleError, match="an input has no code"):
        x.pipeline_stage(1)
    with pytest.raises(ScheduleError, match="an input has no code"):
        x.take_turns(P.TIDx)
    with pytest.raises(ScheduleError, match="a view has no storage of its own"):
        view.pipeline_stage(1)
    with pytest.raises(ScheduleError, match="a view has no storage of its own"):
        view.take_turns(P.TIDx)
