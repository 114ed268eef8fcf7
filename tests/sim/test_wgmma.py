"""wgmma: operand layouts, fragments, and the asynchrony of its registers and operands."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from taskfuse.ir.values import MODULAR, NATIVE
from taskfuse.kir import Kernel
from taskfuse.sim import Interleaving, simulate
from tests.sim.kernels import error, errors, kernel, replaced

BF16 = ml_dtypes.bfloat16


@dataclass(frozen=True)
class Layout:
    """A canonical layout of the PTX ISA: element index of (r along m or n, c along k) in the tile, written out by hand."""

    name: str
    index: str
    swizzle: int
    lbo: int
    sbo: int
    major: str


LAYOUTS = (
    Layout("K", "128*(r//8) + 64*(c//8)*R + 8*(r % 8) + c % 8", 0, 128, 256, "K"),
    Layout("K32", "128*(r//8) + 16*(r % 8) + 8*xor(c//8, r % 8//4) + c % 8", 32, 0, 256, "K"),
    Layout("K64", "256*(r//8) + 32*(r % 8) + 8*xor(c//8, r % 8//2) + c % 8", 64, 0, 512, "K"),
    Layout("K128", "512*(r//8) + 64*(r % 8) + 8*xor(c//8, r % 8) + c % 8", 128, 0, 1024, "K"),
    Layout("MN", "128*(r//8) + 64*(c//8) + 8*(c % 8) + r % 8", 0, 128, 256, "MN"),
    Layout("MN32", "512*(r//16) + 128*(c//8) + 16*(c % 8) + 8*xor(r % 16//8, c % 8//4) + r % 8", 32, 1024, 256, "MN"),
    Layout("MN64", "512*(r//32) + 256*(c//8) + 32*(c % 8) + 8*xor(r % 32//8, c % 8//2) + r % 8", 64, 1024, 512, "MN"),
    Layout("MN128", "1024*(r//64) + 512*(c//8) + 64*(c % 8) + 8*xor(r % 64//8, c % 8) + r % 8", 128, 2048, 1024, "MN"),
)
BODY = """
IF threadIdx.y == 0:
  FOR c in 0..16:
    FOR r in threadIdx.x % 64..threadIdx.x % 64 + 1:
      a_s[INDEX_A] = copy(a[r, c])
    FOR r in threadIdx.x % N..threadIdx.x % N + 1:
      b_s[INDEX_B] = copy(b[r, c])
  FENCE proxy.async
  SYNC named 1, 128
  FENCE wgmma
  FOR t in 0..2 UNROLL:
    WGMMA.m64nNk16.bfloat16 acc[0], desc(a_s[0], DESC_A), desc(b_s[0], DESC_B), accumulate t > 0
  COMMIT wgmma
  WAIT_GROUP wgmma <= 0
  FOR v in 0..N//2 UNROLL:
    d[16*(threadIdx.x//32) + threadIdx.x % 32//4 + 8*(v//2 % 2), 8*(v//4) + 2*(threadIdx.x % 4) + v % 2] = copy(acc[v])
"""


def product(a: Layout, b: Layout, n: int = 16, body: str = BODY) -> Kernel:
    """``d = 2 a b^T`` by one warpgroup of a block that has more warps; ``body`` with the layouts written in."""
    for name, layout in (("A", a), ("B", b)):
        index = layout.index.replace("*R", "")
        body = body.replace(f"INDEX_{name}", index)
        body = body.replace(f"DESC_{name}", f"swizzle {layout.swizzle}, lbo {layout.lbo}, sbo {layout.sbo}, major {layout.major}")
    return kernel(
        body.replace("0..N//2", f"0..{n // 2}").replace("nNk16", f"n{n}k16").replace("% N", f"% {n}"),
        f"LOCAL acc: float32[{n // 2}]",
        "SHARED a_s: bfloat16[4096] align 1024",
        "SHARED b_s: bfloat16[4096] align 1024",
        inputs=f"a: bfloat16[64, 16], b: bfloat16[{n}, 16]",
        outputs=f"d: float32[64, {n}]",
        block="(128, 2, 1)",
    )


def operands(n: int = 16) -> list[npt.NDArray[np.generic]]:
    rng = np.random.default_rng(0)
    return [rng.integers(-8, 8, (rows, 16)).astype(BF16) for rows in (64, n)]


def twice(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
    return 2 * (a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_layouts_of_both_operands(layout: Layout) -> None:
    plain = LAYOUTS[0]
    a, b = operands()
    for k in (product(layout, plain), product(plain, layout)):
        np.testing.assert_array_equal(simulate(k, [a, b])[0], twice(a, b))


@pytest.mark.parametrize("n", [8, 24, 128])
def test_widths_and_schedulers(n: int) -> None:
    a, b = operands(n)
    k = product(LAYOUTS[3], LAYOUTS[1], n)
    for interleaving in Interleaving:
        np.testing.assert_array_equal(simulate(k, [a, b], seed=2, interleaving=interleaving)[0], twice(a, b), err_msg=interleaving.name)


def test_in_the_ring() -> None:
    a, b = operands()
    k = product(LAYOUTS[3], LAYOUTS[7])
    words = [MODULAR.encode(x, p.dtype) for x, p in zip((a, b), k.inputs, strict=True)]
    np.testing.assert_array_equal(simulate(k, [a, b], values=MODULAR)[0], 2 * (words[0] @ words[1].T))


FAULTS = {
    ("  FENCE proxy.async\n", ""): "k: missing fence.proxy.async: Shared 'a_s' was written by a thread and is accessed by an asynchronous engine",
    ("  FENCE wgmma\n", ""): "k: missing wgmma.fence: a warp has not fenced its registers",
    ("FENCE wgmma\n", "FENCE wgmma\n  acc[3] = copy(0.0)\n"): "k: missing wgmma.fence: a warp has not fenced its registers",
    ("  COMMIT wgmma\n  WAIT_GROUP", "  WAIT_GROUP"): "k: Local 'acc' accessed while a wgmma that writes it is in flight",
    ("WAIT_GROUP wgmma <= 0", "WAIT_GROUP wgmma <= 1"): "k: Local 'acc' accessed while a wgmma that writes it is in flight",
    ("COMMIT wgmma\n", "COMMIT wgmma\n  acc[3] = copy(0.0)\n"): "k: Local 'acc' accessed while a wgmma that writes it is in flight",
    ("COMMIT wgmma\n", "COMMIT wgmma\n  b_s[0] = copy(0.0)\n"): "k: Shared 'b_s' written before the asynchronous operation that reads it was waited for",
    ("accumulate t > 0", "accumulate t >= 0"): "k: read of uninitialized Local 'acc'",
    ("desc(a_s[0]", "desc(a_s[0] + 8"): "k: wgmma operand at byte 8 of Shared memory, not a multiple of 16",
    ("desc(a_s[0]", "desc(a_s[3584]"): "k: Shared 'a_s' accessed out of bounds",
    ("desc(a_s[0]", "desc(a_s[64*(threadIdx.x//32)]"): "k: the threads of a warpgroup give different addresses in Shared 'a_s' to wgmma",
    ("desc(b_s[0]", "desc(b_s[0] + 4096"): "k: read of uninitialized Shared 'b_s'",
    ("acc[0], desc", "acc[1], desc"): "k: wgmma needs 8 registers of Local 'acc', which does not have them",
    ("k16.bfloat16", "k16.float16"): "k: wgmma of float16 on Shared 'a_s', which has bfloat16",
    ("  WAIT_GROUP wgmma <= 0\n", "  SYNC warp\n"): "k: Local 'acc' accessed while a wgmma that writes it is in flight",
    ("  FENCE wgmma\n", "  FENCE wgmma\n  IF threadIdx.x < 16:\n    COMMIT wgmma\n"): "k: an instruction on the wgmma queue executed by 16 threads of warp 0",
}


@pytest.mark.parametrize("change", FAULTS, ids=lambda change: change[1].strip() or change[0].strip())
def test_faults(change: tuple[str, str]) -> None:
    k = product(LAYOUTS[3], LAYOUTS[3], body=replaced(BODY, *change))
    assert error(k, operands(), interleaving=Interleaving.ROUND_ROBIN).splitlines()[0] == FAULTS[change]


def test_faults_are_found_by_every_schedule() -> None:
    for change in ((" FENCE proxy.async\n", " PASS\n"), ("WAIT_GROUP wgmma <= 0", "WAIT_GROUP wgmma <= 1")):
        found = errors(product(LAYOUTS[3], LAYOUTS[3], body=replaced(BODY, *change)), operands())
        assert "none" not in found, change


def test_texts() -> None:
    def text(old: str, new: str) -> list[str]:
        k = product(LAYOUTS[3], LAYOUTS[3], body=replaced(BODY, old, new))
        return error(k, operands(), interleaving=Interleaving.ROUND_ROBIN).splitlines()

    assert text("  WAIT_GROUP wgmma <= 0\n", "")[1:] == [
        "note: statement: d[16*(threadIdx.x//32) + threadIdx.x//4 % 8 + 8*(v//2 % 2), 8*(v//4) + 2*(threadIdx.x % 4) + v % 2] = copy(acc[v])",
        "note: block (0, 0, 0), thread (0, 0, 0)",
        "help: wait for the wgmma before its accumulators are accessed",
    ]
    assert text("  FENCE wgmma\n", "")[-1] == "help: wgmma.fence comes before the first wgmma and after every write to accumulators or operand registers"
    assert text("  FENCE wgmma\n", "  FENCE wgmma\n  IF threadIdx.x < 16:\n    COMMIT wgmma\n")[-1] == "help: all 32 threads must execute it together"


def test_a_wgmma_that_is_never_retired() -> None:
    body = BODY[: BODY.index("  WAIT_GROUP")] + "  d[threadIdx.x//2, threadIdx.x % 2] = copy(0.0)\n"
    assert errors(product(LAYOUTS[3], LAYOUTS[3], body=body), operands()) == {"k: thread exits with a wgmma that was never waited for"}


def test_a_warpgroup_that_is_not_complete() -> None:
    body = replaced(BODY, "  FOR t in 0..2 UNROLL:\n    WGMMA", "  IF threadIdx.x < 96:\n    WGMMA").replace("accumulate t > 0", "accumulate 0 > 1")
    lines = error(product(LAYOUTS[3], LAYOUTS[3], body=body), operands(), interleaving=Interleaving.ROUND_ROBIN).splitlines()
    assert lines[0] == "k: deadlock: no thread can continue"
    assert lines[1].startswith("note: block (0, 0, 0), threads 0-95: WGMMA.m64n16k16.bfloat16 acc[0]")
    assert lines[1].endswith("accumulate 0: warpgroup 0: 96 of 128 threads are there")


def test_native_sums_are_rounded_once_per_instruction() -> None:
    a, b = (x.astype(np.float32) / 3 for x in operands())
    a, b = a.astype(BF16), b.astype(BF16)
    k = product(LAYOUTS[3], LAYOUTS[3])
    once = NATIVE.matmul(a.astype(np.float32), b.astype(np.float32).T, k.outputs[0].dtype)
    np.testing.assert_array_equal(simulate(k, [a, b])[0], once + once)
