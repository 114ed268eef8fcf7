"""The second machine: each kind of fault in a kernel, and a twin without it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from taskfuse.kir import parse_kernel, walk
from taskfuse.kir.products import Wgmma
from taskfuse.testing.machine import FaultKind, find_fault

TESTS = Path(__file__).parents[2]
MUSEUM = sorted((TESTS / "check" / "museum").glob("*.kir"))
LARGE = ("fb_triton_1278", "nvfuser_3561", "triton_9786")
"""Whose wgmmas take seconds."""
BEYOND = (
    "accumulator_joined_behind.kir",
    "accumulator_of_another.kir",
    "accumulator_read.kir",
    "accumulator_set_again.kir",
    "accumulator_set_behind.kir",
    "accumulator_shared.kir",
    "accumulator_terms_behind.kir",
    "arm_between.kir",
    "arm_joined.kir",
    "arm_overlaid.kir",
    "block_of_writer.kir",
    "box_zero_sign.kir",
    "budget_loop.kir",
    "budget_symbolic.kir",
    "choice_of_none.kir",
    "cursor_moved.kir",
    "cursor_of_condition.kir",
    "cursor_of_element.kir",
    "cursor_of_join.kir",
    "cursor_of_steps.kir",
    "cursor_of_terms.kir",
    "cursor_of_threads.kir",
    "digits_of_others.kir",
    "digits_of_others_blocks.kir",
    "digits_of_others_serial.kir",
    "ends_of_no_terms.kir",
    "extent_of_terms.kir",
    "init_fence_trips.kir",
    "iterations_together.kir",
    "joined_before_terms.kir",
    "last_of_no_trips.kir",
    "loops_of_one_name.kir",
    "merged_axes_neighbor.kir",
    "merged_axes_outside.kir",
    "name_of_remainder.kir",
    "name_of_rewritten.kir",
    "name_of_tile.kir",
    "name_of_writer.kir",
    "neutral_converted.kir",
    "numbers_wrap.kir",
    "output_in_another.kir",
    "part_condition.kir",
    "part_of_no_terms.kir",
    "part_set_again.kir",
    "pick_converted.kir",
    "register_set_behind.kir",
    "rescaled_again.kir",
    "second_reader_condition.kir",
    "second_reader_reset.kir",
    "second_reader_terms.kir",
    "slot_set_behind.kir",
    "start_converted.kir",
    "stores_of_clusters.kir",
    "terms_by_few.kir",
    "terms_of_other_threads.kir",
    "total_in_element.kir",
    "total_of_each_step.kir",
    "total_started_late.kir",
    "update_before_part.kir",
    "update_box_elsewhere.kir",
    "update_box_twice.kir",
    "update_never_stored.kir",
    "update_other_function.kir",
    "update_vector_at_others.kir",
    "update_vector_of_others.kir",
    "update_vector_turned.kir",
    "warp_barrier_arms.kir",
    "warp_barrier_lanes.kir",
    "warp_barrier_last.kir",
    "warp_barrier_planes.kir",
    "warp_barrier_row.kir",
    "warp_barrier_small.kir",
    "warp_barrier_symbolic.kir",
    "warp_barrier_trips.kir",
    "wgmma_fence_too_early.kir",
    "wgmma_loop.kir",
    "wgmma_pending.kir",
    "wgmma_retire_round.kir",
    "wgmma_retired_unfenced.kir",
)
"""What the machine does not find: wgmmas at registers that others have, behind a fence; a barrier of a warp whose other lanes exit, which it lets pass;
blocks that are symbols, or sizes that are none; other values than definitions say, which it does not read;
fences of an initialization in a loop that has a trip where a load has; choices without a case that holds, of which it takes the last one, as the text
does."""
SCOPES = (
    *(p.name for p in MUSEUM if p.name.startswith("proxy_") and not p.stem.endswith(".fixed")),
    *("init_fence_after.kir", "init_fence_before.kir", "init_fence_block.kir", "init_fence_condition.kir", "init_fence_other.kir", "init_fence_thread.kir"),
    *("update_late_fence.kir", "update_read_early.kir", "update_two_engines.kir", "update_unfenced.kir", "update_unfenced_shared.kir"),
    *("write_of_cluster.kir", "cluster_of_the_writer.kir", "ring_of_another_block.kir", "multicast_source.kir", "store_handed_on.kir"),
    *("waited_for_in_another_block.kir", "fenced_in_another_block.kir"),
)
"""Of scopes and proxies: the machine finds each."""

PLAIN = """\
KERNEL twin(x: float32[64]) -> (y: float32[64])
  GRID (1, 1, 1)  BLOCK {block}
  SHARED s: float32[64] align 16
  MBARRIER b[1]

"""
RING = """\
KERNEL ring(x: float32[N, 32]) -> (y: float32[N, 32])
  DIM N max 6
  TENSORMAP m = x box (1, 32) swizzle 0
  GRID (1, 1, 1)  BLOCK (32, 2, 1)
  SHARED s: float32[2, 32] align 128
  MBARRIER full[2], empty[2]

IF threadIdx.x == 0 && threadIdx.y == 0:
  FOR i in 0..2:
    INIT full[i] count 1
    INIT empty[i] count 32
  FENCE mbarrier_init
SYNC block
IF threadIdx.y == 0:
  IF threadIdx.x == 0:
    p = CURSOR(slots 2, slot 0, parity 1)
    FOR k in 0..N:
      WAIT empty[p.slot] parity p.parity
      EXPECT full[p.slot] bytes 128
      TMA s[p.slot, 0] <- m(k, 0) on full[p.slot]
      p.advance(1)
ELSE:
  c = CURSOR(slots 2, slot 0, parity 0)
  FOR k in 0..N:
    WAIT full[c.slot] parity c.parity
    y[k, threadIdx.x] = copy(s[c.slot, threadIdx.x])
    ARRIVE empty[c.slot]
    c.advance(1)
"""
STORE = """\
KERNEL store(x: float32[2, 32]) -> (y: float32[2, 32])
  TENSORMAP m = y box (2, 32) swizzle 0
  GRID (1, 1, 1)  BLOCK (32, 2, 1)
  SHARED s: float32[2, 32] align 128

s[threadIdx.y, threadIdx.x] = copy(x[threadIdx.y, threadIdx.x])
FENCE proxy.async
SYNC block
IF threadIdx.x == 0 && threadIdx.y == 0:
  TMA m(0, 0) <- s[0, 0]
  COMMIT bulk
  WAIT_GROUP bulk <= 0
"""
PRODUCT = """\
KERNEL product(A: bfloat16[64, 64], B: bfloat16[64, 64]) -> (D: float32[64, 64])
  TENSORMAP map_a = A box (64, 64) swizzle 128
  TENSORMAP map_b = B box (64, 64) swizzle 128
  GRID (1, 1, 1)  BLOCK (128, 1, 1)
  LOCAL acc: float32[64]
  SHARED a_s: bfloat16[64, 64] align 1024
  SHARED b_s: bfloat16[64, 64] align 1024
  MBARRIER full[1]

IF threadIdx.x == 0:
  INIT full[0] count 1
  FENCE mbarrier_init
SYNC block
IF threadIdx.x == 0:
  EXPECT full[0] bytes 16384
  TMA a_s[0, 0] <- map_a(0, 0) on full[0]
  TMA b_s[0, 0] <- map_b(0, 0) on full[0]
WAIT full[0] parity 0
FENCE wgmma
WGMMA.m64n64k16.bfloat16 acc[0], desc(a_s[0, 0] + 96, swizzle 128, lbo 0, sbo 1024, major K), desc(b_s[0, 0] + 0, swizzle 128, lbo 0, sbo 1024, major K), accumulate 0 > 0
WGMMA.m64n64k16.bfloat16 acc[0], desc(a_s[0, 0] + 0, swizzle 128, lbo 0, sbo 1024, major K), desc(b_s[0, 0] + 0, swizzle 128, lbo 0, sbo 1024, major K), accumulate 1 > 0
COMMIT wgmma
WAIT_GROUP wgmma <= 0
D[threadIdx.x//2, threadIdx.x % 2] = copy(acc[0])
"""  # noqa: E501


def plain(body: str, block: str = "(64, 1, 1)") -> str:
    """A kernel with one buffer and one mbarrier."""
    return PLAIN.format(block=block) + body


Change = tuple[str, str]
USE, GIVE = "    y[k, threadIdx.x] = copy(s[c.slot, threadIdx.x])\n", "    ARRIVE empty[c.slot]\n"
SECOND = "WGMMA.m64n64k16.bfloat16 acc[0], desc(a_s[0, 0] + 0"
TWINS: list[tuple[str, str, Sequence[Change], FaultKind, str]] = [
    (
        "no barrier",
        plain("s[threadIdx.x] = copy(x[threadIdx.x])\nSYNC block\ny[threadIdx.x] = copy(s[63 - threadIdx.x])\n"),
        [("SYNC block", "SYNC warp")],
        FaultKind.RACE,
        "a write and a read",
    ),
    (
        "diagonal",
        plain("IF threadIdx.x == threadIdx.y && threadIdx.x == 3:\n  s[0] = copy(x[0])\n", "(8, 8, 1)"),
        [(" && threadIdx.x == 3", "")],
        FaultKind.RACE,
        "two writes",
    ),
    (
        "half a warp",
        plain("IF threadIdx.x < 32:\n  SYNC warp\n"),
        [("< 32", "< 16"), ("  SYNC warp\n", "  SYNC warp\nELSE:\n  SYNC block\n")],
        FaultKind.DEADLOCK,
        "wait for ever",
    ),
    (
        "half a shuffle",
        plain("r = copy(x[threadIdx.x])\nIF threadIdx.x < 32:\n  SHUFFLE r <- r xor 1\n").replace("  SHARED", "  LOCAL r: float32[]\n  SHARED"),
        [("< 32", "< 33")],
        FaultKind.PARTIAL,
        "1 threads",
    ),
    (
        "divergent block barrier",
        plain("IF threadIdx.x >= 0:\n  SYNC block\n"),
        [(">= 0:\n  SYNC block\n", "< 16:\n  SYNC block\nELSE:\n  SYNC block\n")],
        FaultKind.PARTIAL,
        "different barriers",
    ),
    ("named barrier of all", plain("SYNC named threadIdx.x//32 + 1, 32\n"), [(" + 1", "")], FaultKind.COUNT, "no named barrier 0"),
    (
        "count",
        plain("IF threadIdx.x == 0:\n  INIT b[0] count 32\nSYNC block\nIF threadIdx.x < 32:\n  ARRIVE b[0]\nWAIT b[0] parity 0\n"),
        [("count 32", "count 33")],
        FaultKind.DEADLOCK,
        "wait for ever",
    ),
    (
        "too many arrive",
        plain("IF threadIdx.x == 0:\n  INIT b[0] count 64\nSYNC block\nARRIVE b[0]\nWAIT b[0] parity 0\n"),
        [("count 64", "count 32")],
        FaultKind.PHASE,
        "may come before phase 0 is complete",
    ),
    ("a second initializer", plain("IF threadIdx.x == 0:\n  INIT b[0] count 1\nSYNC block\n"), [("== 0", "<= 1")], FaultKind.LIFE, "initialized twice"),
    ("initialized late", plain("IF threadIdx.x == 0:\n  INIT b[0] count 64\nSYNC block\nARRIVE b[0]\n"), [("SYNC block\n", "")], FaultKind.LIFE, "initialized"),
    (
        "alignment",
        plain("IF threadIdx.x < 8:\n  COPY s[4*threadIdx.x] <- x[4*threadIdx.x + 4] width 4\n"),
        [(" + 4", " + 2")],
        FaultKind.ALIGNMENT,
        "not a multiple of 16",
    ),
    ("beyond", plain("y[threadIdx.x] = copy(x[63 - threadIdx.x])\n"), [("63 -", "64 -")], FaultKind.BOUNDS, "index 64 of axis 0 of 'x'"),
    (
        "negative operand",
        plain("y[(threadIdx.x + 1)//2 + threadIdx.x] = copy(x[0])\n", "(2, 1, 1)"),
        [("threadIdx.x + 1", "threadIdx.x - 1")],
        FaultKind.BOUNDS,
        "index -1",
    ),
    ("division by zero", plain("y[threadIdx.x] = copy(x[8//(threadIdx.x + 1)])\n"), [(" + 1", "")], FaultKind.VALUE, "by zero"),
    (
        "a step of 0",
        plain("FOR i in 0..4 step threadIdx.x + 1:\n  y[threadIdx.x] = copy(x[threadIdx.x])\n"),
        [(" + 1:", ":")],
        FaultKind.ENDLESS,
        "a step of 0",
    ),
    (
        "negative advance",
        plain("c = CURSOR(slots 2, slot 1, parity 0)\nc.advance(0 - 1)\ny[c.slot + 2*threadIdx.x] = copy(x[0])\n", "(32, 1, 1)"),
        [("slot 1", "slot 0")],
        FaultKind.BOUNDS,
        "index -1",
    ),
    (
        "registers",
        plain("IF threadIdx.y == 0:\n  SETMAXNREG 232\nELSE:\n  SETMAXNREG 40\n", "(128, 3, 1)"),
        [("232", "256"), ("SETMAXNREG 40", "SETMAXNREG 160")],
        FaultKind.DEADLOCK,
        "wait for ever",
    ),
    ("wait of a ring", RING, [("      WAIT empty[p.slot] parity p.parity\n", "")], FaultKind.PHASE, "may come before"),
    ("bytes", RING, [("bytes 128", "bytes 64")], FaultKind.DEADLOCK, "wait for ever"),
    ("release before the read", RING, [(USE + GIVE, GIVE + USE)], FaultKind.RACE, "a read and an asynchronous write"),
    ("no init fence", RING, [("  FENCE mbarrier_init\n", "")], FaultKind.LIFE, "has not fenced"),
    ("another's init fence", RING, [("  FENCE mbarrier_init\n", "IF threadIdx.x == 1:\n  FENCE mbarrier_init\n")], FaultKind.LIFE, "has not fenced"),
    ("a box beyond", RING, [("box (1, 32)", "box (3, 32)"), ("bytes 128", "bytes 384")], FaultKind.BOUNDS, "a box of 384 bytes leaves 's'"),
    ("a box at an odd place", RING, [("s: float32[2, 32]", "s: float32[2, 40]")], FaultKind.ALIGNMENT, "a box at byte 160"),
    ("proxy fence", STORE, [("FENCE proxy.async\n", "")], FaultKind.PROXY, "no proxy fence"),
    ("proxy fence late", STORE, [("FENCE proxy.async\nSYNC block\n", "SYNC block\nFENCE proxy.async\n")], FaultKind.PROXY, "no proxy fence"),
    ("source in flight", STORE, [("WAIT_GROUP bulk <= 0", "WAIT_GROUP bulk.read <= 0")], FaultKind.LIFE, "a bulk store is in flight"),
    (
        "a wait_group of one thread",
        PRODUCT,
        [("WAIT_GROUP wgmma <= 0\n", "WAIT_GROUP wgmma <= 0\nIF threadIdx.x == 0:\n  WAIT_GROUP wgmma <= 0\n")],
        FaultKind.PARTIAL,
        "1 threads",
    ),
    ("two shapes", PRODUCT, [(SECOND, SECOND.replace("n64", "n32"))], FaultKind.REGISTERS, "of another shape"),
    ("other registers", PRODUCT, [(SECOND, SECOND.replace("acc[0]", "acc[16]"))], FaultKind.REGISTERS, "at other registers"),
    ("no wgmma fence", PRODUCT, [("FENCE wgmma\n", "")], FaultKind.REGISTERS, "without FENCE wgmma"),
    ("unretired", PRODUCT, [("WAIT_GROUP wgmma <= 0", "WAIT_GROUP wgmma <= 1")], FaultKind.REGISTERS, "in flight"),
    ("a tile beyond", PRODUCT, [("a_s[0, 0] + 96", "a_s[8, 0] + 96")], FaultKind.BOUNDS, "a tile reads byte"),
    (
        "a tile of other rows",
        PRODUCT,
        [("a_s[0, 0] + 96, swizzle 128, lbo 0, sbo 1024", "a_s[0, 0] + 96, swizzle 128, lbo 0, sbo 2048")],
        FaultKind.BOUNDS,
        "a tile reads byte",
    ),
    ("operands that differ", PRODUCT, [("accumulate 1 > 0", "accumulate threadIdx.x > 0")], FaultKind.PARTIAL, "different operands"),
]


@pytest.mark.parametrize(("good", "changes", "kind", "reason"), [t[1:] for t in TWINS], ids=[t[0] for t in TWINS])
def test_twins(good: str, changes: Sequence[Change], kind: FaultKind, reason: str) -> None:
    launches: list[dict[str, int]] = [{"N": n} for n in (5, 0, 1)] if "DIM" in good else [{}]
    assert find_fault(parse_kernel(good), launches, 3) is None
    bad = good
    for old, new in changes:
        assert old in bad
        bad = bad.replace(old, new, 1)
    fault = find_fault(parse_kernel(bad), launches, 3)
    assert fault is not None
    assert (fault.kind, reason in fault.reason) == (kind, True), str(fault)


def test_bugs_of_scopes_and_proxies_are_among_those_that_it_finds() -> None:
    assert set(SCOPES) <= {p.name for p in MUSEUM} - set(BEYOND)


@pytest.mark.parametrize("path", [p for p in MUSEUM if not p.name.startswith(LARGE) and p.name not in BEYOND], ids=lambda p: p.stem)
def test_bugs_of_other_projects(path: Path) -> None:
    kernel = parse_kernel(path.read_text(encoding="utf-8"))
    wide = any(isinstance(s, Wgmma) for s in walk(kernel))
    launches = [
        {e.name: 72 if wide and e.name == "K" else -(-n // e.multiple_of) * e.multiple_of for e in kernel.extents} for n in ((8,) if wide else (5, 2, 12))
    ]
    right = path.stem.endswith(".fixed")
    fault = find_fault(kernel, launches[::2] if right else launches, 1 if wide or right else 2)  # one order of what no order may break
    assert (fault is None) is right, str(fault)


@pytest.mark.parametrize("path", sorted((TESTS / "kernels").glob("*.kir")), ids=lambda p: p.stem)
def test_kernels_have_no_fault(path: Path) -> None:
    kernel = parse_kernel(path.read_text(encoding="utf-8"))
    small = 4 if not path.stem.startswith("gemm") else 8
    assert find_fault(kernel, [{e.name: small // e.multiple_of * e.multiple_of for e in kernel.extents}], 2) is None


def test_a_fault_says_what_and_where() -> None:
    fault = find_fault(parse_kernel(plain("y[threadIdx.x] = copy(x[threadIdx.x + 1])\n")))
    assert fault is not None
    said, who, launch = str(fault).split("\n")
    assert said == "bounds: index 64 of axis 0 of 'x', whose extent is 64"
    assert who == "  thread 63: y[threadIdx.x] = copy(x[threadIdx.x + 1])"
    assert launch.startswith("  extents {}, order 0")


SHARED_LOAD = """\
KERNEL load(x: float32[32], w: float32[1]) -> (y: float32[32])
  TENSORMAP m = x box (32) swizzle 0
  GRID (1, 1, 1)  BLOCK (32, 2, 1)
  SHARED s: float32[32] align 128
  SHARED t: float32[1] align 16
  MBARRIER full[1]

IF threadIdx.x == 0 && threadIdx.y == 0:
  INIT full[0] count 1
  FENCE mbarrier_init
SYNC block
IF threadIdx.y == 0:
  IF threadIdx.x == 0:
    t[0] = copy(w[0])
    EXPECT full[0] bytes 128
    TMA s[0] <- m(0) on full[0]
ELSE:
  WAIT full[0] parity 0
  y[threadIdx.x] = add(s[threadIdx.x], t[0])
"""


def test_the_completion_of_a_load_shows_the_load_alone() -> None:
    """Not what its thread stored before it: that is for the arrival (PTX ISA, "Asynchronous Operations")."""
    assert find_fault(parse_kernel(SHARED_LOAD), orders=3) is None
    first, second = "    t[0] = copy(w[0])\n", "    EXPECT full[0] bytes 128\n"
    fault = find_fault(parse_kernel(SHARED_LOAD.replace(first + second, second + first)), orders=3)
    assert fault is not None
    assert (fault.kind, fault.statement) == (FaultKind.RACE, "y[threadIdx.x] = add(s[threadIdx.x], t[0])")


@pytest.mark.parametrize("lost", ["ARRIVE m[m.c.slot] across CIDx scope cluster", "WAIT m[m.c.slot] parity m.c.parity scope cluster"])
def test_the_scope_of_a_block_shows_nothing_to_another(lost: str) -> None:
    text = (TESTS / "kernels" / "meet.kir").read_text(encoding="utf-8")
    fault = find_fault(parse_kernel(text.replace(lost, lost.replace(" scope cluster", ""))), orders=1)
    assert fault is not None
    assert fault.reason.startswith("nothing orders a write and a read")


def test_any_lane_may_read_the_operands_of_a_wgmma() -> None:
    """What one thread has written is known to it, and to the others of its warp behind a barrier."""
    written = "a_s[0, threadIdx.x % 2 + 2*(threadIdx.x//2)] = copy(1.0)\nFENCE proxy.async\n"
    one = PRODUCT.replace("FENCE wgmma\n", f"IF threadIdx.x < 64:\n  {written.replace('FENCE', '  FENCE')}SYNC block\nFENCE wgmma\n", 1)
    assert find_fault(parse_kernel(one), orders=1) is None
    fault = find_fault(parse_kernel(one.replace("SYNC block\nFENCE wgmma", "FENCE wgmma")), orders=1)
    assert fault is not None
    assert fault.reason.startswith("nothing orders a write and a read by an engine")


RELAYED = """\
KERNEL relay(x: float32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 3, 1)
  SHARED s: float32[32] align 16
  SHARED t: float32[32] align 16
  MBARRIER a[1], b[1]

IF threadIdx.x == 0 && threadIdx.y == 0:
  INIT a[0] count 32
  INIT b[0] count 32
SYNC block
IF threadIdx.y == 0:
  s[threadIdx.x] = copy(x[threadIdx.x])
  ARRIVE a[0]
ELSE IF threadIdx.y == 1:
  WAIT a[0] parity 0
  COPY.async t[threadIdx.x] <- x[threadIdx.x] width 1
  ARRIVE.async b[0]
ELSE:
  WAIT b[0] parity 0
  WAIT a[0] parity 0
  y[threadIdx.x] = add(s[31 - threadIdx.x], t[31 - threadIdx.x])
"""


def test_an_arrival_for_copies_hands_over_the_copies_alone() -> None:
    assert find_fault(parse_kernel(RELAYED), orders=3) is None
    fault = find_fault(parse_kernel(RELAYED.replace("WAIT b[0] parity 0\n  WAIT a[0] parity 0", "WAIT b[0] parity 0")), orders=3)
    assert fault is not None
    assert fault.kind is FaultKind.RACE


def test_what_is_no_launch_is_left_out() -> None:
    ring = parse_kernel(RING.replace("bytes 128", "bytes 64"))
    assert find_fault(ring, [{"N": 7}, {}]) is None
    assert find_fault(ring, [{"N": 7}, {"N": 3}]) is not None
    assert find_fault(parse_kernel(plain("FOR i in 0..1000:\n  y[0] = copy(x[0])\n", "(1, 1, 1)")), most_steps=10) is None
