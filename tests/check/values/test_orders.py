"""Tiles in the order of one number: each bad twin is not proved, its right twin is, for all extents."""

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.check import Layer, Verdict
from taskfuse.check.defined import DIVISORS
from taskfuse.check.verify import verify
from taskfuse.ir.scalar import ceildiv, eq, select, sym
from taskfuse.kir import Kernel, parse_kernel

GROUPS = """\
KERNEL copied(x: float32[M, N]) -> (y: float32[M, N])
  DIM M min 1, N min 1
  GRID (3, 1, 1)  BLOCK (32, 4, 1)
  DEFINE y: float32[M, N] = copy(x[i0, i1])

FOR w in 0..{trips}:
  IF {row} < M && {column} < N:
    y[{row}, {column}] = copy(x[{row}, {column}])  ~ value y[{row}, {column}]
"""
ROWS, COLUMNS = "ceildiv(M, 4)", "ceildiv(N, 32)"
PARTS = {
    "trips": "ceildiv({tiles} - blockIdx.x, 3)",
    "tiles": "{rows}*{columns}",
    "number": "(blockIdx.x + 3*w)",
    "rows": ROWS,
    "columns": COLUMNS,
    "group": "({number}//(8*{columns}))",
    "place": "({number} % (8*{columns}))",
    "height": "min({rows} - 8*{group}, 8)",
    "row": "32*{group} + 4*({place} % {height}) + threadIdx.y",
    "column": "32*({place}//{height}) + threadIdx.x",
}
SIZES = [{"M": 1, "N": 1}, {"M": 33, "N": 70}, {"M": 129, "N": 31}]


def ordered(text: str = GROUPS, **changes: str) -> Kernel:
    parts = {**PARTS, **changes}
    while any("{" + name + "}" in text for name in parts):
        for name, part in parts.items():
            text = text.replace("{" + name + "}", part)
    return parse_kernel(text)


def gaps(kernel: Kernel) -> list[str]:
    """What is not known of values, or of the divisors that an order has: of an order with none nothing else is asked."""
    return [o.reason for o in kernel.verify().argument if (o.layer is Layer.VALUES or o.subject == DIVISORS) and o.verdict is not Verdict.PROVED]


RIGHT = {
    "down the columns of groups": {},
    "groups of another height": {
        "group": "({number}//(5*{columns}))",
        "place": "({number} % (5*{columns}))",
        "height": "min({rows} - 5*{group}, 5)",
        "row": "20*{group} + 4*({place} % {height}) + threadIdx.y",
    },
    "along the rows of groups of columns": {
        "group": "({number}//(8*{rows}))",
        "place": "({number} % (8*{rows}))",
        "height": "min({columns} - 8*{group}, 8)",
        "row": "4*({place}//{height}) + threadIdx.y",
        "column": "256*{group} + 32*({place} % {height}) + threadIdx.x",
    },
    "two tiles of a column by two blocks": {
        "trips": "ceildiv({tiles} - blockIdx.x % 2, 2)",
        "number": "(blockIdx.x % 2 + 2*w)",
        "group": "(w//(4*{columns}))",
        "place": "(blockIdx.x + 2*(w % (4*{columns})))",
    },
    "row by row": {"row": "4*({number}//{columns}) + threadIdx.y", "column": "32*({number} % {columns}) + threadIdx.x"},
}


@pytest.mark.parametrize("name", RIGHT)
def test_every_tile_is_visited_once(name: str) -> None:
    text = GROUPS.replace("GRID (3, 1, 1)", "GRID (2, 1, 1)").replace("{trips}", "ceildiv({tiles} - blockIdx.x, 2)") if "two" in name else GROUPS
    kernel = ordered(text, **RIGHT[name])
    kernel.verify().require()
    for sizes in SIZES:
        verify(kernel, sizes).require()


WRONG = {
    "the last group is as high as the others": {"height": "8"},
    "the last group is too high": {"height": "min({rows} - 8*{group} + 1, 8)"},
    "the last group is that of columns": {"height": "min({columns} - 8*{group}, 8)"},
    "groups are cut elsewhere": {"place": "({number} % (4*{columns}))"},
    "groups overlap": {"group": "({number}//(9*{columns}))"},
    "the last tile is left out": {"tiles": "({rows}*{columns} - 1)"},
    "blocks are further apart than there are": {"number": "(blockIdx.x + 4*w)"},
    "some blocks take the same tile": {"number": "(blockIdx.x + 2*w)"},
    "row and column in the same place": {"column": "32*({place} % {height}) + threadIdx.x"},
}


@pytest.mark.parametrize("name", WRONG)
def test_another_order_does_not_visit_each_once(name: str) -> None:
    found = gaps(ordered(**WRONG[name]))
    assert found, name
    assert not verify(ordered(**WRONG[name]), SIZES[1]).is_proved


ROLE = """\
KERNEL copied(x: float32[M, N]) -> (y: float32[M, N])
  DIM M min 1, N min 1
  GRID (3, 1, 1)  BLOCK (32, 6, 1)
  DEFINE y: float32[M, N] = copy(x[i0, i1])

FOR w in 0..{trips}:
  IF threadIdx.y >= {first} && {row} < M && {column} < N && {tile} < {tiles of M}:
    y[{row}, {column}] = copy(x[{row}, {column}])  ~ value y[{row}, {column}]
"""
TILE = "8*{group} + {place} % {height}"
OF_ROLE = {"first": "2", "row": "32*{group} + 4*({place} % {height}) + threadIdx.y - 2", "tile": TILE, "tiles of M": "ceildiv(M, 4)"}


def test_conditions_follow_from_those_on_threads() -> None:
    """That the tile exists follows from its row, as the threads that store begin at its first row."""
    ordered(ROLE, **OF_ROLE).verify().require()


@pytest.mark.parametrize("change", [{"tiles of M": "ceildiv(M, 4) - 1"}, {"tiles of M": "M//4"}, {"first": "3"}, {"tile": f"{TILE} + 1"}])
def test_conditions_that_leave_out_tiles_do_not_follow(change: dict[str, str]) -> None:
    kernel = ordered(ROLE, **OF_ROLE | change)
    assert gaps(kernel)
    assert verify(kernel, SIZES[1]).verdict is Verdict.REFUTED


EMPTY = """\
KERNEL copied(x: float32[4096, 2048]) -> (y: float32[4096, 2048])
  GRID (512, {blocks}, 1)  BLOCK (32, 4, 1)
  DEFINE y: float32[4096, 2048] = copy(x[i0, i1])

FOR w in 0..16:
  FOR v in 0..8:
    y[{row}, {column}] = copy(x[{row}, {column}])  ~ value y[{row}, {column}]
"""


def test_tiles_of_no_blocks_have_no_points() -> None:
    number = "(blockIdx.x + 512*blockIdx.y)"
    changes = {"row": f"32*({number}//4) + 4*v + threadIdx.y", "column": f"512*({number} % 4) + 32*w + threadIdx.x"}
    assert gaps(ordered(EMPTY, blocks="0", **changes)) == ["y may have elements although there are no blocks: 0 is not known to be at least 1"]
    ordered(EMPTY, blocks="1", **changes).verify().require()


DIGITS = """\
KERNEL copied(x: float32[8, 56, 56, 96]) -> (y: float32[8, 56, 56, 96])
  GRID (9408, 1, 1)  BLOCK (256, 1, 1)
  DEFINE y: float32[8, 56, 56, 96] = copy(x[i0, i1, i2, i3])

y[{p}] = copy(x[{p}])  ~ value y[{p}]
"""
LAST = "(256*blockIdx.x + threadIdx.x)//96 % 56, (256*blockIdx.x + threadIdx.x) % 96"


def test_digits_of_a_number_that_threads_have_no_part_in() -> None:
    """Blocks of 256 divide a page of 56 rows of 96 points: its number, and that of its book, are quotients of the block alone."""
    ordered(DIGITS, p=f"blockIdx.x//1176, blockIdx.x//21 % 56, {LAST}").verify().require()
    for wrong in ("blockIdx.x//1176, blockIdx.x//42 % 56", "blockIdx.x//1176, blockIdx.x//21 % 28", "blockIdx.x//588, blockIdx.x//21 % 56"):
        assert not ordered(DIGITS, p=f"{wrong}, {LAST}").verify().is_proved


PAIRS = {
    "trips": "ceildiv({tiles} - blockIdx.x//2, 2)",
    "number": "(blockIdx.x//2 + 2*w)",
    "columns": "ceildiv(N, 64)",
    "group": "(w//(4*{columns}))",
    "place": "(blockIdx.x//2 + 2*(w % (4*{columns})))",
    "column": "64*({place}//{height}) + 32*(blockIdx.x % 2) + threadIdx.x",
}
OTHER_PAIRS = {
    "pairs of other blocks": {"column": "64*({place}//{height}) + 32*(blockIdx.x//2) + threadIdx.x"},
    "one half twice": {"column": "64*({place}//{height}) + threadIdx.x"},
    "the last tile is left out": {"trips": "ceildiv({tiles} - 1 - blockIdx.x//2, 2)"},
}


def test_pairs_of_blocks_take_tiles_together() -> None:
    kernel = ordered(GROUPS.replace("GRID (3", "GRID (4"), **PAIRS)
    kernel.verify().require()
    verify(kernel, SIZES[1]).require()


@pytest.mark.parametrize("name", OTHER_PAIRS)
def test_other_pairs_leave_tiles_out(name: str) -> None:
    kernel = ordered(GROUPS.replace("GRID (3", "GRID (4"), **{**PAIRS, **OTHER_PAIRS[name]})
    assert gaps(kernel)
    assert not verify(kernel, SIZES[1]).is_proved


BATCHES = """\
KERNEL copied(x: float32[B, {m}, {n}]) -> (y: float32[B, {m}, {n}])
  DIM {dims}
  GRID (6, 1, 1)  BLOCK (32, 4, 3)
  DEFINE y: float32[B, {m}, {n}] = copy(x[i0, i1, i2])

IF {who}:
  FOR w in 0..{trips}:
    IF {batch} < B && {row} < {m} && {column} < {n}:
      y[{batch}, {row}, {column}] = copy(x[{batch}, {row}, {column}])  ~ value y[{batch}, {row}, {column}]
"""
FIXED = {
    "m": "32",
    "n": "64",
    "dims": "B min 1",
    "who": "threadIdx.z >= 1",
    "trips": "ceildiv({tiles}*B, 12)",
    "tiles": "16",
    "number": "(blockIdx.x + 12*w + 6*(threadIdx.z - 1))",
    "batch": "{number}//{tiles}",
    "place": "({number} % {tiles})",
    "rows": "8",
    "columns": "2",
    "row": "4*({place}//{columns}) + threadIdx.y",
    "column": "32*({place} % {columns}) + threadIdx.x",
}
SYMBOLIC = {**FIXED, "m": "M", "n": "N", "dims": "B min 1, M min 1, N min 1", "tiles": "({rows}*{columns})", "rows": ROWS, "columns": COLUMNS}
GROUPED = {
    **SYMBOLIC,
    "group": "({place}//(8*{columns}))",
    "height": "min({rows} - 8*{group}, 8)",
    "row": "32*{group} + 4*({place} % (8*{columns}) % {height}) + threadIdx.y",
    "column": "32*(({place} % (8*{columns}))//{height}) + threadIdx.x",
}
THREADS_TAKE_TILES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "of batches": (FIXED, {}),
    "of batches that blocks' numbers divide": (FIXED, {"n": "32", "tiles": "2", "m": "8", "rows": "2", "columns": "1"}),
    "of batches of any size": (SYMBOLIC, {}),
    "of batches in groups of rows": (GROUPED, {}),
    "of one matrix in groups of rows": (
        GROUPED,
        {"trips": "ceildiv({tiles} - blockIdx.x - 6*threadIdx.z + 6, 12)", "place": "{number}", "dims": "B max 1, M min 1, N min 1", "batch": "0"},
    ),
    "to the end alone": (FIXED, {"trips": "ceildiv({tiles}*B - blockIdx.x - 6*threadIdx.z + 6, 12)"}),
    "but not two of them": (FIXED, {"who": "threadIdx.z == 1", "number": "(blockIdx.x + 6*w)", "trips": "ceildiv({tiles}*B, 6)"}),
}
THREADS_TAKE_OTHERS = {
    "one of them does nothing": (FIXED, {"who": "threadIdx.z == 1"}),
    "numbers from 6 on": (FIXED, {"number": "(blockIdx.x + 12*w + 6*threadIdx.z)"}),
    "numbers that overlap": (FIXED, {"number": "(blockIdx.x + 11*w + 6*(threadIdx.z - 1))"}),
    "numbers with gaps": (FIXED, {"number": "(blockIdx.x + 13*w + 6*(threadIdx.z - 1))"}),
    "an incomplete last step": (FIXED, {"trips": "({tiles}*B)//12"}),
    "batches of other tiles": (FIXED, {"batch": "{number}//15"}),
    "digits that leave out some": (FIXED, {"column": "32*({place}//8) + threadIdx.x"}),
    "symbolic batches, an incomplete last step": (SYMBOLIC, {"trips": "({tiles}*B)//12"}),
    "groups of rows in batches, the last too high": (GROUPED, {"height": "min({rows} - 8*{group} + 1, 8)"}),
}


def batches(parts: dict[str, str], changes: dict[str, str]) -> Kernel:
    return ordered(BATCHES, **{**parts, **changes})


@pytest.mark.parametrize("name", THREADS_TAKE_TILES)
def test_threads_of_a_block_take_tiles_in_turn(name: str) -> None:
    kernel = batches(*THREADS_TAKE_TILES[name])
    kernel.verify().require()
    verify(kernel, {e.name: max(e.min, min(3, e.max or 3)) for e in kernel.extents}).require()


@pytest.mark.parametrize("name", THREADS_TAKE_OTHERS)
def test_threads_that_take_other_tiles_are_not_proved(name: str) -> None:
    kernel = batches(*THREADS_TAKE_OTHERS[name])
    assert gaps(kernel), name
    sizes = {"B": 2, "M": 36, "N": 70}
    assert verify(kernel, {e.name: sizes[e.name] for e in kernel.extents}).verdict is Verdict.REFUTED


TURNED = """\
KERNEL k(x: float32[R, 16]) -> (y: float32[R, 16])
  DIM R
  GRID (16*R, 1, 1)  BLOCK (1, 1, 1)
  DEFINE y: float32[R, 16] = neg(x[i0, i1])

y[blockIdx.x//16, {0}] = neg(x[blockIdx.x//16, {0}])  ~ value y[blockIdx.x//16, {0}]
"""
ROW, PLACE = "blockIdx.x//16", "(blockIdx.x % 16)"


@pytest.mark.parametrize(
    ("column", "proved"),
    [
        (f"({ROW} + {PLACE}) % 16", True),
        (f"({ROW} + blockIdx.x) % 16", True),
        (f"(5*({ROW}) - {PLACE}) % 16", True),
        (f"select({ROW} % 2 == 0, {PLACE}, 15 - {PLACE})", True),
        (f"(({ROW} + {PLACE}) % 16 + {ROW}) % 16", True),
        (f"({ROW} + 3*{PLACE}) % 16", False),  # right, and no rule says so; nor of the next
        (f"select({ROW} < 3, ({ROW} + {PLACE}) % 16, 15 - {PLACE})", False),
        (f"({ROW} + 2*{PLACE}) % 16", False),
        (f"({ROW} + {PLACE}) % 15", False),
        (f"({ROW} + {PLACE} + {PLACE}//8) % 16", False),
        (f"select({ROW} % 2 == 0, {PLACE}, 14 - {PLACE} + {PLACE}//15)", False),
        (f"select({PLACE} < 8, {PLACE}, 15 - {PLACE})", False),
        (f"select({ROW} % 2 == 0, {PLACE}, {ROW} % 16)", False),
    ],
)
def test_digits_that_others_shift_around_or_mirror(column: str, proved: bool) -> None:
    """For any number of rows: each column once, by one block."""
    assert parse_kernel(TURNED.format(column)).verify().is_proved is proved


def test_tiles_in_the_order_of_a_snake() -> None:
    with tf.Fusion("snake") as fusion:
        y = tf.neg(tf.define_tensor(["M", "N"], name="x"))
        fusion.add_output(y)
    y.split(1, 4).split(0, 4).reorder([0, 2, 1, 3])
    w, columns = tf.scalar.sym("i0"), ceildiv(sym("N"), 4)
    y.rasterize([0, 1], [w // columns, select(eq(w // columns % 2, 0), w % columns, columns - 1 - w % columns)])
    y.axis(0).parallelize(P.BIDx)
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    text = kernel.text(witness=True)
    assert "ceildiv(N, 4) - blockIdx.x % ceildiv(N, 4) - 1)" in text
    wrong = tf.parse_kernel(text.replace("% ceildiv(N, 4) - 1)", "% ceildiv(N, 4) - 2)"))
    assert not wrong.verify().is_proved
