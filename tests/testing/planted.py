"""What a fault operator changes in the text of a kernel."""

from collections.abc import Iterable

from taskfuse.kir import Kernel
from taskfuse.kir.printer import to_text
from taskfuse.testing.mutations import Operator


def lines(kernel: Kernel) -> list[str]:
    """The lines of a kernel with its witness, without indentation."""
    return [line.strip() for line in to_text(kernel, witness=True).splitlines() if line.strip()]


def changed(before: Kernel, mutants: Iterable[Kernel]) -> list[str]:
    """Of each mutant, the lines that are new; ``-`` before those that are gone where no line is new."""
    old = lines(before)
    found: list[str] = []
    for mutant in mutants:
        new = lines(mutant)
        added = [line for line in new if line not in old or new.count(line) > old.count(line)]
        found.append("; ".join(dict.fromkeys(added)) or "; ".join(f"-{line}" for line in old if line not in new))
    return found


def planted(operators: Iterable[Operator], name: str, kernel: Kernel) -> list[str]:
    """What the operator of a name makes of a kernel: see :func:`changed`."""
    (operator,) = [op for op in operators if op.name == name]
    return changed(kernel, operator.apply(kernel))


SUMS = """\
KERNEL k(x: float32[8, 4], z: float32[8, 4]) -> (y: float32[8])
  GRID (2, 1, 1)  BLOCK (4, 1, 1)
  LOCAL acc: float32[]
  DEFINE y: float32[8] over (8, 4) at (i0) = reduce add of mul(x[i0, i1], z[i0, i1]) from 0.0

acc = copy(0.0)  ~ start y
FOR j in 0..4:
  acc = fma(x[4*blockIdx.x + threadIdx.x, j], z[4*blockIdx.x + threadIdx.x, j], acc)  ~ term y[4*blockIdx.x + threadIdx.x, j]
IF threadIdx.x < 4:
  y[4*blockIdx.x + threadIdx.x] = copy(acc)  ~ value y[4*blockIdx.x + threadIdx.x]
"""
"""Sums of products of rows, a row for each thread."""
