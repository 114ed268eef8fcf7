"""Matrix products on the CUDA cores: proved, equal to NumPy for all layouts and dtypes, and refused where they are of another kind."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR
from taskfuse.schedulers import SimtGemmConfig
from taskfuse.sim import simulate
from tests.proofs import proved

RNG = np.random.default_rng(0)
T = tf.define_tensor


def array(*shape: int, dtype: tf.DType = tf.float32) -> Any:
    return (RNG.uniform(0.1, 1.0, shape) * (1 if dtype.is_float else 9)).astype(dtype.numpy)


def product(m: int | str, n: int | str, k: int | str, turned: str = "", dtype: tf.DType = tf.float32, batch: tuple[int, ...] = ()) -> tf.Fusion:
    """``relu(a @ b + bias)``; factors in ``turned`` are given transposed."""
    with tf.Fusion("product") as fusion:
        a = T([*batch, k, m] if "a" in turned else [*batch, m, k], dtype=dtype, name="a")
        b = T([n, k] if "b" in turned else [k, n], dtype=dtype, name="b")
        left = a.permute(*range(len(batch)), -1, -2) if "a" in turned else a
        c = tf.matmul(left, b.T if "b" in turned else b)
        fusion.add_output(tf.relu(c + T([n], dtype=c.dtype, name="bias")))
    return fusion


def check(fusion: tf.Fusion, config: SimtGemmConfig | None = None, **sizes: int) -> str:
    """The kernel, proved, exact in the ring, and the one that the printed code gives."""
    names: dict[str, Any] = {"fusion": tf.copy_fusion(fusion)[0]}
    found = tf.schedulers.simt_gemm(fusion, config)
    kernel = tf.lower(fusion)
    exec(found.code, names)
    assert str(tf.lower(names["fusion"])) == str(kernel)
    proved(kernel)
    arguments = [array(*(sizes.get(str(e)) or int(str(e)) for e in tv.shape), dtype=tv.dtype) for tv in fusion.inputs]
    assert np.array_equal(simulate(kernel, arguments, values=MODULAR)[0], evaluate(fusion, arguments, MODULAR)[0])
    return str(kernel)


@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
def test_every_layout(turned: str) -> None:
    text = check(product(64, 32, 24, turned), SimtGemmConfig(4, 2, depth=16))
    assert text.count("COPY.async") == 4  # each factor, before the loop and in it
    assert "width 4" in text  # of rows in Shared memory


def test_any_extents() -> None:
    check(product(37, 33, 19), SimtGemmConfig(2, 2, depth=16))
    check(product("M", "N", "K"), SimtGemmConfig(2, 2, depth=16), M=33, N=34, K=19)
    check(product(20, 24, 8, batch=(2,)), SimtGemmConfig(2, 2, depth=8))


@pytest.mark.parametrize("dtype", [tf.float64, tf.bfloat16, tf.int8, tf.uint8, tf.int32])
def test_dtypes(dtype: tf.DType) -> None:
    check(product(32, 32, 17 if dtype is tf.bfloat16 else 16, "b" if dtype is tf.int8 else "", dtype), SimtGemmConfig(2, 2, depth=8))


def test_full_precision_is_asked_first_after_tensor_cores() -> None:
    fusion = product(4096, 4096, 4096)
    found = tf.schedulers.auto(fusion)
    assert found.scheduler == "simt_gemm"
    assert found.config == SimtGemmConfig(8, 8)
    assert found.explain().startswith("simt_gemm 4096 x 4096 x 4096: chosen: tiles of 128 x 128 x 32, 2 in the ring, 8 x 8 elements of a thread")
    assert "WGMMA" not in str(tf.lower(fusion))


def test_large_products_have_large_parts() -> None:
    """Smaller ones make more tiles. Functions of a pair that take several instructions have smaller ones, as do factors that cannot be turned."""
    parts = [tf.schedulers.simt_gemm(product(n, n, n)).config for n in (4096, 1024, 512)]
    sizes = [c.rows * c.columns for c in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3
    with tf.Fusion("distances") as fusion:
        x, y = T([4096, 1, 64], name="x"), T([1, 4096, 64], name="y")
        fusion.add_output(tf.sum(tf.abs(x - y), 2))
    for smaller in (fusion, product(4096, 4096, 4096, "b", tf.bfloat16)):
        assert all(o.config.rows * o.config.columns <= 32 for o in tf.schedulers.simt_gemm(smaller).alternatives)


def test_factors_with_k_last_are_turned_on_their_way_to_shared_memory() -> None:
    """Neighbors copy 8 of k of 4 rows to places in different banks, and threads read vectors of rows, of any extents."""
    text = check(product(20, 35, 17, "b"), SimtGemmConfig(8, 8, depth=16))
    copied = [line for line in text.splitlines() if "COPY.async" in line]
    assert len(copied) == 4
    assert all("8*(threadIdx.x//32 % 2) + threadIdx.x % 8, 4*(threadIdx.x//64)" in line for line in copied)  # k, row
    assert text.count("width 4") == 2


def test_half_a_warp_reads_an_address_of_each_factor_twice() -> None:
    """Lanes that differ in the lowest bit read the same rows, those that differ in the next one the same columns."""
    fusion = product(64, 32, 16)
    tf.schedulers.simt_gemm(fusion, SimtGemmConfig(4, 2, depth=16))
    reads = [line for line in str(tf.lower(fusion)).splitlines() if "COPY tv" in line and "ring.slot" in line]
    assert len(reads) == 2
    assert ["threadIdx.x//2 % 2" in line for line in reads] == [True, False]
    assert ["threadIdx.x % 2" in line for line in reads] == [False, True]


@pytest.mark.parametrize(("size", "across"), [((43008, 14, 64), 8), ((14, 43008, 64), 32), ((4096, 4096, 64), 16)])
def test_few_columns_or_rows_fill_narrow_tiles(size: tuple[int, int, int], across: int) -> None:
    config = tf.schedulers.simt_gemm(product(*size)).config
    assert config.across == across


@pytest.mark.parametrize(("across", "turned"), [(8, ""), (32, "b")])
def test_threads_along_either_side(across: int, turned: str) -> None:
    check(product(35, 18, 9, turned), SimtGemmConfig(1, 1, depth=8, across=across))


def test_a_tile_has_threads_along_both_sides() -> None:
    assert SimtGemmConfig(8, 4, across=8).tile == (256, 32)
    with pytest.raises(UnsupportedError, match="256 threads along the columns"):
        SimtGemmConfig(across=256)


def test_several_axes_that_are_summed() -> None:
    with tf.Fusion("summed") as fusion:
        a, b = T([3, 32, 9], name="a"), T([3, 9, 20], name="b")
        fusion.add_output(tf.einsum("bij,bjk->ik", a, b))
    check(fusion, SimtGemmConfig(2, 2, depth=8))


def _computed() -> None:
    with tf.Fusion("f") as fusion:
        x, y = T([32, 32], name="x"), T([32, 32], name="y")
        fusion.add_output(tf.exp(x) @ y)
    tf.schedulers.simt_gemm(fusion)


def _scaled() -> None:
    with tf.Fusion("f") as fusion:
        x = T([32, 32], name="x")
        fusion.add_output(x @ x.T + x)
    tf.schedulers.simt_gemm(fusion)


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: tf.schedulers.simt_gemm(product(3, 32, 32)), "it has 3 rows and 32 columns"),
    (_computed, "tv3 reads tv2 at points other than its own"),
    (_scaled, "the factor x is computed, or read elsewhere, too"),
]


@pytest.mark.parametrize(("call", "reason"), REFUSED)
def test_refusals(call: Callable[[], Any], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        call()


def test_a_result_that_is_read_stays_in_registers() -> None:
    with tf.Fusion("both") as fusion:
        c = T([32, 8], name="a") @ T([8, 32], name="b")
        fusion.add_output(tf.exp(c))
        fusion.add_output(c)
    assert "SYNC grid" not in check(fusion, SimtGemmConfig(2, 2, depth=8))


@pytest.mark.parametrize(("rows", "groups"), [(90, 3), (40, 2), (90, 1)])
def test_ragged_rows(rows: int, groups: int) -> None:
    with tf.Fusion("ragged") as fusion:
        a, b = T((rows, 8), name="a"), T((groups, 8, 24), name="b")
        y = tf.grouped_matmul(a, b, tf.table("offsets", groups + 1, rows, rising=True))
        fusion.add_output(y)
        fusion.add_output(tf.relu(y) + T((rows, 1), name="bias"))
    given = RNG.integers(-4, 5, (rows, 8)), RNG.integers(-4, 5, (groups, 8, 24)), RNG.integers(-4, 5, (rows, 1))
    table = np.array([0, *([7] * (groups - 1)), rows], np.int32)
    arguments = [given[0].astype(np.float32), given[1].astype(np.float32), table, given[2].astype(np.float32)]
    wanted = fusion.evaluate(*arguments)
    found = tf.schedulers.simt_gemm(fusion, SimtGemmConfig(2, 2, depth=8))
    assert ("scatter" in found.code) == (groups > 1)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert all((x == w).all() for x, w in zip(kernel.simulate(*arguments), wanted, strict=True))


def test_tiles_are_no_deeper_than_a_short_sum() -> None:
    """Three terms in tiles of 32 would be 29 products with zeros; among tiles of equal times, threads have the largest parts."""
    found = tf.schedulers.simt_gemm(product(4096, 4096, 3, "b"))
    assert found.config.depth == 4
    assert found.config.rows * found.config.columns == 64


def test_what_is_refused_stays_as_it_was() -> None:
    """Tensors are moved to the points of their readers before the products are looked at."""
    with tf.Fusion("walk") as fusion:
        x = tf.define_tensor([1, 5], name="x")
        top = tf.max(x, axis=1)
        total = tf.sum(tf.exp(x - tf.expand_dims(top, 1)), axis=1)
        fusion.add_output(total)
    tf.cascade([top, total], 3)
    before = str(fusion)
    with pytest.raises(UnsupportedError, match="is not computed element by element"):
        tf.schedulers.simt_gemm(fusion)
    assert str(fusion) == before


@pytest.mark.parametrize(("m", "n", "k"), [(4, 40, 24), (40, 7, 24)])
def test_few_rows_or_columns(m: int, n: int, k: int) -> None:
    check(product(m, n, k), SimtGemmConfig(1, 2, depth=16))


def test_few_rows_of_a_long_factor_are_tiles() -> None:
    """Whatever axis of it is the last one: rows along k would be summed by warps."""
    found = tf.schedulers.auto(product(8, 8192, 1024))
    assert (found.scheduler, found.us < 40) == ("simt_gemm", True)
