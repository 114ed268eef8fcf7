"""Every example runs, prints the loop nest that its golden file holds, and computes what NumPy computes, under interleavings of each kind.

Results are compared with NumPy in float64; bounds are in ulp: units in the last place of their dtype at the size of the exact result, or of the
terms that make it where they may cancel.
"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import taskfuse as tf
from examples import (
    founding,
    pipeline,
)
from tests.examples.cases import CASES, Case, lowered, ulp
from tests.golden import Golden
from tests.thinning import some_interleavings

EXAMPLES = sorted({case.module for case in CASES}, key=lambda module: module.__name__)
BY_NAME = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def check(case: Case, fusion: tf.Fusion, kernel: tf.Kernel, shapes: Sequence[tuple[int, ...]]) -> None:
    args = case.arguments(shapes)
    exact = case.expected(*(x.astype(np.float64) for x in args))
    for interleaving in some_interleavings((kernel.name, shapes)):
        outs = kernel.simulate(*args, interleaving=interleaving)
        for tv, out, (ref, size) in zip(fusion.outputs, outs, exact, strict=True):
            assert out.dtype == tv.dtype.numpy
            assert out.shape == ref.shape
            # half an ulp: the exact result is not a number of that dtype
            assert np.max(np.abs(out - ref) / ulp(ref if size is None else size, out.dtype)) <= case.ulp + 0.5


def test_every_example_is_tested() -> None:
    folder = Path(founding.__file__).parent
    assert sorted(path.stem for path in folder.glob("*.py")) == [module.__name__.rpartition(".")[2] for module in EXAMPLES]


@pytest.mark.parametrize("module", EXAMPLES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_main_prints_the_loop_nest_and_the_difference(module: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    module.main()
    text = capsys.readouterr().out
    shown = [case for case in CASES if case.module is module and not isinstance(case.build, partial)]
    assert shown
    for case in shown:
        assert str(lowered(case)).strip() in text
    assert "difference from NumPy" in text


@BY_NAME
def test_loop_nest(case: Case, golden: Golden) -> None:
    golden.check(f"examples/{case.name}.kir", str(lowered(case)))


@BY_NAME
def test_simulation_is_numpy_under_some_schedulers(case: Case) -> None:
    fusion = case.build()
    for shapes in case.shapes:
        check(case, fusion, lowered(case), shapes)


@BY_NAME
def test_evaluation_is_numpy(case: Case) -> None:
    for shapes in case.shapes:
        args = case.arguments(shapes)
        for out, (ref, size) in zip(case.build().evaluate(*args), case.expected(*(x.astype(np.float64) for x in args)), strict=True):
            assert np.max(np.abs(out - ref) / ulp(ref if size is None else size, out.dtype)) <= case.ulp + 0.5


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_pipeline_of_any_depth(stages: int) -> None:
    case = next(case for case in CASES if case.name == "pipeline")
    fusion = pipeline.build(stages)
    check(case, fusion, tf.lower(fusion), [(2, 200), (200,)])


@BY_NAME
def test_the_order_does_not_change_the_result(case: Case) -> None:
    """At the smallest extents that the example is run at."""
    args = case.arguments(min(case.shapes, key=lambda shapes: sum(map(math.prod, shapes))))
    fusion = case.build()
    first = lowered(case).simulate(*args)
    for seed in range(2):
        kernel = tf.lower(fusion, tf.LoweringOptions(order_seed=seed))
        if str(kernel) == str(lowered(case)):
            continue
        for out, ref in zip(kernel.simulate(*args, seed=seed), first, strict=True):
            np.testing.assert_array_equal(out, ref)


@BY_NAME
def test_text_and_copy_keep_the_schedule(case: Case) -> None:
    fusion = case.build()
    kernel = lowered(case)
    assert str(tf.lower(tf.parse_fusion(str(fusion)))) == str(kernel)
    assert str(tf.lower(tf.copy_fusion(fusion)[0])) == str(kernel)
    assert tf.parse_kernel(str(kernel)) == kernel
