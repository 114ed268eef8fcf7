"""Outputs are covered: every element is stored at its own index; each bad twin leaves some out."""

import re

import pytest

import taskfuse as tf
from taskfuse.check import Layer, Verdict

ROWS = """\
KERNEL k(x: float32[N, 8], z: float32[N, N]) -> (y: float32[N, 8], d: float32[N, N])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  DEFINE y: float32[N, 8] = neg(x[i0, i1])
  DEFINE d: float32[N, N] = exp(z[i0, i1])

FOR i in 0..N:
  FOR j in 0..2:
    y[i, 4*j + threadIdx.x] = neg(x[i, 4*j + threadIdx.x])  ~ value y[i, 4*j + threadIdx.x]
FOR r in 0..N:
  FOR c in 0..N:
    IF threadIdx.x == 0:
      d[r, c] = exp(z[r, c])  ~ value d[r, c]
"""


def gaps(text: str) -> list[str]:
    """What the proof lacks of values."""
    kernel = tf.parse_kernel(text)
    return [o.reason for o in kernel.verify().argument if o.layer is Layer.VALUES and o.verdict is not Verdict.PROVED]


def test_every_element_is_stored() -> None:
    tf.parse_kernel(ROWS).verify().require()


BAD = {
    "a first value that depends on the thread": ("FOR j in 0..2", "FOR j in threadIdx.x//3..2", r"only 2 - threadIdx.x//3|is not visited"),
    "one that is an extent": ("FOR j in 0..2", "FOR j in min(N, 2) - 1..2", "is not a digit of a point"),
    "one that is another loop": ("FOR j in 0..2", "FOR j in min(i, 1)..2", r"which points min\(i, 1\) <= j leaves"),
    "a last value that depends on the thread": ("FOR j in 0..2", "FOR j in 0..2 - threadIdx.x//3", "is not visited"),
    "the diagonal": ("d[r, c] = exp(z[r, c])  ~ value d[r, c]", "d[r, r] = exp(z[r, r])  ~ value d[r, r]", "r moves along several axes at once"),
    "a part of the threads": ("IF threadIdx.x == 0", "IF threadIdx.x == 0 && r < N - 1", r"only N - 1 points"),
    "elsewhere": ("d[r, c] = exp(z[r, c])  ~ value d[r, c]", "d[c, r] = exp(z[r, c])  ~ value d[r, c]", "at index c of d on axis 0"),
    "another function": ("d[r, c] = exp(", "d[r, c] = sin(", "it computes sin in float32; d is exp in float32"),
    "nothing": (ROWS[ROWS.index("FOR r") :], "", "d is never stored"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_leaves_elements_out(name: str) -> None:
    old, new, reason = BAD[name]
    assert old in ROWS
    found = gaps(ROWS.replace(old, new))
    assert any(re.search(reason, gap) for gap in found), found


AGAIN = """\
KERNEL k(x: float32[4, 5]) -> (y: float32[4, 5])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  DEFINE y: float32[4, 5] = neg(x[i0, i1])

IF threadIdx.x == 0:
  FOR i in 0..12:
    FOR j in 0..4:
      y[j, i % 5] = neg(x[j, i % 5])  ~ value y[j, i % 5]
"""


def test_a_thread_may_store_an_element_again() -> None:
    tf.parse_kernel(AGAIN).verify().require()
    assert not any(o.subject == "launch" for o in tf.parse_kernel(AGAIN).verify().argument)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("IF threadIdx.x == 0:", "IF threadIdx.x < 2:", "race"),
        ("y[j, i % 5] = neg(x[j, i % 5])", "y[j, i % 5] = neg(x[j, i % 4])", "reads element [0, 2] of x where element [0, 0] of x is defined"),
        ("0..12", "0..4", "is never stored"),
    ],
)
def test_another_thread_another_element_or_none_at_all(old: str, new: str, reason: str) -> None:
    assert old in AGAIN
    certificate = tf.parse_kernel(AGAIN.replace(old, new)).verify()
    assert certificate.verdict is Verdict.REFUTED
    assert reason in str(certificate), str(certificate)


LAUNCHED = """\
KERNEL k(x: int32[N]) -> (y: int32[N])
  DIM N min {least}
  GRID ({grid}, 1, 1)  BLOCK ({block}, 1, 1)
  DEFINE y: int32[N] = copy(x[i0])

IF blockIdx.x == 0 && threadIdx.x == 0:
  FOR i in 0..N:
    y[i] = copy(x[i])  ~ value y[i]
"""


@pytest.mark.parametrize(
    ("least", "grid", "block", "what"),
    [
        (1, "N//2", "1", "blocks: N//2"),
        (1, "N - 1", "1", "blocks: N - 1"),
        (1, "max(N - 3, 0)", "1", r"blocks: max\(N - 3, 0\)"),
        (1, "1", "N - 1", "threads: N - 1"),
    ],
)
def test_where_there_are_elements_there_are_blocks_and_threads(least: int, grid: str, block: str, what: str) -> None:
    (gap,) = gaps(LAUNCHED.format(least=least, grid=grid, block=block))
    assert re.search(f"y may have elements although there are no {what} is not known to be at least 1", gap), gap


@pytest.mark.parametrize(("least", "grid"), [(1, "N"), (0, "N"), (0, "ceildiv(N, 4)"), (2, "N//2"), (4, "N - 3"), (0, "1")])
def test_a_grid_that_is_empty_only_without_elements_is_one(least: int, grid: str) -> None:
    tf.parse_kernel(LAUNCHED.format(least=least, grid=grid, block="1")).verify().require()


DEALT = """\
KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N min 1
  GRID (5, 1, 1)  BLOCK (1, 1, 1)
  DEFINE y: float32[N] = neg(x[i0])

FOR w in (blockIdx.x + 3) % 5..N step 5:
  y[w] = neg(x[w])  ~ value y[w]
"""


def test_blocks_that_take_every_fifth_element_from_a_rotated_start() -> None:
    tf.parse_kernel(DEALT).verify().require()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(blockIdx.x + 3) % 5..N step 5", "(blockIdx.x + 3) % 5..N step 6"),  # a sixth of all is nobody's
        ("(blockIdx.x + 3) % 5..N", "(blockIdx.x + 3) % 4..N"),  # two blocks begin at one element
        ("(blockIdx.x + 3) % 5..N", "5*blockIdx.x % 5..N"),  # all do
        ("..N step 5", "..N - blockIdx.x//4 step 5"),  # the last block stops early
        ("  y[w] = neg(x[w])", "  IF blockIdx.x < 4:\n    y[w] = neg(x[w])"),  # and does nothing
    ],
)
def test_elements_that_no_block_takes(old: str, new: str) -> None:
    assert old in DEALT
    assert not tf.parse_kernel(DEALT.replace(old, new)).verify().is_proved


TURNS = """\
KERNEL k(x: float32[M]) -> (y: float32[M])
  DIM M min 1 max 2
  GRID (4, 1, 1)  BLOCK (1, 1, 1)
  DEFINE y: float32[M] = neg(x[i0])

FOR i in 0..{trips}:
  y[blockIdx.x] = neg(x[blockIdx.x])  ~ value y[blockIdx.x]
"""


def test_a_loop_that_runs_wherever_an_element_exists_leaves_nothing_out() -> None:
    tf.parse_kernel(TURNS.format(trips="ceildiv(M - blockIdx.x, 4)")).verify().require()


@pytest.mark.parametrize("trips", ["ceildiv(M - 1 - blockIdx.x, 4)", "(M - blockIdx.x)//2"])
def test_a_loop_that_may_not_run_leaves_elements_out(trips: str) -> None:
    assert gaps(TURNS.format(trips=trips))


CONDITIONAL = """\
KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE y: float32[N] = neg(x[i0])

FOR w in 0..{stop}:
  y[w] = neg(x[w])  ~ value y[w]
"""


@pytest.mark.parametrize("stop", ["select(N > 0, N, 0)", "select(N > 0, select(N + 1 > 1, N, 0), 0)", "select(N >= 0 && N != 0, N, -1)"])
def test_a_loop_whose_condition_holds_in_any_case_stores_all(stop: str) -> None:
    tf.parse_kernel(CONDITIONAL.format(stop=stop)).verify().require()


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("select(N > 5, N, 0)", "executed under N > 5 only"),
        ("select(N > 0, select(N > 5, N, 0), 0)", "executed under N > 5 only"),
        ("select(N > 5, N, -1)", "executed under N > 5 only"),
        ("select(N != 5, N, 0)", "executed under N != 5 only"),
        ("select(N % 3 == 0, N, 0)", "executed under N % 3 == 0 only"),
    ],
)
def test_an_iteration_is_no_reason_for_the_condition_of_its_loop(stop: str, reason: str) -> None:
    assert any(reason in gap for gap in gaps(CONDITIONAL.format(stop=stop)))


ROW, COLUMN = "3*blockIdx.x + threadIdx.y - 1", "256*j + threadIdx.x"
SOME_BLOCKS = f"""\
KERNEL k(x: float32[6, 256*N]) -> (y: float32[6, 256*N])
  DIM N min 1
  GRID (2000, 1, 1)  BLOCK (256, 4, 1)
  DEFINE y: float32[6, 256*N] = neg(x[i0, i1])

IF threadIdx.y >= 1:
  FOR i in 0..(1 - blockIdx.x)//2000 + 1:
    FOR j in 0..N:
      y[{ROW}, {COLUMN}] = neg(x[{ROW}, {COLUMN}])  ~ value y[{ROW}, {COLUMN}]
"""


def test_a_loop_of_one_iteration_in_some_blocks() -> None:
    tf.parse_kernel(SOME_BLOCKS).verify().require()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("(1 - blockIdx.x)", "(0 - blockIdx.x)", "point [3, 0] is not visited"),
        ("      y[", "      IF N - i > 1:\n        y[", "executed under N > 1 only"),  # not implied by itself
        ("      y[", "      IF blockIdx.x + i < 1:\n        y[", "point [3, 0] is not visited"),
        ("0..N:", "0..N - i - blockIdx.x:", "which points j < N - blockIdx.x leaves"),
        ("FOR i in 0", "FOR i in N - 1", "executed under N - 1 <= 0 only"),
    ],
)
def test_a_loop_of_one_iteration_in_too_few_blocks(old: str, new: str, reason: str) -> None:
    assert old in SOME_BLOCKS
    found = gaps(SOME_BLOCKS.replace(old, new, 1))
    assert any(reason in gap for gap in found), found


NUMBERED = """\
KERNEL rows(x: float32[M, 5]) -> (y: float32[M, 5])
  DIM M min 1
  GRID (ceildiv(5*M, 16), 1, 1)  BLOCK (16, 1, 1)
  DEFINE y: float32[M, 5] = copy(x[i0, i1])

IF W < 5*M && W//(5*M) == 0:
  y[W//5, W % 5] = copy(x[W//5, W % 5])  ~ value y[W//5 % M, W % 5]
"""


@pytest.mark.parametrize(
    ("old", "new"), [("", ""), ("< 5*M &", "< 5*M - 1 &"), ("ceildiv(5*M, 16)", "ceildiv(5*M, 17)"), ("== 0", "== 1"), ("W//5 % M", "W//5 % 9")]
)
def test_conditions_say_what_an_element_is(old: str, new: str) -> None:
    """The number of a row has a high digit, along an axis of one element, that a condition leaves at 0."""
    assert old in NUMBERED
    text = NUMBERED.replace(old, new) if old else NUMBERED
    assert (gaps(text.replace("W", "(16*blockIdx.x + threadIdx.x)")) == []) is (not old)


BEHIND = """\
KERNEL tiles(x: float32[N, 8]) -> (y: float32[N, 8])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  DEFINE y: float32[N, 8] = copy(x[i0, i1])

FOR i in 0..2*N + 1:
  IF i >= 1:
    y[(i - 1)//2, 4*((i - 1) % 2) + threadIdx.x] = copy(x[(i - 1)//2, 4*((i - 1) % 2) + threadIdx.x])  ~ value y[(i - 1)//2, 4*((i - 1) % 2) + threadIdx.x]
"""


@pytest.mark.parametrize(("old", "new"), [("", ""), ("2*N + 1", "2*N"), ("IF i >= 1", "IF i >= 2"), ("(i - 1) % 2", "(i - 1) % 3")])
def test_tiles_in_the_order_of_a_loop_one_iteration_behind(old: str, new: str) -> None:
    assert old in BEHIND
    assert tf.parse_kernel(BEHIND.replace(old, new) if old else BEHIND).verify().is_proved is (not old)
