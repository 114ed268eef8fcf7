"""Loops over reduced axes that end where their terms do, or where nobody reads their result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.check import Verdict
from taskfuse.ir.expr import Reduction
from taskfuse.ir.scalar import Expr, Facts, parse_expr
from taskfuse.lowering.neutral_tails import condition_of_reads, end_of_terms, somewhere, start_of_terms
from taskfuse.lowering.steps import lower

OFFSETS = np.array([0, 3, 3, 7, 10], np.int32)
BoundOfTerms = Callable[[tf.Fusion, Reduction, int], Expr | None]
X = np.arange(10, dtype=np.float32) + 1
SUMS = [6.0, 0.0, 22.0, 27.0]


def ragged(reduce: str = "sum", value: float = 0.0) -> tuple[tf.Fusion, tf.TensorView, tf.TensorView]:
    with tf.Fusion("ragged") as fusion:
        x = tf.define_tensor("M", name="x")
        offsets = tf.table("offsets", "G + 1", high="M")
        rows = tf.jagged_to_padded_dense(x, offsets, "M", value)
        y = tf.sum(rows, 1) if reduce == "sum" else tf.max(rows, 1)
        fusion.add_output(y)
    return fusion, rows, y


def trips(kernel: tf.Kernel) -> list[str]:
    """The bounds of the loops in the text of a kernel."""
    return [line.strip() for line in str(kernel).splitlines() if line.strip().startswith("FOR") and " in 0.." in line]


def test_one_block_for_each_row() -> None:
    fusion, rows, y = ragged()
    for tv in (rows, y):
        tv.axis(0).parallelize(tf.ParallelType.BIDx)
    rows.inline_at(2)
    kernel = tf.lower(fusion)
    (loop,) = trips(kernel)
    assert loop == "FOR i1 in 0..max(clamp(offsets[blockIdx.x + 1 of G + 1], 0, M) - clamp(offsets[blockIdx.x of G + 1], 0, M), 0):"
    assert kernel.verify().is_proved
    assert kernel.simulate(X, OFFSETS)[0].tolist() == SUMS
    assert kernel.simulate(X, np.array([7, -2, 30, 1, 4], np.int32))[0].tolist() == [0.0, float(X.sum()), 0.0, 9.0]


def test_threads_of_different_rows_make_different_trips() -> None:
    fusion, _, _ = ragged()
    tf.schedulers.reduction(fusion)
    kernel = tf.lower(fusion)
    assert any("offsets" in loop for loop in trips(kernel))
    assert kernel.verify().is_proved
    for seed in range(2):
        assert kernel.simulate(X, OFFSETS, seed=seed)[0].tolist() == SUMS


def test_threads_that_wait_for_each_other_make_equally_many() -> None:
    fusion, rows, y = ragged()
    rows.set_memory_type(tf.MemoryType.Shared)
    for tv in (rows, y):
        tv.split(1, 4)
        tv.axis(0).parallelize(tf.ParallelType.TIDx)
    rows.inline_at(2)
    kernel = tf.lower(fusion)
    assert not any("offsets" in loop for loop in trips(kernel))
    assert kernel.verify().is_proved


@pytest.mark.parametrize("value", [1.0, float("-inf")])
def test_terms_that_count_are_taken(value: float) -> None:
    fusion, rows, y = ragged(value=value)
    for tv in (rows, y):
        tv.axis(0).parallelize(tf.ParallelType.BIDx)
    rows.inline_at(2)
    kernel = tf.lower(fusion)
    assert trips(kernel) == ["FOR i1 in 0..M:"]
    assert kernel.verify().is_proved


def test_what_others_read_is_computed_whole() -> None:
    fusion, rows, y = ragged()
    fusion.add_output(rows)
    for tv in (rows, y):
        tv.axis(0).parallelize(tf.ParallelType.BIDx)
    rows.inline_at(2)
    assert "FOR i1 in 0..M:" in trips(lower(fusion))


def test_a_maximum_of_what_begins_below_everything() -> None:
    fusion, rows, y = ragged("max", float("-inf"))
    for tv in (rows, y):
        tv.axis(0).parallelize(tf.ParallelType.BIDx)
    rows.inline_at(2)
    kernel = tf.lower(fusion)
    assert "offsets" in trips(kernel)[0]
    assert kernel.verify().is_proved


def test_a_padded_axis_ends_with_what_is_padded() -> None:
    with tf.Fusion() as fusion:
        x = tf.define_tensor("N", name="x")
        y = tf.sum(tf.pad(x, (0, 5)), 0)
        fusion.add_output(y)
    expr = fusion.definition(y)
    assert isinstance(expr, Reduction)
    assert end_of_terms(fusion, expr, 0) is parse_expr("N")


@pytest.mark.parametrize(("widths", "bound_of_terms", "wanted"), [((0, 5), end_of_terms, "N"), ((5, 0), start_of_terms, "5")])
def test_one_factor_that_is_zero_is_not_enough(
    widths: tuple[int, int], bound_of_terms: Callable[[tf.Fusion, Reduction, int], Expr | None], wanted: str
) -> None:
    with tf.Fusion() as fusion:
        x, w = tf.define_tensor("N", name="x"), tf.define_tensor("N + 5", name="w")
        one = tf.sum(tf.pad(x, widths) * w, 0)
        dot = tf.matmul(tf.pad(x, widths), tf.pad(x, widths))
        fusion.add_output(one, dot)
    for tv, bound in ((one, None), (dot, parse_expr(wanted))):
        expr = next(e for e in fusion.exprs() if isinstance(e, Reduction) and e.output is tv)
        assert bound_of_terms(fusion, expr, len(expr.output.root) - 1) is bound


def test_rows_that_a_table_names_are_not_in_registers() -> None:
    fusion, rows, y = ragged()
    x = fusion.inputs[0]
    held = x.cache_after()
    held.inline_at(0)
    rows.inline_at(2)
    for tv in (rows, y):
        tv.axis(0).parallelize(tf.ParallelType.TIDx)
    kernel = tf.lower(fusion)
    assert "SHARED" in str(kernel)
    assert kernel.simulate(X, OFFSETS)[0].tolist() == SUMS


FACTS = Facts().with_range("i", 0, 7).with_range("j", 0, parse_expr("N - 1"))


@pytest.mark.parametrize(
    ("condition", "known", "relaxed"),
    [
        ("8*b + i < n", "bn", "n - 8*b > 0"),
        ("n <= 8*b + i", "bn", "8*b - n + 7 >= 0"),
        ("8*b + i < n && b < m", "bnm", "n - 8*b > 0 && b < m"),
        ("8*b - j < n", "bnN", "n + N - 8*b - 1 > 0"),
        ("b < n", "bn", "b < n"),
        ("i % 3 < n", "n", "1"),
        ("u < n", "n", "1"),
        ("clamp(t[8*b + i of 64], 0, 9) < n", "bn", "1"),
    ],
)
def test_what_holds_if_a_condition_does_somewhere(condition: str, known: str, relaxed: str) -> None:
    assert somewhere(parse_expr(condition), set(known), FACTS) is parse_expr(relaxed)


def masked(reader: str = "") -> tuple[tf.Fusion, tf.TensorView, tf.TensorView]:
    """A fusion, its product, and the choice between that and zero."""
    with tf.Fusion("masked") as fusion:
        a, b = tf.define_tensor((2, 8, 4), name="a"), tf.define_tensor((2, 4, 3), name="b")
        kept = tf.grouped_matmul_masked(a, b, tf.table("counts", 2, 8))
        fusion.add_output(kept)
        (product,) = (e.output for e in fusion.exprs() if isinstance(e, Reduction))
        if reader:
            fusion.add_output(tf.relu(product) if reader == "another" else product)
    return fusion, product, kept


def test_which_results_nobody_reads() -> None:
    fusion, product, kept = masked()
    assert str(condition_of_reads(fusion, product)) == "i1 < clamp(counts[i0 of 2], 0, 8)"
    assert condition_of_reads(fusion, kept) is None
    for reader in ("another", "the caller"):
        fusion, product, _ = masked(reader)
        assert condition_of_reads(fusion, product) is None


def test_rows_of_padding_take_no_trips() -> None:
    fusion, product, kept = masked()
    for tv in (product, kept):
        tv.axis(0).parallelize(P.BIDx)
        tv.axis(1).parallelize(P.BIDy)
    kernel = tf.lower(fusion)
    trips = "select(blockIdx.y < clamp(counts[blockIdx.x of 2], 0, 8), 4, 0)"
    assert f"0..{trips}" in str(kernel)
    kernel.verify().require()
    fewer = kernel.text(witness=True).replace(trips, trips.replace("blockIdx.y <", "blockIdx.y + 1 <"))
    assert not tf.parse_kernel(fewer).verify().is_proved
    rng = np.random.default_rng(0)
    a, b = rng.integers(-2, 3, (2, 8, 4)).astype(np.float32), rng.integers(-2, 3, (2, 4, 3)).astype(np.float32)
    for counts in ([0, 8], [3, -1], [100, 5]):
        args = a, b, np.array(counts, np.int32)
        assert (kernel.simulate(*args)[0] == fusion.evaluate(*args)[0]).all()


@pytest.mark.parametrize("ptype", [P.BIDx, P.TIDy])
def test_roles_that_share_a_ragged_loop_count_rows_from_their_own_first(ptype: P) -> None:
    """The loads of a row are in other blocks, or threads, than its sum, and make as many trips."""
    with tf.Fusion("rows") as fusion:
        x, offsets = tf.define_tensor([3, 5]), tf.table("o", 4, high=3)
        padded = tf.jagged_to_padded_dense(x, offsets, 3)
        y = tf.sum(padded, axis=1)
        fusion.add_output(y)
    y.propagate([padded])
    for tv in (padded, y):
        tv.axis(0).parallelize(P.BIDx)
    fusion.inline_most()
    fusion.group([fusion.task([padded]), fusion.task([y])]).parallelize(ptype)
    kernel = tf.lower(fusion)
    assert kernel.verify().verdict.value == "proved"
    rows, cuts = np.arange(15, dtype=np.float32).reshape(3, 5), np.array([0, 2, 2, 3], np.int32)
    for seed in range(3):
        assert np.array_equal(kernel.simulate(rows, cuts, seed=seed)[0], [rows[:2].sum(0), np.zeros(5), rows[2]])


@pytest.mark.parametrize("lanes", [2, 4])
def test_joined_sums_that_nobody_reads_take_no_terms(lanes: int) -> None:
    """Lanes join the sum of an element: in loops of half of its terms each, or in one iteration, if a condition holds."""
    fusion, product, kept = masked()
    for tv in (product, kept):
        tv.merge(0).merge(0)
        tv.axis(0).parallelize(P.TIDy)
    product.split(1, lanes)
    product.axis(2).parallelize(P.TIDx)
    fusion.inline_most()
    kernel = tf.lower(fusion)
    kernel.verify().require()
    text, (loop,) = kernel.text(witness=True), [line for line in str(kernel).splitlines() if "FOR i1 in" in line]
    for wrong in (loop.replace("% 8 <", "% 8 + 1 <"), loop.replace("//24 of 2]", "//24 + 1 of 2]")):
        assert wrong != loop
        assert loop in text
        assert not tf.parse_kernel(text.replace(loop, wrong)).verify().is_proved
    rng = np.random.default_rng(0)
    a, b = rng.integers(-2, 3, (2, 8, 4)).astype(np.float32), rng.integers(-2, 3, (2, 4, 3)).astype(np.float32)
    for counts in ([0, 8], [3, -1]):
        args = a, b, np.array(counts, np.int32)
        assert (kernel.simulate(*args)[0] == fusion.evaluate(*args)[0]).all()


def test_products_that_are_read_through_functions_alone() -> None:
    with tf.Fusion("triangle") as fusion:
        a, b = tf.define_tensor((8, 4), name="a"), tf.define_tensor((8, 4), name="b")
        p, q = tf.matmul(a, b.T), tf.matmul(b, a.T)
        both = p + q
        fusion.add_output(tf.tril(both))
    assert str(condition_of_reads(fusion, both)) == str(condition_of_reads(fusion, p)) == str(condition_of_reads(fusion, q)) == "i1 <= i0"
    for tv in (p, q, both, fusion.outputs[0]):
        tv.axis(0).parallelize(P.BIDy)
        tv.axis(1).parallelize(P.BIDx)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert str(kernel).count("0..select(blockIdx.x <= blockIdx.y, 4, 0)") == 2
    rng = np.random.default_rng(0)
    args = [rng.integers(-2, 3, (8, 4)).astype(np.float32) for _ in "ab"]
    assert (kernel.simulate(*args)[0] == fusion.evaluate(*args)[0]).all()
    with fusion:
        fusion.add_output(tf.copy(q))
    assert condition_of_reads(fusion, q) is None
    assert condition_of_reads(fusion, p) is not None


# -- terms that start late ----------------------------------------------------------------------------------------------------------------


def band(length: int | str, width: int, after: int, tile: int) -> tf.Fusion:
    """Sums of the elements of each row around its diagonal, ``width - 1`` before and ``after`` behind it, by tiles of columns, a block for a row."""
    with tf.Fusion("band") as fusion:
        x = tf.define_tensor([length, length], name="x")
        low = tf.triu(x, 1 - width)
        kept = tf.tril(low, after)
        y = tf.sum(kept, axis=1)
        fusion.add_output(y)
    y.split(1, tile)
    y.propagate([low, kept])
    for tv in (low, kept, y):
        tv.axis(0).parallelize(P.BIDx)
    for tv in (low, kept):
        tv.inline_at(3)
    return fusion


@pytest.mark.parametrize(("length", "width", "after", "tile"), [(13, 3, 0, 1), (13, 3, 2, 4), (12, 5, 1, 3), (7, 20, 0, 2), (9, 1, -1, 4), (5, 2, 0, 8)])
def test_loops_begin_where_terms_do(length: int, width: int, after: int, tile: int) -> None:
    """NaN stands in front of the first tile of each row and behind the last one."""
    kernel = tf.lower(band("N", width, after, tile))
    assert kernel.verify().is_proved
    x = np.random.default_rng(0).integers(-8, 8, (length, length)).astype(np.float32)
    i, j = np.mgrid[:length, :length]
    wanted = np.where((j > i - width) & (j <= i + after), x, 0).sum(axis=1)
    first, last = np.maximum(i - width + 1, 0) // tile * tile, -(-(i + after + 1) // tile) * tile
    x[(j < first) | (j >= last)] = np.nan
    assert kernel.simulate(x)[0].tolist() == wanted.tolist()


def test_the_loop_of_a_band_is_as_short_as_the_band() -> None:
    (outer, _) = trips(tf.lower(band(64, 8, 0, 4)))
    assert outer == "FOR i1 in 0..blockIdx.x//4 - max(blockIdx.x - 7, 0)//4 + 1:"


def test_a_tile_too_late_is_refuted() -> None:
    text = tf.lower(band(64, 8, 0, 4)).text(witness=True)
    assert tf.parse_kernel(text).verify().is_proved
    late = tf.parse_kernel(text.replace("max(blockIdx.x - 7, 0)//4", "max(blockIdx.x - 3, 0)//4"))
    assert late.verify().verdict is Verdict.REFUTED


def test_a_scan_in_the_loop_needs_a_start_of_its_own() -> None:
    """A total of all elements in front of a window would be missed."""
    with tf.Fusion("scanned") as fusion:
        x = tf.define_tensor([16, 16], name="x")
        i, j = (tf.iota([16, 16], axis=k) for k in range(2))
        sums = tf.cumsum(x, axis=1)
        y = tf.sum(tf.where(j > i - 4, sums, 0.0), axis=1)
        fusion.add_output(y)
    for tv in fusion.tensors():
        if tv.definition is not None and tv.ndim >= 1:
            tv.axis(0).parallelize(P.BIDx)
            if tv is not y:
                tv.inline_at(2)
    kernel = tf.lower(fusion)
    assert "FOR i1 in 0..16:" in trips(kernel)
    assert kernel.verify().is_proved


def test_trips_of_items_of_work_count_the_threads_of_a_role_once() -> None:
    """Warpgroups that take turns over tiles of a triangle, behind a role of loads: what a tile takes depends on the thread."""
    with tf.Fusion("triangle") as fusion:
        x = tf.define_tensor([64, 64], tf.bfloat16)
        fusion.add_output(tf.cast(tf.tril(tf.matmul(x, x.T, dtype=tf.float32), 0), tf.bfloat16))
    kind = tf.schedulers.MatmulKind.PINGPONG
    tf.schedulers.matmul(fusion, tf.schedulers.MatmulConfig(tile_m=64, tile_n=16, warpgroups=3, stages=2, in_flight=0, blocks=1, kind=kind))
    kernel = tf.lower(fusion)
    assert any("min(3*i0 + threadIdx.y - 1 < 4, 63 - 48*i0 >= 0)" in loop for loop in trips(kernel))
    assert kernel.verify().is_proved
