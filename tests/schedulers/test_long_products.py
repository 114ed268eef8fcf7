"""Products of few tiles and long sums are cut into chunks where that is faster; others stay; both compute the same."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check import Verdict
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.expr import Reduction
from taskfuse.ir.values import MODULAR
from taskfuse.schedulers.long_products import chunk_long_products
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.target import DEFAULT
from tests.schedulers.convolutions import Convolution
from tests.schedulers.oracle import checked
from tests.schedulers.tried import arguments

RNG = np.random.default_rng(0)


def product(m: int, n: int, k: int, dtype: tf.DType = tf.bfloat16) -> tf.Fusion:
    with tf.Fusion("product") as fusion:
        a, b = tf.define_tensor([m, k], dtype=dtype, name="a"), tf.define_tensor([k, n], dtype=dtype, name="b")
        fusion.add_output(tf.relu(a @ b))
    return fusion


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype"),
    [(512, 128, 4096, tf.bfloat16), (96, 288, 25088, tf.bfloat16), (16, 16, 310464, tf.bfloat16), (64, 512, 512, tf.float32), (64, 64, 6890, tf.float32)],
)
def test_few_tiles_and_a_long_sum(m: int, n: int, k: int, dtype: tf.DType) -> None:
    found = choose_segments(product(m, n, k, dtype))
    assert [step.schedule.scheduler for step in found.steps] == ["simt_gemm" if dtype is tf.float32 else "matmul", "reduction"]
    assert "chunk_reduction" in found.code
    assert "calls: chunk_reduction, through_view" in found.explain()


def test_what_no_number_of_chunks_makes_up_has_a_rest() -> None:
    """Weights of a layer whose rows are 8 times 4001 tokens, and 8 times 4000."""
    ragged, whole = (chunk_long_products(fusion := product(256, 128, k), Sizes(fusion, None, DEFAULT)) for k in (32008, 32000))
    assert ragged is not None
    assert whole is not None
    assert ["cut_reduction" in str(form.lines) for form in (ragged, whole)] == [True, False]
    lengths = {str(e.output.root[-1].extent) for e in ragged.fusion.exprs() if isinstance(e, Reduction) and len(e.operands) == 2}
    assert len(lengths) == 2  # of the chunks, which tiles of tensor cores divide, and of the rest
    assert min(map(int, lengths)) < 32008 % int(max(lengths, key=int)) + 1


@pytest.mark.parametrize(("m", "n", "k"), [(4096, 4096, 4096), (512, 768, 768), (64, 64, 128)])
def test_what_is_no_faster_so_stays(m: int, n: int, k: int) -> None:
    fusion = product(m, n, k)
    assert chunk_long_products(fusion, Sizes(fusion, None, DEFAULT)) is None


def test_an_extent_that_is_not_known_stays() -> None:
    with tf.Fusion("product") as fusion:
        a, b = tf.define_tensor([64, "K"], dtype=tf.bfloat16, name="a"), tf.define_tensor(["K", 64], dtype=tf.bfloat16, name="b")
        fusion.add_output(a @ b)
    assert chunk_long_products(fusion, Sizes(fusion, {"K": 1 << 16}, DEFAULT)) is None


@pytest.mark.parametrize("k", [4096, 4099])
def test_the_form_computes_the_same(k: int) -> None:
    fusion = product(32, 32, k, tf.float32)
    found = chunk_long_products(fusion, Sizes(fusion, None, DEFAULT))
    assert found is not None
    given = arguments(fusion)
    assert np.array_equal(evaluate(fusion, given, MODULAR)[0], evaluate(found.fusion, given, MODULAR)[0])


def test_windows_in_chunks_of_channels() -> None:
    """Of a convolution of a small image with many channels: a chunk reads windows of its own channels, which bulk copies bring."""
    found = choose_segments(Convolution(2, 2560, 1280, (16, 16), (3, 3), padding=1).fusion())
    assert [step.schedule.scheduler for step in found.steps] == ["matmul", "reduction"]
    assert "calls: chunk_reduction, recompute, drop_axes, through_view" in found.explain()
    kernel = tf.lower(found.steps[0].fusion)
    assert "TMA" in str(kernel)
    assert kernel.verify().verdict is Verdict.PROVED
    small = Convolution(1, 512, 16, (4, 5), (3, 3), padding=1).fusion()
    form = chunk_long_products(small, Sizes(small, None, DEFAULT))
    assert form is not None
    given = [a.astype(tf.float16.numpy) for a in (RNG.normal(size=(1, 4, 5, 512)), RNG.normal(size=(16, 3, 3, 512)))]
    assert np.array_equal(evaluate(small, given, MODULAR)[0], evaluate(form.fusion, given, MODULAR)[0])


def test_its_kernels_are_proved_and_right() -> None:
    fusion = product(16, 16, 2048, tf.float32)
    form = chunk_long_products(fusion, Sizes(fusion, None, DEFAULT))
    assert form is not None
    assert len(checked(form.fusion, arguments(fusion)).steps) == 2
