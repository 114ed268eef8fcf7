"""What the proof has no rule for is not proved."""

from typing import get_args

import pytest

from taskfuse.check import Layer, Verdict, known, verify
from taskfuse.check.known import KNOWN, together, unknown
from taskfuse.kir import parse_kernel
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.operands import Queue
from taskfuse.kir.synchronization import Arrive, Commit, FenceInit, WaitGroup, WgmmaFence
from tests.sim.kernels import load

RING = parse_kernel(load("ring"))


def test_every_statement_has_rules() -> None:
    assert set(get_args(Stmt)) == KNOWN


@pytest.mark.parametrize("kind", [Arrive, FenceInit])
def test_a_statement_without_rules_is_outside_the_model(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verify(RING).is_proved
    left = KNOWN - {kind}
    monkeypatch.setattr(known.unknown, "__defaults__", (left,))
    certificate = verify(RING)
    assert certificate.verdict is Verdict.OUTSIDE
    (only,) = certificate.obligations
    assert (only.layer, only.subject, only.reason) == (Layer.STRUCTURE, kind.__name__, "the proof has no rule for such statements")


def test_it_is_asked_of_what_stands_in_branches() -> None:
    assert unknown(RING) is None
    found = unknown(RING, KNOWN - {Arrive})
    assert found is not None
    assert found.subject == "Arrive"


def test_who_executes_a_statement_together() -> None:
    assert together(WgmmaFence()) == 128
    assert together(FenceInit()) == 0
    assert [together(s) for q in Queue for s in (Commit(q), WaitGroup(q, 0))] == [128 * (q is Queue.WGMMA) for q in Queue for _ in range(2)]
