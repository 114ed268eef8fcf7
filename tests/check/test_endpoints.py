"""Which of several rings between blocks an element belongs to: accesses of one element are ordered by a ring only if it determines theirs."""

import pytest

from taskfuse.check.endpoints import Endpoint, share_ring
from taskfuse.ir.scalar import parse_expr
from tests.check.structured import structure, uses

HEAD = """\
KERNEL k(x: float32[64]) -> (y: float32[64])
  GRID (12, 1, 1)  BLOCK {block}
  GLOBAL w: float32[4, 8, 64]

"""
WRITER, READER = "blockIdx.x", "blockIdx.x - 6"


def shared(written: str, read: str, mine: str = WRITER, theirs: str = READER) -> bool:
    """Blocks 0 to 5 write an element of w, blocks 6 to 11 read one: is it of the ring with the block's number?"""
    body = f"IF blockIdx.x < 6:\n  w[{written}] = copy(x[threadIdx.x])\nELSE:\n  y[threadIdx.x] = copy(w[{read}])"
    a, b = uses(structure(body, head=HEAD), "w")
    ends = [Endpoint("c", "c", (), (), ring_index=(parse_expr(e),)) for e in (mine, theirs)]
    return share_ring(a, ends[0], b, ends[1])


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("0, blockIdx.x, threadIdx.x", "0, blockIdx.x - 6, threadIdx.x"),
        ("blockIdx.x % 3, blockIdx.x // 3, 0", "(blockIdx.x - 6) % 3, (blockIdx.x - 6) // 3, 0"),
        ("blockIdx.x // 3, blockIdx.x % 3, 0", "blockIdx.x // 3 - 2, blockIdx.x % 3, 0"),
    ],
)
def test_an_element_of_one_ring(written: str, read: str) -> None:
    assert shared(written, read)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("0, 0, threadIdx.x", "0, 0, threadIdx.x"),
        ("0, blockIdx.x, threadIdx.x", "0, blockIdx.x - 5, threadIdx.x"),
        ("0, blockIdx.x, threadIdx.x", "0, 0, threadIdx.x"),
        ("blockIdx.x % 3, 0, 0", "(blockIdx.x - 6) % 3, 0, 0"),
        ("0, blockIdx.x // 3, 0", "0, (blockIdx.x - 6) // 3, 0"),
        ("blockIdx.x % 3, blockIdx.x // 2, 0", "(blockIdx.x - 6) % 3, (blockIdx.x - 6) // 2, 0"),
    ],
)
def test_an_element_that_rings_may_share(written: str, read: str) -> None:
    assert not shared(written, read)


def test_blocks_with_one_ring_share_it() -> None:
    body = "IF blockIdx.x < 6:\n  w[0, 0, 0] = copy(x[0])\nELSE:\n  y[threadIdx.x] = copy(w[0, 0, 0])"
    a, b = uses(structure(body, head=HEAD), "w")
    one = Endpoint("c", "c", (), ())
    assert share_ring(a, one, b, one)
