"""Which thread stores what another reads, against looking at all of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.check.values.partial_results import ThreadSets, places, writers_of

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


def test_places() -> None:
    assert places([np.array([0, 1, 0])], np.ones(3, np.bool_)) == {(0,): [0, 2], (1,): [1]}
    assert places([np.broadcast_to(np.int64(4), 3)], np.ones(3, np.bool_)) == {(4,): slice(3)}
