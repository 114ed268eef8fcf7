"""The instructions that others see: their kinds, and operands in one form."""

import pytest

from taskfuse.testing.ptx.events import Kind
from taskfuse.testing.ptx.happenings import happening
from taskfuse.testing.ptx.nodes import PtxError
from taskfuse.testing.ptx.operands import Happening, OperandReader
from tests.testing.ptx.entry import instruction

VALUES = {f"r__r{k}": 100 + k for k in range(9)} | {f"r__rd{k}": 200 + k for k in range(9)} | {"threads": 64}
SHARED = "mbarrier.{}.shared::cta.b64"

CASES: list[tuple[str, Kind, tuple[object, ...]]] = [
    ("griddepcontrol.wait;", Kind.STREAM_WAIT, ()),
    ("bar.sync 0;", Kind.BARRIER, (0, 64)),
    ("barrier.sync %r1, %r2;", Kind.BARRIER, (101, 102)),
    ("bar.warp.sync -1;", Kind.WARP_BARRIER, (0xFFFFFFFF,)),
    ("shfl.sync.bfly.b32 %r3|%p1, %r1, 16, 31, -1;", Kind.SHUFFLE, ("bfly", 16, 31, 0xFFFFFFFF)),
    ("shfl.sync.down.b32 %r3|%p1, %r1, %r2, 31, %r4;", Kind.FROM_ABOVE, ("down", 102, 31, 104)),
    ("shfl.sync.idx.b32 %r3|%p1, %r1, 0, 31, -1;", Kind.AGREED, (101, 0, 31, 0xFFFFFFFF)),
    ("activemask.b32 %r3;", Kind.ACTIVE, ()),
    ("match.all.sync.b32 %r3|%p1, %r1, %r2;", Kind.MATCH, ("all", 102)),
    ("match.any.sync.b32 %r3, %r1, %r2;", Kind.MATCH, ("any", 102)),
    ("vote.sync.ballot.b32 %r3, %p1, %r2;", Kind.BALLOT, (102,)),
    ("barrier.cluster.arrive.release;", Kind.CLUSTER_ARRIVE, ("release",)),
    ("barrier.cluster.wait.acquire;", Kind.CLUSTER_WAIT, ("acquire",)),
    ("mbarrier.init.shared::cta.b64 [%r1], %r2;", Kind.INIT, (101, 102)),
    ("mbarrier.arrive.shared::cta.b64 %rd1, [%r1];", Kind.ARRIVE, ("release cta shared::cta", 101, 1)),
    ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1], 2;", Kind.ARRIVE, ("release cluster shared::cluster", 101, 2)),
    ("mbarrier.arrive.expect_tx.shared::cta.b64 %rd1, [%r1], %r2;", Kind.EXPECT, ("release cta shared::cta", 101, 102)),
    ("mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;", Kind.WAIT, ("acquire cta shared::cta", 101, 102)),
    ("cp.async.ca.shared.global [%r1], [%rd1], 4;", Kind.COPY, (101, 201, 4, 4)),
    ("cp.async.cg.shared.global [%r1], [%rd1], 16, %r2;", Kind.COPY, (101, 201, 16, 102)),
    ("cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];", Kind.COPY_ARRIVE, ("noinc.shared", 101)),
    ("cp.async.commit_group;", Kind.COPY_COMMIT, ()),
    ("cp.async.wait_group 2;", Kind.COPY_WAIT, (2,)),
    ("cp.async.wait_all;", Kind.COPY_WAIT, (0,)),
    (
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];",
        Kind.BULK_LOAD,
        (101, 201, 104, 102, 103),
    ),
    (
        "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%rd1, {%r2}], [%r4], %r5;",
        Kind.MULTICAST,
        (101, 201, 104, 105, 102),
    ),
    ("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%r2}], [%r1];", Kind.BULK_STORE, (201, 101, 102)),
    ("cp.async.bulk.commit_group;", Kind.BULK_COMMIT, ()),
    ("cp.async.bulk.wait_group 1;", Kind.BULK_WAIT, (1,)),
    ("cp.async.bulk.wait_group.read 0;", Kind.BULK_WAIT_READ, (0,)),
    ("wgmma.fence.sync.aligned;", Kind.WGMMA_FENCE, ()),
    ("wgmma.commit_group.sync.aligned;", Kind.WGMMA_COMMIT, ()),
    ("wgmma.wait_group.sync.aligned 1;", Kind.WGMMA_WAIT, (1,)),
    (
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1, %r2, %r3, %r4}, %rd1, %rd2, 1, 1, 1, 0, 0;",
        Kind.WGMMA,
        ("m64n8k16.f32.bf16.bf16", 4, 201, 202, 1, 1, 1, 0, 0),
    ),
    (
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1}, {%r5, %r6}, %rd2, 1, 1, 1, 0;",
        Kind.WGMMA,
        ("m64n8k16.f32.bf16.bf16", 1, -1, 202, 1, 1, 1, 0),
    ),
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r1}, {%r2}, {%r3}, {%r4};", Kind.MMA, ("m16n8k16.row.col.f32.bf16.bf16.f32",)),
    ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];", Kind.LOAD_MATRIX, ("m8n8.x4.shared.b16", 105)),
    ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5], {%r1};", Kind.STORE_MATRIX, ("m8n8.x1.shared.b16", 105)),
    ("setmaxnreg.dec.sync.aligned.u32 40;", Kind.REGISTERS, ("dec", 40)),
    ("fence.proxy.async.shared::cta;", Kind.FENCE, ("proxy.async.shared::cta",)),
    ("membar.gl;", Kind.FENCE, ("sc.gpu",)),
    ("red.relaxed.gpu.global.add.f32 [%rd1], %r2;", Kind.UPDATE, ("add", 1, 201)),
    ("red.relaxed.gpu.global.add.v4.f32 [%rd1], {%r2, %r3, %r4, %r5};", Kind.UPDATE, ("add", 4, 201)),
    (
        "cp.reduce.async.bulk.tensor.1d.global.shared::cta.min.tile.bulk_group [%rd1, {%r2}], [%r1];",
        Kind.BULK_UPDATE,
        ("min", 201, 101, 102),
    ),
    ("red.release.gpu.global.add.u64 [%rd1], %rd2;", Kind.RELEASE, ("release.gpu.global.add.u64", 201, 202)),
    ("ld.acquire.gpu.global.u64 %rd1, [%rd2];", Kind.ACQUIRE, ("gpu.global.u64", 202)),
    ("atom.global.add.u64 %rd1, [%rd2], 1;", Kind.COUNT, ("global.add.u64", 202, 1)),
    ("st.release.cta.shared::cta.s32 [%r1], %r2;", Kind.PUBLISH, ("cta.shared::cta.s32", 101)),
    (
        "atom.acq_rel.cta.shared::cta.cas.b32 %r3, [%r1], -1, -2;",
        Kind.EXCHANGE,
        ("acq_rel.cta.shared::cta.cas.b32", 101, 0xFFFFFFFF),
    ),
]


def of(line: str) -> Happening | None:
    return happening(OperandReader(instruction(line)))


@pytest.mark.parametrize(("line", "kind", "operands"), CASES, ids=[c[0].split(" ")[0] for c in CASES])
def test_kinds_and_operands(line: str, kind: Kind, operands: tuple[object, ...]) -> None:
    found = of(line)
    assert found is not None
    assert found.kind is kind
    assert tuple(eval(o, VALUES) for o in found.operands) == operands


def test_every_kind_has_an_instruction() -> None:
    assert {kind for _, kind, _ in CASES} == set(Kind)


def test_results_and_what_is_lost() -> None:
    wait = of("mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;")
    assert wait is not None
    assert wait.out is not None
    assert wait.out.name == "%p1"
    assert wait.reads == {"r__r1", "r__r2"}
    product = of("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r1, %r2}, {%r3}, {%r4}, {%r1};")
    assert product is not None
    assert [r.name for r in product.lost] == ["%r1", "%r2"]


@pytest.mark.parametrize("line", ["add.s32 %r3, %r1, 1;", "ld.global.u32 %r3, [%rd1];", "st.shared.u32 [%r1], %r2;", "mov.u32 %r3, 1;"])
def test_what_nobody_sees(line: str) -> None:
    assert of(line) is None


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("mbarrier.inval.shared.b64 [%r1];", "an instruction that is not known"),
        ("cp.async.bulk.prefetch.L2 [%rd1];", "a copy that is not known"),
        ("mbarrier.arrive.odd.shared::cta.b64 %rd1, [%r1];", "a modifier that is not known"),
        ("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%rd1, {%r2}], [%r1];", "coordinates that do not fit its rank"),
        ("vote.sync.any.pred %p1, %p2, -1;", "an instruction that is not known"),
    ],
)
def test_what_is_not_known_is_refused(line: str, text: str) -> None:
    with pytest.raises(PtxError, match=f"PTX line 17: .*: {text}"):
        of(line)
