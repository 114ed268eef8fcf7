"""Numbers that do not fit 64 bits: no proof computes with them, and none fails by them."""

import pytest

from taskfuse.check import Verdict, verify
from taskfuse.check.magnitudes import MOST, WIDE, heaviest
from taskfuse.ir.scalar import Expr, const, maximum, minimum, sym, table, xor
from taskfuse.kir import Kernel, parse_kernel

X, Y = sym("x"), sym("y")


def kernel(index: str) -> Kernel:
    """A copy from an index, a function of ``{i}``."""
    head = "KERNEL k(x: float32[N]) -> (y: float32[N])\n  DIM N\n  GRID (1, 1, 1)  BLOCK (1, 1, 1)\n"
    defined, read = index.format(i="i0"), index.format(i="i")
    return parse_kernel(f"{head}  DEFINE y: float32[N] = copy(x[{defined}])\n\nFOR i in 0..N:\n  y[i] = copy(x[{read}])  ~ value y[i]\n")


@pytest.mark.parametrize("e", [X * MOST, const(MOST) - X, xor(X * (MOST // 2), 1), X * Y * MOST // (MOST // 2 + 1), minimum(X, MOST), (X * MOST + 1) % 7 + Y])
def test_a_huge_weight_is_found_wherever_it_is(e: Expr) -> None:
    assert heaviest(e) >= MOST


@pytest.mark.parametrize("e", [X * (MOST // 2), X * Y * (MOST - 1), maximum(X * 3, MOST - 1), table((1, MOST - 2), X) + Y])
def test_what_tensors_have_is_no_huge_weight(e: Expr) -> None:
    assert heaviest(e) < MOST


def test_large_numbers_are_outside_the_model() -> None:
    assert verify(kernel("{i}")).is_proved
    found = verify(kernel(f"min({MOST}*{{i}}, {{i}})"))
    assert found.verdict is Verdict.OUTSIDE
    assert "may not fit 64 bits" in str(found)


def _nothing(*_: object) -> None:
    """No expression is too large."""


@pytest.mark.parametrize("index", [f"{{i}} + {10**19}*({{i}} - {{i}} % 2)", f"min({10**30}*{{i}} + N, {{i}}//{10**25})"])
def test_no_number_ends_a_proof_by_an_error(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the prover makes it of smaller ones."""
    monkeypatch.setitem(verify.__globals__, "too_large", _nothing)
    assert str(verify(kernel(index)))


def test_an_error_in_the_argument_is_an_open_obligation(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OverflowError

    monkeypatch.setitem(verify.__globals__, "_layers", fails)
    assert WIDE in list(verify(kernel("{i}")).argument)
    monkeypatch.setitem(verify.__globals__, "rewritings", fails)
    assert list(verify(kernel("{i}")).argument) == [WIDE]
