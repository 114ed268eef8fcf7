"""The cost model of several products on one list of tiles: which tile, and whether long tiles come first.

Each block takes the tiles of its items, one after another; the kernel takes as long as its slowest block. The time of a tile is that of
:mod:`taskfuse.schedulers.cost`, whose constants were measured on single products.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heapreplace
from math import ceil
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from taskfuse.kir.declarations import CLAIM_BYTES
from taskfuse.schedulers.config import ROOMY_ACCUMULATORS, SPAN, MatmulConfig
from taskfuse.schedulers.cost import MatmulProblem, tile_time
from taskfuse.schedulers.matmul_candidates import MAX_STAGES, MOST_SIDES, SHARED_TILES, is_unfilled, rings
from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.schedule import Option
from taskfuse.target import DEFAULT
from taskfuse.tiles import Problem, WorkList, sort_problems

CLAIMED = 12
"""The number of fastest candidates that are also tried with claimed tiles."""
EVEN = 1.03
"""The least ratio of the slowest block's time to the mean for which claiming is tried."""


@dataclass(frozen=True, slots=True)
class ProductsConfig(Parameters):
    """A schedule of several products: the parameters that they have in common.

    Attributes:
        tile_m, tile_n, tile_k, warpgroups, stages, in_flight, blocks: as those of :class:`MatmulConfig`; the warpgroups share each tile.
        is_sorted: whether products with more steps of k come first; else they come in the order in which the fusion has them.
        is_dynamic: whether a block takes the next tile when it has finished one (``tf.tiles.dynamic``); else every ``blocks``-th.
    """

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    warpgroups: int = 2
    stages: int = 4
    in_flight: int = 1
    blocks: int = DEFAULT.sms
    is_sorted: bool = True
    is_dynamic: bool = False

    LEAST: ClassVar[Mapping[str, int]] = {"in_flight": 0}

    def __post_init__(self) -> None:
        self.check_fields()
        self.of_one(1)

    def of_one(self, group: int) -> MatmulConfig:
        """The parameters of one product, whose tiles stand in groups of rows."""
        return MatmulConfig(self.tile_m, self.tile_n, self.tile_k, self.warpgroups, self.stages, self.in_flight, group, self.blocks)

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        groups = "1 warpgroup" if self.warpgroups == 1 else f"{self.warpgroups} warpgroups that share them"
        order = ("longest tiles first" if self.is_sorted else "in the given order") + (", as blocks come to them" if self.is_dynamic else "")
        return (
            f"tiles of {self.tile_m} x {self.tile_n} x {self.tile_k}, {groups}, {self.stages} stages, {self.in_flight} in flight, {self.blocks} blocks, {order}"
        )


@dataclass(frozen=True, slots=True)
class ListEstimate(Option[ProductsConfig]):
    """What the model says of one configuration.

    Attributes:
        tiles: of all products.
        most: tiles of the block that has most.
        imbalance: the time of the slowest block over the mean of all.
    """

    HEADING: ClassVar[str] = "tile              warpgroups  stages  tiles  most  imbalance  order"

    tiles: int
    most: int
    imbalance: float

    @property
    def row(self) -> str:
        """It, in a table."""
        c = self.config
        shape = f"{c.tile_m:3} x {c.tile_n:<3} x {c.tile_k:<4}  {c.warpgroups:10}  {c.stages:6}"
        return f"{shape}  {self.tiles:5}  {self.most:4}  {self.imbalance:9.2f}  {'sorted' if c.is_sorted else 'given'}{', claimed' if c.is_dynamic else ''}"


def order_of(problems: Sequence[MatmulProblem], config: ProductsConfig) -> tuple[int, ...]:
    """The products in the order of the list."""
    return sort_problems([_extents(p) for p in problems]) if config.is_sorted else tuple(range(len(problems)))


def _extents(p: MatmulProblem) -> Problem:
    return Problem(p.m, p.n, p.k, p.batch)


def work_list(problems: Sequence[MatmulProblem], config: ProductsConfig) -> WorkList:
    """The tiles of some products in the order in which the blocks walk them."""
    return WorkList(tuple(_extents(problems[k]) for k in order_of(problems, config)), (config.tile_m, config.tile_n), config.blocks)


def estimate_list(problems: Sequence[MatmulProblem], config: ProductsConfig) -> ListEstimate:
    """The time of ``config`` for some products."""
    target, figures = problems[0].target, problems[0].target.products
    listed = work_list(problems, config)
    one = config.of_one(1)
    counts = listed.counts
    most = int(counts.sum(axis=0).max())
    loading = listed.tiles / (most * target.sms)
    times = [tile_time(problems[k], one, loading, in_step=most == 1) for k in order_of(problems, config)]
    each = np.array([t.products + t.epilogue for t in times])
    if config.is_dynamic:
        cycles = ends_of_claims(each + figures.claim_cycles, counts.sum(axis=1), config.blocks)
    else:
        cycles = each @ counts
    us = float(cycles.max()) / target.clock_mhz
    us = max(us, target.dram_us(sum(p.batch * p.itemsize * (p.m * p.k + p.n * p.k + p.m * p.n) for p in problems)))
    us += target.launch_us if config.is_dynamic else 0  # of what sets the counter to zero
    us += figures.start_us + figures.warpgroup_us * (config.warpgroups - 1)
    return ListEstimate(config, us, listed.tiles, most, float(cycles.max() / cycles.mean()))


def ends_of_claims(each: NDArray[np.float64], counts: NDArray[np.int64], blocks: int) -> NDArray[np.float64]:
    """The end times of blocks that claim tiles: ``counts`` tiles, one after another, of ``each`` length."""
    ends = [0.0] * blocks
    for length, count in zip(each, counts, strict=True):
        for _ in range(count):
            heapreplace(ends, ends[0] + length)
    return np.array(ends)


def claim_bytes(problems: Sequence[MatmulProblem], config: ProductsConfig) -> int:
    """Shared memory of a block for the numbers of all claimed tiles, and the end mark."""
    return CLAIM_BYTES * (work_list(problems, config).tiles + len(problems))


def _dynamic(problems: Sequence[MatmulProblem], config: ProductsConfig) -> ProductsConfig | None:
    """The parameters with tiles that blocks claim, and as many stages as these leave room for; ``None``: for fewer than two."""
    room = problems[0].target.limits.block_shared - claim_bytes(problems, config)
    one = config.of_one(1)
    of_each = (one.stages_in(room, p.itemsize, p.staged, counts=p.counts, columns_contiguous=p.columns_contiguous) for p in problems)
    stages = min(config.stages, *of_each)
    return replace(config, stages=stages, is_dynamic=True) if stages > max(1, config.in_flight) else None


def configurations(problems: Sequence[MatmulProblem]) -> Iterator[ProductsConfig]:
    """What the model chooses from: tiles that suit all products, with the stages that fit, in the given order and sorted."""
    target = problems[0].target
    itemsize = problems[0].itemsize
    is_computed = any(p.prologue is not None for p in problems)
    longest = 0 if is_computed else max(p.k for p in problems)
    for tile_m, tile_n, warpgroups in SHARED_TILES:
        if not all(p.fills(tile_n) or (p.suits(tile_n) and is_unfilled(p, tile_m, tile_n, warpgroups)) for p in problems):
            continue
        one = MatmulConfig(tile_m, tile_n, SPAN // itemsize, warpgroups, MAX_STAGES)
        most = MOST_SIDES.get((tile_m, tile_n, warpgroups, one.kind, 1))
        if one.accumulators > ROOMY_ACCUMULATORS[warpgroups] or (most is not None and any(p.sides > most for p in problems)):
            continue
        tiles = sum(p.batch * ceil(p.m / tile_m) * ceil(p.n / tile_n) for p in problems)
        for tile_k, stages in rings(one, problems, target.limits.block_shared, longest):
            for is_sorted in (False, True) if len({p.k for p in problems}) > 1 else (False,):
                yield ProductsConfig(tile_m, tile_n, tile_k, warpgroups, stages, 1, min(target.sms, tiles), is_sorted)


@lru_cache(maxsize=256)
def rank_lists(problems: tuple[MatmulProblem, ...], *, may_claim: bool = False) -> tuple[ListEstimate, ...]:
    """All candidates, the fastest first; of equals the larger tile, in the given order.

    Args:
        may_claim: the number of tiles is known: blocks may claim them. The fastest candidates are tried so, too.
    """

    def key(e: ListEstimate) -> tuple[float, ...]:
        return e.us, -e.config.tile_m * e.config.tile_n, e.config.is_sorted

    found = sorted((estimate_list(problems, config) for config in configurations(problems)), key=key)
    claimed = [made for e in found[:CLAIMED] if e.imbalance > EVEN and (made := _dynamic(problems, e.config)) is not None] if may_claim else []
    return tuple(sorted((*found, *(estimate_list(problems, config) for config in claimed)), key=key))
