"""Plans of fusions that nobody scheduled: proved, run, and compared with NumPy and with what their code makes."""

from typing import Any
from zlib import crc32

import numpy as np

import taskfuse as tf
from taskfuse.check import verify
from taskfuse.ir.arguments import bind_shapes
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR
from taskfuse.kir import walk
from taskfuse.kir.arguments import bind_symbols
from taskfuse.runtime.views import StridedView
from taskfuse.schedulers.candidates import Trial
from taskfuse.schedulers.segmentation import Segmentation
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.sim import simulate

RNG = np.random.default_rng(0)


def array(*shape: int, dtype: tf.DType = tf.float32) -> Any:
    return RNG.uniform(0.1, 1.0, shape).astype(dtype.numpy)


def pasted(fusion: tf.Fusion, schedule: Segmentation) -> list[tf.Fusion]:
    """The fusions that the printed code makes of a copy."""
    names: dict[str, Any] = {"fusion": tf.copy_fusion(fusion)[0]}
    exec(schedule.code, names)
    return list(names.get("kernels", names["segmented"].segments)) if schedule.is_segmented else [names["fusion"]]


def checked(fusion: tf.Fusion, arguments: list[Any], seed: int = 0, trial: Trial | None = None) -> Segmentation:
    """Each kernel is proved, for all extents or for these, and its statements come from lines of the user's; together they give what NumPy gives, in the ring.

    The code gives the same kernels: of a third of the fusions, by their texts.
    """
    before = str(fusion)
    found = choose_segments(fusion, trial=trial)
    assert str(fusion) == before
    values = dict(zip([*(tv.name for tv in fusion.inputs), *(s.name for s in fusion.scalars)], arguments, strict=True))
    sizes = bind_shapes(fusion, [np.shape(a) for a in arguments[: len(fusion.inputs)]])
    kernels = [tf.lower(step.fusion) for step in found.steps]
    if crc32(before.encode()) % 3 == 0:
        assert [str(tf.lower(again)) for again in pasted(fusion, found)] == [*map(str, kernels)]
    for step, kernel in zip(found.steps, kernels, strict=True):
        assert all(s.location is not None for s in walk(kernel))
        values |= {name: StridedView(found.whole_fusion or fusion, name, "sim").of(values, sizes, None, 0) for name in step.views}
        given = [values[name] for name in step.arguments]
        if not kernel.verify().is_proved:  # an argument with a gap: the extents of the call close it
            shapes = {tv.name: np.shape(array) for tv, array in zip(step.fusion.inputs, given, strict=False)}
            verify(kernel, bind_symbols(kernel, shapes, {})).require()
        values |= dict(zip(step.outputs, simulate(kernel, given, seed=seed, values=MODULAR), strict=True))
    for tv, wanted in zip(fusion.outputs, evaluate(fusion, arguments, MODULAR), strict=True):
        assert np.array_equal(values[tv.name], wanted), tv.name
    return found
