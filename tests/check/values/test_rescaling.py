"""A sum is multiplied by the factor at each index of an axis once, in order, before the terms at it; each bad twin skips, repeats or mixes factors."""

import numpy as np
import pytest

import taskfuse as tf
from tests.executions import RESCALED, changed, finding, gaps

BY_LANES = """\
KERNEL k(x: float32[8, N, 4], d: float32[8, N]) -> (y: float32[8])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL t: float32[]
  LOCAL p: float32[]
  DEFINE y: float32[8] over (8, N, 4) at (i0) = reduce add of copy(x[i0, i1, i2]) from 0.0 rescaled 1 by d[i0, i1]

t = copy(0.0)  ~ start y
FOR c in 0..N:
  t = mul(t, d[threadIdx.x//4, c])  ~ rescaled y[threadIdx.x//4, c, 0]
  t = add(t, x[threadIdx.x//4, c, threadIdx.x % 4])  ~ term y[threadIdx.x//4, c, threadIdx.x % 4]
SHUFFLE p <- t xor 2  ~ part y
t = add(t, p)  ~ part y
SHUFFLE p <- t xor 1  ~ part y
t = add(t, p)  ~ part y
IF threadIdx.x % 4 == 0:
  y[threadIdx.x//4] = copy(t)  ~ value y[threadIdx.x//4]
"""
RESCALE = "  t = mul(t, d[threadIdx.x, c])  ~ rescaled y[threadIdx.x, c, 0]\n"


@pytest.mark.parametrize("text", [RESCALED, BY_LANES])
def test_it_holds(text: str) -> None:
    kernel = tf.parse_kernel(text)
    assert str(tf.parse_kernel(str(kernel))) == str(kernel)
    assert gaps(text) == []
    assert finding(text, N=3) == ""
    rng = np.random.default_rng(4)
    rows, terms = (int(str(e)) for e in (kernel.inputs[0].shape[0], kernel.inputs[0].shape[2]))
    x, d = rng.standard_normal((rows, 5, terms)).astype(np.float32), rng.standard_normal((rows, 5)).astype(np.float32)
    wanted = np.zeros(rows)
    for c in range(5):
        wanted = wanted * d[:, c] + x[:, c].sum(1)
    np.testing.assert_allclose(kernel.simulate(x, d, seed=1)[0], wanted, rtol=1e-5)


BAD = {
    "never": (RESCALE, "", "it is not rescaled"),
    "twice": (RESCALE, RESCALE + RESCALE, "an accumulator is rescaled twice at one index"),
    "for each term": (
        RESCALE + "  FOR j in 0..3:\n",
        "  FOR j in 0..3:\n  " + RESCALE,
        "an accumulator is rescaled twice at one index",
    ),
    "not the first time": (RESCALE, "  IF c >= 1:\n  " + RESCALE, "not every accumulator is rescaled before it takes terms"),
    "by another thread's factor": ("d[threadIdx.x, c])", "d[(threadIdx.x + 1) % 4, c])", "is not the wanted element"),
    "by another index's factor": ("d[threadIdx.x, c])", "d[threadIdx.x, 0])", "is not the wanted element"),
    "as another element": ("rescaled y[threadIdx.x, c, 0]", "rescaled y[(threadIdx.x + 1) % 4, c, 0]", ""),
    "added, not multiplied": ("t = mul(t, d", "t = add(t, d", "it does not multiply an accumulator"),
    "backwards": (
        "FOR c in 0..N:\n  t = mul(t, d[threadIdx.x, c])  ~ rescaled y[threadIdx.x, c, 0]",
        "FOR c in 0..N:\n  t = mul(t, d[threadIdx.x, N - 1 - c])  ~ rescaled y[threadIdx.x, N - 1 - c, 0]",
        "its terms and factors are not taken in one loop",
    ),
    "anew": ("  t = mul(t, d", "  t = copy(0.0)  ~ start y\n  t = mul(t, d", "an accumulator is set again"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_twins(name: str) -> None:
    old, new, reason = BAD[name]
    bad = changed(RESCALED, old, new)
    found = gaps(bad)
    assert found
    assert any(reason in r for r in found) or reason == "is not the wanted element"
    assert finding(bad, N=3) != ""


def test_behind_the_terms() -> None:
    bad = changed(RESCALED, RESCALE, "").replace("\ny[threadIdx.x] = copy", "\n" + RESCALE + "y[threadIdx.x] = copy")
    assert gaps(bad) == ["it is rescaled behind terms of the same index"]
    assert finding(bad, N=3) != ""


def test_all_lanes_rescale_their_parts() -> None:
    rescale = "  t = mul(t, d[threadIdx.x//4, c])  ~ rescaled y[threadIdx.x//4, c, 0]\n"
    bad = changed(BY_LANES, rescale, "  IF threadIdx.x % 4 == 0:\n  " + rescale)
    assert gaps(bad) == ["not every accumulator is rescaled before it takes terms"]
    assert finding(bad, N=3) != ""


MASKED = """\
KERNEL k(x: float32[4, N], d: float32[4, N]) -> (y: float32[4])
  DIM N min 1
  GRID (4, 1, 1)  BLOCK (1, 1, 1)
  LOCAL t: float32[]
  LOCAL m: float32[]
  DEFINE m: float32[4, N] = pick(x[i0, i1] if i1 < min(i0 + 2, N), otherwise 0.0)
  DEFINE y: float32[4] over (4, N) at (i0) = reduce add of copy(m[i0, i1]) from 0.0 rescaled 1 by d[i0, i1]

t = copy(0.0)  ~ start y
FOR c in 0..N:
  t = mul(t, d[blockIdx.x, c])  ~ rescaled y[blockIdx.x, c]
  m = pick(x[blockIdx.x, c] if c < min(blockIdx.x + 2, N), otherwise 0.0)  ~ value m[blockIdx.x, c]
  t = add(t, m)  ~ term y[blockIdx.x, c]
y[blockIdx.x] = copy(t)  ~ value y[blockIdx.x]
"""


def test_behind_the_last_term_factors_count() -> None:
    """A term that is neutral by definition may be left out of a sum, and the factor at its index may not."""
    assert gaps(MASKED) == []
    lines = MASKED.split("\n")
    first = next(k for k, line in enumerate(lines) if "~ rescaled" in line)
    lines[first : first + 3] = ["  IF c < min(blockIdx.x + 2, N):", *("  " + line for line in lines[first : first + 3])]
    bad = "\n".join(lines)
    assert gaps(bad)
    assert finding(bad, N=8) == "y[0]: element [0] of y was last rescaled at another index than 7"


def test_a_sum_that_is_not_rescaled_is_not_multiplied() -> None:
    bad = changed(changed(RESCALED, " rescaled 1 by d[i0, i1]", ""), "~ rescaled y[threadIdx.x, c, 0]", "~ part y")
    assert gaps(bad)
    assert finding(bad, N=3) != ""


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("rescaled 1 by", "rescaled 0 by", "is not reduced along axis 0"),
        ("rescaled 1 by d[i0, i1]", "rescaled 1 by d[i0, i2]", "not one element for all terms"),
        ("rescaled 1 by d[i0, i1]", "rescaled 1 by 2.0", "not one element for all terms"),
        ("from 0.0 rescaled", "from 1.0 rescaled", "not a sum from 0"),
        ("reduce add", "reduce maximum", "not a sum from 0"),
    ],
)
def test_definitions_that_are_refused(old: str, new: str, reason: str) -> None:
    kernel = tf.parse_kernel(changed(RESCALED, old, new))
    with pytest.raises(tf.errors.VerifyError, match=reason):
        kernel.check_ir()


ONE = """\
KERNEL k(x: float32[4, 1, N], d: float32[4, 1]) -> (y: float32[4])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL t: float32[2]
  DEFINE y: float32[4] over (4, 1, N) at (i0) = reduce add of copy(x[i0, i1, i2]) from 0.0 rescaled 1 by d[i0, i1]

t[0] = copy(0.0)  ~ start y
t[0] = mul(t[0], d[threadIdx.x, 0])  ~ rescaled y[threadIdx.x, 0, 0]
FOR j in 0..N:
  t[0] = add(t[0], x[threadIdx.x, 0, j])  ~ term y[threadIdx.x, 0, j]
y[threadIdx.x] = copy(t[0])  ~ value y[threadIdx.x]
"""
"""An axis of one index: there is no loop over it."""
ONCE = "t[0] = mul(t[0], d[threadIdx.x, 0])  ~ rescaled y[threadIdx.x, 0, 0]\n"
BAD_ONE = {
    "never": (ONCE, "", "it is not rescaled"),
    "twice": (ONCE, ONCE + ONCE, "an accumulator is rescaled twice at one index"),
    "in a loop": (ONCE, "FOR r in 0..2:\n  " + ONCE, "an accumulator is rescaled twice at one index"),
    "for each term": (ONCE + "FOR j in 0..N:\n", "FOR j in 0..N:\n  " + ONCE, "how often it is rescaled is not known"),
    "behind the terms": (ONCE, "", "it is rescaled behind terms of the same index"),
    "another accumulator": (ONCE, ONCE.replace("t[0]", "t[1]"), ""),
    "by another thread's factor": ("d[threadIdx.x, 0])", "d[(threadIdx.x + 1) % 4, 0])", "is not the wanted element"),
    "by some threads": (ONCE, "IF threadIdx.x < 3:\n  " + ONCE, "not every accumulator is rescaled before it takes terms"),
}


def test_one_index_holds() -> None:
    assert gaps(ONE) == []
    assert finding(ONE, N=3) == ""
    rng = np.random.default_rng(4)
    x, d = rng.standard_normal((4, 1, 3)).astype(np.float32), rng.standard_normal((4, 1)).astype(np.float32)
    np.testing.assert_allclose(tf.parse_kernel(ONE).simulate(x, d, seed=1)[0], x.sum((1, 2)), rtol=1e-5)


@pytest.mark.parametrize("name", BAD_ONE)
def test_one_index_is_open(name: str) -> None:
    old, new, reason = BAD_ONE[name]
    text = changed(ONE, old, new)
    text = text.replace("y[threadIdx.x] = copy", ONCE + "y[threadIdx.x] = copy") if name == "behind the terms" else text
    found = gaps(text)
    assert found
    assert any(reason in gap for gap in found) or reason == "is not the wanted element"
    assert finding(text, N=3) != ""


LATE = (
    RESCALED[: RESCALED.index("FOR c")]
    + """\
FOR c in 0..N + 1:
  IF c >= 1:
    t = mul(t, d[threadIdx.x, c - 1])  ~ rescaled y[threadIdx.x, c - 1, 0]
    FOR j in 0..3:
      t = add(t, x[threadIdx.x, c - 1, j])  ~ term y[threadIdx.x, c - 1, j]
y[threadIdx.x] = copy(t)  ~ value y[threadIdx.x]
"""
)


def test_an_index_one_iteration_late() -> None:
    """As in a software pipeline: a condition leaves out the iterations at other indices."""
    assert gaps(LATE) == []
    assert finding(LATE, N=3) == ""
    early = LATE.replace("c - 1", "c").replace("IF c >= 1", "IF c < N")
    assert gaps(early) == []


@pytest.mark.parametrize(("old", "new"), [("IF c >= 1:", "IF c >= 0:"), ("IF c >= 1:", "IF c >= 2:"), ("0..N + 1", "0..N + 2"), ("0..N + 1", "0..N")])
def test_other_iterations(old: str, new: str) -> None:
    assert gaps(changed(LATE, old, new))
