"""ReadPlaces: a search that a table holds becomes a read, if its key is among the table's; all of them or none."""

import pytest

from taskfuse.kir import parse_kernel
from taskfuse.passes.read_places import ReadPlaces

HEAD = """\
KERNEL k(x: float32[4], t: int32[5], p: int32[12] = upper_bound(t[k of 5]//8, i0, 0, 64)) -> (y: float32[64])
  GRID (1, 1, 1)  BLOCK (64, 1, 1)

"""


def found(key: str, *, body: str = "y[threadIdx.x] = copy(x[{}])", divisor: str = "//8") -> str:
    kernel = parse_kernel(HEAD + body.format(f"upper_bound(t[k of 5]{divisor}, {key}, 0, 64)") + "\n")
    return str(ReadPlaces().run(kernel)).split("\n\n", 1)[1].strip()


def test_a_key_that_the_table_has() -> None:
    assert found("threadIdx.x//6") == "y[threadIdx.x] = copy(x[clamp(p[threadIdx.x//6 of 12], 0, 3)])"
    loop = "FOR i in 0..12:\n  y[i] = copy(x[{}])"
    assert found("i", body=loop) == loop.format("clamp(p[i of 12], 0, 3)")


@pytest.mark.parametrize(("key", "divisor"), [("threadIdx.x", "//8"), ("threadIdx.x//6 - 1", "//8"), ("threadIdx.x//6", "")])
def test_a_key_that_it_may_not_have_or_another_search(key: str, divisor: str) -> None:
    assert "upper_bound" in found(key, divisor=divisor)


def test_all_or_none() -> None:
    """Two loops of one name are two ranges."""
    both = "FOR i in 0..12:\n  y[i] = copy(x[{0}])\nFOR i in 0..13:\n  y[i] = copy(x[{0}])"
    assert found("i", body=both).count("upper_bound") == 2


def test_nothing_without_such_a_table() -> None:
    kernel = parse_kernel(HEAD.replace(" = upper_bound(t[k of 5]//8, i0, 0, 64)", "") + "y[threadIdx.x] = copy(x[upper_bound(t[k of 5], 0, 0, 64)])\n")
    assert ReadPlaces().run(kernel) is kernel
