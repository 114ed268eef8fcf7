"""inline_at and inline_most."""

from contextlib import suppress
from typing import cast

import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import float32
from taskfuse.errors import FusionError, ScheduleError, TaskError
from taskfuse.ir.atoms import VECTOR
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.inlining import inline_most
from tests.schedule.points import pair, refused


def positions(fusion: Fusion) -> dict[str, int]:
    return {tv.name: tv.schedule.inline for tv in fusion.tensors() if tv.schedule.inline}


def softmax() -> Fusion:
    with Fusion("softmax") as fusion:
        x = tf.copy(tf.define_tensor(["B", "S"], dtype=float32))
        fusion.add_output(tf.softmax(x, axis=-1))
    return fusion


def test_inline_deeper_and_back() -> None:
    x, a, b = pair("S", 4)
    assert a.inline_at(-1) is a
    assert a.schedule.inline == 2
    a.inline_at(1)
    a.inline_at(0)
    assert a.schedule.inline == 0
    x.inline_at(2)
    b.inline_at(2)
    assert positions(a.fusion) == {}


def test_a_view_is_skipped_and_looked_through() -> None:
    with Fusion("f") as fusion:
        a = tf.sin(tf.define_tensor([4, 8], dtype=float32))
        v = tf.permute(a, (1, 0))
        b = tf.cos(v)
        fusion.add_output(b)
    v.inline_at(2)
    assert refused(lambda: a.inline_at(1), fusion) == ("inline_at(tv1): axis 0 of tv1 (extent 4) is not axis 0 of tv3 (extent 8)\nhelp: inline at 0 or less")
    b.reorder({0: 1})
    a.inline_at(2)
    assert positions(fusion) == {"tv1": 2}


def test_transforms_must_agree() -> None:
    _, a, b = pair("S", 4)
    a.split(0, 8)
    b.split(0, 4)
    assert refused(lambda: a.inline_at(1), a.fusion) == (
        "inline_at(tv1): axis 0 of tv1 (extent ceildiv(S, 8)) is not axis 0 of tv2 (extent ceildiv(S, 4))\nhelp: inline at 0 or less"
    )


@pytest.mark.parametrize("position", [3, -4])
def test_out_of_range(position: int) -> None:
    _, a, _ = pair("S", 4)
    assert refused(lambda: a.inline_at(position), a.fusion) == (
        f"inline_at(tv1): position {position} is out of range: the loop domain has 2 axes\nhelp: use a position in [-3, 2]"
    )


def test_reader_with_fewer_axes() -> None:
    _, a, b = pair(4, 4)
    b.merge(0)
    a.reorder([0, 1])
    assert refused(lambda: a.inline_at(2), a.fusion).startswith("inline_at(tv1): axis 0 of tv1 (extent 4) is not axis 0 of tv2 (extent 16)")


def test_reductions_are_not_shared() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor(["B", "S"], dtype=float32)
        s = tf.sum(x, axis=1)
        fusion.add_output(tf.sin(s))
    fusion.task([s], "sums")
    assert refused(lambda: s.inline_at(2), fusion) == (
        "inline_at(tv1): axis 1 (extent S) is a reduction axis: tv1 is complete only after the loop\nnote: tv1 lies in task sums\nhelp: inline at 1 or less"
    )
    s.inline_at(1)
    assert positions(fusion) == {"tv1": 1}


def test_atoms_are_no_loops() -> None:
    x, a, _ = pair(8, 4)
    c = x.cache_after()
    c.set_atom(VECTOR, [1])
    assert refused(lambda: c.inline_at(2), a.fusion) == ("inline_at(tv3): axis 1 of tv3 is not a loop: it is bound to Vectorize\nhelp: inline at 1 or less")
    d = c.cache_before()
    assert d.schedule.atom is VECTOR
    assert c.axis(1).ptype is P.Serial


def test_no_order_restores() -> None:
    with Fusion("f") as fusion:
        x = tf.sin(tf.define_tensor(["B", "S"], dtype=float32))
        m = tf.sum(x, axis=1)
        y = x - tf.expand_dims(m, 1)
        fusion.add_output(y)
    m.inline_at(1)
    with pytest.raises(ScheduleError) as caught:
        x.inline_at(2)
    assert "but inlining puts both into one loop" in str(caught.value)
    assert positions(fusion) == {"tv2": 1}
    x.inline_at(1)
    assert positions(fusion) == {"tv1": 1, "tv2": 1}


def diamond() -> tuple[Fusion, TensorView, TensorView]:
    """A tensor with two readers, one of which the other one reads."""
    with Fusion("diamond") as fusion:
        a = tf.exp(tf.define_tensor([8, 4], dtype=float32))
        b = tf.neg(a)
        fusion.add_output(a + b)
    return fusion, a, b


def test_several_at_once_need_one_order() -> None:
    """Without the second tensor the loop of the first one would stand around its readers, and the second one between them."""
    _, a, b = diamond()
    with pytest.raises(ScheduleError, match="must be complete before"):
        a.inline_at(2)
    fusion, a, b = diamond()
    fusion.inline_at([a, b], 2)
    assert positions(fusion) == {a.name: 2, b.name: 2}


def test_several_at_once_or_none() -> None:
    fusion, a, b = diamond()
    a.inline_at(0)
    with pytest.raises(ScheduleError, match="out of range"):
        fusion.inline_at([a, b], 3)
    assert positions(fusion) == {}
    fusion.inline_at([], 2)
    with pytest.raises(FusionError, match="inline_at: 3 is not a tensor"):
        fusion.inline_at([a, cast("TensorView", 3)], 1)
    assert positions(fusion) == {}


def test_inline_most_of_a_chain() -> None:
    _, a, b = pair("S", 4)
    a.fusion.inline_most()
    assert positions(a.fusion) == {"tv1": 2}
    assert b.schedule.inline == 0


def test_inline_most_stops_at_reductions() -> None:
    fusion = softmax()
    fusion.inline_most()
    assert positions(fusion) == {"tv1": 1, "tv2": 1, "tv4": 2, "tv5": 1, "tv6": 1, "tv8": 1}
    again = softmax()
    again.inline_most()
    assert positions(again) == positions(fusion)


def test_inline_most_is_maximal() -> None:
    fusion = softmax()
    fusion.inline_most()
    for tv in fusion.tensors():
        for depth in range(tv.schedule.inline + 1, len(tv.loop) + 1):
            before = positions(fusion)
            with suppress(ScheduleError):
                tv.inline_at(depth)
            assert positions(fusion) == before


def test_inline_most_of_some() -> None:
    fusion = softmax()
    inline_most(fusion, [fusion.tensor("tv4")])
    assert positions(fusion) == {"tv4": 2}


def test_inline_most_of_some_cannot_move_others() -> None:
    with Fusion("f") as fusion:
        x = tf.sin(tf.define_tensor(["B", "S"], dtype=float32))
        m = tf.sum(x, axis=1)
        y = x - tf.expand_dims(m, 1)
        fusion.add_output(y)
    x.schedule.inline = 2
    before = positions(fusion)
    with pytest.raises(ScheduleError, match="must be complete before tv4 reads it"):
        inline_most(fusion, [m])
    assert positions(fusion) == before


def _roles() -> tuple[Fusion, TensorView, TensorView]:
    with Fusion("f") as fusion:
        x = tf.define_tensor(["B", "S"], dtype=float32)
        a = tf.sin(x)
        c = tf.exp(a)
        b = tf.cos(a)
        fusion.add_output(b)
        fusion.add_output(c)
    fusion.task([a, c], "load")
    fusion.task([b], "compute")
    return fusion, a, c


def test_inline_most_respects_tasks() -> None:
    fusion, a, c = _roles()
    fusion.inline_most()
    assert a.schedule.inline == 2
    fusion, a, c = _roles()
    c.split(0, 4)
    fusion.inline_most()
    assert a.schedule.inline == 0


def test_broken_tasks_are_reported_and_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    _, a, _ = pair("S", 4)

    def broken(fusion: Fusion) -> None:
        raise TaskError(node="g", reason="broken")

    monkeypatch.setattr("taskfuse.schedule.order.check", broken)
    with pytest.raises(TaskError, match="g: broken"):
        a.inline_at(1)
    with pytest.raises(TaskError, match="g: broken"):
        a.fusion.inline_most()
    assert positions(a.fusion) == {}


def test_memory_of_an_inlined_view() -> None:
    with Fusion("f") as fusion:
        a = tf.sin(tf.define_tensor([4, 8], dtype=float32))
        v = tf.expand_dims(a, 0)
        b = tf.cos(v)
        fusion.add_output(b)
    b.reorder([1, 2, 0])
    a.inline_at(2)
    assert refused(lambda: v.set_memory_type(MemoryType.Shared), fusion) == (
        "set_memory_type(tv2): tv1 is inlined at 2\nhelp: call set_memory_type before inlining, or tv1.inline_at(0)"
    )
    assert refused(lambda: v.cache_after(), fusion) == ("cache_after(tv2): tv1 is inlined at 2\nhelp: call cache_after before inlining, or tv1.inline_at(0)")
