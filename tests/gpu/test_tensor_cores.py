"""Tensor cores on a GPU: every form of product, ldmatrix and stmatrix against the simulator, and the hand-written GEMMs against NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from tests.gemms import GEMMS, Case, gemm_fp8, gemm_mn, gemm_rs, gemm_sync
from tests.gpu.device import poisoned, same, to_numpy, to_torch
from tests.gpu.programs import load
from tests.products import ALL_PRODUCTS, PRODUCTS, WARP_PRODUCTS, AnyProduct, Product, WarpProduct, expected

hopper = pytest.mark.usefixtures("hopper")
LARGE: dict[Case, tuple[int, int, int]] = {
    gemm_fp8: (1030, 1000, 2064),
    gemm_rs: (1030, 1000, 2056),
    gemm_mn: (1032, 1000, 2050),
    gemm_sync: (1024, 1088, 2080),
}


def launch(kernel: tf.Kernel, args: Sequence[npt.NDArray[Any] | float], shape: tuple[int, ...]) -> np.ndarray:
    out = poisoned(shape, kernel.outputs[0].dtype)
    tf.compile(kernel, backend="cuda")(*(to_torch(a) if isinstance(a, np.ndarray) else a for a in args), out=out)
    return to_numpy(out)


@hopper
@pytest.mark.parametrize("product", ALL_PRODUCTS, ids=lambda p: p.name)
def test_products_are_exact(product: AnyProduct) -> None:
    kernel = product.kernel()
    for seed in range(2):
        args = product.arguments(seed)
        want = expected(*args).astype(kernel.outputs[0].dtype.numpy)
        assert same(launch(kernel, args, want.shape), want)


@hopper
@pytest.mark.parametrize("product", [p for p in (*PRODUCTS, *WARP_PRODUCTS) if p.dtype is tf.float32], ids=lambda p: p.name)
def test_tf32_drops_the_low_bits(product: Product | WarpProduct) -> None:
    """What the simulator does with the 13 low bits of float32 operands is what the hardware does."""
    kernel, rng = product.kernel(), np.random.default_rng(0)
    a, b = (rng.standard_normal(x.shape).astype(np.float32) for x in product.arguments())
    (simulated,) = kernel.simulate(a, b)
    np.testing.assert_allclose(launch(kernel, [a, b], simulated.shape), simulated, rtol=1e-5, atol=1e-5)


@hopper
@pytest.mark.parametrize(("case", "shape"), [(case, shape) for case, shapes in GEMMS.items() for shape in (*shapes, LARGE[case])])
def test_gemms(case: Case, shape: tuple[int, int, int]) -> None:
    args, want = case(*shape)
    kernel = load(case.__name__)
    want = want.astype(kernel.outputs[0].dtype.numpy)
    for _ in range(5):
        assert same(launch(kernel, args, want.shape), want)
