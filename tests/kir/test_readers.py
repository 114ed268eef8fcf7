"""Kernel IR alone, without the packages that read it."""

import pytest

from taskfuse import dtypes
from taskfuse.errors import UnsupportedError
from taskfuse.ir.dims import Dim
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import TRUE, const, eq, lt, sym
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import Buffer, ScalarParam, TensorParam
from taskfuse.kir.nodes import Bind, Branch, Choose, Compute, For, If
from taskfuse.kir.operands import Access, Case, Immediate, IndexOf, ScalarValue
from taskfuse.kir.synchronization import Barrier, BarrierScope

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


def _cases() -> tuple[Case, ...]:
    return Case(lt(X, 8), Access("tv2", (X,))), Case(TRUE, Immediate(0.5, dtypes.float32))


def test_kernel_ir_alone_neither_simulates_nor_proves() -> None:
    from taskfuse.kir import KirReaders

    with pytest.raises(UnsupportedError, match="simulating with kernel IR alone is not supported: the simulator is not loaded\nhelp: import taskfuse"):
        KirReaders().simulate(kernel(), (), 0, {})
    with pytest.raises(UnsupportedError, match="a proof with kernel IR alone is not supported: the checker is not loaded"):
        KirReaders().verify(kernel(), None)
