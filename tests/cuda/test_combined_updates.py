"""Updates that threads and warps combine before they are sent: which are, and that nothing is lost."""

import numpy as np
import pytest

from taskfuse.cuda.combined_updates import held_in
from taskfuse.cuda.nvrtc import CompileOptions, compile_ptx
from taskfuse.cuda.source import emit
from taskfuse.kir import Kernel, parse_kernel, verify_kernel, walk
from taskfuse.kir.nodes import For
from taskfuse.testing.ptx.compare import compare
from taskfuse.testing.ptx.run import run

TRIPS = 3
UPDATE = "UPDATE y[t, 2*(threadIdx.x % 2)] by add of r[0] width 2 at t = v[threadIdx.x//2 + 16*i] of 8"
EACH = "UPDATE y[t, threadIdx.x % 4] by {} of r[0] at t = v[threadIdx.x//2 + 16*i] of 8"


def kernel(*lines: str, dtype: str = "float32", trips: int = TRIPS) -> Kernel:
    """Each thread of a warp goes over points, 16 of them in a trip."""
    loop = "".join(f"  {line}\n" for line in ("COPY r[0] <- x[threadIdx.x//2 + 16*i, 2*(threadIdx.x % 2)] width 2", *lines))
    found = parse_kernel(f"""\
KERNEL k(x: {dtype}[{16 * trips}, 4], v: int32[{16 * trips}], y0: {dtype}[8, 4], z: {dtype}[32]) -> (y: {dtype}[8, 4] into y0)
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL r: {dtype}[2]

y[threadIdx.x//4, threadIdx.x % 4] = copy(y0[threadIdx.x//4, threadIdx.x % 4])
SYNC block
FOR i in 0..{trips}:
{loop}""")
    verify_kernel(found)
    return found


def held(k: Kernel) -> int:
    (loop,) = (s for s in walk(k) if isinstance(s, For) and not s.unroll)
    return len(held_in(loop, {"y0": "y"}))


def test_updates_are_held_as_long_as_nothing_tells() -> None:
    assert held(kernel(UPDATE)) == 1
    assert held(kernel(UPDATE, EACH.format("add"))) == 2
    assert held(kernel(UPDATE, UPDATE)) == 1  # one variable for both
    assert held(kernel(UPDATE, "SYNC block")) == 0
    assert held(kernel(UPDATE, "r[0] = copy(y[threadIdx.x//4, 0])")) == 0
    assert held(kernel(UPDATE, "r[0] = copy(y0[threadIdx.x//4, 0])")) == 0  # the same array
    assert held(kernel("UPDATE y[threadIdx.x//4, threadIdx.x % 4] by add of r[0]")) == 0  # no data names it
    assert held(kernel(EACH.format("add"), EACH.format("maximum"), dtype="int32")) == 0
    assert "send_together_add_f32_v2(&y" in emit(kernel(UPDATE, "SYNC block")).text  # by the lanes of a warp that have one element, still


@pytest.mark.parametrize(
    ("line", "dtype", "rows"),
    [(UPDATE, "float32", 2), (UPDATE, "float32", 9), (EACH.format("add"), "int64", 3), (EACH.format("minimum"), "int32", 1)],
)
def test_nothing_is_lost(line: str, dtype: str, rows: int) -> None:
    """Of points that go to few rows, to all, and to none."""
    k, rng = kernel(line, dtype=dtype), np.random.default_rng(rows)
    x, y0 = (rng.integers(-9, 10, shape).astype(dtype) for shape in ((16 * TRIPS, 4), (8, 4)))
    given = [x, rng.integers(0, rows, 16 * TRIPS).astype(np.int32), y0, np.zeros(32, dtype)]
    source = emit(k)
    ptx = compile_ptx(source.text, source.name, CompileOptions())
    assert np.array_equal(run(k, source, ptx, given)[0], k.simulate(*given)[0])
    assert compare(k, source, ptx).difference is None
    assert ptx.count("match.any") == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(rank & 1) == 0", "(rank & 1) == 1"),
        ("if (is_first && out", "if (out"),
        ("held.before = held.last;", "held.before = out;"),
    ],
    ids=["the wrong half", "all lanes send", "what was held is forgotten"],
)
def test_planted_mistakes(old: str, new: str) -> None:
    k, rng = kernel(UPDATE), np.random.default_rng(0)
    source = emit(k)
    assert old in source.text
    ptx = compile_ptx(source.text.replace(old, new), source.name, CompileOptions())
    given = [rng.integers(-9, 10, (16 * TRIPS, 4)).astype(np.float32), rng.integers(0, 2, 16 * TRIPS).astype(np.int32), np.zeros((8, 4), np.float32)]
    given.append(np.zeros(32, np.float32))
    (wanted,) = k.simulate(*given)
    assert not np.array_equal(run(k, source, ptx, given)[0], wanted)
