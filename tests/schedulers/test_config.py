"""The parameters of a matmul schedule."""

import pytest

from taskfuse.schedulers import MatmulConfig
from tests.schedulers.products import SMALL, TWO, Product, simulated

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
)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.tile_m}x{c.tile_n}")
def test_parameters(config: MatmulConfig) -> None:
    simulated(Product("bias relu"), config, {"M": 264, "N": 136, "K": 264}, seed=3)
