"""Side conditions: who executes a statement, what two threads agree on, how often a loop runs, whether an expression has a value.

Each kernel of ``museum/sides`` is wrong in one of them and not proved, for the reason given here; its twin, where it has one, is proved. So are those
without a wrong twin.
"""

from pathlib import Path

import pytest

from taskfuse.check import Verdict, verify
from taskfuse.check.rings import NEITHER
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.reports.certificate import Obligation

SIDES = Path(__file__).parent / "museum" / "sides"
OPEN = {
    "diagonal": "s: different threads may touch one element in one statement",
    "diagonal_loop": "s: nothing orders them in different iterations of the loop over k",
    "diagonal_block": "y: different threads may touch one element in one statement",
    "diagonal_blocks": "y: different threads may touch one element in one statement",
    "diagonal_symbolic": "s: different threads may touch one element in one statement",
    "diagonal_cursor": "s: different threads may touch one element in one statement",
    "diagonal_bound": "s: different threads may touch one element in one statement",
    "nobody_loads": "mbarrier full: 1024 bytes are expected, but loads bring 0",
    "nobody_loads_extent": "mbarrier full: a load is not issued by exactly one thread",
    "nobody_loads_later": "mbarrier full: a load is not issued by exactly one thread",
    "nobody_loads_ring": "mbarrier full: 128 bytes are expected, but loads bring 0",
    "nobody_loads_cursor": "mbarrier full: a load is not issued by exactly one thread",
    "nobody_loads_block": "mbarrier full: a load is not issued by exactly one thread",
    "nobody_loads_uniform": "mbarrier full: a position begins outside a loop or condition and ends inside",
    "nobody_releases": "s: they stand in different arms, and nothing orders them",
    "nobody_hands_over": "s: they stand in different arms, and nothing orders them",
    "cursor_moves_in_arm": "s[c.slot + 2]: index c.slot + 2 of axis 0 is not known to be in 0..4",
    "cursor_moves_in_arm_divisor": "divisors: the divisor c.slot is not known to be at least 1",
    "count_of_nobody": "counts: the count of b: 32*N is not known to be at least 1",
    "releases_of_nobody": "counts: the count of full: N is not known to be at least 1",
    "bytes_of_threads": "mbarrier full: 128 bytes are expected, but loads bring 256",
    "bytes_of_threads_min": "mbarrier full: 128 bytes are expected, but loads bring 256",
    "bytes_of_threads_start": "mbarrier full: 384 bytes are expected, but loads bring 256",
    "bytes_of_threads_count": "mbarrier full: it counts threadIdx.x + 1 arrivals, but gets 1",
    "ahead_loaded_twice": "s: two loads of one position may overlap",
    "bytes_of_no_trips": "mbarrier full: 128*max(T, 1) bytes are expected, but loads bring 128*max(T, 0)",
    "bytes_of_two_loops": "mbarrier full: 0 bytes are expected, but loads bring 128*max(2 - T, 0) + 128*max(T - 2, 0)",
    "bytes_of_few_threads": "mbarrier full: 128*T bytes are expected, but loads bring 128*max(T, 1)",
    "turn_passed_by_others": f"mbarrier turn: {NEITHER}; and no turn: threads pass the turn that have not taken it",
    "turn_passed_at_cursor": f"mbarrier turn: {NEITHER}; and no turn: its turn is taken and passed more than once in the text",
    "turn_waited_at_cursor": f"mbarrier turn: {NEITHER}; and no turn: its turn is taken and passed more than once in the text",
    "ahead_other_parity": "mbarrier full: it is waited for by another parity than that of its cursor",
    "one_release_of_two": "mbarrier full: one cursor releases for several that wait",
    "remainders": "mbarrier b: it counts N//3 arrivals, but gets N//6",
    "remainders_one_divides": "mbarrier b: it counts N//2 arrivals, but gets N//4",
    "remainders_clash": "mbarrier b: it counts N//4 arrivals, but gets 0",
    "remainders_negated": "mbarrier b: it counts N//2 arrivals, but gets N//6",
    "remainders_bounded": "mbarrier b: it counts N//2 arrivals, but gets 2",
    "remainders_equation": "mbarrier b: it counts N//2 arrivals, but gets 0",
    "remainders_of_blocks": "SYNC grid g, 32*(N//3): 32*(N//3) threads are expected, but 32*(N//6) reach it",
    "remainders_of_extents": "mbarrier b: the number of threads that arrive is unknown",
    "cursor_of_blocks": "semaphore full: a condition around it depends on a cursor",
    "cursor_of_blocks_parity": "semaphore full: a condition around it depends on a cursor",
    "cursor_of_blocks_phase": "semaphore full: a condition around it depends on a cursor",
    "cursor_of_blocks_loop": "semaphore full: a condition around it depends on a cursor",
    "cursor_of_blocks_own": "semaphore full: a condition around it depends on a cursor",
    "cursor_of_blocks_trips": "semaphore full: the loop over k depends on a cursor",
    "step": "steps: the step of the loop over i: M is not known to be at least 1",
    "step_thread": "steps: the step of the loop over i: threadIdx.x is not known to be at least 1",
    "step_cursor": "steps: the step of the loop over i: c.slot is not known to be at least 1",
    "step_nested": "steps: the step of the loop over i: k is not known to be at least 1",
    "step_once": "steps: the step of the loop over i: M is not known to be at least 1",
    "step_negative": "steps: the step of the loop over i: M - 4 is not known to be at least 1",
    "step_quotient": "steps: the step of the loop over i: M//2 is not known to be at least 1",
    "step_folded": "steps: the step of the loop over i: 0 is not known to be at least 1",
    "step_init": "steps: the step of the loop over i: N is not known to be at least 1",
    "divisor": "divisors: the divisor threadIdx.y is not known to be at least 1",
    "divisor_of_one_thread": "divisors: the divisor M//2 is not known to be at least 1",
    "divisor_of_zero": "divisors: the divisor 0 is not known to be at least 1",
    "divisor_of_sign": "divisors: the divisor M % 3 is not known to be at least 1",
    "divisor_remainder": "divisors: the divisor threadIdx.y is not known to be at least 1",
    "divisor_condition": "divisors: the divisor N is not known to be at least 1",
    "divisor_conjunction": "divisors: the divisor N is not known to be at least 1",
    "divisor_else": "divisors: the divisor N is not known to be at least 1",
    "divisor_trips": "divisors: the divisor N is not known to be at least 1",
    "divisor_no_trips": "divisors: the divisor N is not known to be at least 1",
    "divisor_advance": "divisors: the divisor N is not known to be at least 1",
    "divisor_value": "divisors: the divisor N is not known to be at least 1",
    "divisor_cursor": "divisors: the divisor c.slot is not known to be at least 1",
    "divisor_negative": "divisors: the divisor N - 40 is not known to be at least 1",
    "table": "divisors: the index of a table threadIdx.x is not known to be in 0..3",
    "table_condition": "divisors: the index of a table threadIdx.x is not known to be in 0..2",
    "table_negative": "divisors: the index of a table threadIdx.y - 1 is not known to be in 0..3",
    "divisor_selected": "divisors: the divisor N is not known to be at least 1",
    "divisor_choice": "divisors: the divisor threadIdx.y is not known to be at least 1",
    "divisor_copy": "divisors: the divisor N is not known to be at least 1",
    "divisor_grid": "divisors: the divisor M is not known to be at least 1",
    "advance": "advances: the advance of cursor c: -1 is not known to be at least 0",
    "advance_extent": "advances: the advance of cursor c: M - 3 is not known to be at least 0",
    "advance_loop": "advances: the advance of cursor c: 3 - k is not known to be at least 0",
    "advance_thread": "advances: the advance of cursor c: threadIdx.x - 2 is not known to be at least 0",
    "advance_one_slot": "advances: the advance of cursor c: -1 is not known to be at least 0",
    "advance_cursor": "advances: the advance of cursor c: c.slot - 1 is not known to be at least 0",
    "advance_block": "advances: the advance of cursor c: blockIdx.x - 1 is not known to be at least 0",
    "name_trip": "s: nothing orders them in different iterations of the loop over i.trip",
    "warp_trips": "SYNC warp: the trip count of the loop over i differs between threads",
    "top_sync": "s: nothing orders them in different iterations of the loop over k",
    "end_sync": "s: nothing orders them in different iterations of the loop over k",
    "ring_of_remainders": "semaphore full: its ring blockIdx.x % 3 is not a block index less a constant, another one on each axis",
    "positions_of_blocks": "semaphore full: its ends visit positions in different loops",
    "slots": "slots: the slot of b: i is not known to be in 0..2",
    "slots_thread": "slots: the slot of b: threadIdx.x is not known to be in 0..2",
    "extent": "extents: an extent of b: N - 3 is not known to be at least 0",
    "extent_queue": "extents: an extent of q: N - 3 is not known to be at least 0",
    "offset": "offsets: the offset of s: 16*N - 64 is not known to be at least 0",
    "share_of_blocks": "y: nothing orders them in different iterations of the loop over i",
    "slots_once": "mbarrier b: it counts 2 arrivals, but gets 1",
    "slots_once_other": "mbarrier b: no thread is known to wait for the bytes that the copy engine completes",
    "cursor_still": "mbarrier b: it is neither a ring, nor a barrier of a fixed set of threads, nor used once",
    "nobody_meets": "SYNC block: only threads with threadIdx.x//4 == 5 && threadIdx.x > 22 reach a barrier of the whole block",
    "everybody_arrives": "mbarrier b: it is neither a ring, nor a barrier of a fixed set of threads, nor used once",
    "divisor_one_trip": "divisors: the divisor N is not known to be at least 1",
    "divisor_one_thread": "divisors: the divisor N is not known to be at least 1",
    "divisor_unrolled": "divisors: the divisor 2*N is not known to be at least 1",
    "moved_by_others": "semaphore full: it uses cursor c, which its threads do not advance",
    "expects_less": "bytes: the bytes that full expects: 128*N - 256 is not known to be at least 0",
    "weight_negative": "y: nothing orders them in different iterations of the loop over j",
    "named_by_loop": "SYNC named i + 15, 64: its id i + 15 is not known to be in 1..15",
}


def read(path: Path) -> Kernel:
    kernel = parse_kernel(path.read_text(encoding="utf-8"))
    kernel.check_ir()
    return kernel


def test_all_are_here() -> None:
    assert {p.stem for p in SIDES.glob("*.kir") if not p.stem.endswith(".fixed")} == set(OPEN)


def gaps(kernel: Kernel) -> list[Obligation]:
    """The gaps of the argument."""
    return [o for o in verify(kernel).argument if o.verdict is not Verdict.PROVED]


@pytest.mark.parametrize("name", OPEN)
def test_a_side_condition_that_fails_is_a_gap(name: str) -> None:
    found = gaps(read(SIDES / f"{name}.kir"))
    assert OPEN[name] in [f"{o.subject}: {o.reason}" for o in (found if name in ("divisor_unrolled", "slots_thread") else found[:1])]  # these have more


@pytest.mark.parametrize("path", sorted(SIDES.glob("*.fixed.kir")), ids=lambda p: p.stem)
def test_without_it_the_kernel_is_proved(path: Path) -> None:
    verify(read(path)).require()
