"""Reductions of matrix products: rows, columns, both, in batches, with and without the product itself; proved, and compared with NumPy."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.ir.storage import producers
from taskfuse.ir.types import ParallelType as P
from taskfuse.kir import walk
from taskfuse.kir.products import Shuffle
from taskfuse.kir.synchronization import Barrier, BarrierScope
from taskfuse.reports.resources import Resources
from taskfuse.schedulers import MatmulConfig, MatmulKind
from tests.lowering.faults import without
from tests.proofs import proved
from tests.schedulers.epilogues import CASES, Epilogue, bf16, fusion_of
from tests.schedulers.products import SMALL, operands

Array = npt.NDArray[Any]
FEWER = ({"B": 2, "M": 66, "N": 72, "K": 72}, {"B": 1, "M": 1, "N": 8, "K": 8})
"""At more elements the run that decides about values takes too long."""
SIZES = ({"B": 2, "M": 130, "N": 136, "K": 72}, {"B": 1, "M": 1, "N": 8, "K": 8})


def agrees(epilogue: Epilogue, config: MatmulConfig, batch: Sequence[str] = ()) -> tf.Kernel:
    """The scheduled kernel is proved, and does what the unscheduled fusion does, up to the order of sums."""
    fusion, plain = fusion_of(epilogue, batch), fusion_of(epilogue, batch)
    tf.schedulers.matmul(fusion, config)
    kernel = proved(tf.lower(fusion), *(FEWER if batch else SIZES))
    for seed, sizes in enumerate(SIZES):
        args = operands(plain, sizes, seed)
        for tv, out, wanted in zip(plain.outputs, kernel.simulate(*args, seed=seed), plain.evaluate(*args), strict=True):
            assert (out.shape, out.dtype) == (wanted.shape, wanted.dtype)
            wide = wanted.astype(np.float64)
            terms = max(sizes["M"], sizes["N"]) * (sizes["M"] if tv.ndim == 0 else 1)
            assert (np.abs(out.astype(np.float64) - wide) <= 2.0 ** -(tv.dtype.precision - 1) * np.abs(wide) + 2.0**-21 * terms).all(), tv
    return kernel


@pytest.mark.parametrize("name", CASES)
def test_reductions(name: str) -> None:
    epilogue, config, batch = CASES[name]
    agrees(epilogue, config, batch)


def test_rows_are_joined_by_shuffles_and_blocks_by_one_barrier() -> None:
    """Without the barrier, what is summed may not be there."""
    with tf.Fusion("fixed") as fusion:
        a, b = (tf.define_tensor([rows, 64], dtype=tf.bfloat16, name=name) for rows, name in ((64, "a"), (128, "b")))
        fusion.add_output(tf.sum(tf.matmul(a, b.T, dtype=tf.float32), axis=1))
    tf.schedulers.matmul(fusion, replace(SMALL, blocks=2))
    kernel = tf.lower(fusion)
    found = list(walk(kernel))
    assert sum(isinstance(s, Shuffle) for s in found) == 2  # the four lanes of a row
    (barrier,) = (s for s in found if isinstance(s, Barrier) and s.scope is BarrierScope.GRID)
    proved(kernel)
    assert not without(kernel, barrier).verify().is_proved


def test_an_output_that_is_read_is_stored_once() -> None:
    """The reduction reads registers, not what has been stored."""
    fusion = fusion_of(lambda x: [y := tf.relu(x), tf.sum(y, axis=1)])
    stored, total = fusion.outputs
    tf.schedulers.matmul(fusion, SMALL)
    assert fusion.outputs == [stored, total]
    assert not stored.uses
    (part,) = producers(fusion, total)
    (computed,) = producers(fusion, part)
    (register,) = producers(fusion, stored)
    assert producers(fusion, register) == (computed,)
    assert computed.schedule.memory is None


def test_several_outputs_of_one_chain() -> None:
    agrees(lambda x: [x, y := tf.relu(x), bf16(y)], SMALL)


REFUSED: dict[str, tuple[Epilogue, tuple[str, ...], str]] = {
    "softmax": (lambda x: [tf.exp(x - tf.max(x, axis=1, keepdims=True))], (), "a reduction of all tiles, which are complete when their registers are gone"),
    "batch alone": (lambda x: [tf.sum(x, axis=0)], ("B",), "tv4 reduces batch axes, and neither rows nor columns"),
    "twice": (lambda x: [tf.sum(tf.max(x, axis=1))], (), "tv5 is not computed element by element"),
    "crossed": (lambda x: [tf.expand_dims(tf.sum(x, axis=1), 1) + tf.expand_dims(tf.sum(x, axis=0), 0)], (), "along axes other than its own"),
    "input twice": (
        lambda x: [x + (bias := tf.define_tensor(["N"], name="bias")), tf.sum(x, axis=0) + bias],
        (),
        "bias is read by the epilogue and after a reduction",
    ),
    "of an input": (lambda x: [x, tf.sum(tf.define_tensor(["N", "K"], name="c"), axis=1)], (), "is not computed element by element"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    epilogue, batch, text = REFUSED[name]
    fusion = fusion_of(epilogue, batch)
    before = str(fusion)
    with pytest.raises(UnsupportedError) as caught:
        tf.schedulers.matmul(fusion, SMALL)
    assert text in caught.value.message
    assert caught.value.help
    assert str(fusion) == before


def test_the_compiler_neither_spills_nor_serializes() -> None:
    fusion = fusion_of(lambda x: [bf16(tf.relu(x)), tf.max(tf.abs(x), axis=1), tf.sum(x, axis=0)])
    schedule = tf.schedulers.matmul(fusion, MatmulConfig())
    assert "tv7, tv8: partial results of each tile in Global memory, added after a grid barrier" in schedule.explain()
    assert any(tv.schedule.ptype(a) is P.TIDy for tv in fusion.outputs[2:] for a in tv.loop)
    found = tf.lower(fusion).resources().compiled
    assert isinstance(found, Resources)
    assert (found.spill_stores, found.spill_loads, found.stack) == (0, 0, 0)


KINDS = {"warpgroups that take turns": MatmulConfig(64, 128, kind=MatmulKind.PINGPONG), "cluster = 2": MatmulConfig(cluster=2)}


@pytest.mark.parametrize("how", KINDS)
def test_parameters_that_do_not_suit_a_reduction(how: str) -> None:
    fusion = fusion_of(CASES["rows"][0])
    with pytest.raises(UnsupportedError, match=f"{how}, and the result is reduced: parts of sums are numbered by blocks of the grid"):
        tf.schedulers.matmul(fusion, KINDS[how])
    for e in tf.schedulers.matmul(fusion).alternatives:
        assert not e.config.is_pingpong
        assert e.config.cluster == 1
