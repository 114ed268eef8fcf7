"""Gathers: tables in every memory, indices of every kind, vectors, roles; proved, simulated, compiled."""

from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.cuda.nvrtc import CompileOptions, compile_ptx
from taskfuse.cuda.source import emit
from taskfuse.errors import ProofError, TaskfuseError
from taskfuse.kir import walk
from taskfuse.kir.nodes import GatherCopy
from taskfuse.kir.synchronization import BarrierScope
from taskfuse.kir.variant import ArgumentLayout, Variant
from tests.lowering.faults import faults, is_caught
from tests.lowering.running import Array, agrees, bind, buffer, numbers, refused, scopes
from tests.proofs import proved, sizes_of

S, TX, TY, BX = P.Serial, P.TIDx, P.TIDy, P.BIDx


def indices(*shape: int, extent: int, seed: int = 0) -> Array:
    """Indices, some negative, some out of range."""
    return np.random.default_rng(seed).integers(-extent - 2, extent + 2, shape).astype(np.int32)


def checked(fusion: tf.Fusion, *args: Array) -> tf.Kernel:
    """Simulated under every interleaving, proved, read back from its text, and machine code."""
    kernel = agrees(fusion, *args)
    proved(kernel, sizes_of(kernel, args))
    assert tf.parse_kernel(str(kernel)) == kernel
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    assert kernel.ptx("sm_90a")
    return kernel


def gathers(kernel: tf.Kernel) -> list[GatherCopy]:
    return [s for s in walk(kernel) if isinstance(s, GatherCopy)]


@pytest.mark.parametrize("ptypes", [(S, S), (BX, TX), (TX, S), (S, TX), (TY, TX), (TX, BX)])
def test_an_embedding(ptypes: tuple[P, P]) -> None:
    with tf.Fusion("embedding") as fusion:
        w, t = tf.define_tensor(["V", "D"], name="w"), tf.define_tensor(["N"], tf.int32, name="t")
        e = tf.take(w, t, 0)
        y = tf.neg(e)
        fusion.add_output(y)
    bind(e, *ptypes)
    bind(y, *ptypes)
    fusion.inline_most()
    kernel = checked(fusion, numbers(5, 3), indices(7, extent=5))
    (gather,) = gathers(kernel)
    assert [str(v.extent) for v in gather.values] == ["V"]


def along(ptypes: tuple[P, P], memory: MemoryType | None = None) -> tuple[tf.Fusion, tf.TensorView]:
    """y = exp2(x) at computed indices along the last axis: the table is made in the kernel."""
    with tf.Fusion("along") as fusion:
        x, i = tf.define_tensor([4, 8], name="x"), tf.define_tensor([4, 8], tf.int32, name="i")
        table = tf.exp2(x)
        y = tf.take_along_axis(table, tf.add(i, 0), 1)
        fusion.add_output(y)
    for tv in fusion.tensors():
        if not tv.is_input:
            bind(tv, *ptypes)
    if memory is not None:
        table.set_memory_type(memory)
    fusion.inline_most()
    return fusion, table


@pytest.mark.parametrize(
    ("ptypes", "memory", "scope"),
    [
        ((S, TX), MemoryType.Shared, BarrierScope.BLOCK),
        ((BX, TX), MemoryType.Shared, BarrierScope.BLOCK),
        ((TX, S), MemoryType.Shared, None),
        ((S, S), MemoryType.Shared, None),
        ((TX, BX), MemoryType.Global, BarrierScope.GRID),
    ],
)
def test_a_table_that_is_made_has_addresses(ptypes: tuple[P, P], memory: MemoryType, scope: BarrierScope | None) -> None:
    fusion, table = along(ptypes)
    kernel = checked(fusion, numbers(4, 8), indices(4, 8, extent=8))
    assert buffer(kernel, table.name).memory is memory
    assert set(scopes(kernel)) == ({scope} if scope else set())


def test_registers_are_refused() -> None:
    fusion, table = along((S, S), MemoryType.Local)
    assert refused(lambda: tf.lower(fusion)) == (
        f"cannot lower {table.name}: it is set to Local, but tv4 reads it at an index that it computes: registers have no addresses\n"
        "help: set_memory_type(Shared), leave it unset, or bind the axes alike"
    )


def test_without_a_barrier() -> None:
    fusion, _ = along((S, TX))
    kernel = tf.lower(fusion)
    args = (numbers(4, 8), indices(4, 8, extent=8))
    broken = dict(faults(kernel))
    assert broken
    assert all(is_caught(k, fusion, *args) for k in broken.values())
    for k in broken.values():
        with pytest.raises(ProofError, match="nothing orders them in different iterations of the loop"):
            k.verify().require()


def test_vectors() -> None:
    with tf.Fusion("rows") as fusion:
        w, t = tf.define_tensor(["V", tf.dim("D", multiple_of=4)], name="w"), tf.define_tensor(["N"], tf.int64, name="t")
        e = tf.take(w, t, 0)
        y = tf.copy(e)
        fusion.add_output(y)
    for tv in (e, y):
        bind(tv, BX, S)
        tv.split(1, 4)
        bind(tv, BX, TX, P.Vectorize)
    fusion.inline_most()
    kernel = checked(fusion, numbers(5, 8), indices(7, extent=5).astype(np.int64))
    assert [g.width for g in gathers(kernel)] == [4]
    assert "copy16" in kernel.cuda_source()


def test_vectors_along_the_indices_are_refused() -> None:
    with tf.Fusion("elements") as fusion:
        x, i = tf.define_tensor([16]), tf.define_tensor([8], tf.int32)
        y = tf.take(x, i, 0)
        fusion.add_output(y)
    y.split(0, 4)
    y.axis(1).parallelize(P.Vectorize)
    assert refused(lambda: tf.lower(fusion)).startswith("cannot lower tv2: its vector axis is not contiguous in tv0")
    with tf.Fusion("along") as fusion:
        x, i = tf.define_tensor([16, 8]), tf.define_tensor([2, 8], tf.int32)
        y = tf.take_along_axis(x, i, 0)
        fusion.add_output(y)
    y.split(1, 4)
    y.axis(2).parallelize(P.Vectorize)
    assert refused(lambda: tf.lower(fusion)) == (
        "cannot lower tv2: its vector axis is one along which the indices differ\nhelp: make a dimension of the table after the indexed ones the vector axis"
    )


def test_other_atoms_do_not_gather() -> None:
    with tf.Fusion("f") as fusion:
        x, i = tf.define_tensor([16, 16]), tf.define_tensor([8], tf.int32)
        y = tf.take(x, i, 0)
        fusion.add_output(tf.neg(y))
    with pytest.raises(TaskfuseError, match="the atom tma_load copies, but the definition of tv2 computes"):
        y.set_atom(tf.atoms.TMA_LOAD, (1,))


VIEWS: list[Callable[[tf.TensorView], tf.TensorView]] = [lambda x: tf.flip(x, 0), lambda x: x[1::2], lambda x: x.T, lambda x: tf.reshape(x, [4, 3, 6])]


@pytest.mark.parametrize("view", VIEWS, ids=["flip", "slice", "T", "reshape"])
def test_views_of_the_table_and_of_the_result(view: Callable[[tf.TensorView], tf.TensorView]) -> None:
    with tf.Fusion("views") as fusion:
        x, i = tf.define_tensor([12, 6], name="x"), tf.define_tensor([2, 3], tf.int32, name="i")
        found = tf.take(view(x), i.T, 0)
        fusion.add_output(tf.neg(tf.flip(found)))
    fusion.inline_most()
    checked(fusion, numbers(12, 6), indices(2, 3, extent=12))


def test_split_merged_and_parallel() -> None:
    with tf.Fusion("tiles") as fusion:
        x, i = tf.define_tensor(["V", "D"], name="x"), tf.define_tensor(["N"], tf.int32, name="i")
        e = tf.take(x, i, 0)
        y = tf.exp2(e)
        fusion.add_output(y)
    y.merge(0)
    y.split(0, 32)
    bind(y, BX, TX)
    e.merge(0)
    e.split(0, 32)
    bind(e, BX, TX)
    fusion.inline_most()
    checked(fusion, numbers(5, 7), indices(9, extent=5))


def test_roles() -> None:
    """One plane of threads makes rows of a table, the other reads them at computed indices: through a ring of slots."""
    with tf.Fusion("roles") as fusion:
        x, i = tf.define_tensor(["N", 16], name="x"), tf.define_tensor(["N", 16], tf.int32, name="i")
        table = tf.exp2(x)
        y = tf.take_along_axis(table, i, 1)
        fusion.add_output(y)
    producer, consumer = fusion.task([table]), fusion.task([y])
    group = fusion.group([fusion.group([producer]), fusion.group([consumer])])
    for tv in (table, y):
        tv.axis(1).parallelize(TX)
    table.inline_at(1)
    table.circular_buffer(2)
    group.parallelize(P.TIDz)
    kernel = checked(fusion, numbers(5, 16), indices(5, 16, extent=16))
    assert str(buffer(kernel, "tv2").shape[0]) == "2"


def test_empty_tables() -> None:
    with tf.Fusion("empty") as fusion:
        x, i = tf.define_tensor([tf.dim("V", min=0)], name="x"), tf.define_tensor(["N"], tf.int32, name="i")
        fusion.add_output(tf.take(x, i, 0))
    kernel = checked(fusion, numbers(0), indices(3, extent=0))
    assert kernel.simulate(numbers(0), indices(3, extent=0))[0].tolist() == [0, 0, 0]


def test_wide_and_strided_texts_compile() -> None:
    for dtype in (tf.float32, tf.bfloat16, tf.bool_, tf.float8_e4m3):
        with tf.Fusion("wide") as fusion:
            x, i, j = tf.define_tensor(["V", "W"], dtype), tf.define_tensor(["N"], tf.int64), tf.define_tensor(["N"], tf.uint8)
            fusion.add_output(x[i, j])
        source = emit(tf.lower(fusion), Variant((ArgumentLayout.STRIDED,) * 4, True), debug=True)
        assert "const long long tv3_v0 = tv3_v0_value;" in source.text
        assert compile_ptx(source.text, source.name, CompileOptions(arch="sm_90a"))
