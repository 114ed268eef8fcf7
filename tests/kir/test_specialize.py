"""Kernels at given extents: no expression of any declaration or statement has the name of an extent any more."""

from dataclasses import fields, is_dataclass

import pytest

from taskfuse.errors import InputError
from taskfuse.ir.scalar import Expr
from taskfuse.kir import Kernel, parse_kernel, specialized
from taskfuse.testing.case import seeded_case
from taskfuse.testing.options import Mix

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
        return set[str]().union(*map(names, thing))
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
        case = seeded_case(seed, mix)
        if case.kernel is not None:
            assert names(specialized(case.kernel, case.sizes)).isdisjoint(e.name for e in case.kernel.extents)


@pytest.mark.parametrize("size", [0, 3, 66])
def test_values_that_are_refused(size: int) -> None:
    with pytest.raises(InputError, match=f"{size} is not a value of extent N"):
        at(parse_kernel(TEXT), N=size)
    with pytest.raises(InputError, match="extent N is not given"):
        at(parse_kernel(TEXT))
