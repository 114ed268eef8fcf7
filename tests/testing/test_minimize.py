"""The generators themselves: replay, determinism, minimizing, and what a failure says."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.testing import (
    FULL,
    CaseOptions,
    CheckError,
    Effort,
    Mix,
    Program,
    Property,
    RandomChooser,
    check_case,
    fusion_case,
    random_case,
    random_schedule,
    seeded_case,
    shortest,
)
from taskfuse.testing.case import Case, program_case
from taskfuse.testing.fuzz import main, reproduction
from taskfuse.testing.minimize import minimize
from taskfuse.testing.program import Recorder


def test_random_chooser() -> None:
    chooser = RandomChooser(7)
    assert {chooser.integer(-1, 1) for _ in range(100)} == {-1, 0, 1}
    assert [RandomChooser(7).integer(0, 10**6) for _ in range(2)] == [RandomChooser(7).integer(0, 10**6)] * 2
    assert not chooser.chance(0)
    assert chooser.chance(100)
    assert sorted(chooser.order("abcd")) == list("abcd")
    for _ in range(20):
        points = chooser.split_points(5, 3)
        assert len(points) == 2 and 0 < points[0] < points[1] < 5  # noqa: PT018
    assert chooser.split_points(1, 3) == []
    assert chooser.some((), 50) == []


@pytest.mark.parametrize("seed", range(40))
def test_the_program_makes_the_fusion_again(seed: int) -> None:
    case = seeded_case(seed)
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


def branches(rows: int | str = "N") -> tf.Fusion:
    with tf.Fusion("branches") as fusion:
        x = tf.define_tensor([rows, 4])
        a, b = tf.sin(x), tf.exp(x)
        y = tf.add(a, b)
        fusion.add_output(y)
    return fusion


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


def test_minimize() -> None:
    asked: list[tuple[int, ...]] = []

    def fails(items: tuple[int, ...]) -> bool:
        asked.append(items)
        return {3, 7} <= set(items)

    assert minimize(tuple(range(20)), fails) == (3, 7)
    assert len(asked) < 60
    assert len(minimize(tuple(range(20)), fails, budget=3)) > 2


# -- a property that does not hold -----------------------------------------------------------------------------------------------------------


def wrong(case: Case, break_it: Callable[[tf.Kernel], tf.Kernel]) -> Case:
    kernel = case.kernel
    assert kernel is not None
    return replace(case, outcome=replace(case.outcome, kernel=break_it(kernel)))


def swapped(kernel: tf.Kernel) -> tf.Kernel:
    return tf.parse_kernel(str(kernel).replace("sin(", "cos("))


def dropped(kernel: tf.Kernel) -> tf.Kernel:
    lines = str(kernel).splitlines()
    return tf.parse_kernel("\n".join(line.replace("= sin(tv0", "= sin(tv1") if "= sin(" in line else line for line in lines))


@pytest.mark.parametrize(
    ("break_it", "prop", "reason"),
    [
        (swapped, Property.SIMULATES, "12 of 12 elements of tv3 are wrong, the first at [0, 0]"),
        (dropped, Property.SIMULATES, "uninitialized"),
    ],
)
def test_what_a_failure_says(break_it: Callable[[tf.Kernel], tf.Kernel], prop: Property, reason: str) -> None:
    with pytest.raises(CheckError, match="simulate") as caught:
        check_case(wrong(fusion_case(branches(3)), break_it))
    assert caught.value.prop is prop
    assert reason in caught.value.reason
    assert str(caught.value).startswith(f"{prop.value}: {caught.value.reason}")
    assert "fusion = tf.parse_fusion(" in str(caught.value)


def test_a_crash_is_a_failure_and_is_shortened() -> None:
    lines = (
        "tv0 = tf.define_tensor([4], dtype=tf.float32)",
        "tv1 = tf.sin(tv0)",
        "tv2 = tf.exp(tv1)",
        "fusion.add_output(tv2)",
        "tv1.split(0, 2)",
        "tv2.split(0, 2)",
        "tv1.nothing()",
    )
    start = replace(fusion_case(Program("case", lines[:4]).run()), program=Program("case", lines[:4]))
    with pytest.raises(CheckError, match="scheduling calls and lowering succeed or refuse") as caught:
        check_case(program_case(start, lines, 4))
    assert caught.value.prop is Property.LOWERS
    assert shortest(caught.value).case.program.lines == (lines[0], lines[1], lines[6])


def test_refusals_are_no_failures() -> None:
    cases = [seeded_case(seed) for seed in range(60)]
    refused = [case for case in cases if case.outcome.refusal is not None]
    assert refused
    for case in refused:
        check_case(case)
        assert case.kernel is None


def test_exact_cases_are_run_on_ordinary_numbers() -> None:
    case = seeded_case(4)
    assert case.options.exact
    assert all(np.array_equal(a, np.round(a)) for a in case.arguments())
    assert all(dtype.precision >= 24 for dtype in case.options.dtypes)
    assert not CaseOptions().exact


# -- the command line ------------------------------------------------------------------------------------------------------------------------


def test_fuzz_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cases", "6", "--seed", "3"]) == 0
    out = capsys.readouterr().out
    assert "share of the cases that lower with:" in out
    assert out.endswith("checked, 0 failures\n")


def test_fuzz_as_a_command() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-m", "taskfuse.testing.fuzz", "--cases", "2", "--quiet"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("2 cases, ")
    assert done.stderr == ""


def test_reproduction() -> None:
    assert reproduction(3) == "python -m taskfuse.testing.fuzz --seed 3 --cases 1"
    assert reproduction(3, Mix.LARGE, Effort(interleavings=8)) == "python -m taskfuse.testing.fuzz --seed 3 --cases 1 --mix large --interleavings 8"
    assert reproduction(3, effort=Effort(orders=2)).endswith(" --orders 2")


@pytest.mark.parametrize("mix", Mix)
def test_every_mix_has_cases_that_lower(mix: Mix) -> None:
    assert any(seeded_case(seed, mix).kernel is not None for seed in range(4))


def test_fuzz_prints_a_reproduction(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def seeded(seed: int, mix: Mix) -> Case:
        assert mix is Mix.MIXED
        case = fusion_case(branches(2))
        return wrong(case, swapped) if seed == 8 else case

    monkeypatch.setattr("taskfuse.testing.fuzz.seeded_case", seeded)
    assert main(["--cases", "3", "--seed", "7", "--minimize", "5"]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"FAILED {reproduction(8)}\nthe simulated kernel gives what NumPy gives")
    assert out.endswith("3 cases, 3 checked, 1 failures\n")
