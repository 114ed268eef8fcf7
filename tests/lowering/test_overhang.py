"""Overhangs of splits, past the end of a tensor and inside it: what pads them, what reads them, and what lands where. All against NumPy, in the ring."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import pytest

import taskfuse as tf
from taskfuse import Fusion, MemoryType, TensorView, atoms
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError, ScheduleError
from taskfuse.ir.scalar import const, sym
from taskfuse.lowering.overhang import end_of, overhanging, told_apart
from tests.lowering.running import numbers, refused
from tests.lowering.stage import BF16, LAYOUTS, NESTS, SHARED, WHO, of
from tests.thinning import pairs

FACTORS = ((12, 2, 5), (11, 2, 5), (13, 3, 2))
"""Extents and factors; ``python -m tests.lowering.test_overhang`` takes all small ones."""


def agree(fusion: Fusion, *shapes: tuple[int, ...], proved: bool = False) -> None:
    """The kernel of a fusion computes in modular values what NumPy does."""
    kernel = tf.lower(fusion)
    args = [numbers(*shape, dtype=tv.dtype.numpy, seed=k) + tv.dtype.numpy.type(9) for k, (shape, tv) in enumerate(zip(shapes, fusion.inputs, strict=True))]
    wanted, found = fusion.evaluate(*args, values=tf.MODULAR), kernel.simulate(*args, seed=1, values=tf.MODULAR)
    assert all((a == b).all() for a, b in zip(found, wanted, strict=True)), f"{fusion}\n{kernel}"
    if proved:
        kernel.verify().require()


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_zeros_land_outside_of_all_elements(layout: str, who: str) -> None:
    """Every two of layout, threads, nest and factors meet: factors take their turn."""
    turn = [*LAYOUTS].index(layout) + [*WHO].index(who)
    check_all(layout, who, ((nest, FACTORS[(k + turn) % len(FACTORS)]) for k, nest in enumerate(NESTS)))


def check_all(layout: str, who: str, cases: Iterable[tuple[str, tuple[int, int, int]]]) -> None:
    """Sums of padded copies under nests of splits."""
    for nest, (n, f, g) in cases:
        try:
            fusion = of(n, nest, f, g, layout, who)
        except ScheduleError:
            continue  # no such allocation domain
        agree(fusion, (n,))


@pytest.mark.parametrize("nest", NESTS)
def test_symbolic_extents_are_proved(nest: str) -> None:
    for layout in ("loops", "padded"):
        fusion = of("N", nest, 2, 5, layout, "serial")
        for n in (1, 7, 12):
            agree(fusion, (n,))
        assert tf.lower(fusion).verify({"N": 12}).is_proved


READERS: dict[str, Callable[[TensorView], TensorView]] = {
    "part": lambda x: tf.sum(x[1:8]),
    "first part": lambda x: tf.sum(x[:8]),
    "backwards": lambda x: tf.sum(tf.flip(x)),
    "every other": lambda x: tf.sum(x[::2]),
    "repeated": lambda x: tf.sum(tf.broadcast_to(tf.expand_dims(x, (1,)), (12, 4)), axis=1),
    "with neighbors": lambda x: tf.sum(tf.pad(x, [(1, 2)])),
    "twice": lambda x: tf.sum(tf.cat([x, x], dim=0)),
    "products": lambda x: tf.sum(x * x),
    "max": tf.max,
    "argmax": tf.argmax,
    "gathered": lambda x: tf.sum(tf.take(x, tf.argmax(x), axis=0) + x),
    "softmax": lambda x: tf.softmax(x, axis=0),
}


@pytest.mark.parametrize("through", [False, True], ids=["directly", "through registers"])
@pytest.mark.parametrize("name", READERS)
def test_readers_find_zeros_only_where_there_are_some(name: str, through: bool) -> None:
    """What is read past the end of a part, or of a factor that lacks an axis, is an element of the tensor."""
    for nest, layout, (f, g) in pairs(("inner", "outer", "merged"), ("loops", "padded"), ((5, 2), (2, 5))):
        agree(of(12, nest, f, g, layout, "serial", READERS[name], through), (12,))


MATHS: list[Callable[[TensorView], TensorView]] = [lambda x: tf.softmax(x, axis=1), lambda x: x / tf.sum(x * x, axis=1, keepdims=True)]


@pytest.mark.parametrize("shape", [(3, 12), (5, 7), (4, 2)])
@pytest.mark.parametrize("math", MATHS, ids=["softmax", "norm"])
@pytest.mark.parametrize("inlined", [False, True])
def test_rows(math: Callable[[TensorView], TensorView], shape: tuple[int, int], inlined: bool) -> None:
    with Fusion("rows") as fusion:
        x = tf.define_tensor(shape, name="x")
        fusion.add_output(math(x))
    x.cache_after().set_memory_type(SHARED)
    for tv in fusion.tensors():
        if not tv.is_input and not fusion.is_view(tv):
            tv.split(0, 2)
            if len(tv.loop) == 3:
                tv.split(2, 5).reorder([0, 2, 1, 3]).axis(2).parallelize(P.TIDy)
            else:
                tv.axis(1).parallelize(P.TIDy)
    if inlined:
        fusion.inline_most()
    agree(fusion, shape)


def test_totals_of_a_padded_tile() -> None:
    with Fusion("totals") as fusion:
        x = tf.define_tensor([12], name="x")
        fusion.add_output(tf.cumsum(x, axis=0))
    tile = x.cache_after()
    tile.set_memory_type(SHARED).split(0, 2).split(1, 5).set_allocation_domain(tf.layouts.padded(1))
    fusion.outputs[0].split(0, 5)
    agree(fusion, (12,), proved=True)


def test_a_digit_inside_keeps_its_own_places() -> None:
    """The rows of a shared loop and columns inside it are digits of one index: the place of an element depends on both."""
    with Fusion("digits") as fusion:
        x = tf.define_tensor([4, 2], name="x")
        fusion.add_output(tf.sum(x, axis=1))
    (out,) = fusion.outputs
    tile = x.cache_after()
    tile.set_memory_type(SHARED).set_allocation_domain(tf.layouts.rowmajor())
    for tv in (tile, out):
        tv.split(1, 4).axis(0).parallelize(P.TIDx)
    tile.axis(2).parallelize(P.TIDx)
    tile.inline_at(1)
    agree(fusion, (4, 2), proved=True)


def test_a_copy_is_done_before_its_source_is_written_again() -> None:
    """A tile in Global memory that each trip overwrites, and that cp.async reads."""
    with Fusion("again") as fusion:
        x = tf.define_tensor([12], name="x")
        fusion.add_output(tf.neg(x))
    tile = x.cache_after()
    copied = tile.cache_after()
    tile.set_memory_type(MemoryType.Global)
    copied.set_memory_type(SHARED).set_atom(atoms.CP_ASYNC, [])
    for tv in (tile, copied, fusion.outputs[0]):
        tv.split(0, 4)
    tile.inline_at(1)
    agree(fusion, (12,), proved=True)


def test_registers_keep_places_for_what_runs_past_the_end() -> None:
    """Registers in the order of the tensor have none: the copy keeps its guard."""
    with Fusion("registers") as fusion:
        x = tf.define_tensor([9], name="x")
        fusion.add_output(tf.sum(x))
    tile = x.cache_after()
    tile.set_memory_type(SHARED)
    row = tile.cache_after()
    for tv in (tile, row, fusion.outputs[0]):
        tv.split(0, 4)
    row.set_allocation_domain(tf.layouts.rowmajor())
    agree(fusion, (9,), proved=True)


# -- tiles of tensor cores ----------------------------------------------------------------------------------------------------------


def by_sixteens(acc: TensorView) -> None:
    acc.split(2, 16).reorder([2, 0, 1, 3])


def by_eights(acc: TensorView) -> None:
    acc.split(2, 8).split(3, 16).reorder([2, 3, 0, 1, 4])


def product(
    columns: slice,
    loads: bool = False,
    tile: Callable[[TensorView], object] = lambda tv: None,
    depth: int = 40,
    step: Callable[[TensorView], object] = by_sixteens,
) -> Fusion:
    """``d = a @ b.T`` by wgmma in steps of 16 of k, of columns of wider tensors; ``loads``: which bulk copies bring."""
    with Fusion("product") as fusion:
        a, b = (tf.define_tensor([64, depth], dtype=BF16, name=name) for name in "ab")
        tiles = [tf.copy(t[:, columns] if loads else t) for t in (a, b)]
        left, right = tiles if loads else [t[:, columns] for t in tiles]
        acc = tf.matmul(left, right.T, dtype=tf.float32)
        d = tf.copy(acc)
        fusion.add_output(d)
    step(acc)
    acc.set_atom(atoms.wgmma(64, 64, 16), (-3, -2, -1))
    for tv in tiles:
        tv.set_memory_type(SHARED)
        if loads:
            tv.split(1, 16).reorder([1, 0, 2]).set_allocation_domain(tf.layouts.swizzled(32))
            tv.set_atom(atoms.TMA_LOAD, (-2, -1)).circular_buffer(2)
            tv.inline_at(1)
        else:
            tv.split(1, 8).reorder([1, 0, 2]).axis(1).parallelize(P.TIDx)
            tile(tv)
    d.fragment((0, 1))
    if loads:
        fusion.group([fusion.task(tiles, name="load"), fusion.task([acc, d], name="mma")], name="roles").parallelize(P.TIDy)
    return fusion


HELP = "help: copy its operands (cache_after) to Shared memory, or declare the extent with tf.dim(..., multiple_of=...)"
UNFILLED = "cannot lower tv{0}: its atom computes whole tiles, the reduction axis of 40 may end inside one, and tv{1} is not filled with 0 there\n" + HELP


def pad_tiles(tv: TensorView) -> None:
    tv.set_allocation_domain(tf.allocation(tv).pad(0, 1))


REFUSED = {
    "bulk copies of a part": (lambda: product(slice(8, 48), loads=True, depth=64), UNFILLED.format(7, 3)),
    "a part of a tile": (lambda: product(slice(8, 48), depth=64), UNFILLED.format(7, 2)),
    "a tile inside the sum": (
        lambda: product(slice(None), depth=32, step=by_eights),
        "cannot lower tv7: its atom computes whole tiles, and its tile overhangs an axis of 8 inside the sum: elements would be added twice\n"
        "help: split by divisors, or split the reduction axis itself",
    ),
    "places that nobody writes": (
        lambda: product(slice(None), tile=pad_tiles),
        "cannot lower tv7: its atom computes whole tiles, and past the end of an axis of 40 tv2 is not provably written\n"
        "help: split by divisors, or split tv2 alike, so that its tiles are whole, too",
    ),
    "no places": (
        lambda: product(slice(None)),
        "cannot lower tv7: its atom computes whole tiles, and may read tv2 past the end of its storage: v2//8 + 2*i6 is not provably below 5\n"
        "help: split by divisors, or split tv2 alike, so that its tiles are whole, too",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tiles_that_would_add_more_than_zeros_are_refused(name: str) -> None:
    build, text = REFUSED[name]
    assert refused(lambda: tf.lower(build()), LoweringError) == text


@pytest.mark.parametrize("loads", [False, True])
def test_tiles_of_parts_that_end_with_a_tile(loads: bool) -> None:
    agree(product(slice(8, 40), loads, depth=64), (64, 64), (64, 64), proved=True)


# -- what overhangs where -----------------------------------------------------------------------------------------------------------


def test_ends() -> None:
    with Fusion("ends"):
        y = tf.exp(tf.define_tensor([7, 12], name="x"))
    rows, columns = y.root
    y.split(0, 2).split(2, 5)  # [4, 2, 3, 5]
    outer, inner, tiles, inside = y.loop
    assert [end_of(y, a) for a in (rows, outer, inner, columns, tiles, inside)] == [rows, rows, None, columns, columns, None]
    y.merge(1).merge(0)  # [4, 2 * 3, 5], then [24, 5]
    assert [end_of(y, a) for a in y.loop] == [rows, None]
    y.split(1, 3).split(0, 7)
    assert set(overhanging(y, y.fusion.facts()).values()) == {rows, columns}


def test_a_place_tells_only_what_is_not_lost() -> None:
    """Of 2 * outer + inner with inner up to 4, either cannot be told; beside each other, both are."""
    with Fusion("places"):
        y = tf.exp(tf.define_tensor([12], name="x"))
    (whole,) = y.root
    y.split(0, 2).split(1, 5)
    outer, middle, inner = y.loop
    facts = y.fusion.facts().with_range("o", 0, 5).with_range("i", 0, 4)
    values = {outer: sym("o"), middle: const(0), inner: sym("i"), whole: 2 * sym("o") + sym("i")}
    assert whole in told_apart(y, y.loop, values, facts)
    assert told_apart(y, (whole,), values, facts) == {whole}


if __name__ == "__main__":
    for laid, by in itertools.product(LAYOUTS, WHO):
        check_all(laid, by, itertools.product(NESTS, itertools.product(range(1, 14), range(1, 7), range(1, 7))))
        print(laid, by)
