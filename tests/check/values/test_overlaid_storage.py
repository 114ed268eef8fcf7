"""Buffers that share bytes: uses of one that destroy what the other holds."""

import pytest

from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.values.claims import Place
from taskfuse.check.values.overlaid_storage import OverlaidStorage
from taskfuse.check.values.solve import Open
from taskfuse.kir import parse_kernel

TEXT = """\
KERNEL k(x: float32[32]) -> (y: float32[32])
  GRID (2, 1, 1)  BLOCK (32, 1, 1)
  SHARED a: float32[32] align 16 @ 0
  SHARED b: float32[32] align 16 @ {place}

a[threadIdx.x] = copy(x[threadIdx.x])
FOR k in 0..4:
  {body}
y[threadIdx.x] = copy(a[threadIdx.x])
"""


def storage(body: str, place: int = 0) -> tuple[OverlaidStorage, StatementTree]:
    tree = StatementTree.of(parse_kernel(TEXT.format(body=body, place=place)))
    return OverlaidStorage(tree), tree


@pytest.mark.parametrize(("place", "shared"), [(0, ["b"]), (64, ["b"]), (128, [])])
def test_buffers_that_have_bytes_in_common(place: int, shared: list[str]) -> None:
    found, tree = storage("b[threadIdx.x] = copy(x[threadIdx.x])", place)
    assert found.shared_with("a") == shared
    want = Place(tree.leaves()[-1], "a", (), "x", ())
    if not shared:
        found.clear(want)
        return
    with pytest.raises(Open, match="b lies on the storage of a, and is used between"):
        found.clear(want)


def test_an_iteration_keeps_what_no_other_buffer_touches() -> None:
    found, tree = storage("b[threadIdx.x] = copy(x[threadIdx.x])")
    written = tree.leaves()[1]
    with pytest.raises(Open, match="b lies on the storage of a, and is used in an iteration between"):
        found.keeps(Place(tree.leaves()[-1], "a", (), "x", ()), written.loops[0])
    found, tree = storage("a[threadIdx.x] = copy(x[threadIdx.x])")
    found.keeps(Place(tree.leaves()[-1], "a", (), "x", ()), tree.leaves()[1].loops[0])


def test_nothing_else_uses_the_storage_of_accumulators() -> None:
    found, _ = storage("b[threadIdx.x] = copy(x[threadIdx.x])")
    with pytest.raises(Open, match="b lies on the storage of a, and is used between"):
        found.alone("a")
    found.alone("b")  # one iteration alone is asked about
    storage("b[threadIdx.x] = copy(x[threadIdx.x])", 128)[0].alone("a")


def test_blocks_that_take_other_arms_have_storage_of_their_own() -> None:
    text = TEXT.split("a[threadIdx.x]", 1)[0].format(place=0)
    text += "IF blockIdx.x == 0:\n  a[threadIdx.x] = copy(x[threadIdx.x])\nELSE:\n  b[threadIdx.x] = copy(x[threadIdx.x])\n"
    assert OverlaidStorage(StatementTree.of(parse_kernel(text))).shared_with("a") == []
    assert OverlaidStorage(StatementTree.of(parse_kernel(text.replace("blockIdx", "threadIdx")))).shared_with("a") == ["b"]
