"""Elements that are compared with maxima: who computes them, and where a maximum is complete."""

import taskfuse as tf
from taskfuse.cuda.compared import ComparedElements, compared, without_unread
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.kir.nodes import Compute
from tests.cuda.scores import KERNEL


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
