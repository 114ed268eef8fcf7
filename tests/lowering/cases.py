"""Fusions by name, with shapes of arguments: each is lowered once."""

from __future__ import annotations

from collections.abc import Callable

import taskfuse as tf
from tests.lowering.running import Array, numbers

Case = tuple[Callable[[], tf.Fusion], tuple[tuple[int, ...], ...], tf.DType]
"""How to build it, the shapes of its inputs, and their dtype."""


class Cases(dict[str, Case]):
    """Some cases, by name."""

    def __init__(self, cases: dict[str, Case]) -> None:
        super().__init__(cases)
        self._made: dict[str, tuple[tf.Fusion, tf.Kernel]] = {}

    def lowered(self, name: str) -> tuple[tf.Fusion, tf.Kernel]:
        """A case and its kernel."""
        if name not in self._made:
            fusion = self[name][0]()
            self._made[name] = fusion, tf.lower(fusion)
        return self._made[name]

    def operands(self, name: str) -> list[Array]:
        """Arguments of a case."""
        _, shapes, dtype = self[name]
        return [numbers(*shape, dtype=dtype.numpy, seed=k) for k, shape in enumerate(shapes)]
