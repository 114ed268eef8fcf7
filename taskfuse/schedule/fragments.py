"""Loop axes spread over threads as tensor cores hold a matrix in registers."""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType
from taskfuse.schedule.call import Call, constant, described
from taskfuse.schedule.layouts import FRAGMENT_COLUMNS, FRAGMENT_HALF, FRAGMENT_PAIR, FRAGMENT_ROWS
from taskfuse.schedule.parallelize import parallelize
from taskfuse.schedule.transforms import reorder, split


def fragment(tv: TensorView, axes: Sequence[int]) -> None:
    """See :meth:`TensorView.fragment`."""
    call = Call("fragment", tv)
    loop = tv.schedule.loop
    positions = [call.position(a, loop) for a in axes]
    n = len(loop)
    if positions != [n - 2, n - 1]:
        raise call.error(f"axes {list(axes)} are not the innermost two", f"use axes ({n - 2}, {n - 1}), after reorder")
    for p, unit in zip(positions, (FRAGMENT_ROWS, FRAGMENT_COLUMNS), strict=True):
        size = constant(loop[p])
        if size is None or size % unit:
            raise call.error(f"{described(p, loop[p])} is no constant multiple of {unit}", f"split it by a multiple of {unit}")
    m = n - 2
    split(tv, m, FRAGMENT_ROWS)
    split(tv, m + 1, FRAGMENT_HALF)  # [w, half, row, n]
    split(tv, m + 3, FRAGMENT_COLUMNS)
    split(tv, m + 4, FRAGMENT_PAIR)  # [w, half, row, column/8, pair, element]
    reorder(tv, [*range(m), m, m + 2, m + 4, m + 3, m + 1, m + 5])
    for k in range(m, m + 3):
        parallelize(tv, tv.schedule.loop[k], ParallelType.TIDx)
