"""Index maps: under their guards every element is computed exactly once, at the index that the loops say."""

from collections import Counter
from collections.abc import Callable
from itertools import product

import pytest

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.ir.expr import Read
from taskfuse.ir.scalar import Const, const, evaluate, prove, sym
from taskfuse.ir.types import INDEX_TYPES
from taskfuse.lowering.index_maps import IndexMap, has_values
from taskfuse.lowering.plan import base_name
from taskfuse.lowering.state import State
from tests.lowering.stepped import state_after


def one(*extents: int, schedule: Callable[[tf.TensorView], object] = lambda tv: None, math: Callable[[tf.TensorView], tf.TensorView] = tf.neg) -> State:
    with tf.Fusion("f") as fusion:
        y = math(tf.define_tensor(list(extents), name="x"))
        fusion.add_output(y)
    schedule(y)
    return state_after(fusion, "grid-stride")


def computed(state: State, tv: tf.TensorView, index_map: IndexMap) -> Counter[tuple[int, ...]]:
    """How often each element is computed, over all loops, threads and blocks of the launch."""
    symbols: dict[str, int] = {}
    for a, e in state.index_maps.loop_symbols(tv).items():
        if tv.schedule.ptype(a).is_loop:
            symbols[str(e)] = number(a.extent)
    task = state.tree.place[tv]
    for p in INDEX_TYPES:
        symbols[base_name(p, task)] = number(state.ranges.range(task, p).extent)
    found: Counter[tuple[int, ...]] = Counter()
    for point in product(*map(range, symbols.values())):
        at = dict(zip(symbols, point, strict=True))
        if all(evaluate(g, at) for g in index_map.guards):
            found[tuple(int(evaluate(index_map.values[a], at)) for a in tv.root)] += 1
    return found


def number(e: object) -> int:
    assert isinstance(e, Const)
    return e.value


def bound(*ptypes: P) -> Callable[[tf.TensorView], None]:
    def schedule(tv: tf.TensorView) -> None:
        for k, p in enumerate(ptypes):
            tv.axis(k).parallelize(p)

    return schedule


def tails(tv: tf.TensorView) -> None:
    tv.split(1, 4).split(0, 2)
    bound(P.BIDx, P.TIDy, P.Serial, P.TIDx)(tv)


def nested_tails(tv: tf.TensorView) -> None:
    tv.split(1, 4).split(2, 3)


def merged(tv: tf.TensorView) -> None:
    tv.merge(0).split(0, 4)
    bound(P.BIDx, P.TIDx)(tv)


def dealt(tv: tf.TensorView) -> None:
    tv.split(0, 2)
    tv.axis(1).parallelize(P.BIDx)


SCHEDULES: list[Callable[[tf.TensorView], object]] = [lambda tv: None, bound(P.TIDy, P.TIDx), tails, nested_tails, merged, dealt]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_element_once(schedule: Callable[[tf.TensorView], object]) -> None:
    state = one(5, 7, schedule=schedule)
    (tv,) = state.fusion.outputs
    found = computed(state, tv, state.index_maps.of(tv))
    if schedule is dealt:  # trips that do not exist are bounds of the loop: what is left of guards says nothing of them
        found = Counter({at: n for at, n in found.items() if at[0] < 5})
    assert found == Counter(product(range(5), range(7)))


def test_a_split_without_remainder_has_no_guard() -> None:
    state = one(6, 8, schedule=lambda tv: tv.split(1, 4).split(0, 2))
    assert state.index_maps.of(state.fusion.outputs[0]).guards == ()


def test_guards_are_known_inside_and_tails_of_the_tensor_are_told_apart() -> None:
    state = one(5, 7, schedule=nested_tails)
    (tv,) = state.fusion.outputs
    found = state.index_maps.of(tv)
    assert found.tails  # past the end of the tensor
    assert set(found.tails) < set(found.guards)  # one inside, where the inner part repeats elements
    assert all(prove(g, found.facts) for g in found.guards)
    past = found.past_the_end()
    assert set(past.guards) == set(found.guards) - set(found.tails)
    assert not any(prove(g, past.facts) for g in found.tails)
    everywhere = found.unguarded()
    assert everywhere.guards == found.work == ()
    assert not any(prove(g, everywhere.facts) for g in found.guards)


def reader_and_other() -> State:
    """Two outputs of one launch: one on 4 threads, one on 8."""
    with tf.Fusion("f") as fusion:
        a, b = tf.neg(tf.define_tensor([4], name="x")), tf.neg(tf.define_tensor([8], name="y"))
        fusion.add_output(a)
        fusion.add_output(b)
    for tv in (a, b):
        tv.axis(0).parallelize(P.TIDx)
    return state_after(fusion, "grid-stride")


def test_threads_beyond_the_axis_store_nothing() -> None:
    state = reader_and_other()
    first, second = state.fusion.outputs
    index_maps = state.index_maps
    assert [str(g) for g in index_maps.of(first).guards] == ["at.TIDx.t0 < 4"]
    assert index_maps.of(second).guards == ()
    assert computed(state, first, index_maps.of(first)) == Counter(product(range(4)))


def test_what_all_threads_have_is_stored_by_the_first() -> None:
    """One output on 8 threads, one on none: registers are everybody's, memory is written once."""
    with tf.Fusion("f") as fusion:
        a, b = tf.neg(tf.define_tensor([2], name="x")), tf.neg(tf.define_tensor([8], name="y"))
        fusion.add_output(a)
        fusion.add_output(b)
    b.axis(0).parallelize(P.TIDx)
    state = state_after(fusion, "grid-stride")
    first, _ = state.fusion.outputs
    index_maps = state.index_maps
    assert [str(g) for g in index_maps.of(first).guards] == ["at.TIDx.t0 == 0"]
    assert index_maps.variant(first, index_maps.loop_symbols(first), MemoryType.Local).guards == ()


def summed() -> State:
    """Rows on blocks, columns on 8 threads."""

    def schedule(tv: tf.TensorView) -> None:
        tv.split(1, 8)
        bound(P.BIDx, P.Serial, P.TIDx)(tv)

    return one(3, 20, schedule=schedule, math=lambda x: tf.sum(x, 1))


def test_a_reduction_reads_all_its_terms_and_stores_once() -> None:
    state = summed()
    (tv,) = state.fusion.outputs
    index_maps = state.index_maps
    assert computed(state, tv, index_maps.reading(tv)) == Counter(product(range(3), range(20)))
    loops = {a: e for a, e in index_maps.loop_symbols(tv).items() if not a.is_reduction}
    stored = index_maps.variant(tv, loops, MemoryType.Global, outside=True)
    assert [str(g) for g in stored.guards] == ["at.TIDx.t0 == 0"]
    accumulators = index_maps.variant(tv, loops, MemoryType.Local, outside=True)
    assert accumulators.guards == ()


def test_maps_are_made_once_until_they_are_forgotten() -> None:
    state = summed()
    (tv,) = state.fusion.outputs
    index_maps = state.index_maps
    known, reading = index_maps.of(tv), index_maps.reading(tv)
    assert index_maps.of(tv) is known
    assert index_maps.reading(tv) is reading is not known
    index_maps.forget()
    assert index_maps.of(tv) is not known


def test_the_point_of_an_op_map() -> None:
    state = one(5, 7, schedule=tails)
    (tv,) = state.fusion.outputs
    point = state.index_maps.point(tv, state.index_maps.of(tv))
    assert point == {f"i{k}": state.index_maps.of(tv).values[a] for k, a in enumerate(tv.root)}


def test_values_that_a_gather_reads_have_symbols_of_their_statement() -> None:
    with tf.Fusion("f") as fusion:
        x, i = tf.define_tensor([8, 4], name="x"), tf.define_tensor([3], dtype=tf.int64, name="i")
        y = tf.take(x, i, 0)
        fusion.add_output(y)
        z = tf.neg(y)
        fusion.add_output(z)
    state = state_after(fusion, "grid-stride")
    first, second = state.fusion.outputs
    index_maps = state.index_maps
    (symbol,) = index_maps.value_symbols(first)
    assert str(symbol) == f"{first.name}.v0"
    assert index_maps.value_symbols(second) == ()
    assert index_maps.point(first, index_maps.of(first))["v0"] is symbol


def test_an_index_that_depends_on_data() -> None:
    x = one(4, 4).fusion.inputs[0]
    assert has_values(Read(x, (sym("v0"), const(0))))
    assert not has_values(Read(x, (sym("i0"), sym("v"))))
