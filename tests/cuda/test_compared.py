"""Elements that are compared with maxima: who computes them, and where a maximum is complete."""

import taskfuse as tf
from taskfuse.cuda.compared import ComparedElements, compared, without_unread
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.kir.nodes import Compute

KERNEL = """\
KERNEL scores(x: float32[32, 8]) -> (p: float32[32, 8], m: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL s: float32[8]
  LOCAL t: float32[]
  LOCAL r: float32[]
  LOCAL h: float32[8]
  LOCAL u: float32[]
  LOCAL v: float32[]

FOR w in 0..2:
  FOR i in 0..8 UNROLL:
    h[i] = tanh(x[threadIdx.x, i])
    t = mul(h[i], 0.25)
    s[i] = where(t if i + threadIdx.x < 32, otherwise -inf)
  r = copy(-inf)
  FOR i in 0..8 UNROLL:
    r = maximum(r, s[i])
  m[threadIdx.x] = copy(r)
  FOR i in 0..8 UNROLL:
    v = sub(s[i], r)
    p[threadIdx.x, i] = exp(v)
"""


def test_a_maximum_is_changed_behind_its_comparisons_and_elements_come_from_scalars() -> None:
    kernel = tf.parse_kernel(KERNEL)
    assert compared(kernel) == ["s"]
    elements = ComparedElements(kernel, "s")
    assert elements.is_shifted
    assert [str(s.out.buffer) for s in elements.sources() or () if isinstance(s, Compute)] == ["t"]
    changed: list[str] = []

    def change(out: object) -> Compute:
        changed.append(str(out))
        s = next(s for s in elements.readers["s"] if isinstance(s, Compute) and s.op is ELEMENTWISE["sub"])
        return s

    body = elements.with_completed(change)
    assert body is not None
    assert len(changed) == 1
    once = KERNEL.replace("r = copy(-inf)", "r = copy(0.0)")
    assert ComparedElements(tf.parse_kernel(once), "s").with_completed(change) is None


def test_what_nothing_reads_goes() -> None:
    kernel = tf.parse_kernel(KERNEL.replace("where(t if", "where(h[i] if"))
    assert "t = mul" not in str(without_unread(kernel, {"t"}))
    assert "t = mul" in str(without_unread(kernel, {"u"}))
