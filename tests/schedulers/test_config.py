"""The parameters of a matmul schedule."""

import pytest

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig, MatmulKind
from tests.proofs import proved
from tests.schedulers.products import SMALL, TWO, Product, operands, simulated

SIZES = [(64, 64, 64), (1, 8, 8), (65, 72, 128), (130, 8, 64), (1, 136, 200)]


@pytest.mark.parametrize("config", [SMALL, TWO], ids=["small", "two"])
def test_remainders_and_tiny_sizes(config: MatmulConfig) -> None:
    simulated(Product("relu"), config, *({"M": m, "N": n, "K": k} for m, n, k in SIZES))


CONFIGS = (
    MatmulConfig(64, 64, 64, 1, stages=2, in_flight=0, blocks=1),
    MatmulConfig(64, 128, 64, 1, stages=4, in_flight=2, blocks=2),
    MatmulConfig(128, 64, 64, 1, stages=2, in_flight=1, blocks=4),
    MatmulConfig(256, 64, 64, 2, stages=3, in_flight=2, blocks=1, group=1),
    MatmulConfig(192, 64, 64, 3, stages=2, in_flight=1, blocks=2, group=3),
    MatmulConfig(64, 192, 64, 1, stages=4, in_flight=3, blocks=3, group=2),
    MatmulConfig(128, 256, 64, 2, stages=2, in_flight=0, blocks=2),
    MatmulConfig(64, 32, 64, 1, stages=2, blocks=4, residents=4),
    MatmulConfig(128, 64, 64, 2, stages=2, blocks=3, residents=2),
)


LONG = (
    (Product("bias relu"), MatmulConfig(64, 64, 128, 1, stages=3, blocks=3)),
    (Product("bias", layout="kn"), MatmulConfig(128, 64, 256, 2, stages=2, blocks=2)),
    (Product("bias", layout="mn"), MatmulConfig(64, 128, 128, 2, stages=3, blocks=2, kind=MatmulKind.PINGPONG)),
    (Product("rows", layout="mk"), MatmulConfig(128, 64, 128, 2, stages=2, blocks=2, cluster=2)),
    (Product("scale", tf.float8_e4m3, tf.bfloat16), MatmulConfig(64, 32, 256, 1, stages=2, blocks=2)),
    (Product("", tf.float32, tf.float32), MatmulConfig(64, 16, 64, 1, stages=2, blocks=2)),
    (Product("bias", batch=("B",)), MatmulConfig(64, 16, 256, 1, stages=2, blocks=2, is_swapped=True)),
)


@pytest.mark.parametrize(("product", "config"), LONG, ids=lambda x: f"{x.tile_m}x{x.tile_n}x{x.tile_k}" if isinstance(x, MatmulConfig) else str(x.dtype))
def test_steps_of_several_spans(product: Product, config: MatmulConfig) -> None:
    """A slot holds several rows of the swizzle along k, and what the last step lacks is zero."""
    sizes = {"B": 2, "M": 72, "N": 80, "K": 400}
    fusion = product.fusion()
    tf.schedulers.matmul(fusion, config, tf32=product.dtype is tf.float32)
    kernel = tf.lower(fusion)
    args = operands(fusion, sizes)
    product.check(fusion, kernel.simulate(*args, seed=1), args)
    proved(kernel, sizes)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.tile_m}x{c.tile_n}")
def test_parameters(config: MatmulConfig) -> None:
    simulated(Product("bias relu"), config, {"M": 264, "N": 136, "K": 264}, seed=3)
