"""PTX against kernel IR: each kind of difference, in a text of a few lines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import taskfuse as tf
from taskfuse.cuda.source import emit
from taskfuse.kir import parse_kernel
from taskfuse.schedulers import AttentionConfig
from taskfuse.testing.ptx.compare import Comparison, compare
from tests.schedulers.attentions import attention
from tests.testing.ptx import compiled

KERNEL = parse_kernel("""\
KERNEL k(x: float32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[32] align 16 @ 0

s[threadIdx.x] = copy(x[threadIdx.x])
SYNC block
y[threadIdx.x] = copy(s[31 - threadIdx.x])
""")
PTX = """\
.version 9.5
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 shared[];
.visible .entry k(
	.param .u64 k_param_0,
	.param .u64 k_param_1
)
.maxntid 32, 1, 1
.minnctapersm 1
{
	.reg .b32 	%r<9>;
	.reg .b64 	%rd<9>;
	ld.param.u64 	%rd1, [k_param_0];
	ld.param.u64 	%rd2, [k_param_1];
	mov.u32 	%r1, %tid.x;
	griddepcontrol.wait;
	mul.wide.u32 	%rd3, %r1, 4;
	add.s64 	%rd4, %rd1, %rd3;
	ld.global.u32 	%r2, [%rd4];
	shl.b32 	%r3, %r1, 2;
	mov.u32 	%r4, shared;
	add.s32 	%r5, %r4, %r3;
	st.shared.u32 	[%r5], %r2;
	bar.sync 	0;
	sub.s32 	%r6, 124, %r3;
	add.s32 	%r7, %r4, %r6;
	ld.shared.u32 	%r8, [%r7];
	add.s64 	%rd5, %rd2, %rd3;
	st.global.u32 	[%rd5], %r8;
	ret;
}
"""


def compared(*changes: tuple[str, str]) -> Comparison:
    text = PTX
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return compare(KERNEL, emit(KERNEL), text)


def test_a_text_that_does_what_the_kernel_says() -> None:
    found = compared()
    assert found.difference is None
    assert (found.launches, found.threads) == (1, 32)
    assert found.steps == 32
    assert found.unseen == ()


WAIT = "	griddepcontrol.wait;\n"
DIFFERENT: dict[str, tuple[list[tuple[str, str]], str]] = {
    "another barrier": ([("bar.sync 	0;", "bar.sync 	1;")], "BARRIER(1, 32), not BARRIER(0, 32) of `SYNC block`"),
    "a barrier too few": ([("	bar.sync 	0;\n", "")], "the thread ends in front of BARRIER(0, 32)"),
    "a barrier too many": ([("	ret;", "	bar.sync 0;\n	ret;")], "where the thread is at its end"),
    "another kind": ([("bar.sync 	0;", "bar.warp.sync 	-1;")], "WARP_BARRIER(4294967295), not BARRIER"),
    "another place of Shared memory": ([("shl.b32 	%r3, %r1, 2;", "shl.b32 	%r3, %r1, 3;")], "in front of PTX line"),
    "a store behind the barrier": (
        [("	st.shared.u32 	[%r5], %r2;\n", ""), ("	bar.sync 	0;\n", "	bar.sync 	0;\n	st.shared.u32 	[%r5], %r2;\n")],
        "are not written, which kernel IR writes",
    ),
    "another element is read": ([("sub.s32 	%r6, 124, %r3;", "sub.s32 	%r6, 128, %r3;")], "are read, which kernel IR does not read"),
    "another element of a tensor is written": ([("add.s64 	%rd5, %rd2, %rd3;", "add.s64 	%rd5, %rd2, 4;")], "a tensor: bytes"),
    "a tensor is read elsewhere": ([("add.s64 	%rd4, %rd1, %rd3;", "add.s64 	%rd4, %rd1, 256;")], "a tensor: bytes"),
    "no wait for the stream": ([(WAIT, "")], "in front of the wait for what the stream holds before"),
    "lanes take the first one's index": (
        [(WAIT, "	shfl.sync.idx.b32 %r1|%p1, %r1, 0, 31, -1;\n" + WAIT)],
        "in front of the wait for what the stream holds before",
    ),
    "two waits for the stream": ([(WAIT, WAIT + WAIT)], "a second wait for the stream"),
    "a store to where data says": (
        [("st.global.u32 	[%rd5], %r8;", "cvt.u64.u32 %rd6, %r2;\n	st.global.u32 [%rd6], %r8;")],
        "a store to where data says",
    ),
    "launch bounds": ([(".maxntid 32, 1, 1", ".maxntid 64, 1, 1")], "launch bounds of (64, 1, 1) threads, not 32"),
    "blocks of a multiprocessor": ([(".minnctapersm 1", ".minnctapersm 2")], "(2,) blocks of a multiprocessor, not 1"),
    "an instruction that is not known": ([("	ret;", "	elect.sync %r3|%p1, -1;\n	ret;")], "an instruction that is not known"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_differences(name: str) -> None:
    changes, text = DIFFERENT[name]
    found = compared(*changes).difference
    assert found is not None
    assert text in found


def test_one_lane_may_tell_an_index_that_its_warp_has() -> None:
    assert compared((WAIT, "	mov.u32 %r3, %tid.y;\n	shfl.sync.idx.b32 %r3|%p1, %r3, 0, 31, -1;\n" + WAIT)).difference is None


def test_a_difference_says_whose_it_is() -> None:
    found = compared(("sub.s32 	%r6, 124, %r3;", "mov.u32 	%r6, 124;")).difference
    assert found is not None
    assert found.split("\n")[1].startswith("  block (0, 0, 0), thread (")


def test_before_sm_90_nobody_waits_for_the_stream() -> None:
    assert compared((WAIT, ""), (".target sm_90a", ".target sm_80")).difference is None


RING = """\
KERNEL k(x: float32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  MBARRIER a[1], b[1]

INIT a[0] count 32
INIT b[0] count 32
"""
INITS = "	mbarrier.init.shared::cta.b64 [%r1], 32;\n	mov.u32 %r2, {};\n	mbarrier.init.shared::cta.b64 [%r2], 32;\n"


DISTANCES: list[tuple[str, Callable[[str | None], bool]]] = [
    ("shared_b", lambda d: d is None),
    ("shared", lambda d: "a and b overlap" in str(d)),
    ("1027", lambda d: "no multiple of 8" in str(d) or "overlap" in str(d)),
]


@pytest.mark.parametrize(
    ("second", "check"),
    DISTANCES,
)
def test_arrays_of_mbarriers_may_lie_anywhere_apart(second: str, check: Callable[[str | None], bool]) -> None:
    kernel = parse_kernel(RING)
    head = PTX[: PTX.index("	ld.param")].replace("	.param .u64 k_param_0,\n	.param .u64 k_param_1\n", "")
    place = "1032" if second == "shared_b" else second
    found = compare(kernel, emit(kernel), head + "	griddepcontrol.wait;\n	mov.u32 %r1, shared;\n" + INITS.format(place) + "	ret;\n}\n")
    assert check(found.difference), found.difference


@pytest.mark.parametrize("config", [AttentionConfig(1, 64, 2, is_pipelined=True), AttentionConfig(2, 64, 2, is_pipelined=True, in_turn=True)], ids=str)
def test_iterations_that_are_printed_by_themselves(config: AttentionConfig) -> None:
    fusion = attention(32, sizes=(128, 192))
    tf.schedulers.attention(fusion, config)
    assert compiled.compared(tf.lower(fusion)).difference is None
