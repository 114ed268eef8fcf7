"""The printed form: what golden files and users see."""

from pathlib import Path

import pytest

from taskfuse import dtypes
from taskfuse.ir.dims import Dim
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import TRUE, const, eq, lt, sym
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.kir import Kernel, parse_kernel, stmt_text, to_text, walk
from taskfuse.kir.declarations import Buffer, ScalarParam, TensorParam
from taskfuse.kir.nodes import Bind, Branch, Choose, Compute, For, If
from taskfuse.kir.operands import Access, ChoiceCase, Immediate, IndexOf, ScalarValue
from taskfuse.kir.synchronization import Barrier, BarrierScope

KERNELS = sorted((Path(__file__).parent.parent / "kernels").glob("*.kir"))
ONE = const(1)
X, N = sym("threadIdx.x"), sym("N")


def kernel() -> Kernel:
    tv1 = Access("tv1", ())
    row = (sym("blockIdx.x"), X)
    return Kernel(
        name="nest",
        extents=(Dim("N", min=1, max=1024, multiple_of=4), Dim("T", 0)),
        params=(
            TensorParam("tv0", dtypes.float32, (N, sym("T")), is_output=False),
            ScalarParam("alpha", dtypes.float32),
            TensorParam("tv9", dtypes.float16, (N, sym("T")), is_output=True),
        ),
        grid=(N, ONE, ONE),
        block=(sym("T"), ONE, const(2)),
        buffers=(
            Buffer("tv1", dtypes.float32, MemoryType.Local, (), 4),
            Buffer("tv2", dtypes.float32, MemoryType.Shared, (sym("T"),), 16, const(0)),
        ),
        mbarriers=(),
        counters=(),
        body=(
            Bind(
                sym("blockIdx.x"),
                ParallelType.BIDx,
                N,
                (
                    If(
                        (
                            Branch(
                                eq(sym("threadIdx.z"), 0),
                                (
                                    Compute(tv1, ELEMENTWISE["sin"], (Access("tv0", row),), dtypes.float32),
                                    Compute(Access("tv2", (X,)), ELEMENTWISE["fma"], (tv1, ScalarValue("alpha"), IndexOf(X)), dtypes.float64),
                                ),
                                "t1",
                            ),
                            Branch(TRUE, ()),
                        )
                    ),
                    Barrier(BarrierScope.BLOCK, 2 * sym("T"), note="before the cat"),
                    For("i0", const(0), N, const(4), True, (Choose(Access("tv9", row), "cat", _cases()),)),
                ),
            ),
        ),
    )


def _cases() -> tuple[ChoiceCase, ...]:
    return ChoiceCase(lt(X, 8), Access("tv2", (X,))), ChoiceCase(TRUE, Immediate(0.5, dtypes.float32))


TEXT = """\
KERNEL nest(tv0: float32[N, T], alpha: float32) -> (tv9: float16[N, T])
  DIM N multiple_of 4 min 1 max 1024, T
  GRID (N, 1, 1)  BLOCK (T, 1, 2)
  LOCAL tv1: float32[]
  SHARED tv2: float32[T] align 16 @ 0

FOR blockIdx.x in BIDx{N}:
  IF threadIdx.z == 0:  # t1
    tv1 = sin(tv0[blockIdx.x, threadIdx.x])
    tv2[threadIdx.x] = fma.float64(tv1, alpha, index(threadIdx.x))
  ELSE:
    PASS
  SYNC block  # before the cat
  FOR i0 in 0..N step 4 UNROLL:
    tv9[blockIdx.x, threadIdx.x] = cat(tv2[threadIdx.x] if threadIdx.x < 8, otherwise 0.5:float32)"""


def test_text_of_a_kernel() -> None:
    assert to_text(kernel()) == TEXT
    assert str(kernel()) == TEXT
    assert parse_kernel(TEXT) == kernel()


def test_stmt_text_is_the_line_without_comment() -> None:
    lines = [stmt_text(s, kernel()) for s in walk(kernel())]
    assert lines[:3] == ["FOR blockIdx.x in BIDx{N}:", "IF threadIdx.z == 0:", "tv1 = sin(tv0[blockIdx.x, threadIdx.x])"]
    assert lines[4] == "SYNC block"


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_texts_written_by_hand_round_trip(path: Path) -> None:
    found = parse_kernel(path.read_text())
    found.check_ir()
    assert parse_kernel(to_text(found)) == found
