"""Elements that threads touch: inside their buffer, at bytes where an access can begin."""

import numpy as np
import pytest

from taskfuse.check.refuted import Refuted
from taskfuse.check.thread_values import ThreadValues
from taskfuse.check.touched_elements import TouchedElements, places
from taskfuse.ir.scalar import parse_expr
from taskfuse.kir.nodes import Compute, Stmt
from taskfuse.kir.operands import Access
from tests.sim.kernels import kernel

KERNEL = kernel(
    "s[0, threadIdx.x] = copy(x[threadIdx.x])",
    "DIM N min 1",
    "SHARED s: float32[2, 8] align 16",
    "SHARED t: float32[4] align 128",
    "LOCAL r: float32[2]",
    inputs="x: float32[N]",
    outputs="y: float32[N]",
    block="(8, 1, 1)",
)
TOUCHED = TouchedElements(KERNEL, {"N": 8}, ThreadValues(KERNEL, {"N": 8}, (0, 0, 0)))
STMT: Stmt = KERNEL.body[0]
ALL = np.arange(8)


def access(buffer: str, *index: str) -> Access:
    return Access(buffer, tuple(map(parse_expr, index)))


def test_where_buffers_lie() -> None:
    assert isinstance(STMT, Compute)
    assert places(KERNEL, {"N": 8}) == {"x": ("x", 0, 4), "y": ("y", 0, 4), "s": ("shared", 0, 4), "t": ("shared", 128, 4), "r": ("r", 0, 4)}
    assert TOUCHED.shape("s") == (2, 8)
    assert TOUCHED.shape("x") == (8,)


def test_elements_are_row_major() -> None:
    assert TOUCHED.elements(access("s", "1", "threadIdx.x"), ALL).tolist() == list(range(8, 16))


@pytest.mark.parametrize(
    ("index", "width", "why"), [("threadIdx.x + 1", 1, "index 8 of axis 1 is outside 0..8"), ("threadIdx.x - 1", 1, "index -1"), ("threadIdx.x", 2, "index 8")]
)
def test_elements_outside(index: str, width: int, why: str) -> None:
    with pytest.raises(Refuted, match=why):
        TOUCHED.elements(access("s", "1", index), ALL, width)


def test_where_an_access_begins() -> None:
    TOUCHED.begin_at(STMT, access("s", "0", "4*(threadIdx.x // 4)"), ALL, 16)
    with pytest.raises(Refuted, match="an access begins at byte 4 of Shared memory, which is not a multiple of the 16 that it needs"):
        TOUCHED.begin_at(STMT, access("s", "0", "threadIdx.x"), ALL, 16)
