"""Bulk tensor copies on the GPU: 1 to 5 dimensions, every swizzle and dtype, remainders, several boxes per fill."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from tests.gpu.device import poisoned, same, to_numpy, to_torch
from tests.lowering.bulk_cases import CASES

LAUNCHES = 50


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_simulator(name: str) -> None:
    fusion, kernel = CASES.lowered(name)
    arguments = CASES.operands(name)
    simulated = kernel.simulate(*arguments)
    run = tf.compile(kernel, backend="cuda", debug=True)
    given = [to_torch(a) for a in arguments]
    for _ in range(LAUNCHES):
        outs = tuple(poisoned(out.shape, tv.dtype) for out, tv in zip(simulated, fusion.outputs, strict=True))
        run(*given, out=outs)
        assert all(same(to_numpy(out), ref) for out, ref in zip(outs, simulated, strict=True))
