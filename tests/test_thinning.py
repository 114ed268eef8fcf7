"""What the rules leave out: nothing of any axis, and no pair of values."""

from itertools import product

from taskfuse.sim import Interleaving
from tests.thinning import in_turn, pairs, some_interleavings


def test_every_two_values_meet() -> None:
    axes = "abcd", range(5), (True, False)
    found = pairs(*axes)
    assert len(found) == 20
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert {(point[i], point[j]) for point in found} == set(product(axes[i], axes[j]))


def test_all_values_of_both_take_their_turn() -> None:
    assert in_turn("abc", [1, 2]) == [("a", 1), ("b", 2), ("c", 1)]
    assert in_turn([1], "ab") == [(1, "a"), (1, "b")]


def test_few_things_have_all_interleavings() -> None:
    assert {kind for n in range(40) for kind in some_interleavings(n)} == set(Interleaving)
    assert some_interleavings("x") == some_interleavings("x")
    assert len(set(some_interleavings("x"))) == 3
