"""propagate and parallelize_like."""

import taskfuse.ops as tf
from taskfuse.dtypes import bfloat16, float32
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.keys import Keys
from taskfuse.schedule.propagate import parallelize_like
from tests.schedule.points import extents, kinds, pair, refused


def gemm() -> tuple[Fusion, TensorView, TensorView, TensorView, TensorView]:
    with Fusion("gemm") as fusion:
        a = tf.define_tensor(["M", "K"], dtype=bfloat16)
        b = tf.define_tensor(["N", "K"], dtype=bfloat16)
        acc = tf.matmul(a, b.T, dtype=float32)
        d = tf.cast(acc, bfloat16)
        fusion.add_output(d)
    return fusion, a.cache_after(), b.cache_after(), acc, d


def test_gemm() -> None:
    fusion, a, b, acc, d = gemm()
    acc.split(0, 128).split(2, 256).split(4, 64).reorder([0, 2, 4, 1, 3, 5])
    assert acc.propagate([a, b, d, acc], upto=3) is acc
    assert (extents(a), kinds(a)) == (["ceildiv(M, 128)", "ceildiv(N, 256)", "ceildiv(K, 64)", "128", "64"], "ifiii")
    assert (extents(b), kinds(b)) == (["ceildiv(M, 128)", "ceildiv(N, 256)", "ceildiv(K, 64)", "256", "64"], "fiiii")
    assert (extents(d), kinds(d)) == (["ceildiv(M, 128)", "ceildiv(N, 256)", "ceildiv(K, 64)", "128", "256"], "iifii")
    for tv in (a, b):
        tv.inline_at(3)
    acc.inline_at(2)
    keys = Keys(fusion)
    assert [keys.equal(x, y) for x, y in zip(acc.loop, a.loop, strict=False)] == [True, True, True, True, False]


def test_merged_foreign_axes() -> None:
    _, a, _, acc, _ = gemm()
    acc.split(0, 128).split(2, 256).reorder([0, 2, 1, 3, 4]).merge(0)
    acc.propagate([a], upto=1)
    assert (extents(a), kinds(a)) == (["ceildiv(M, 128)*ceildiv(N, 256)", "128", "K"], "iii")
    a.inline_at(1)


def test_all_axes_without_the_foreign_ones() -> None:
    _, a, _, acc, d = gemm()
    acc.split(0, 16).split(2, 8).reorder([0, 2, 4, 1, 3])
    acc.propagate([a, d])
    assert (extents(a), kinds(a)) == (["ceildiv(M, 16)", "K", "16"], "iii")
    assert (extents(d), kinds(d)) == (["ceildiv(M, 16)", "ceildiv(N, 8)", "16", "8"], "iiii")
    assert len(a.schedule.transforms) == 1


def test_a_reduction_from_its_reader_and_back() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([12, 20], dtype=float32)
        e = tf.exp(x)
        s = tf.sum(e, axis=1)
        y = e / tf.expand_dims(s, 1)
        fusion.add_output(y)
    y.split(1, 8).split(0, 4)
    y.propagate([e, s])
    assert (extents(e), kinds(e)) == (["3", "4", "3", "8"], "iiii")
    assert (extents(s), kinds(s)) == (["3", "4", "3", "8"], "iirr")
    fusion.inline_most()
    assert s.schedule.inline == 2


def test_direct_reads_are_preferred() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([8, 8], dtype=float32)
        a = tf.sin(x)
        b = tf.permute(a, (1, 0))
        c = a + b
        fusion.add_output(c)
    c.split(0, 2)
    c.propagate([a], upto=2)
    assert extents(a) == ["4", "2", "8"]
    assert a.schedule.transforms[0].inputs == (a.root[0],)


def test_upto_nothing() -> None:
    _, a, b = pair(4, 6)
    b.split(0, 2)
    b.propagate([a], upto=0)
    assert (extents(a), a.schedule.transforms) == (["4", "6"], [])


def test_parallelize_like() -> None:
    _, a, _, acc, d = gemm()
    acc.split(0, 16).split(2, 8).reorder([0, 2, 4, 1, 3])
    acc.propagate([a, d])
    for k, p in enumerate((P.BIDy, P.BIDx, P.Serial, P.TIDy, P.Unroll)):
        acc.axis(k).parallelize(p)
    d.axis(2).parallelize(P.TIDx)
    parallelize_like(acc, [a, d])
    assert [a.axis(k).ptype for k in range(3)] == [P.BIDy, P.Serial, P.TIDy]
    assert [d.axis(k).ptype for k in range(4)] == [P.BIDy, P.BIDx, P.TIDx, P.Unroll]


def test_parallelize_like_leaves_atoms() -> None:
    x, a, _ = pair(8, 4)
    c = x.cache_after()
    c.axis(0).parallelize(P.TIDx)
    c.axis(1).parallelize(P.Vectorize)
    parallelize_like(c, [a])
    assert [a.axis(k).ptype for k in range(2)] == [P.TIDx, P.Serial]


def test_refused() -> None:
    _, a, b = pair(4, 6)
    other = pair(4, 6)[1]
    assert refused(lambda: b.propagate([a], upto=3), a.fusion) == (
        "propagate(tv2): upto=3 is out of range: the loop domain has 2 axes\nhelp: use a number in [0, 2]"
    )
    assert refused(lambda: b.propagate([other]), a.fusion) == "propagate(tv2): tv1 belongs to fusion 'f'"
    assert refused(lambda: parallelize_like(b, [other]), a.fusion) == "parallelize_like(tv2): tv1 belongs to fusion 'f'"
    help = "\nhelp: propagate before tv1 is scheduled on its own"
    a.inline_at(1)
    assert refused(lambda: b.propagate([a]), a.fusion) == f"propagate(tv2): tv1 shares loops: tv1 is inlined at 1{help}"
    assert refused(lambda: a.propagate([b]), a.fusion) == f"propagate(tv1): tv2 shares loops: tv1 is inlined at 1{help.replace('tv1', 'tv2')}"
    a.inline_at(0)
    a.axis(0).parallelize(P.TIDx)
    assert refused(lambda: b.propagate([a]), a.fusion) == f"propagate(tv2): an axis of tv1 is bound already{help}"
    a.axis(0).parallelize(P.Serial)
    a.reorder({0: 1})
    assert refused(lambda: b.propagate([a]), a.fusion) == f"propagate(tv2): the loop domain of tv1 is transformed already{help}"


def test_refused_merge_of_reduced_and_kept_axes() -> None:
    with Fusion("f") as fusion:
        x = tf.sin(tf.define_tensor([4, 6], dtype=float32))
        s = tf.sum(x, axis=1)
        y = tf.cos(x)
        fusion.add_output(s)
        fusion.add_output(y)
    x.merge(0)
    assert refused(lambda: x.propagate([y, s]), fusion) == (
        "propagate(tv1): it merges axes (extents 4 and 6) of which tv2 reduces only some\nhelp: leave out tv2, or propagate fewer axes (upto)"
    )
