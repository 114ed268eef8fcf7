"""Matrix products of any size: rows that the copy engine cannot take, remainders of 1 in each extent, everything proved."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.cuda.nvrtc import CompileOptions, compile_cubin
from taskfuse.errors import UnsupportedError
from taskfuse.ir.atoms import Instruction
from taskfuse.kir import walk
from taskfuse.kir.nodes import AsyncCopy, Choose, TmaLoad
from taskfuse.kir.operands import Queue
from taskfuse.kir.synchronization import FenceProxyAsync, WaitGroup
from taskfuse.reports.resources import Resources
from taskfuse.schedulers import MatmulConfig, MatmulKind
from tests.lowering.faults import without
from tests.proofs import proved
from tests.schedulers.odd import VARIANTS, Odd
from tests.schedulers.products import SMALL, TWO, operands, swapped

Array = npt.NDArray[Any]
EXTENTS = (1, 2, 3, 7, 17, 33, 63, 65, 129, 130)


@cache
def lowered(odd: Odd, config: MatmulConfig) -> tuple[tf.Fusion, tf.Kernel]:
    fusion = odd.fusion()
    tf.schedulers.matmul(fusion, config)
    kernel = tf.lower(fusion)
    return fusion, proved(kernel, odd.sizes(65, 33, 17))


@settings(max_examples=6, deadline=None)
@given(*(st.sampled_from(EXTENTS) for _ in range(3)), st.integers(0, 99))
def test_any_extents(m: int, n: int, k: int, seed: int) -> None:
    fusion, kernel = lowered(Odd(), SMALL)
    sizes = {"M": m, "N": n, "K": k}
    Odd().check(proved(kernel, sizes), operands(fusion, sizes, seed), seed)


CONFIGS = {
    "4 bytes": TWO,
    "transposed": TWO,
    "pingpong": MatmulConfig(64, 64, 64, warpgroups=2, stages=3, blocks=2, kind=MatmulKind.PINGPONG),
    "cluster": MatmulConfig(64, 64, 64, warpgroups=1, stages=3, blocks=4, cluster=2),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name: str) -> None:
    odd = VARIANTS[name]
    fusion, kernel = lowered(odd, CONFIGS.get(name, SMALL))
    for extents in ((1, 1, 1), (65, 33, 17)):
        sizes = odd.sizes(*extents)
        odd.check(proved(kernel, sizes), operands(fusion, sizes))


def test_what_is_copied_how() -> None:
    """The widest copies that the facts allow."""
    kinds = {name: {type(s) for s in walk(lowered(odd, CONFIGS.get(name, SMALL))[1])} & {TmaLoad, AsyncCopy, Choose} for name, odd in VARIANTS.items()}
    assert kinds == {
        "4 bytes": {AsyncCopy},
        "8 bytes": {AsyncCopy},
        "transposed": {AsyncCopy, Choose},
        "one of two": {TmaLoad, Choose},
        "batches": {AsyncCopy},
        "two batches": {Choose},
        "pingpong": {AsyncCopy},
        "cluster": {TmaLoad, Choose},
    }
    widths = [s.width for s in walk(lowered(VARIANTS["8 bytes"], SMALL)[1]) if isinstance(s, AsyncCopy)]
    assert widths == [4, 4]


@pytest.mark.parametrize("unit", [1, 2], ids=["stores", "copies"])
def test_without_its_fence_or_retire_it_is_not_proved(unit: int) -> None:
    """What threads write is read by wgmma through the asynchronous proxy: after their copies are done, and fenced."""
    _, kernel = lowered(Odd((1, 1, unit)), SMALL)
    faults = [s for s in walk(kernel) if isinstance(s, FenceProxyAsync) or (isinstance(s, WaitGroup) and s.queue is Queue.COPY)]
    assert len(faults) == unit
    for fault in faults:
        assert not without(kernel, fault).verify().is_proved


def test_more_axes_than_the_copy_engine_takes() -> None:
    with tf.Fusion("axes") as fusion:
        lead = ["B0", "B1", "B2", "B3"]
        a, b = (tf.define_tensor([*lead, tf.dim(n), tf.dim("K", multiple_of=8)], dtype=tf.bfloat16, name=name) for n, name in (("M", "a"), ("N", "b")))
        fusion.add_output(tf.matmul(a, swapped(b), dtype=tf.float32))
    schedule = tf.schedulers.matmul(fusion, SMALL)
    assert all("the copy engine takes 5 axes at most" in note for note in schedule.notes)
    assert len(schedule.notes) == 2
    assert not any(tv.schedule.atom is not None and tv.schedule.atom.instruction is Instruction.TMA_LOAD for tv in fusion.tensors())
    args = operands(fusion, {"B0": 2, "B1": 1, "B2": 1, "B3": 2, "M": 3, "N": 5, "K": 8})
    (out,) = tf.lower(fusion).simulate(*args)
    assert np.allclose(out, np.asarray(args[0], np.float64) @ np.swapaxes(np.asarray(args[1], np.float64), -1, -2), atol=1e-5)


def test_the_explanation_says_how_to_make_it_faster() -> None:
    schedule = tf.schedulers.matmul(Odd((1, 1, 2)).fusion(), sizes={"M": 512, "N": 512, "K": 512})
    text = schedule.explain()
    assert "a: bfloat16[M, K]: copied by threads, 4 bytes at once: for bulk copies declare rows of multiples of 16 bytes, tf.dim(..., multiple_of=8)" in text
    assert "a step of k waits for: copies of threads" in text
    assert tf.schedulers.matmul(Odd((1, 1, 8)).fusion()).notes == ()


def test_clusters_share_what_the_copy_engine_brings() -> None:
    with pytest.raises(UnsupportedError, match="cluster = 2, and threads copy the factor with the columns: each block needs a copy of its own") as caught:
        tf.schedulers.matmul(Odd().fusion(), MatmulConfig(cluster=2))
    assert caught.value.help == "use cluster=1, or rows of multiples of 16 bytes"
    kinds = {(e.config.is_pingpong, e.config.cluster) for e in tf.schedulers.matmul(Odd().fusion()).alternatives}
    assert kinds == {(False, 1), (True, 1)}


@pytest.mark.parametrize("warpgroups", [1, 2, 3])
def test_register_budgets_and_code(warpgroups: int) -> None:
    """The loading role has room for what it loads; the compiler spills nothing."""
    fusion = Odd().fusion()
    tf.schedulers.matmul(fusion, MatmulConfig(64 * warpgroups, 128, 64, warpgroups, stages=3))
    found = tf.lower(fusion).resources().compiled
    assert isinstance(found, Resources)
    assert (found.spill_stores, found.spill_loads, found.stack) == (0, 0, 0)


@pytest.mark.parametrize("out", [tf.float8_e4m3, tf.bfloat16, tf.float32])
@pytest.mark.parametrize("columns", [508, 510, 511])
def test_stores_that_are_guarded_leave_wgmma_alone(columns: int, out: tf.DType) -> None:
    """Rows of 510 elements: pairs go from registers to Global memory, some of them under a condition."""
    with tf.Fusion("narrow") as fusion:
        a, b = (tf.define_tensor(shape, dtype=tf.bfloat16, name=name) for name, shape in (("a", [500, 512]), ("b", [512, columns])))
        product = tf.matmul(a, b, dtype=tf.float32)
        fusion.add_output(product if out is tf.float32 else tf.cast(product, out))
    tf.schedulers.matmul(fusion, MatmulConfig(64, 64, warpgroups=1, stages=4, blocks=64))
    kernel = tf.lower(fusion)
    text = kernel.cuda_source()
    assert (f"  store{2 * out.itemsize}_if(" in text) is (columns % 2 == 0)
    assert text.count("  wgmma_retired(") == 1
    assert compile_cubin(text, kernel.name, CompileOptions(arch="sm_90a")).diagnostics == ()
