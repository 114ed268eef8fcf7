"""Ranges of the integers that registers hold, in whichever dtype: two numbers of 4 bits in a byte are less than 16 each, as floats, too.

Interval arithmetic over all that is written to a register anywhere in the kernel, so that a range holds wherever an element is read. Elements of memory, and
what other statements than computations and choices write, have all values of their dtype if that is of integers.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.dtypes import DType
from taskfuse.ir.elementwise_function import DTypeRule, Range
from taskfuse.ir.function_ranges import join
from taskfuse.ir.medium import MEDIA
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.nodes import Choose, Compute, Stmt
from taskfuse.kir.operands import Access, Immediate, Operand
from taskfuse.kir.walk import accesses, walk


class WholeNumbers:
    """What is known of the integers in the registers of a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._dtypes = {p.name: p.dtype for p in kernel.params if isinstance(p, TensorParam)} | {b.name: b.dtype for b in kernel.buffers}
        self._writers: dict[str, list[Stmt]] = {b.name: [] for b in kernel.buffers if MEDIA[b.memory].is_private}
        for stmt in walk(kernel):
            for access in accesses(stmt)[0]:
                if access.buffer in self._writers:
                    self._writers[access.buffer].append(stmt)
        self._known: dict[str, Range | None] = {}

    def of(self, operand: Operand) -> Range | None:
        """The least and the greatest integer that an operand may be; ``None``: it may be another number, or nothing is known."""
        match operand:
            case Access(buffer=name):
                if name not in self._known:
                    self._known[name] = _whole(self._dtypes[name])  # of a register that is computed of itself no more is known
                    self._known[name] = self._of(name)
                return self._known[name]
            case Immediate(value=value):
                number = float(value)
                return (int(number), int(number)) if number.is_integer() else None
            case _:
                return None

    def is_of(self, operand: Operand, dtype: DType) -> bool:
        """True if an operand is an integer that a float dtype has."""
        found = self.of(operand)
        return found is not None and _fits(found, dtype)

    def _of(self, name: str) -> Range | None:
        writers, dtype = self._writers.get(name, []), self._dtypes[name]
        ranges = [found for stmt in writers if (found := self._written(stmt, dtype)) is not None]
        return join(*ranges) if writers and len(ranges) == len(writers) else _whole(dtype)

    def _written(self, stmt: Stmt, dtype: DType) -> Range | None:
        """The range of what a statement writes to a register; ``None``: more than the dtype has exactly, or not known."""
        match stmt:
            case Choose(cases=cases):
                found = self._all([case.operand for case in cases], dtype)
                return join(*found) if found else None
            case Compute(op=op, operands=operands, dtype=within) if op.ranges is not None and (not within.is_float or op.cpp.pair is not None or op.cpp.moves):
                found = self._all(operands[1:] if op.rule is DTypeRule.SELECT else operands, within)
                made = op.ranges(*found) if found else None
                return made if made is not None and _fits(made, op.result_dtype(within)) and _fits(made, dtype) else None
            case _:
                return None

    def _all(self, operands: Sequence[Operand], within: DType) -> list[Range]:
        """The ranges of all operands, if a dtype has their integers; else none."""
        found = [r for o in operands if (r := self.of(o)) is not None and _fits(r, within)]
        return found if len(found) == len(operands) else []


def _whole(dtype: DType) -> Range | None:
    """All integers of a dtype."""
    return (0, 1) if dtype.is_bool else (int(dtype.min_value), int(dtype.max_value)) if dtype.is_integer else None


def _fits(found: Range, dtype: DType) -> bool:
    """Whether a dtype has all of some integers."""
    whole = _whole(dtype)
    if whole is None:
        most = 2**dtype.precision
        return -most <= found[0] and found[1] <= most <= dtype.max_value
    return whole[0] <= found[0] and found[1] <= whole[1]
