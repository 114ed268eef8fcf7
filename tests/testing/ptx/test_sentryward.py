"""SentryWard, a verifier of PTX that knows nothing of this package, agrees on every kernel that it can read: proved ones pass, broken ones do not.

It looks at one launch, and has no meaning for wgmma, nor for waits on counters in Global memory. Math is compiled as fast: then no branch depends on
data, which it does not read either.
"""

import re
from pathlib import Path
from typing import Any

import pytest

import taskfuse as tf
from taskfuse.cuda.nvrtc import CompileOptions, compile_ptx
from taskfuse.cuda.source import emit
from taskfuse.ir.medium import MEDIA
from taskfuse.kir.nodes import TmaStore
from taskfuse.kir.products import Wgmma
from taskfuse.kir.walk import walk
from taskfuse.testing.ptx.compare import compare
from taskfuse.testing.ptx.events import Kind
from taskfuse.testing.ptx.operands import Happening
from taskfuse.testing.ptx.operations import operations
from taskfuse.testing.ptx.text import read
from tests.testing.ptx.compiled import TESTS, distinct, ptx_of, written
from tests.testing.ptx.referee import judged, plain_waits, small_launch

pytest.importorskip("sentryward", reason="SentryWard is not installed: it has wheels for Linux on x86-64 alone")

MUSEUM = TESTS / "check" / "museum"
FIXED = distinct(sorted(MUSEUM.glob("*.fixed.kir")))
FILES = [*sorted((TESTS / "kernels").glob("*.kir")), *sorted((TESTS / "goldens" / "examples").glob("*.kir")), *FIXED[::2]]
WILD = [
    path for name in ("fb_triton", "nvfuser", "tilelang", "triton", "two_orders") for path in sorted(MUSEUM.glob(f"{name}*.kir")) if ".fixed" not in path.name
]
"""Broken kernels whose fault is one of synchronization: fences, bounds and alignment are not what it looks at."""
FINDINGS = ("not_wellsynced", "potential_race")
LARGE = ("gemm_multistage", "horizontal_fusion")  # ten seconds each


def kernel_of(path: Path) -> tf.Kernel:
    kernel = tf.parse_kernel(path.read_text(encoding="utf-8"))
    if any(isinstance(s, Wgmma) for s in walk(kernel)):
        pytest.skip("it has no meaning for wgmma")
    return kernel


def judge(kernel: tf.Kernel, folder: Path, text: str | None = None, plain: bool = True) -> dict[str, Any]:
    """The report on a small launch of whole warps."""
    source = emit(kernel, fast_math=True)
    ptx = compile_ptx(source.text if text is None else text, source.name, CompileOptions(fast_math=True))
    extents = small_launch(source, ptx)
    if extents is None:
        pytest.skip("no launch of few blocks of whole warps")
    return judged(source, ptx, extents, folder, plain)


@pytest.mark.parametrize("path", [path for path in FILES if path.stem not in LARGE], ids=lambda p: p.stem)
def test_right_kernels(path: Path, tmp_path: Path) -> None:
    kernel = kernel_of(path)
    report = judge(kernel, tmp_path)
    if kernel.is_cooperative:  # threads wait for counters in Global memory
        assert report["result"] == "unsupported"
        assert "control predicate" in report["diagnostics"][0]["message"]
    elif any(MEDIA[b.memory].is_by_rank for b in kernel.buffers):  # nor for addresses in the Shared memory of other blocks
        assert report["result"] == "unsupported"
        assert "absolute generic address" in report["diagnostics"][0]["message"]
    elif any(isinstance(s, TmaStore) and s.combine is not None for s in walk(kernel)):  # nor for updates in bulk
        assert report["result"] == "unsupported"
        assert "unsupported TMA modifier" in report["diagnostics"][0]["message"]
    else:
        assert report["result"] == "race_free"


@pytest.mark.parametrize("path", WILD, ids=lambda p: p.stem)
def test_broken_kernels(path: Path, tmp_path: Path) -> None:
    assert judge(kernel_of(path), tmp_path)["result"] in FINDINGS


FAULTS = {
    "a wait left out": ("ring", r"mbarrier_wait\(&full.*\n", ""),
    "a parity that does not flip": ("ring", r", c_parity \^= 1", ""),
    "one arrival too few": ("ring", r"mbarrier_init\(&full\[i\], 32\)", "mbarrier_init(&full[i], 33)"),
    "no barrier behind initialization": ("ring", r"  __syncthreads\(\);\n", ""),
    "a load of the wrong slot": ("ring", r"= s\[c_slot", "= s[(1 - c_slot)"),
    "a store behind its arrival": ("ring", r"(      s\[p_slot.*\n)(.*arrive.*\n)", r"\2\1"),
    "too few bytes": ("double", r", 1024\);", ", 512);"),
    "a named barrier too few": ("exchange", r"    named_barrier.*\n", ""),
    "a wait for fewer copies": ("ahead", r"copy_wait<1>", "copy_wait<2>"),
    "a mask of blocks": ("share", r"0x3, 0,", "0x1, 0,"),
    "one warp barrier too few": ("ahead", r" +__syncwarp\(\);\n", ""),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted(name: str, tmp_path: Path) -> None:
    kernel, pattern, replacement = FAULTS[name]
    text = emit(written(kernel), fast_math=True).text
    wrong = re.sub(pattern, replacement, text, count=1)
    assert wrong != text
    assert judge(written(kernel), tmp_path, wrong)["result"] in FINDINGS


def test_waits_are_rewritten_and_mean_the_same() -> None:
    source = emit(written("ring"))
    ptx = ptx_of(source)
    plain = plain_waits(ptx)
    assert ptx.count("selp.u32") - plain.count("selp.u32") == 2
    assert len(re.findall(r"mbarrier.try_wait.parity.shared::cta.b64 \t%passed\d, .*\n\t@!%passed\d bra", plain)) == 2
    assert kinds(ptx) == kinds(plain)
    assert compare(source.kernel, source, plain).difference is None


def kinds(text: str) -> list[Kind]:
    """The events of a text, in its order."""
    code = [i for i in read(text).code if i.opcode[0] not in ("bra", "ret")]
    return [o.kind for i in code for o in operations(i) if isinstance(o, Happening)]


def test_what_it_says_without_the_rewriting(tmp_path: Path) -> None:
    """It does not know the loop that NVRTC makes of a wait, and takes it for no wait."""
    assert judge(written("ring"), tmp_path, plain=False)["result"] == "not_wellsynced"
