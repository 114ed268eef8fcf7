"""Integers in registers that the lanes of a sample are known to have: functions of their own indices, not of data.

A choice between two known integers by a condition that is data is drawn once for each warp: what neighbors compare is nearly alike. So the lanes of a
bisection, which is made of such choices, read neighbors where their own indices are neighbors.
"""

from __future__ import annotations

import numpy as np

from taskfuse.count.launch import Array
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import Evaluation
from taskfuse.kir.nodes import Compute
from taskfuse.kir.operands import Access, Immediate, IndexOf, Operand

_WHERE, _BOTH, _EITHER = ELEMENTWISE["where"], ELEMENTWISE["logical_and"], ELEMENTWISE["logical_or"]


class KnownIntegers:
    """The integers, and what is compared of them, by buffer: arrays that broadcast to rows x lanes.

    Args:
        rows: of the sample.
        random: draws conditions.
    """

    def __init__(self, rows: int, random: np.random.Generator) -> None:
        self._rows = rows
        self._random = random
        self._found: dict[str, Array] = {}

    def get(self, buffer: str) -> Array | None:
        """Those of a buffer; ``None``: not known."""
        return self._found.get(buffer)

    def forget(self, buffer: str) -> None:
        """A buffer has other contents."""
        self._found.pop(buffer, None)

    def compute(self, stmt: Compute, at: Evaluation) -> None:
        """Note what a statement leaves in its buffer."""
        if stmt.dtype.is_float:
            return
        values = [self._operand(o, at) for o in stmt.operands]
        if stmt.op is _WHERE:
            values[0] = self._drawn() if values[0] is None else values[0]
        elif stmt.op in (_BOTH, _EITHER) and any(v is not None for v in values):
            values = [self._drawn() if v is None else v for v in values]
        known = [v for v in values if v is not None]
        if len(known) == len(values):
            self._found[stmt.out.buffer] = stmt.op.function(*known)

    def _operand(self, operand: Operand, at: Evaluation) -> Array | None:
        match operand:
            case Access(buffer=name):
                return self._found.get(name)
            case IndexOf(value=e):
                return np.asarray(at.of(e), np.int64)
            case Immediate(value=value, dtype=dtype) if not dtype.is_float:
                return np.asarray(int(value), np.int64)
            case _:
                return None

    def _drawn(self) -> Array:
        return self._random.random((self._rows, 1)) < 0.5
