"""A recorded run of a stream."""

import numpy as np

import taskfuse as tf
from examples import stream
from taskfuse.sim import Interleaving, Timeline
from tests.sim.kernels import load

RING = load("ring")
X = np.random.default_rng(0).standard_normal((37, 200)).astype(np.float32)


def streamed(interleaving: Interleaving, rows: int = 20) -> Timeline:
    return tf.lower(stream.build(blocks=1)).timeline(X[:rows], interleaving=interleaving)
