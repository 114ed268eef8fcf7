"""What may be assumed besides conditions: iterations of loops, and elements of instructions."""

import pytest

from taskfuse.check.bounded_variables import BoundedElement, Trip, share_of
from taskfuse.ir.scalar import const, evaluate, parse_expr, private, select, sym
from taskfuse.kir.nodes import For

INDEX, N = sym("i"), sym("N")


def loop(stop: str, start: str = "0") -> For:
    return For("i", parse_expr(start), parse_expr(stop), const(1), False, ())


def test_an_iteration_is_inside_its_loop() -> None:
    trip = Trip.of(loop("N", "2"))
    assert (trip.symbol, trip.start, trip.stop, trip.implied) == (INDEX, const(2), N, ())
    assert trip.free == {"i", "N"}


def test_a_loop_that_runs_under_a_condition_implies_it() -> None:
    stop = select(parse_expr("M < 3"), N, const(0))
    trip = Trip.of(For("i", const(0), stop, const(1), False, ()))
    assert trip.stop is N
    assert [str(e) for e in trip.implied] == ["M < 3"]
    floor = Trip.of(loop("max(N - M, 0)"))
    assert str(floor.stop) == "N - M"  # from 0 on: below max(n, 0) is below n
    assert str(Trip.of(loop("max(N - M, 0)", "-1")).stop) == "max(N - M, 0)"
    some = select(parse_expr("M < 3"), N, const(1))  # one iteration otherwise
    assert Trip.of(For("i", const(0), some, const(1), False, ())).stop is some


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("N", None),
        ("(N - blockIdx.x + 3) // 4", True),
        ("N // 1", None),
        ("2*(N // 4)", None),
        ("N // 4 + M // 4", None),
        ("N // M", None),
        ("N // 4 + 1", True),
    ],
)
def test_a_blocks_share_of_the_work_bounds_its_index(stop: str, expected: bool | None) -> None:
    found = share_of(loop(stop))
    assert (found is not None) is bool(expected)


def test_the_bound_is_the_one_that_the_quotient_says() -> None:
    """``i < (N - b + 3)//4`` exactly if ``4*i + 4 <= N - b + 3``."""
    share = share_of(loop("(N - b + 3) // 4"))
    assert share is not None
    for n in range(12):
        for b in range(4):
            for i in range(5):
                env = {"N": n, "b": b, "i": i}
                assert bool(evaluate(share, env)) is (i < evaluate(parse_expr("(N - b + 3) // 4"), env))


def test_renamed_ones_have_symbols_of_their_own() -> None:
    trip = Trip.of(loop("(N + i0) // 4")).renamed({"i0": sym("j")}, 7)
    assert trip.symbol is private("trip.7")
    assert str(trip.stop) == "(j + N)//4"
    assert "i" not in trip.free
    element = BoundedElement(sym("e"), (0, 3))
    assert element.renamed({"e": N}, 2) == BoundedElement(private("element.2"), (0, 3))
    assert element.free == {"e"}
