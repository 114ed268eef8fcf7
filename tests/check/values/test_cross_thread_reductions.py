"""Sums of all elements, whose terms threads of many blocks take: each bad twin is not proved, its right twin is."""

from functools import cache

import pytest

import taskfuse as tf
from taskfuse.check import Layer, Verdict
from taskfuse.check.verify import verify
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.testing.maps import difference

SIZES = [{"N": 1, "M": 1}, {"N": 20, "M": 30}, {"N": 3, "M": 9000}, {"N": 1030, "M": 2050}]


@cache
def text() -> str:
    """A sum over both axes, joined across the threads of a block and across 128 blocks."""
    with tf.Fusion("total") as fusion:
        x = tf.define_tensor(["N", "M"], dtype=tf.float32, name="x")
        fusion.add_output(x.sum())
    (kernel,) = tf.compile(fusion, backend="sim").kernels
    return kernel.text(witness=True)


def edited(*changes: tuple[str, str]) -> Kernel:
    made = text()
    for old, new in changes:
        assert old in made, old
        made = made.replace(old, new)
    return parse_kernel(made)


def gaps(kernel: Kernel) -> list[str]:
    return [o.reason for o in kernel.verify().argument if o.layer is Layer.VALUES and o.verdict is not Verdict.PROVED]


def test_merged_axes_in_parts_of_threads_and_blocks() -> None:
    kernel = edited()
    kernel.verify().require()
    for sizes in SIZES:
        verify(kernel, sizes).require()


GUARD = "IF 8192*blockIdx.y + 1048576*i1 + 1024*i2 + threadIdx.x < M*N && "
JOIN = "FOR part.BIDy in 0..128:"
STORE = "  tv1.blocks[blockIdx.y] = copy(tv1.acc)  ~ part tv1\n"
TERM = "~ term tv1[(8192*blockIdx.y + 1048576*i1 + 1024*i2 + threadIdx.x)//M, (8192*blockIdx.y + 1048576*i1 + 1024*i2 + threadIdx.x) % M]"
TWINS = {
    "a block takes no terms": ((GUARD, GUARD + "blockIdx.y < {} && "), "127", "128", "is not visited"),
    "blocks take them in fewer trips": (
        (GUARD, GUARD + "i1 < {} && "),
        "ceildiv(M*N, 1048576) - blockIdx.y//127",
        "ceildiv(M*N, 1048576) + blockIdx.y",
        "- part.BIDy//127 leaves is not known",
    ),
    "the last element is left out": ((GUARD, GUARD.replace("< M*N", "< {}")), "M*N - 1", "M*N", "< M*N - 1 leaves is not known"),
    "a block joins no result": ((JOIN, JOIN.replace("128", "{}")), "127", "128", "is not visited"),
    "a block puts none into the workspace": (
        (STORE, "  IF blockIdx.y < {}:\n  " + STORE),
        "127",
        "128",
        "joined under part.BIDy < 127, which is not known",
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_every_block_takes_its_terms(name: str) -> None:
    (old, new), bad, good, reason = TWINS[name]
    wrong, right = edited((old, new.format(bad))), edited((old, new.format(good)))
    right.verify().require()
    assert any(reason in gap for gap in gaps(wrong)), gaps(wrong)
    for sizes in SIZES[:2]:
        verify(right, sizes).require()


def test_results_are_of_blocks_that_there_are() -> None:
    wrong = edited(("tv1.blocks: float32[128]", "tv1.blocks: float32[129]"), (JOIN, JOIN.replace("128", "129")))
    assert "it takes partial results of blocks that may not exist: blockIdx.y = part.BIDy" in gaps(wrong)
    edited(("tv1.blocks: float32[128]", "tv1.blocks: float32[129]")).verify().require()


def test_quotient_and_remainder_are_by_the_extent_of_their_axis() -> None:
    wrong = edited((TERM, TERM.replace("% M]", "% N]")))
    assert gaps(wrong)


@pytest.mark.parametrize(("place", "is_right"), [("N - 1", False), ("N", True)])
def test_a_later_result_that_may_lie_in_the_same_place_hides_an_older_one(place: str, is_right: bool) -> None:
    kernel = edited(
        ("tv1.blocks: float32[128]", "tv1.blocks: float32[N + 1, 128]"),
        (STORE, STORE.replace("[blockIdx.y", "[0, blockIdx.y")),
        (
            "tv1.acc = copy(0.0)  ~ part tv1\nSYNC grid",
            f"tv1.acc = copy(0.0)  ~ part tv1\nIF threadIdx.x == 0:\n  tv1.blocks[{place}, blockIdx.y] = copy(tv1.acc)  ~ part tv1\nSYNC grid",
        ),
        ("tv1.blocks[part.BIDy", "tv1.blocks[0, part.BIDy"),
    )
    assert gaps(kernel) == ([] if is_right else [f"whether the place that is read at 0 is the one that is written at {place} is not known"])
    assert verify(kernel, {"N": 1, "M": 40}).is_proved is is_right
    assert verify(kernel, {"N": 3, "M": 40}).is_proved


COLUMNS = """\
KERNEL t(x: float32[4, N]) -> (y: float32[4])
  DIM N min 1
  GRID (ceildiv(N, 8), 1, 1)  BLOCK (4, 1, 1)
  LOCAL acc: float32[]
  GLOBAL w: float32[ceildiv(N, 8), 4]
  COUNTER grid0
  DEFINE y: float32[4] over (4, N) at (i0) = reduce add of copy(x[i0, i1]) from 0.0

acc = copy(0.0)  ~ start y
FOR i in 0..8:
  IF 8*blockIdx.x + i < N:
    acc = add(acc, x[threadIdx.x, 8*blockIdx.x + i])  ~ term y[threadIdx.x, 8*blockIdx.x + i]
w[blockIdx.x, threadIdx.x] = copy(acc)  ~ part y
IF {reset}:
  acc = copy(0.0)  ~ part y
SYNC grid grid0, 4*ceildiv(N, 8)
FOR b in {blocks}:
  IF {joins}:
    acc = add(acc, w[{place}, threadIdx.x])  ~ part y
IF blockIdx.x == 0:
  y[threadIdx.x] = copy(acc)  ~ value y[threadIdx.x]
"""
RIGHT = {"reset": "threadIdx.x >= 0", "joins": "threadIdx.x >= 0", "blocks": "0..ceildiv(N, 8)", "place": "b"}
NOT_RIGHT = {
    "the other threads keep what their own block has": (
        {"reset": "threadIdx.x == 0", "joins": "threadIdx.x == 0"},
        "thread 1 reads a result that has no terms",
    ),
    "the other threads have nothing": ({"joins": "threadIdx.x == 0"}, "thread 1 reads a result that has no terms"),
    "its own block twice": ({"reset": "threadIdx.x == 0"}, "it joins the results of all blocks with its own"),
    "fewer blocks the further a thread": ({"joins": "threadIdx.x <= b"}, "under threadIdx.x <= b, which is not known to hold for all of them"),
    "blocks alone that begin anew": ({"reset": "blockIdx.x > N//2"}, "joined under blockIdx.x > N//2"),
    "few blocks": ({"joins": "b < 3"}, "under b < 3, which is not known to hold for all of them"),
    "blocks from the thread on": ({"blocks": "threadIdx.x//3..ceildiv(N, 8)"}, "points along an axis of N are visited"),
    "blocks up to its own": ({"blocks": "0..blockIdx.x + 1"}, "points along an axis of N are visited"),
    "every second block": ({"place": "b//2*2"}, "depends on b"),
}


def test_columns() -> None:
    parse_kernel(COLUMNS.format(**RIGHT)).verify().require()


def test_a_loop_inside_that_of_the_blocks_takes_each_again() -> None:
    step = "  IF {joins}:\n    acc = add("
    assert step in COLUMNS
    again = COLUMNS.replace(step, "  FOR m in 0..2:\n    IF {joins}:\n      acc = add(")
    assert "it joins the results of all blocks with its own" in gaps(parse_kernel(again.format(**RIGHT)))


ELEMENTS = """\
KERNEL t(x: float32[N, 8]) -> (y: float32[8])
  DIM N min 1
  GRID (ceildiv(N, 4), 1, 1)  BLOCK (4, 2, 1)
  LOCAL acc: float32[2]
  GLOBAL w: float32[ceildiv(N, 4) + 1, 2, 4]
  COUNTER grid0
  DEFINE y: float32[8] over (N, 8) at (i1) = reduce add of copy(x[i0, i1]) from 0.0

FOR e in 0..2 UNROLL:
  acc[e] = copy(0.0)  ~ start y
FOR i in 0..4:
  FOR e in 0..2 UNROLL:
    IF 4*blockIdx.x + i < N:
      acc[e] = add(acc[e], x[4*blockIdx.x + i, 4*e + threadIdx.x])  ~ term y[4*blockIdx.x + i, 4*e + threadIdx.x]
FOR e in 0..2 UNROLL:
  IF {leads}:
    w[{stored}] = copy(acc[e])  ~ part y
  acc[e] = copy(0.0)  ~ part y
SYNC grid grid0, 8*ceildiv(N, 4)
FOR b in 0..ceildiv(N, 4):
  FOR e in 0..2 UNROLL:
    {again}
      acc[e] = add(acc[e], w[{read}])  ~ part y
IF blockIdx.x == 0 && threadIdx.y == 0:
  FOR e in 0..2 UNROLL:
    y[4*e + threadIdx.x] = copy(acc[e])  ~ value y[4*e + threadIdx.x]
"""
ONCE = {"leads": "threadIdx.y == 0", "stored": "blockIdx.x, e, threadIdx.x", "read": "b, e, threadIdx.x", "again": "IF threadIdx.y < 2:"}
STORED_ONCE = {
    "by the last": {"leads": "threadIdx.y == 1"},
    "the other way round": {"stored": "blockIdx.x, e, 3 - threadIdx.x", "read": "b, e, 3 - threadIdx.x"},
    "the other elements first": {"stored": "blockIdx.x, 1 - e, threadIdx.x", "read": "b, 1 - e, threadIdx.x"},
    "a place further": {"stored": "blockIdx.x + 1, e, threadIdx.x", "read": "b + 1, e, threadIdx.x"},
}
NOT_STORED_ONCE = {
    "by nobody": ({"leads": "threadIdx.y == 2"}, "reads partial results that were never written"),
    "not for the last column": ({"leads": "threadIdx.y == 0 && threadIdx.x < 3"}, "reads partial results that were never written"),
    "where another column is read": ({"stored": "blockIdx.x, e, 3 - threadIdx.x"}, "has terms of another element"),
    "where the other element is read": ({"read": "b, 1 - e, threadIdx.x"}, "holds joined partial results of another element"),
    "of all columns in one place": ({"stored": "blockIdx.x, e, 0", "read": "b, e, 0"}, "threads 0 and 1 put different partial results in one place"),
    "each taken twice": ({"again": "FOR m in 0..2:"}, "it joins the results of all blocks with its own"),
    "of the block that a thread says": (
        {"leads": "threadIdx.y >= 0", "stored": "blockIdx.x + threadIdx.y, e, threadIdx.x"},
        "the threads whose partial results it takes are unknown",
    ),
}


@pytest.mark.parametrize("name", STORED_ONCE)
def test_one_thread_stores_what_several_have_and_all_read(name: str) -> None:
    kernel = parse_kernel(ELEMENTS.format(**(ONCE | STORED_ONCE[name])))
    kernel.verify().require()
    assert difference(kernel, {"N": 9}, 0) is None


@pytest.mark.parametrize("name", NOT_STORED_ONCE)
def test_who_stores_and_who_reads_agree(name: str) -> None:
    changes, reason = NOT_STORED_ONCE[name]
    found = gaps(parse_kernel(ELEMENTS.format(**(ONCE | changes))))
    assert any(reason in gap for gap in found), found


@pytest.mark.parametrize("name", NOT_RIGHT)
def test_every_thread_has_the_results_of_all_blocks(name: str) -> None:
    changes, reason = NOT_RIGHT[name]
    assert any(reason in gap for gap in gaps(parse_kernel(COLUMNS.format(**(RIGHT | changes)))))


BLOCKS = """\
KERNEL t(a: float32[K]) -> (z: float32[])
  DIM K min 1
  GRID (8, 1, 1)  BLOCK (1, 1, 1)
  LOCAL acc: float32[]
  GLOBAL w: float32[8]
  COUNTER grid0
  DEFINE z: float32[] over (K) at () = reduce add of copy(a[i0]) from 0.0

{start}
FOR k in 0..ceildiv(K, 8):
  IF 8*k + blockIdx.x < K:
    acc = add(acc, a[8*k + blockIdx.x])  ~ term z[8*k + blockIdx.x]
w[blockIdx.x] = copy(acc)  ~ part z
IF {reset}:
  acc = copy(0.0)  ~ part z
SYNC grid grid0, 8
FOR b in 0..8:
  acc = add(acc, w[b])  ~ part z
IF {joins}:
  z[] = copy(acc)  ~ value z[]
"""
START = "acc = copy(0.0)  ~ start z"
BEGINS_ANEW = {  # where an accumulator is reset, and which block stores what it then joins
    "every block": ("blockIdx.x >= 0", "blockIdx.x == 0", ""),
    "the one that stores": ("blockIdx.x == 3", "blockIdx.x == 3", ""),
    "that one and others": ("blockIdx.x < K", "blockIdx.x == 0", ""),
    "another one": ("blockIdx.x == 1", "blockIdx.x == 0", "joined under blockIdx.x == 1"),
    "all others": ("blockIdx.x > 0", "blockIdx.x == 0", "joined under blockIdx.x > 0"),
    "every second one": ("blockIdx.x % 2 == 1", "blockIdx.x == 2", "joined under blockIdx.x % 2 == 1"),
    "the ones in front of the last term's": ("blockIdx.x < K - 1", "blockIdx.x == 0", "joined under blockIdx.x < K - 1"),
}


@pytest.mark.parametrize("name", BEGINS_ANEW)
def test_a_block_that_joins_all_results_has_dropped_its_own(name: str) -> None:
    reset, joins, reason = BEGINS_ANEW[name]
    agrees(parse_kernel(BLOCKS.format(start=START, reset=reset, joins=joins)), reason)


WARP = """\
KERNEL t(a: float32[K]) -> (z: float32[])
  DIM K min 1
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL acc: float32[]
  LOCAL q: float32[]
  DEFINE z: float32[] over (K) at () = reduce add of copy(a[i0]) from 0.0

{start}
FOR k in 0..ceildiv(K, 32):
  IF 32*k + threadIdx.x < K:
    acc = add(acc, a[32*k + threadIdx.x])  ~ term z[32*k + threadIdx.x]
SHUFFLE q <- acc xor 16  ~ part z
acc = add(acc, q)  ~ part z
SHUFFLE q <- acc xor 8  ~ part z
acc = add(acc, q)  ~ part z
SHUFFLE q <- acc xor 4  ~ part z
acc = add(acc, q)  ~ part z
SHUFFLE q <- acc xor 2  ~ part z
acc = add(acc, q)  ~ part z
SHUFFLE q <- acc xor 1  ~ part z
acc = add(acc, q)  ~ part z
IF threadIdx.x == 0:
  z[] = copy(acc)  ~ value z[]
"""
NOT_SET = "not every accumulator is set before its partial results are joined, by every thread and block"
STARTS = {  # {i}: the index of a thread or a block; {n}: how many there are
    "all": (START, ""),
    "under what holds of all": (f"IF {{i}} < K + {{n}} - 1:\n  {START}", ""),
    "these and those": (f"IF {{i}} < K:\n  {START}\nIF {{i}} >= K:\n  {START}", ""),
    "in a loop": (f"FOR j in 0..K:\n  {START}", ""),
    "in a trip of a loop": (f"FOR j in 0..1:\n  IF {{n}}*j + {{i}} < {{n}}:\n    {START}", ""),
    "those that take terms": (f"IF {{i}} < K:\n  {START}", NOT_SET),
    "those that take a term in a loop": (f"FOR j in 0..1:\n  IF {{n}}*j + {{i}} < K:\n    {START}", NOT_SET),
    "half of those that take terms": (f"IF 2*{{i}} < K:\n  {START}", "set before its first term"),
    "half": (f"IF {{i}} < {{n}}//2:\n  {START}", "set before its first term"),
    "in a loop without trips for one": (f"FOR j in 0..K - 1:\n  {START}", "set before its first term"),
    "in a loop without trips for some": (f"FOR j in {{i}}..K:\n  {START}", NOT_SET),
}


@pytest.mark.parametrize("of", ["threads", "blocks"])
@pytest.mark.parametrize("name", STARTS)
def test_whoever_joins_an_accumulator_has_set_it(name: str, of: str) -> None:
    start, reason = STARTS[name]
    text = WARP if of == "threads" else BLOCKS
    start = start.format(i="threadIdx.x" if of == "threads" else "blockIdx.x", n=32 if of == "threads" else 8)
    agrees(parse_kernel(text.format(start=start, reset="blockIdx.x >= 0", joins="blockIdx.x == 0")), reason)


def agrees(kernel: Kernel, reason: str) -> None:
    """The proof says what runs show: nothing else than this is open for all extents, and at some a run is wrong."""
    found = gaps(kernel)
    assert bool(found) is bool(reason), found
    assert all(reason in gap for gap in found), found
    wrong = [sizes for sizes in ({"K": 1}, {"K": 5}, {"K": 40}) if difference(kernel, sizes, 0) is not None]
    assert bool(wrong) is bool(reason)
    for sizes in ({"K": 1}, {"K": 5}, {"K": 40}):
        assert verify(kernel, sizes).is_proved is (sizes not in wrong), sizes


ROWS = """\
KERNEL t(a: float32[R, K]) -> (z: float32[R])
  DIM R min 1
  DIM K min 1
  GRID (ceildiv(R, 4), 1, 1)  BLOCK (2, 4, 4)
  LOCAL acc: float32[]
  LOCAL lane: float32[]
  LOCAL q: float32[]
  DEFINE z: float32[R] over (R, K) at (i0) = reduce add of copy(a[i0, i1]) from 0.0

IF 4*blockIdx.x + threadIdx.z < R:
  IF {starts}:
    acc = copy(0.0)  ~ start z
  FOR k in 0..ceildiv(K, 8):
    IF 8*k + 2*threadIdx.y + threadIdx.x < K:
      acc = add(acc, a[4*blockIdx.x + threadIdx.z, 8*k + 2*threadIdx.y + threadIdx.x])  ~ term z[4*blockIdx.x + threadIdx.z, 8*k + 2*threadIdx.y + threadIdx.x]
lane = copy(0.0)  ~ part z
IF {joins}:
  lane = copy(acc)  ~ part z
SHUFFLE q <- lane xor 1  ~ part z
lane = add(lane, q)  ~ part z
SHUFFLE q <- lane xor 2  ~ part z
lane = add(lane, q)  ~ part z
SHUFFLE q <- lane xor 4  ~ part z
lane = add(lane, q)  ~ part z
IF {joins}:
  acc = copy(lane)  ~ part z
IF 4*blockIdx.x + threadIdx.z < R && threadIdx.x == 0 && threadIdx.y == 0:
  z[4*blockIdx.x + threadIdx.z] = copy(acc)  ~ value z[4*blockIdx.x + threadIdx.z]
"""
ROW = "4*blockIdx.x + threadIdx.z < R"


@pytest.mark.parametrize(
    ("starts", "joins", "reason"),
    [
        ("threadIdx.x >= 0", ROW, ""),
        ("threadIdx.x < K + 1", ROW, ""),
        ("2*threadIdx.y + threadIdx.x < K", ROW, NOT_SET),
        ("threadIdx.x >= 0", "4*blockIdx.x + threadIdx.z <= R", NOT_SET),
    ],
)
def test_rows_that_do_not_exist_bring_the_neutral_element(starts: str, joins: str, reason: str) -> None:
    found = gaps(parse_kernel(ROWS.format(starts=starts, joins=joins)))
    assert bool(found) is bool(reason), found
    assert all(reason in gap for gap in found), found


ONE_ROW = """\
KERNEL t(x: float32[4, N]) -> (y: float32[4])
  DIM N min 1
  GRID (ceildiv(N, 8), 1, 1)  BLOCK (4, 2, 1)
  LOCAL acc: float32[]
  GLOBAL w: float32[ceildiv(N, 8), 4]
  COUNTER grid0
  DEFINE y: float32[4] over (4, N) at (i0) = reduce add of copy(x[i0, i1]) from 0.0

IF {who}:
  acc = copy(0.0)  ~ start y
  FOR i in 0..{trips}:
    IF 8*blockIdx.x + {term} < N:
      acc = add(acc, x[threadIdx.x, 8*blockIdx.x + {term}])  ~ term y[threadIdx.x, 8*blockIdx.x + {term}]
  w[blockIdx.x, threadIdx.x] = copy(acc)  ~ part y
  acc = copy(0.0)  ~ part y
  SYNC grid grid0, {count}*ceildiv(N, 8)
  FOR b in 0..ceildiv(N, 8):
    acc = add(acc, w[b, threadIdx.x])  ~ part y
  IF blockIdx.x == 0 && threadIdx.y == 1:
    y[threadIdx.x] = copy(acc)  ~ value y[threadIdx.x]
"""


def test_a_place_in_a_workspace_is_that_of_the_only_thread_which_writes_there() -> None:
    """The row of threads does not name its place, and is the only one; of two rows with other terms one takes the place of the other."""
    right = parse_kernel(ONE_ROW.format(who="threadIdx.y == 1", trips=8, term="i", count=4))
    right.verify().require()
    wrong = parse_kernel(ONE_ROW.format(who="threadIdx.y >= 0", trips=4, term="(4*threadIdx.y + i)", count=8))
    assert gaps(wrong) == ["threads 0 and 4 put different partial results in one place"]


FROM = """\
KERNEL k(x: float32[N]) -> (y: float32[1])
  DIM N
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL acc: float32[]
  SHARED slots: float32[4] align 16
  DEFINE y: float32[1] over (1, N) at (i0) = reduce {combine} of copy(x[i1]) from {init}

acc = copy({own})  ~ start y
IF threadIdx.x == 0:
  acc = copy({first})  ~ start y
FOR j in 0..ceildiv(N, 4):
  IF 4*j + threadIdx.x < N:
    acc = {combine}(acc, x[4*j + threadIdx.x])  ~ term y[0, 4*j + threadIdx.x]
slots[threadIdx.x] = copy(acc)  ~ part y
SYNC block
IF threadIdx.x == 0:
  acc = {combine}(slots[0], slots[1])  ~ part y
  acc = {combine}(acc, slots[2])  ~ part y
  acc = {combine}(acc, slots[3])  ~ part y
  y[0] = copy(acc)  ~ value y[0]
"""


@pytest.mark.parametrize(("combine", "neutral", "init"), [("add", "0.0", "2.0"), ("mul", "1.0", "2.0"), ("minimum", "inf", "1.0"), ("add", "0.0", "-0.0")])
def test_an_initial_value_that_is_no_neutral_element_comes_once(combine: str, neutral: str, init: str) -> None:
    def made(**values: str) -> Kernel:
        return parse_kernel(FROM.format(combine=combine, **values))

    made(init=neutral, own=neutral, first=neutral).verify().require()
    nobody = made(init=init, own=neutral, first=neutral)
    assert [gap for gap in gaps(nobody) if ("starts with inf in the place of 1.0" if combine == "minimum" else "which no partial result has") in gap]
    assert not nobody.verify({"N": 5}).is_proved
    one = made(init=init, own=neutral, first=init)
    assert one.verify({"N": 5}).is_proved is (init != "-0.0")  # the others begin with 0.0, and -0.0 + 0.0 is 0.0
    every = made(init=init, own=init, first=init)
    assert every.verify().is_proved is (combine == "minimum")  # which may take it any number of times
    assert difference(one, {"N": 5}, 0) is None


IN_ROWS = """\
KERNEL rows(x: int32[N, 8]) -> (y: int64[N])
  DIM N min 1
  GRID (3, 1, 1)  BLOCK (3, N, 1)
  LOCAL y.acc: int64[]
  SHARED y.part: int64[3, N] align 16 @ 0
  GLOBAL y.blocks: int64[3, N]
  COUNTER grid0
  DEFINE y: int64[N] over (N, 8) at (i0) = reduce add of copy.int64(x[i0, i1]) from 0

y.acc = copy(0)  ~ start y
IF blockIdx.x + 3*threadIdx.x < 8:
  y.acc = add(y.acc, x[threadIdx.y, blockIdx.x + 3*threadIdx.x])  ~ term y[threadIdx.y, blockIdx.x + 3*threadIdx.x]
y.part[threadIdx.x, threadIdx.y] = copy(y.acc)  ~ part y
SYNC block
y.acc = copy(0)  ~ part y
FOR k in 0..3:
  y.acc = add(y.acc, y.part[k, threadIdx.y])  ~ part y
IF threadIdx.x == 0:
  y.blocks[blockIdx.x, threadIdx.y] = copy(y.acc)  ~ part y
y.acc = copy(0)  ~ part y
SYNC grid grid0, 9*N
FOR b in 0..3:
  y.acc = add(y.acc, y.blocks[b, threadIdx.y])  ~ part y
IF blockIdx.x == 0 && threadIdx.x == 0:
  y[threadIdx.y] = copy(y.acc)  ~ value y[threadIdx.y]
"""
IN_DIGITS = """\
KERNEL digits(x: int64[N, 8]) -> (y: int8[N])
  DIM N min 1
  GRID (8*N, 1, 1)  BLOCK (1, 1, 1)
  LOCAL y.acc: int8[]
  GLOBAL y.blocks: int8[8*N]
  COUNTER grid0
  DEFINE y: int8[N] over (N, 8) at (i0) = reduce add of copy(x[i0, i1]) from 0

y.acc = copy(0)  ~ start y
y.acc = add(y.acc, x[blockIdx.x//8, blockIdx.x % 8])  ~ term y[blockIdx.x//8, blockIdx.x % 8]
y.blocks[blockIdx.x] = copy(y.acc)  ~ part y
y.acc = copy(0)  ~ part y
SYNC grid grid0, 8*N
FOR b in 0..8:
  y.acc = add(y.acc, y.blocks[blockIdx.x + b - blockIdx.x % 8])  ~ part y
IF blockIdx.x % 8 == 0:
  y[blockIdx.x//8] = copy(y.acc)  ~ value y[blockIdx.x//8]
"""
OF_BLOCKS = {
    "rows of threads": (IN_ROWS, "", "", True),
    "rows of another thread": (IN_ROWS, "y.blocks[b, threadIdx.y]", "y.blocks[b, N - 1 - threadIdx.y]", False),
    "one row": (IN_ROWS, "y.blocks[b, threadIdx.y]", "y.blocks[b, 0]", False),
    "a block is left out": (IN_ROWS, "FOR b in 0..3", "FOR b in 1..3", False),
    "blocks of every thread": (IN_ROWS, "y.blocks[b, threadIdx.y]", "y.blocks[threadIdx.x, threadIdx.y]", False),
    "digits of blocks": (IN_DIGITS, "", "", True),
    "by any block": (IN_DIGITS, "IF blockIdx.x % 8 == 0", "IF blockIdx.x % 8 == 5", True),
    "a digit is left out": (IN_DIGITS, "FOR b in 0..8", "FOR b in 0..7", False),
    "digits of another row": (IN_DIGITS, "blockIdx.x + b - blockIdx.x % 8]", "b]", False),
    "digits of a half": (IN_DIGITS, "blockIdx.x + b - blockIdx.x % 8]", "blockIdx.x + b - blockIdx.x % 4]", False),
}


@pytest.mark.parametrize("name", OF_BLOCKS)
def test_partial_results_of_blocks(name: str) -> None:
    """Who reads the sum has threads of one row of all blocks, or all blocks of one row, where rows are as many as an extent says."""
    text, old, new, right = OF_BLOCKS[name]
    assert old in text
    kernel = parse_kernel(text.replace(old, new) if old else text)
    found = [o.reason for o in kernel.verify().argument if o.verdict is not Verdict.PROVED and o.subject.startswith("y[")]
    assert right == (not found), found
    assert verify(kernel, {"N": 3}).is_proved is right
    if right:
        for n in (1, 2, 5):
            assert difference(kernel, {"N": n}, 1) is None


SHUFFLES = "".join(f"    SHUFFLE peer <- lane xor {m}  ~ part y\n    lane = add(lane, peer)  ~ part y\n" for m in (16, 8, 4, 2, 1))
REGISTERS = f"""\
KERNEL k(x: float32[6, 32]) -> (y: float32[6])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL acc: float32[2, 4]
  LOCAL lane: float32[]
  LOCAL peer: float32[]
  DEFINE y: float32[6] over (6, 32) at (i0) = reduce add of copy(x[i0, i1]) from 0.0

FOR a in 0..2 UNROLL:
  FOR b in 0..4 UNROLL:
    IF 4*a + b < 6:
      acc[a, b] = copy(0.0)  ~ start y
      acc[a, b] = add(acc[a, b], x[4*a + b, threadIdx.x])  ~ term y[4*a + b, threadIdx.x]
    lane = copy(0.0)  ~ part y
    IF 4*a + b < 6:
      lane = copy(acc[a, b])  ~ part y
{SHUFFLES}    IF 4*a + b < 6:
      acc[a, b] = copy(lane)  ~ part y
FOR r in 0..6 UNROLL:
  IF threadIdx.x == 0:
    y[r] = copy(acc[r//4, r % 4])  ~ value y[r]
"""


def test_registers_that_nobody_reads_need_no_joined_result() -> None:
    """Six of eight: the index says which. Without a run of the launch."""
    obligations = list(parse_kernel(REGISTERS).verify().argument)
    assert all(o.verdict is Verdict.PROVED for o in obligations)
    assert not [o for o in obligations if o.subject == "launch"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("acc[a, b] = copy(lane)", "acc[a, b] = copy(peer)"),
        ("acc[r//4, r % 4]", "acc[r//4, (r + 1) % 4]"),
        ("IF 4*a + b < 6:\n      acc[a, b] = copy(lane)", "IF 4*a + b < 5:\n      acc[a, b] = copy(lane)"),
    ],
)
def test_registers_that_are_read_need_one(old: str, new: str) -> None:
    assert old in REGISTERS
    assert parse_kernel(REGISTERS.replace(old, new)).verify().verdict is Verdict.REFUTED
