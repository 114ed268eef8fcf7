"""The public calls that make a case again."""

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.testing import RandomChooser, random_case
from taskfuse.testing.program import Recorder
from tests.random_cases import random_case_of


@pytest.mark.parametrize("seed", range(40))
def test_the_program_makes_the_fusion_again(seed: int) -> None:
    case = random_case_of(seed)
    assert str(case.program.run()) == str(case.fusion)
    assert str(case.math.run()) == str(case.plain)
    assert str(random_case(RandomChooser(seed), case.options).fusion) == str(case.fusion)


def test_a_recorder_writes_public_calls() -> None:
    recorder = Recorder()
    x = recorder.call(tf, "define_tensor", [tf.dim("N", min=0), 4], dtype=tf.bool_)
    y = recorder.call(tf, "softmax", recorder.call(tf, "cast", x, tf.float32), axis=1)
    recorder.call(recorder.fusion, "add_output", y)
    recorder.call(y, "split", 1, 2)
    recorder.call(y.axis(2), "parallelize", P.TIDx)
    assert recorder.attempt(y, "split", 9, 2) is None
    assert recorder.refused == {"split": 1}
    assert (
        recorder.program().source()
        == """\
import taskfuse as tf
from taskfuse import MemoryType as M
from taskfuse import ParallelType as P

fusion = tf.Fusion('case')
with fusion:
    tv0 = tf.define_tensor([tf.dim('N', multiple_of=1, min=0, max=None), 4], dtype=tf.bool_)
    tv1 = tf.cast(tv0, tf.float32)
    tv9 = tf.softmax(tv1, axis=1)
    fusion.add_output(tv9)
    tv9.split(1, 2)
    tv9.axis(2).parallelize(P.TIDx)
"""
    )
