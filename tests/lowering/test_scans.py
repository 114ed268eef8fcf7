"""Scans: loops of one thread along the axis, anything along the others; proved, simulated, compiled; refused with a reason."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.check import Verdict
from taskfuse.ir.scalar import const
from tests.lowering.running import Array, agrees, bind, body, numbers, refused

S, TX, TY, BX, U = P.Serial, P.TIDx, P.TIDy, P.BIDx, P.Unroll


def proved(fusion: tf.Fusion, *args: Array) -> tf.Kernel:
    kernel = agrees(fusion, *args)
    assert kernel.verify().verdict is Verdict.PROVED
    assert tf.parse_kernel(str(kernel)) == kernel
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    assert kernel.ptx("sm_90a")
    return kernel


def scan(shape: list[int | str], axis: int, op: str = "cumsum") -> tuple[tf.Fusion, tf.TensorView, tf.TensorView]:
    """y = op(2 * x) + 1."""
    with tf.Fusion("scan") as fusion:
        x = tf.define_tensor(shape, name="x")
        total = getattr(tf, op)(x * 2, axis)
        y = total + 1
        fusion.add_output(y)
    return fusion, total, y


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("other", [(S, U), (BX, TX), (TX, BX), (TX, U), (TY, TX)])
def test_every_binding_of_the_others(axis: int, other: tuple[P, P]) -> None:
    fusion, _, _ = scan([3, 4, 5], axis)
    ptypes = [*other[:axis], S, *other[axis:]]
    for tv in fusion.tensors():
        if not tv.is_input:
            bind(tv, *ptypes)
    fusion.inline_most()
    proved(fusion, numbers(3, 4, 5))


def test_the_total_is_carried_in_a_register() -> None:
    fusion, _, _ = scan(["M", "N"], 1)
    fusion.inline_most()
    assert body(proved(fusion, numbers(3, 7))) == (
        "FOR i0 in 0..M:\n"
        "  tv2.acc = copy(0.0)\n"
        "  FOR i1 in 0..N:\n"
        "    tv1 = mul(x[i0, i1], 2)\n"
        "    tv2.acc = add(tv2.acc, tv1)\n"
        "    tv2 = copy(tv2.acc)\n"
        "    tv3[i0, i1] = add(tv2, 1)"
    ).replace("2)", "2.0)").replace("add(tv2, 1)", "add(tv2, 1.0)")


@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummax", "cummin"])
def test_split_and_unrolled(op: str) -> None:
    fusion, _, _ = scan(["M", "N"], 1, op)
    for tv in fusion.tensors():
        if not tv.is_input:
            tv.split(1, 4)
            bind(tv, TX, S, U)
    fusion.inline_most()
    proved(fusion, np.sign(numbers(3, 10)))


def test_inner_loops_have_totals_of_their_own() -> None:
    fusion, total, _ = scan([4, 3], 0)
    fusion.inline_most()
    kernel = proved(fusion, numbers(4, 3))
    assert next(b for b in kernel.buffers if b.name == f"{total.name}.acc").shape[0] is const(3)


def test_consumers_with_other_loops_read_memory() -> None:
    with tf.Fusion("rows") as fusion:
        x = tf.define_tensor([8, 16], name="x")
        total = tf.cumsum(x, 1)
        y = tf.neg(total)
        fusion.add_output(y)
    bind(total, TX, S)
    bind(y, S, TX)
    kernel = proved(fusion, numbers(8, 16))
    assert next(b for b in kernel.buffers if b.name == total.name).memory is tf.MemoryType.Shared


def test_roles() -> None:
    with tf.Fusion("roles") as fusion:
        x = tf.define_tensor(["N", 16], name="x")
        total = tf.cumsum(x, 0)
        y = tf.neg(total)
        fusion.add_output(y)
    group = fusion.group([fusion.group([fusion.task([total])]), fusion.group([fusion.task([y])])])
    for tv in (total, y):
        tv.axis(1).parallelize(TX)
    total.inline_at(1)
    total.circular_buffer(3)
    group.parallelize(P.TIDz)
    proved(fusion, numbers(7, 16))


def test_a_total_begins_outside_of_the_ring_that_it_fills() -> None:
    """The ring's loop is the inner part of the axis, and the dispatch stands inside the outer part: no wait belongs to where the total is set."""
    with tf.Fusion("nested") as fusion:
        x = tf.define_tensor(["N"], name="x")
        a = tf.neg(x)
        total = tf.cumsum(a, 0)
        y = total + 1
        fusion.add_output(y)
    first, second, third = (fusion.task([tv]) for tv in (a, total, y))
    roles = fusion.group([second, third])
    fusion.group([first, roles])
    for tv in (a, total, y):
        tv.split(0, 4)
    total.inline_at(2)
    a.inline_at(1)
    a.set_memory_type(tf.MemoryType.Shared)
    total.circular_buffer(2)
    roles.parallelize(P.TIDx)
    proved(fusion, numbers(10))


def test_caches_and_copies() -> None:
    fusion, total, y = scan([4, 8], 1)
    y.cache_before()
    total.cache_after()
    total.cache_before()
    for tv in fusion.tensors():
        bind(tv, TX, S)
    copy, _ = tf.copy_fusion(fusion)
    fusion.inline_most()
    proved(fusion, numbers(4, 8))
    copy.inline_most()
    assert str(copy) == str(fusion)


ORDER = (
    "cannot lower tv2: its loops do not run along the axis of its scan in order: each total needs the one before it\n"
    "help: split that axis only, and keep the outer part outside; merge, swizzle and rasterize other axes"
)


def test_what_is_refused() -> None:
    fusion, total, _ = scan([4, 8], 1)
    bind(total, S, TX)
    assert refused(lambda: tf.lower(fusion)) == (
        "cannot lower tv2: loop axis 1 runs along the axis of its scan and is bound to TIDx: each total needs the one before it\n"
        "help: leave that axis Serial, and bind others; or read the scan from a tensor of its own, in its own loops"
    )
    fusion, total, _ = scan([4, 8], 1)
    total.merge(0)
    assert refused(lambda: tf.lower(fusion)) == ORDER
    fusion, total, _ = scan([4, 8], 1)
    total.split(1, 2)
    total.reorder({1: 2})
    assert refused(lambda: tf.lower(fusion)) == ORDER
    fusion, total, _ = scan([4, 8], 1)
    assert "rfactor" in refused(lambda: total.rfactor([1]))


def test_totals_of_an_extent_that_is_small_are_registers() -> None:
    """How many there are is a constant, since the extent is known to be at most that of one part."""
    with tf.Fusion("small") as fusion:
        x = tf.define_tensor([3, tf.dim("N", min=1, max=5)], name="x")
        y = tf.cumsum(x, 0)
        fusion.add_output(y)
    y.split(1, 8)
    y.axis(2).parallelize(TX)
    proved(fusion, numbers(3, 4))
