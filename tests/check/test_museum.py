"""Bugs, as kernels, of other projects and of what reviews of this checker came upon: each is refuted, or at least not proved, and the same kernel
without the bug is proved.

The first line of a file says where the bug was found, the second what it is.
"""

from itertools import islice
from pathlib import Path

import pytest

from taskfuse.check import Verdict, verify
from taskfuse.check.drawn_launches import drawn_extents
from taskfuse.check.values.execution import execute
from taskfuse.kir import parse_kernel

MUSEUM = Path(__file__).parent / "museum"
FOUND = {
    "nvfuser_1552": "empty[0]: nothing orders its initialization and this use",
    "nvfuser_2000": "s: race: nothing orders a write and a write of one element",
    "nvfuser_3561": "a_s: race: nothing orders a read and a write of one element",
    "nvfuser_4187": "deadlock: no thread can continue",
    "tilelang_2566": "deadlock: no thread can continue",
    "tilelang_2613": "s: race: nothing orders a read and a write of one element",
    "tilelang_2674": "s: race: nothing orders a read and a write of one element",
    "tilelang_2927": "s: race: nothing orders a write and a read of one element",
    "tilelang_3087": "deadlock: no thread can continue",
    "tilelang_374": "s: race: nothing orders a write and a read of one element",
    "triton_2868": "deadlock: no thread can continue",
    "triton_9786": "deadlock: no thread can continue",
    "fb_triton_1278": "a_s: race: nothing orders a read and a write of one element",
    "fb_triton_1040": "SYNC named 1: nothing orders an arrival after the preceding completion of the barrier, so threads of two rounds may mix",
    "two_orders": "deadlock: no thread can continue",
    "pingpong_of_others": "deadlock: no thread can continue",
    "budget_barrier": "deadlock: no thread can continue",
    "budget_block": "deadlock: no thread can continue",
    "budget_mbarrier": "deadlock: no thread can continue",
    "budget_named": "deadlock: no thread can continue",
    "budget_one": "deadlock: no thread can continue",
    "budget_resident": "deadlock: no thread can continue",
    "budget_warp": "deadlock: no thread can continue",
    "init_fence_before": "full[0]: the copy engine may use it before its initialization is visible: without an mbarrier_init fence of the initializer",
    "init_fence_block": "full[0]: the copy engine may use it before its initialization is visible: without an mbarrier_init fence of the initializer",
    "init_fence_condition": "full[0]: the copy engine may use it before its initialization is visible: without an mbarrier_init fence of the initializer",
    "init_fence_other": "full[1]: the copy engine may use it before its initialization is visible: without an mbarrier_init fence of the initializer",
    "init_fence_thread": "full[0]: the copy engine may use it before its initialization is visible: without an mbarrier_init fence of the initializer",
    "digits_of_others": "y[0]: element [0] of y lacks the term at [0]",
    "digits_of_others_blocks": "y[0]: element [0] of y lacks the term at [0] and 1 more",
    "digits_of_others_serial": "y[0]: element [0] of y lacks the term at [0]",
    "merged_axes_neighbor": "y[1, 5]: the stored value was never computed",
    "merged_axes_outside": "y[0, 1]: reads element [0, 0] of x where element [0, 1] of x is defined",
    "ldmatrix_row": "LDMATRIX.x1: 16 of 32 lanes of a warp reach it",
    "part_of_no_terms": "y[0]: element [0] of y lacks the term at [0, 0]",
    "setmaxnreg_warps": "SETMAXNREG: 96 of 128 threads of a warpgroup reach it",
    "shuffle_last": "SHUFFLE: 16 of 32 lanes of a warp reach it",
    "shuffle_symbolic": "SHUFFLE: 8 of 32 lanes of a warp reach it",
    "stmatrix_trips": "STMATRIX.x1: 16 of 32 lanes of a warp reach it",
    "warp_barrier_arms": "SYNC warp: 16 of 32 lanes of a warp reach it",
    "warp_barrier_half": "SYNC warp: 16 of 32 lanes of a warp reach it",
    "warp_barrier_lanes": "SYNC warp: 16 of 32 lanes of a warp reach it",
    "warp_barrier_last": "SYNC warp: 8 of 16 lanes of a warp reach it",
    "warp_barrier_planes": "SYNC warp: 8 of 32 lanes of a warp reach it",
    "warp_barrier_row": "SYNC warp: 16 of 32 lanes of a warp reach it",
    "warp_barrier_small": "SYNC warp: 8 of 15 lanes of a warp reach it",
    "warp_barrier_symbolic": "SYNC warp: 16 of 32 lanes of a warp reach it",
    "warp_barrier_trips": "SYNC warp: 16 of 32 lanes of a warp reach it",
    "wgmma_commit_thread": "COMMIT wgmma: 1 of 32 lanes of a warp reach it",
    "wgmma_commit_trips": "COMMIT wgmma: 16 of 32 lanes of a warp reach it",
    "wgmma_fence_half": "FENCE wgmma: 64 of 128 threads of a warpgroup reach it",
    "wgmma_fence_too_early": "WGMMA.m64n32k16.bfloat16: no FENCE wgmma stands between the wait_group of another wgmma that has its accumulators and it",
    "wgmma_fragment": "f[v]: its registers are those of a wgmma that may be in flight",
    "wgmma_loop": "WGMMA.m64n64k16.bfloat16: its accumulators are registers of another wgmma that may be in flight",
    "wgmma_other_registers": "WGMMA.m64n64k16.bfloat16: no FENCE wgmma stands between an access to its accumulators and it",
    "wgmma_overlap": "WGMMA.m64n64k16.bfloat16: its accumulators are registers of another wgmma that may be in flight",
    "wgmma_pending": "WGMMA.m64n32k16.bfloat16: its accumulators are registers of another wgmma that may be in flight",
    "wgmma_retire_arms": "WAIT_GROUP wgmma: 64 of 128 threads of a warpgroup reach it",
    "wgmma_retire_thread": "WAIT_GROUP wgmma: 1 of 32 lanes of a warp reach it",
    "wgmma_retired_unfenced": "WGMMA.m64n32k16.bfloat16: no FENCE wgmma stands between the wait_group of another wgmma that has its accumulators and it",
    "wgmma_two_shapes": "WGMMA.m64n32k16.bfloat16: its accumulators are registers of another wgmma that may be in flight",
    "wgmma_types": "WGMMA.m64n64k8.tf32: its accumulators are registers of another wgmma that may be in flight",
    "proxy_store_then_load": "y: an asynchronous engine sees what a thread wrote, without FENCE proxy.async.global of the writer",
    "proxy_store_then_load_sharedfence": "y: an asynchronous engine sees what a thread wrote, without FENCE proxy.async.global of the writer",
    "proxy_store_then_load_latefence": "y: an asynchronous engine sees what a thread wrote, without FENCE proxy.async.global of the writer",
    "proxy_store_then_load_onefence": "y: an asynchronous engine sees what a thread wrote, without FENCE proxy.async.global of the writer",
    "proxy_store_then_load_nobarrier": "y: race: nothing orders a write and a read of one element",
    "proxy_same_thread": "y: an asynchronous engine sees what a thread wrote, without FENCE proxy.async.global of the writer",
    "proxy_vector_then_load": "y: an asynchronous engine sees what a thread wrote, without FENCE proxy.async.global of the writer",
    "proxy_store_then_tma_store": "y: an asynchronous engine sees what a thread wrote, without FENCE proxy.async.global of the writer",
    "proxy_elsewhere": "y: an asynchronous engine sees what a thread stored in bulk, without FENCE proxy.async.global of the writer",
    "proxy_fence_before_retire": "y: an asynchronous engine sees what a thread stored in bulk, without FENCE proxy.async.global of the writer",
    "proxy_tma_store_read_retire": "y: an asynchronous engine sees what a thread stored in bulk, without FENCE proxy.async.global of the writer",
    "proxy_tma_store_then_generic_read": "y: race: nothing orders a write and a read of one element",
    "proxy_tma_store_then_cp_async": "y: race: nothing orders a write and a read of one element",
    "proxy_grid": "y: an asynchronous engine sees what a thread wrote, without FENCE proxy.async.global of the writer",
    "proxy_loop_back": "y: an asynchronous engine sees what a thread wrote, without FENCE proxy.async.global of the writer",
    "box_load_beyond": "s: an access begins at byte 0 of s, and its box of 1024 bytes ends past the 512 bytes of the buffer",
    "box_load_second": "s: an access begins at byte 512 of s, and its box of 1024 bytes ends past the 1408 bytes of the buffer",
    "box_store_beyond": "s: an access begins at byte 0 of s, and its box of 1024 bytes ends past the 896 bytes of the buffer",
    "box_store_symbolic": "s: an access begins at byte 512 of s, and its box of 1024 bytes ends past the 1024 bytes of the buffer",
    "tile_sbo_beyond": "b_s: an access begins at byte 8192 of b_s, and its tile of 64 x 16 elements reaches past the 16384 bytes of the buffer",
    "tile_start_beyond": "b_s: an access begins at byte 9216 of b_s, and its tile of 64 x 16 elements reaches past the 16384 bytes of the buffer",
    "tile_offset_beyond": "b_s: an access begins at byte 9216 of b_s, and its tile of 64 x 16 elements reaches past the 16384 bytes of the buffer",
    "tile_n_beyond": "b_s: an access begins at byte 8192 of b_s, and its tile of 128 x 16 elements reaches past the 16384 bytes of the buffer",
    "tile_start_row": "b_s: an access begins at byte 16896 of Shared memory, which is not a multiple of the 1024 that it needs, nor less than 97 behind one",
    "tile_in_row": "b_s: an access begins at byte 16496 of Shared memory, which is not a multiple of the 1024 that it needs, nor less than 97 behind one",
    "tile_sbo_atom": "b_s: a stride of a tile of wgmma under a swizzle of 128 bytes is 1040, not a multiple of 1024",
    "tile_unaligned": "b_s: an access begins at byte 16392 of Shared memory, which is not a multiple of the 16 that it needs",
    "tile_negative": "b_s: an access begins at byte 16256 of Shared memory, which is not a multiple of the 1024 that it needs, nor less than 97 behind one",
    "tile_mn_lbo_beyond": "b_s: an access begins at byte 16384 of b_s, and its tile of 128 x 16 elements reaches past the 32768 bytes of the buffer",
    "tile_mn_start": "b_s: an access begins at byte 16448 of Shared memory, which is not a multiple of the 1024 that it needs",
    "tile_mn_rows_beyond": "a_s: an access begins at byte 16384 of a_s, and its tile of 64 x 16 elements reaches past the 16384 bytes of the buffer",
    "aligned_vector": "x: an access begins at byte 4 of x, which is not a multiple of the 16 that it needs",
    "aligned_vector_shared_only": "s: an access begins at byte 4 of Shared memory, which is not a multiple of the 16 that it needs",
    "aligned_rows_symbolic": "x: an access begins at byte 24 of x, which is not a multiple of the 16 that it needs",
    "aligned_cp_async": "x: an access begins at byte 4 of x, which is not a multiple of the 16 that it needs",
    "aligned_ldmatrix_rows": "s: an access begins at byte 24 of Shared memory, which is not a multiple of the 16 that it needs",
    "aligned_ldmatrix_column": "s: an access begins at byte 8 of Shared memory, which is not a multiple of the 16 that it needs",
    "aligned_stmatrix_rows": "s: an access begins at byte 24 of Shared memory, which is not a multiple of the 16 that it needs",
    "aligned_tma_slot": "s: an access begins at byte 64 of Shared memory, which is not a multiple of the 128 that it needs",
    "aligned_tma_swizzle": "s: an access begins at byte 512 of Shared memory, which is not a multiple of the 1024 that it needs",
    "aligned_tma_coord": "x: an access begins at byte 12 of the last axis of x, which is not a multiple of 16",
    "aligned_step": "x: an access begins at byte 8 of x, which is not a multiple of the 16 that it needs",
    "aligned_step_six": "x: an access begins at byte 24 of x, which is not a multiple of the 16 that it needs",
    "aligned_cond": "x: an access begins at byte 8 of x, which is not a multiple of the 16 that it needs",
    "aligned_xor": "s: an access begins at byte 136 of Shared memory, which is not a multiple of the 16 that it needs",
    "empty_rows": "s: index 0 of axis 0 is outside 0..0",
    "empty_cols": "s: index 0 of axis 1 is outside 0..0",
    "empty_symbolic": "s: an access begins at byte 0 of s, and its box of 1024 bytes ends past the 256 bytes of the buffer",
    "proxy_grid_stores": "y: an asynchronous engine sees what a thread stored in bulk, without FENCE proxy.async.global of the writer",
    "proxy_own_block": "y: an asynchronous engine sees what a thread stored in bulk, without FENCE proxy.async.global of the writer",
    "proxy_stores_overlap": "y: an asynchronous engine sees what a thread stored in bulk, without FENCE proxy.async.global of the writer",
    "empty_tensor": "x: a transfer of an empty tensor: it has no map",
    "proxy_lowered": "tv2: an asynchronous engine sees what a thread wrote, without FENCE proxy.async.global of the writer",
    "choice_of_none": "choices: whether a case of a choice holds, blockIdx.x < N || blockIdx.x >= N + 1 is 0, and must be at least 1",
    "table_range": "divisors: the room between the bounds of an element of t: M - 3 is -1, and must be at least 0",
    "start_converted": "y[0]: joins the constant nan, which is not a partial result of y",
    "output_in_another": "b[0]: is never stored",
    "name_of_rewritten": "output y: element [0] is -0.5437090396881104, and was written as 1.8283730745315552",
    "name_of_writer": "y[0]: reads element [0] of x where element [2] of x is defined",
    "pick_converted": "y[0]: for element [0] of y: reads element [0] of x where element [0] of t is defined",
    "part_condition": "o[6]: reads the constant 0.0 where element [2] of x is defined",
    "box_zero_sign": "y[6, 0]: reads the constant 0.0 where the constant -0.0 is defined",
    "accumulator_read": "y[0]: for element [0] of y: reads a partial result of t where element [0] of t is defined",
    "terms_by_few": "y[0]: element [0] of y lacks the term at [0, 7]",
    "terms_of_other_threads": "y[0]: element [0] of y lacks the term at [0, 8] and 3 more",
    "accumulator_shared": "y[0, 0]: element [0, 0] of y has the term at [0, 0, 2] twice: by block 0, thread 0 and block 0, thread 0",
    "accumulator_set_again": "y[0, 0]: element [0, 0] of y lacks the term at [0, 0, 0] and 2 more",
    "part_set_again": "y[0]: element [0] of y lacks the term at [0, 0]",
    "rescaled_again": "y[0]: rescales y at 0, which does not follow the index up to which it was rescaled",
    "cursor_moved": "y[0, 0]: for element [0, 0] of y: reads nothing where element [0, 0] of a is defined",
    "cursor_of_threads": "y[0, 0]: for element [0, 0] of y: reads nothing where element [0, 31] of a is defined",
    "second_reader_condition": "z[0]: for element [0] of z: element [0] of s lacks the term at [0, 0] and 3 more",
    "second_reader_reset": "z[0]: for element [0] of z: element [0] of s lacks the term at [0, 0] and 3 more",
    "second_reader_terms": "z[0]: for element [0] of z: element [0] of s has the term at [0, 3] twice: by thread 0 and thread 0",
    "accumulator_set_behind": "y[1]: for element [1] of y: element [] of s lacks the term at [0] and 3 more",
    "accumulator_terms_behind": "y[1]: for element [1] of y: element [] of s has the term at [0] twice: by thread 0 and thread 0",
    "accumulator_joined_behind": "y[1]: for element [1] of y: element [] of s has the term at [30] twice: by thread 30 and thread 30",
    "joined_before_terms": "y[]: element [] of y lacks the term at [1, 1] and 61 more",
    "extent_of_terms": "y[]: element [] of y lacks the term at [0] and 2 more",
    "ends_of_no_terms": "y[]: for element [] of y: element [] of s lacks the term at [0] and 2 more",
    "iterations_together": "y[1]: for element [1] of y: reads element [8] of x where element [1] of x is defined",
    "last_of_no_trips": "y[]: for element [] of y: reads the constant 0.0 where element [0] of x is defined",
    "register_set_behind": "y[1]: for element [1] of y: reads element [0] of z where element [0] of x is defined",
    "cursor_of_element": "y[0]: for element [0] of u: reads element [1] of x where element [0] of x is defined",
    "cursor_of_terms": "y[0]: element [0] of s has the term at [1, 0, 1], which is of another",
    "cursor_of_steps": "y[0, 1]: for element [0, 1] of z: element [0, 1] of s has the term at [1, 0], which is of another",
    "cursor_of_condition": "y[2]: element [2] of s lacks the term at [1]",
    "cursor_of_join": "y[0]: element [0] of s lacks the term at [0, 0, 1] and 1 more",
    "arm_between": "y[0]: reads element [0] of u where element [0] of x is defined",
    "arm_overlaid": "y[0]: reads element [0] of u where element [0] of x is defined",
    "slot_set_behind": "y[0, 1, 0]: reads element [0] of z where element [0, 0] of x is defined",
    "accumulator_of_another": "y[0]: element [0] of y lacks the term at [0, 1]",
    "arm_joined": "y[0]: element [0] of y lacks the term at [0, 0, 1] and 1 more",
    "total_of_each_step": "y[1]: element [1] of y lacks the term at [0]",
    "total_started_late": "y[0]: the stored value was never computed",
    "total_in_element": "y[0]: for element [0] of y: reads the constant 0.0 where element [0] of x is defined",
    "loops_of_one_name": "y[0]: for element [0] of y: element [0] of s lacks the term at [0, 4] and 325 more",
    "block_of_writer": "y[1, 0]: reads element [0, 0] of x where element [1, 0] of x is defined",
    "stores_of_clusters": "y[0, 0, 1]: is never stored",
    "neutral_converted": "y[0]: element [0] of y lacks the term at [0, 0] and 1 more",
    "update_unfenced": "y: an asynchronous engine sees what a thread wrote, without FENCE proxy.async.global of the writer",
    "update_unfenced_shared": "t: an asynchronous engine sees what a thread wrote, without FENCE proxy.async of the writer",
    "update_late_fence": "y: an asynchronous engine sees what a thread wrote, without FENCE proxy.async.global of the writer",
    "update_slot_rewritten": "t: race: nothing orders a read and a write of one element",
    "update_not_stored": "y: race: nothing orders a write and a write of one element",
    "update_never_stored": "y[7, 0]: is never stored",
    "update_two_engines": "y: race: nothing orders a write and a write of one element",
    "update_functions": "y: race: nothing orders a write and a write of one element",
    "update_other_function": "y[0, 0]: is combined by maximum where u is sent by add",
    "update_read_early": "y: race: nothing orders a write and a read of one element",
    "store_handed_on": "w: race: nothing orders a write and a read of one element",
    "multicast_source": "w: race: nothing orders a read and a write of one element",
    "waited_for_in_another_block": "w: race: nothing orders a write and a read of one element",
    "fenced_in_another_block": "w: an asynchronous engine sees what a thread wrote, without FENCE proxy.async.global of the writer",
    "update_box_twice": "y[0, 0]: is combined with u[0, 0, 0] twice",
    "update_box_elsewhere": "y[0, 0]: is never combined with u[0, 0, 0] and 2 more",
    "update_stored": "y[0, 1]: is stored twice",
    "update_vector_unordered": "y: race: nothing orders a write and a write of one element",
    "update_vector_turned": "y[0, 0]: is combined wrongly with u: reads element [0, 0] of s where element [0, 3] of s is defined",
    "update_vector_of_others": "y[0, 0]: is combined wrongly with u: reads element [0, 28] of s where element [0, 0] of s is defined",
    "update_vector_at_others": "y[0, 0]: is combined with u[0, 28], which is sent elsewhere",
    "update_vector_overlap": "y: an access begins at byte 8 of y, which is not a multiple of the 16 that it needs",
}
OPEN = {
    "budget_loop": "SETMAXNREG 128: it is not executed once by a fixed set of warpgroups",
    "budget_symbolic": "rules of kernel IR: kernel 'budgets': setmaxnreg in blocks of (128, T, 1) threads: "
    "what a launch gives each thread is unknown, let the shape be constant",
    "init_fence_after": "mbarrier full: its initializer executes no FENCE mbarrier_init before the barrier, so the copy engine may not see it",
    "init_fence_trips": "mbarrier full: its initializer executes no FENCE mbarrier_init before the barrier, so the copy engine may not see it",
    "name_of_remainder": "y[(w % A)//B]: index (w % A)//B of axis 0 is not known to be in 0..remainder.1//B + 1",
    "name_of_tile": "rules of kernel IR: kernel 'k': 'tile.0' is not a name: a name is letters, digits and _, in parts joined by dots, "
    "no word of the grammar, no index, no number in a tile and no symbol of a cursor",
    "numbers_wrap": "integers: min(4611686018427387904*i0, 8) < 5 may not fit 64 bits: its constants and coefficients make 1099511627776 or more",
    "ring_of_another_block": "w: they stand in different arms, and nothing orders them",
    "cluster_of_the_writer": "w: nothing orders them in one iteration",
    "update_before_part": "definition of y: c stands behind what is sent to it, which is combined with its elements",
    "wgmma_cursor": "convergence: threads of one warpgroup may give it different operands: c.slot",
    "wgmma_operands": "convergence: threads of one warpgroup may give it different operands: 32*(threadIdx.x//64)",
    "write_of_cluster": "s: an arrival or a wait at the scope of a block orders no write before copies from other blocks of the cluster",
    "wgmma_retire_round": "convergence: threads of one warpgroup may disagree on whether to execute it: k == threadIdx.x % 32",
}
"""Those that no launch refutes which is looked at, and the first obligation that is open."""


def test_the_museum_is_complete() -> None:
    assert {p.name for p in MUSEUM.glob("*.kir")} == {f"{name}{end}" for name in (*FOUND, *OPEN) for end in (".kir", ".fixed.kir")}


@pytest.mark.parametrize("name", FOUND)
def test_bugs_are_refuted(name: str) -> None:
    certificate = verify(parse_kernel((MUSEUM / f"{name}.kir").read_text(encoding="utf-8")))
    first = certificate.failures[0]
    assert first.verdict is Verdict.REFUTED
    assert f"{first.subject}: {first.reason}" == FOUND[name]


@pytest.mark.parametrize("name", OPEN)
def test_others_are_not_proved(name: str) -> None:
    certificate = verify(parse_kernel((MUSEUM / f"{name}.kir").read_text(encoding="utf-8")))
    assert certificate.verdict is Verdict.OUTSIDE
    first = certificate.failures[0]
    assert f"{first.subject}: {first.reason}" == OPEN[name]


@pytest.mark.parametrize("name", [*FOUND, *OPEN])
def test_their_fixes_are_proved(name: str) -> None:
    """And a run of small launches finds no wrong value in them."""
    kernel = parse_kernel((MUSEUM / f"{name}.fixed.kir").read_text(encoding="utf-8"))
    verify(kernel).require()
    for extents in islice(drawn_extents(kernel), 2) if kernel.definitions else ():
        assert execute(kernel, extents) is None
