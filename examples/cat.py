"""A concatenation in three ways: gathered by index, scattered from one shared loop, scattered from a horizontal group.

In gather form the loops of the concatenation select the part that they read. In scatter form each part is stored as a slice of the result
and the concatenation itself is not code, so the parts may share one loop, or run side by side.
"""

import numpy as np

import taskfuse as tf
from taskfuse import ParallelType as P


def gather() -> tf.Fusion:
    """``cat([x, y])`` and what comes after it in one loop: each element is read from the part that holds it."""
    with tf.Fusion("cat_gather") as fusion:
        x = tf.define_tensor(["M", "N"], dtype=tf.float32, name="x")
        y = tf.define_tensor(["M", "K"], dtype=tf.float32, name="y")
        both = tf.cat([x, y], dim=1)
        fusion.add_output(tf.silu(both))
    for tv in fusion.tensors():
        if not tv.is_input:
            tv.split(1, 32)
            tv.axis(0).parallelize(P.BIDx)
            tv.axis(2).parallelize(P.TIDx)
    fusion.inline_most()
    return fusion


def scatter_shared_loop() -> tf.Fusion:
    """``cat([sin(x), cos(x)])``: one loop reads an element of ``x`` and stores it to both slices."""
    with tf.Fusion("cat_scatter_shared_loop") as fusion:
        x = tf.define_tensor(["M", "N"], dtype=tf.float32, name="x")
        fusion.add_output(tf.cat([tf.sin(x), tf.cos(x)], dim=1, form="scatter"))
    x.cache_after()
    for tv in fusion.tensors():
        tv.split(1, 32)
        tv.axis(0).parallelize(P.BIDx)
        tv.axis(2).parallelize(P.TIDx)
    fusion.inline_most()
    return fusion


def scatter_horizontal() -> tf.Fusion:
    """``cat([sin(x), exp(y), relu(z)])`` of parts of unequal length, each stored by threads of its own."""
    with tf.Fusion("cat_scatter_horizontal") as fusion:
        x = tf.define_tensor(["M", "N"], dtype=tf.float32, name="x")
        y = tf.define_tensor(["M", "K"], dtype=tf.float32, name="y")
        z = tf.define_tensor(["M", "L"], dtype=tf.float32, name="z")
        parts = [tf.sin(x), tf.exp(y), tf.relu(z)]
        fusion.add_output(tf.cat(parts, dim=1, form="scatter"))
    group = fusion.group([fusion.task([part]) for part in parts])
    for part in parts:
        part.split(1, 32)
        part.axis(0).parallelize(P.BIDx)
        part.axis(2).parallelize(P.TIDx)
    group.parallelize(P.TIDy)
    return fusion


def build() -> tuple[tf.Fusion, ...]:
    """The three fusions with their schedules."""
    return gather(), scatter_shared_loop(), scatter_horizontal()


def main() -> None:
    """Print each loop nest, simulate it on random input, and print the difference from NumPy."""
    rng = np.random.default_rng()
    x, y, z = (rng.standard_normal((3, n)).astype(np.float32) for n in (50, 7, 33))
    for fusion, args in zip(build(), ((x, y), (x,), (x, y, z)), strict=True):
        kernel = tf.lower(fusion)
        print(kernel)
        (ref,) = fusion.evaluate(*args)
        (out,) = kernel.simulate(*args, seed=1)
        print(f"{fusion.name}: largest difference from NumPy {np.max(np.abs(out - ref)):g}\n")


if __name__ == "__main__":
    main()
