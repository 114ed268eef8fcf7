"""Fusions of other people's graphs: built, given arguments, scheduled within a budget."""

from typing import Any

import numpy as np

import taskfuse as tf
from taskfuse.schedulers.schedule import Chosen
from tests.schedulers.fusions import Build

RNG = np.random.default_rng(0)


def built(build: Build, name: str = "fusion") -> tf.Fusion:
    with tf.Fusion(name) as fusion:
        for out in build():
            fusion.add_output(out)
    return fusion


def arguments(fusion: tf.Fusion) -> list[Any]:
    shapes = [([int(str(e)) for e in tv.shape], tv.dtype) for tv in fusion.inputs]
    return [RNG.uniform(0.1, 1.0, s).astype(d.numpy) if d.is_float else RNG.integers(0, 4, s).astype(d.numpy) for s, d in shapes]


def made(fusion: tf.Fusion, schedule: Chosen[Any]) -> None:
    """A kernel that is proved, or an error."""
    certificate = tf.lower(fusion).verify()
    if not certificate.is_proved:
        certificate.refuse()
