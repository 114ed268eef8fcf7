"""The whole proof of a kernel, order and values: what a test asserts of a kernel that it goes on with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import taskfuse as tf
from taskfuse.check import Certificate, Layer
from taskfuse.kir.arguments import bind_symbols, wanted
from taskfuse.testing.checks import CaseStanding, proof


@dataclass(frozen=True, slots=True, eq=False)
class _Kernel:
    """A kernel as a key: of the identity."""

    kernel: tf.Kernel

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kernel) and self.kernel is other.kernel

    def __hash__(self) -> int:
        return id(self.kernel)


@lru_cache(maxsize=32)
def _certificate(key: _Kernel) -> Certificate:
    """The proof for all extents, made once where a test asks again for others."""
    return key.kernel.verify()


def proved(kernel: tf.Kernel, *sizes: Mapping[str, int]) -> tf.Kernel:
    """The kernel, after its proof for all extents; with ``sizes``, its order for all extents, and what it computes for all or for each of these."""
    certificate = _certificate(_Kernel(kernel))
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
