"""The kill table: what counts as found, as equivalent, as open, and as a hole in the proof."""

from pathlib import Path

import pytest

from taskfuse.check import Certificate, Layer, Obligation, Verdict
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.testing import faults
from taskfuse.testing.faults import FaultSubject, FaultTable, Mutant, judge, launches, subjects
from taskfuse.testing.operators import OPERATORS
from taskfuse.testing.outcomes import Truth

KERNELS = Path(__file__).parent.parent / "kernels"
RING = KERNELS / "ring.kir"


@pytest.fixture(scope="module")
def ring() -> FaultSubject:
    (subject,) = subjects([RING], 0, 0, 0)
    return subject


def mutant(subject: FaultSubject, operator: str, number: int = 0) -> Mutant:
    op = next(o for o in OPERATORS if o.name == operator)
    return judge(subject, op, [*op.apply(subject.kernel)][number], 2000)


def test_three_who_find_a_mistake(ring: FaultSubject) -> None:
    found = mutant(ring, "drop wait")
    assert (found.static, found.exhaustive, found.random, found.equivalent) == (Verdict.REFUTED, Truth.FAILS, True, "")
    assert str(found) == "drop wait: ring: WAIT empty[p.slot] parity p.parity  ->  s[p.slot, threadIdx.x] = mul(x[k, threadIdx.x], 2.0)"


def test_mistakes_that_are_none(ring: FaultSubject) -> None:
    assert mutant(ring, "drop mbarrier_init fence").equivalent == "proved"  # no engine uses these mbarriers
    one_trip_less = mutant(ring, "one trip less", 1)  # the consumer leaves the last slot to nobody
    assert (one_trip_less.static, one_trip_less.equivalent) == (Verdict.OUTSIDE, "explored")


def test_a_hole_in_the_proof_is_told(ring: FaultSubject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def credulous(kernel: Kernel) -> Certificate:
        return Certificate(kernel.name, (Obligation(Layer.ORDER, "deadlock", Verdict.PROVED, "it is said so"),))

    monkeypatch.setattr(faults, "verify", credulous)
    found = mutant(ring, "drop wait")
    assert found.escaped
    assert not found.equivalent
    table = FaultTable([found])
    assert table.escaped == [found]
    assert "proved, and an interleaving fails (1)\n  drop wait: ring" in table.lists()
    monkeypatch.setattr(faults, "OPERATORS", tuple(o for o in OPERATORS if o.name == "drop wait"))
    assert faults.main([str(RING), "--small", "0", "--mutants", "1"]) == 1
    assert "ESCAPED drop wait: ring" in capsys.readouterr().out


def test_launches_are_small_and_possible() -> None:
    ring = launches(parse_kernel(RING.read_text()))
    assert [dict(launch.extents) for launch in ring] == [{"N": n} for n in faults.BASES]
    gemm = launches(parse_kernel((KERNELS / "gemm.kir").read_text()))
    assert all(launch.extents["K"] % 8 == 0 for launch in gemm)
    wide = """\
KERNEL wide(x: float32[N]) -> (y: float32[N])
  DIM N
  GRID (1, 1, 1)  BLOCK (100*N, 1, 1)

IF threadIdx.x < N:
  y[threadIdx.x] = copy(x[threadIdx.x])
"""
    assert [dict(launch.extents) for launch in launches(parse_kernel(wide))] == [{"N": n} for n in faults.BASES if 100 * n <= 1024]
