"""Arms of one chain that threads with shared storage take in one iteration, and those that they do not."""

import pytest

from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.values.arms import in_concurrent_arm, in_other_arm
from taskfuse.ir.types import MemoryType
from taskfuse.kir import parse_kernel

TEXT = """\
KERNEL k(x: float32[N, 8]) -> (y: float32[N, 8])
  DIM N min 1
  GRID (2, 1, 1)  BLOCK (8, 1, 1)
  SHARED s: float32[8]

p = CURSOR(slots 2, slot 0, parity 0)
FOR k in 0..N:
  {first}
    s[threadIdx.x] = copy(x[k, threadIdx.x])
  {second}
    s[threadIdx.x] = copy(x[k, threadIdx.x])
  s[threadIdx.x] = copy(x[0, threadIdx.x])
  p.advance(1)
"""


@pytest.mark.parametrize(
    ("first", "second", "shared", "everywhere"),
    [
        ("IF threadIdx.x < 4:", "ELSE:", True, True),
        ("IF k > 0:", "ELSE:", False, False),
        ("IF k > 0 && threadIdx.x < 4:", "ELSE:", True, True),
        ("IF blockIdx.x == 0:", "ELSE:", False, True),
        ("IF p.slot == 0:", "ELSE:", True, True),
        ("IF k > 0:", "ELSE IF threadIdx.x < 4:", False, False),
        ("IF threadIdx.x < 4:", "ELSE IF k > 0:", True, True),
    ],
)
def test_all_threads_agree_on_the_first_arm_or_not(first: str, second: str, shared: bool, everywhere: bool) -> None:
    tree = StatementTree.of(parse_kernel(TEXT.format(first=first, second=second)))
    one, two, behind = (n for n in tree.leaves() if n.text.startswith("s["))
    assert in_other_arm(one, two)
    for a, b in ((one, two), (two, one)):
        assert in_concurrent_arm(a, b, MemoryType.Shared) is shared
        assert in_concurrent_arm(a, b, MemoryType.Global) is everywhere
        assert not in_concurrent_arm(a, b, MemoryType.Local)
    assert not in_concurrent_arm(one, behind, MemoryType.Global)
