"""Memory types, allocation domains, circular buffers."""

from collections.abc import Callable

import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import float32
from taskfuse.ir.axes import Axis
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import sym
from taskfuse.ir.tensor import AxisRef, TensorView
from taskfuse.ir.types import MemoryType
from tests.schedule.points import pair, refused

W = sym("i0")


def test_memory_types() -> None:
    x, a, b = pair(4, 4)
    a.set_memory_type(MemoryType.Shared).set_memory_type(MemoryType.Global)
    x.set_memory_type(MemoryType.Global)
    b.set_memory_type(MemoryType.Global)
    assert {tv.schedule.memory for tv in (x, a, b)} == {MemoryType.Global}
    a.fusion.task([b], "t")
    assert refused(lambda: x.set_memory_type(MemoryType.Shared), a.fusion) == (
        "set_memory_type(tv0): an input: it lives in Global memory, not in Shared\nhelp: make a copy that may: tv0.cache_after()"
    )
    assert refused(lambda: b.set_memory_type(MemoryType.Local), a.fusion) == (
        "set_memory_type(tv2): an output: it lives in Global memory, not in Local\nnote: tv2 lies in task t\nhelp: make a copy that may: tv2.cache_before()"
    )


def test_a_view_with_memory_is_a_copy() -> None:
    with Fusion("f") as fusion:
        v = tf.permute(tf.define_tensor([4, 8], dtype=float32), (1, 0))
        fusion.add_output(tf.sin(v))
    assert fusion.is_view(v)
    text = "({}): a view has no storage of its own\nhelp: tv1.set_memory_type(...) makes it a copy"
    assert refused(lambda: v.circular_buffer(2), fusion) == "circular_buffer" + text.format("tv1")
    assert refused(lambda: v.set_allocation_domain(v.logical), fusion) == "set_allocation_domain" + text.format("tv1")
    v.set_memory_type(MemoryType.Shared)
    assert not fusion.is_view(v)
    v.circular_buffer(2)


def test_circular_buffer() -> None:
    x, a, b = pair(4, 4)
    assert a.circular_buffer(3).schedule.stages == 3
    a.circular_buffer(1)
    assert refused(lambda: a.circular_buffer(0), a.fusion) == "circular_buffer(tv1): a ring has at least 1 slot, not 0"
    assert refused(lambda: x.circular_buffer(2), a.fusion) == "circular_buffer(tv0): an input: it has one copy\nhelp: buffer a copy: tv0.cache_after()"
    assert refused(lambda: b.circular_buffer(2), a.fusion) == "circular_buffer(tv2): an output: it has one copy\nhelp: buffer a copy: tv2.cache_before()"


def test_allocation_of_given_axes() -> None:
    _, a, _ = pair("S", 8, 1)
    a.split(1, 4)
    a.set_allocation_domain([a.loop[1], a.loop[0], a.loop[2]])
    assert [str(x.extent) for x in a.schedule.allocation or ()] == ["2", "S", "4"]
    a.set_allocation_domain(a.logical)
    assert a.schedule.allocation == a.logical


REFUSED: list[tuple[Callable[[TensorView], list[Axis | AxisRef]], str]] = [
    (lambda a: [a.loop[0], a.loop[0]], "the axis of extent S is given twice"),
    (lambda a: [a.loop[0], a.loop[1]], "the axis of extent 4 is missing\nhelp: give every axis of a split or swizzle, or none"),
    (lambda a: [a.logical[1]], "logical axis 0 (extent S) is not covered\nhelp: derive the axes from the logical axes [S, 8]"),
    (
        lambda a: [a.logical[0], a.logical[1], a.loop[1], a.loop[2]],
        "the axis of extent 8 is covered twice\nhelp: give an axis, or those that it was split into",
    ),
    (
        lambda a: [a.logical[0], a.logical[1], a.fusion.inputs[0].logical[1]],
        "the axis of extent 8 is not an axis of it: tv1 has no element per index of it\nhelp: derive the axes from the logical axes [S, 8]",
    ),
]


@pytest.mark.parametrize(
    ("axes", "text"),
    REFUSED,
)
def test_refused(axes: Callable[[TensorView], list[Axis | AxisRef]], text: str) -> None:
    _, a, _ = pair("S", 8)
    a.split(1, 4)
    assert refused(lambda: a.set_allocation_domain(axes(a)), a.fusion) == f"set_allocation_domain(tv1): {text}"


def test_refused_axes_without_elements() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([6, 5], dtype=float32)
        y = tf.define_tensor([4, 6], dtype=float32)
        s = tf.sum(x, axis=1)
        z = s + y
        fusion.add_output(z)
    z.propagate([s], upto=1)
    end = ": tv2 has no element per index of it\nhelp: derive the axes from the logical axes [6]"
    assert (
        refused(lambda: s.set_allocation_domain([s.loop[1], s.loop[2]]), fusion) == "set_allocation_domain(tv2): the axis of extent 5 is a reduction axis" + end
    )
    assert (
        refused(lambda: s.set_allocation_domain([s.loop[0], s.loop[1]]), fusion) == "set_allocation_domain(tv2): the axis of extent 4 is a foreign axis" + end
    )


def test_refused_tensors_and_rasters() -> None:
    x, a, b = pair(4, 6)
    text = "the caller decides where its elements are\nhelp: lay out a copy: "
    assert refused(lambda: x.set_allocation_domain(x.logical), a.fusion) == f"set_allocation_domain(tv0): an input: {text}tv0.cache_after()"
    assert refused(lambda: b.set_allocation_domain(b.logical), a.fusion) == f"set_allocation_domain(tv2): an output: {text}tv2.cache_before()"
    a.rasterize([0, 1], [W // 6, W % 6])
    assert refused(lambda: a.set_allocation_domain(a.loop), a.fusion) == (
        "set_allocation_domain(tv1): a rasterized axis is not an allocation axis\nhelp: an element must find its place: use merge and swizzle"
    )
