"""scatter: a concatenation and what is elementwise behind it, part by part: the same values, stored as slices; what it does not take."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import LoweringError, ScheduleError
from taskfuse.ir.expr import Assemble, Pointwise, reads
from taskfuse.ir.storage import needed, storage_reads
from taskfuse.schedule.scatter import is_concatenation
from tests.lowering.running import agrees, numbers
from tests.schedule.points import refused


def joined(dim: int = 0, form: str = "gather") -> tuple[tf.Fusion, tf.TensorView]:
    """relu(cat(x, y)) * 2."""
    shapes = [[3, 4], [5, 4]] if dim == 0 else [[4, 3], [4, 5]]
    with tf.Fusion("joined") as fusion:
        x, y = (tf.define_tensor(list(s)) for s in shapes)
        c = tf.cat([x, y], dim, form)
        fusion.add_output(tf.relu(c) * 2.0)
    return fusion, c


@pytest.mark.parametrize("dim", [0, 1])
def test_parts_are_computed_through_every_reader(dim: int) -> None:
    fusion, c = joined(dim)
    args = (numbers(3, 4), numbers(5, 4, seed=1)) if dim == 0 else (numbers(4, 3), numbers(4, 5, seed=1))
    (before,) = fusion.evaluate(*args)
    assert is_concatenation(c)
    stored = c.scatter()
    (after,) = fusion.evaluate(*args)
    np.testing.assert_array_equal(before, after)
    assert [[str(e) for e in tv.shape] for tv in stored] == ([["3", "4"], ["5", "4"]] if dim == 0 else [["4", "3"], ["4", "5"]])
    assert isinstance(fusion.definition(fusion.outputs[0]), Assemble)
    assert all(isinstance(fusion.definition(tv), Pointwise) for tv in stored)
    assert c not in set(fusion.tensors())  # nothing reads the whole
    agrees(fusion, *args)


def test_an_intermediate_output_is_stored_too() -> None:
    fusion, c = joined()
    fusion.add_output(c)
    assert len(c.scatter()) == 4
    for tv in fusion.outputs:
        assert isinstance(fusion.definition(tv), Assemble)
    agrees(fusion, numbers(3, 4), numbers(5, 4, seed=1))


def test_stacks_are_concatenations() -> None:
    with tf.Fusion("stacked") as fusion:
        x, y = tf.define_tensor([4]), tf.define_tensor([4])
        s = tf.stack([x, y], 1)
        fusion.add_output(tf.neg(s))
    assert is_concatenation(s)
    s.scatter()
    agrees(fusion, numbers(4), numbers(4, seed=1))


@pytest.mark.parametrize("stacks", [False, True])
def test_parts_of_readers_with_the_axes_in_another_order(stacks: bool) -> None:
    """What is joined is an output as it is, and read by a function with its axes turned, beside a tensor that has those."""
    with tf.Fusion("turned") as fusion:
        x, y, z = tf.define_tensor([3, 4, 2]), tf.define_tensor([3, 4, 2]), tf.define_tensor([4, 3, 2, 2] if stacks else [4, 3, 4])
        c = tf.stack([x, tf.sin(y)], 2) if stacks else tf.cat([x, tf.sin(y)], 2)
        fusion.add_output(c)
        fusion.add_output(tf.permute(c, [1, 0, 2, 3] if stacks else [1, 0, 2]) * z)
    args = numbers(3, 4, 2), numbers(3, 4, 2, seed=1), numbers(*((4, 3, 2, 2) if stacks else (4, 3, 4)), seed=2)
    before = fusion.evaluate(*args)
    assert len(c.scatter()) == 4
    for mine, wanted in zip(fusion.evaluate(*args), before, strict=True):
        np.testing.assert_array_equal(mine, wanted)
    agrees(fusion, *args)


def test_what_is_no_concatenation() -> None:
    with tf.Fusion("padded") as fusion:
        x = tf.define_tensor([4])
        p = tf.pad(x, [(1, 1)])
        fusion.add_output(tf.neg(p))
    assert not is_concatenation(p)
    reason = "it is not a concatenation of parts that fill it along one axis, nor ragged rows of tiles"
    text = f"scatter({p.name}): {reason}\nhelp: tf.cat, tf.stack and tf.grouped_matmul make one"
    assert refused(lambda: p.scatter(), fusion) == text


@pytest.mark.parametrize("reader", ["sum", "turned", "shifted"])
def test_readers_that_see_more_than_their_own_element(reader: str) -> None:
    with tf.Fusion("read") as fusion:
        x, y = tf.define_tensor([2, 4]), tf.define_tensor([2, 4])
        c = tf.cat([x, y])
        match reader:
            case "sum":
                found = tf.sum(c, 1)
            case "turned":
                found = c + c.T
            case _:
                found = c + tf.flip(c, 1)
        fusion.add_output(found)
    assert not is_concatenation(c)
    why = "which is computed from it, is not elementwise of its shape" if reader == "sum" else "reads it at another point than its own"
    expected = f"scatter({c.name}): {found.name}{',' if reader == 'sum' else ''} {why}\nhelp: leave it in gather form, or make its copy an output of its own"
    assert refused(lambda: c.scatter(), fusion) == expected


def test_what_is_scheduled_already_stays() -> None:
    fusion, c = joined()
    c.split(0, 2)
    assert refused(lambda: c.scatter(), fusion) == f"scatter({c.name}): {c.name} is scheduled already\nhelp: scatter first"


# -- ragged rows ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_ragged_rows_through_elementwise_readers(weighted: bool) -> None:
    with tf.Fusion("ragged") as fusion:
        a, b = tf.define_tensor((9, 3), name="a"), tf.define_tensor((3, 3, 2), name="b")
        product = tf.grouped_matmul(a, b, tf.table("offsets", 4, 9, rising=True))
        fusion.add_output(product * tf.define_tensor(9, name="w")[:, None] if weighted else tf.relu(product))
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, (9, 3)).astype(np.float32), rng.integers(-4, 5, (3, 3, 2)).astype(np.float32), np.array([0, 4, 4, 9], np.int32)]
    arrays += [rng.integers(-4, 5, 9).astype(np.float32)] if weighted else []
    (wanted,) = fusion.evaluate(*arrays)
    product.scatter()
    assert " if " in str(fusion)
    for found in (fusion, tf.parse_fusion(str(fusion))):
        assert (found.evaluate(*arrays)[0] == wanted).all()


@pytest.mark.parametrize("table", ["0..9", "0..8 rising", "1..9 rising"])
def test_rows_of_tables_without_the_promise_stay_in_gather_form(table: str) -> None:
    with tf.Fusion("ragged") as fusion:
        a, b = tf.define_tensor((9, 3), name="a"), tf.define_tensor((3, 3, 2), name="b")
        fusion.add_output(tf.grouped_matmul(a, b, tf.table("offsets", 4, 9, rising=True)))
    other = tf.parse_fusion(str(fusion).replace("0..9 rising", table))
    with pytest.raises(ScheduleError, match="nor ragged rows of tiles"):
        other.outputs[0].scatter()


def test_rows_that_are_stored_and_read() -> None:
    """Tiles have rows that belong to others, which have no place in the output: what reads the rows reads those that are stored, before they are."""
    with tf.Fusion("ragged") as fusion:
        a, b = tf.define_tensor((9, 3), name="a"), tf.define_tensor((3, 3, 2), name="b")
        product = tf.grouped_matmul(a, b, tf.table("offsets", 4, 9, rising=True), tile=4)
        fusion.add_output(product)
        fusion.add_output(tf.relu(product))
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, (9, 3)).astype(np.float32), rng.integers(-4, 5, (3, 3, 2)).astype(np.float32), np.array([0, 4, 4, 9], np.int32)]
    wanted = fusion.evaluate(*arrays)
    stored, shown = product.scatter()
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert all((x == y).all() for x, y in zip(kernel.simulate(*arrays), wanted, strict=True))
    read = shown.definition
    assert read is not None
    (of,) = reads(read)
    before, after = (f"{shown.name}: float32[5, 4, 2] = relu({name})" for name in (of.tensor.name, stored.name))
    tf.lower(tf.parse_fusion(str(fusion).replace(before, after)))  # each thread reads what it stored
    other = str(fusion).replace(before, f"other: float32[5, 4, 2] = neg({stored.name})\n{before}").replace(before, after.replace(stored.name, "other"))
    with pytest.raises(LoweringError, match=f"other reads all of it, and it is stored in {product.name}, where some of its elements have no place"):
        tf.lower(tf.parse_fusion(other.replace("ORDER ", "ORDER other, ")))


@pytest.mark.parametrize("is_copied", [False, True])
def test_ragged_rows_of_the_same_tiles_that_meet(is_copied: bool) -> None:
    """What reads rows of two products of the same groups reads their tiles, each at its own place."""
    with tf.Fusion("gated") as fusion:
        a, b, c = tf.define_tensor((9, 3), name="a"), *(tf.define_tensor((3, 3, 2), name=name) for name in "bc")
        offsets = tf.table("offsets", 4, 9, rising=True)
        gate, up = (tf.grouped_matmul(a, x, offsets, tile=4) for x in (b, c))
        fusion.add_output(tf.relu(gate) * up)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, shape).astype(np.float32) for shape in ((9, 3), (3, 3, 2), (3, 3, 2))] + [np.array([0, 4, 4, 9], np.int32)]
    (wanted,) = fusion.evaluate(*arrays)
    if is_copied:
        up.cache_after()
    gate.scatter()
    pointwise = [e for e in needed(fusion) if isinstance(e, Pointwise)]
    assert not [r for e in pointwise for r in storage_reads(fusion, e) if "upper_bound" in str(r.index)]  # no row of a tile is looked up
    assert (fusion.evaluate(*arrays)[0] == wanted).all()
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert (kernel.simulate(*arrays)[0] == wanted).all()


def test_ragged_rows_of_other_tiles_stay_rows() -> None:
    with tf.Fusion("unlike") as fusion:
        a, b = tf.define_tensor((9, 3), name="a"), tf.define_tensor((3, 3, 2), name="b")
        offsets = tf.table("offsets", 4, 9, rising=True)
        one, two = (tf.grouped_matmul(a, b, offsets, tile=tile) for tile in (4, 3))
        fusion.add_output(one + two)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, shape).astype(np.float32) for shape in ((9, 3), (3, 3, 2))] + [np.array([0, 4, 4, 9], np.int32)]
    (wanted,) = fusion.evaluate(*arrays)
    one.scatter()
    assert (fusion.evaluate(*arrays)[0] == wanted).all()
