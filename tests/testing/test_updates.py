"""Small fusions with updates at places that no data names: they are proved, and compute what their definitions say."""

from functools import partial

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.scalar import evaluate
from taskfuse.kir import walk
from taskfuse.kir.nodes import AtomicUpdate, TmaStore
from taskfuse.testing.updates import in_boxes, in_vectors


@pytest.mark.parametrize(
    "build",
    [
        in_boxes,
        partial(in_boxes, slots=2),
        partial(in_boxes, rows=3),
        partial(in_boxes, blocks=True),
        partial(in_boxes, role=True),
        partial(in_boxes, read=True),
        partial(in_boxes, combine="maximum", dtype=tf.int32),
        in_vectors,
        partial(in_vectors, 2, tiles="T"),
    ],
)
def test_they_are_proved_and_right(build: partial[tf.Fusion]) -> None:
    fusion = build()
    kernel = tf.lower(fusion)
    kernel.verify().require()
    boxes = any(isinstance(s, TmaStore) and s.combine is not None for s in walk(kernel))
    widths = {s.width for s in walk(kernel) if isinstance(s, AtomicUpdate)}
    assert boxes is not bool(widths)
    assert widths <= {2, 4}
    x, s = fusion.inputs
    rng = np.random.default_rng(0)
    given = [rng.integers(-4, 5, [int(evaluate(a.extent, {"T": 3})) for a in tv.logical]).astype(tv.dtype.numpy) for tv in (x, s)]
    combine = np.maximum if x.dtype is tf.int32 else np.add
    wanted = combine.reduce([given[0], *np.abs(given[1])])
    found = kernel.simulate(*given)
    assert (found[0] == wanted).all()
    assert all((other == -wanted).all() for other in found[1:])
