"""Each rule of the verifier: a kernel that breaks it, with the message, and a twin that does not."""

import pickle
from dataclasses import replace
from inspect import signature

import pytest

from taskfuse.errors import VerifyError
from taskfuse.kir import parse_kernel, verify_kernel
from taskfuse.kir.statement_rules import STATEMENT_RULES
from taskfuse.kir.verify import RULES
from tests.kir.refused import kernel


def test_the_message_stands_under_the_statement() -> None:
    text = """\
KERNEL scale(x: float32[N]) -> (y: float32[N])
  DIM N
  GRID (N, 1, 1)  BLOCK (1, 1, 1)

FOR blockIdx.x in BIDx{N}:
  IF blockIdx.x < 1:  # first
    y[blockIdx.x] = copy(x[blockIdx.x])
  ELSE IF i == 1:  # second
    y[blockIdx.x] = mul(y[blockIdx.x], 2.0)"""
    with pytest.raises(VerifyError) as caught:
        parse_kernel(text).check_ir()
    assert (
        str(caught.value)
        == """\
kernel 'scale': 'i' is not in scope
  | KERNEL scale(x: float32[N]) -> (y: float32[N])
  |   DIM N
  |   GRID (N, 1, 1)  BLOCK (1, 1, 1)
  |
  | FOR blockIdx.x in BIDx{N}:
  |   IF blockIdx.x < 1:  # first
  |     y[blockIdx.x] = copy(x[blockIdx.x])
  |   ELSE IF i == 1:  # second
  |   ^ 'i' is not in scope
  |     y[blockIdx.x] = mul(y[blockIdx.x], 2.0)"""
    )
    with pytest.raises(VerifyError) as caught:
        parse_kernel(text.replace("i == 1", "N == 1").replace("    y[blockIdx.x] = mul(", "    x[blockIdx.x] = mul(")).check_ir()
    assert str(caught.value).endswith("  |     x[blockIdx.x] = mul(y[blockIdx.x], 2.0)\n  |     ^ input 'x' is written")


def test_every_rule_is_in_the_table() -> None:
    import taskfuse.kir.instruction_rules as instructions
    import taskfuse.kir.statement_rules as statements
    import taskfuse.kir.synchronization_rules as synchronization
    import taskfuse.kir.witness_rules as witness

    defined = {
        f
        for module in (statements, synchronization, instructions, witness)
        for name, f in vars(module).items()
        if callable(f) and getattr(f, "__module__", "") == module.__name__ and name[0].islower() and list(signature(f).parameters) == ["subject", "scope"]
    }
    assert set(RULES) == defined
    assert len(STATEMENT_RULES) < len(RULES)


def test_rules_are_looked_at_once_for_each_kernel_object(monkeypatch: pytest.MonkeyPatch) -> None:
    found = kernel("y[blockIdx.x, threadIdx.x] = copy(b[threadIdx.x])\n")
    assert not found.keeps_rules
    verify_kernel(found)
    assert found.keeps_rules
    with monkeypatch.context() as patched:
        patched.setattr("taskfuse.kir.verify.DECLARATION_RULES", ())
        patched.setattr("taskfuse.kir.verify.Scope", None)  # it would not come through
        verify_kernel(found)
    wrong = replace(found, name="", params=())  # another object
    assert not wrong.keeps_rules
    for _ in range(2):
        with pytest.raises(VerifyError, match="'' is not a name"):
            verify_kernel(wrong)
    assert pickle.loads(pickle.dumps(found)) == found
