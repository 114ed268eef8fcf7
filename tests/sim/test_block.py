"""Thread blocks and their clusters."""

from itertools import product

import pytest

from taskfuse.ir.types import ParallelType as P
from taskfuse.ir.values import NATIVE
from taskfuse.kir import parse_kernel
from taskfuse.sim.block import Block, Cluster
from taskfuse.sim.fault import Fault
from taskfuse.sim.interleaving import InStep
from taskfuse.sim.launch import prepare

TEXT = """\
KERNEL k() -> (y: float32[4])
  GRID (4, 2, 1)  BLOCK (32, 1, 1)  CLUSTER (4, 2, 1)

y[0] = copy(0.0)
"""


def blocks() -> list[Block]:
    """The eight blocks of a cluster of 4 x 2, before they run."""
    launch = prepare(parse_kernel(TEXT), [], NATIVE, None)
    return [block for block, _ in launch.blocks(launch.machine(InStep(1), 1000))]


def test_ranks_run_over_x_first() -> None:
    cluster = Cluster((4, 2, 3), 0, {})
    places = [(x, y, z) for z, y, x in product(range(3), range(2), range(4))]
    assert [cluster.rank(place) for place in places] == [*range(24)]


def test_who_is_reached_across_cluster_types() -> None:
    made = blocks()
    me = next(b for b in made if b.place == (2, 1, 0))
    assert me.cluster.threads == 8 * 32
    assert me.reached(()) == (me,)
    assert {b.place for b in me.reached((P.CIDx,))} == {(x, 1, 0) for x in range(4)}
    assert {b.place for b in me.reached((P.CIDy,))} == {(2, 0, 0), (2, 1, 0)}
    assert {*me.reached((P.CIDx, P.CIDy))} == {*made}


def test_a_block_that_has_exited_is_not_reached() -> None:
    made = blocks()
    me, gone = made[0], made[1]
    gone.exited = gone.threads - 1
    assert gone in me.reached((P.CIDx,))
    gone.exited = gone.threads
    with pytest.raises(Fault, match=r"block \(1, 0, 0\) of the cluster is reached after it has exited"):
        me.reached((P.CIDx,))
    assert gone in gone.reached((P.CIDy,)), "itself it reaches"


def test_memory_of_blocks_that_have_begun_is_accessed() -> None:
    made = blocks()
    me, gone = made[0], made[3]
    me.access([0])
    with pytest.raises(Fault, match=r"block \(3, 0, 0\) of the cluster is accessed before it is known to have begun"):
        me.access([0, 3])
    me.cluster.has_begun = True
    me.access([0, 3])
    gone.exited = gone.threads
    with pytest.raises(Fault, match=r"block \(3, 0, 0\) of the cluster is reached after it has exited"):
        me.access([3])
