"""parse(print(kernel)) == kernel, for random kernels over all kinds of nodes."""

import pickle
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskfuse.dtypes import DTYPES, bfloat16, bool_, float16, float32, int64
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.dims import Dim
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import TRUE, Expr, and_, const, eq, le, lt, ne, not_, or_, select, sym, table, xor
from taskfuse.ir.shared_layouts import Major
from taskfuse.ir.types import INDEX_TYPES, MemoryType
from taskfuse.kir import Kernel, parse_kernel, to_text, verify_kernel
from taskfuse.kir.declarations import Buffer, Counter, Mbarrier, ScalarParam, TensorMapParam, TensorParam
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Bind, Branch, Choose, Compute, For, GatherCopy, If, Stmt, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Access, BarrierSlot, ChoiceCase, Descriptor, GatherValue, Immediate, IndexOf, Queue, ScalarValue
from taskfuse.kir.products import LdMatrix, Mma, Shuffle, StMatrix, Wgmma
from taskfuse.kir.synchronization import (
    Advance,
    Arrive,
    ArriveAsync,
    Barrier,
    BarrierScope,
    Commit,
    CursorInit,
    Expect,
    FenceInit,
    FenceProxyAsync,
    InitBarrier,
    SetMaxNReg,
    Wait,
    WaitGroup,
    WgmmaFence,
)

SYMBOLS = st.sampled_from(["N", "S", "i0", "i1", "threadIdx.x", "blockIdx.y", "p.slot", "p.parity"]).map(sym)
INTEGERS = st.integers(-300, 300)


def _grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    pairs = st.tuples(inner, inner)
    return st.one_of(
        pairs.map(lambda p: p[0] + p[1]),
        pairs.map(lambda p: p[0] - p[1]),
        st.tuples(inner, st.integers(-9, 9)).map(lambda p: p[0] * p[1]),
        st.tuples(inner, st.integers(1, 64)).map(lambda p: p[0] // p[1]),
        st.tuples(inner, st.integers(1, 64)).map(lambda p: p[0] % p[1]),
        pairs.map(lambda p: xor(p[0], p[1])),
        pairs.map(lambda p: select(lt(p[0], p[1]), p[0], p[1])),
        inner.map(lambda e: table([3, 1, 2], e)),
    )


EXPRS = st.recursive(SYMBOLS | INTEGERS.map(const), _grow, max_leaves=4)
COMPARISONS = st.tuples(st.sampled_from([lt, le, eq, ne]), EXPRS, EXPRS).map(lambda c: c[0](c[1], c[2]))
CONDITIONS = st.one_of(COMPARISONS, st.just(TRUE), st.lists(COMPARISONS, min_size=2, max_size=3).map(lambda c: or_(and_(c[0], c[1]), not_(c[-1]))))

LOCAL_SCALAR, LOCAL, SHARED, GLOBAL = "tv1", "acc", "tv5", "ws"
DECLARED = {"tv0": 2, "tv9": 0, LOCAL_SCALAR: 0, LOCAL: 1, SHARED: 3, GLOBAL: 1}


@st.composite
def accesses(draw: st.DrawFn) -> Access:
    name = draw(st.sampled_from(sorted(DECLARED)))
    return Access(name, tuple(draw(EXPRS) for _ in range(DECLARED[name])))


FLOAT_VALUES = st.floats(width=64, allow_nan=True, allow_infinity=True)
IMMEDIATES = st.one_of(
    st.builds(Immediate, FLOAT_VALUES, st.sampled_from([float32, float16, bfloat16])),
    st.builds(Immediate, st.integers(-(2**63), 2**63 - 1), st.just(int64)),
    st.builds(Immediate, st.booleans(), st.just(bool_)),
)
OPERANDS = st.one_of(accesses(), IMMEDIATES, st.just(ScalarValue("alpha")), st.builds(IndexOf, EXPRS))
SLOTS = st.builds(BarrierSlot, st.sampled_from(["full0", "empty0"]), EXPRS)
DESCRIPTORS = st.builds(Descriptor, accesses(), EXPRS, st.sampled_from([0, 32, 64, 128]), st.integers(0, 4096), st.integers(0, 4096), st.sampled_from(Major))
COORDS = st.lists(EXPRS, min_size=1, max_size=3).map(tuple)
DTYPE = st.sampled_from(sorted(DTYPES)).map(DTYPES.__getitem__)


@st.composite
def computes(draw: st.DrawFn) -> Compute:
    op = ELEMENTWISE[draw(st.sampled_from(["copy", "sin", "add", "fma", "where", "lt"]))]
    return Compute(draw(accesses()), op, tuple(draw(OPERANDS) for _ in range(op.arity)), draw(DTYPE))


BARRIERS = st.one_of(
    st.builds(Barrier, st.sampled_from([BarrierScope.BLOCK, BarrierScope.WARP]), EXPRS),
    st.just(Barrier(BarrierScope.BLOCK, 64 * sym("S"), note="all")),
    st.just(Barrier(BarrierScope.WARP, const(32))),
    st.builds(Barrier, st.just(BarrierScope.NAMED), EXPRS, EXPRS),
    st.builds(Barrier, st.just(BarrierScope.GRID), EXPRS, st.none(), st.just("c0")),
)
SIMPLE: st.SearchStrategy[Stmt] = st.one_of(
    computes(),
    st.builds(
        Choose,
        accesses(),
        st.sampled_from(["cat", "pad", "fma.float32"]),
        st.lists(st.builds(ChoiceCase, CONDITIONS, OPERANDS), min_size=1, max_size=3).map(tuple),
    ),
    st.builds(VectorCopy, accesses(), accesses(), st.sampled_from([2, 4])),
    st.builds(AsyncCopy, accesses(), accesses(), st.sampled_from([1, 2, 4]), st.just(TRUE) | CONDITIONS),
    st.builds(
        GatherCopy,
        accesses(),
        accesses(),
        st.lists(st.builds(GatherValue, st.sampled_from(["v0", "tv1.v0"]), accesses(), EXPRS), min_size=1, max_size=2).map(tuple),
    ),
    BARRIERS,
    st.builds(InitBarrier, SLOTS, EXPRS),
    st.sampled_from([FenceInit(), WgmmaFence(), FenceProxyAsync(), FenceProxyAsync(MemoryType.Global)]),
    st.builds(Arrive, SLOTS),
    st.builds(ArriveAsync, SLOTS),
    st.builds(Expect, SLOTS, EXPRS),
    st.builds(Wait, SLOTS, EXPRS),
    st.builds(CursorInit, st.sampled_from(["p", "ch0.c"]), st.integers(1, 4), st.integers(0, 3), st.integers(0, 1)),
    st.builds(Advance, st.sampled_from(["p", "ch0.c"]), EXPRS),
    st.builds(TmaLoad, accesses(), st.just("map0"), COORDS, SLOTS),
    st.builds(TmaStore, st.just("map0"), COORDS, accesses(), st.none() | st.sampled_from([COMBINES["add"], COMBINES["bitwise_xor"]])),
    st.builds(
        AtomicUpdate,
        accesses(),
        st.sampled_from([COMBINES["add"], COMBINES["maximum"]]),
        accesses(),
        st.lists(st.builds(GatherValue, st.sampled_from(["v0", "tv1.v0"]), accesses(), EXPRS), max_size=2).map(tuple),
        st.sampled_from([1, 2, 4]),
    ),
    st.builds(Commit, st.sampled_from(Queue)),
    st.builds(WaitGroup, st.sampled_from(Queue), st.integers(0, 7), st.booleans()),
    st.builds(
        Wgmma,
        st.integers(1, 32).map(lambda n: 8 * n),
        st.just(16),
        accesses(),
        DESCRIPTORS | accesses(),
        DESCRIPTORS,
        CONDITIONS,
        DTYPE,
        st.none() | DTYPE,
    ),
    st.builds(Mma, st.sampled_from([8, 16, 32]), accesses(), accesses(), accesses(), DTYPE, st.none() | DTYPE),
    st.builds(LdMatrix, accesses(), accesses(), st.sampled_from([1, 2, 4]), st.booleans()),
    st.builds(StMatrix, accesses(), accesses(), st.sampled_from([1, 2, 4]), st.booleans()),
    st.builds(Shuffle, accesses(), accesses(), st.sampled_from([1, 16])),
    st.builds(SetMaxNReg, st.integers(24, 256)),
)
LABELS = st.none() | st.sampled_from(["t1", "group1: a, b", "role #2"])


def _nest(inner: st.SearchStrategy[tuple[Stmt, ...]]) -> st.SearchStrategy[tuple[Stmt, ...]]:
    loops = st.builds(For, st.sampled_from(["i0", "i1", "k.o"]), EXPRS, EXPRS, st.just(const(1)) | EXPRS, st.booleans(), inner)
    binds = st.builds(Bind, EXPRS, st.sampled_from(INDEX_TYPES), EXPRS, inner)
    branches = st.builds(Branch, CONDITIONS, inner, LABELS)
    ifs = st.lists(branches, min_size=1, max_size=3).map(lambda b: If(tuple(b)))
    return st.lists(st.one_of(loops, binds, ifs, SIMPLE), max_size=3).map(tuple)


BODIES = st.recursive(st.lists(SIMPLE, max_size=3).map(tuple), _nest, max_leaves=6)


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    extents = (Dim("N", *draw(st.sampled_from([(0, None, 1), (1, None, 4), (0, 64, 1)]))), Dim("S", 0))
    params = (
        TensorParam("tv0", float32, (sym("N"), 4 * sym("S")), is_output=False),
        ScalarParam("alpha", draw(DTYPE)),
        TensorParam("tv9", draw(DTYPE), (), is_output=True),
        TensorMapParam(
            "map0", "tv0", tuple(draw(st.lists(st.integers(1, 256), max_size=5))), draw(st.sampled_from([0, 32, 64, 128])), draw(st.sampled_from([(), (2, 1)]))
        ),
    )
    buffers = (
        Buffer(LOCAL_SCALAR, draw(DTYPE), MemoryType.Local, (), draw(st.sampled_from([1, 4, 8]))),
        Buffer(LOCAL, float32, MemoryType.Local, (const(64),), 4),
        Buffer(SHARED, bfloat16, MemoryType.Shared, (const(2), sym("S"), const(64)), 1024, draw(st.none() | EXPRS)),
        Buffer(GLOBAL, float32, MemoryType.Global, (sym("N"),), 4),
    )
    return Kernel(
        name=draw(st.sampled_from(["k", "cat.main"])),
        extents=extents,
        params=params,
        grid=(draw(EXPRS), const(1), draw(EXPRS)),
        block=(const(32), 2 * sym("S"), const(1)),
        buffers=buffers,
        mbarriers=(Mbarrier("full0", draw(st.integers(1, 4))), Mbarrier("empty0", 1)),
        counters=(Counter("c0"),),
        body=draw(BODIES),
        cluster=draw(st.sampled_from([(const(1), const(1), const(1)), (const(2), const(1), const(1))])),
    )


@given(kernels())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_parse_inverts_print(kernel: Kernel) -> None:
    text = to_text(kernel)
    found = parse_kernel(text)
    assert found == kernel
    assert to_text(found) == text


def test_a_pickled_kernel_is_the_same() -> None:
    kernel = parse_kernel((Path(__file__).parents[1] / "kernels" / "gemm.kir").read_text())
    again = pickle.loads(pickle.dumps(kernel))
    assert again == kernel
    verify_kernel(again)
