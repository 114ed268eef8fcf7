"""Tensor-core statements: text, traversal, and each rule with a kernel that breaks it and a twin that does not."""

from dataclasses import replace

import pytest

from taskfuse.errors import VerifyError
from taskfuse.ir.scalar import sym
from taskfuse.kir import Kernel, accesses, expressions, map_expressions, parse_kernel, stmt_text, verify_kernel
from taskfuse.kir.products import StMatrix

HEAD = """\
KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N
  GRID (N, 1, 1)  BLOCK (128, 1, 1)
  LOCAL r: float32[]
  LOCAL acc: float32[128]
  LOCAL sums: int32[128]
  LOCAL half: bfloat16[16]
  LOCAL full: float32[8]
  LOCAL bytes: int8[32]
  LOCAL quarter: float8_e4m3[32]
  LOCAL other: float8_e5m2[32]
  LOCAL wide: float64[8]
  SHARED h: bfloat16[64, 64] align 1024
  SHARED f: float32[64, 32] align 1024
  SHARED i: int8[64, 128] align 1024
  SHARED u: uint8[64, 128] align 1024
  SHARED e4: float8_e4m3[64, 128] align 1024
  SHARED e5: float8_e5m2[64, 128] align 1024
  SHARED d: float64[64, 16] align 1024

"""


def kernel(line: str) -> Kernel:
    return parse_kernel(HEAD + line)


def desc(buffer: str, major: str = "K") -> str:
    return f"desc({buffer}[0, 0], swizzle 128, lbo 0, sbo 1024, major {major})"


def wgmma(kind: str, acc: str, a: str, b: str) -> str:
    return f"WGMMA.m64{kind} {acc}[0], {a}, {b}, accumulate 0"


FORMS = (
    wgmma("n16k16.bfloat16", "acc", desc("h"), desc("h", "MN")),
    wgmma("n16k16.bfloat16", "acc", "half[8]", desc("h", "MN")),
    wgmma("n16k8.tf32", "acc", "full[4]", desc("f")),
    wgmma("n16k8.tf32", "acc", desc("f"), desc("f")),
    wgmma("n48k32.int8.uint8", "sums", "bytes[16]", desc("u")),
    wgmma("n16k32.uint8", "sums", desc("u"), desc("u")),
    wgmma("n16k32.float8_e4m3.float8_e5m2", "acc", "quarter[0]", desc("e5")),
    wgmma("n16k32.float8_e5m2", "acc", desc("e5"), desc("e5")),
    "MMA.m16n8k16.bfloat16 acc[4], half[0], half[8]",
    "MMA.m16n8k8.tf32 acc[0], full[0], full[4]",
    "MMA.m16n8k32.int8 sums[0], bytes[0], bytes[16]",
    "MMA.m16n8k32.float8_e4m3.float8_e5m2 acc[0], quarter[0], other[0]",
    "LDMATRIX half[0] <- h[threadIdx.x % 32, 0]",
    "LDMATRIX.x2.trans half[4] <- h[threadIdx.x % 16, 8]",
    "LDMATRIX.x1 full[0] <- f[threadIdx.x % 8, 4]",
    "LDMATRIX bytes[0] <- i[threadIdx.x % 32, 16]",
    "STMATRIX h[threadIdx.x % 32, 0] <- half[8]",
    "STMATRIX.trans h[threadIdx.x % 32, 0] <- half[0]",
    "STMATRIX.x1.trans h[threadIdx.x % 8, 0] <- half[0]",
    "STMATRIX.x2 e4[threadIdx.x % 16, 0] <- quarter[0]",
)


@pytest.mark.parametrize("line", FORMS)
def test_every_form(line: str) -> None:
    found = kernel(line)
    verify_kernel(found)
    (stmt,) = found.body
    assert stmt_text(stmt, found) == line
    assert parse_kernel(str(found)) == found
    # every expression of the statement is found and rebuilt
    shifted = map_expressions(stmt, lambda e: e + sym("N"))
    assert list(expressions(shifted)) == [e + sym("N") for e in expressions(stmt)]
    assert [a.buffer for side in accesses(shifted) for a in side] == [a.buffer for side in accesses(stmt) for a in side]


# bad line, message
RULES = [
    (FORMS[0].replace("bfloat16", "float64"), "wgmma does not multiply float64"),
    (FORMS[4].replace("int8.uint8", "int8.float8_e5m2"), "wgmma does not multiply int8 by float8_e5m2"),
    (FORMS[4].replace("n48", "n40"), "wgmma has no n of 40: multiples of 8 from 8 to 256 exist; for int8, of 16 above 32"),
    (FORMS[6].replace("n16k32", "n16k16"), "wgmma has no k of 16 for float8_e4m3: k spans 32 bytes"),
    (FORMS[4].replace("sums", "acc"), "the accumulator 'acc' is not a Local int32 array of one axis"),
    (FORMS[1].replace("half[8]", "full[0]"), "the wgmma operand 'full' is not a Local bfloat16 array of one axis"),
    (FORMS[1].replace("half[8]", "half[9]"), "registers 9 to 16 of 'half', which has 16"),
    (FORMS[2].replace("full[4]", "acc[64]"), "the wgmma operand 'acc' is also an accumulator of wgmma"),
    (FORMS[4].replace(desc("u"), desc("i")), "the wgmma operand 'i' is not uint8 in Shared memory"),
    (FORMS[3].replace("major K", "major MN", 1), "a wgmma operand of float32 must be K-major"),
    (FORMS[7].replace("major K", "major MN", 1), "a wgmma operand of float8_e5m2 must be K-major"),
    (FORMS[8].replace("bfloat16", "float16"), "the mma operand 'half' is not a Local float16 array of one axis"),
    (FORMS[8].replace("bfloat16", "bfloat16.float16"), "mma does not multiply bfloat16 by float16"),
    (FORMS[8].replace("k16", "k8"), "mma has no k of 8 for bfloat16: k spans 32 bytes"),
    (FORMS[8].replace("half[8]", "half[14]"), "registers 14 to 17 of 'half', which has 16"),
    (FORMS[8].replace("acc[4]", "acc[126]"), "registers 126 to 129 of 'acc', which has 128"),
    (FORMS[10].replace("sums", "acc"), "the accumulator 'acc' is not a Local int32 array of one axis"),
    ("LDMATRIX h[0, 0] <- h[0, 0]", "ldmatrix loads a Local array from Shared memory"),
    ("LDMATRIX half[0] <- x[0]", "ldmatrix loads a Local array from Shared memory"),
    ("LDMATRIX.x1 r <- f[0, 0]", "ldmatrix loads a Local array from Shared memory"),
    ("LDMATRIX half[0] <- f[0, 0]", "ldmatrix does not convert: 'f' is float32, 'half' is bfloat16"),
    ("LDMATRIX.x1 wide[0] <- d[0, 0]", "ldmatrix moves elements of 8, 16 or 32 bits, not float64"),
    ("LDMATRIX.x1.trans full[0] <- f[0, 0]", "ldmatrix transposes 16-bit elements, not float32"),
    ("LDMATRIX bytes[17] <- i[0, 0]", "registers 17 to 32 of 'bytes', which has 32"),
    ("STMATRIX.x2.trans e4[0, 0] <- quarter[0]", "stmatrix transposes 16-bit elements, not float8_e4m3"),
    ("STMATRIX.x2 h[0, 0] <- half[13]", "registers 13 to 16 of 'half', which has 16"),
]


@pytest.mark.parametrize(("bad", "text"), RULES, ids=[text for _, text in RULES])
def test_rules(bad: str, text: str) -> None:
    with pytest.raises(VerifyError) as caught:
        verify_kernel(kernel(bad))
    assert str(caught.value).split("\n")[0] == f"kernel 'k': {text}"


def test_matrices_that_the_text_cannot_say() -> None:
    found = kernel("STMATRIX h[0, 0] <- half[0]")
    (stmt,) = found.body
    assert isinstance(stmt, StMatrix)
    with pytest.raises(VerifyError, match="stmatrix moves 1, 2 or 4 matrices, not 3"):
        verify_kernel(replace(found, body=(StMatrix(stmt.out, stmt.source, 3),)))
