"""tf.compile runs what is proved, and says why it does not run the rest."""

import pickle
from pathlib import Path

import numpy as np
import pytest

import taskfuse as tf
from examples import stream
from taskfuse.check import Certificate, Verdict
from taskfuse.cuda.sources import Sources
from taskfuse.errors import ProofError
from taskfuse.kir import Kernel
from taskfuse.runtime import proof
from taskfuse.runtime.kernel import CompiledKernel
from tests.calls import always

RING = (Path(__file__).parents[1] / "kernels" / "ring.kir").read_text(encoding="utf-8")
WITHOUT_WAIT = RING.replace("WAIT empty[p.slot] parity p.parity", "PASS")
FORMULA = RING.replace("WAIT full[c.slot] parity c.parity", "WAIT full[k % 2] parity k//2 % 2")
X = np.arange(96, dtype=np.float32).reshape(3, 32)

# Both threads write elements 0 and 2 where M is odd, and each its own where it is even.
PAIRS = """\
KERNEL pairs(x: float32[M, 4]) -> (y: float32[M, 4])
  DIM M min 1 max 64
  GRID (1, 1, 1)  BLOCK (2, 1, 1)

FOR i in 0..M:
  y[i, 2*threadIdx.x] = copy(x[i, 0])
  y[i, (2*threadIdx.x + 2*(M % 2)) % 4] = copy(x[i, 1])
"""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The kernels that are looked at, in a process and a folder that remember nothing."""
    found: list[str] = []
    verify = proof.verify

    def counted(kernel: Kernel, extents: dict[str, int] | None = None) -> Certificate:
        found.append(kernel.name if extents is None else f"{kernel.name} {[extents[e.name] for e in kernel.extents]}")
        return verify(kernel, extents)

    monkeypatch.setattr(proof, "verify", counted)
    monkeypatch.setattr(proof, "_known", {})
    monkeypatch.setenv("TASKFUSE_CACHE_DIR", str(tmp_path))
    return found


def test_a_refuted_kernel_does_not_compile() -> None:
    with pytest.raises(ProofError, match="ring: refuted: full") as caught:
        tf.compile(tf.parse_kernel(WITHOUT_WAIT), backend="sim")
    assert any(note.startswith("extents N = ") for note in caught.value.notes)


def test_unsafe_takes_it_as_it_is(calls: list[str]) -> None:
    run = tf.compile(tf.parse_kernel(WITHOUT_WAIT), backend="sim", unsafe=True)
    assert calls == []
    assert run.certificate.verdict is Verdict.REFUTED
    assert pickle.loads(pickle.dumps(run)).certificate.verdict is Verdict.REFUTED


def test_a_proof_can_be_switched_off(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKFUSE_VERIFY", "0")
    tf.compile(tf.parse_kernel(WITHOUT_WAIT), backend="sim")
    assert calls == []


def test_what_was_proved_is_remembered(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tf.parse_kernel(RING)
    first, second = tf.compile(kernel, backend="sim"), tf.compile(tf.parse_kernel(RING), backend="sim")
    monkeypatch.setattr(proof, "_known", {})  # another process
    tf.compile(kernel, backend="sim")
    assert calls == ["ring"]
    assert str(first.certificate).startswith("ring: proved\n")
    assert str(second.certificate) == str(first.certificate)
    assert calls == ["ring", "ring"]  # the second one is made to be read


def test_a_changed_checker_has_proved_nothing(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tf.compile(tf.parse_kernel(RING), backend="sim")
    monkeypatch.setattr(proof, "_known", {})
    monkeypatch.setattr(proof, "sources", always(Sources("any", "another")))
    tf.compile(tf.parse_kernel(RING), backend="sim")
    assert calls == ["ring", "ring"]


def test_what_is_open_is_proved_at_the_extents_of_a_call(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Certificate, "is_proved", property(lambda c: bool(c.extents) and all(o.verdict is Verdict.PROVED for o in c.argument)))
    monkeypatch.setattr(Certificate, "verdict", property(lambda c: Verdict.PROVED if c.is_proved else Verdict.OUTSIDE))
    run = tf.compile(tf.parse_kernel(RING), backend="sim")
    for n in (3, 3, 5):
        run(np.ones((n, 32), np.float32))
    assert calls == ["ring", "ring [3]", "ring [5]"]


def test_a_call_at_extents_that_are_not_proved_raises() -> None:
    run = tf.compile(tf.parse_kernel(FORMULA), backend="sim")
    with pytest.raises(ProofError, match="ring: outside the model: mbarrier full"):
        run(X)


def test_a_proof_that_is_open_can_be_asked_for_extents_before_a_call() -> None:
    run = tf.compile(tf.parse_kernel(FORMULA), backend="sim")
    assert isinstance(run, CompiledKernel)
    with pytest.raises(ProofError, match="ring: outside the model: mbarrier full"):
        run.check_open({"N": X.shape[0]})
    proved = tf.compile(tf.parse_kernel(RING), backend="sim")
    assert isinstance(proved, CompiledKernel)
    proved.check_open({})  # nothing is asked of what is proved for all


def test_extents_alone() -> None:
    certificate = tf.parse_kernel(RING).verify({"N": 5})
    assert str(certificate).startswith("ring: proved for N = 5\n")
    refuted = tf.parse_kernel(PAIRS).verify({"M": 3})
    assert refuted.verdict is Verdict.REFUTED
    assert tf.parse_kernel(PAIRS).verify({"M": 4}).is_proved
    with pytest.raises(tf.errors.InputError, match="65 is not a value of extent M"):
        tf.parse_kernel(PAIRS).verify({"M": 65})
    with pytest.raises(tf.errors.InputError, match="extent M is not given"):
        tf.parse_kernel(PAIRS).verify({})


def test_fusions_carry_their_certificate() -> None:
    run = tf.compile(stream.build(blocks=2, rows=4, columns=32, warps=1, stages=2), backend="sim")
    assert run.certificate.is_proved
