"""Arguments in, arrays out."""

import ml_dtypes
import numpy as np
import pytest

from taskfuse.ir.values import MODULAR, NATIVE
from taskfuse.sim import Interleaving, simulate
from tests.sim.kernels import X, error, kernel

COPY = kernel(
    "FOR j in 0..M:\n  y[blockIdx.x, j] = mul(x[blockIdx.x, j], a)",
    "DIM N, M multiple_of 2 min 2 max 8",
    inputs="x: float32[N, M], a: float32",
    outputs="y: float32[N, M]",
    block="(1, 1, 1)",
    grid="(N, 1, 1)",
)


@pytest.mark.parametrize("rows", [0, 1, 5, 40])
def test_extents_come_from_shapes(rows: int) -> None:
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    (y,) = simulate(COPY, [x, 3.0])
    np.testing.assert_array_equal(y, 3 * x)
    assert y.dtype == np.float32


def test_inputs_may_have_any_strides_and_are_not_written() -> None:
    base = np.arange(64, dtype=np.float32).reshape(8, 8)
    for x in (base[::2, ::-2], np.broadcast_to(base[0, :4], (3, 4)), base.T[:, :4]):
        before = x.copy()
        (y,) = simulate(COPY, [x, 2.0])
        np.testing.assert_array_equal(y, 2 * before)
        np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ([X], "input 1 of fusion 'k': 1 arguments given, 2 expected\nhelp: the arguments are: x, a"),
        ([X.reshape(8, 4).astype(np.float64), 1.0], "input 0 of fusion 'k': 'x' has dtype float64, not float32\nhelp: pass it converted to float32"),
        ([X, 1.0], "input 0 of fusion 'k': 'x' has 1 axes, not 2"),
        ([np.zeros((2, 3), np.float32), 1.0], "input 0 of fusion 'k': M is 3; it must be at least 2, at most 8, a multiple of 2"),
        ([np.zeros((2, 10), np.float32), 1.0], "input 0 of fusion 'k': M is 10; it must be at least 2, at most 8, a multiple of 2"),
        ([np.zeros((2, 0), np.float32), 1.0], "input 0 of fusion 'k': M is 0; it must be at least 2, at most 8, a multiple of 2"),
    ],
)
def test_arguments_that_do_not_fit(args: list[object], reason: str) -> None:
    assert error(COPY, args) == reason


def test_shared_extents_must_agree() -> None:
    k = kernel("y[threadIdx.x] = add(x[threadIdx.x], z[threadIdx.x])", "DIM N", inputs="x: float32[N], z: float32[N]", outputs="y: float32[N]")
    assert error(k, [X, X[:5]]) == "input 1 of fusion 'k': axis 0 of 'z' has extent 5, but N is 32"


def test_compound_extents_are_checked() -> None:
    k = kernel("y[threadIdx.x] = copy(z[2*threadIdx.x])", "DIM N", inputs="x: float32[N], z: float32[2*N]", outputs="y: float32[N]", block="(N, 1, 1)")
    (y,) = simulate(k, [X[:3], X[:6]])
    np.testing.assert_array_equal(y, X[:6:2])
    assert error(k, [X[:3], X[:5]]) == "input 1 of fusion 'k': axis 0 of 'z' has extent 5, not 2*N = 6"


def test_an_extent_without_an_input() -> None:
    k = kernel("y[threadIdx.x] = copy(1.0)", "DIM N", inputs="", outputs="y: float32[N]", block="(N, 1, 1)")
    assert error(k, []) == "input 0 of fusion 'k': no input has the extent N\nhelp: give it as extents={'N': ...}"
    np.testing.assert_array_equal(simulate(k, [], extents={"N": 3})[0], [1, 1, 1])


def test_every_element_of_an_output_must_be_written() -> None:
    k = kernel("IF threadIdx.x != 3:\n  y[threadIdx.x//8, threadIdx.x % 8] = copy(x[threadIdx.x])", outputs="y: float32[4, 8]")
    assert error(k) == "k: 1 elements of output 'y' were not written\nnote: the first is at index [0, 3] of shape [4, 8]"


def test_value_modes() -> None:
    k = kernel(
        "s[threadIdx.x] = copy(x[threadIdx.x])\na = add(s[threadIdx.x], 1.0)\ny[threadIdx.x] = add.float32(a, x[threadIdx.x])",
        "LOCAL a: bfloat16[]",
        "SHARED s: bfloat16[32] align 2",
    )
    (native,) = simulate(k, [X / 3], values=NATIVE)
    rounded = (X / 3).astype(ml_dtypes.bfloat16)
    expected = (rounded.astype(np.float32) + 1).astype(ml_dtypes.bfloat16).astype(np.float32) + X / 3
    np.testing.assert_array_equal(native, expected)
    (modular,) = simulate(k, [X / 3], values=MODULAR)
    words = MODULAR.encode(X / 3, next(p.dtype for p in k.inputs))
    one = MODULAR.literal(1.0, next(p.dtype for p in k.inputs))
    assert modular.dtype == np.uint64
    np.testing.assert_array_equal(modular, words + one + words)


def test_integers_in_shared_memory_in_both_modes() -> None:
    k = kernel(
        "s[threadIdx.x] = sub(x[threadIdx.x], 5)\nb[threadIdx.x] = lt.int8(s[threadIdx.x], 0)\ny[threadIdx.x] = where(b[threadIdx.x], s[threadIdx.x], 7)",
        "SHARED s: int8[32] align 1",
        "SHARED b: bool[32] align 1",
        inputs="x: int8[32]",
        outputs="y: int8[32]",
    )
    x = np.arange(32, dtype=np.int8)
    for values in (NATIVE, MODULAR):
        (y,) = simulate(k, [x], values=values)
        assert y.dtype == np.int8
        np.testing.assert_array_equal(y, np.where(x < 5, x - 5, 7))


def test_a_seed_replays_a_run() -> None:
    assert len(Interleaving) == 8
    x = np.ones((3, 4), np.float32)
    for seed in range(len(Interleaving)):
        first, second = (simulate(COPY, [x, 2.0], seed=seed)[0] for _ in range(2))
        np.testing.assert_array_equal(first, second)


def test_step_limit() -> None:
    k = kernel("FOR i in 0..100:\n  y[threadIdx.x] = copy(x[threadIdx.x])")
    assert error(k, max_steps=50).splitlines() == [
        "k: more than 50 steps",
        "note: statement: FOR i in 0..100:",
        "note: block (0, 0, 0), thread (0, 0, 0)",
        "help: raise max_steps if the kernel is meant to run that long",
    ]
