"""Tiles of a product: rows and columns of a warp, of a block, and the threads that share them."""

from taskfuse.ir.atoms import Instruction
from taskfuse.ir.types import ParallelType
from taskfuse.testing.product_loops import Nest, TileShape

TIDX, TIDY = ParallelType.TIDx, ParallelType.TIDy


def test_warpgroups() -> None:
    shape = TileShape(Instruction.WGMMA, (64, 32, 16), (2, 1), (TIDY, TIDX), (1, 3), 4)
    assert (shape.own, shape.tile) == ((64, 96), (128, 96, 64))
    assert (shape.lanes, shape.threads) == (128, 256)
    assert Nest(shape, [], [], False, False, False, None).threads == 128


def test_warps() -> None:
    shape = TileShape(Instruction.MMA, (16, 8, 16), (2, 4), (TIDX, TIDX), (2, 2), 1)
    assert (shape.own, shape.tile) == ((32, 16), (64, 64, 16))
    assert (shape.lanes, shape.threads) == (32, 256)
    assert Nest(shape, [], [], False, False, False, None).threads == 256
