"""Asynchronous copies (cp.async) on the GPU: every case of the tests of lowering, arguments without whole vectors, and many trips."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse import ParallelType as P
from tests.gpu.device import poisoned, same, to_numpy, to_torch
from tests.lowering.copying import CASES, pipeline

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


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
@pytest.mark.parametrize("group", [P.TIDy, None])
@pytest.mark.parametrize("rows", [0, 1, 7, 8, 4099])
def test_load_and_compute_of_any_number_of_rows(rows: int, group: P | None, dtype: tf.DType) -> None:
    run = tf.compile(pipeline(dtype=dtype, width=16 // dtype.itemsize, group=group), backend="cuda", debug=True)
    x = torch.randn(rows, 64, device="cuda").to(torch.bfloat16 if dtype is tf.bfloat16 else torch.float32)
    (out,) = run(x)
    assert torch.equal(out, x.abs())


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_arguments_whose_rows_are_no_whole_vectors(dtype: tf.DType) -> None:
    """Rows at odd addresses: each element is copied by itself, or stored where it is smaller than a copy can be."""
    run = tf.compile(pipeline(dtype=dtype, width=16 // dtype.itemsize), backend="cuda", debug=True)
    wide = torch.randn(133, 67, device="cuda").to(torch.bfloat16 if dtype is tf.bfloat16 else torch.float32)
    for x in (wide[:, 1:65], wide[:, 3:67], wide[:64, :].t()[:, :64]):
        (out,) = run(x)
        assert torch.equal(out, x.abs())
