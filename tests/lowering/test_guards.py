"""Guards of splits with a remainder, of atoms, and of axes that only repeat writes."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError
from taskfuse.ir.atoms import Atom
from taskfuse.ir.axes import Axis, Split
from taskfuse.ir.expr import Update
from taskfuse.ir.scalar import Expr, Facts, lt, prove, sym
from taskfuse.lowering.domains import backward
from taskfuse.lowering.fragments import atom_symbols
from taskfuse.lowering.guards import first_of_others, remainder, with_merged


def rows(*extents: int) -> tuple[tf.Fusion, tf.TensorView]:
    with tf.Fusion("f") as fusion:
        y = tf.neg(tf.define_tensor(list(extents), name="x"))
        fusion.add_output(y)
    return fusion, y


def at(tv: tf.TensorView, facts: Facts) -> tuple[dict[Axis, Expr], dict[Axis, Expr], Facts]:
    """The indices at symbols ``l0``, ``l1``, ... (those of an atom for what it covers), and what is known of them."""
    names = {a: f"l{k}" for k, a in enumerate(tv.loop)} | atom_symbols(tv)
    start: dict[Axis, Expr] = {}
    for a, name in names.items():
        start[a] = sym(name)
        facts = facts.with_range(name, 0, a.extent - 1)
    return start, backward(tv, start), facts


def guard(fusion: tf.Fusion, tv: tf.TensorView, which: int = 0) -> list[str]:
    start, values, facts = at(tv, fusion.facts())
    split = [t for t in tv.schedule.transforms if isinstance(t, Split)][which]
    inside = with_merged(tv, start, values, facts)
    return [str(e) for e in remainder(fusion, tv, split.source, values[split.source], facts, inside)]


def test_a_remainder_is_cut_off() -> None:
    fusion, y = rows(10)
    y.split(0, 4)
    assert guard(fusion, y) == ["4*l0 + l1 < 10"]


def test_what_the_ranges_say_needs_no_guard() -> None:
    fusion, y = rows(12)
    y.split(0, 4)
    assert guard(fusion, y) == []


def test_merged_axes_stay_within_their_extents() -> None:
    """The outer part of a merge is a quotient: with a symbol of its own, the prover sees that a split of it stays inside."""
    fusion, y = rows(4, 6)
    y.merge(0).split(0, 8)
    start, values, facts = at(y, fusion.facts())
    named, ranged = with_merged(y, start, values, facts)
    assert str(named[y.root[0]]) == "merged.0"
    assert prove(lt(named[y.root[0]], 4), ranged)
    same, facts = with_merged(rows(4)[1], {}, {}, Facts())
    assert same == {}


def tile(atom: Atom, size: int, extent: int) -> tuple[tf.Fusion, tf.TensorView]:
    """A copy in tiles of an atom along one axis."""
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([extent], name="x")
        fusion.add_output(tf.neg(x))
    tv = fusion.outputs[0] if atom is atoms.TMA_STORE else x.cache_after()
    (tv.cache_before() if atom is atoms.TMA_STORE else tv).set_memory_type(MemoryType.Shared)
    tv.split(0, size)
    tv.set_atom(atom, (1,))
    return fusion, tv


def test_an_atom_that_asks_for_each_element_is_guarded_for_its_last() -> None:
    fusion, tv = tile(atoms.CP_ASYNC, 4, 10)
    assert guard(fusion, tv) == ["4*l0 + v < 10"]


@pytest.mark.parametrize("atom", [atoms.TMA_LOAD, atoms.TMA_STORE], ids=lambda a: a.name)
def test_the_copy_engine_fills_and_clips_itself(atom: Atom) -> None:
    fusion, tv = tile(atom, 4, 10)
    assert guard(fusion, tv) == []


def halves(atom: Atom) -> tuple[tf.Fusion, tf.TensorView]:
    """[10] in halves of 5 in tiles of 4: a tile of the first half overhangs into the second."""
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([10], name="x")
        fusion.add_output(tf.neg(x))
    tv = x.cache_after() if atom is atoms.TMA_LOAD else fusion.outputs[0]
    (tv if atom is atoms.TMA_LOAD else tv.cache_before()).set_memory_type(MemoryType.Shared)
    tv.split(0, 5).split(1, 4)
    tv.set_atom(atom, (2,))
    return fusion, tv


def test_a_box_that_overhangs_inside_the_tensor() -> None:
    """The engine knows the end of the tensor alone: what it brings too much lands in the tail of the slot; what it stores too much would be another element."""
    assert guard(*halves(atoms.TMA_LOAD), 1) == []
    with pytest.raises(LoweringError, match="clips at the end of the tensor, and its tile overhangs an axis of 5 inside it"):
        guard(*halves(atoms.TMA_STORE), 1)


def product(k: int, inner: int | None = None) -> tuple[tf.Fusion, tf.TensorView]:
    """A product on mma whose k is split by 16, after ``inner``."""
    with tf.Fusion("f") as fusion:
        a, b = tf.define_tensor([16, k], dtype=tf.bfloat16, name="a"), tf.define_tensor([8, k], dtype=tf.bfloat16, name="b")
        c = tf.matmul(a, b.T, dtype=tf.float32)
        fusion.add_output(c)
    tv = c.cache_before()
    if inner is not None:
        tv.split(2, inner).split(3, 16).reorder([2, 3, 0, 1, 4])
    else:
        tv.split(2, 16).reorder([2, 0, 1, 3])
    tv.set_atom(atoms.mma(16, 8, 16), (-3, -2, -1))
    return fusion, tv


def test_an_atom_that_covers_whole_tiles_has_no_guard_but_asks_for_zeros() -> None:
    fusion, tv = product(48)
    assert guard(fusion, tv) == []
    fusion, tv = product(40)
    with pytest.raises(LoweringError, match="the reduction axis of 40 may end inside one, and a is not filled with 0 there") as caught:
        guard(fusion, tv)
    assert caught.value.help == "copy its operands (cache_after) to Shared memory, or declare the extent with tf.dim(..., multiple_of=...)"


def test_a_tile_that_overhangs_inside_the_sum_would_add_elements_twice() -> None:
    fusion, tv = product(48, inner=24)
    with pytest.raises(LoweringError, match="its tile overhangs an axis of 24 inside the sum: elements would be added twice"):
        guard(fusion, tv, 1)


# -- axes that repeat writes ------------------------------------------------------------------------------------------------------------------


def repeated(memory: MemoryType) -> tuple[list[str], frozenset[str]]:
    """``a`` of 4 elements in the loops of its reader [3, 4], both on threads."""
    with tf.Fusion("f") as fusion:
        x, y = tf.define_tensor([4], name="x"), tf.define_tensor([3, 4], name="y")
        a = tf.neg(x)
        b = tf.add(a, y)
        fusion.add_output(b)
    b.merge(0).split(0, 4)
    b.axis(1).parallelize(P.TIDx)
    b.propagate([a])
    tf.parallelize_like(b, [a])
    _, values, facts = at(a, fusion.facts())
    found, again = first_of_others(a, values, memory, facts, ["l0", "l1"])
    return [str(e) for e in found], again


def test_only_the_first_index_of_others_writes_global_memory() -> None:
    assert repeated(MemoryType.Local) == ([], frozenset())
    assert repeated(MemoryType.Shared) == ([], frozenset())
    found, again = repeated(MemoryType.Global)
    assert len(found) == 1
    assert found[0].endswith("== 0")
    assert again == frozenset()


def test_nothing_repeats_what_has_its_own_axes_alone() -> None:
    fusion, y = rows(4, 4)
    _, values, facts = at(y, fusion.facts())
    assert first_of_others(y, values, MemoryType.Global, facts, ["l0", "l1"]) == ([], frozenset())
    assert first_of_others(y, values, None, facts, ["l0", "l1"]) == ([], frozenset())


def test_an_array_that_is_updated_is_stored_and_updated_once_whatever_loops_are_shared() -> None:
    """A loop of others repeats a plain store with the same value; here it would store between updates, or send a point again."""
    with tf.Fusion("sent") as fusion:
        x, t, s = tf.define_tensor([1], name="x"), tf.define_tensor([4], tf.int32, name="t"), tf.define_tensor([4], name="s")
        fusion.add_output(tf.neg(tf.index_put(x, [t], s, True)))
    sent = next(e for e in fusion.exprs() if isinstance(e, Update))
    sent.output.split(0, 4)
    sent.output.propagate([sent.target.tensor], 2)
    fusion.inline_most()
    kernel = tf.lower(fusion)
    assert "FOR i1 in 0..4:\n  IF i1 == 0:\n    tv7[0] = copy(x[0])\n  UPDATE" in str(kernel)
    assert kernel.verify().is_proved
    (found,) = kernel.simulate(np.array([8], np.float32), np.array([0, -1, 3, 0], np.int32), np.array([1, 2, 4, 8], np.float32))
    assert found.tolist() == [-19.0]
