"""The body as the checker reads it: indices as what they are, iterations copied out; what loses a divisor is not written."""

import pytest

from taskfuse.check.normalize import copied_out, in_blocks, in_iteration, unrolled
from taskfuse.check.ranges import Ranges
from taskfuse.check.statement_tree import StatementTree
from taskfuse.ir.scalar import Facts, const
from taskfuse.kir import Kernel, parse_kernel, stmt_text, walk
from taskfuse.kir.nodes import Compute, For

HEAD = """\
KERNEL k(x: float32[N, 64]) -> (y: float32[N, 64])
  DIM N{least}
  GRID (4, 1, 1)  BLOCK (64, 1, 1){cluster}
  SHARED s: float32[4, 64] align 16
  MBARRIER b[4]

"""


def kernel(body: str, least: str = " min 1", cluster: str = "") -> Kernel:
    return parse_kernel(HEAD.format(least=least, cluster=cluster) + body.strip("\n") + "\n")


def known(k: Kernel) -> tuple[Facts, Ranges]:
    context = StatementTree.of(k).root.context
    return context.facts, context.ranges


def written(k: Kernel) -> list[str]:
    return [stmt_text(s, k) for s in in_blocks(k, *known(k))]


def test_a_thread_index_of_extent_1_is_0() -> None:
    assert written(kernel("s[threadIdx.y, threadIdx.x + threadIdx.z] = copy(1.0)")) == ["s[0, threadIdx.x] = copy(1.0)"]


def test_a_body_without_such_indices_is_the_same_object() -> None:
    k = kernel("s[0, threadIdx.x] = copy(1.0)")
    assert in_blocks(k, *known(k)) is k.body


def test_a_place_in_the_cluster_is_one_in_the_grid() -> None:
    assert written(kernel("s[clusterIdx.x, threadIdx.x] = copy(1.0)", cluster="  CLUSTER (2, 1, 1)")) == ["s[blockIdx.x % 2, threadIdx.x] = copy(1.0)"]


@pytest.mark.parametrize(("grid", "place"), [(4, "blockIdx.x"), (8, "blockIdx.x % 4")])
def test_a_place_in_the_cluster_is_one_in_the_grid_as_an_index_of_a_table(grid: int, place: str) -> None:
    """What is asked of the index is asked of the place in the grid: both are the same number."""
    text = f"""\
KERNEL k(x: float32[64], t: int32[5]) -> (y: float32[4])
  GRID ({grid}, 1, 1)  BLOCK (1, 1, 1)  CLUSTER (4, 1, 1)

IF blockIdx.x < 4 && clusterIdx.x < 3:
  y[clusterIdx.x] = copy(x[clamp(t[clusterIdx.x + 2 of 5], 0, 63)])
"""
    k = parse_kernel(text)
    _, stored = [stmt_text(s, k) for s in walk(in_blocks(k, *known(k)))]
    assert stored == f"y[{place}] = copy(x[clamp(t[{place} + 2 of 5], 0, 63)])"
    assert k.verify().is_proved
    assert not parse_kernel(text.replace("clusterIdx.x < 3", "clusterIdx.x < 4")).verify().is_proved


@pytest.mark.parametrize(("least", "expected"), [(" min 1", "s[0, threadIdx.x] = copy(1.0)"), (" min 0", "s[threadIdx.y//N, threadIdx.x] = copy(1.0)")])
def test_a_divisor_that_may_be_0_is_not_lost(least: str, expected: str) -> None:
    """``0//N`` is 0, unless ``N`` is 0."""
    assert written(kernel("s[threadIdx.y // N, threadIdx.x] = copy(1.0)", least)) == [expected]


def test_one_iteration() -> None:
    k = kernel("FOR i in 0..4:\n  s[i, threadIdx.x] = copy(1.0)\n  s[0, threadIdx.x] = copy(1.0)")
    (loop,) = k.body
    assert isinstance(loop, For)
    body = in_iteration(loop, const(2), known(k)[1])
    assert body is not None
    assert [stmt_text(s, k) for s in body] == ["s[2, threadIdx.x] = copy(1.0)", "s[0, threadIdx.x] = copy(1.0)"]


@pytest.mark.parametrize(("least", "is_written"), [(" min 0", False), (" min 1", True)])
def test_an_iteration_that_would_lose_a_divisor_is_not_written(least: str, is_written: bool) -> None:
    k = kernel("FOR i in 0..4:\n  s[i//N, 0] = copy(1.0)", least)
    (loop,) = k.body
    assert isinstance(loop, For)
    assert (in_iteration(loop, const(0), known(k)[1]) is not None) is is_written
    assert in_iteration(loop, const(2), known(k)[1]) is not None


RING = "c = CURSOR(slots 4, slot 0, parity 0)\nFOR i in 0..4{unroll}:\n  WAIT b[(c.slot + i) % 4] parity 0\n  s[i, threadIdx.x] = copy(1.0)\nc.advance(1)"


def test_unrolled_loops_that_number_slots_are_copied_out() -> None:
    for unroll, copies in ((" UNROLL", 4), ("", 1)):
        k = kernel(RING.format(unroll=unroll))
        found = unrolled(k.body)
        assert bool(found.slots) is (copies > 1)
        body = copied_out(k.body, found.slots, known(k)[1])
        assert sum(isinstance(s, Compute) for s in walk(body)) == copies


def test_loops_with_batches_in_flight_are_copied_out_on_demand() -> None:
    text = "FOR i in 0..4 UNROLL:\n  COPY.async s[i, threadIdx.x] <- x[0, threadIdx.x] width 1\n  COMMIT copy\n  WAIT_GROUP copy <= {}"
    assert unrolled(kernel(text.format(1)).body).queues
    assert not unrolled(kernel(text.format(1)).body).slots
    assert not unrolled(kernel(text.format(0)).body).queues  # its iterations leave none in flight


def test_loops_around_other_ends_of_an_mbarrier_are_copied_out_alike() -> None:
    k = kernel(RING.format(unroll=" UNROLL") + "\nFOR j in 0..2 UNROLL:\n  ARRIVE b[j]\nFOR m in 0..2 UNROLL:\n  s[m, 0] = copy(1.0)")
    loops = [id(s) for s in k.body if isinstance(s, For)]
    assert unrolled(k.body).slots == frozenset(loops[:2])


def test_long_loops_stay() -> None:
    assert not unrolled(kernel(RING.format(unroll=" UNROLL").replace("0..4", "0..65")).body).slots
