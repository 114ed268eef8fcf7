"""Reduced axes of a point: those that the element does not say, and the digits of the others that it leaves."""

from itertools import product

import pytest

from taskfuse.check.values.residues import residues
from taskfuse.check.values.solve import Open
from taskfuse.ir.scalar import Facts, evaluate, parse_expr
from taskfuse.kir import parse_kernel
from taskfuse.kir.witness import Definition

KERNEL = """\
KERNEL k(x: float32[{space}]) -> (y: float32[{shape}])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE y: float32[{shape}] over ({space}) at ({at}) = reduce add of copy(x[{point}]) from 0.0

y[{first}] = copy(0.0)  ~ start y
"""


def definition(space: tuple[int, ...], shape: tuple[int, ...], at: tuple[str, ...]) -> Definition:
    def listed(items: tuple[object, ...]) -> str:
        return ", ".join(map(str, items))

    point = tuple(f"i{k}" for k in range(len(space)))
    first = ("0",) * len(shape)
    text = KERNEL.format(space=listed(space), shape=listed(shape), at=listed(at), point=listed(point), first=listed(first))
    return parse_kernel(text).definitions[0]


CASES = {
    "a whole axis": ((3, 4), (3,), ("i0",), [1]),
    "low digits": ((12,), (3,), ("i0//4",), [0]),
    "high digits": ((12,), (4,), ("i0 % 4",), [0]),
    "digits on both sides": ((24,), (3,), ("i0//4 % 3",), [0]),
    "an axis that is shorter than its digit": ((4,), (1,), ("i0//5",), [0]),
    "two digits": ((24,), (2, 3), ("i0//12", "i0 % 3"), [0]),
    "a digit of several axes": ((4, 3, 6), (6,), ("(i2 + 6*i1 + 18*i0)//12",), [0, 1, 2]),
    "a quotient of a quotient": ((4, 8, 12), (6,), ("((i2//2 + 6*i1)//16 + 3*i0)//2",), [0, 1, 2]),
    "a digit that ends within a row": ((3, 4), (3,), ("(i1 + 4*i0)//5",), [0, 1]),
    "a digit of vectors": ((4, 6), (3,), ("(i1//2 + 3*i0)//4",), [0, 1]),
    "a digit of several axes beside a whole one": ((2, 3, 4), (2, 2), ("i0", "(i2 + 4*i1)//6"), [1, 2]),
    "one digit has all points": ((2, 3), (1,), ("(i1 + 3*i0)//7",), [0, 1]),
}


@pytest.mark.parametrize("name", CASES)
def test_element_and_residues_say_the_point_once(name: str) -> None:
    space, shape, at, axes = CASES[name]
    rest, extents = residues(definition(space, shape, at), axes, [parse_expr(f"i{k}") for k in range(len(space))], Facts())
    seen: set[tuple[int, ...]] = set()
    sizes = [int(evaluate(e, {})) for e in extents]
    for point in product(*map(range, space)):
        env = {f"i{k}": v for k, v in enumerate(point)}
        digits = tuple(int(evaluate(e, env)) for e in rest)
        assert all(0 <= d < n for d, n in zip(digits, sizes, strict=True))
        element = tuple(int(evaluate(parse_expr(e), env)) for e in at)
        assert (*element, *digits) not in seen
        seen.add((*element, *digits))
    assert len(seen) == len(list(product(*map(range, space))))


@pytest.mark.parametrize("end", range(13))
@pytest.mark.parametrize("name", ["low digits", "high digits"])
def test_points_that_end_early_have_residues_that_do(name: str, end: int) -> None:
    space, shape, at, axes = CASES[name]
    rest, extents = residues(definition(space, shape, at), axes, [parse_expr("i0")], Facts(), {0: parse_expr(f"min(12, max({end}, n))")})
    (digit,), (extent,) = rest, extents
    digits = {int(evaluate(digit, {"i0": i})) for i in range(end)}
    assert digits == set(range(int(evaluate(extent, {"n": 0}))))


def test_an_element_that_is_no_digit_says_nothing() -> None:
    with pytest.raises(Open, match="its elements are those of points by"):
        residues(definition((6,), (11,), ("2*i0",)), [0], [parse_expr("i0")], Facts())


@pytest.mark.parametrize(
    ("space", "shape", "at"),
    [
        ((3, 4), (3,), ("(i0 + 3*i1)//4",)),  # in column-major order
        ((3, 4), (4,), ("(i1 + 5*i0)//4",)),  # numbers with gaps
        ((3, 4), (6,), ("(i1 + 4*i0)//2 + 1",)),  # begins at 1
        ((3, 4), (3,), ("(i1//3 + 2*i0)//2",)),  # vectors that do not fill a row
        ((3, 4), (3,), ("(i1//2 + 2*i0) % 3",)),  # a low digit
    ],
)
def test_of_several_axes_only_the_high_digit_of_their_number_is_known(space: tuple[int, ...], shape: tuple[int, ...], at: tuple[str, ...]) -> None:
    with pytest.raises(Open, match="its elements are those of points by"):
        residues(definition(space, shape, at), [0, 1], [parse_expr("i0"), parse_expr("i1")], Facts())
