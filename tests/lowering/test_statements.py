"""The statements of one tensor, stage by stage."""

from collections.abc import Callable

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.ir.axes import Axis
from taskfuse.ir.scalar import Expr, prove
from taskfuse.kir.nodes import Choose, Compute, GatherCopy
from taskfuse.kir.operands import Access, Content, Immediate
from taskfuse.lowering.plan import PStmt
from taskfuse.lowering.state import State
from tests.lowering.stepped import state_after


def state(math: Callable[[], tf.TensorView], schedule: Callable[[tf.TensorView], object] = lambda tv: None) -> tuple[State, tf.TensorView]:
    with tf.Fusion("f") as fusion:
        fusion.add_output(math())
    schedule(fusion.outputs[0])
    fusion.inline_most()
    found = state_after(fusion, "rings")
    return found, found.fusion.outputs[0]


def x(*shape: int, dtype: tf.DType = tf.float32, name: str = "x") -> tf.TensorView:
    return tf.define_tensor(list(shape), dtype=dtype, name=name)


def outside(found: State, tv: tf.TensorView) -> dict[Axis, Expr]:
    """The loops outside those of the reduction."""
    return {a: e for a, e in found.index_maps.loop_symbols(tv).items() if not a.is_reduction}


def test_an_elementwise_op() -> None:
    found, tv = state(lambda: x(4, 8) * 2.0)
    (made,) = found.statements.main(tv)
    assert isinstance(made.stmt, Compute)
    assert made.stmt.op.name == "mul"
    assert [str(a.buffer) for a in made.writes] == [tv.name]
    assert [str(a.buffer) for a in made.reads] == ["x"]
    assert [str(e) for e in made.writes[0].index] == [str(e) for e in made.reads[0].index] == ["i0", "i1"]
    assert made.guards == ()


def test_a_comparison_is_computed_in_the_dtype_of_its_operands() -> None:
    found, tv = state(lambda: x(4, dtype=tf.float64) < x(4, dtype=tf.float64, name="y"))
    (made,) = found.statements.main(tv)
    assert isinstance(made.stmt, Compute)
    assert made.stmt.dtype is tf.float64


def test_a_choice_keeps_an_operand_that_nobody_reads_at_an_index_that_exists() -> None:
    """The last of four rows: of the first part it reads nothing, whatever the index."""
    found, tv = state(lambda: tf.cat([x(3, 4), x(1, 4, name="y")], 0)[3:] * 1.0)
    choice = next(e.output for e in found.fusion.exprs() if e.output is not tv)
    (made,) = found.statements.main(choice)
    assert isinstance(made.stmt, Choose)
    assert all(isinstance(c.operand, Access) for c in made.stmt.cases)
    assert len(made.stmt.cases) == 2


def test_a_gather_names_the_values_that_it_reads() -> None:
    found, tv = state(lambda: tf.take(x(8, 4), x(3, dtype=tf.int64, name="i"), 0))
    (made,) = found.statements.main(tv)
    assert isinstance(made.stmt, GatherCopy)
    (value,) = made.stmt.values
    assert value.source.buffer == "i"
    assert str(value.extent) == "8"
    assert [a.buffer for a in made.reads] == ["x", "i"]


def tail(tv: tf.TensorView) -> None:
    tv.split(0, 4)


def test_a_remainder_is_a_guard_and_a_fact() -> None:
    found, tv = state(lambda: tf.neg(x(10)), tail)
    (made,) = found.statements.main(tv)
    assert [str(g) for g in made.guards] == ["4*i0 + i1 < 10"]
    assert prove(made.guards[0], made.facts)


# -- reductions ---------------------------------------------------------------------------------------------------------------------------


def rows(tv: tf.TensorView) -> None:
    tv.axis(0).parallelize(P.BIDx)


def test_a_sum_in_three_stages() -> None:
    found, tv = state(lambda: tf.sum(x(4, 8), 1), rows)
    statements = found.statements
    assert statements.accumulator(tv) == f"{tv.name}.acc"  # an output is not Local
    (start,) = statements.init(tv, outside(found, tv))
    (term,) = statements.main(tv)
    store = statements.store(tv, outside(found, tv))
    assert isinstance(start, PStmt)
    assert [content(s) for s in (start, term, store)] == [Content.START, Content.TERM, Content.VALUE]
    assert isinstance(start.stmt, Compute)
    assert start.stmt.operands == (Immediate(0.0, tf.float32),)
    assert isinstance(term.stmt, Compute)
    assert term.stmt.op.name == "add"
    assert term.stmt.operands[0] == term.stmt.out == start.stmt.out
    assert isinstance(store.stmt, Compute)
    assert store.stmt.operands == (start.stmt.out,)
    assert store.writes[0].buffer == tv.name


def content(s: PStmt) -> Content:
    assert isinstance(s.stmt, Compute)
    assert s.stmt.holds is not None
    return s.stmt.holds.content


def test_a_product_accumulates_by_one_instruction() -> None:
    found, tv = state(lambda: tf.matmul(x(4, 8), x(8, 4, name="y")))
    (term,) = found.statements.main(tv)
    assert isinstance(term.stmt, Compute)
    assert term.stmt.op.name == "fma"
    assert term.stmt.operands[-1] == term.stmt.out
    assert not found.statements.has_term(tv)


def test_sums_of_narrow_floats_are_computed_wide() -> None:
    found, tv = state(lambda: tf.sum(x(4, 8, dtype=tf.bfloat16), 1))
    (term,) = found.statements.main(tv)
    store = found.statements.store(tv, outside(found, tv))
    assert isinstance(term.stmt, Compute)
    assert isinstance(store.stmt, Compute)
    assert (term.stmt.dtype, store.stmt.dtype) == (tf.float32, tf.bfloat16)


def test_a_local_result_is_its_own_accumulator() -> None:
    found, tv = state(lambda: tf.exp(tf.sum(x(4, 8), 1)))
    total = next(e.output for e in found.fusion.exprs() if found.statements.is_reduction(e.output))
    assert found.index_maps.memory[total] is MemoryType.Local
    assert found.statements.accumulator(total) == total.name
    assert not found.statements.is_reduction(tv)


def test_the_largest_begins_with_what_is_smaller_than_all() -> None:
    found, tv = state(lambda: tf.max(x(4, 8), 1))
    (start,) = found.statements.init(tv, outside(found, tv))
    assert isinstance(start, PStmt)
    assert isinstance(start.stmt, Compute)
    (value,) = start.stmt.operands
    assert isinstance(value, Immediate)
    assert value.value == -float("inf")


def test_a_scan_adds_and_stores_every_total() -> None:
    found, tv = state(lambda: tf.cumsum(x(4, 8), 1))
    (start,) = found.statements.init(tv, found.index_maps.loop_symbols(tv))
    step, store = found.statements.main(tv)
    assert isinstance(start, PStmt)
    assert [content(s) for s in (start, step, store)] == [Content.START, Content.TERM, Content.VALUE]
    assert start.writes == step.writes
    assert store.reads == step.writes
    assert [str(e) for e in store.writes[0].index] == ["i0", "i1"]


def test_what_a_copy_reads() -> None:
    found, tv = state(lambda: tf.copy(x(4)))
    assert found.statements.source(tv).name == "x"


def padded(tv: tf.TensorView) -> None:
    """A reader in tiles of 4 of a tile in Shared memory."""
    tile = tv.fusion.inputs[0].cache_after()
    tile.set_memory_type(MemoryType.Shared)
    for t in (tile, tv):
        t.split(0, 4)


def test_a_tile_is_padded_with_zeros_where_it_has_room() -> None:
    with tf.Fusion("f") as fusion:
        fusion.add_output(tf.sum(x(10), 0))
    padded(fusion.outputs[0])
    fusion.inline_most()
    found = state_after(fusion, "rings")
    tile = next(e.output for e in found.fusion.exprs())
    (made,) = found.statements.main(tile)
    assert isinstance(made.stmt, Choose)
    inside, otherwise = made.stmt.cases
    assert isinstance(inside.operand, Access)
    assert otherwise.operand == Immediate(0, tf.float32)
    assert made.guards == ()
