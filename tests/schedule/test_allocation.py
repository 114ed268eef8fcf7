"""The builder of allocation domains: every element has a place of its own, and mistakes change nothing."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse.ops as tf
from taskfuse.dtypes import float32
from taskfuse.errors import ScheduleError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import sym
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.allocation import AllocationBuilder, allocation, bind_allocation
from taskfuse.schedule.call import Call
from tests.schedule.points import extents, pair, places, refused, size

W = sym("i0")


def test_builder() -> None:
    _, a, _ = pair(16, 24)
    a.split(0, 4)
    builder = allocation(a)
    assert [size(x) for x in builder.axes] == [4, 4, 24]
    builder.split(2, 4).swizzle(0, 1).reorder([2, 0, 1, 3]).merge(1).pad(-1, 3).parallelize(0, P.TIDx)
    assert [size(x) for x in builder.axes] == [6, 16, 7]
    assert len(a.schedule.transforms) == 1
    a.set_allocation_domain(builder)
    assert extents(a) == ["4", "4", "24"]
    assert a.schedule.allocation == builder.axes
    assert a.schedule.ptype(builder.axes[0]) is P.TIDx
    assert len(set(zip(*(p.ravel() for p in places(a)), strict=True))) == 16 * 24
    count = len(a.schedule.transforms)
    a.set_allocation_domain(builder)
    assert len(a.schedule.transforms) == count


def test_builder_starts_from_own_axes_where_loops_are_foreign_or_rasterized() -> None:
    _, a, _ = pair(4, 6)
    a.rasterize([0, 1], [W // 6, W % 6])
    assert allocation(a).axes == a.logical
    with Fusion("f") as fusion:
        x = tf.define_tensor([6], dtype=float32)
        y = tf.define_tensor([4, 6], dtype=float32)
        e = tf.sin(x)
        z = e + y
        fusion.add_output(z)
    z.split(1, 3).merge(0).propagate([e], upto=2)
    assert extents(e) == ["8", "3"]
    assert [str(x.extent) for x in allocation(e).axes] == ["2", "3"]
    z2 = tf.cos(x)
    assert allocation(z2).axes == z2.logical


@given(st.data())
def test_elements_have_places_of_their_own(data: st.DataObject) -> None:
    _, a, _ = pair(8, 6)
    for _ in range(data.draw(st.integers(0, 2))):
        a.split(data.draw(st.integers(0, len(a.loop) - 1)), data.draw(st.integers(1, 4)))
    builder = allocation(a)
    for _ in range(data.draw(st.integers(0, 4))):
        n = len(builder.axes)
        axis, other = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
        match data.draw(st.integers(0, 4)):
            case 0:
                builder.split(axis, data.draw(st.integers(1, 4)))
            case 1 if axis != other:
                builder.merge(axis, other)
            case 2:
                builder.reorder(data.draw(st.permutations(range(n))))
            case 3:
                builder.pad(axis, data.draw(st.integers(0, 3)))
            case _:
                try:
                    builder.swizzle(axis, other)
                except ScheduleError:
                    assert builder.axes
    a.set_allocation_domain(builder)
    found = places(a)
    for x, index in zip(builder.axes, found, strict=True):
        assert (index >= 0).all()
        assert (index < size(x)).all()
    assert len(np.unique(np.stack([p.ravel() for p in found]), axis=1).T) == 48


def test_builder_refused() -> None:
    _, a, b = pair(4, 6)
    builder = allocation(a)
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: builder.split(2, 2), "allocation.split(tv1): axis 2 is out of range: the allocation domain has 2 axes\nhelp: use an axis in [-2, 1]"),
        (lambda: builder.merge(1), "allocation.merge(tv1): axis 2 is out of range: the allocation domain has 2 axes\nhelp: use an axis in [-2, 1]"),
        (lambda: builder.reorder({0: 2}), "allocation.reorder(tv1): axis 2 is out of range: the allocation domain has 2 axes\nhelp: use an axis in [-2, 1]"),
        (lambda: builder.swizzle(0, 0), "allocation.swizzle(tv1): axis 0 (extent 4) is given twice"),
        (lambda: builder.pad(0, -1), "allocation.pad(tv1): -1 places are fewer than 0"),
        (
            lambda: builder.parallelize(0, P.TIDx),
            "allocation.parallelize(tv1): axis 0 (extent 4) is a loop axis\nhelp: bind it as a loop axis: tensor.axis(k).parallelize(ptype)",
        ),
        (
            lambda: b.cache_before().set_allocation_domain(builder),
            "allocation(tv1): it was built for tv1, not for tv3\nhelp: tf.allocation(tv3) starts one for it",
        ),
    ]
    for call, text in calls[:-1]:
        assert refused(call, a.fusion) == text
    with pytest.raises(ScheduleError) as caught:
        calls[-1][0]()
    assert caught.value.message == calls[-1][1].splitlines()[0]
    assert caught.value.help == calls[-1][1].splitlines()[1].removeprefix("help: ")


def test_builder_bindings_are_checked_when_used() -> None:
    _, a, _ = pair(4, 6)
    a.set_memory_type(MemoryType.Shared)
    builder: AllocationBuilder = allocation(a).split(1, 2).parallelize(1, P.TIDx)
    assert refused(lambda: a.set_allocation_domain(builder), a.fusion) == (
        "allocation(tv1): an allocation axis is bound in Local memory only, but tv1 lives in Shared"
    )


@pytest.mark.parametrize("ptype", [P.TIDx, P.TIDz, P.BIDy])
def test_axes_of_an_allocation_are_bound_and_unbound_again(ptype: P) -> None:
    _, a, _ = pair(4, 6)
    bind_allocation(Call("allocation", a), a.logical[0], ptype)
    assert a.schedule.ptype(a.logical[0]) is ptype
    bind_allocation(Call("allocation", a), a.logical[0], P.Serial)
    assert a.schedule.ptype(a.logical[0]) is P.Serial


@pytest.mark.parametrize("ptype", [P.Vectorize, P.Unroll, P.Bulk, P.Mma])
def test_they_are_bound_to_indices_alone(ptype: P) -> None:
    _, a, _ = pair(4, 6)
    with pytest.raises(ScheduleError, match=f"the allocation axis of extent 4 cannot be bound to {ptype.value}"):
        bind_allocation(Call("allocation", a), a.logical[0], ptype)


@pytest.mark.parametrize("memory", [MemoryType.Shared, MemoryType.Global])
def test_they_are_bound_in_registers_alone(memory: MemoryType) -> None:
    _, a, _ = pair(4, 6)
    a.set_memory_type(memory)
    with pytest.raises(ScheduleError, match=f"bound in Local memory only, but tv1 lives in {memory.value}"):
        bind_allocation(Call("allocation", a), a.logical[0], P.TIDx)
    a.set_memory_type(MemoryType.Local)
    bind_allocation(Call("allocation", a), a.logical[0], P.TIDx)
