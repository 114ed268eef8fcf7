"""Every call that rewrites math, on a small fusion."""

from __future__ import annotations

import taskfuse as tf
from taskfuse.schedule.tile_windows import windows_of
from tests.check.rewrites.rewritten import Build, scan


def matrix(shape: tuple[int | str, ...]) -> tf.TensorView:
    """An input."""
    return tf.define_tensor([*shape], name="x")


def rfactor(f: tf.Fusion) -> None:
    y = tf.sum(matrix(("M", 21)), axis=1)
    f.add_output(y)
    y.split(1, 4)
    y.rfactor([2])


def chunk(f: tf.Fusion) -> None:
    y = tf.sum(matrix(("M", 21)), axis=1)
    f.add_output(y)
    y.chunk_reduction(1, 7)


def chunk_argmax(f: tf.Fusion) -> None:
    y = tf.argmax(matrix(("M", 21)), axis=1)
    f.add_output(y)
    y.chunk_reduction(1, 7)


def split_argmax(f: tf.Fusion) -> None:
    y = tf.argmax(matrix(("M", 21)), axis=1)
    f.add_output(y)
    y.split_reduction(1, 7)


def scanned(f: tf.Fusion) -> None:
    f.add_output(tf.cumsum(matrix(("M", 21)), axis=1))
    scan(f).chunk_scan(5)


def caches(f: tf.Fusion) -> None:
    x = matrix(("M", 21))
    y = tf.exp(x)
    f.add_output(y)
    y.cache_before()
    x.cache_after()


def duplicate(f: tf.Fusion) -> None:
    e = tf.exp(matrix(("M", 8)))
    a, b = tf.neg(e), tf.sqrt(e)
    f.add_output(a, b)
    e.duplicate([b])


def recompute(f: tf.Fusion) -> None:
    y = tf.pad(tf.exp(matrix(("M", 8))), ((0, 0), (2, 3)))
    z = tf.sum(y, axis=1)
    f.add_output(z)
    y.recompute([z])


def through_view(f: tf.Fusion) -> None:
    a, b = tf.define_tensor([6, 5, 4], name="a"), tf.define_tensor([4, 3], name="b")
    y = tf.matmul(tf.reshape(a, [30, 4]), b)
    f.add_output(y)
    y.through_view(0)


def tile_windows(f: tf.Fusion) -> None:
    x, w = tf.define_tensor(["M", 5, 9], name="x"), tf.define_tensor([5, 1, 3], name="w")
    f.add_output(tf.conv1d(x, w, padding=1, groups=5))
    next(tv for tv in f.tensors() if windows_of(f, tv)).tile_windows(1, 4)


def tile_shifts(f: tf.Fusion) -> None:
    padded = tf.pad(tf.define_tensor([5, "M"], name="x"), [(1, 1), (0, 0)])
    before, after = tf.exp(padded[:5]), tf.exp(padded[2:])
    f.add_output(before + after)
    (first,), (last,) = padded.recompute([before]), padded.recompute([after])
    first.tile_shifts([last], 0, 2).clamp_read()


def scatter(f: tf.Fusion) -> None:
    y = tf.cat([tf.define_tensor(["M", 5], name="a"), tf.define_tensor(["M", 7], name="b")], axis=1)
    f.add_output(tf.exp(y))
    y.scatter()


def unscatter(f: tf.Fusion) -> None:
    a, b = tf.define_tensor(["M", 5], name="a"), tf.define_tensor(["M", 7], name="b")
    y = tf.cat([tf.exp(a), tf.exp(b)], axis=1, form="scatter")
    f.add_output(y)
    y.unscatter()


def chunk_product(f: tf.Fusion) -> None:
    y = tf.matmul(tf.define_tensor([64, 64], name="a"), tf.define_tensor([64, 64], name="b"))
    f.add_output(y)
    y.chunk_product(tf.tiles.split_k(2), (16, 16, 16))


def pack_factors(f: tf.Fusion) -> None:
    y = tf.matmul(tf.define_tensor(["M", "K"], name="a"), tf.define_tensor(["K", 5], name="b"))
    f.add_output(y)
    for made in y.pack_factors(2, 4):
        made.set_memory_type(tf.MemoryType.Global)


def cascade(f: tf.Fusion) -> None:
    x = tf.define_tensor(["M", "N"], name="x")
    top = tf.max(x, axis=1)
    total = tf.sum(tf.exp(x - tf.expand_dims(top, 1)), axis=1)
    f.add_output(total)
    tf.cascade([top, total], 4)


def split_fold(f: tf.Fusion) -> None:
    y = tf.decayed_sum(tf.define_tensor(["M", "N"], name="x"), tf.define_tensor(["M", "N"], name="d"), axis=1)
    f.add_output(y)
    y.split_fold(4)


def split_maximum(f: tf.Fusion) -> None:
    y = tf.fold("maximum", tf.define_tensor(["M", "N"], name="x"), axis=1, init=-1.0)
    f.add_output(y)
    y.split_fold(4)


PROVED: tuple[Build, ...] = (
    rfactor,
    chunk,
    chunk_argmax,
    split_argmax,
    scanned,
    caches,
    duplicate,
    recompute,
    through_view,
    tile_windows,
    tile_shifts,
    scatter,
    unscatter,
    chunk_product,
    pack_factors,
    cascade,
    split_fold,
    split_maximum,
)
