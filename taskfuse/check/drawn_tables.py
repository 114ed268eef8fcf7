"""Tables of a launch that is looked at: inputs whose elements decide which work there is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from taskfuse.ir.scalar import evaluate
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.walk import looked_up

ROW = 2
"""Elements rise by so much: they are offsets of rows of that length, and such lengths."""


def drawn_tables(kernel: Kernel, symbols: Mapping[str, int]) -> dict[str, NDArray[np.int64]]:
    """An array for each table whose elements occur in expressions."""
    used = looked_up(kernel)
    return {p.name: _drawn(p, symbols) for p in kernel.tables if p.name in used}


def _drawn(table: TensorParam, symbols: Mapping[str, int]) -> NDArray[np.int64]:
    size = int(evaluate(table.shape[0], symbols))
    if table.rises is None:
        return ROW * np.arange(size, dtype=np.int64)
    low, high = (int(evaluate(e, symbols)) for e in table.rises)
    rows = np.linspace(low, high, size).astype(np.int64)
    rows[1:-1] |= 1  # groups do not end with tiles
    return np.minimum(rows, high)
