"""Tiles of ragged rows: stores of the rows that belong to a tile write each row once, if the offsets rise; anything else is refused."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.check import Verdict, verify
from taskfuse.check.rewrites.verify import rewritings
from taskfuse.ir.row_tiles import RowTiles
from taskfuse.ir.scalar import Expr, and_, le, lt, minimum, parse_expr, sym
from taskfuse.kir import parse_kernel

w, i = sym("blockIdx.x"), sym("threadIdx.y")
RACE = "different threads may touch one element in one statement"
UNORDERED = "nothing orders them in one iteration"
PARTS = "it is not known that each element belongs to one part"
FOREIGN = "it may store an element of p that does not belong to y"


def tiles(rows: str = "M", groups: str = "G", size: int = 4, table: str = "t") -> RowTiles:
    return RowTiles(sym(table), parse_expr(groups), parse_expr(rows), size)


def row(of: RowTiles) -> Expr:
    """The row of a thread."""
    return of.start(w) + i


def copied(of: RowTiles, place: Expr | None = None, condition: Expr | None = None, element: str = "blockIdx.x, threadIdx.y") -> str:
    """The store of the rows of a tile, each out of the matrix of its group."""
    at = row(of)
    condition = of.belongs(at, w) if condition is None else condition
    value = f"copy(x[{of.group(w)}, {at}, threadIdx.x])  ~ value p[{element}, threadIdx.x]"
    return f"IF {condition}:\n        y[{at if place is None else place}, threadIdx.x] = {value}"


def loops(of: RowTiles, body: str, blocks: Expr | None = None) -> str:
    """A tile for each block, a row for each threadIdx.y."""
    blocks = of.count if blocks is None else blocks
    return f"""\
FOR blockIdx.x in BIDx{{{blocks}}}:
  FOR threadIdx.y in TIDy{{{of.size}}}:
    FOR threadIdx.x in TIDx{{32}}:
      {body}
"""


def kernel(of: RowTiles | None = None, *bodies: str, condition: Expr | None = None, rising: str = " rising 0..M", blocks: Expr | None = None) -> str:
    """Row m of y is row m of x[g], if m is a row of group g."""
    of = tiles() if of is None else of
    tile, place = sym("i0"), sym("i1")
    here = of.start(tile) + place
    blocks = of.count if blocks is None else blocks
    extents = "".join(f"  DIM {name} min {least}\n" for name, least in (("M", of.size), ("G", 1)) if sym(name) in (of.rows, of.groups))
    text = f"""\
KERNEL k(t: int32[{of.groups + 1}]{rising}, u: int32[{of.groups + 1}]{rising}, x: float32[{of.groups}, {of.rows}, 32]) -> (y: float32[{of.rows}, 32])
{extents}  GRID ({blocks}, 1, 1)  BLOCK (32, {of.size}, 1)
  DEFINE p: float32[{of.count}, {of.size}, 32] = copy(x[{of.group(tile)}, {here}, i2])
  DEFINE y: float32[{of.rows}, 32] = whole p at ({here}, i2) if {of.belongs(here, tile) if condition is None else condition}

"""
    return text + "".join(loops(of, body, blocks) for body in bodies or (copied(of),))


def in_one_thread(text: str) -> str:
    """The same stores by one thread for each column."""
    of = tiles("9", "3") if "GRID (5, 1, 1)" in text else tiles()
    text = text.replace(f"GRID ({of.count}, 1, 1)  BLOCK (32, 4, 1)", "GRID (1, 1, 1)  BLOCK (32, 1, 1)")
    return text.replace(f"BIDx{{{of.count}}}", f"0..{of.count}").replace("TIDy{4}", "0..4").replace("blockIdx.x", "b").replace("threadIdx.y", "i")


def without_values(text: str) -> str:
    return "\n".join(line.split("  ~ ")[0] for line in text.splitlines() if "DEFINE" not in line) + "\n"


def gaps(text: str) -> list[str]:
    """The reasons of what is not proved; without a search for a counterexample."""
    return [o.reason for o in verify(parse_kernel(text)).argument if o.verdict is not Verdict.PROVED]


# -- each row once --------------------------------------------------------------------------------------------------------------------


def test_the_rows_of_each_tile() -> None:
    certificate = verify(parse_kernel(kernel()))
    certificate.require()
    assert "tables hold what callers promise: t, whose elements rise from 0 to M" in str(certificate)
    assert gaps(kernel(tiles("9", "3"), rising=" rising 0..9")) == []
    assert gaps(kernel(tiles(size=2))) == []
    many = kernel(blocks=tiles().count + 5)
    assert RACE in gaps(many)  # numbers behind the last tile stand for others' rows
    assert gaps(many.replace("IF ", f"IF {lt(w, tiles().count)} && ")) == []


@given(st.lists(st.integers(0, 13), max_size=4))
def test_what_it_computes(inner: list[int]) -> None:
    table = [0, *sorted(inner), 13]
    x = np.arange((len(table) - 1) * 13 * 32, dtype=np.float32).reshape(-1, 13, 32)
    t = np.array(table, np.int32)
    found = parse_kernel(kernel()).simulate(t, t, x)[0]
    assert (found == np.concatenate([x[g, start:end] for g, (start, end) in enumerate(pairwise(table))])).all()


@pytest.mark.parametrize("table", [[9, 5, 3, 0], [-7, 2, -1, 4], [0, 2**31 - 1, -(2**31), 9], [4, 4, 4, 4]])
def test_no_table_leads_outside(table: list[int]) -> None:
    """Offsets that do not keep the promise give other rows, or none; no access leaves its tensor."""
    head, body = in_one_thread(without_values(kernel(tiles("9", "3"), rising=" rising 0..9"))).split("FOR b", 1)
    cleared = "FOR b in 0..9:\n  y[b, threadIdx.x] = copy(0.0)\n"
    t = np.array(table, np.int32)
    parse_kernel(f"{head}{cleared}FOR b{body}").simulate(t, t, np.zeros((3, 9, 32), np.float32))


# -- what is refused ------------------------------------------------------------------------------------------------------------------

T, AT = tiles(), row(tiles())
U = tiles(table="u")


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (lt(AT, T.end(w)), RACE),
        (le(T.first(w), AT), RACE),
        (and_(le(T.first(w) - 1, AT), lt(AT, T.end(w))), RACE),
        (and_(le(T.first(w), AT), lt(AT, T.end(w) + 1)), RACE),
        (and_(le(T.offset(T.group(w)), AT), lt(AT, T.end(w))), RACE),
        (T.belongs(AT, w + 1), RACE),
        (U.belongs(AT, w), RACE),
        (tiles(size=3).belongs(AT, w), RACE),
        (and_(le(T.first(w) + 1, AT), lt(AT, T.end(w))), "which points "),
        (and_(le(T.first(w), AT), lt(AT, T.end(w) - 1)), "which points "),
    ],
)
def test_other_guards(condition: Expr, reason: str) -> None:
    assert any(found.startswith(reason) for found in gaps(kernel(T, copied(T, condition=condition))))


@pytest.mark.parametrize(
    ("which", "element", "reason"),
    [
        ("threadIdx.z >= 1", "threadIdx.y + 8*threadIdx.z - 8", ""),
        ("threadIdx.z >= 1", "threadIdx.y + 8*threadIdx.z", "p is never stored"),
        ("threadIdx.z < 2", "threadIdx.y + 8*threadIdx.z", RACE),
    ],
)
def test_rows_that_a_condition_gives_to_some_threads(which: str, element: str, reason: str) -> None:
    text = kernel(T, copied(T, condition=and_(parse_expr(which), T.belongs(AT, w)), element=f"blockIdx.x, {element}"))
    found = gaps(text.replace("BLOCK (32, 4, 1)", "BLOCK (32, 4, 2)"))
    assert reason in found if reason else not found


def test_other_places() -> None:
    assert RACE in gaps(kernel(T, copied(T, place=minimum(AT + 1, T.rows - 1))))
    assert RACE in gaps(kernel(T, copied(T, place=T.first(w) + i)))
    assert any("of p" in found for found in gaps(kernel(T, copied(T, element="blockIdx.x + 1, threadIdx.y"))))
    fewer = gaps(kernel(blocks=T.count - 1))
    assert fewer == ["only M//4 + G - 1 points along an axis of M//4 + G are visited"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("]//4,", "]//4 + k,"),
        ("]//4,", "]//4 + 2*k,"),
        ("]//4,", "]//2,"),
        (", 0, M)", ", 0, M - 1)"),
        ("- M//4, 0)", "- M//4, 1)"),
        ("blockIdx.x*G", "blockIdx.x"),
    ],
)
def test_other_searches(old: str, new: str) -> None:
    text = kernel()
    assert old in text
    assert RACE in gaps(text.replace(old, new))


@pytest.mark.parametrize("rising", ["", " rising 1..M", " rising 0..M + 1", " rising 0..G"])
def test_tables_that_promise_something_else(rising: str) -> None:
    found = gaps(kernel(rising=rising))
    assert RACE in found


def test_a_second_store() -> None:
    again = copied(T)
    assert gaps(kernel(T, again, again)) == []
    turned = copied(T).replace("threadIdx.y", "(3 - threadIdx.y)")
    assert UNORDERED in gaps(kernel(T, again, turned))
    following = copied(T).replace("blockIdx.x", "(blockIdx.x + 1)")
    assert UNORDERED in gaps(kernel(T, again, following))


@pytest.mark.parametrize("other", [U, tiles(size=3)])
def test_a_second_store_by_other_tiles(other: RowTiles) -> None:
    """Each store alone writes each row once, but different threads do."""
    text = kernel(T, copied(T), copied(other))
    assert set(gaps(without_values(text))) & {RACE, UNORDERED, "race: nothing orders a write and a write of one element"}


@pytest.mark.parametrize("guard", ["", "first", "end"])
def test_one_thread_stores_no_row_of_another_tile(guard: str) -> None:
    """Where one thread makes all stores nothing races, and the last one of a row would be a wrong one."""
    text = in_one_thread(kernel())
    assert gaps(text) == []
    b = sym("b")
    at = T.start(b) + sym("i")
    left = {"": le(0, b), "first": le(T.first(b), at), "end": lt(at, T.end(b))}[guard]
    assert f"IF {T.belongs(at, b)}:" in text
    assert gaps(text.replace(f"IF {T.belongs(at, b)}:", f"IF {left}:")) == [FOREIGN]


TILE = sym("i0")
HERE = T.start(TILE) + sym("i1")


@pytest.mark.parametrize(
    "condition",
    [
        le(T.first(TILE), HERE),
        lt(HERE, T.end(TILE)),
        and_(le(T.first(TILE), HERE), lt(HERE, T.end(TILE) - 1)),
        T.belongs(HERE, TILE + 1),
        U.belongs(HERE, TILE),
    ],
)
def test_parts_that_are_no_tiles(condition: Expr) -> None:
    assert PARTS in gaps(kernel(condition=condition))


def test_shapes_that_are_no_tiles() -> None:
    text = kernel(tiles("9", "3"), rising=" rising 0..9")
    for shape in ("5, 0, 32", "5, 3, 32", "4, 4, 32", "6, 4, 32"):
        assert PARTS in gaps(text.replace("p: float32[5, 4, 32]", f"p: float32[{shape}]"))
    bare = "\n".join(line.split(" if ")[0] if "whole" in line else line for line in text.splitlines()) + "\n"
    assert PARTS in gaps(bare)


# -- kernels of schedules -------------------------------------------------------------------------------------------------------------


def product(rows: int | tf.Dim, config: tf.schedulers.MatmulConfig | None = None) -> tf.Kernel:
    with tf.Fusion("grouped") as fusion:
        a = tf.define_tensor((rows, 64), dtype=tf.bfloat16, name="a")
        b = tf.define_tensor((4, 64, 64), dtype=tf.bfloat16, name="b")
        fusion.add_output(tf.grouped_matmul(a, b, tf.table("offsets", 5, a.shape[0], rising=True)))
    tf.schedulers.matmul(fusion, config)
    return tf.lower(fusion)


@pytest.mark.parametrize("kind", [tf.schedulers.MatmulKind.COOPERATIVE, tf.schedulers.MatmulKind.PINGPONG])
@pytest.mark.parametrize("rows", [150, tf.dim("M", min=128)])
def test_products_of_groups(rows: int | tf.Dim, kind: tf.schedulers.MatmulKind) -> None:
    found = product(rows, tf.schedulers.MatmulConfig(128 if kind is tf.schedulers.MatmulKind.COOPERATIVE else 64, 64, stages=3, blocks=4, kind=kind))
    assert gaps(found.text(witness=True)) == []


# -- rows of tiles, as they were written ---------------------------------------------------------------------------------------------------


def written(of: RowTiles, tile: Expr, place: Expr, text: str | None = None) -> tf.Kernel:
    """The kernel of some tiles, in whose original math row m was element ``place`` of tile ``tile``, over ``i0``."""
    shape = f"float32[{of.count}, {of.size}, 32]"
    lines = [
        f"  WRITTEN p: {shape} = copy(x[{of.group(sym('i0'))}, {of.start(sym('i0')) + sym('i1')}, i2])",
        f"  WRITTEN y: float32[{of.rows}, 32] = copy(p[{tile}, {place}, i1])",
    ]
    head, body = (kernel(of, rising=f" rising 0..{of.rows}") if text is None else text).split("\n\n", 1)
    return parse_kernel("\n".join([head, *lines]) + "\n\n" + body)


@pytest.mark.parametrize("of", [tiles("9", "3"), tiles(), tiles("M", "2", 8)])
def test_rows_are_those_of_their_tiles(of: RowTiles) -> None:
    m = sym("i0")
    certificate = verify(written(of, of.tile(m), of.place(m)))
    assert certificate.verdict is Verdict.PROVED
    assert not any("what was written" in a for a in certificate.assumptions)


def test_rows_of_others_are_refuted() -> None:
    """The next row or tile, places in tiles of other sizes; the tiles of another table are not proved (a run may draw two equal tables)."""
    of, m = tiles("9", "3"), sym("i0")
    others, larger = tiles("9", "3", table="u"), tiles("9", "3", 5)
    faults = [
        (of.tile(m), minimum(of.place(m) + 1, 3)),
        (minimum(of.tile(m) + 1, of.count - 1), of.place(m)),
        (of.tile(m), minimum(larger.place(m), 3)),
        (of.tile(m), of.tile(m) % 4),
    ]
    found = [rewritings(written(of, *fault)) for fault in faults]
    assert [[o.verdict for o in f.obligations] for f in found] == [[Verdict.REFUTED]] * len(faults)
    for fault in ((others.tile(m), of.place(m)), (of.tile(m), others.place(m))):
        assert not any(o.verdict is Verdict.PROVED for o in rewritings(written(of, *fault)).obligations)


def test_parts_of_other_rows_are_refuted() -> None:
    of, m, w0, i0 = tiles("9", "3"), sym("i0"), sym("i0"), sym("i1")
    here = of.start(w0) + i0
    for old, new in ((f"{here}, i2]", f"{minimum(here + 1, 8)}, i2]"), (f"x[{of.group(w0)}", f"x[{minimum(of.group(w0) + 1, 2)}")):
        text = kernel(of, rising=" rising 0..9")
        line = next(line for line in text.split("\n") if "DEFINE p" in line)
        assert old in line
        found = rewritings(written(of, of.tile(m), of.place(m), text.replace(line, line.replace(old, new))))
        assert [o.verdict for o in found.obligations] == [Verdict.REFUTED]


def test_rows_of_tables_that_do_not_rise_are_not_proved() -> None:
    of, m = tiles("9", "3"), sym("i0")
    found = rewritings(written(of, of.tile(m), of.place(m), kernel(of, rising="")))
    assert not any(o.verdict is Verdict.PROVED for o in found.obligations)
