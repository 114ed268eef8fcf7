"""The interface of a kernel: the same whether its body is there or only its text."""

from dataclasses import replace
from pathlib import Path

import pytest

from taskfuse.cuda.kernel_interface import interface_from_text, interface_of
from taskfuse.cuda.ranges import fits, small_extents
from taskfuse.kir import parse_head, parse_kernel

KERNELS = sorted((Path(__file__).parents[1] / "kernels").glob("*.kir"))
VECTORS = """
KERNEL vectors(x: float32[M, 64], t: float32[64], n: float32[64]) -> (y: float32[M, 64])
  DIM M min 1
  GRID (M, 1, 1)  BLOCK (16, 1, 1)
  LOCAL r: float32[4]

COPY r[0] <- x[blockIdx.x, 4*threadIdx.x] width 4
COPY y[blockIdx.x, 4*threadIdx.x] <- r[0] width 4
r[0] = copy(t[threadIdx.x])
"""


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_the_head_of_a_text_is_what_a_launch_needs(path: Path) -> None:
    kernel = parse_kernel(path.read_text(encoding="utf-8"))
    found = interface_of(kernel)
    assert parse_head(found.text) == replace(kernel, body=(), definitions=(), buffers=(), mbarriers=(), counters=(), semaphores=(), queues=())
    assert parse_head(str(kernel)) == parse_head(found.text)
    assert parse_kernel(found.text) == found.whole() is kernel is found.head


def test_what_is_asked_of_the_body() -> None:
    found = interface_of(parse_kernel(VECTORS.lstrip("\n")))
    assert found.accessed & {"x", "t", "n", "y"} == {"x", "t", "y"}
    assert dict(found.vectors) == {"x": 16, "y": 16}


def test_tables_are_accessed() -> None:
    text = VECTORS.replace("(x:", "(g: int32[2], n: int32[2] lengths of 64, unread: int32[2], x:").replace(
        "t[threadIdx.x]", "t[clamp(g[0 of 2], 0, 15) + clamp(n.offsets[1 of 3], 0, 15)]"
    )
    assert {"g", "n", "unread"} & interface_of(parse_kernel(text.lstrip("\n"))).accessed == {"g", "n"}


@pytest.mark.parametrize("m", [1, 1 << 31])
def test_indices_fit_as_they_do_for_the_kernel(m: int) -> None:
    found = interface_of(parse_kernel(VECTORS.lstrip("\n")))
    assert found.fits({"M": m}) == fits(found.whole(), {"M": m}) == (m == 1)


def test_small_extents_are_not_asked_of_the_body() -> None:
    kernel = parse_kernel(VECTORS.lstrip("\n"))
    most = small_extents(kernel)
    assert most is not None
    text = interface_from_text(str(kernel), (), {}, most)
    bodyless = replace(text, whole=lambda: pytest.fail("its body was parsed"))
    assert bodyless.fits({"M": most})
    assert fits(kernel, {"M": most})
    assert not fits(kernel, {"M": 2 * most})
    assert not text.fits({"M": 2 * most})


def test_no_extent_is_small_where_an_integer_may_be_any() -> None:
    head = VECTORS.replace("x: float32[M, 64],", "x: float32[M, 64], K: integer,").replace("DIM M min 1", "DIM M min 1\n  DIM K min 0")
    kernel = parse_kernel(head.lstrip("\n"))
    assert small_extents(kernel) == small_extents(parse_kernel(VECTORS.lstrip("\n")))
    assert small_extents(parse_kernel(head.replace("x[blockIdx.x, 4*threadIdx.x]", "x[blockIdx.x, 4*threadIdx.x + 4*K]").lstrip("\n"))) is None
