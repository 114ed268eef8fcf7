"""Kernels that break a rule of the verifier, and the messages they get."""

from dataclasses import replace

import pytest

from taskfuse.errors import VerifyError
from taskfuse.kir import Kernel, parse_kernel, verify_kernel
from taskfuse.kir.nodes import Stmt

DECLARATIONS = """\
  DIM N, S multiple_of 8
  TENSORMAP map_x = x box (8, 64) swizzle 128
  TENSORMAP map_y = y box (8, 64) swizzle 128
  TENSORMAP map_2 = y box (8, 64) step (2, 1) swizzle 128
  GRID (N, 1, 1)  BLOCK (32, 4, 1)
  LOCAL r: float32[]
  LOCAL acc: float32[64]
  LOCAL half_regs: bfloat16[16]
  SHARED s: bfloat16[2, 64, 64] align 1024
  SHARED low: bfloat16[64, 64] align 128
  SHARED f: float32[S] align 16
  GLOBAL w: float32[N, S]
  MBARRIER full[2]
  COUNTER done
"""
SIGNATURE = "KERNEL k(x: bfloat16[N, S], b: float32[S], alpha: float32) -> (y: bfloat16[N, S])\n"


def kernel(body: str, signature: str = SIGNATURE, declarations: str = DECLARATIONS) -> Kernel:
    return parse_kernel(f"{signature}{declarations}\n{body}")


def message(found: Kernel) -> tuple[str, str]:
    """The message of the verifier's refusal and the line that it stands under."""
    with pytest.raises(VerifyError) as caught:
        verify_kernel(found)
    first, *quoted = str(caught.value).split("\n")
    under = next(i for i, line in enumerate(quoted) if line.removeprefix("  | ").lstrip().startswith("^ "))
    text = quoted[under].removeprefix("  | ").lstrip()[2:]
    assert first == f"kernel '{found.name}': {text}"
    assert quoted[under].index("^") == len(quoted[under - 1]) - len(quoted[under - 1].removeprefix("  | ").lstrip())
    return text, quoted[under - 1].removeprefix("  | ").strip()


LAYOUT = "swizzle 128, lbo 0, sbo 1024, major K"
WGMMA = f"WGMMA.m64n16k16.bfloat16 acc[0], desc(s[0, 0, 0], {LAYOUT}), desc(s[1, 0, 0], {LAYOUT}), accumulate 0"


def is_refused(bad: str, text: str, good: str) -> None:
    """A line that breaks a rule, its message, and a line that does not."""
    declarations = DECLARATIONS.replace("  MBARRIER", "  SHARED e: float8_e5m2[2, 64, 64] align 1024\n  MBARRIER")
    assert message(kernel(bad, declarations=declarations))[0] == text
    verify_kernel(kernel(good, declarations=declarations))


def body_of(stmt: Stmt) -> Kernel:
    return replace(kernel("PASS"), body=(stmt,))
