"""``FENCE wgmma``: what a thread does to registers of a wgmma without one in between is refuted by a launch; the kernels themselves are proved."""

from pathlib import Path

import pytest

from taskfuse.check.counterexample import counterexample
from taskfuse.kir import parse_kernel
from taskfuse.reports.certificate import Layer, Verdict

KERNELS = Path(__file__).parent.parent / "kernels"
NEVER = "no FENCE wgmma stands before it"
ACCUMULATORS = "no FENCE wgmma stands between an access to its accumulators and it"
OPERANDS = "no FENCE wgmma stands between an access to its operand registers and it"
FENCE = "      FENCE wgmma\n"

# kernel, what is changed, to what, the counterexample, the extents where it is
BAD: dict[str, tuple[str, str, str, str, dict[str, int]]] = {
    "never": ("gemm", FENCE, "", NEVER, {}),
    "by half of the threads": ("gemm", FENCE, "      IF threadIdx.x < 64:\n        FENCE wgmma\n", NEVER, {}),
    "in the first iteration alone": ("gemm", FENCE, "      IF t == blockIdx.x && ko == 0:\n        FENCE wgmma\n", ACCUMULATORS, {"M": 640, "N": 8, "K": 8}),
    "accumulators are read behind it": ("gemm", FENCE, FENCE + "      d_r[0] = cast(acc[63])\n", ACCUMULATORS, {}),
    "accumulators are written behind it": ("gemm", FENCE, FENCE + "      acc[0] = copy(0.0)\n", ACCUMULATORS, {}),
    "fragments, never": ("gemm_rs", FENCE, "", NEVER, {}),
    "fragments are written behind it": ("gemm_rs", FENCE, FENCE + "      a_r[8*(kk % 2) + 7] = copy(0.0)\n", OPERANDS, {}),
}


@pytest.mark.parametrize("name", BAD)
def test_a_launch_refutes(name: str) -> None:
    kernel, old, new, reason, extents = BAD[name]
    text = (KERNELS / f"{kernel}.kir").read_text(encoding="utf-8")
    assert old in text
    bad = parse_kernel(text.replace(old, new))
    found = counterexample(bad, extents or {e.name: max(e.min, 8) for e in bad.extents})
    assert found is not None
    assert found.subject.startswith("WGMMA.m64")
    assert found.reason == reason


def test_the_proof_asks_launches() -> None:
    certificate = parse_kernel((KERNELS / "gemm.kir").read_text(encoding="utf-8").replace(FENCE, "")).verify()
    assert certificate.verdict is Verdict.REFUTED
    first = certificate.failures[0]
    assert (first.layer, first.reason) == (Layer.INSTANCE, NEVER)
    assert first.notes[0].startswith("thread 128 in consumer: WGMMA.m64n128k16.bfloat16 acc[0]")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (FENCE, FENCE + "      FENCE wgmma\n"),
        (FENCE, FENCE + "      d_r[0] = copy(0.0)\n"),  # no register of a wgmma
    ],
)
def test_harmless(old: str, new: str) -> None:
    text = (KERNELS / "gemm.kir").read_text(encoding="utf-8").replace(old, new)
    assert counterexample(parse_kernel(text), {"M": 200, "N": 136, "K": 136}) is None
