"""Chains of computations that take two 16-bit floats at a time: which loops have them, their text, and their numbers, by PTX that is run."""

import random

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cuda.source import emit
from taskfuse.dtypes import DTYPES, DType
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.sim import simulate
from taskfuse.testing.runs import mismatch, ran

NIBBLES = """\
n = copy(a[i//2])
u = bitwise_and(n, 15)
v = right_shift(n, 4)
q = stack(u if i % 2 == 0, v if i % 2 == 1)
f = cast.uint8(q)
g = sub(f, 8.0)
h = cast.float32(g)
t = copy(s[0])
m = mul.float32(h, t)
r[i] = copy.float32(m)"""
"""Two numbers of 4 bits in a byte, less 8, times a scale."""
DECLARED = {"n": "uint8", "u": "uint8", "v": "uint8", "q": "uint8", "f": "float32", "g": "float32", "h": "bfloat16", "t": "bfloat16", "m": "bfloat16"}


def kernel(body: str, declared: dict[str, str], dtype: str = "bfloat16", bytes: str = "uint8", after: str = "") -> Kernel:
    """A body in a loop over eight registers r, of bytes a and 16-bit floats s; some numbers are in r and w before."""
    local = "".join(f"  LOCAL {name}: {d}[]\n" for name, d in declared.items())
    lines = "".join(f"  {line}\n" for line in body.splitlines())
    return parse_kernel(f"""\
KERNEL k(a: {bytes}[8], s: {dtype}[8]) -> (b: {dtype}[8])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
{local}  LOCAL r: {dtype}[8]
  LOCAL w: {dtype}[8]

COPY w[0] <- s[0] width 8
COPY r[0] <- s[0] width 8
FOR i in 0..8 UNROLL:
{lines}{after}COPY b[0] <- r[0] width 8
""")


def text(body: str, declared: dict[str, str], after: str = "") -> str:
    return emit(kernel(body, declared, after=after)).text.split("__global__")[1]


def is_right(made: Kernel, *arrays: np.ndarray) -> None:
    wanted = simulate(made, arrays, seed=0)
    for seed in (0, 14):  # two targets
        assert mismatch(made, ran(made, arrays, seed), wanted) is None, str(made)


def test_weights_of_four_bits() -> None:
    """A byte is loaded once by the compiler; 128 and 8 are taken off together, and nothing is converted."""
    found = text(NIBBLES, DECLARED)
    assert "bf16x2_sum(whole_halves<0x4300u>(q_first, q), 0xc308c308u)" in found
    assert "bf16x2_product(two, both_halves(" in found
    assert "to_packed" not in found
    is_right(kernel(NIBBLES, DECLARED), np.arange(0, 256, 33, dtype=np.uint8), np.linspace(-3, 5, 8).astype(tf.bfloat16.numpy))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("15)", "255)", "bf16x2_sum(signed_halves(q_first ^ 128, q ^ 128), 0x42f042f0u)"),  # 8 bits: 128 more for the sign, 8 less
        ("8.0", "8.5", "halves(to_packed_bfloat16(g_first), to_packed_bfloat16(g))"),  # no integer: rounded, two at a time
        ("float32(h, t)", "float32(h, h)", "bf16x2_product(two, two)"),  # a word twice
        ("copy(s[0])", "copy(s[i])", "halves(bits_of_bfloat16(t_first), bits_of_bfloat16(t))"),  # a scale of each
        ("h, t)", "h, w[i])", "bf16x2_product(two, word(&w[i]))"),
        ("q = stack(u ", "q = stack(v ", "whole_halves<0x4300u>(q_first, q)"),
    ],
)
def test_what_changes_the_text(old: str, new: str, said: str) -> None:
    assert said in text(NIBBLES.replace(old, new), DECLARED)


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        ("h, t)", "h, t)", "r[0] = copy.float32(m)\n"),  # the only word is read behind the loop
        ("h, t)", "h, m)", ""),  # of the trip before
        ("r[i] =", "r[2*i % 8] =", ""),
        ("mul.float32(h, t)", "exp.float32(h)", ""),
        ("mul.float32(h, t)", "add.float32(h, r[0])", ""),
    ],
)
def test_others_take_one(old: str, new: str, after: str) -> None:
    found = text(NIBBLES.replace(old, new), DECLARED, after)
    assert "set_word(&r[i]" not in found
    assert "; ++i) {" in found


@pytest.mark.parametrize(("dtype", "bytes"), [("bfloat16", "int8"), ("bfloat16", "uint8"), ("float16", "int8")])
def test_all_bytes(dtype: str, bytes: str) -> None:
    """Each number of a byte less 100, from arrays in the registers of 32 threads."""
    made = parse_kernel(f"""\
KERNEL k(a: {bytes}[256]) -> (b: {dtype}[256])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL x: {bytes}[8]
  LOCAL f: {dtype}[]
  LOCAL g: {dtype}[]
  LOCAL r: {dtype}[8]

COPY x[0] <- a[8*threadIdx.x] width 8
FOR i in 0..8 UNROLL:
  f = cast.{bytes}(x[i])
  g = sub.float32(f, 100.0)
  r[i] = copy.float32(g)
COPY b[8*threadIdx.x] <- r[0] width 8
""")
    assert "set_word(&r[i]" in emit(made).text
    (found,) = ran(made, (np.arange(256).astype(DTYPES[bytes].numpy),), 14)
    wanted = np.arange(256).astype(DTYPES[bytes].numpy).astype(np.int64) - 100
    assert np.array_equal(found.astype(np.int64), wanted)


@pytest.mark.parametrize("seed", range(8))
def test_random_chains_are_right(seed: int) -> None:
    made, numbers, scales = random_chain(seed)
    is_right(made, numbers, scales)


def random_chain(seed: int) -> tuple[Kernel, np.ndarray, np.ndarray]:
    """A body of integers in registers, then functions of them in floats, with scales of each element and of all."""
    rng = random.Random(seed)
    dtype, narrow = rng.choice(["bfloat16", "bfloat16", "float16"]), rng.choice(["uint8", "uint8", "int8", "int16", "bool"])
    lines, kinds = ["n0 = copy(a[i])" if rng.random() < 0.5 else "n0 = copy(a[i//2])"], {"n0": narrow}

    def new(kind: str, line: str) -> str:
        name = f"n{len(kinds)}"
        kinds[name] = kind
        lines.append(f"{name} = {line}")
        return name

    last = "n0"
    for _ in range(rng.randrange(3) if narrow != "bool" else 0):
        ops = [f"bitwise_and({last}, {rng.choice([1, 15, 127])})", f"right_shift({last}, {rng.choice([1, 4])})", f"minimum({last}, {rng.choice([7, 100])})"]
        other = new(narrow, rng.choice(ops))
        last = new(narrow, f"stack({last} if i % 2 == 0, {other} if i % 2 == 1)") if rng.random() < 0.4 else other
    if rng.random() < 0.6:
        last = new("float32", f"cast.{narrow}({last})")
        if rng.random() < 0.7:
            last = new("float32", f"{rng.choice(['sub', 'add', 'mul'])}({last}, {rng.choice(['8.0', '1.0', '0.5', '-3.0', '200.0'])})")
        last = new(dtype, f"cast.float32({last})")
    else:
        last = new(dtype, f"cast.{narrow}({last})")
    for _ in range(rng.randrange(4)):
        side = new(dtype, rng.choice(["copy(s[0])", "copy(s[i])", "copy(w[i])", "relu.float32(s[1])"]))
        op = rng.choice(["mul", "add", "sub", "maximum", "minimum"])
        last = new(dtype, f"{op}.float32({', '.join(rng.sample([last, rng.choice([side, side, '2.0', last])], 2))})")
        last = new(dtype, f"{rng.choice(['neg', 'abs', 'relu'])}.float32({last})") if rng.random() < 0.3 else last
    lines.append(f"r[i] = copy.float32({last})")
    made = kernel("\n".join(lines), kinds, dtype, narrow)
    draw = np.random.default_rng(seed)
    known: DType = DTYPES[narrow]
    numbers = draw.integers(int(known.min_value), int(known.max_value) + 1, 8).astype(known.numpy)
    scales = np.where(draw.random(8) < 0.2, draw.choice([0.0, -0.0, np.inf, np.nan, 1e-7, 65504.0], 8), draw.normal(0, 4, 8))
    return made, numbers, scales.astype(DTYPES[dtype].numpy)
