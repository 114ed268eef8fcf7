"""Which thread stores what another reads, against looking at all of them."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.check.values.partial_results import SharedSets, ThreadSets, writers_of

THREADS = 6
numbers = st.lists(st.integers(0, 2), min_size=THREADS, max_size=THREADS)


@given(st.lists(st.tuples(numbers, numbers), max_size=2), st.lists(st.booleans(), min_size=THREADS, max_size=THREADS), numbers, numbers)
def test_writers(axes: list[tuple[list[int], list[int]]], wrote: list[bool], sets: list[int], of: list[int]) -> None:
    stored, read = [np.array(s) for s, _ in axes], [np.array(r) for _, r in axes]
    cells = ThreadSets(np.array(sets, np.uint64)[:, None], np.array(wrote), np.array(of), np.zeros(THREADS, np.int64), {}, {})
    writers, apart = writers_of(stored, read, cells)
    for t, w in enumerate(writers.tolist()):
        found = [s for s in range(THREADS) if wrote[s] and all(there[s] == here[t] for there, here in zip(stored, read, strict=True))]
        assert w in found if found else w == -1
    clash = [
        (s, t) for t in range(THREADS) for s in range(t) if wrote[s] and wrote[t] and all(x[s] == x[t] for x in stored) and (sets[s], of[s]) != (sets[t], of[t])
    ]
    assert (apart is None) is not bool(clash)
    assert apart is None or apart in clash


@given(st.integers(0, 2), st.lists(st.tuples(numbers, numbers, st.lists(st.booleans(), min_size=THREADS, max_size=THREADS)), max_size=4))
def test_shared_sets(rank: int, writes: list[tuple[list[int], list[int], list[bool]]]) -> None:
    shared = SharedSets(rank, 1)
    wanted: dict[tuple[int, ...], int] = {}
    for k, (a, b, mask) in enumerate(writes):
        index, threads = [3 * np.array(a), np.array(b) + k][:rank], np.flatnonzero(mask)
        places, first = shared.written(index, threads)
        shared.sets[places, 0] = 10 * k + first
        shared.state[places] = 0
        rows = [tuple(int(i[t]) for i in index) for t in range(THREADS)]
        for t in threads[::-1].tolist():
            wanted[rows[t]] = 10 * k + min(s for s in threads.tolist() if rows[s] == rows[t])
    for index in product(range(-1, 8), repeat=rank):
        places, threads = shared.read([np.array([i]) for i in index], np.array([0]))
        assert threads.tolist() == [0] * (index in wanted)
        assert places.tolist() == [p for p in (shared.place(index),) if p is not None]
        assert shared.sets[places, 0].tolist() == [wanted[i] for i in (index,) if i in wanted]


def test_no_place() -> None:
    for outside in (-1, 1 << 40):
        with pytest.raises(IndexError):
            SharedSets(1, 1).written([np.array([0, outside])], np.array([0, 1]))
