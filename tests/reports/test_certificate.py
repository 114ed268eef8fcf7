"""Verdicts, texts and errors."""

from pathlib import Path

import pytest

from taskfuse.check import Verdict, verify
from taskfuse.errors import ProofError
from taskfuse.kir import Kernel, parse_kernel

RING = (Path(__file__).parent.parent / "kernels" / "ring.kir").read_text(encoding="utf-8")


def without(line: str) -> Kernel:
    return parse_kernel("\n".join(t.replace(t.strip(), "PASS") if line in t else t for t in RING.split("\n")))


def test_a_proved_kernel_passes() -> None:
    certificate = verify(parse_kernel(RING))
    certificate.require()
    assert certificate.verdict is Verdict.PROVED
    assert certificate.failures == ()


def test_a_deadlock_says_who_waits_for_what() -> None:
    with pytest.raises(ProofError) as caught:
        verify(without("ARRIVE full")).require()
    assert str(caught.value).split("\n")[:2] == [
        "ring: refuted: deadlock: no thread can continue",
        "note: 32 threads, 32 to 63, in consumer wait: WAIT full[c.slot] parity c.parity "
        "(full[0]: phase 0, 32 of 32 arrivals and 0 bytes pending; its ring carries s)",
    ]
    assert caught.value.help == "str(certificate) lists every obligation; unsafe=True compiles the kernel all the same"


def test_a_race_says_which_statements() -> None:
    text = RING.replace("s[p.slot, threadIdx.x] = mul", "s[(p.slot + 1) % 2, threadIdx.x] = mul")
    first = verify(parse_kernel(text)).failures[0]
    assert str(first).split("\n")[:3] == [
        "refuted: s: race: nothing orders a write and a read of one element",
        "  thread 0 in producer: s[(p.slot + 1) % 2, threadIdx.x] = mul(x[k, threadIdx.x], 2.0)",
        "  thread 32 in consumer: y[k, threadIdx.x] = add(s[c.slot, threadIdx.x], 1.0)",
    ]


def test_what_is_outside_is_named() -> None:
    text = RING.replace("WAIT full[c.slot] parity c.parity", "WAIT full[k % 2] parity k//2 % 2")
    certificate = verify(parse_kernel(text))
    assert certificate.verdict is Verdict.OUTSIDE
    assert "mbarrier full: it is neither a ring, nor a barrier of a fixed set of threads, nor used once" in str(certificate)
    with pytest.raises(ProofError, match="ring: outside the model"):
        certificate.require()


def test_the_text_lists_layers_and_assumptions() -> None:
    lines = str(verify(parse_kernel(RING))).split("\n")
    assert lines[0] == "ring: proved"
    assert [line for line in lines if not line.startswith("  ")][1:] == [
        "structure: 1 of 1 obligations",
        "order: 2 of 2 obligations",
        "address: 2 of 2 obligations",
        "assumed:",
    ]
