"""Products of groups with padding between them, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.errors import FusionError, ShapeError
from taskfuse.schedulers import MatmulConfig, MatmulKind

ANY = st.one_of(st.integers(-3, 14), st.sampled_from([-(2**31), 2**31 - 1]))
"""Entries of tables, also hostile ones."""


def masked(dtype: tf.DType = tf.float32, groups: int = 3, rows: int = 8, k: int = 3, n: int = 2) -> tf.Fusion:
    with tf.Fusion("masked") as fusion:
        a, b = tf.define_tensor((groups, rows, k), dtype, name="a"), tf.define_tensor((groups, k, n), dtype, name="b")
        fusion.add_output(tf.grouped_matmul_masked(a, b, tf.table("t", groups, rows)))
    return fusion


def tiled(dtype: tf.DType = tf.float32, groups: int = 3, rows: int = 12, k: int = 3, n: int = 2, tile: int = 4) -> tf.Fusion:
    with tf.Fusion("tiled") as fusion:
        a, b = tf.define_tensor((rows, k), dtype, name="a"), tf.define_tensor((groups, k, n), dtype, name="b")
        fusion.add_output(tf.grouped_matmul_tiled(a, b, tf.table("t", rows, groups - 1, low=-1), tile=tile))
    return fusion


def aligned(dtype: tf.DType = tf.float32, groups: int = 3, rows: int = 12, k: int = 3, n: int = 2, tile: int = 4) -> tf.Fusion:
    with tf.Fusion("aligned") as fusion:
        a, b = tf.define_tensor((rows, k), dtype, name="a"), tf.define_tensor((groups, k, n), dtype, name="b")
        fusion.add_output(tf.grouped_matmul_aligned(a, b, tf.table("t", groups + 1, rows), tile=tile))
    return fusion


Array = npt.NDArray[Any]


def arguments(fusion: tf.Fusion, table: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(len(table))
    shapes = [tuple(int(str(e)) for e in tv.shape) for tv in fusion.inputs]
    a, b = (rng.integers(-2, 3, s).astype(tv.dtype.numpy) for s, tv in zip(shapes[:2], fusion.inputs, strict=False))
    return a, b, np.array(table, np.int32)


def masked_rows(a: Array, b: Array, counts: Array) -> Array:
    whole, rows = a.astype(np.float32) @ b.astype(np.float32), int(a.shape[1])
    return np.where(np.arange(rows)[:, None] < np.clip(counts, 0, rows)[:, None, None], whole, 0)


def tiled_rows(a: np.ndarray, b: np.ndarray, groups: np.ndarray, tile: int) -> np.ndarray:
    found = np.zeros((len(a), b.shape[2]), np.float32)
    for r in range(len(a)):
        first, own = (int(np.clip(groups[x], -1, len(b) - 1)) for x in (r // tile * tile, r))
        if min(first, own) >= 0:
            found[r] = a[r].astype(np.float32) @ b[first].astype(np.float32)
    return found


def aligned_rows(a: np.ndarray, b: np.ndarray, ends: np.ndarray, tile: int) -> np.ndarray:
    found = np.zeros((len(a), b.shape[2]), np.float32)
    for g in range(len(b)):
        start = -(-int(ends[g]) // tile) * tile
        found[start : ends[g + 1]] = a[start : ends[g + 1]].astype(np.float32) @ b[g].astype(np.float32)
    return found


@given(counts=st.lists(ANY, min_size=3, max_size=3))
def test_the_first_rows_of_each_group(counts: list[int]) -> None:
    args = arguments(fusion := masked(), counts)
    assert (fusion.evaluate(*args)[0] == masked_rows(*args)).all()


@given(groups=st.lists(ANY, min_size=12, max_size=12))
def test_the_group_of_each_row(groups: list[int]) -> None:
    args = arguments(fusion := tiled(), groups)
    assert (fusion.evaluate(*args)[0] == tiled_rows(*args, 4)).all()


@given(ends=st.lists(st.integers(0, 12), min_size=3, max_size=3))
def test_groups_that_begin_tiles(ends: list[int]) -> None:
    args = arguments(fusion := aligned(), [0, *sorted(ends)])
    assert (fusion.evaluate(*args)[0] == aligned_rows(*args, 4)).all()


@given(ends=st.lists(ANY, min_size=4, max_size=4))
def test_any_ends_have_results(ends: list[int]) -> None:
    aligned().evaluate(*arguments(aligned(), ends))


def test_their_text() -> None:
    for fusion in (masked(), tiled(), aligned()):
        assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    assert "INPUT t: int32[12] table -1..2" in str(tiled())


def test_what_is_refused() -> None:
    with tf.Fusion():
        a, b = tf.define_tensor((8, 3)), tf.define_tensor((2, 3, 2))
        with pytest.raises(FusionError, match="is not a table"):
            tf.grouped_matmul_aligned(a, b, tf.define_tensor(3, tf.int32), tile=4)
        with pytest.raises(ShapeError, match=r"table of 0\.\.8, not of -1\.\.1"):
            tf.grouped_matmul_tiled(a, b, tf.table("other", 8, 8), tile=4)
        with pytest.raises(ShapeError, match="does not have one element per row of"):
            tf.grouped_matmul_tiled(a, b, tf.table("few", 7, 1, low=-1), tile=4)
        with pytest.raises(ShapeError, match="is not provably a multiple of 3"):
            tf.grouped_matmul_aligned(a, b, tf.table("ends", 3, 8), tile=3)
        with pytest.raises(ShapeError, match="does not hold 0 and the end of each group"):
            tf.grouped_matmul_aligned(a, b, tf.table("short", 2, 8), tile=4)
        with pytest.raises(ShapeError, match=r"are not rows \[G, M, K\]"):
            tf.grouped_matmul_masked(a, b, tf.table("counts", 2, 8))
        with pytest.raises(ShapeError, match="differ in the number of groups"):
            tf.grouped_matmul_masked(tf.define_tensor((3, 4, 3)), b, tf.table("three", 3, 4))
        with pytest.raises(ShapeError, match="may have 0 matrices"):
            tf.grouped_matmul_tiled(a, tf.define_tensor((tf.dim("G", min=0), 3, 2)), tf.table("none", 8, "G - 1", low=-1), tile=4)


# -- on tensor cores ------------------------------------------------------------------------------------------------------------------

EMPTY, FULL, RANDOM = "empty", "full", "random"
TABLES: dict[str, dict[str, list[int]]] = {
    "masked": {EMPTY: [0, 0], FULL: [150, 150], RANDOM: [129, 3], "hostile": [-5, 2**31 - 1]},
    "tiled": {EMPTY: [-1] * 256, FULL: [1] * 128 + [0] * 128, RANDOM: [0] * 70 + [-1] * 58 + [1] * 128, "hostile": [7, -9] * 128},
    "aligned": {EMPTY: [0, 0, 0], FULL: [0, 128, 256], RANDOM: [0, 100, 130], "hostile": [300, -4, 7]},
}
FORMS: dict[str, tuple[Callable[[], tf.Fusion], Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]]] = {
    "masked": (lambda: masked(tf.bfloat16, 2, 150, 128, 64), masked_rows),
    "tiled": (lambda: tiled(tf.bfloat16, 2, 256, 128, 64, 128), lambda a, b, t: tiled_rows(a, b, t, 128)),
    "aligned": (lambda: aligned(tf.bfloat16, 2, 256, 128, 64, 128), lambda a, b, t: aligned_rows(a, b, t, 128)),
}


@pytest.mark.parametrize(("form", "kind"), [*((form, MatmulKind.COOPERATIVE) for form in FORMS), ("masked", MatmulKind.PINGPONG)])
def test_proved_kernels_of_tensor_cores(form: str, kind: MatmulKind) -> None:
    make, reference = FORMS[form]
    fusion = make()
    if form != "masked":  # its result is a view of the tiles
        (tiles,) = (t for t in fusion.tensors() if t.ndim == 3 and t.dtype is tf.bfloat16 and t.name.startswith("tv") and not fusion.is_view(t))
        plain = tf.parse_fusion(str(fusion).replace(f"OUTPUT {fusion.outputs[0].name}", f"OUTPUT {tiles.name}"))
    else:
        plain = fusion
    tf.schedulers.matmul(plain, MatmulConfig(128 if kind is MatmulKind.COOPERATIVE else 64, 64, stages=2, blocks=2, kind=kind))
    kernel = tf.lower(plain)
    kernel.verify().require()
    for name, table in TABLES[form].items():
        args = arguments(fusion, table)
        (found,) = kernel.simulate(*args)
        (wanted,) = fusion.evaluate(*args)
        assert (found.reshape(wanted.shape) == wanted).all()
        if name != "hostile" or form == "masked":
            assert (wanted.astype(np.float32) == reference(*args)).all()


@pytest.mark.parametrize("form", FORMS)
def test_compile_takes_tensor_cores(form: str) -> None:
    run = tf.compile(FORMS[form][0](), backend="sim", specialize=False, cache=False)
    (kernel,) = run.kernels
    assert "WGMMA" in str(kernel)
    assert str(kernel).count("FOR i16 in 0..select(") == 2  # both roles skip tiles of padding
