"""Choices at random, and those that are written down."""

from taskfuse.testing import RandomChooser


def test_random_chooser() -> None:
    chooser = RandomChooser(7)
    assert {chooser.integer(-1, 1) for _ in range(100)} == {-1, 0, 1}
    assert [RandomChooser(7).integer(0, 10**6) for _ in range(2)] == [RandomChooser(7).integer(0, 10**6)] * 2
    assert not chooser.chance(0)
    assert chooser.chance(100)
    assert sorted(chooser.order("abcd")) == list("abcd")
    for _ in range(20):
        points = chooser.split_points(5, 3)
        assert len(points) == 2 and 0 < points[0] < points[1] < 5  # noqa: PT018
    assert chooser.split_points(1, 3) == []
    assert chooser.some((), 50) == []
