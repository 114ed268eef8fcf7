"""Tables of a write and of a read, joined: the points of the read at which the write leaves the element, another one, or none."""

import pytest

from taskfuse.check.values.match_tables import joined
from taskfuse.check.values.solve import Open
from tests.check.values.pairs import pair
from tests.executions import changed, gaps


def test_tables_leave_the_points_that_are_not_written() -> None:
    found = pair("threadIdx.x < 48")
    outcome = joined(found, {}, found.equations, [])
    assert outcome is not None
    assert outcome.rest is not None
    assert sorted(outcome.rest.at(k)["threadIdx.x"] for k in range(outcome.rest.count)) == list(range(16))


def test_tables_see_another_element() -> None:
    found = pair(read="threadIdx.x")
    with pytest.raises(Open, match=r"it finds another element of x on axis 0 \(threadIdx\.x = 0\)"):
        joined(found, {}, found.equations, [])


ROWS = """\
KERNEL rows(x: float32[N, 7]) -> (y: float32[N, 7])
  DIM N min 1
  GRID (N, 1, 1)  BLOCK (1, 2, 1)
  LOCAL r: float32[4]
  DEFINE r: float32[N, 7] = copy(x[i0, i1])
  DEFINE y: float32[N, 7] = neg(r[i0, i1])

FOR i in 0..4 UNROLL:
  IF 2*i + threadIdx.y < 7:
    r[i] = copy(x[blockIdx.x, 2*i + threadIdx.y])  ~ value r[blockIdx.x, 2*i + threadIdx.y]
FOR k in 0..8 UNROLL:
  IF 2*k + threadIdx.y < 7:
    y[blockIdx.x, 2*k + threadIdx.y] = neg(r[k])  ~ value y[blockIdx.x, 2*k + threadIdx.y]
"""
PADDED = """\
KERNEL padded(x: float32[N, 5, 5]) -> (y: float32[N, 7, 8])
  DIM N min 1
  GRID (N, 1, 1)  BLOCK (4, 1, 1)
  SHARED s: float32[2, 4, 5] align 16
  DEFINE s: float32[N, 5, 5] = copy(x[i0, i1, i2])
  DEFINE y: float32[N, 7, 8] = pick(s[i0, i1 - 2, i2] if i1 >= 2 && i2 < 5, otherwise 0.0)

FOR i in 0..2:
  FOR j in 0..5:
    IF 4*i + threadIdx.x < 5:
      s[i, threadIdx.x, j] = copy(x[blockIdx.x, 4*i + threadIdx.x, j])  ~ value s[blockIdx.x, 4*i + threadIdx.x, j]
SYNC block
FOR k in 0..7:
  FOR l in 0..2:
    y[blockIdx.x, k, 4*l + threadIdx.x] = pad(s[(k + 2)//4 - 1, (k + 2) % 4, 4*l + threadIdx.x] if k >= 2 && 4*l + threadIdx.x < 5, otherwise 0.0)\
  ~ value y[blockIdx.x, k, 4*l + threadIdx.x]
"""


@pytest.mark.parametrize("text", [ROWS, PADDED])
def test_what_no_condition_at_a_read_admits_needs_no_write(text: str) -> None:
    assert gaps(text) == []


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (ROWS, "FOR i in 0..4", "FOR i in 0..3"),
        (ROWS, "  IF 2*i + threadIdx.y < 7:", "  IF 2*i + threadIdx.y < 6:"),
        (ROWS, "  IF 2*i + threadIdx.y < 7:", "  IF 2*i < 6 && 2*i + threadIdx.y < 7:"),
        (ROWS, "neg(r[k])", "neg(r[3 - k])"),
        (PADDED, "FOR j in 0..5", "FOR j in 0..4"),
        (PADDED, "IF 4*i + threadIdx.x < 5:", "IF 4*i + threadIdx.x < 4:"),
        (PADDED, "if k >= 2 && 4*l + threadIdx.x < 5, otherwise 0.0)", "if k >= 1 && 4*l + threadIdx.x < 5, otherwise 0.0)"),
        (PADDED, "s[(k + 2)//4 - 1, (k + 2) % 4, 4*l", "s[(k + 2)//4 - 1, (k + 1) % 4, 4*l"),
    ],
)
def test_planted_faults_of_reads_under_conditions(text: str, old: str, new: str) -> None:
    assert gaps(changed(text, old, new)) != []
