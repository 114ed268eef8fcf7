"""What the hand-written GEMM claims by its indices: every tile once, and a result tile that is laid out as its tensor map reads it."""

from pathlib import Path

import pytest

from taskfuse.ir.scalar import evaluate
from taskfuse.kir import parse_kernel, walk
from taskfuse.kir.declarations import Buffer, TensorMapParam
from taskfuse.kir.nodes import TmaLoad, TmaStore
from taskfuse.kir.operands import Descriptor
from taskfuse.kir.products import StMatrix, Wgmma
from taskfuse.kir.synchronization import Expect

KERNEL = parse_kernel((Path(__file__).parent.parent / "kernels" / "gemm.kir").read_text())
TILE = 128


@pytest.mark.parametrize(("m", "n"), [(1, 8), (128, 128), (129, 400), (384, 256), (640, 136)])
def test_tiles_cover_the_result_once(m: int, n: int) -> None:
    (store,) = (s for s in walk(KERNEL) if isinstance(s, TmaStore))
    loads = [s for s in walk(KERNEL) if isinstance(s, TmaLoad)]
    env = {"M": m, "N": n, "K": 64}
    rows, columns = -(-m // TILE), -(-n // TILE)
    seen: set[tuple[int, int]] = set()
    for t in range(rows * columns):
        row, column = (int(evaluate(load.coords[0], {**env, "t": t, "ko": 0})) for load in loads)
        for y in (1, 2):
            for c in (0, 1):
                at = {**env, "t": t, "threadIdx.y": y, "c": c}
                found = (int(evaluate(store.coords[0], at)), int(evaluate(store.coords[1], at)))
                assert found == (row + 64 * (y - 1), column + 64 * c)
                seen.add(found)
    assert seen == {(64 * i, 64 * j) for i in range(2 * rows) for j in range(2 * columns)}
    assert len(seen) == 4 * rows * columns


def test_stmatrix_writes_the_fragment_under_the_map_s_swizzle() -> None:
    (store,) = (s for s in walk(KERNEL) if isinstance(s, StMatrix))
    written: dict[int, tuple[int, int]] = {}
    for thread in range(128):
        for j in range(4):
            _, _, row, column = (int(evaluate(e, {"threadIdx.x": thread, "threadIdx.y": 1, "c": 0, "j": j})) for e in store.out.index)
            warp, lane = divmod(thread, 32)
            # this lane gives the address of row lane % 8 of matrix lane//8; register 8j + 2i + e of the accumulator fragment
            # (PTX ISA, "Matrix Fragments for wgmma") is row 8*((v//2) % 2) + ..., column 8*(v//4) + ... for v = 8j + 2i + e
            matrix = lane // 8
            v = 8 * j + 2 * matrix
            logical = (16 * warp + 8 * (v // 2 % 2) + lane % 8, 8 * (v // 4))
            written[2 * (64 * row + column)] = logical
    assert len(written) == 64 * 8
    for address, (row, column) in written.items():
        plain = 2 * (64 * row + column)
        assert address == plain ^ ((plain >> 7 & 7) << 4)


def test_expected_bytes_are_those_of_the_boxes() -> None:
    (expect,) = (s for s in walk(KERNEL) if isinstance(s, Expect))
    maps = {p.name: p for p in KERNEL.params if isinstance(p, TensorMapParam)}
    loads = [s for s in walk(KERNEL) if isinstance(s, TmaLoad)]
    assert evaluate(expect.bytes, {}) == sum(2 * maps[s.map].box[0] * maps[s.map].box[1] for s in loads)


def test_operands_of_both_warpgroups_lie_in_the_stage() -> None:
    (wgmma,) = (s for s in walk(KERNEL) if isinstance(s, Wgmma))
    assert isinstance(wgmma.a, Descriptor)
    buffers = {b.name: b for b in KERNEL.buffers}
    for y in (1, 2):
        assert [int(evaluate(e, {"a.slot": 0, "threadIdx.y": y})) for e in wgmma.a.base.index] == [0, 64 * (y - 1), 0]
    stage: Buffer = buffers["a_s"]
    assert [str(e) for e in stage.shape] == ["3", "128", "64"]
