"""Schedules of reductions and normalizations on the GPU, into poisoned outputs, beside NumPy."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers import Keep, RowConfig
from taskfuse.testing.tolerance import accepted
from tests.gpu.device import poisoned, to_numpy, to_torch
from tests.schedulers.rows import NORMS, SUMS, Kind, arguments, make, scheduler, softmax, total

SHAPES = {"rows": (300, 1024), "few": (3, 40000), "odd": (37, 1013), "short": (5000, 24), "one": (1, 8), "thin": (64, 1)}


def run(kind: Kind, shape: tuple[int, int], config: RowConfig | None = None, dtype: tf.DType = tf.bfloat16, axis: int = -1) -> None:
    fusion = make(kind, shape, dtype, axis)
    ours, _ = copy_fusion(fusion)
    scheduler(kind)(ours, config)
    args = arguments(fusion, {})
    wanted = accepted(fusion, args)
    outs = [poisoned(w.low.shape, tv.dtype) for w, tv in zip(wanted, fusion.outputs, strict=True)]
    tf.compile(ours, backend="cuda")(*map(to_torch, args), out=tuple(outs) if len(outs) > 1 else outs[0])
    for out, expected in zip(outs, wanted, strict=True):
        wrong = expected.wrong(to_numpy(out))
        assert not len(wrong), f"{len(wrong)} elements, the first at {wrong[0]}"


@pytest.mark.parametrize("size", [s for s in SHAPES if s != "thin"])
@pytest.mark.parametrize("kind", [*NORMS, *SUMS])
def test_sizes(kind: Kind, size: str) -> None:
    run(kind, SHAPES[size])


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16], ids=str)
@pytest.mark.parametrize("kind", [*NORMS, *SUMS])
def test_dtypes(kind: Kind, dtype: tf.DType) -> None:
    run(kind, (129, 2048), dtype=dtype)


@pytest.mark.parametrize("kind", [*NORMS, *SUMS])
def test_the_contiguous_axis_is_kept(kind: Kind) -> None:
    run(kind, (1000, 264), axis=0)


@pytest.mark.parametrize("keep", list(Keep), ids=lambda k: k.value)
def test_blocks_share_a_row(keep: Keep) -> None:
    run(softmax, (5, 8192), RowConfig(64, 1, 2, blocks=8, keep=keep))
    run(total, (2, 100000), RowConfig(256, 1, 4, blocks=16))
