"""The spaces of code around scans: where its rows are, and which axis runs along them."""

import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers.elementwise import at_readers
from taskfuse.schedulers.scan_spaces import RowSpace, ScanSpaces, find_spaces


def spaces(*outputs: tf.TensorView) -> ScanSpaces:
    fusion = outputs[0].fusion
    for tv in outputs:
        fusion.add_output(tv)
    return find_spaces(at_readers(fusion))


def names(found: ScanSpaces) -> dict[str, RowSpace]:
    """Of outputs alone."""
    return {tv.name: space for tv, space in found.others.items() if tv.is_output}


def test_axes_in_any_order() -> None:
    with tf.Fusion("spaces"):
        x = tf.define_tensor([2, 12, 3, 5], name="x")
        y = tf.cumsum(x, 1)
        last, late, turned = y[:, -1] + 1.0, y[:, 3:] + 1.0, tf.permute(y[:, ::2], (3, 1, 2, 0)) + 1.0
        found = spaces(y * x, last, late, turned)
    assert found.own == RowSpace((0, 2, 3), 1, is_own=True)
    assert not found.is_inner
    assert list(names(found).values()) == [RowSpace((0, 1, 2), None, is_own=False), RowSpace((0, 2, 3), 1, is_own=False), RowSpace((3, 2, 0), 1, is_own=False)]
    assert not any(space.is_along for space in found.others.values())
    assert len(found.shared) == 1


def test_what_reads_a_scan_at_its_own_points_has_its_space() -> None:
    with tf.Fusion("spaces"):
        x = tf.define_tensor(["M", 12], name="x")
        found = spaces(tf.cumsum(tf.cumsum(x, 1) * 2.0, 1) + x)
    assert not found.others
    assert not found.shared
    assert found.is_inner


def test_a_scan_that_another_reads_elsewhere_is_shared() -> None:
    with tf.Fusion("spaces"):
        x = tf.define_tensor(["M", 12, 4], name="x")
        found = spaces(tf.cumsum(tf.flip(tf.cumsum(x, 1), 1), 1))
    assert not found.others
    assert len(found.shared) == 1


def test_where_elements_of_a_row_lie_side_by_side() -> None:
    assert RowSpace((0, 1), 2, is_own=False).is_along
    assert not RowSpace((0, 2), 1, is_own=False).is_along
    assert not RowSpace((0, 1), None, is_own=False).is_along


def test_no_rows() -> None:
    with tf.Fusion("spaces"):
        x = tf.define_tensor([4, 12], name="x")
        with pytest.raises(UnsupportedError, match="has other rows than the scans"):
            spaces(tf.cumsum(x, 1), x[:2] + 1.0)
