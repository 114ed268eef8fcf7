"""Tensor-core instructions in the static proof: every form is proved, and what is wrong with a twin is found."""

from pathlib import Path

import pytest

from taskfuse.kir import parse_kernel
from taskfuse.reports.certificate import Verdict
from tests.products import ALL_PRODUCTS, AnyProduct

KERNELS = Path(__file__).parent.parent / "kernels"


def text(name: str) -> str:
    return (KERNELS / f"{name}.kir").read_text(encoding="utf-8")


def verdict(found: str) -> Verdict:
    return parse_kernel(found).verify().verdict


@pytest.mark.parametrize("product", ALL_PRODUCTS, ids=lambda p: p.name)
def test_products_are_proved(product: AnyProduct) -> None:
    product.kernel().verify().require()


RS, MN, SYNC = (text(name) for name in ("gemm_rs", "gemm_mn", "gemm_sync"))

# kernel, what is changed, to what, what the proof says
BAD = {
    "fragments not waited for": (RS, "      WAIT_GROUP wgmma <= 1\n", "", "its operand registers are accessed while it may be in flight"),
    "a batch more in flight": (RS, "WAIT_GROUP wgmma <= 1", "WAIT_GROUP wgmma <= 2", "its operand registers are accessed while it may be in flight"),
    "one fragment": (RS, "a_r[8*(kk % 2)", "a_r[0*(kk % 2)", "its operand registers are accessed while it may be in flight"),
    "no wgmma fence": (RS, "      FENCE wgmma\n", "", "no FENCE wgmma stands between an access to its operand registers and it"),
    "fragments written behind the fence": (
        RS,
        "      FENCE wgmma\n",
        "      FENCE wgmma\n      a_r[8*(kk % 2) + 7] = copy(0.0)\n",
        "no FENCE wgmma stands between an access to its operand registers and it",
    ),
    "accumulators not waited for": (RS, "    WAIT_GROUP wgmma <= 0\n", "", "its accumulators are accessed while it may be in flight"),
    "nothing orders the reads of a warp before its arrival": (RS, "    SYNC warp  # WAR: all lanes have read a_s\n", "", "LDMATRIX"),
    "slot released too early": (MN, "    WAIT_GROUP wgmma <= 0\n", "", "no wait covers it"),
    "reads past the slot": (MN, "+ 2048*kk", "+ 4096*kk", "desc(a_s[c.slot"),
    "tiles read before they are written": (SYNC, "  SYNC block  # RAW: the tiles are written\n", "", "LDMATRIX"),
    "tiles overwritten before they are read": (SYNC, "  SYNC block  # WAR: the tiles are read\n", "", "LDMATRIX"),
    "rows outside": (SYNC, "16*kk + 8*(threadIdx.x//16)]", "16*kk + 8*(threadIdx.x//16) + 16]", "a_s"),
    "too few registers": (SYNC, "LOCAL b_r: bfloat16[16]", "LOCAL b_r: bfloat16[15]", "b_r"),
}


@pytest.mark.parametrize("name", BAD)
def test_faults(name: str) -> None:
    good, old, new, reason = BAD[name]
    assert old in good
    certificate = parse_kernel(good.replace(old, new)).verify()
    assert not certificate.is_proved
    assert any(reason in str(o) for o in certificate.argument if o.verdict is not Verdict.PROVED), str(certificate)


def test_the_twins_are_proved() -> None:
    for good in (RS, MN, SYNC):
        parse_kernel(good).verify().require()


@pytest.mark.parametrize("what", ["LDMATRIX b_r", "MMA"])
def test_whole_warps_execute_collectives(what: str) -> None:
    line = next(line for line in SYNC.split("\n") if what in line)
    spaces = " " * (len(line) - len(line.lstrip()))
    for condition, expected in (
        ("threadIdx.x < 16", Verdict.REFUTED),
        ("threadIdx.x % 2 < threadIdx.y + 1", Verdict.REFUTED),
        ("threadIdx.y < 2", Verdict.PROVED),
    ):
        certificate = parse_kernel(SYNC.replace(line, f"{spaces}IF {condition}:\n  {line}")).verify()
        assert certificate.verdict is expected, condition
    half = parse_kernel(SYNC.replace(line, f"{spaces}IF threadIdx.x < 16:\n  {line}")).verify().failures[0]
    assert str(half).startswith(f"refuted: {line.split()[0]}: 16 of 32 lanes of a warp reach it")


MATRICES = """\
KERNEL k(x: bfloat16[32, 8]) -> (y: bfloat16[32, 8])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL r: bfloat16[8]
  SHARED s: bfloat16[32, 8] align 16
  SHARED t: bfloat16[ROWS, 8] align 16

FOR i in 0..8:
  s[threadIdx.x, i] = copy(x[threadIdx.x, i])
SYNC block
LDMATRIX.xCOUNT r[0] <- s[threadIdx.x, 0]
STMATRIX.xCOUNT t[threadIdx.x % ROWS, 0] <- r[0]
SYNC block
FOR i in 0..8:
  y[threadIdx.x, i] = copy(t[threadIdx.x % ROWS, i])
"""


@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_addresses_that_are_not_used_do_not_count(matrices: int) -> None:
    """Fewer matrices than 4: lanes whose address is not used give that of a row that another lane stores."""
    moves = MATRICES.replace("xCOUNT", f"x{matrices}").replace("ROWS", str(8 * matrices))
    assert verdict(moves) is Verdict.PROVED
    assert verdict(moves.replace(f"t[threadIdx.x % {8 * matrices}", f"t[threadIdx.x % {4 * matrices}")) is Verdict.REFUTED
    # a warp comes together at LDMATRIX, but nothing orders the writes of other lanes before it
    # nor the writes of STMATRIX before the reads of the lanes that gave its addresses
    for after in ("LDMATRIX", "FOR i in 0..8:\n  y"):
        assert verdict(moves.replace(f"SYNC block\n{after}", after)) is not Verdict.PROVED
        assert verdict(moves.replace(f"SYNC block\n{after}", f"SYNC warp\n{after}")) is Verdict.PROVED


def test_a_warp_comes_together_at_every_collective() -> None:
    """No lane is past an instruction of its warp before all have come to it: a lane that waits for one that comes later waits forever."""
    for line in ("LDMATRIX r[0] <- s[threadIdx.x, 0]", "STMATRIX s[threadIdx.x, 0] <- r[0]", "MMA.m16n8k16.bfloat16 acc[0], r[0], r[0]"):
        body = f"""\
KERNEL k() -> (y: float32[4])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL r: bfloat16[8]
  LOCAL acc: float32[4]
  SHARED s: bfloat16[32, 8] align 16
  MBARRIER m[1]

IF threadIdx.x == 0:
  INIT m[0] count 1
SYNC block
FOR i in 0..8 UNROLL:
  r[i] = copy(0.0)
  s[threadIdx.x, i] = copy(0.0)
FOR i in 0..4 UNROLL:
  acc[i] = copy(0.0)
SYNC block
IF threadIdx.x == 1:
  WAIT m[0] parity 0
{line}
IF threadIdx.x == 0:
  ARRIVE m[0]
IF threadIdx.x < 4:
  y[threadIdx.x] = copy(0.0)
"""
        assert verdict(body) is Verdict.REFUTED, line
