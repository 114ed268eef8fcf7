"""Code in registers that runs for whole tiles: no guards, clamped reads, and where neither may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

import taskfuse as tf
from taskfuse.check import Verdict
from taskfuse.ir.scalar import minimum, sym
from taskfuse.ir.scalar.expr import Min
from taskfuse.kir.nodes import Stmt, VectorCopy
from taskfuse.kir.walk import map_stmts
from taskfuse.schedulers import MatmulConfig
from tests.schedulers.products import Product
from tests.schedulers.scaled import ONE, symbolic


def consumer(fusion: tf.Fusion, config: MatmulConfig = ONE) -> list[str]:
    """The lines of the role that multiplies."""
    tf.schedulers.matmul(fusion, config)
    return [line.strip() for line in str(tf.lower(fusion)).split("# consumer")[1].splitlines()]


@pytest.mark.parametrize("form", ["1d2d", "1d1d", "bulk"])
def test_sums_of_tiles_have_no_guards(form: str) -> None:
    lines = consumer(symbolic(form))
    assert sum("fma(" in line for line in lines) == 1
    assert [line for line in lines if line.startswith("IF ")] == ["IF threadIdx.x % 32 == 0:"] * (1 + (form != "1d2d")) + ["IF threadIdx.x == 0:"]


def test_reads_are_clamped_only_where_they_may_lie_past_the_end() -> None:
    reads = [line for line in consumer(symbolic("1d2d")) if "copy(scale_" in line]
    assert [("M - 1" in line, "ceildiv(N, 128) - 1" in line) for line in reads] == [(True, False), (False, True)]
    with tf.Fusion("whole") as fusion:
        a, b = (tf.define_tensor([128, 256], tf.float8_e4m3, name=name) for name in "ab")
        scale_a, scale_b = (tf.define_tensor([128, 2], tf.float32, name=name) for name in ("scale_a", "scale_b"))
        fusion.add_output(tf.scaled_matmul(a, b.T, scale_a, scale_b.T))
    assert not any("min(" in line for line in consumer(fusion) if "copy(scale_" in line)


def test_two_elements_at_once_are_clamped_to_the_last_two() -> None:
    with tf.Fusion("pairs") as fusion:
        a, b = (tf.define_tensor([d, 256], tf.float8_e4m3, name=name) for d, name in (("M", "a"), (tf.dim("N", multiple_of=2), "b")))
        scale_a, scale_b = tf.define_tensor(["M", 2], tf.float32), tf.define_tensor([2, "N"], tf.float32, name="scale_b")
        fusion.add_output(tf.scaled_matmul(a, b.T, scale_a, scale_b))
    (line,) = (line for line in consumer(fusion) if "<- scale_b[" in line)
    assert "N - 2)] width 2" in line


def test_what_is_stored_by_elements_keeps_its_guards() -> None:
    """An output that threads store: its elements exist or are not written."""
    with tf.Fusion("stored") as fusion:
        a, b = (tf.define_tensor([d, 256], tf.float8_e4m3, name=name) for d, name in (("M", "a"), ("N", "b")))
        scales = (tf.define_tensor([], tf.float32), tf.define_tensor([2, 1], tf.float32))
        fusion.add_output(tf.scaled_matmul(a, b.T, *scales))
    assert any(line.startswith("IF ") and "< M" in line and "< N" in line for line in consumer(fusion))


def epilogue(columns: int | str | tf.Dim) -> list[str]:
    """A product, scaled by rows, and a bias along its columns."""
    with tf.Fusion("bias") as fusion:
        a, b = tf.define_tensor(["M", 64], tf.bfloat16, name="a"), tf.define_tensor([columns, 64], tf.bfloat16, name="b")
        rows = tf.expand_dims(tf.define_tensor(["M"], tf.float32, name="rows"), 1)
        bias = tf.define_tensor(["N"], tf.bfloat16, name="bias")
        fusion.add_output(tf.cast(tf.gelu(tf.matmul(a, b.T, dtype=tf.float32) * rows + bias), tf.bfloat16))
    return consumer(fusion, MatmulConfig(64, 64, 64, 1, 2, 0, 2, 2))


def test_what_meets_a_tile_in_registers_has_no_guards() -> None:
    """An epilogue computes on whole tiles; rows and columns past the end are the last ones once more."""
    lines = epilogue(tf.dim("N", multiple_of=8))
    assert [line for line in lines if line.startswith("IF ")] == ["IF threadIdx.x % 32 == 0:", "IF threadIdx.x == 0:"]
    assert ["M - 1)" in line for line in lines if "copy(rows[" in line] == [True]
    assert ["N - 2)] width 2" in line for line in lines if "<- bias[" in line] == [True]


def test_two_elements_that_may_not_both_exist_are_guarded() -> None:
    """Of an odd number of columns the last two at once are not where the last one is."""
    lines = epilogue("N")
    assert any("gelu(" in line for line in lines)
    assert any(line.startswith("IF ") and "< N" in line for line in lines)


def test_what_meets_no_tile_is_guarded() -> None:
    """A sum of inputs in registers, each with elements that exist or are not read."""
    with tf.Fusion("plain") as fusion:
        x, y = (tf.define_tensor(["N"], name=name) for name in "xy")
        fusion.add_output(x + y)
    tf.schedulers.pointwise(fusion)
    assert not any("N - 1)" in line for line in str(tf.lower(fusion)).splitlines())


@pytest.mark.parametrize(("last", "verdict"), [(2, Verdict.PROVED), (4, Verdict.REFUTED), (1, Verdict.REFUTED)])
def test_what_stands_for_columns_that_do_not_exist_is_proved(last: int, verdict: Verdict) -> None:
    """The last two columns do; two columns before them are those of others, too, and one later the second is outside."""
    fusion = Product("bias relu").fusion()
    tf.schedulers.matmul(fusion, MatmulConfig(64, 64, 64, 1, 2, 0, 2, 2))
    kernel = tf.lower(fusion)

    def clamped(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, VectorCopy) or stmt.source.buffer != "bias":
            return stmt
        (index,) = stmt.source.index
        assert isinstance(index, Min)
        assert sym("N") - 2 in index.args
        place = minimum(*(sym("N") - last if e == sym("N") - 2 else e for e in index.args))
        return replace(stmt, source=replace(stmt.source, index=(place,)))

    assert replace(kernel, body=map_stmts(kernel.body, clamped)).verify().verdict is verdict


def test_what_is_asked_of_values_that_meet_again_and_again_is_asked_once() -> None:
    """Of 40 values in a row, each made of the one before along two ways: 2^40 paths from the first to the last."""
    with tf.Fusion("ways") as fusion:
        x = tf.define_tensor([4], name="x")
        y = tf.exp(x)
        for _ in range(40):
            y = tf.sin(y) * y
        fusion.add_output(y)
    x.cache_after()
    fusion.inline_most()
    assert str(tf.lower(fusion)).count("mul(") == 40
