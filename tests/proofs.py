"""The whole proof of a kernel, order and values: what a test asserts of a kernel that it goes on with."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import taskfuse as tf
from taskfuse.check import Layer
from taskfuse.kir.arguments import bind_symbols, wanted
from taskfuse.testing.checks import CaseStanding, proof


def proved(kernel: tf.Kernel, *sizes: Mapping[str, int]) -> tf.Kernel:
    """The kernel, after its proof for all extents; with ``sizes``, its order for all extents, and what it computes for all or for each of these."""
    certificate = kernel.verify()
    if not sizes or certificate.open_layers != frozenset((Layer.VALUES,)):
        certificate.require()
        return kernel
    for extents in sizes:
        found = proof(kernel, extents)
        assert found.standing is CaseStanding.AT, f"{extents}: {found.gap}\n{kernel}"
    return kernel


def sizes_of(kernel: tf.Kernel, args: Sequence[Any]) -> dict[str, int]:
    """The extents of a launch."""
    return bind_symbols(kernel, {p.name: np.shape(a) for p, a in zip(wanted(kernel), args, strict=True)}, {})
