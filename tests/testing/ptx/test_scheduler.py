"""Threads that wait for each other: barriers, exchanges, mbarriers, counters, and threads that wait for ever."""

from __future__ import annotations

import pytest

from taskfuse.testing.ptx.launch import SHARED_AT, TENSORS_AT
from taskfuse.testing.ptx.machine import data_machine
from taskfuse.testing.ptx.nodes import PtxError
from taskfuse.testing.ptx.scheduler import PtxScheduler
from taskfuse.testing.ptx.storage import ALLOCATION, Storage
from taskfuse.testing.ptx.text import read
from taskfuse.testing.ptx.threads import PtxBlock, PtxCluster, PtxThread, PtxWarp
from tests.testing.ptx.entry import TEXT

RESULT = "mad.lo.s32 %r5, %r1, 4, 0; cvt.u64.u32 %rd2, %r5; add.s64 %rd2, %rd2, %rd9; st.global.u32 [%rd2], %r9;\n"
START = f"mov.u64 %rd9, {TENSORS_AT};\n"


def results(body: str, count: int = 32, blocks: int = 1, seed: int = 0) -> list[int]:
    """What register %r9 of each thread of each block holds at the end: %r1 is its number over all blocks, %r2 in its block."""
    program = data_machine(read(TEXT.replace("BODY", START + body + RESULT)))
    memory = {TENSORS_AT >> ALLOCATION: bytearray(4096)}
    threads: list[PtxThread] = []
    cluster = PtxCluster()
    shared = [bytearray(SHARED_AT + 256) for _ in range(blocks)]
    for b in range(blocks):
        block = PtxBlock(cluster)
        cluster.blocks.append(block)
        warps = [PtxWarp() for _ in range(-(-count // 32))]
        for n in range(count):
            special = {f"{name}.{d}": 1 for name in ("ntid", "ctaid") for d in "xyz"} | {"tid.x": b * count + n, "tid.y": n, "ntid.x": count}
            storage = Storage(memory, shared[b], shared, bytearray())
            warps[n // 32].live |= 1 << n % 32
            threads.append(PtxThread(program.thread(special, {"shared": SHARED_AT}, storage), block, warps[n // 32], n, storage, f"thread {n}"))
    cluster.threads = len(threads)
    PtxScheduler(program.code, {}, seed).run(threads)
    found = memory[TENSORS_AT >> ALLOCATION]
    return [int.from_bytes(found[4 * k : 4 * k + 4], "little") for k in range(count * blocks)]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("shfl.sync.bfly.b32 %r9|%p1, %r1, 5, 31, -1;", [k ^ 5 for k in range(32)]),
        ("shfl.sync.up.b32 %r9|%p1, %r1, 3, 0, -1;", [max(k - 3, 0) if k >= 3 else k for k in range(32)]),
        ("shfl.sync.down.b32 %r9|%p1, %r1, 2, 31, -1;", [k + 2 if k < 30 else k for k in range(32)]),
        ("shfl.sync.idx.b32 %r9|%p1, %r1, 9, 31, -1;", [9] * 32),
        ("shfl.sync.bfly.b32 %r9|%p1, %r1, 1, 0x1C1F, -1;", [k ^ 1 for k in range(32)]),
        ("setp.gt.s32 %p1, %r1, 29; vote.sync.ballot.b32 %r9, %p1, -1;", [3 << 30] * 32),
        ("match.all.sync.b32 %r9|%p1, 5, -1;", [0xFFFFFFFF] * 32),
        ("match.all.sync.b32 %r9|%p1, %r1, -1;", [0] * 32),
        ("and.b32 %r3, %r1, 1; match.any.sync.b32 %r9, %r3, -1;", [0x55555555, 0xAAAAAAAA] * 16),
        ("activemask.b32 %r9;", [0xFFFFFFFF] * 32),
        ("setp.lt.s32 %p1, %r1, 4; mov.u32 %r9, 7; @%p1 activemask.b32 %r9;", [15] * 4 + [7] * 28),
    ],
)
def test_exchanges_in_a_warp(line: str, wanted: list[int]) -> None:
    assert results(line + "\n") == wanted


def test_some_lanes_exchange() -> None:
    found = results("setp.lt.s32 %p1, %r1, 16; @!%p1 bra $A; shfl.sync.bfly.b32 %r9, %r1, 1, 31, 0xFFFF; bra $B;\n$A:\nmov.u32 %r9, 99;\n$B:\n")
    assert found == [k ^ 1 for k in range(16)] + [99] * 16
    assert results("shfl.sync.bfly.b32 %r9, %r1, 1, 31, -1;\n", count=8) == [k ^ 1 for k in range(8)]  # no other lane exists


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_barriers(seed: int) -> None:
    body = "mov.u32 %r7, shared; mad.lo.s32 %r6, %r2, 4, %r7; st.shared.u32 [%r6], %r1; bar.sync 0; xor.b32 %r8, %r2, 33; mad.lo.s32 %r6, %r8, 4, %r7;\n"
    assert results(body + "ld.shared.u32 %r9, [%r6];\n", count=64, seed=seed) == [k ^ 33 for k in range(64)]


def test_mbarriers() -> None:
    body = """\
mov.u32 %r7, shared;
setp.ne.s32 %p1, %r2, 0;
@!%p1 mbarrier.init.shared::cta.b64 [%r7+128], 31;
bar.sync 0;
mov.u32 %r9, 5;
@!%p1 bra $A;
@%p1 mbarrier.arrive.shared::cta.b64 %rd1, [%r7+128];
bra $B;
$A:
{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%r7+128], 0; selp.u32 %r4, 1, 0, p; }
setp.eq.s32 %p2, %r4, 0;
@%p2 bra $A;
mov.u32 %r9, 6;
$B:
"""
    assert results(body) == [6] + [5] * 31
    with pytest.raises(PtxError, match="1 threads wait for ever: thread 0 in WAIT"):
        results(body.replace("], 31;", "], 32;"))
    with pytest.raises(PtxError, match="more arrivals at an mbarrier than it counts"):
        results(body.replace("%rd1, [%r7+128];", "%rd1, [%r7+128], 32;"))
    with pytest.raises(PtxError, match="no mbarrier was initialized"):
        results(body.replace("init.shared::cta.b64 [%r7+128]", "init.shared::cta.b64 [%r7+136]"))


def test_counters_across_blocks() -> None:
    body = f"""\
mov.u64 %rd3, {TENSORS_AT + 2048};
setp.lt.s32 %p1, %r1, 32;
@%p1 bra $A;
red.release.gpu.global.add.u64 [%rd3], 1;
bra $B;
$A:
ld.acquire.gpu.global.u64 %rd4, [%rd3];
setp.lt.u64 %p2, %rd4, LEAST;
@%p2 bra $A;
$B:
atom.global.add.u64 %rd5, [%rd3], 1;
setp.gt.u64 %p3, %rd5, 31;
selp.u32 %r9, 1, 0, %p3;
"""
    assert results(body.replace("LEAST", "32"), blocks=2)[:32] == [1] * 32
    with pytest.raises(PtxError, match=r"32 threads wait for ever: .* in ACQUIRE"):
        results(body.replace("LEAST", "65"), blocks=2)


@pytest.mark.parametrize("seed", [0, 3])
def test_one_lane_publishes_what_others_wait_for(seed: int) -> None:
    body = """\
mov.u32 %r7, shared;
setp.eq.s32 %p1, %r2, 0;
@%p1 st.shared.u32 [%r7], -1;
bar.sync 0;
atom.acq_rel.cta.shared::cta.cas.b32 %r9, [%r7], -1, -2;
setp.ne.s32 %p2, %r9, -1;
@%p2 bra $A;
st.release.cta.shared::cta.s32 [%r7], 77;
mov.u32 %r9, 77;
$A:
setp.ne.s32 %p3, %r9, -2;
@%p3 bra $B;
ld.acquire.cta.shared::cta.s32 %r9, [%r7];
bra $A;
$B:
"""
    assert results(body, seed=seed) == [77] * 32
    with pytest.raises(PtxError, match=r"31 threads wait for ever: .* in ACQUIRE"):
        results(body.replace("st.release.cta.shared::cta.s32 [%r7], 77;", ""), seed=seed)


def test_barriers_and_memory_of_a_cluster() -> None:
    body = """\
mov.u32 %r7, shared;
mad.lo.s32 %r6, %r2, 4, %r7;
st.shared.u32 [%r6], %r1;
barrier.cluster.arrive.release;
barrier.cluster.wait.acquire;
mapa.shared::cluster.u32 %r8, %r6, 1;
ld.shared::cluster.u32 %r9, [%r8];
"""
    assert results(body, blocks=2) == [*range(32, 64)] * 2
    generic = body.replace("mapa.shared::cluster.u32 %r8, %r6, 1;", "cvt.u64.u32 %rd3, %r6; cvta.shared.u64 %rd4, %rd3; mapa.u64 %rd5, %rd4, 1;")
    assert results(generic.replace("ld.shared::cluster.u32 %r9, [%r8]", "ld.u32 %r9, [%rd5]"), blocks=2) == [*range(32, 64)] * 2
    with pytest.raises(PtxError, match=r"64 threads wait for ever: .* CLUSTER_WAIT"):
        results(body.replace("barrier.cluster.arrive.release;", ""), blocks=2)


@pytest.mark.parametrize(
    ("line", "before", "wanted"),
    [
        ("red.relaxed.gpu.global.add.f32 [%rd3], 0f3F800000;", 0, 0x42000000),
        ("red.relaxed.gpu.global.max.s32 [%rd3], %r1;", 0xFFFFFFFF, 31),
        ("red.relaxed.gpu.global.min.u32 [%rd3], %r1;", 0xFFFFFFFF, 0),
        ("red.relaxed.gpu.global.or.b32 [%rd3], %r1;", 0, 31),
        ("red.relaxed.gpu.global.xor.b32 [%rd3], %r1;", 0, 0),
        ("red.relaxed.gpu.global.add.noftz.bf16x2 [%rd3], 0x3F804000;", 0, 0x42004280),
    ],
)
def test_updates(line: str, before: int, wanted: int) -> None:
    body = f"mov.u64 %rd3, {TENSORS_AT + 2048}; setp.eq.s32 %p1, %r1, 0; @%p1 st.global.u32 [%rd3], {before}; bar.sync 0;\n"
    assert results(f"{body}{line}\nbar.sync 0; ld.global.u32 %r9, [%rd3];\n") == [wanted] * 32


def test_copies() -> None:
    body = f"""\
mov.u32 %r7, shared;
mad.lo.s32 %r6, %r2, 4, %r7;
mov.u64 %rd3, {TENSORS_AT + 2048};
st.global.u32 [%rd3], 0x01020304;
cp.async.ca.shared.global [%r6], [%rd3], 4, 2;
cp.async.wait_all;
ld.shared.u32 %r9, [%r6];
"""
    assert results(body) == [0x0304] * 32
    with pytest.raises(PtxError, match="which is not aligned"):
        results(body.replace("[%r6], [%rd3], 4", "[%r6], [%rd3+2], 4"))


def test_what_is_not_known() -> None:
    for line in ("red.relaxed.gpu.global.inc.u32 [%rd9], 1;", "atom.global.exch.b64 %rd1, [%rd9], 1;", "ld.acquire.sys.global.u64 %rd1, [%rd9];"):
        with pytest.raises(PtxError, match="what it does is not known"):
            results(line + "\n")
    with pytest.raises(PtxError, match="what it does is not known"):
        results("st.release.gpu.global.u32 [%rd9], %r1;\n")
