"""Schedules of matrix products on the GPU, at real sizes, into poisoned outputs, against float64."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig
from tests.gpu.device import poisoned, to_numpy, to_torch
from tests.schedulers.products import Product, operands

SIZES = {"square": (1024, 1024, 1024), "odd": (777, 1032, 1000), "flat": (64, 2048, 1024), "deep": (256, 128, 3584), "tiny": (1, 8, 8)}
PRODUCTS = (
    Product(),
    Product("rows bias gelu"),
    Product("residual silu", dtype=tf.float16, out=tf.float16),
    Product("square relu", out=tf.float32),
    Product("bias relu", layout="kn"),
    Product("bias", layout="mn"),
)
CONFIGS = (None, MatmulConfig(), MatmulConfig(256, 128, in_flight=0), MatmulConfig(64, 64, warpgroups=1, stages=8), MatmulConfig(192, 128, warpgroups=3))


def run(product: Product, config: MatmulConfig | None, sizes: dict[str, int]) -> None:
    fusion = product.fusion()
    tf.schedulers.matmul(fusion, config, sizes=sizes)
    call = tf.compile(fusion, backend="cuda")
    args = operands(fusion, sizes)
    given = [to_torch(a) for a in args[: len(fusion.inputs)]]
    shapes = [wanted.shape for wanted, _ in product.expected(args)]
    outs = tuple(poisoned(shape, tv.dtype) for shape, tv in zip(shapes, fusion.outputs, strict=True))
    call(*given, *args[len(given) :], out=outs)
    product.check(fusion, [to_numpy(out) for out in outs], args)


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: f"{p.dtype} {p.layout} {p.epilogue}")
def test_epilogues_and_layouts(product: Product, size: str) -> None:
    m, n, k = SIZES[size]
    if product.layout != "kk":
        m = -(-m // 8) * 8
    run(product, None, {"M": m, "N": n, "K": k})


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: "chosen" if c is None else f"{c.tile_m}x{c.tile_n}")
def test_parameters(config: MatmulConfig | None) -> None:
    run(Product("bias relu"), config, {"M": 1100, "N": 1400, "K": 520})


@pytest.mark.usefixtures("hopper")
def test_batches() -> None:
    run(Product("residual", batch=("B",)), None, {"B": 7, "M": 300, "N": 264, "K": 200})
