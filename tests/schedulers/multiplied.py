"""Products that matmul is tried on."""

from dataclasses import replace

from taskfuse.schedulers import MatmulConfig, MatmulKind
from tests.schedulers.products import TWO

TURNS = MatmulConfig(64, 64, 64, 2, stages=3, blocks=2, kind=MatmulKind.PINGPONG)
PAIRS = MatmulConfig(128, 64, 64, 2, stages=3, blocks=2, cluster=2)
KINDS = {
    "two": TWO,
    "pingpong": TURNS,
    "three in turn": replace(TURNS, warpgroups=3, stages=4),
    "two rows in turn": replace(TURNS, tile_m=128, tile_n=32),
    "clusters": PAIRS,
    "clusters of narrow tiles": replace(PAIRS, tile_m=64, tile_n=16, warpgroups=1),
    "clusters in turn": replace(TURNS, blocks=4, cluster=2),
}
