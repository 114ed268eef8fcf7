"""Registers of 16-bit floats, and of float32 that are only read by conversions to these, to floats of 8 bits, or to short integers."""

from __future__ import annotations

from taskfuse.dtypes import DType, bfloat16, float32
from taskfuse.ir.elementwise_function import DTypeRule
from taskfuse.ir.medium import MEDIA
from taskfuse.kir.declarations import ScalarParam, TensorParam
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.nodes import Compute, Stmt
from taskfuse.kir.operands import Access, dtype_of
from taskfuse.kir.walk import accesses, walk


def rounded_registers(kernel: Kernel) -> frozenset[str]:
    """The names of these buffers: their producers need not compute the bits that the conversion drops."""
    dtypes = {p.name: p.dtype for p in kernel.params if isinstance(p, TensorParam)} | {b.name: b.dtype for b in kernel.buffers}
    found = {b.name for b in kernel.buffers if b.dtype is float32 and MEDIA[b.memory].is_private}
    for stmt in walk(kernel):
        found.difference_update(access.buffer for access in _read_whole(stmt, dtypes))
    return frozenset(found)


def narrow_registers(kernel: Kernel) -> frozenset[str]:
    """The names of registers of float32 of which only other numbers of at most 16 bits than bfloat16 are made, by conversions and by functions before these
    that keep what is too small or too great for them so (:attr:`~taskfuse.ir.spelling.Spelling.keeps_size`)."""
    dtypes = {p.name: p.dtype for p in kernel.params if isinstance(p, TensorParam)} | {b.name: b.dtype for b in kernel.buffers}
    found = {b.name for b in kernel.buffers if b.dtype is float32 and MEDIA[b.memory].is_private}
    kept: list[Compute] = []
    for stmt in walk(kernel):
        match stmt:
            case Compute(op=op, out=out) if op.rule is DTypeRule.CAST and _is_narrow(dtypes[out.buffer]):
                pass
            case Compute(op=op) if op.cpp.keeps_size:
                kept.append(stmt)
            case _:
                found.difference_update(access.buffer for access in accesses(stmt)[1])
    for _ in kept:  # as many may follow one another
        for stmt in kept:
            if stmt.out.buffer not in found:
                found.difference_update(access.buffer for access in accesses(stmt)[1])
    return frozenset(found)


class ShorterForms:
    """Which functions of float32 in a kernel have a form with fewer bits, since those of operands and results are fewer.

    Attributes:
        rounded, narrow: see :func:`rounded_registers` and :func:`narrow_registers`.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.rounded, self.narrow = rounded_registers(kernel), narrow_registers(kernel)
        self._dtypes = {p.name: p.dtype for p in kernel.params if isinstance(p, TensorParam | ScalarParam)} | {b.name: b.dtype for b in kernel.buffers}

    def is_rounded(self, stmt: Compute) -> bool:
        """True if the result will be rounded to 16 bits."""
        return stmt.out.buffer in self.rounded or is_short(self._dtypes[stmt.out.buffer])

    def is_bfloat16(self, stmt: Compute) -> bool:
        """True if operands and result are bfloat16."""
        return all(dtype_of(o, self._dtypes.__getitem__) is bfloat16 for o in (stmt.out, *stmt.operands))

    def has(self, stmt: Compute) -> bool:
        """True if a function has such a form."""
        row = stmt.op.cpp
        is_shorter = row.bfloat16 is not None and self.is_bfloat16(stmt)
        is_shorter |= row.rounded is not None and self.is_rounded(stmt)
        return is_shorter or (row.narrow is not None and stmt.out.buffer in self.narrow)


def float_registers(kernel: Kernel) -> frozenset[str]:
    """The names of buffers of bfloat16 that only computations write and read: a register holds the ``float`` that an element is rounded to, which the
    instruction that rounds makes. As 16 bits, NVRTC would take a third longer to find that out."""
    found = {b.name for b in kernel.buffers if b.dtype is bfloat16 and MEDIA[b.memory].is_private}
    for stmt in walk(kernel):
        if not isinstance(stmt, Compute):
            found.difference_update(access.buffer for accessed in accesses(stmt) for access in accessed)
    return frozenset(found)


def is_short(dtype: DType) -> bool:
    """True for a 16-bit float."""
    return dtype.is_float and dtype.bits == 16


def _is_narrow(dtype: DType) -> bool:
    """True for numbers of at most 16 bits that have not the exponents of float32."""
    return dtype.bits <= 16 and (dtype.is_integer or (dtype.is_float and dtype is not bfloat16))


def _read_whole(stmt: Stmt, dtypes: dict[str, DType]) -> tuple[Access, ...]:
    """What a statement reads otherwise than to convert it to 16 bits."""
    if not (isinstance(stmt, Compute) and (stmt.op.rule is DTypeRule.CAST or stmt.op.cpp.moves) and is_short(dtypes[stmt.out.buffer])):
        return accesses(stmt)[1]
    conditions = stmt.operands[:1] if stmt.op.rule is DTypeRule.SELECT else ()  # of these it asks whether they are 0
    return tuple(o for o in conditions if isinstance(o, Access))
