"""What an access of a warp moves."""

import numpy as np

from taskfuse.count.memory import distinct, kept, lines, passes, sectors

LANES = np.arange(32)[None, :]
ALL = np.ones((1, 32), bool)
FIRST = LANES < 1


def test_neighbors_share_sectors_and_lines() -> None:
    assert sectors(4 * LANES, 4, ALL).tolist() == [4]
    assert lines(4 * LANES, 4, ALL).tolist() == [1]
    assert sectors(16 * LANES, 16, ALL).tolist() == [16]
    assert lines(16 * LANES, 16, ALL).tolist() == [4]


def test_far_apart_every_lane_has_its_own() -> None:
    assert sectors(4096 * LANES, 4, ALL).tolist() == [32]
    assert lines(4096 * LANES, 4, ALL).tolist() == [32]


def test_lanes_that_do_nothing_do_not_count() -> None:
    assert sectors(4096 * LANES, 4, FIRST).tolist() == [1]
    assert distinct(LANES, np.zeros((1, 32), bool)).tolist() == [0]


def test_what_the_trip_before_touched_is_kept() -> None:
    here = 4096 * LANES + 4
    assert kept(here, here - 4, 4, ALL).tolist() == [1.0]
    assert kept(here, here - 32, 4, ALL).tolist() == [0.0]


def test_lanes_that_want_words_of_one_bank_wait_for_one_another() -> None:
    assert passes(4 * LANES, 4, ALL).tolist() == [1]
    assert passes(128 * LANES, 4, ALL).tolist() == [32]
    assert passes(132 * LANES, 4, ALL).tolist() == [1]
    assert passes(0 * LANES, 4, ALL).tolist() == [1]
    assert passes(16 * LANES, 16, ALL).tolist() == [4]
    assert passes(8 * LANES, 8, ALL).tolist() == [2]
    assert passes(128 * LANES, 16, ALL).tolist() == [32]  # eight lanes at a time, all in the first four banks
    assert passes(144 * LANES, 16, ALL).tolist() == [4]
    assert passes(16 * (LANES // 16), 16, ALL).tolist() == [1]
    assert passes(256 * LANES, 8, FIRST).tolist() == [1]
