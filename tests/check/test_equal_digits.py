"""Arithmetic of digits, for equal indices."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from operator import mul
from random import Random

from taskfuse.check.equal_digits import Span, composed, constant_of, degree_of, joined_rows, most_of, quotients_in, span_of_difference, terms_up_to
from taskfuse.ir.scalar import Expr, Facts, const, evaluate, parse_expr, simplify, sym

A, B, C = sym("a"), sym("b"), sym("c")


def test_equal_quotients_and_remainders_are_equal_numbers() -> None:
    x, y = parse_expr("a//8"), parse_expr("b//8")
    low_x, low_y = parse_expr("a % 8"), parse_expr("b % 8")
    assert (A, B) in composed([(x, y), (low_x, low_y)])
    assert (A, B) not in composed([(x, y), (parse_expr("a % 4"), low_y)])
    assert (A + 8 * C, B + 8 * C) in composed([(x + C, y + C), (low_x, low_y)])


def test_quotients_of_a_sum() -> None:
    ((a, k, whole),) = quotients_in(parse_expr("a//8 + c"))
    assert (a, k, whole) == (A, 8, A + 8 * C)
    assert list(quotients_in(parse_expr("2*(a//8)"))) == []


def test_terms_by_their_weight() -> None:
    e = parse_expr("32*a + 4*b - c")
    assert terms_up_to(4, e) is 4 * B - C
    assert terms_up_to(1, e) is -C
    rows: list[tuple[int, Expr | None, Span]] = [(4, A, (0, 1)), (-32, B, (-1, 2)), (4, C, (None, 3))]
    assert joined_rows(rows) == [(32, B, (-2, 1)), (4, None, (None, 4))]


def test_what_digits_can_make_up_for() -> None:
    assert most_of([(const(8), A, [B, const(3)]), (C, A, [const(2)])], 0) is 8 * B + 2 * C
    assert most_of([(const(8), A, [B, const(3)]), (C, A, [const(2)])], 1) is 24 + 2 * C
    assert span_of_difference((0, 3), (1, None)) == (None, 2)
    assert (degree_of(parse_expr("a*b*c + a")), degree_of(const(3))) == (3, 0)
    assert (constant_of(const(-3)), constant_of(A)) == (3, 0)


def test_a_quotient_that_is_not_written_with_its_dividend() -> None:
    """Bounds let ``(64*i + t) // 576`` be ``i//9``: with the remainders by 64, 3 and 3 it is the number again."""

    def side(name: str) -> tuple[Expr, list[Expr], Callable[[Expr], Expr]]:
        i, t = sym(name), sym(f"t_{name}")
        simpler = partial(simplify, facts=Facts().with_range(t.name, 0, 63))
        whole = 64 * i + t
        return whole, [simpler(e) for e in (whole // 576 + 2, whole // 9 % 64, whole // 3 % 3, whole % 3)], simpler

    (one, x, left), (two, y, right) = side("a"), side("b")
    assert x[0] is A // 9 + 2
    equations = list(zip(x, y, strict=True))
    shift = 2 * 576
    assert (one + shift, two + shift) in composed(equations, left, right)
    assert (one + shift, two + shift) not in composed(equations)
    without = [equations[0], (x[1], simplify(B % 32)), *equations[2:]]
    assert not any(z is one + shift for z, _ in composed(without, left, right))


def test_what_follows_from_random_digits_is_so() -> None:
    """Of two numbers in random digits, at all values of their variables: where the digits are equal, so is what is derived of them."""
    draw, derived = Random(0), 0
    for _ in range(60):
        threads, trips = draw.choice((2, 4, 8)), draw.choice((3, 5, 12))
        simpler = partial(simplify, facts=Facts().with_range("t", 0, threads - 1).with_range("i", 0, trips - 1))
        radices = [draw.choice((2, 3, 4, 5, 9)) for _ in range(draw.randint(1, 3))]

        def digits(whole: Expr, radices: list[int] = radices, simpler: Callable[[Expr], Expr] = simpler) -> list[Expr]:
            weights = list(accumulate(radices, mul, initial=1))
            low = [whole // w % r for w, r in zip(weights, radices, strict=False)]
            return [simpler(e) for e in (whole // weights[-1] + draw.randint(-9, 9), *low[::-1])]

        whole = threads * sym("i") + sym("t") + draw.randint(-5, 9)
        x, y = digits(whole), digits(whole if draw.random() < 0.5 else whole + sym("i"))
        if draw.random() < 0.3:
            y[-1] = simpler(sym("t") % 3)
        found = composed(list(zip(x, y, strict=True)), simpler, simpler)
        derived += len(found) > len(x)
        values = [{"i": i, "t": t} for i in range(trips) for t in range(threads)]
        rows: list[list[tuple[object, ...]]] = [[tuple(evaluate(equation[side], at) for equation in found) for at in values] for side in (0, 1)]
        alike = {row[: len(x)]: row for row in rows[1]}
        assert all(alike.get(row[: len(x)], row) == row for row in rows[0])
    assert derived > 30


def test_quotients_that_tell_nothing_of_a_remainder_end() -> None:
    """A number below four has a remainder of itself: it is a digit of none of these numbers, and each sum with it would be a quotient again."""
    i, j, a, b = (sym(name) for name in "ijab")
    simpler = partial(simplify, facts=Facts().with_range("a", 0, 3).with_range("b", 0, 3))
    equations = [(i, j), (a % 4, b % 4)]
    assert composed(equations, simpler, simpler) == equations
