"""Binding axes, and atoms."""

import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import bfloat16, float32
from taskfuse.ir.atoms import SCALAR, VECTOR
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.allocation import allocation
from tests.schedule.points import pair, refused


def cached(*shape: int | str) -> TensorView:
    x, _, _ = pair(*shape)
    return x.cache_after()


def test_bind_and_release() -> None:
    x, a, _ = pair("S", 8, 8)
    for tv in (x, a):
        for k, p in enumerate((P.BIDx, P.TIDx, P.TIDx)):
            assert tv.axis(k).parallelize(p).ptype is p
    a.axis(1).parallelize(P.TIDx).parallelize(P.Serial).parallelize(P.TIDy)
    assert [a.axis(k).ptype for k in range(3)] == [P.BIDx, P.TIDy, P.TIDx]
    a.axis(2).parallelize(P.Serial).parallelize(P.Unroll)
    assert a.axis(2).ptype is P.Unroll


def test_vectorize_is_the_vector_atom() -> None:
    c = cached(8, 4)
    c.axis(1).parallelize(P.Vectorize)
    assert (c.schedule.atom, c.schedule.atom_axes, c.axis(1).ptype) == (VECTOR, (c.loop[1],), P.Vectorize)
    c.axis(1).parallelize(P.Vectorize)
    c.set_atom(VECTOR, [-1])
    c.set_atom(SCALAR, ())
    assert (c.schedule.atom, c.schedule.atom_axes, c.schedule.ptypes) == (None, (), {})
    c.set_atom(VECTOR, [1])
    c.axis(1).parallelize(P.Serial)
    assert (c.schedule.atom, c.schedule.ptypes) == (None, {})


def test_vectorize_of_a_materialized_view() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([4, 8], dtype=bfloat16)
        v = tf.permute(x, (1, 0))
        v.set_memory_type(MemoryType.Shared)
        fusion.add_output(tf.sin(v))
    v.axis(1).parallelize(P.Vectorize)
    assert v.schedule.atom is VECTOR


def test_allocation_axes_spread_over_threads() -> None:
    _, a, _ = pair(8, 8)
    a.set_allocation_domain(allocation(a).split(0, 2))
    assert a.schedule.allocation is not None
    inner = a.schedule.allocation[1]
    from taskfuse.schedule.parallelize import parallelize

    parallelize(a, inner, P.TIDx)
    assert a.schedule.ptype(inner) is P.TIDx
    assert refused(lambda: a.set_memory_type(MemoryType.Shared), a.fusion) == (
        "set_memory_type(tv1): its allocation axis of extent 2 is bound to TIDx: only Local memory is spread over indices\nhelp: bind the axis to Serial first"
    )
    a.set_memory_type(MemoryType.Local)
    parallelize(a, inner, P.Serial)
    assert a.schedule.ptypes == {}
    assert refused(lambda: parallelize(a, inner, P.Unroll), a.fusion) == (
        "parallelize(tv1): the allocation axis of extent 2 cannot be bound to Unroll\nhelp: use a block or thread index"
    )
    a.set_memory_type(MemoryType.Shared)
    assert refused(lambda: parallelize(a, inner, P.TIDx), a.fusion) == (
        "parallelize(tv1): an allocation axis is bound in Local memory only, but tv1 lives in Shared"
    )


def test_stale_axis() -> None:
    _, a, _ = pair(8)
    old = a.axis(0)
    a.split(0, 2)
    assert refused(lambda: old.parallelize(P.TIDx), a.fusion) == (
        "parallelize(tv1): the axis of extent 8 is no longer in a domain of tv1\nhelp: take the axis again: tensor.axis(k)"
    )


@pytest.mark.parametrize(
    ("axis", "ptype", "text"),
    [
        (1, P.TIDx, "axis 1 (extent 8) is bound to TIDy already\nhelp: bind it to Serial first"),
        (1, P.Vectorize, "axis 1 (extent 8) is bound to TIDy already\nhelp: bind it to Serial first"),
        (0, P.Unroll, "axis 0 (extent S) has no constant extent, which Unroll needs\nhelp: split it by a constant and unroll the inner axis"),
        (2, P.Mma, "axis 2 is bound to Mma only by an atom that executes it\nhelp: tv3.set_atom(atom, axes)"),
        (2, P.Bulk, "axis 2 is bound to Bulk only by an atom that executes it\nhelp: tv3.set_atom(atom, axes)"),
        (0, P.Vectorize, "axis 0 (extent S) is not the last loop axis: the atom vector executes the innermost axes\nhelp: tv3.reorder moves it"),
        (2, P.Vectorize, "axis 2 (extent 6) has no constant power-of-two extent, which the atom vector needs\nhelp: split it by a constant such as 4"),
    ],
)
def test_refused(axis: int, ptype: P, text: str) -> None:
    c = cached("S", 8, 6)
    c.axis(1).parallelize(P.TIDy)
    if ptype in (P.Mma, P.Bulk):
        text = text.replace("axis 2 is", "an axis is")
    assert refused(lambda: c.axis(axis).parallelize(ptype), c.fusion) == f"parallelize(tv3): {text}"


def test_atoms_refused() -> None:
    c = cached(8, 8)
    assert refused(lambda: c.axis(1).parallelize(P.Vectorize), c.fusion) == (
        "parallelize(tv3): 8 elements of float32 are more than the 16 bytes of the atom vector\nhelp: use an extent of 4 or less"
    )
    assert refused(lambda: c.set_atom(VECTOR, [0, 1]), c.fusion) == "set_atom(tv3): the atom vector covers 1 axes, not 2"
    assert refused(lambda: c.set_atom(VECTOR, [5]), c.fusion) == (
        "set_atom(tv3): axis 5 is out of range: the loop domain has 2 axes\nhelp: use an axis in [-2, 1]"
    )
    c.split(1, 4).axis(2).parallelize(P.TIDx)
    assert refused(lambda: c.set_atom(VECTOR, [2]), c.fusion) == "set_atom(tv3): axis 2 (extent 4) is bound to TIDx already\nhelp: bind it to Serial first"
    c.axis(2).parallelize(P.Serial).parallelize(P.Vectorize)
    assert refused(lambda: c.set_atom(VECTOR, [1]), c.fusion) == (
        "set_atom(tv3): tv3 has the atom vector already\nhelp: tv3.set_atom(tf.atoms.SCALAR, ()) removes it"
    )


def test_vectors_copy() -> None:
    _, a, _ = pair(8, 4)
    assert refused(lambda: a.axis(1).parallelize(P.Vectorize), a.fusion) == (
        "parallelize(tv1): the atom vector copies, but the definition of tv1 computes\n"
        "help: give a copy the atom: tv1.cache_before() or cache_after() makes one"
    )


def test_vectors_share_no_loop() -> None:
    x, a, _ = pair(8, 4)
    c = x.cache_after()
    c.inline_at(2)
    text = "axis 1 (extent 4) is a loop that inlining shares, and an atom's axes are not loops\nhelp: inline less deep"
    assert refused(lambda: c.axis(1).parallelize(P.Vectorize), c.fusion) == f"parallelize(tv3): {text}"
    assert refused(lambda: a.axis(1).parallelize(P.Vectorize), c.fusion) == f"parallelize(tv1): {text}"


def test_vectors_take_iteration_axes() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([8, 4], dtype=float32)
        s = tf.sum(x, axis=1)
        t = tf.sin(s)
        fusion.add_output(t)
    assert refused(lambda: s.axis(1).parallelize(P.Vectorize), fusion) == (
        "parallelize(tv1): axis 1 (extent 4) is a reduction axis: the atom vector executes iteration axes"
    )
    c = s.cache_after()
    x.split(1, 4).reorder({1: 0}).propagate([c], upto=1)
    c.reorder({0: 1})
    assert refused(lambda: c.axis(1).parallelize(P.Vectorize), fusion) == (
        "parallelize(tv3): axis 1 (extent 1) is a foreign axis: the atom vector executes iteration axes"
    )
