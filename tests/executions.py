"""What one run of a kernel's text shows of its values."""

import taskfuse as tf
from taskfuse.check import Layer, Verdict
from taskfuse.check.refuted import WorkBudget
from taskfuse.check.values.execution import Witness, execute


def finding(text: str, **sizes: int) -> str:
    """What is wrong, in one line; empty if nothing is. The kernel obeys the rules of kernel IR and has a witness; the proof agrees."""
    kernel = tf.parse_kernel(text)
    kernel.check_ir()
    found = execute(kernel, sizes, WorkBudget(10**6, 10**9))
    assert not isinstance(found, Witness)
    assert found is None or not kernel.verify().is_proved
    return "" if found is None else f"{found.subject}: {found.reason}"


def changed(text: str, old: str, new: str) -> str:
    """A text with something else in it."""
    assert old in text
    return text.replace(old, new)


def gaps(text: str) -> list[str]:
    """Why the proof of values does not accept a kernel that obeys the rules of kernel IR; empty if it does."""
    kernel = tf.parse_kernel(text)
    kernel.check_ir()
    return [o.reason for o in kernel.verify().argument if o.layer is Layer.VALUES and o.verdict is not Verdict.PROVED]


def is_bad_twin(text: str, reason: str, **sizes: int) -> None:
    """The proof of values does not accept a kernel, for a reason, and a run shows what is wrong."""
    found = gaps(text)
    assert found
    assert any(reason in r for r in found), found
    assert finding(text, **sizes) != ""


RESCALED = """\
KERNEL k(x: float32[4, N, 3], d: float32[4, N]) -> (y: float32[4])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL t: float32[]
  DEFINE y: float32[4] over (4, N, 3) at (i0) = reduce add of copy(x[i0, i1, i2]) from 0.0 rescaled 1 by d[i0, i1]

t = copy(0.0)  ~ start y
FOR c in 0..N:
  t = mul(t, d[threadIdx.x, c])  ~ rescaled y[threadIdx.x, c, 0]
  FOR j in 0..3:
    t = add(t, x[threadIdx.x, c, j])  ~ term y[threadIdx.x, c, j]
y[threadIdx.x] = copy(t)  ~ value y[threadIdx.x]
"""
"""A sum of three terms an index, rescaled along the axis of the indices."""
