"""Mistakes in boxes, descriptors and fragments: each operator plants the one that its name says, in one place."""

from functools import cache
from pathlib import Path

import pytest

from taskfuse.kir import Kernel, parse_kernel
from taskfuse.testing.tile_operators import TILE_OPERATORS
from tests.testing.planted import planted


@cache
def kernel(name: str) -> Kernel:
    return parse_kernel((Path(__file__).parents[1] / "kernels" / f"{name}.kir").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "operator", "count", "part"),
    [
        ("double", "box elsewhere", 18, "TMA s[0, 0] <- map_x(8*blockIdx.x + 1, 0) on full[0]"),
        ("double", "another map", 2, "TMA s[0, 0] <- map_y(8*blockIdx.x, 0) on full[0]"),
        ("double", "another swizzle of a map", 6, "TENSORMAP map_x = x box (8, 32) swizzle 32"),
        ("double", "box of a map turned", 2, "TENSORMAP map_x = x box (32, 8) swizzle 0"),
        ("double", "other steps of a map", 2, "TENSORMAP map_x = x box (8, 32) step (2, 1) swizzle 0"),
        ("gemm", "descriptor elsewhere", 8, "0] + 32*kk + 16, swizzle 128, lbo 0, sbo 1024, major K), desc(b_s"),
        ("gemm", "descriptor's strides", 10, "swizzle 128, lbo 1024, sbo 0, major K), desc(b_s"),
        ("gemm", "descriptor's swizzle", 6, "swizzle 0, lbo 0, sbo 1024, major K), desc(b_s"),
        ("gemm", "descriptor's major", 2, "sbo 1024, major MN), desc(b_s"),
        ("gemm", "matrices exchanged", 3, "acc[0], desc(b_s"),
        ("gemm", "result in other registers", 5, "WGMMA.m64n128k16.bfloat16 acc[2], desc(a_s"),
        ("gemm", "matrix transposed", 1, "STMATRIX.trans d_s"),
        ("gemm", "half of the matrices", 1, "STMATRIX.x2 d_s"),
        ("gemm", "rows of other lanes", 3, "(threadIdx.x + 1) % 16"),
        ("gemm", "accumulate flag", 3, "accumulate kk + ko <= 0"),
    ],
)
def test_planted(name: str, operator: str, count: int, part: str) -> None:
    found = planted(TILE_OPERATORS, operator, kernel(name))
    assert len(found) == count
    assert part in found[0]
