"""What is remembered about expressions, and forgotten."""

from taskfuse.ir.scalar import ONE, Facts, expr, forget, ge, prove, sym, to_text
from taskfuse.ir.scalar.memory import remembered
from taskfuse.testing.campaign import CHUNK, look_at


def use(number: int) -> int:
    """Make and ask about expressions that nobody else has."""
    e = (sym(f"forgotten{number}") * 3 + 7) // 5 + sym(f"forgotten{number}") % 4
    to_text(e)
    assert prove(ge(e, 0), Facts().with_range(f"forgotten{number}", 0, None))
    return number


def test_expressions_that_nothing_has_are_forgotten() -> None:
    kept = (sym("kept") + 1) // 2
    forget()
    before = len(expr.INTERNED)
    for number in range(50):
        use(number)
    assert len(expr.INTERNED) > before + 200
    forget()
    assert len(expr.INTERNED) <= before
    assert (sym("kept") + 1) // 2 is kept
    assert sym("kept") * 2 - sym("kept") * 2 + 1 is ONE


def test_a_campaign_forgets_between_cases() -> None:
    forget()
    before = len(expr.INTERNED)
    assert [*look_at(use, range(8 * CHUNK))] == [*range(8 * CHUNK)]
    assert len(expr.INTERNED) <= before


def test_results_are_kept_until_they_are_forgotten() -> None:
    calls: list[int] = []

    @remembered(4)
    def double(x: int) -> int:
        calls.append(x)
        return 2 * x

    assert [double(1), double(1)] == [2, 2]
    assert calls == [1]
    forget()
    assert (double(1), calls) == (2, [1, 1])
