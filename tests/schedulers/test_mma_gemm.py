"""Products by mma.sync: of float64, and of all types and layouts; shapes that no tile divides; epilogues; chosen where it is faster."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR
from taskfuse.schedulers import MmaGemmConfig
from taskfuse.schedulers.mma_gemm import TILES
from taskfuse.sim import simulate
from taskfuse.target import A100, H200, Target
from tests.schedulers.oracle import array, checked

RNG = np.random.default_rng(0)
SMALL = MmaGemmConfig(32, 32, 16, 16, 16, 8, 2)


def product(spec: str, extents: dict[str, Any], dtype: tf.DType, sums: tf.DType | None = None) -> tf.Fusion:
    given = spec.split("->")[0].split(",")
    with tf.Fusion("product") as fusion:
        x, y = (tf.define_tensor([extents[c] for c in axes], dtype=dtype, name=name) for axes, name in zip(given, "xy", strict=True))
        fusion.add_output(tf.einsum(spec, x, y, dtype=sums or (tf.int32 if dtype.is_integer else dtype if dtype.itemsize == 8 else tf.float32)))
    return fusion


def numbers(fusion: tf.Fusion) -> list[Any]:
    return [RNG.integers(0, 5, [int(str(e)) for e in tv.shape]).astype(tv.dtype.numpy) for tv in fusion.inputs]


def runs(fusion: tf.Fusion, spec: str, config: MmaGemmConfig | None = None, *, tf32: bool = False) -> tf.Kernel:
    """It is proved, and gives the exact sums of small integers."""
    tf.schedulers.mma_gemm(fusion, config, tf32=tf32)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    x, y = numbers(fusion)
    (out,) = kernel.simulate(x, y, seed=0)
    assert np.array_equal(out.astype(np.float64), np.einsum(spec, x.astype(np.float64), y.astype(np.float64)))
    return kernel


@pytest.mark.parametrize("spec", ["mk,kn->mn", "km,nk->mn", "bmk,bkn->bmn", "bmk,kn->bmn", "mk,nk->mn", "cmk,ckn->mn"])
def test_float64_in_every_layout(spec: str) -> None:
    runs(product(spec, {"b": 2, "c": 3, "m": 35, "n": 41, "k": 21}, tf.float64), spec)


@pytest.mark.parametrize("tile", TILES)
def test_tiles_of_float64_spill_nothing(tile: tuple[int, int, int, int]) -> None:
    fusion = product("mk,kn->mn", {"m": 4096, "n": 4096, "k": 4096}, tf.float64)
    tf.schedulers.mma_gemm(fusion, MmaGemmConfig(*tile))
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    assert "spills     0 bytes stored" in str(kernel.resources())
    assert "DMMA" in kernel.sass()


@settings(max_examples=8, deadline=None)
@given(
    m=st.integers(16, 70),
    n=st.integers(16, 70),
    k=st.integers(1, 70),
    dtype=st.sampled_from([tf.float64, tf.float32, tf.bfloat16, tf.float16, tf.float8_e4m3, tf.float8_e5m2, tf.int8, tf.uint8]),
    spec=st.sampled_from(["mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn"]),
)
def test_odd_shapes_of_every_type_and_layout(m: int, n: int, k: int, dtype: tf.DType, spec: str) -> None:
    runs(product(spec, {"m": m, "n": n, "k": k}, dtype), spec, tf32=True)


@pytest.mark.parametrize("k", [1, 8, 9])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16], ids=str)
def test_tiles_with_fewer_vectors_than_threads(dtype: tf.DType, k: int) -> None:
    """Each thread copies: shorter vectors, where rows of the factors are contiguous and the sum is short."""
    runs(product("mk,kn->mn", {"m": 33, "n": 40, "k": k}, dtype), "mk,kn->mn", tf32=True)


def test_symbolic_extents() -> None:
    extents = {c: tf.dim(c.upper(), min=1) for c in "mk"} | {"n": tf.dim("N", min=1)}
    with tf.Fusion("product") as fusion:
        x, y = tf.define_tensor([extents["m"], extents["k"]], dtype=tf.float64, name="x"), tf.define_tensor(["K", extents["n"]], dtype=tf.float64, name="y")
        fusion.add_output(x @ y)
    tf.schedulers.mma_gemm(fusion, SMALL)
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    for m, n, k in ((1, 1, 1), (33, 17, 19), (64, 32, 40)):
        x, y = RNG.integers(-4, 5, (m, k)).astype(np.float64), RNG.integers(-4, 5, (k, n)).astype(np.float64)
        assert np.array_equal(kernel.simulate(x, y)[0], x @ y)


def test_epilogues() -> None:
    with tf.Fusion("epilogue") as fusion:
        x, y = tf.define_tensor([33, 20], dtype=tf.float64, name="x"), tf.define_tensor([20, 18], dtype=tf.float64, name="y")
        bias, rest = tf.define_tensor([18], dtype=tf.float64, name="bias"), tf.define_tensor([33, 18], dtype=tf.float64, name="rest")
        z = x @ y
        fusion.add_output(tf.relu(z + bias) * rest)
        fusion.add_output(z)
        fusion.add_output(tf.cast(z, tf.float32))
    given = [array(33, 20, dtype=tf.float64), array(20, 18, dtype=tf.float64), array(18, dtype=tf.float64), array(33, 18, dtype=tf.float64)]
    wanted = evaluate(fusion, given, MODULAR)
    tf.schedulers.mma_gemm(fusion, SMALL)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    for out, exact in zip(simulate(kernel, given, seed=0, values=MODULAR), wanted, strict=True):
        assert np.array_equal(out, exact)


def test_a_product_of_a_matrix_with_itself() -> None:
    with tf.Fusion("gram") as fusion:
        x = tf.define_tensor([80, 40], dtype=tf.float64, name="x")
        fusion.add_output(x @ x.T)
    assert [step.schedule.scheduler for step in checked(fusion, [array(80, 40, dtype=tf.float64)]).steps] == ["mma_gemm"]


@pytest.mark.parametrize(("target", "mma"), [(H200, "m16n8k8"), (A100, "m8n8k4")], ids=str)
def test_the_instruction_is_one_of_the_target(target: Target, mma: str) -> None:
    fusion = product("mk,kn->mn", {"m": 256, "n": 256, "k": 128}, tf.float64)
    chosen = tf.schedulers.mma_gemm(fusion, target=target)
    kernel = tf.lower(fusion)
    assert f"MMA.{mma}.float64" in str(kernel)
    assert kernel.verify().is_proved
    assert kernel.cubin(arch=target.arch)
    assert chosen.scheduler == "mma_gemm"
    small = product("mk,kn->mn", {"m": 20, "n": 20, "k": 9}, tf.float64)
    tf.schedulers.mma_gemm(small, target=target)
    x, y = numbers(small)
    assert np.array_equal(tf.lower(small).simulate(x, y)[0], x @ y)


def test_what_is_chosen() -> None:
    def chosen(dtype: tf.DType, target: str = "H200", n: int = 2048) -> str:
        schedule = tf.compile(product("km,kn->mn", {"m": n, "n": n, "k": n}, dtype), target=target).schedule
        assert schedule is not None
        return schedule.scheduler

    assert chosen(tf.float64) == "mma_gemm"
    assert chosen(tf.float32) == "simt_gemm"
    assert chosen(tf.bfloat16) == "matmul"
    assert chosen(tf.bfloat16, "A100") == "mma_gemm"


def test_several_blocks_of_a_multiprocessor_are_preferred_to_a_large_tile() -> None:
    """The model knows how many there are: while one waits for its barrier, another multiplies."""
    large = product("mk,kn->mn", {"m": 4096, "n": 4096, "k": 4096}, tf.float64)
    chosen = tf.schedulers.mma_gemm(large)
    assert chosen.config == MmaGemmConfig(64, 64, 32, 32)
    assert "4 blocks per multiprocessor" in str(tf.lower(large).resources())
    times = {option.config: option.us for option in chosen.alternatives}
    for tile, us in (((64, 64, 32, 32), 2795), ((128, 64, 64, 32), 2957), ((128, 128, 64, 32), 3321)):
        assert times[MmaGemmConfig(*tile)] == pytest.approx(us, rel=0.05), "measured on an H200"


@pytest.mark.parametrize(
    ("fusion", "reason"),
    [
        (product("mk,kn->mn", {"m": 8, "n": 64, "k": 64}, tf.float64), "it has 8 rows and 64 columns"),
        (product("mk,kn->mn", {"m": 64, "n": 64, "k": 64}, tf.float32), "products of float32: tensor cores read its upper 19 bits"),
        (product("mk,kn->mn", {"m": 64, "n": 64, "k": 64}, tf.int32), "has no mma.sync for products of int32 and int32 in int32"),
    ],
)
def test_what_is_refused(fusion: tf.Fusion, reason: str) -> None:
    before = str(fusion)
    with pytest.raises(UnsupportedError) as error:
        tf.schedulers.mma_gemm(fusion)
    assert reason in str(error.value)
    assert str(fusion) == before


def test_parameters_are_checked() -> None:
    with pytest.raises(UnsupportedError, match="use divisors"):
        MmaGemmConfig(tile_m=128, warp_m=48)
    for config, reason in (
        (MmaGemmConfig(64, 64, 32, 32, 16, 2, 2), "an mma_gemm schedule .* mma.sync multiplies float64 in steps of 4, 8, 16, not 2"),
        (MmaGemmConfig(64, 64, 8, 32, 16, 8, 2), "a warp has 8 x 32"),
        (MmaGemmConfig(64, 64, 32, 4, 16, 8, 2), "a warp has 32 x 4"),
        (MmaGemmConfig(128, 128, 64, 32, 256, 16, 8), "needs [0-9]+ bytes of Shared memory and has 232448"),
    ):
        with pytest.raises(UnsupportedError, match=reason):
            tf.schedulers.mma_gemm(product("mk,kn->mn", {"m": 128, "n": 128, "k": 128}, tf.float64), config)
    with pytest.raises(UnsupportedError, match="a block has at most 1024 threads"):
        MmaGemmConfig(256, 256, 16, 16)
