"""Terms of a reduction end before its axis does: each bad twin takes a term behind the end, or leaves out one before it."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.values import NATIVE
from taskfuse.kir.meaning import meaning
from tests.executions import changed, finding, gaps, is_bad_twin

PLAIN = """\
KERNEL k(x: float32[4, N]) -> (y: float32[4])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL t: float32[]
  DEFINE y: float32[4] over (4, N) at (i0) = reduce maximum of copy(x[i0, i1]) from -inf until 1 < i0 + 1

t = copy(-inf)  ~ start y
FOR c in 0..min(N, threadIdx.x + 1):
  t = maximum(t, x[threadIdx.x, c])  ~ term y[threadIdx.x, c]
y[threadIdx.x] = copy(t)  ~ value y[threadIdx.x]
"""
RESCALED = """\
KERNEL k(x: float32[4, N, 3], d: float32[4, N]) -> (y: float32[4])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL t: float32[]
  DEFINE y: float32[4] over (4, N, 3) at (i0) = reduce add of copy(x[i0, i1, i2]) from 0.0 rescaled 1 by d[i0, i1] until 1 < i0 + 1, 2 < 2

t = copy(0.0)  ~ start y
FOR c in 0..min(N, threadIdx.x + 1):
  t = mul(t, d[threadIdx.x, c])  ~ rescaled y[threadIdx.x, c, 0]
  FOR j in 0..2:
    t = add(t, x[threadIdx.x, c, j])  ~ term y[threadIdx.x, c, j]
y[threadIdx.x] = copy(t)  ~ value y[threadIdx.x]
"""
BY_LANES = """\
KERNEL k(x: float32[8, N, 4]) -> (y: float32[8])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL t: float32[]
  LOCAL p: float32[]
  DEFINE y: float32[8] over (8, N, 4) at (i0) = reduce add of copy(x[i0, i1, i2]) from 0.0 until 1 < i0//4 + 1

t = copy(0.0)  ~ start y
FOR c in 0..min(N, threadIdx.x//16 + 1):
  t = add(t, x[threadIdx.x//4, c, threadIdx.x % 4])  ~ term y[threadIdx.x//4, c, threadIdx.x % 4]
SHUFFLE p <- t xor 2  ~ part y
t = add(t, p)  ~ part y
SHUFFLE p <- t xor 1  ~ part y
t = add(t, p)  ~ part y
IF threadIdx.x % 4 == 0:
  y[threadIdx.x//4] = copy(t)  ~ value y[threadIdx.x//4]
"""
PRODUCT = """\
KERNEL k(a: float32[4, N], b: float32[N]) -> (y: float32[4])
  DIM N min 1
  GRID (4, 1, 1)  BLOCK (1, 1, 1)
  LOCAL t: float32[]
  DEFINE y: float32[4] over (4, N) at (i0) = reduce add of mul(a[i0, i1], b[i1]) from 0.0 until 1 < min(N, i0)

t = copy(0.0)  ~ start y
FOR c in 0..min(N, blockIdx.x):
  t = fma(a[blockIdx.x, c], b[c], t)  ~ term y[blockIdx.x, c]
y[blockIdx.x] = copy(t)  ~ value y[blockIdx.x]
"""
KERNELS = {"maximum": PLAIN, "rescaled": RESCALED, "lanes": BY_LANES, "product": PRODUCT}


def wanted(name: str, arrays: list[np.ndarray]) -> np.ndarray:
    x, *more = (a.astype(np.float64) for a in arrays)
    n = x.shape[1]
    match name:
        case "maximum":
            return np.array([x[i, : i + 1].max() for i in range(4)])
        case "lanes":
            return np.array([x[i, : i // 4 + 1].sum() for i in range(8)])
        case "product":
            return np.array([(x[i, :i] * more[0][: min(i, n)]).sum() for i in range(4)])
        case _:
            total = np.zeros(4)
            for i in range(4):
                for c in range(min(n, i + 1)):
                    total[i] = total[i] * more[0][i, c] + x[i, c, :2].sum()
            return total


@pytest.mark.parametrize("name", KERNELS)
def test_it_holds(name: str) -> None:
    text = KERNELS[name]
    kernel = tf.parse_kernel(text)
    assert str(tf.parse_kernel(str(kernel))) == str(kernel)
    assert gaps(text) == []
    for n in (1, 3, 6):
        assert finding(text, N=n) == ""
        rng = np.random.default_rng(n)
        arrays = [rng.standard_normal([n if str(e) == "N" else int(str(e)) for e in p.shape]).astype(np.float32) for p in kernel.inputs]
        arrays[0][..., n - 1 :] = np.where(np.isfinite(arrays[0][..., n - 1 :]), arrays[0][..., n - 1 :], 0)
        np.testing.assert_allclose(kernel.simulate(*arrays, seed=1)[0], wanted(name, arrays), rtol=1e-5)
        np.testing.assert_allclose(meaning(kernel, arrays, {"N": n}, NATIVE)[0], wanted(name, arrays), rtol=1e-5)


BAD = [
    ("maximum", "min(N, threadIdx.x + 1):", "N:", "behind the end along axis 1"),
    ("maximum", "min(N, threadIdx.x + 1):", "min(N, threadIdx.x + 2):", "behind the end along axis 1"),
    ("maximum", "min(N, threadIdx.x + 1):", "min(N, threadIdx.x):", ""),
    ("maximum", "min(N, threadIdx.x + 1):", "min(N, 1):", "are visited along an axis"),
    ("maximum", "min(N, threadIdx.x + 1):", "min(N, (threadIdx.x + 1) % 4 + 1):", "behind the end along axis 1"),
    ("maximum", "until 1 < i0 + 1", "until 1 < i0 + 2", ""),
    ("maximum", " until 1 < i0 + 1", "", ""),
    ("rescaled", "min(N, threadIdx.x + 1):", "N:", "behind the end along axis 1"),
    ("rescaled", "min(N, threadIdx.x + 1):", "min(N, threadIdx.x):", ""),
    ("rescaled", "FOR j in 0..2", "FOR j in 0..3", "behind the end along axis 2"),
    ("rescaled", "FOR j in 0..2", "FOR j in 0..1", ""),
    ("rescaled", "2 < 2", "2 < 3", ""),
    ("lanes", "threadIdx.x//16 + 1):", "threadIdx.x//8 + 1):", "behind the end along axis 1"),
    ("lanes", "threadIdx.x//16 + 1):", "1):", ""),
    ("lanes", "min(N, threadIdx.x//16 + 1):", "N:", "behind the end along axis 1"),
    ("product", "blockIdx.x)", "blockIdx.x + 1)", "behind the end along axis 1"),
    ("product", "blockIdx.x)", "blockIdx.x - 1)", ""),
]


@pytest.mark.parametrize(("name", "old", "new", "reason"), BAD)
def test_bad_twins(name: str, old: str, new: str, reason: str) -> None:
    is_bad_twin(changed(KERNELS[name], old, new), reason, N=6)


def test_factors_behind_the_end_are_not_those_of_the_sum() -> None:
    late = "FOR e in min(N, threadIdx.x + 1)..N:\n  t = mul(t, d[threadIdx.x, e])  ~ rescaled y[threadIdx.x, e, 0]\n"
    bad = RESCALED.replace("\ny[threadIdx.x] = copy", "\n" + late + "y[threadIdx.x] = copy")
    assert gaps(bad)
    assert "was last rescaled at another index than 0" in finding(bad, N=6)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("until 1 < i0 + 1", "until 0 < i0 + 1", "ends along other axes than those that it reduces"),
        ("until 1 < i0 + 1", "until 1 < i1", "not an index of an element"),
        ("until 1 < i0 + 1", "until 1 < i0, 1 < 2", "ends along other axes"),
        ("until 1 < i0 + 1", "until 2 < i0", "ends along other axes"),
    ],
)
def test_definitions_that_are_refused(old: str, new: str, reason: str) -> None:
    kernel = tf.parse_kernel(changed(PLAIN, old, new))
    with pytest.raises(tf.errors.VerifyError, match=reason):
        kernel.check_ir()
