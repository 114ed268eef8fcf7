"""Values of extents from the shapes of arguments, and kernels at given extents, none of whose expressions names an extent any more."""

from dataclasses import fields, is_dataclass

import pytest

from taskfuse.errors import InputError
from taskfuse.ir.scalar import Expr
from taskfuse.kir import Kernel, parse_kernel, specialized
from taskfuse.kir.arguments import bind_symbols, check_count, check_rank, wanted
from taskfuse.testing.options import Mix
from tests.random_cases import random_case_of

TEXT = """\
KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N multiple_of 2 min 2 max 64
  GRID (N, 1, 1)  BLOCK (32, 1, 1)
  GLOBAL w: float32[N]
  SEMAPHORE s[N, 2] count N
"""


def names(thing: object) -> set[str]:
    """The symbols of all expressions in a kernel, or in a part of it."""
    if isinstance(thing, Expr):
        return set(thing.free)
    if isinstance(thing, tuple | list):
        parts: list[object] = [*thing]
        return set[str]().union(*map(names, parts))
    if is_dataclass(thing):
        return set[str]().union(*(names(getattr(thing, f.name)) for f in fields(thing)))
    return set()


def at(kernel: Kernel, **sizes: int) -> Kernel:
    return specialized(kernel, sizes)


def test_every_declaration() -> None:
    kernel = parse_kernel(TEXT)
    assert "N" in names(kernel)
    found = at(kernel, N=8)
    assert "N" not in names(found)
    assert str(found.semaphores[0].shape[0]) == "8"
    assert str(found.semaphores[0].count) == "8"


@pytest.mark.parametrize("mix", [Mix.BLOCKS, Mix.STREAMS, Mix.PRODUCTS, Mix.ROWS])
def test_random_kernels(mix: Mix) -> None:
    for seed in range(6):
        case = random_case_of(seed, mix)
        if case.kernel is not None:
            assert names(specialized(case.kernel, case.sizes)).isdisjoint(e.name for e in case.kernel.extents)


@pytest.mark.parametrize("size", [0, 3, 66])
def test_values_that_are_refused(size: int) -> None:
    with pytest.raises(InputError, match=f"{size} is not a value of extent N"):
        at(parse_kernel(TEXT), N=size)
    with pytest.raises(InputError, match="extent N is not given"):
        at(parse_kernel(TEXT))


def test_an_expression_without_a_value_stays_one() -> None:
    found = at(parse_kernel("KERNEL k(x: float32[N]) -> ()\n  DIM N\n  GRID (8//N, 1, 1)  BLOCK (32, 1, 1)\n"), N=0)
    assert str(found.grid[0]) == "8//0"


BOUND = """\
KERNEL k(x: float32[2*N, M], a: float32, z: float32[N + M]) -> (y: float32[N])
  DIM N multiple_of 2, M
  GRID (N//2, 1, 1)  BLOCK (32, 1, 1)
"""


def test_symbols_follow_from_shapes() -> None:
    assert bind_symbols(parse_kernel(BOUND), {"x": (8, 3), "z": (7,)}) == {"N": 4, "M": 3}


@pytest.mark.parametrize(
    ("shapes", "index", "reason"),
    [
        ({"x": (7, 3), "z": (7,)}, 0, "axis 0 of 'x' has extent 7, which 2*N cannot be"),
        ({"x": (8, 3), "z": (8,)}, 2, "axis 0 of 'z' has extent 8, not M + N = 7"),
        ({"x": (6, 3), "z": (6,)}, 0, "N is 3; it must be at least 0, a multiple of 2"),
    ],
)
def test_shapes_that_disagree(shapes: dict[str, tuple[int, ...]], index: int, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        bind_symbols(parse_kernel(BOUND), shapes)
    assert str(caught.value).startswith(f"input {index} of fusion 'k': {reason}")


def test_an_extent_that_no_input_has_is_given() -> None:
    kernel = parse_kernel("KERNEL k(x: float32[4]) -> (y: float32[N])\n  DIM N min 1\n  GRID (N, 1, 1)  BLOCK (32, 1, 1)\n")
    assert bind_symbols(kernel, {"x": (4,)}, {"N": 3}) == {"N": 3}
    with pytest.raises(InputError, match=r"no input has the extent N\nhelp: a call takes extents from the shapes of its inputs: use"):
        bind_symbols(kernel, {"x": (4,)})
    with pytest.raises(InputError, match=r"no input has the extent N\nhelp: give it as extents=\{'N': ...\}"):
        bind_symbols(kernel, {"x": (4,)}, {})
    with pytest.raises(InputError, match="N is 0; it must be at least 1"):
        bind_symbols(kernel, {"x": (4,)}, {"N": 0})


def test_the_caller_gives_inputs_and_scalars() -> None:
    kernel = parse_kernel(BOUND)
    assert [p.name for p in wanted(kernel)] == ["x", "a", "z"]
    check_count(kernel, 3)
    with pytest.raises(InputError, match=r"^input 2 of fusion 'k': 2 arguments given, 3 expected\nhelp: the arguments are: x, a, z"):
        check_count(kernel, 2)
    with pytest.raises(InputError, match="'x' has 1 axes, not 2"):
        check_rank(kernel, 0, kernel.inputs[0], 1)


@pytest.mark.parametrize(("extent", "at_7"), [("N//4", 1), ("N % 4 + 1", 4), ("64//N", 9)])
def test_extents_that_are_not_linear_are_checked_and_not_solved(extent: str, at_7: int) -> None:
    kernel = parse_kernel(f"KERNEL k(x: float32[{extent}], z: float32[{{}}]) -> ()\n  DIM N\n  GRID (N, 1, 1)  BLOCK (32, 1, 1)\n".format("2*N"))
    assert bind_symbols(kernel, {"x": (at_7,), "z": (14,)}) == {"N": 7}
    with pytest.raises(InputError, match="no input has the extent N"):
        bind_symbols(parse_kernel(str(kernel).replace("2*N", "5")), {"x": (at_7,), "z": (5,)})


POSITION = """\
KERNEL k(x: float32[N], pos: integer) -> (y: float32[pos + 4])
  DIM N, pos max N - 4
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
"""


def test_an_integer_gives_an_extent_its_value() -> None:
    kernel = parse_kernel(POSITION)
    assert [p.name for p in wanted(kernel)] == ["x", "pos"]
    assert bind_symbols(kernel, {"x": (16,)}, integers={"pos": 12}) == {"N": 16, "pos": 12}
    assert at(kernel, N=16, pos=12).params[1:] == at(parse_kernel(POSITION.replace("pos + 4", "16")), N=16, pos=12).params[1:]
    with pytest.raises(InputError, match="13 is not a value of extent pos"):
        at(kernel, N=16, pos=13)


@pytest.mark.parametrize(
    ("value", "reason"),
    [(13, "pos is 13; it must be at least 0, at most N - 4 where N is 16"), (-1, "pos is -1; it must be at least 0"), ("3", "pos is an integer, got '3'")],
)
def test_integers_that_are_refused(value: object, reason: str) -> None:
    with pytest.raises(InputError, match=f"input 1 of fusion 'k': {reason}"):
        bind_symbols(parse_kernel(POSITION), {"x": (16,)}, integers={"pos": value})


def test_an_integer_and_an_extent_that_is_given() -> None:
    with pytest.raises(InputError, match="pos is 3, but it is given as 4, too"):
        bind_symbols(parse_kernel(POSITION), {"x": (16,)}, {"pos": 4}, {"pos": 3})
