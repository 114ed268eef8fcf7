"""Terms of a reduction or a scan start behind the first index of its axis: each bad twin takes a term before the start, or leaves out one behind it."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.values import NATIVE
from taskfuse.kir.meaning import meaning
from tests.executions import changed, finding, gaps, is_bad_twin

WINDOW = """\
KERNEL k(x: float32[4, N]) -> (y: float32[4])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL t: float32[]
  DEFINE y: float32[4] over (4, N) at (i0) = reduce maximum of copy(x[i0, i1]) from -inf since 1 >= max(i0 - 1, 0) until 1 < i0 + 1

t = copy(-inf)  ~ start y
FOR c in 0..max(min(N, threadIdx.x + 1) - max(threadIdx.x - 1, 0), 0):
  t = maximum(t, x[threadIdx.x, c + max(threadIdx.x - 1, 0)])  ~ term y[threadIdx.x, c + max(threadIdx.x - 1, 0)]
y[threadIdx.x] = copy(t)  ~ value y[threadIdx.x]
"""
FROM_START = """\
KERNEL k(x: float32[4, N]) -> (y: float32[4])
  DIM N min 4
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL t: float32[]
  DEFINE y: float32[4] over (4, N) at (i0) = reduce maximum of copy(x[i0, i1]) from -inf since 1 >= max(i0 - 1, 0) until 1 < i0 + 1

t = copy(-inf)  ~ start y
FOR c in max(threadIdx.x - 1, 0)..threadIdx.x + 1:
  t = maximum(t, x[threadIdx.x, c])  ~ term y[threadIdx.x, c]
y[threadIdx.x] = copy(t)  ~ value y[threadIdx.x]
"""
RESCALED = """\
KERNEL k(x: float32[4, N, 3], d: float32[4, N]) -> (y: float32[4])
  DIM N min 1
  GRID (4, 1, 1)  BLOCK (1, 1, 1)
  LOCAL t: float32[]
  DEFINE y: float32[4] over (4, N, 3) at (i0) = reduce add of copy(x[i0, i1, i2]) from 0.0 rescaled 1 by d[i0, i1] since 1 >= i0, 2 >= 1

t = copy(0.0)  ~ start y
FOR c in 0..max(N - blockIdx.x, 0):
  t = mul(t, d[blockIdx.x, c + blockIdx.x])  ~ rescaled y[blockIdx.x, c + blockIdx.x, 0]
  FOR j in 0..2:
    t = add(t, x[blockIdx.x, c + blockIdx.x, j + 1])  ~ term y[blockIdx.x, c + blockIdx.x, j + 1]
y[blockIdx.x] = copy(t)  ~ value y[blockIdx.x]
"""
BY_LANES = """\
KERNEL k(x: float32[8, N, 4]) -> (y: float32[8])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL t: float32[]
  LOCAL p: float32[]
  DEFINE y: float32[8] over (8, N, 4) at (i0) = reduce add of copy(x[i0, i1, i2]) from 0.0 since 1 >= i0//4

t = copy(0.0)  ~ start y
FOR c in 0..max(N - threadIdx.x//16, 0):
  t = add(t, x[threadIdx.x//4, c + threadIdx.x//16, threadIdx.x % 4])  ~ term y[threadIdx.x//4, c + threadIdx.x//16, threadIdx.x % 4]
SHUFFLE p <- t xor 2  ~ part y
t = add(t, p)  ~ part y
SHUFFLE p <- t xor 1  ~ part y
t = add(t, p)  ~ part y
IF threadIdx.x % 4 == 0:
  y[threadIdx.x//4] = copy(t)  ~ value y[threadIdx.x//4]
"""
SCAN = """\
KERNEL k(x: float32[4, N]) -> (y: float32[4])
  DIM N min 1
  GRID (4, 1, 1)  BLOCK (1, 1, 1)
  LOCAL s: float32[]
  LOCAL a: float32[]
  LOCAL t: float32[]
  DEFINE s: float32[4, N] = scan add along 1 since i0 of x[i0, i1]
  DEFINE y: float32[4] over (4, N) at (i0) = reduce maximum of copy(s[i0, i1]) from -inf since 1 >= i0

t = copy(-inf)  ~ start y
a = copy(0.0)  ~ start s
FOR c in 0..max(N - blockIdx.x, 0):
  a = add(a, x[blockIdx.x, c + blockIdx.x])  ~ term s[blockIdx.x, c + blockIdx.x]
  s = copy(a)  ~ value s[blockIdx.x, c + blockIdx.x]
  t = maximum(t, s)  ~ term y[blockIdx.x, c + blockIdx.x]
y[blockIdx.x] = copy(t)  ~ value y[blockIdx.x]
"""
NEUTRAL = """\
KERNEL k(x: float32[4, 64]) -> (y: float32[4])
  GRID (4, 1, 1)  BLOCK (1, 1, 1)
  LOCAL t: float32[]
  LOCAL m: float32[]
  DEFINE m: float32[4, 64] = pick(x[i0, i1] if 16*i0 - 5 < i1, otherwise 0.0)
  DEFINE y: float32[4] over (4, 64) at (i0) = reduce add of copy(m[i0, i1]) from 0.0

t = copy(0.0)  ~ start y
FOR c in 0..8 - max(16*blockIdx.x - 4, 0)//8:
  FOR j in 0..8:
    m = where(x[blockIdx.x, HERE] if 16*blockIdx.x - 5 < HERE, otherwise 0.0)  ~ value m[blockIdx.x, HERE]
    t = add(t, m)  ~ term y[blockIdx.x, HERE]
y[blockIdx.x] = copy(t)  ~ value y[blockIdx.x]
""".replace("HERE", "8*(c + max(16*blockIdx.x - 4, 0)//8) + j")
KERNELS = {"window": WINDOW, "from its start": FROM_START, "rescaled": RESCALED, "lanes": BY_LANES, "scan": SCAN, "neutral": NEUTRAL}


def wanted(name: str, arrays: list[np.ndarray]) -> np.ndarray:
    x, *more = (a.astype(np.float64) for a in arrays)
    n = x.shape[1]
    match name:
        case "window" | "from its start":
            return np.array([x[i, max(i - 1, 0) : i + 1].max(initial=-np.inf) for i in range(4)])
        case "lanes":
            return np.array([x[i, i // 4 :].sum() for i in range(8)])
        case "scan":
            return np.array([np.cumsum(x[i, i:]).max(initial=-np.inf) for i in range(4)])
        case "neutral":
            return np.array([x[i, max(16 * i - 4, 0) :].sum() for i in range(4)])
        case _:
            total = np.zeros(4)
            for i in range(4):
                for c in range(i, n):
                    total[i] = total[i] * more[0][i, c] + x[i, c, 1:].sum()
            return total


@pytest.mark.parametrize("name", KERNELS)
def test_it_holds(name: str) -> None:
    text = KERNELS[name]
    kernel = tf.parse_kernel(text)
    assert str(tf.parse_kernel(str(kernel))) == str(kernel)
    assert tf.parse_kernel(kernel.text(witness=True)).definitions == kernel.definitions
    assert gaps(text) == []
    for n in (4, 6) if name == "from its start" else (1, 3, 6):
        assert finding(text, N=n) == ""
        rng = np.random.default_rng(n)
        arrays = [rng.standard_normal([n if str(e) == "N" else int(str(e)) for e in p.shape]).astype(np.float32) for p in kernel.inputs]
        np.testing.assert_allclose(kernel.simulate(*arrays, seed=1)[0], wanted(name, arrays), rtol=1e-5)
        np.testing.assert_allclose(meaning(kernel, arrays, {"N": n}, NATIVE)[0], wanted(name, arrays), rtol=1e-5)


BAD = [
    ("window", "max(threadIdx.x - 1, 0)", "0", "before the start along axis 1"),
    ("window", "max(threadIdx.x - 1, 0)", "max(threadIdx.x - 2, 0)", "before the start along axis 1"),
    ("window", "max(threadIdx.x - 1, 0)", "threadIdx.x", ""),
    ("window", "- max(threadIdx.x - 1, 0), 0)", "- threadIdx.x, 0)", ""),
    ("window", "since 1 >= max(i0 - 1, 0)", "since 1 >= i0", "before the start along axis 1"),
    ("window", " since 1 >= max(i0 - 1, 0)", "", ""),
    ("from its start", "FOR c in max(threadIdx.x - 1, 0)", "FOR c in max(threadIdx.x - 2, 0)", "before the start along axis 1"),
    ("from its start", "FOR c in max(threadIdx.x - 1, 0)", "FOR c in threadIdx.x", ""),
    ("rescaled", "max(N - blockIdx.x, 0)", "max(N - blockIdx.x - 1, 0)", ""),
    ("rescaled", "j + 1", "j", "before the start along axis 2"),
    ("rescaled", "2 >= 1", "2 >= 0", ""),
    ("rescaled", "since 1 >= i0, 2 >= 1", "since 1 >= i0 + 1, 2 >= 1", "before the start along axis 1"),
    ("rescaled", "since 1 >= i0, 2 >= 1", "since 2 >= 1", ""),
    ("lanes", "threadIdx.x//16", "threadIdx.x//8", ""),
    ("lanes", "c + threadIdx.x//16", "c", "before the start along axis 1"),
    ("lanes", "since 1 >= i0//4", "since 1 >= 1", "before the start along axis 1"),
    ("scan", "along 1 since i0 of", "along 1 of", "its axis does not start with its loops"),
    ("scan", "along 1 since i0 of", "along 1 since i0 + 1 of", ""),
    ("scan", "FOR c in 0..max(N - blockIdx.x, 0)", "FOR c in 1..max(N - blockIdx.x, 0)", ""),
    ("neutral", "max(16*blockIdx.x - 4, 0)//8", "(max(16*blockIdx.x - 4, 0) + 8)//8", "lacks the term at [0, 0]"),
    ("neutral", "max(16*blockIdx.x - 4, 0)//8", "2*blockIdx.x", "lacks the term at [1, 12]"),
    ("neutral", "if 16*i0 - 5 < i1", "if 16*i0 - 9 < i1", ""),
    ("neutral", "otherwise 0.0)\n  DEFINE", "otherwise 1.0)\n  DEFINE", ""),
]


@pytest.mark.parametrize(("name", "old", "new", "reason"), BAD)
def test_bad_twins(name: str, old: str, new: str, reason: str) -> None:
    is_bad_twin(changed(KERNELS[name], old, new), reason, N=6)


def test_an_element_without_a_term_starts_where_the_definition_says() -> None:
    """What holds wherever a term is taken, here that the row is less than 2, says nothing of it."""
    bad = changed(RESCALED, "since 1 >= i0,", "since 1 >= select(i0 < 2, i0, 0),").replace("N - blockIdx.x, 0)", "2 - blockIdx.x, 0)").replace("N, 3]", "2, 3]")
    bad = bad.replace("4, N]", "4, 2]").replace("(4, N, 3)", "(4, 2, 3)").replace("  DIM N min 1\n", "")
    assert gaps(bad)
    assert "lacks the term at [2, 0, 1]" in finding(bad)


def test_factors_in_front_of_the_start_are_not_those_of_the_sum() -> None:
    early = "FOR e in 0..min(N, blockIdx.x):\n  t = mul(t, d[blockIdx.x, e])  ~ rescaled y[blockIdx.x, e, 0]\n"
    bad = RESCALED.replace("FOR c in", early + "FOR c in")
    assert gaps(bad)
    assert "does not follow the index up to which it was rescaled" in finding(bad, N=6)


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("window", "since 1 >= max(i0 - 1, 0)", "since 0 >= i0", "starts along other axes than those that it reduces"),
        ("window", "since 1 >= max(i0 - 1, 0)", "since 1 >= i1", "not an index of an element"),
        ("window", "since 1 >= max(i0 - 1, 0)", "since 1 >= i0, 1 >= 2", "starts along other axes"),
        ("scan", "since i0 of", "since i1 of", "not an index of an element of 's' across its axis"),
    ],
)
def test_definitions_that_are_refused(name: str, old: str, new: str, reason: str) -> None:
    kernel = tf.parse_kernel(changed(KERNELS[name], old, new))
    with pytest.raises(tf.errors.VerifyError, match=reason):
        kernel.check_ir()
