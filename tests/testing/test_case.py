"""Cases: what they compute, and how they are made again."""

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.errors import CallError
from taskfuse.testing import FULL, Effort, Mix, RandomChooser, check_case, fusion_case, random_schedule
from taskfuse.testing.case import automatic
from taskfuse.testing.fuzz import reproduction
from taskfuse.testing.program import Recorder
from tests.random_cases import random_case_of
from tests.testing.choosers import Highest, Lowest
from tests.testing.failing import branches


def test_a_users_fusion_and_other_schedules_of_it() -> None:
    fusion = branches()
    tv1, tv2, tv3 = (fusion.tensor(f"tv{k}") for k in (1, 2, 3))
    group = fusion.group([fusion.task([tv1]), fusion.task([tv2])])
    fusion.group([group, fusion.task([tv3])]).parallelize(P.TIDz)
    group.parallelize(P.TIDy)
    check_case(fusion_case(fusion, {"N": 3}), FULL)
    texts: set[str] = set()
    for seed in range(12):
        other = random_schedule(RandomChooser(seed), branches(), {"N": 3})
        assert [a.shape for a in other.arguments() if isinstance(a, np.ndarray)] == [(3, 4)]
        check_case(other)
        assert str(other.program.run()) == str(other.fusion)
        texts.add(str(other.fusion))
    assert len(texts) > 8


def test_reproduction() -> None:
    assert reproduction(3) == "python -m taskfuse.testing.fuzz --seed 3 --cases 1"
    assert reproduction(3, Mix.LARGE, Effort(interleavings=8)) == "python -m taskfuse.testing.fuzz --seed 3 --cases 1 --mix large --interleavings 8"
    assert reproduction(3, effort=Effort(orders=2)).endswith(" --orders 2")


@pytest.mark.parametrize("mix", Mix)
def test_every_mix_has_cases_that_lower(mix: Mix) -> None:
    assert any(random_case_of(seed, mix).kernel is not None for seed in range(4))


def rows() -> Recorder:
    recorder = Recorder()
    x = recorder.call(tf, "define_tensor", [64, 32])
    recorder.call(recorder.fusion, "add_output", recorder.call(tf, "sum", x, 1))
    return recorder


def test_the_first_that_takes_it_schedules() -> None:
    recorder = rows()
    assert automatic(Lowest(), recorder)
    assert recorder.fusion.has_schedule
    scheduled = [line for line in recorder.lines if line.startswith("tf.schedulers.")]
    assert scheduled == ["tf.schedulers.reduction(fusion)"]
    assert str(recorder.program().run()) == str(recorder.fusion)


def test_the_other_way_round_general_ones_come_first() -> None:
    recorder = rows()
    assert automatic(Highest(), recorder)
    assert [line for line in recorder.lines if line.startswith("tf.schedulers.")] == ["tf.schedulers.auto(fusion)"]


@pytest.mark.parametrize("sizes", [None, {}, {"M": 3}, {"N": 0}])
def test_wrong_sizes(sizes: dict[str, int] | None) -> None:
    with tf.Fusion("one") as fusion:
        fusion.add_output(tf.exp(tf.define_tensor(["N"], name="x")))
    with pytest.raises(CallError, match=r"^check_case: the case has sizes ") as caught:
        check_case(fusion_case(fusion, sizes))
    assert caught.value.help == "give a value to each of N (at least 1)"


def test_no_case() -> None:
    nothing: Any = branches()
    three: Any = 3
    with pytest.raises(CallError, match=r"^check_case: case: .* is not of type Case"):
        check_case(nothing)
    with pytest.raises(CallError, match=r"^fusion_case: fusion: 3 is not of type Fusion"):
        fusion_case(three)
