"""Products of every precision, layout and alignment on the GPU, into poisoned outputs, against float64."""

from typing import Any, Literal

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.ir.matrix_instructions import Family, accumulator_dtype, rows
from taskfuse.schedule.split_products import SPLITS
from taskfuse.schedulers import MatmulConfig, MatmulKind, MmaGemmConfig, SimtGemmConfig
from taskfuse.schedulers.mma_gemm import TILES
from tests.gpu.device import poisoned, to_numpy, to_torch

pytestmark = pytest.mark.usefixtures("hopper")
RNG = np.random.default_rng(0)
LAYOUTS = (("mk", "nk"), ("mk", "kn"), ("km", "nk"), ("km", "kn"))
Name = Literal["bf16x3", "bf16x6", "bf16x9"]
NAMES: tuple[Name, ...] = ("bf16x3", "bf16x6", "bf16x9")
TYPES = (tf.float64, tf.float32, tf.bfloat16, tf.float16, tf.float8_e4m3, tf.float8_e5m2, tf.int8, tf.uint8)


def product(size: tuple[int, int, int], dtype: tf.DType, layout: tuple[str, str], out: tf.DType | None = None) -> tf.Fusion:
    extents = dict(zip("mnk", size, strict=True))
    with tf.Fusion("product") as fusion:
        a, b = (tf.define_tensor([extents[c] for c in axes], dtype=dtype, name=name) for axes, name in zip(layout, "ab", strict=True))
        sums = accumulator_dtype(dtype, dtype)
        made = tf.einsum(f"{layout[0]},{layout[1]}->mn", a, b, dtype=sums)
        fusion.add_output(made if out in (None, sums) else tf.cast(made, out))
    return fusion


def exact_numbers(fusion: tf.Fusion) -> list[Any]:
    """Small integers, whose sums of products every type holds."""
    low = 0 if fusion.inputs[0].dtype is tf.uint8 else -2
    return [RNG.integers(low, 3, [int(str(e)) for e in tv.shape]).astype(tv.dtype.numpy) for tv in fusion.inputs]


def run(call: Any, given: list[Any], shape: tuple[int, int], dtype: tf.DType) -> Any:
    out = poisoned(shape, dtype)
    call(*map(to_torch, given), out=out)
    return to_numpy(out)


def is_exact(call: Any, fusion: tf.Fusion, layout: tuple[str, str]) -> None:
    given, (result,) = exact_numbers(fusion), fusion.outputs
    exact = np.einsum(f"{layout[0]},{layout[1]}->mn", *(x.astype(np.float64) for x in given))
    found = run(call, given, (exact.shape[0], exact.shape[1]), result.dtype)
    assert np.array_equal(found.astype(np.float64), exact.astype(result.dtype.numpy).astype(np.float64))


NO_SPARE = pytest.mark.filterwarnings("ignore:.*registers spill to local memory. [1-8] bytes")
"""With 8 x 8 sums a thread of this layout has no register to spare (NVRTC 13.0)."""


@pytest.mark.parametrize("layout", [pytest.param(own, marks=[NO_SPARE] if own == ("mk", "kn") else []) for own in LAYOUTS], ids=" ".join)
def test_products_on_cuda_cores(layout: tuple[str, str]) -> None:
    """Threads that turn factors with k last, and those that do not, rows of any length."""
    for size, config in (((129, 70, 77), SimtGemmConfig(8, 8)), ((256, 256, 128), SimtGemmConfig(8, 8, 16)), ((33, 500, 3), SimtGemmConfig(4, 4, 4))):
        fusion = product(size, tf.float32, layout)
        tf.schedulers.simt_gemm(fusion, config)
        is_exact(tf.compile(fusion, backend="cuda"), fusion, layout)


def test_both_factors_of_a_product_are_one_turned_copy() -> None:
    with tf.Fusion("gram") as fusion:
        x = tf.define_tensor([1000, 2001], name="x")
        made = x @ x.T
        fusion.add_output(made)
    made.pack_factors(2, 1, turned=True)
    call = tf.compile(fusion, backend="cuda")
    (given,) = exact_numbers(fusion)
    assert np.array_equal(run(call, [given], (1000, 1000), tf.float32), given @ given.T)


@pytest.mark.parametrize("layout", LAYOUTS, ids=" ".join)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_products_by_warps(dtype: tf.DType, layout: tuple[str, str]) -> None:
    for size in ((129, 70, 77), (256, 256, 128), (33, 500, 1)):
        fusion = product(size, dtype, layout)
        tf.schedulers.mma_gemm(fusion, tf32=True)
        is_exact(tf.compile(fusion, backend="cuda"), fusion, layout)


@pytest.mark.parametrize("step", sorted({row.k for row in rows(Family.MMA, tf.float64, tf.float64) if row.arch == 90}))
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_float64_rounds_as_fma_does(tile: tuple[int, int, int, int], step: int) -> None:
    fusion = product((513, 300, 1000), tf.float64, ("mk", "kn"))
    tf.schedulers.mma_gemm(fusion, MmaGemmConfig(*tile, 16, step))
    a, b = (RNG.standard_normal(shape) for shape in ((513, 1000), (1000, 300)))
    found = run(tf.compile(fusion, backend="cuda"), [a, b], (513, 300), tf.float64)
    assert (np.abs(found - a @ b) <= 1000 * 2.0**-53 * (np.abs(a) @ np.abs(b))).all()


@pytest.mark.parametrize("layout", LAYOUTS, ids=" ".join)
@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16, tf.float8_e4m3, tf.int8], ids=str)
@pytest.mark.parametrize("size", [(1023, 1021, 1019), (1024, 1024, 1023), (1024, 1031, 1024), (777, 768, 514)], ids=str)
def test_every_alignment(size: tuple[int, int, int], dtype: tf.DType, layout: tuple[str, str]) -> None:
    fusion = product(size, dtype, layout, None if dtype is tf.int8 else tf.bfloat16)
    is_exact(tf.compile(fusion, backend="cuda", cache=False), fusion, layout)


@pytest.mark.parametrize(
    "config",
    [None, MatmulConfig(128, 64), MatmulConfig(128, 32), MatmulConfig(192, 64, warpgroups=3), MatmulConfig(64, 64, stages=4, kind=MatmulKind.PINGPONG)],
    ids=str,
)
def test_odd_rows_of_results(config: MatmulConfig | None) -> None:
    fusion = product((777, 1031, 512), tf.bfloat16, ("mk", "nk"), tf.bfloat16)
    tf.schedulers.matmul(fusion, config)
    is_exact(tf.compile(fusion, backend="cuda"), fusion, ("mk", "nk"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(512, 512, 4096), (257, 129, 333)], ids=str)
def test_errors_of_split_products_are_within_the_bound(name: Name, size: tuple[int, int, int]) -> None:
    """With factors of different magnitudes, and the tensor cores' own sums."""
    m, n, k = size
    fusion = product(size, tf.float32, ("mk", "kn"))
    a, b = ((RNG.standard_normal(shape) * np.exp2(RNG.integers(-8, 8, shape))).astype(np.float32) for shape in ((m, k), (k, n)))
    call = tf.compile(fusion, backend="cuda", float32_products=name, cache=False)
    found = run(call, [a, b], (m, n), tf.float32)
    exact, magnitudes = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
    assert (np.abs(found - exact) <= SPLITS[name].bound(k) * magnitudes).all()
    if name != "bf16x3":
        assert np.max(np.abs(found - exact) / magnitudes) < SPLITS["bf16x3"].left_out
