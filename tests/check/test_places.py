"""Tables of places: a read of one is proved as the search that it stands for; what else it may be is refused, and no table leads outside."""

from __future__ import annotations

import numpy as np
import pytest

from taskfuse.check import Verdict, verify
from taskfuse.check.places import searched
from taskfuse.kir import parse_kernel
from taskfuse.reports.certificate import Layer

PLACE = "upper_bound(t[k of G + 1]//8, i0, 0, M)"
READ = "clamp(p[threadIdx.x + 32*blockIdx.x of M//8 + G], 0, G - 1)"
TEXT = f"""\
KERNEL k(x: float32[G, 40], t: int32[G + 1], p: int32[M//8 + G] = {PLACE}) -> (y: float32[M//8 + G])
  DIM M, G min 2
  GRID (ceildiv(M//8 + G, 32), 1, 1)  BLOCK (32, 1, 1)
  DEFINE y: float32[M//8 + G] = copy(x[{PLACE}, i0 % 40])

FOR blockIdx.x in BIDx{{ceildiv(M//8 + G, 32)}}:
  FOR threadIdx.x in TIDx{{32}}:
    IF threadIdx.x + 32*blockIdx.x < M//8 + G:
      y[threadIdx.x + 32*blockIdx.x] = copy(x[{READ}, (threadIdx.x + 32*blockIdx.x) % 40])  ~ value y[threadIdx.x + 32*blockIdx.x]
"""
SEARCH = PLACE.replace("i0", "threadIdx.x + 32*blockIdx.x")


def gaps(text: str) -> set[Layer]:
    return {o.layer for o in verify(parse_kernel(text)).argument if o.verdict is not Verdict.PROVED}


def test_a_read_is_proved_as_the_search() -> None:
    certificate = verify(parse_kernel(TEXT))
    certificate.require()
    assert f"tables hold what callers promise: p, whose element i0 is {PLACE}" in str(certificate)
    assert searched(parse_kernel(TEXT)) == parse_kernel(TEXT.replace(READ, SEARCH))
    assert searched(parse_kernel(TEXT.replace("p[thr", "t[0*thr").replace("of M//8 + G]", "of G + 1]"))).name == "k"  # which reads another table


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f" = {PLACE})", ")"),  # no promise
        (f" = {PLACE})", f" = {PLACE.replace('//8', '//4')})"),  # of other tiles
        (f" = {PLACE})", f" = {PLACE.replace('0, M)', '0, M - 1)')})"),  # of other elements
        ("clamp(p[threadIdx.x + 32*blockIdx.x of", "clamp(p[M//8 + G - 1 - threadIdx.x - 32*blockIdx.x of"),  # of another key
        ("0, G - 1)", "0, 1)"),  # other values
        (f"x[{READ}", f"x[{SEARCH} + {READ} - {READ.replace('p[', 'p[0*', 1)}"),  # beside the search
    ],
)
def test_what_else_it_may_be_is_open(old: str, new: str) -> None:
    assert Layer.VALUES in gaps(TEXT.replace(old, new))


def test_a_read_outside_the_table_is_no_search() -> None:
    outside = TEXT.replace("clamp(p[threadIdx.x + 32*blockIdx.x of", "clamp(p[threadIdx.x + 32*blockIdx.x + 1 of")
    assert Layer.ADDRESS in gaps(outside)


def test_bounds_do_not_rest_on_the_promise() -> None:
    """Beside the search a read is data: their difference is not 0."""
    text = "\n".join(line.split("  ~")[0] for line in TEXT.splitlines() if "DEFINE" not in line) + "\n"
    assert gaps(text) == set()
    assert gaps(text.replace(f"x[{READ}", f"x[{READ} - {SEARCH}")) == {Layer.ADDRESS}


@pytest.mark.parametrize("places", [[0, 0, 1, 1, 1, 1], [9, 9, 9, 9, 9, 9], [-(2**31), 2**31 - 1, -1, 1, 0, 7]])
def test_no_table_leads_outside(places: list[int]) -> None:
    x, t = np.arange(80, dtype=np.float32).reshape(2, 40), np.array([0, 12, 32], np.int32)
    (found,) = parse_kernel(TEXT).simulate(x, t, np.array(places, np.int32), extents={"M": 32})
    assert (found == x[np.clip(places, 0, 1), np.arange(6)]).all()
