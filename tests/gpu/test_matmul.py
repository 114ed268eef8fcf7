"""Schedules of matrix products on the GPU, at real sizes, into poisoned outputs, against float64."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.errors import RegisterError, TaskfuseWarning
from taskfuse.schedulers import MatmulConfig, MatmulKind
from tests.gpu.device import poisoned, to_numpy, to_torch
from tests.schedulers.products import EXACT, Product, fitted, operands

SIZES = {"square": (1024, 1024, 1024), "odd": (777, 1032, 1000), "flat": (64, 2048, 1024), "deep": (256, 128, 3584), "tiny": (1, 8, 8)}
PRODUCTS = (
    Product(),
    Product("rows bias gelu"),
    Product("residual silu", dtype=tf.float16, out=tf.float16),
    Product("square relu", out=tf.float32),
    Product("bias relu", layout="kn"),
    Product("bias", layout="mn"),
)
CONFIGS = (
    None,
    MatmulConfig(),
    MatmulConfig(256, 128, in_flight=0),
    MatmulConfig(64, 64, warpgroups=1, stages=8),
    MatmulConfig(192, 128, warpgroups=3),
    MatmulConfig(64, 16, warpgroups=1, stages=8),
    MatmulConfig(128, 96, stages=7),
    MatmulConfig(128, 128, stages=5, kind=MatmulKind.PINGPONG),
    MatmulConfig(64, 256, stages=4, kind=MatmulKind.PINGPONG, blocks=7),
    MatmulConfig(64, 96, warpgroups=3, stages=6, kind=MatmulKind.PINGPONG, blocks=4),
    MatmulConfig(cluster=2),
    MatmulConfig(128, 64, stages=6, cluster=2, blocks=10),
    MatmulConfig(128, 128, stages=5, kind=MatmulKind.PINGPONG, cluster=2, blocks=12),
)
TYPES = (
    Product("scale", tf.float8_e4m3, tf.bfloat16),
    Product("rows bias relu", tf.float8_e4m3, tf.float8_e4m3),
    Product("residual", tf.float8_e5m2, tf.float32),
    Product("bias", tf.int8, tf.int32),
    Product("scale", tf.uint8, tf.float32),
    Product("bias gelu", tf.float32, tf.float32),
)
KINDS = {
    "shared": MatmulConfig(128, 128, stages=5),
    "pingpong": MatmulConfig(128, 64, stages=4, kind=MatmulKind.PINGPONG),
    "clusters": MatmulConfig(128, 256, stages=3, cluster=2),
}
EIGHT_BITS = 2.0**-10
"""Of the sum of the terms' sizes: what sums of products of 8-bit floats may be off."""


def run(product: Product, config: MatmulConfig | None, sizes: dict[str, int]) -> None:
    fusion = product.fusion()
    tf.schedulers.matmul(fusion, config and fitted(config, product.dtype), sizes=sizes, tf32=product.dtype is tf.float32)
    call = tf.compile(fusion, backend="cuda")
    args = operands(fusion, sizes)
    given = [to_torch(a) for a in args[: len(fusion.inputs)]]
    shapes = [wanted.shape for wanted, _ in product.expected(args)]
    outs = tuple(poisoned(shape, tv.dtype) for shape, tv in zip(shapes, fusion.outputs, strict=True))
    call(*given, *args[len(given) :], out=outs)
    product.check(fusion, [to_numpy(out) for out in outs], args, EIGHT_BITS if product.dtype.is_float and product.dtype.itemsize == 1 else EXACT)


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: f"{p.dtype} {p.layout} {p.epilogue}")
def test_epilogues_and_layouts(product: Product, size: str) -> None:
    m, n, k = SIZES[size]
    if product.layout != "kk":
        m = -(-m // 8) * 8
    run(product, None, {"M": m, "N": n, "K": k})


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: "chosen" if c is None else f"{c.tile_m}x{c.tile_n} {c.kind.value} {c.cluster}")
def test_parameters(config: MatmulConfig | None) -> None:
    run(Product("bias relu"), config, {"M": 1100, "N": 1400, "K": 520})


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("layout", ["kn", "mn"])
@pytest.mark.parametrize(
    "config",
    [
        MatmulConfig(64, 16, warpgroups=1, stages=8),
        MatmulConfig(256, 176, stages=3),
        MatmulConfig(192, 112, warpgroups=3, stages=5),
        MatmulConfig(128, 80, stages=5, kind=MatmulKind.PINGPONG),
        MatmulConfig(128, 208, stages=3, cluster=2),
    ],
    ids=lambda c: f"{c.tile_m}x{c.tile_n} {c.kind.value} {c.cluster}",
)
def test_slots_of_whole_rows_of_the_swizzle(config: MatmulConfig, layout: str) -> None:
    """Of the last 64 columns in a slot some are those of the next tile."""
    run(Product("", layout=layout), config, {"M": 1096, "N": 1400, "K": 520})


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("config", [None, *KINDS.values()], ids=["chosen", *KINDS])
@pytest.mark.parametrize("product", TYPES, ids=lambda p: f"{p.dtype} {p.out}")
def test_types(product: Product, config: MatmulConfig | None) -> None:
    run(product, config, {"M": 1100, "N": 1424, "K": 592})


@pytest.mark.usefixtures("hopper")
def test_what_spills_does_not_run_unasked() -> None:
    """Three roles that multiply have 160 registers a thread; 192 x 192 takes 96 of them for accumulators, and an epilogue of two results more than the rest."""
    sizes = {"M": 384, "N": 384, "K": 256}
    product = Product("residual bias square", out=tf.float32)
    fusion = product.fusion()
    tf.schedulers.matmul(fusion, MatmulConfig(192, 192, warpgroups=3, stages=2))
    args = operands(fusion, sizes)
    given = [to_torch(a) for a in args]
    for _ in range(2):
        with pytest.raises(RegisterError, match=r"kernel 'product' for sm_90a: registers spill to local memory: \d+ bytes stored"):
            tf.compile(fusion, backend="cuda")(*given)
    outs = tuple(poisoned((384, 384), tv.dtype) for tv in fusion.outputs)
    with pytest.warns(TaskfuseWarning, match="registers spill"):
        tf.compile(fusion, backend="cuda", unsafe=True)(*given, out=outs)
    product.check(fusion, [to_numpy(out) for out in outs], args, EXACT)


@pytest.mark.usefixtures("hopper")
def test_batches() -> None:
    run(Product("residual", batch=("B",)), None, {"B": 7, "M": 300, "N": 264, "K": 200})


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(
    "config",
    [
        None,
        MatmulConfig(in_flight=0),
        MatmulConfig(),
        MatmulConfig(256, 128, in_flight=3),
        MatmulConfig(192, 64, warpgroups=3, stages=5),
        MatmulConfig(128, 128, stages=6, kind=MatmulKind.PINGPONG),
    ],
    ids=lambda c: "chosen" if c is None else f"{c.tile_m}x{c.tile_n} {c.kind.value} {c.in_flight}",
)
def test_computed_factors(config: MatmulConfig | None) -> None:
    """Many steps of k, so that batches that read registers and code that writes others overlap often."""
    m, n, k = 1100, 1408, 2048
    with tf.Fusion("computed") as fusion:
        a, b = tf.define_tensor([m, k], tf.bfloat16, name="a"), tf.define_tensor([k, n], tf.bfloat16, name="b")
        fusion.add_output(tf.relu(a) @ b)
    tf.schedulers.matmul(fusion, config)
    x, y = (torch.randint(-2, 3, s, device="cuda").bfloat16() for s in ((m, k), (k, n)))
    out = poisoned((m, n), tf.bfloat16)
    tf.compile(fusion, backend="cuda")(x, y, out=out)
    assert torch.equal(out, (torch.relu(x).float() @ y.float()).bfloat16())
