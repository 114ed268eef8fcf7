"""Sample launches: extents, tables (inputs whose elements decide the amount of work), and values of indices that are data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.refuted import TooLarge
from taskfuse.ir.dims import nearest
from taskfuse.ir.offsets import offsets, offsets_name
from taskfuse.ir.scalar import evaluate
from taskfuse.ir.tables import places
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.walk import looked_up

LARGE = 330
"""An extent with many trips."""

ROW = 2
"""Increment of elements: they are offsets of rows of that length, or such lengths."""

SAMPLES = 64
"""Values of a data-dependent index that are tried per thread, if not all."""

MOST = 1 << 20
"""The most values that are tried for all threads of a statement."""


def drawn_tables(kernel: Kernel, symbols: Mapping[str, int]) -> dict[str, NDArray[np.int64]]:
    """An array for each table whose elements occur in expressions."""
    used = looked_up(kernel)
    found = {p.name: _drawn(p, symbols) for p in kernel.table_inputs if p.name in used and p.holds is None}
    sums = [p for p in kernel.table_inputs if p.name in used and p.lengths is not None]
    found |= {offsets_name(p.name): offsets(found[p.name], int(evaluate(p.lengths, symbols))) for p in sums if p.lengths is not None}
    held = {p.name: places(p.holds, int(evaluate(p.shape[0], symbols)), {**symbols, **found}) for p in kernel.tables if p.name in used and p.holds is not None}
    return found | held


def _drawn(table: TensorParam, symbols: Mapping[str, int]) -> NDArray[np.int64]:
    size = int(evaluate(table.shape[0], symbols))
    if table.offsets is not None:
        return np.diff(_drawn(table.offsets, symbols))
    if table.rises is None:
        return ROW * np.arange(size, dtype=np.int64)
    low, high = (int(evaluate(e, symbols)) for e in table.rises)
    rows = np.linspace(low, high, size).astype(np.int64)
    rows[1:-1] |= 1  # groups do not end with tiles
    return np.minimum(rows, high)


def drawn_extents(kernel: Kernel) -> Iterator[dict[str, int]]:
    """Extents to try, within the known facts: small ones; each alone large, for many trips in few blocks; all of equal size. None of which an argument would
    have a negative one, as ``N - K`` may be: there is no such call."""
    seen: set[tuple[int, ...]] = set()
    count = len(kernel.extents)
    wanted = [[2 + k for k in range(count)]]
    wanted += [[LARGE if k == i else 1 for k in range(count)] for i in reversed(range(count))]
    wanted += [[base + k for k in range(count)] for base in (1, 0, 5, 9, 40, LARGE, 130)]
    for values in wanted:
        extents = nearest(kernel.extents, {e.name: value for value, e in zip(values, kernel.extents, strict=True)})
        if extents is not None and tuple(extents.values()) not in seen:
            seen.add(tuple(extents.values()))
            if all(evaluate(e, extents) >= 0 for p in (*kernel.inputs, *kernel.outputs) for e in p.shape):
                yield extents


def drawn_values(extents: Sequence[int], *, entirely: bool = False, lanes: int = 1) -> NDArray[np.int64]:
    """Values of the symbols of a gather or an update, in rows: all if they are few, else the first, the last and some between, each separately and all
    together.

    Args:
        entirely: try all values. Raises :class:`TooLarge` if they are too many for the threads.
    """
    shape = tuple(max(0, int(n)) for n in extents)
    total = prod(shape)
    if entirely and total * lanes > MOST:
        raise TooLarge
    if total <= SAMPLES or entirely:
        return np.indices(shape).reshape(len(shape), total).T
    found: set[tuple[int, ...]] = set()
    for part in range(8):
        found.add(tuple((n - 1) * part // 7 for n in shape))
    for k, n in enumerate(shape):
        for part in range(8):
            found.add(tuple((n - 1) * part // 7 if j == k else m // 2 for j, m in enumerate(shape)))
    return np.asarray(sorted(found), np.int64)
