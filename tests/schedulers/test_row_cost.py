"""The cost model of rows: how many threads and blocks share one."""

from dataclasses import replace
from math import ceil

import pytest

from taskfuse.schedulers import Keep, RowConfig
from taskfuse.schedulers.row_cost import RowProblem, candidates, estimate, rank, registers, residents
from taskfuse.target import H200


def test_few_long_rows_are_shared_and_many_are_not() -> None:
    assert rank(RowProblem(2, 1 << 24))[0].config.blocks > 16
    assert rank(RowProblem(1 << 16, 4096))[0].config.blocks == 1
    assert all(c.config.blocks == 1 for c in candidates(RowProblem(2, 1 << 24, may_share=False)))


def test_short_rows_share_a_block() -> None:
    chosen = rank(RowProblem(100000, 64, phases=3, held=((Keep.REGISTERS, 2),)))[0].config
    assert (chosen.threads, chosen.keep) == (8, Keep.REGISTERS)
    assert chosen.rows * chosen.threads >= 128


def test_long_rows_do_not_fit_registers() -> None:
    held = ((Keep.REGISTERS, 4), (Keep.SHARED, 2))
    assert rank(RowProblem(2048, 80_000, phases=3, held=held))[0].config.keep is Keep.SHARED
    assert rank(RowProblem(2048, 800_000, phases=3, held=held))[0].config.keep is not Keep.REGISTERS
    assert rank(RowProblem(2048, 4096, phases=3, held=held, is_constant=False))[0].config.keep is Keep.NOTHING


def test_offsets_of_groups_are_in_shared_memory_too() -> None:
    held = ((Keep.REGISTERS, 4), (Keep.SHARED, 2))
    problem = RowProblem(2048, 80_000, phases=3, held=held)
    config = rank(problem)[0].config
    assert residents(problem, config) == 1
    assert residents(replace(problem, offsets=20_000), config) == 0
    assert rank(replace(problem, offsets=20_000))[0].config.keep is Keep.NOTHING


@pytest.mark.parametrize("problem", [RowProblem(1, 1), RowProblem(1, 3, width=1), RowProblem(5, 1, is_inner=False), RowProblem(7, 1013, 1, phases=3)])
def test_every_problem_has_a_candidate(problem: RowProblem) -> None:
    found = rank(problem)
    assert list(found) == sorted(found, key=lambda e: e.us)
    assert all(e.residents >= 1 and e.us > 0 and estimate(problem, e.config) == e for e in found)
    assert found


def test_no_more_residents_are_asked_for_than_there_are_blocks() -> None:
    """A bound on registers for blocks that do not exist makes the compiler spill."""
    few = RowProblem(512, 128, phases=2, held=((Keep.REGISTERS, 2),))
    config = RowConfig(16, 8, 1, 1, Keep.REGISTERS)
    assert estimate(few, config).residents == 1
    assert estimate(replace(few, has_constant_rows=False), config).residents > 1
    assert estimate(replace(few, rows=1 << 16), config).residents > 1


def test_few_blocks_are_priced_for_what_each_of_them_moves() -> None:
    # sums over 512 rows of 128 columns that also store 512 KiB: two blocks, alone on their multiprocessors, move all of it one after the other
    sums = RowProblem(128, 512, is_inner=False, store_bytes=8)
    two, many = RowConfig(32, 8, 8), RowConfig(4, 8, 8, 16)
    moved = (512 * 128 * (2 + 8)) / sums.target.l2_bytes_per_cycle / sums.target.clock_mhz
    alone = estimate(replace(sums, loaded=0, stored=0), two).us
    assert estimate(sums, two).us == pytest.approx(alone + moved / 2, rel=0.02)
    tall = replace(sums, columns=1024)
    assert estimate(tall, many).us < estimate(tall, two).us
    wide = replace(sums, rows=1 << 20)  # blocks for every multiprocessor, several times: the memory is the bound
    assert estimate(wide, two).us < 1.2 * (sums.target.launch_us + sums.target.dram_us(wide.rows * wide.columns * 10))


def test_float32_rows_are_held_once() -> None:
    """What is loaded in float32 is what is computed with: 64 elements of a thread fit its registers, and eight times as many threads hold as many rows."""
    wide = RowProblem(1 << 16, 1024, width=4, is_inner=False, phases=3, loads=(4,), store_bytes=4, reductions=2, held=((Keep.REGISTERS, 4), (Keep.SHARED, 4)))
    assert registers(wide, RowConfig(64, 8, 16, keep=Keep.REGISTERS)) == 96
    narrow = replace(wide, columns=512, width=8, loads=(2,))
    assert registers(narrow, RowConfig(64, 8, 8, keep=Keep.REGISTERS)) > registers(wide, RowConfig(64, 8, 16, keep=Keep.REGISTERS))
    assert rank(wide)[0].config.keep is Keep.REGISTERS


def test_what_one_phase_needs_is_loaded_once() -> None:
    """As scores in the gradients of a cross-entropy, whose first phase sums what it computes of classes alone."""
    config = RowConfig(128, 1, 8)
    once, twice = RowProblem(8184, 50257, 1, phases=2, loads=(4,), again=0.0), RowProblem(8184, 50257, 1, phases=2, loads=(4,))
    more = H200.dram_us(8184 * 50257 * 4.0)
    assert estimate(twice, config).us - estimate(once, config).us > 0.5 * more
    assert estimate(replace(twice, again=8184 * 50257 * 4.0), config).us == estimate(twice, config).us


def test_what_is_computed_of_narrow_inputs_is_held_beside_wide_ones() -> None:
    """Gradients of norms read float32 gradients and a bfloat16 input, and hold a value of each: six vectors of 8 take 128 registers (NVRTC 13.1)."""
    both = RowProblem(8192, 768, phases=2, loads=(2, 4), held=((Keep.REGISTERS, 6),))
    assert registers(both, RowConfig(16, 8, 6, keep=Keep.REGISTERS)) >= 128


def test_short_rows_are_those_of_one_thread() -> None:
    pool = RowProblem(1 << 24, 4, width=2, loads=(4,), store_bytes=0, stored=float(1 << 26), loaded=float(1 << 28))
    best = rank(pool)[0].config
    assert (best.threads, best.unroll, best.each) == (1, 2, 4)
    assert rank(replace(pool, rows=256))[0].config.each == 1  # too few to fill the device


def test_blocks_have_whole_warps_where_the_time_is_the_same() -> None:
    """Of a tensor that is added up from four parts, each thread has a vector of the results."""
    chosen = rank(RowProblem(1 << 17, 4, width=4, is_inner=False, loads=(4,), store_bytes=4))[0].config
    assert chosen.threads * chosen.rows >= 32


def test_threads_join_the_results_of_blocks_together() -> None:
    """In rows of known length each has some; else each has all of them."""
    config, more = RowConfig(256, 1, 2, blocks=8), RowConfig(256, 1, 2, blocks=128)
    known, unknown = (RowProblem(1, 1 << 20, loads=(4,), is_constant=c) for c in (True, False))
    assert estimate(known, more).us < estimate(known, config).us
    assert estimate(unknown, more).us > estimate(known, more).us + 3.0


def test_few_columns_are_spread_over_all_multiprocessors() -> None:
    """Sums of the rows of a small matrix, as for the gradient of a bias: blocks are as narrow as whole sectors."""
    few, many = (RowProblem(columns, 512, 8, False, loads=(2,), store_bytes=0) for columns in (2304, 65536))
    assert rank(few)[0].config.rows * few.width * 2 == 32
    assert rank(many)[0].config.rows >= 8
    wide = RowProblem(2304, 512, 4, False, loads=(4,), store_bytes=0)
    assert all(e.config.rows * wide.width * 4 >= 32 for e in rank(wide))


def test_an_input_whose_neighbors_are_in_other_rows_is_looked_up_element_by_element() -> None:
    """Each thread along a row reads another line: the fewer there are, the fewer lines of one load."""
    plain = RowProblem(32768, 512, 8, loads=(4, 4), loaded=1.2e6, stored=1.3e5)
    crossed = replace(plain, crossed=1)
    config = rank(plain)[0].config
    assert estimate(crossed, config).bound == "lookups"
    assert estimate(crossed, config).us > 3 * estimate(plain, config).us
    assert estimate(crossed, replace(config, threads=8, rows=16)).us < estimate(crossed, replace(config, threads=16, rows=8)).us


def test_a_cooperative_launch_overlaps_with_none() -> None:
    problem = RowProblem(1, 1 << 22)
    config = rank(problem)[0].config
    assert config.blocks > 1
    without = replace(problem, target=replace(H200, arch="sm_80"))
    assert estimate(problem, config).us - estimate(without, config).us == pytest.approx(H200.overlap_us, abs=0.01)


def test_short_runs_cost_parts_of_sectors_and_lines() -> None:
    whole = RowProblem(4096, 4608, width=1, loads=(4,), store_bytes=0)
    config = RowConfig(64, 1, 8)
    short, long = (estimate(replace(whole, run=run), config).us for run in (9, 4608))
    assert long == pytest.approx(estimate(whole, config).us, rel=0.2)
    assert short > 1.3 * long
    assert estimate(replace(whole, run=9), RowConfig(32, 8, 8)).us < short  # the next rows have the rest of the sectors


def test_rows_at_odd_places_are_many_to_a_block() -> None:
    """Across an axis of 321 float32 each block begins and ends within a sector of every element of its rows; of 320 none does."""
    odd = RowProblem(64 * 321, 336, 1, False, phases=3, loads=(4,), store_bytes=4, held=((Keep.REGISTERS, 4),), span=321)
    even = replace(odd, rows=64 * 320, span=320)
    narrow, wide = RowConfig(16, 8, 21, 1, Keep.REGISTERS), RowConfig(16, 32, 21, 1, Keep.REGISTERS)
    assert estimate(odd, narrow).us > 1.2 * estimate(odd, wide).us
    assert estimate(even, narrow).us < 1.05 * estimate(even, wide).us
    assert rank(odd)[0].config.rows >= 32


def test_rows_of_a_warp_share_the_lines_of_their_runs() -> None:
    """Windows of 2 x 2: a warp has 16 of them, whose elements lie in two stretches of memory."""
    windows = RowProblem(1 << 24, 4, width=2, loads=(4,), store_bytes=4)
    assert rank(replace(windows, run=2))[0].us == pytest.approx(rank(windows)[0].us, rel=0.2)


def test_threads_of_a_row_look_up_lines_of_their_own() -> None:
    """Of an input whose elements lie along a kept axis, also behind the end of the contiguous one."""
    rows = RowProblem(4032, 1024, width=16, loads=(4, 1), crossed=1, turn=2)
    few, many = RowConfig(8, 16, 1), RowConfig(32, 4, 1)
    assert estimate(rows, many).us < 1.3 * estimate(rows, few).us
    apart = replace(rows, apart=1)
    assert estimate(apart, many).us > 2 * estimate(apart, few).us


def test_blocks_of_short_rows_are_few_enough_to_begin() -> None:
    """Sums of 8 terms, of which each thread has one: blocks of a warp would begin for longer than the memory moves."""
    sums = RowProblem(1 << 21, 8, width=1, is_inner=False, loads=(4,), store_bytes=4)
    assert estimate(sums, RowConfig(1, 32, 8)).us > 1.1 * rank(sums)[0].us
    assert rank(sums)[0].config.rows >= 64


def test_stores_along_another_axis_cost_sectors() -> None:
    rows = RowProblem(4096, 4096, phases=2, held=((Keep.REGISTERS, 2),))
    assert rank(replace(rows, scattered=1))[0].us > 2 * rank(rows)[0].us


def test_blocks_that_share_rows_are_as_many_on_each_multiprocessor() -> None:
    """160 blocks on 132 multiprocessors take as long as 264: where instructions are the bound, rows are shared by 13 or 26 blocks, not by 16."""
    problem = RowProblem(1280, 4096, 8, is_inner=False, loads=(4, 2, 2, 2, 2), store_bytes=12, functions=6, slots=110)
    chosen = rank(problem)[0]
    groups = ceil(problem.row_vectors / chosen.config.rows)
    assert chosen.config.blocks & (chosen.config.blocks - 1)
    assert 0.95 * 2 * H200.sms < groups * chosen.config.blocks <= 2 * H200.sms
    uneven = estimate(problem, replace(chosen.config, blocks=chosen.config.rows))
    assert uneven.us > chosen.us
    unknown = rank(replace(problem, is_constant=False))[0].config.blocks
    assert not unknown & (unknown - 1)  # trips alternate


def test_instructions_are_counted_where_a_norm_has_fewer() -> None:
    few = RowProblem(1 << 14, 4096, phases=2)
    assert estimate(replace(few, slots=4), RowConfig(256)).us == estimate(few, RowConfig(256)).us
    assert estimate(replace(few, slots=400), RowConfig(256)).us > 5 * estimate(few, RowConfig(256)).us


def test_threads_behind_the_end_of_an_axis_that_is_crossed_take_the_lines_of_the_first() -> None:
    """Sums over heads of what a product stored turned: 16 vectors along the axis across which neighbors lie, and threads of one row in other heads."""
    problem = RowProblem(524288, 4, 8, False, loads=(2,), store_bytes=2, crossed=1, apart=1, turn=16)
    tall, flat = RowConfig(1, 64, 1), RowConfig(2, 16, 1)
    assert estimate(problem, flat).bound == "lookups"
    assert estimate(problem, tall).us < 0.7 * estimate(problem, flat).us
    assert estimate(replace(problem, apart=0), flat).us < 0.7 * estimate(problem, flat).us
    assert estimate(replace(problem, turn=1), tall).us < 0.7 * estimate(problem, tall).us
