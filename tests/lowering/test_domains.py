"""From loop indices to axes and back."""

from itertools import product as points

import pytest

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P
from taskfuse.ir.axes import Split
from taskfuse.ir.scalar import Const, Expr, Facts, const, evaluate, sym
from taskfuse.lowering.domains import allocation_axes, ancestors, backward, bound, digit_values, digits, divides, forward, owner_digits, product, refused


def rows(*extents: int) -> tuple[tf.Fusion, tf.TensorView]:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor(list(extents), name="x")
        y = tf.neg(x)
        fusion.add_output(y)
    return fusion, y


def number(e: Expr) -> int:
    assert isinstance(e, Const)
    return e.value


def test_loops_determine_the_element_and_the_element_the_loops() -> None:
    """[6, 4] split, merged, reordered: a loop point gives an element, whose place in the loop axes is that point again."""
    fusion, y = rows(6, 4)
    y.split(0, 2).merge(1).reorder([1, 0]).split(0, 4)
    facts = fusion.facts()
    seen: set[tuple[int, ...]] = set()
    for point in points(*(range(number(a.extent)) for a in y.loop)):
        values = backward(y, dict(zip(y.loop, map(const, point), strict=True)))
        element = tuple(values[a] for a in y.root)
        seen.add(tuple(int(evaluate(e, {})) for e in element))
        onward = forward(y, element, facts)
        assert tuple(int(evaluate(onward[a], {})) for a in y.loop) == point
    assert seen == set(points(range(6), range(4)))


def test_axes_that_loops_do_not_determine_are_absent_but_those_of_one_element() -> None:
    _, y = rows(6, 1)
    y.split(0, 2)
    values = backward(y, {y.loop[0]: sym("a")})
    assert y.root[0] not in values  # the inner loop is not known
    assert values[y.root[1]] is const(0)


def test_ancestors_are_what_an_axis_is_made_of() -> None:
    _, y = rows(6, 4)
    y.split(0, 2).merge(1)  # [outer, inner * columns]
    outer, merged = y.loop
    assert ancestors(y, (outer,)) == {outer, y.root[0]}
    assert ancestors(y, (merged,)) >= {merged, *y.root}


def test_storage_follows_own_axes_or_what_was_said() -> None:
    _, y = rows(6, 4)
    y.split(0, 2)
    assert allocation_axes(y) == tuple(y.loop)
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([6, 4], name="x")
        a = tf.exp(x)
        fusion.add_output(tf.neg(a))
    a.set_memory_type(MemoryType.Shared)
    a.set_allocation_domain(tf.layouts.padded(1))
    assert a.schedule.allocation is not None
    assert allocation_axes(a) == a.schedule.allocation


def test_digits_of_an_index_are_its_bound_loops_and_the_lanes_of_an_atom() -> None:
    _, y = rows(6, 4)
    y.split(0, 2)
    y.axis(0).parallelize(P.TIDx)
    y.axis(2).parallelize(P.TIDx)
    assert digits(y, P.TIDx) == (y.loop[0], y.loop[2])
    assert digits(y, P.TIDy) == ()
    assert str(product(digits(y, P.TIDx))) == "12"
    assert owner_digits(y, P.TIDx) == digits(y, P.TIDx)
    found = digit_values(digits(y, P.TIDx), sym("t"), Facts().with_range("t", 0, 11))
    assert [str(found[a]) for a in digits(y, P.TIDx)] == ["t//4", "t % 4"]


def test_lanes_of_tensor_cores_are_the_innermost_digit() -> None:
    with tf.Fusion("f") as fusion:
        a, b = tf.define_tensor([16, 16], dtype=tf.bfloat16, name="a"), tf.define_tensor([8, 16], dtype=tf.bfloat16, name="b")
        c = tf.matmul(a, b.T, dtype=tf.float32)
        fusion.add_output(c)
    made = c.cache_before()
    made.set_atom(atoms.mma(16, 8, 16), (0, 1, 2))
    (lanes,) = digits(made, P.TIDx)
    assert str(lanes.extent) == "32"
    assert digits(made, P.TIDy) == ()
    assert made.schedule.allocation is not None
    assert digits(made, P.TIDx) != owner_digits(made, P.TIDx)  # where the fragment lies is the allocation's to say
    assert set(owner_digits(made, P.TIDx)) <= set(made.schedule.allocation)


@pytest.mark.parametrize(("extent", "factor", "expected"), [(12, 4, True), (12, 5, False)])
def test_a_split_with_a_remainder(extent: int, factor: int, expected: bool) -> None:
    fusion, y = rows(extent)
    y.split(0, factor)
    (t,) = y.schedule.transforms
    assert isinstance(t, Split)
    assert divides(t, fusion.facts()) is expected


def test_a_split_of_a_declared_multiple_has_no_remainder() -> None:
    with tf.Fusion("f") as fusion:
        y = tf.neg(tf.define_tensor([tf.dim("N", multiple_of=8)], name="x"))
        fusion.add_output(y)
    y.split(0, 4)
    (t,) = y.schedule.transforms
    assert isinstance(t, Split)
    assert divides(t, fusion.facts())
    assert not divides(t, Facts())


def test_a_bound_is_what_is_not_known() -> None:
    facts = Facts().with_range("i", 0, 7)
    assert bound(sym("i"), const(8), facts) == []
    assert [str(c) for c in bound(sym("i"), const(7), facts)] == ["i < 7"]


def test_an_error_names_the_tensor_and_its_line() -> None:
    _, y = rows(4)
    error = refused(y, "it is too small", "make it larger")
    assert error.message == f"cannot lower {y.name}: it is too small"
    assert (error.help, error.location) == ("make it larger", y.location)
