"""While a kernel is lowered or proved no cycles are collected; afterwards they are if they were before, whatever happens in between."""

import gc
from collections.abc import Iterator
from threading import Barrier, Thread

import pytest

from taskfuse.collector import SELDOM, Pause, Seldom


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    """Tests start and end with the collector at work."""
    assert gc.isenabled()
    yield
    gc.enable()


def test_nobody_collects_until_the_last_one_is_out() -> None:
    pause = Pause()
    with pause:
        assert not gc.isenabled()
        with pause:
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_ends_the_pause() -> None:
    with pytest.raises(KeyError), Pause():
        raise KeyError
    assert gc.isenabled()


def test_who_collects_nothing_is_left_alone() -> None:
    gc.disable()
    with Pause():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_threads_share_a_pause() -> None:
    pause, both, out = Pause(), Barrier(2), Barrier(2)
    seen: list[bool] = []

    def run() -> None:
        with pause:
            both.wait()
        out.wait()

    other = Thread(target=run)
    other.start()
    with pause:
        both.wait()
        out.wait()  # the other one has left
        seen.append(gc.isenabled())
    other.join()
    assert seen == [False]
    assert gc.isenabled()


@pytest.mark.parametrize("given", [(700, 10, 10), (700, 10, SELDOM[2] + 1), (0, 10, 10), (SELDOM[0] + 1, 5, 5)])
def test_a_search_collects_seldom_and_restores_what_was_set(given: tuple[int, int, int]) -> None:
    """Who collects even less is left alone."""
    before, seldom = gc.get_threshold(), Seldom()
    inside = (SELDOM[0], SELDOM[1], max(SELDOM[2], given[2])) if given[0] == 700 else given
    try:
        gc.set_threshold(*given)
        with seldom:
            assert gc.get_threshold() == inside
            with seldom:
                pass
            assert gc.get_threshold() == inside
        assert gc.get_threshold() == given
    finally:
        gc.set_threshold(*before)
