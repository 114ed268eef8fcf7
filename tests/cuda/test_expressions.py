"""Integer expressions in C++ have the values of the scalar IR, in 32 bits where they fit and in 64 where they may not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from taskfuse.cuda.expressions import Divisors, Indices, digest
from taskfuse.cuda.ranges import INT32, IntegerRanges
from taskfuse.cuda.text import Helper, closure
from taskfuse.cuda.writer import Identifiers
from taskfuse.ir.scalar import Expr, Facts, and_, children, const, eq, evaluate, le, lt, maximum, minimum, ne, not_, or_, parse_expr, select, sym, table, xor
from tests.cuda.host import needs_compiler, run

# the extents are known to be positive; the indices are not known to be
SMALL = {"i0": (-9, 9), "i1": (0, 40), "threadIdx.x": (0, 31), "S": (1, 12), "T": (1, 7)}
LARGE = {"i0": (-9, 9), "i1": (0, 2**33), "threadIdx.x": (0, 31), "S": (1, 2**35), "T": (1, 7)}


class Generator:
    """Random expressions over the symbols."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def expression(self, depth: int) -> Expr:
        r = self.random
        if depth == 0 or r.random() < 0.1:
            return sym(r.choice(list(SMALL))) if r.random() < 0.75 else const(r.randint(-9, 9))
        a = self.expression(depth - 1)
        match r.randrange(12):
            case 0:
                return a + self.expression(depth - 1)
            case 1:
                return a - self.expression(depth - 1)
            case 2:
                return a * r.randint(-5, 5)
            case 3:
                return a * self.expression(0)
            case 4:
                return a // self.divisor()
            case 5:
                return a % self.divisor()
            case 6:
                return minimum(a, self.expression(depth - 1))
            case 7:
                return maximum(a, self.expression(depth - 1))
            case 8:
                return xor(a, self.expression(depth - 1))
            case 9:
                return select(self.condition(depth - 1), a, self.expression(depth - 1))
            case 10:
                return table((3, -1, 4, 1, 5), a % 5)
            case _:
                return self.condition(depth - 1)

    def divisor(self) -> Expr:
        return self.random.choice([const(2), const(8), const(3), const(5), const(-4), sym("S"), sym("T"), 4 * sym("S"), sym("S") * sym("T") + 1])

    def condition(self, depth: int) -> Expr:
        a, b = self.expression(depth), self.expression(depth)
        first = self.random.choice([lt, le, eq, ne])(a, b)
        match self.random.randrange(4):
            case 0:
                return and_(first, lt(self.expression(0), b))
            case 1:
                return or_(first, le(self.expression(0), a))
            case 2:
                return not_(and_(first, ne(self.expression(0), 3)))
            case _:
                return first


def subexpressions(e: Expr) -> list[Expr]:
    return [e, *(s for child in children(e) for s in subexpressions(child))]


def magic(d: int) -> str:
    """The words of a prepared divisor, as the launch makes them."""
    shift = (d - 1).bit_length()
    return f"{{{d}u, {2**32 * (2**shift - d) // d + 1}u, {shift}u}}"


@needs_compiler
@pytest.mark.parametrize(("ranges", "wide"), [(SMALL, False), (SMALL, True), (LARGE, True)], ids=["narrow", "wide", "large"])
def test_random_expressions(tmp_path: Path, ranges: dict[str, tuple[int, int]], wide: bool) -> None:
    generator = Generator(20 + wide)
    facts = Facts()
    for name, (lo, hi) in ranges.items():
        facts = facts.with_range(name, lo, hi)
    helpers: set[Helper] = set()
    functions: list[str] = []
    calls: list[str] = []
    expected: list[int] = []
    names = Identifiers()
    uniform = frozenset({"S", "T"})
    wide_symbols = frozenset(n for n, (_, hi) in ranges.items() if hi > INT32[1])
    parameters = ", ".join(f"{'long long' if n in wide_symbols else 'int'} {names[n]}" for n in ranges)
    divided = 0
    for i in range(300):
        e = generator.expression(3)
        divisors = Divisors(uniform, names.reserve)
        symbols = {n: names[n] for n in ranges}
        indices = Indices(symbols, IntegerRanges(ranges), lambda: facts, wide, wide_symbols, divisors, helpers)
        text = indices.print(e)
        points: list[dict[str, int]] = []
        for _ in range(8):
            point = {n: generator.random.choice([lo, hi, generator.random.randint(lo, hi)]) for n, (lo, hi) in ranges.items()}
            if all(v > 0 for v in (evaluate(d, point) for d in divisors.names)):
                points.append(point)
        extra = "".join(f", Divisor {d}" for d in divisors.names.values())
        divided += len(divisors.names)
        functions.append(f"{'long long' if text.wide else 'int'} f{i}({parameters}{extra}) {{ return {text.text}; }}")
        for point in points:
            if not all(abs(int(evaluate(sub, point))) < 2**58 for sub in subexpressions(e)):
                continue  # nothing that a GPU addresses is as large
            value = int(evaluate(e, point))
            arguments = [str(v) + "ll" * (n in wide_symbols) for n, v in point.items()]
            arguments += [f"Divisor{magic(int(evaluate(d, point)))}" for d in divisors.names]
            calls.append(f'  std::printf("%lld\\n", (long long)f{i}({", ".join(arguments)}));')
            expected.append(value)
    text = "\n".join([*(h.text for h in closure(helpers)), *functions, "int main() {", *calls, "}"])
    assert [int(line) for line in run(tmp_path, text).split()] == expected
    assert (divided > 20) is not wide or ranges is SMALL


@pytest.mark.parametrize("d", [1, 2, 3, 5, 7, 641, 65537, 2**20 - 1, 2**30, 2**31 - 1])
def test_prepared_divisors_divide_every_dividend(d: int) -> None:
    shift = (d - 1).bit_length()
    multiplier = 2**32 * (2**shift - d) // d + 1
    assert multiplier < 2**32
    for n in {0, 1, d - 1, d, d + 1, 2 * d - 1, 2**31 - 1, 2**31 - d, (2**31 - 1) // d * d, max(0, (2**31 - 1) // d * d - 1), *range(0, 2**31, 99999937)}:
        if 0 <= n < 2**31:
            assert ((n * multiplier >> 32) + n) >> shift == n // d


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("32*i1 + threadIdx.x", "32 * i1 + threadIdx_x"),
        ("threadIdx.x//8", "threadIdx_x / 8"),
        ("i0//8", "i0 >> 3"),
        ("i0 % 8", "i0 & 7"),
        ("i0 % 5", "floor_modulo(i0, 5)"),
        ("i1//S", "i1 / by_S"),
        ("i0 + 9 < 4 && 3 <= i1", "i0 + 9 < 4 && i1 >= 3"),
        ("min(i1, S, T)", "min(min(i1, S), T)"),
    ],
)
def test_text(text: str, printed: str) -> None:
    names = Identifiers()
    indices = Indices({n: names[n] for n in SMALL}, IntegerRanges(SMALL), Facts, False, frozenset(), Divisors(frozenset({"S", "T"}), names.reserve), set())
    assert indices.text(parse_expr(text)) == printed


def test_tables_of_other_values_have_other_names() -> None:
    assert digest((0, 1, 2)) != digest((1, 2))
    assert digest((0, 1000003)) != digest((1, 0))
    assert digest((3, 1)) == digest((3, 1))
