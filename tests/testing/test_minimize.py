"""The generators themselves: replay, determinism, minimizing, and what a failure says."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.testing import CaseOptions, CheckError, Program, Property, check_case, fusion_case, shortest
from taskfuse.testing.case import program_case
from taskfuse.testing.minimize import minimize
from tests.random_cases import random_case_of
from tests.testing.failing import branches, swapped, wrong


def test_minimize() -> None:
    asked: list[tuple[int, ...]] = []

    def fails(items: tuple[int, ...]) -> bool:
        asked.append(items)
        return {3, 7} <= set(items)

    assert minimize(tuple(range(20)), fails) == (3, 7)
    assert len(asked) < 60
    assert len(minimize(tuple(range(20)), fails, budget=3)) > 2


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
    cases = [random_case_of(seed) for seed in range(60)]
    refused = [case for case in cases if case.outcome.refusal is not None]
    assert refused
    for case in refused:
        check_case(case)
        assert case.kernel is None


def test_exact_cases_are_run_on_ordinary_numbers() -> None:
    case = random_case_of(4)
    assert case.options.exact
    assert all(np.array_equal(a, np.round(a)) for a in case.arguments())
    assert all(dtype.precision >= 24 for dtype in case.options.dtypes)
    assert not CaseOptions().exact
