"""through_view: an operand read at any index is read at the reader's own axes, through a view that has the index."""

from typing import Any, cast

import numpy as np

import taskfuse as tf
from taskfuse.ir.expr import Pointwise, Read, Reduction
from taskfuse.ir.storage import storage_reads
from taskfuse.schedule.through_view import is_whole, own_index, reads_through
from tests.schedule.points import refused


def rows(*, permuted: bool = False) -> tuple[tf.Fusion, tf.TensorView]:
    """A product whose factor is a reshaped array."""
    with tf.Fusion("rows") as fusion:
        x, w = tf.define_tensor([8, 2, 4], name="x"), tf.define_tensor([4, 8], name="w")
        y = tf.matmul((x.permute(1, 0, 2) if permuted else x).reshape(16, 4), w)
        fusion.add_output(y)
    return fusion, y


def operand(fusion: tf.Fusion, y: tf.TensorView) -> Read:
    """The first operand of ``y``."""
    expr = fusion.definition(y)
    assert isinstance(expr, Pointwise | Reduction)
    found = expr.operands[0]
    assert isinstance(found, Read)
    return found


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


def test_the_operand_is_a_view_with_the_axes_that_the_reader_uses() -> None:
    for permuted in (False, True):
        fusion, y = rows(permuted=permuted)
        args = numbers(8, 2, 4), numbers(4, 8)
        (before,) = fusion.evaluate(*args)
        view = y.through_view(0)
        assert fusion.is_view(view)
        assert [str(e) for e in view.shape] == ["16", "4"]
        read = operand(fusion, y)
        assert read.tensor is view
        assert [str(e) for e in read.index] == ["i0", "i2"]  # rows and k, of rows, columns and k
        assert np.array_equal(before, fusion.evaluate(*args)[0])


def test_views_that_nobody_reads_any_more_are_gone() -> None:
    fusion, y = rows(permuted=True)
    y.through_view(0)
    assert sum(map(fusion.is_view, fusion.tensors())) == 1


def test_neighbors_that_read_one_element_are_packed() -> None:
    """Of chunks of a row of bytes, each of which has two elements, and of scales of groups of 6 and of 4: chunks of 12 are whole groups of both."""
    with tf.Fusion("packed") as fusion:
        w, six, five = (tf.define_tensor([4, n], name=name) for name, n in (("w", 24), ("six", 8), ("five", 10)))
        wide = [tf.reshape(tf.broadcast_to(t[:, :, None], [4, t.shape[1], n]), [4, 48]) for t, n in ((w, 2), (six, 6))]
        rest = tf.reshape(tf.broadcast_to(five[:, :, None], [4, 10, 5]), [4, 50])[:, :48]
        y = tf.permute(tf.reshape(wide[0], [4, 4, 12]), [1, 0, 2]) + tf.permute(tf.reshape(wide[1], [4, 4, 12]), [1, 0, 2])
        z = tf.permute(tf.reshape(rest, [4, 4, 12]), [1, 0, 2]) * 2.0
        fusion.add_output(y, z)
    args = numbers(4, 24), numbers(4, 8), numbers(4, 10)
    before = fusion.evaluate(*args)
    views = [y.through_view(k, packed=True) for k in (0, 1)]
    assert [[str(e) for e in v.shape] for v in views] == [["4", "4", "6"], ["4", "4", "2"]]
    assert [str(e) for e in operand(fusion, y).index] == ["i0", "i1", "i2//2"]
    assert str(z.through_view(0, packed=True).shape[0]) == "4"  # 5 do not divide 12: the view has an element for each
    assert all(map(np.array_equal, before, fusion.evaluate(*args)))


def test_neighbors_in_memory_are_the_last_axis() -> None:
    """``y[m, n] = x.T[m, n] + z[m, n]``: neighbors along m lie side by side in x, so that its view is [n, m]."""
    with tf.Fusion("turned") as fusion:
        x, z = tf.define_tensor([8, 4], name="x"), tf.define_tensor([4, 8], name="z")
        y = x.T + z
        fusion.add_output(y)
    args = numbers(8, 4), numbers(4, 8)
    (before,) = fusion.evaluate(*args)
    view = y.through_view(0)
    assert [str(e) for e in view.shape] == ["8", "4"]
    assert [str(e) for e in operand(fusion, y).index] == ["i1", "i0"]
    assert np.array_equal(before, fusion.evaluate(*args)[0])


def test_a_list_of_different_whole_axes_is_whole() -> None:
    with tf.Fusion("reads") as fusion:
        x, b, s = tf.define_tensor([4, 4], name="x"), tf.define_tensor([1, 4], name="b"), tf.define_tensor([4, 8], name="s")
        y = x.T + b + s[:, :4] + tf.flip(x, 0)
        fusion.add_output(y)
    found = {}
    for expr in fusion.exprs():
        if not fusion.is_view(expr.output):
            for read in storage_reads(fusion, expr):
                index = own_index(fusion, expr, read)
                found[read.tensor.name, ", ".join(map(str, index))] = is_whole(expr, read, index)
    assert found[x.name, "i1, i0"]
    assert found[b.name, "0, i1"]
    assert not found[s.name, "i0, i1"]  # a part of the axis
    assert not found[x.name, "3 - i0, i1"]


def test_one_axis_twice_is_not_whole() -> None:
    with tf.Fusion("square") as fusion:
        x = tf.define_tensor([4, 4], name="x")
        fusion.add_output(tf.neg(x))
    (expr,) = fusion.exprs()
    (read,) = storage_reads(fusion, expr)
    first, second = read.index
    assert is_whole(expr, read, (second, first))
    assert not is_whole(expr, read, (first, first))


def test_a_view_that_another_reader_has() -> None:
    with tf.Fusion("halves") as fusion:
        x = tf.define_tensor([8, 4], name="x")
        low, again, high = (tf.exp(x[part]) for part in (slice(0, 4), slice(0, 4), slice(4, 8)))
        for tv in (low, again, high):
            fusion.add_output(tv)
    view = low.through_view(0)
    assert reads_through(again, 0, view)
    assert again.through_view(0, view) is view
    assert not reads_through(high, 0, view)
    assert not reads_through(high, 0, x)
    wanted = f"through_view({high.name}): {view.name} is another view than that of operand 0\nhelp: leave it out, and a view is made"
    assert refused(lambda: high.through_view(0, view), fusion) == wanted
    given = np.arange(32, dtype=np.float32).reshape(8, 4) / 16
    np.testing.assert_array_equal(fusion.evaluate(given)[1], np.exp(given[:4]))


def test_a_view_that_has_more_elements_in_another_order() -> None:
    """The rows of a chunk of x, of which another reader takes chunks first, and columns from the second on."""
    with tf.Fusion("parts") as fusion:
        x = tf.define_tensor([2, 12, 4], name="x")
        whole = x.reshape(2, 3, 4, 4) + 1.0
        some = tf.exp(x[:, :, 1:3].reshape(2, 3, 4, 2).permute(1, 0, 2, 3))
        beyond = tf.exp(x.reshape(2, 3, 16)[:, :, 1:13])
        for tv in (whole, some, beyond):
            fusion.add_output(tv)
    given = numbers(2, 12, 4)
    wanted = fusion.evaluate(given)
    view = whole.through_view(0)
    assert some.through_view(0, view) is view
    assert [str(e) for e in operand(fusion, some).index] == ["i1", "i0", "i2", "i3 + 1"]
    assert not reads_through(beyond, 0, view)
    for a, b in zip(fusion.evaluate(given), wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    few = some.through_view(0)
    assert not reads_through(whole, 0, few)


def test_refusals() -> None:
    with tf.Fusion("none") as fusion:
        x = tf.define_tensor([8], name="x")
        padded = tf.pad(x, [(1, 1)])
        y = x * 2.0
        fusion.add_output(padded)
        fusion.add_output(y)
    assert refused(lambda: x.through_view(0), fusion) == "through_view(x): x has no operands\nhelp: name what reads the view"
    for operand in (2, -1, "a", None, 0.0, False):
        wanted = f"through_view({y.name}): it has no operand {operand!r}\nhelp: it has 2"
        assert refused(lambda operand=operand: y.through_view(cast("Any", operand)), fusion) == wanted
    assert refused(lambda: y.through_view(0, cast("Any", 3)), fusion).startswith(f"through_view({y.name}): 3 is not a tensor\n")
    for also in (3, [3], [(y,)], [(3, 0)]):
        said = refused(lambda also=also: y.through_view(0, also=cast("Any", also)), fusion)
        assert said.endswith("is not a reader with the number of its operand\nhelp: give pairs such as (y, 0)")
    assert refused(lambda: y.through_view(1), fusion) == f"through_view({y.name}): operand 1 reads no tensor"
    assert refused(lambda: padded.through_view(0), fusion) == f"through_view({padded.name}): operand 0 reads x only in some iterations"
    with tf.Fusion("found") as fusion:
        x, i = tf.define_tensor([8], name="x"), tf.define_tensor([4], tf.int32)
        y = tf.take(x, i, 0)
        fusion.add_output(y)
    said = "operand 0 is an element of x that data selects\nhelp: a view has an index without data"
    assert refused(lambda: y.through_view(0), fusion) == f"through_view({y.name}): {said}"


def test_several_readers_take_a_view_that_is_there() -> None:
    with tf.Fusion("three") as fusion:
        x = tf.define_tensor([8, 4], name="x")
        first, second, third, high = (tf.exp(x[part]) for part in (slice(0, 4), slice(0, 4), slice(0, 4), slice(4, 8)))
        for tv in (first, second, third, high):
            fusion.add_output(tv)
    view = first.through_view(0)
    said = refused(lambda: high.through_view(0, view, also=[(second, 0)]), fusion)
    assert said.startswith(f"through_view({high.name}): operand 0 of {second.name} is not the element of x that {high.name} reads")
    assert second.through_view(0, view, also=[(third, 0)]) is view
    assert operand(fusion, second).tensor is operand(fusion, third).tensor is view
    given = numbers(8, 4)
    for found, wanted in zip(fusion.evaluate(given), (given[:4], given[:4], given[:4], given[4:]), strict=True):
        np.testing.assert_array_equal(found, np.exp(wanted))


def test_readers_of_one_element_share_the_view() -> None:
    with tf.Fusion("shared") as fusion:
        x, w, v = tf.define_tensor([8, 2, 4], name="x"), tf.define_tensor([4, 8], name="w"), tf.define_tensor([4, 8], name="v")
        rows = x.reshape(16, 4)
        y, z, other = tf.matmul(rows, w), tf.matmul(x.reshape(16, 4), v), tf.matmul(tf.flip(rows, 0), v)
        for tv in (y, z, other):
            fusion.add_output(tv)
    args = numbers(8, 2, 4), numbers(4, 8), numbers(4, 8)
    wanted = fusion.evaluate(*args)
    said = refused(lambda: y.through_view(0, also=[(other, 0)]), fusion)
    assert said == f"through_view({y.name}): operand 0 of {other.name} is not the element of x that {y.name} reads\nhelp: give it a view of its own"
    view = y.through_view(0, also=[(z, 0)])
    assert operand(fusion, y).tensor is operand(fusion, z).tensor is view
    assert all(np.array_equal(a, b) for a, b in zip(wanted, fusion.evaluate(*args), strict=True))
