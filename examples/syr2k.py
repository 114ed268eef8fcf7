"""A symmetric rank-2k update, ``a @ b.T + b @ a.T``, of which the lower triangle of tiles is computed: as a list of products, or as one product.

*A list.* With ``p = [a b]`` and ``q = [b a]`` the result is ``p @ q.T``. Row i of tiles of its lower triangle is a separate product, of the i-th rows of
``p`` and the first i + 1 of ``q``; so the triangle is a list of products with 1, 2, 3, ... tiles, and the items of the list are the tiles of the triangle in
order (``tf.tiles.triangle``). A plain grid has almost twice as many tiles, and blocks with tiles of the other half would be idle.

*One product*, of which ``tf.tril`` keeps the lower triangle: loops over terms do not run in tiles of zeros. Tiles of the triangle come first
(``tf.tiles.halves``), so that all blocks have equally many of them; then zeros are stored in the others. The result is one array.
"""

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import numpy.typing as npt

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig, ProductsConfig


def panels(n: int, tile: int) -> Iterator[tuple[int, int]]:
    """First and last row, exclusive, of each row of tiles."""
    return ((first, min(first + tile, n)) for first in range(0, n, tile))


def build(n: int = 160, k: int = 32, tile: int = 64, blocks: int = 4) -> tf.Fusion:
    """The rows of tiles of the lower triangle of an [n, n] result, of bfloat16 [n, k], summed in float32, with their schedule.

    Args:
        n, k: extents; multiples of 8.
        tile: rows and columns of a tile.
        blocks: of the persistent grid.
    """
    with tf.Fusion("syr2k") as fusion:
        for i, (first, end) in enumerate(panels(n, tile)):
            p = tf.define_tensor([end - first, 2 * k], dtype=tf.bfloat16, name=f"p{i}")  # rows first to end of p, and rows up to end of q
            q = tf.define_tensor([end, 2 * k], dtype=tf.bfloat16, name=f"q{i}")
            fusion.add_output(tf.cast(tf.matmul(p, q.T, dtype=tf.float32), tf.bfloat16))
    tf.schedulers.products(fusion, ProductsConfig(tile, tile, warpgroups=1, stages=3, blocks=blocks, is_sorted=False))
    return fusion


def triangle(n: int | tf.Dim = 160, k: int | tf.Dim = 32, tile: int = 64, blocks: int = 4) -> tf.Fusion:
    """The same as one product, with zeros above the diagonal: of bfloat16 ``a`` and ``b`` ``[n, k]``, with its schedule."""
    with tf.Fusion("triangle") as fusion:
        a = tf.define_tensor([n, k], dtype=tf.bfloat16, name="a")
        b = tf.define_tensor(a.shape, dtype=tf.bfloat16, name="b")
        halves = (tf.tril(tf.matmul(x, y.T, dtype=tf.float32)) for x, y in ((a, b), (b, a)))
        fusion.add_output(tf.cast(tf.add(*halves), tf.bfloat16))
    tf.schedulers.matmul(fusion, MatmulConfig(tile, tile, warpgroups=1, stages=3, blocks=blocks, half=tf.tiles.Half.LOWER))
    return fusion


def arguments(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic], tile: int = 64) -> list[npt.NDArray[np.generic]]:
    """The arguments of the kernel: views of ``[a b]`` and ``[b a]``."""
    p, q = np.concatenate([a, b], axis=1), np.concatenate([b, a], axis=1)
    return [x for first, end in panels(len(a), tile) for x in (p[first:end], q[:end])]


def main() -> None:
    """Print the loop nests and who computes what, simulate them on random input, and print the differences from NumPy."""
    n, k, tile = 160, 32, 64
    kernel = tf.lower(build(n, k, tile))
    print(kernel)
    problem = tf.tiles.Problem(n, n, 2 * k, half=tf.tiles.Half.LOWER)
    print(tf.tiles.table(tf.tiles.WorkList((problem,), (tile, tile), blocks=4)))
    rng = np.random.default_rng()
    a, b = (rng.standard_normal((n, k)).astype(ml_dtypes.bfloat16) for _ in range(2))
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    exact += exact.T
    rows = kernel.simulate(*arguments(a, b, tile), seed=1)
    worst = max(np.max(np.abs(out.astype(np.float64) - exact[first:end, :end])) for out, (first, end) in zip(rows, panels(n, tile), strict=True))
    print(f"largest difference from NumPy {worst / np.max(np.abs(exact)):.4f} of the largest element")
    whole = tf.lower(triangle(n, k, tile))
    print(whole)
    (found,) = whole.simulate(a, b)
    worst = np.max(np.abs(found.astype(np.float64) - np.tril(exact)))
    print(f"largest difference from NumPy {worst / np.max(np.abs(exact)):.4f} of the largest element")


if __name__ == "__main__":
    main()
