"""Every example on the GPU, against NumPy in float64 and against the simulator.

Results are within :data:`tests.gpu.larger.ULP` of the exact ones. An example of exact functions gives the simulator's bits.
"""

import warnings
from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from examples import pipeline
from taskfuse.errors import TaskfuseWarning
from taskfuse.testing.tolerance import is_exact
from tests.examples.cases import CASES, Case, ulp
from tests.gpu.device import poisoned, same, to_device, to_numpy
from tests.gpu.larger import LARGER, ULP

BY_NAME = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def check(case: Case, run: tf.Executable, shapes: Sequence[tuple[int, ...]], times: float = 1) -> list[np.ndarray]:
    """Run into poisoned outputs, compare with the exact results within ``times`` the bound; returns what was found."""
    args = case.arguments(shapes)
    exact = case.expected(*(x.astype(np.float64) for x in args))
    dtypes = [p.dtype for p in run.kernel.outputs]
    outs = tuple(poisoned(ref.shape, dtype) for (ref, _), dtype in zip(exact, dtypes, strict=True))
    run(*map(to_device, args), out=outs)
    found = [to_numpy(out) for out in outs]
    for out, (ref, size) in zip(found, exact, strict=True):
        unit = ulp(ref if size is None else size, out.dtype)
        assert np.max(np.abs(out.astype(np.float64) - ref) / unit) <= times * ULP[case.name] + 0.5  # half an ulp: the exact result is rounded
    return found


@BY_NAME
def test_small_shapes_are_numpy_and_the_simulator(case: Case) -> None:
    fusion = case.build()
    run = tf.compile(fusion, backend="cuda")
    kernel = tf.lower(fusion)
    for shapes in case.shapes:
        found = check(case, run, shapes)
        simulated = kernel.simulate(*case.arguments(shapes))
        for out, sim, (_, size) in zip(found, simulated, case.expected(*(x.astype(np.float64) for x in case.arguments(shapes))), strict=True):
            if is_exact(fusion):
                assert same(out, sim)
            unit = ulp(sim.astype(np.float64) if size is None else size, sim.dtype)
            assert np.max(np.abs(out.astype(np.float64) - sim.astype(np.float64)) / unit) <= ULP[case.name] + case.ulp + 1


@BY_NAME
def test_larger_shapes_are_numpy(case: Case) -> None:
    run = tf.compile(case.build(), backend="cuda")
    for shapes in LARGER[case.name]:
        check(case, run, shapes, times=2)  # sums of more terms round more often


@BY_NAME
def test_many_launches_give_the_same_bits(case: Case) -> None:
    run = tf.compile(case.build(), backend="cuda")
    args = [to_device(a) for a in case.arguments(LARGER[case.name][0])]
    first = run(*args)
    for _ in range(50):
        for out, ref in zip(run(*args), first, strict=True):
            assert out.equal(ref)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_pipeline_of_any_depth(stages: int) -> None:
    case = next(case for case in CASES if case.name == "pipeline")
    check(case, tf.compile(pipeline.build(stages), backend="cuda"), LARGER["pipeline"][0], times=2)


@BY_NAME
def test_fast_math_is_near(case: Case) -> None:
    """The bound is loose on purpose: what fast_math costs per function is tabulated, not tested."""
    run = tf.compile(case.build(), backend="cuda", fast_math=True)
    args = case.arguments(case.shapes[0])
    for out, (ref, size) in zip(run(*map(to_device, args)), case.expected(*(x.astype(np.float64) for x in args)), strict=True):
        relative = max(1e-3, float(ulp(np.ones(1), to_numpy(out).dtype)[0]))
        np.testing.assert_allclose(to_numpy(out).astype(np.float64), ref, rtol=relative, atol=1e-3 * float(np.abs(ref if size is None else size).max()))


@BY_NAME
def test_debug_builds_give_the_same_bits(case: Case) -> None:
    fusion = case.build()
    args = [to_device(a) for a in case.arguments(case.shapes[0])]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*registers spill", TaskfuseWarning)  # of a debug build: slow, not wrong
        plain, debug = tf.compile(fusion, backend="cuda")(*args), tf.compile(fusion, backend="cuda", debug=True)(*args)
    assert all(a.equal(b) for a, b in zip(plain, debug, strict=True))


@BY_NAME
def test_numpy_goes_through_the_gpu_and_back(case: Case) -> None:
    args = case.arguments(case.shapes[0])
    run = tf.compile(case.build(), backend="cuda")
    for out, ref in zip(run(*args), run(*map(to_device, args)), strict=True):
        assert type(out) is np.ndarray
        assert same(out, to_numpy(ref))
