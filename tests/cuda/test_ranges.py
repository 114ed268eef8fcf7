"""Constant ranges of a kernel's integers, and which of them are 32-bit integers on the way, too."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import taskfuse as tf
from examples import nested_groups, pipeline, stream
from taskfuse.cuda.ranges import INT32, INT64, UNKNOWN, IntegerRanges, cursor_ranges, dense, fits, kernel_ranges, steady
from taskfuse.cuda.source import emit
from taskfuse.ir.scalar import Expr, and_, const, evaluate, ge, le, lt, parse_expr, sym
from taskfuse.kir import parse_kernel
from taskfuse.kir.synchronization import CursorInit
from taskfuse.schedulers import MatmulConfig
from tests.cuda.adding import ADD, checked
from tests.golden import Golden
from tests.schedulers.odd import VARIANTS
from tests.sim.kernels import kernel, load

ROOT = Path(__file__).parents[2]
LANE, SHIFT, N = sym("i"), sym("j"), sym("n")
RANGES = IntegerRanges({"i": (0, 31), "j": (-4, 7), "n": (1, UNKNOWN)})


@pytest.mark.parametrize(
    ("e", "expected"),
    [
        (3 * LANE - SHIFT + 5, (-2, 102)),
        (LANE * SHIFT, (-124, 217)),
        (LANE // 4, (0, 7)),
        (SHIFT // 2, (-2, 3)),
        (LANE % 64, (0, 31)),
        (SHIFT % 8, (0, 7)),
        (LANE % N, (0, 31)),
        (sym("unknown") + 1, (-UNKNOWN, UNKNOWN)),
        (N * N, (1, UNKNOWN)),
    ],
)
def test_ranges(e: Expr, expected: tuple[int, int]) -> None:
    assert RANGES.of(e) == expected


def test_a_scope_has_more_symbols() -> None:
    inner = RANGES.loop("k", LANE, const(40))
    assert inner.of(sym("k")) == (0, 39)
    assert inner.of(LANE) == RANGES.of(LANE)
    assert RANGES.of(sym("k")) == (-UNKNOWN, UNKNOWN)
    assert RANGES.below(LANE + 1) == (0, 31)
    assert RANGES.child({"i": (5, 6)}).of(LANE * 2) == (10, 12)


def test_every_value_on_the_way_fits() -> None:
    assert RANGES.fits(LANE * 67_000_000)
    assert not RANGES.fits(LANE * 70_000_000)
    assert not RANGES.fits(LANE * 70_000_000 // (N + 1000))  # the quotient would
    big = IntegerRanges({"a": (0, 2**30 - 1), "b": (0, 2**30 - 1)})
    assert big.fits(sym("a") + sym("b") - 1)  # in any order
    assert not big.fits(sym("a") + sym("b") * 2 - 1)
    assert RANGES.fits(N) is False


def test_a_kernel_knows_its_extents_and_indices() -> None:
    ring = parse_kernel(load("ring"))
    assert kernel_ranges(ring).of(sym("threadIdx.x")) == (0, 31)
    assert kernel_ranges(ring).of(sym("threadIdx.y")) == (0, 1)
    assert kernel_ranges(ring, {"N": 7}).of(sym("N")) == (7, 7)
    assert cursor_ranges(CursorInit("c", 4, 0, 0)) == {"c.slot": (0, 3), "c.parity": (0, 1), "c.phase": (0, INT32[1] - 1)}


def test_extents_decide_whether_32_bits_do() -> None:
    ring = parse_kernel(load("ring"))
    assert fits(ring, {"N": 1 << 20})
    assert not fits(ring, {"N": 1 << 27})
    large = kernel("y[threadIdx.x] = copy(x[3000000*N])", "DIM N")
    assert fits(large, {"N": 100})
    assert not fits(large, {"N": 1000})


def test_a_loop_passes_its_end_by_a_step() -> None:
    # in 32 bits, its variable would be negative where the loop ends, and the loop would never end
    strided = kernel("FOR i in 0..N step 1000:\n  y[0] = copy(x[i])", "DIM N")
    assert fits(strided, {"N": 2**31 - 1000})
    assert not fits(strided, {"N": 2**31 - 999})
    assert "long long i = 0" in emit(kernel("FOR i in 0..2147483000 step 1000:\n  y[0] = copy(x[min(i, 4)])")).text


def test_a_product_of_small_matrices_needs_no_64_bit_integers() -> None:
    """Wide indices would cost registers that it does not have."""
    odd = VARIANTS["8 bytes"]
    sizes = {name: n * unit for name, n, unit in zip("MNK", (130, 133, 129), odd.unit, strict=True)}
    fusion = odd.fusion()
    tf.schedulers.matmul(fusion, MatmulConfig(128, 128, stages=3), sizes=sizes)
    assert fits(tf.lower(fusion), sizes)


def test_the_widths_of_integers(golden: Golden) -> None:
    """How often each kernel says ``long long``: as it is chosen for tensors without gaps, and with extents beyond 32 bits."""
    lines: list[str] = []
    for path in sorted([*(ROOT / "tests" / "goldens" / "examples").glob("*.kir"), *(ROOT / "tests" / "kernels").glob("*.kir")]):
        found = parse_kernel(path.read_text(encoding="utf-8"))
        chosen = dense(found)
        counts = [emit(found, variant).text.count("long long") for variant in (chosen, replace(chosen, wide=True))]
        lines.append(f"{counts[0]:4} {counts[1]:4}  {path.stem}\n")
    golden.check("cuda/widths.txt", "".join(lines))


@pytest.mark.parametrize(
    ("m", "n", "expected"),
    [(1, 1, True), (0, 0, True), (46340, 46340, True), (46341, 46341, False), (2**31 - 1, 1, True), (2**31, 1, False), (2**20, 2**20, False)],
)
def test_fits(m: int, n: int, expected: bool) -> None:
    assert fits(checked(ADD), {"M": m, "N": n}) is expected


def test_an_index_before_its_guard_must_fit_too() -> None:
    # the last thread of the last tile computes 2**31 before its guard fails
    assert not fits(checked(ADD), {"M": 1, "N": 2**31 - 1})


@pytest.mark.parametrize("build", [pipeline.build, stream.build, nested_groups.build])
def test_rings_do_not_make_integers_wide(build: Callable[[], tf.Fusion]) -> None:
    lowered = tf.lower(build())
    assert fits(lowered, {"M": 8192, "N": 8192})
    assert not fits(lowered, {"M": 2**16, "N": 2**16})


def test_a_kernel_of_known_shapes_has_one_width() -> None:
    big = ADD.replace("  DIM M, N\n", "").replace("M", "65536").replace("N", "65536").replace("KER65536EL", "KERNEL")
    assert dense(checked(big)).wide
    assert "long long" in emit(checked(big)).text
    assert not dense(checked(big.replace("65536", "256"))).wide


def test_limits_are_those_of_the_integers_that_compute() -> None:
    n = sym("n")
    for size, narrow, long in ((1000, True, True), (10**6, False, True), (10**8, False, False)):
        cube = n * n * n // 7
        assert IntegerRanges({"n": (0, size)}).fits(cube) is narrow
        assert IntegerRanges({"n": (0, size)}, limits=INT64).child({}).fits(cube) is long


def test_indices_of_axes_without_elements_need_no_bits() -> None:
    with tf.Fusion("scale") as fusion:
        x = tf.define_tensor([tf.dim("N", min=0), tf.dim("K", min=0)], name="x")
        y = x * 2.0
        fusion.add_output(y)
    y.merge(0, 1)
    y.axis(0).parallelize(tf.ParallelType.BIDx)
    kernel = tf.lower(fusion)
    assert "//K" in str(kernel)
    assert all(fits(kernel, {"N": n, "K": k}) for n in (0, 5) for k in (0, 5))
    assert not fits(kernel, {"N": 1 << 20, "K": 1 << 20})


def test_the_other_arm_of_a_choice_may_divide_by_zero() -> None:
    text = """
KERNEL k(x: float32[64]) -> (y: float32[32])
  DIM M min 0, K
  GRID (1, 1, 1)  BLOCK (32, 1, 1)

y[threadIdx.x] = copy(x[select(M < 1, K*threadIdx.x % 64, threadIdx.x // M % 64)])
"""
    found = tf.parse_kernel(text)
    assert found.verify().is_proved
    assert fits(found, {"M": 0, "K": 1000})
    assert not fits(found, {"M": 0, "K": 2**30 + 1})  # without 64 bits, the index was negative
    without_value = tf.parse_kernel(text.replace("select(M < 1, K*threadIdx.x % 64, threadIdx.x // M % 64)", "(K*threadIdx.x + 1 // M) % 64"))
    assert fits(without_value, {"M": 0, "K": 2**30 + 1})


def test_what_a_search_compares_fits() -> None:
    ranges = IntegerRanges({"t": (0, 1), "a": (0, 7), "G": (0, 2**20), "M": (0, 2**31 - 1)})
    assert ranges.fits(parse_expr("upper_bound(t[k of G + 1]//2 + k, a, 0, M)"))
    assert not ranges.fits(parse_expr("upper_bound(t[k of G + 1] + k, a, 0, M)"))


def test_comparisons_that_hold_for_all_iterations() -> None:
    """8*i + k < 24 with k from 0 to 7 is i <= 2; of 8*i + k < 25 some hold, and an offset counts."""
    ranges = IntegerRanges({"i": (0, 31), "k": (0, 7), "n": (1, 9)})
    i, k, n = LANE, sym("k"), sym("n")
    for cond, wanted in (
        (lt(8 * i + k, 24), le(i, 2)),
        (ge(8 * i + k, 24), le(3, i)),
        (and_(lt(8 * i + k, 24), lt(n, 3)), and_(le(i, 2), lt(n, 3))),
        (lt(8 * i + k + 8 * n, 24), le(i + n, 2)),
        (lt(8 * i + k + 3, 27), le(i, 2)),
    ):
        found = steady(cond, {"k"}, ranges)
        assert found is wanted
        assert all(evaluate(found, v) == evaluate(cond, v) for v in ({"i": a, "k": b, "n": c} for a in range(6) for b in range(8) for c in range(1, 5)))
    for cond in (lt(8 * i + k, 25), lt(3 * i + k, 24), lt(8 * i, 24), lt(i + k, 24), lt(8 * i + 2 * k, 24)):
        assert steady(cond, {"k"}, ranges) is cond
