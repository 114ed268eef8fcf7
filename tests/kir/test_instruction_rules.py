"""Rules of instructions on many elements: a line that breaks one, with the message, and one that does not."""

import pytest

from taskfuse.kir import verify_kernel
from tests.kir.refused import DECLARATIONS, WGMMA, is_refused, kernel, message

# bad line, message, good line
INSTRUCTIONS = [
    ("COPY f[0] <- x[0, 0] width 4", "a vector copy does not convert: 'f' is float32, 'x' is bfloat16", "COPY f[0] <- b[0] width 4"),
    ("COPY r <- b[0] width 4", "a vector copy needs an axis on both sides", "COPY acc[0] <- b[0] width 4"),
    ("COPY f[0] <- b[0] width 8", "a vector of 8 float32: widths are 2, 4, 8 and 16, and at most 16 bytes", "COPY y[0, 0] <- x[0, 0] width 8"),
    ("COPY f[0] <- b[0] width 3", "a vector of 3 float32: widths are 2, 4, 8 and 16, and at most 16 bytes", "COPY f[0] <- b[0] width 2"),
    (
        "COPY.async f[0] <- low[0, 0] width 4",
        "an asynchronous copy is from Global to Shared memory, not from 'low' to 'f'",
        "COPY.async f[0] <- b[0] width 4",
    ),
    (
        "COPY.async acc[0] <- b[0] width 4",
        "an asynchronous copy is from Global to Shared memory, not from 'b' to 'acc'",
        "COPY.async f[0] <- b[0] width 1",
    ),
    ("COPY.async f[0] <- x[0, 0] width 2", "an asynchronous copy does not convert: 'f' is float32, 'x' is bfloat16", "COPY.async f[0] <- b[0] width 2"),
    (
        "COPY.async s[0, 0, 0] <- x[0, 0] width 1",
        "an asynchronous copy of 1 bfloat16: 4, 8 or 16 bytes are possible",
        "COPY.async s[0, 0, 0] <- x[0, 0] width 2",
    ),
    ("COPY.async f[0] <- b[0] width 8", "an asynchronous copy of 8 float32: 4, 8 or 16 bytes are possible", "COPY.async s[0, 0, 0] <- x[0, 0] width 8"),
    # updates
    ("UPDATE f[0] by add of b[0]", "an update is of an element in Global memory, and 'f' is not", "UPDATE w[0, 0] by add of f[0]"),
    ("UPDATE y[0, 0] by add of b[0]", "an update does not convert: 'y' is bfloat16, 'b' is float32", "UPDATE w[0, 0] by add of r"),
    ("UPDATE w[0, 0] by maximum of b[0]", "no device combines float32 by maximum in one step", "UPDATE w[0, 0] by add of b[0]"),
    ("UPDATE y[0, 0] by add of x[0, 0] width 2", "no device combines bfloat16 by add in one step", "UPDATE w[0, 0] by add of b[0] width 2"),
    ("UPDATE w[0, 0] by add of b[0] width 8", "no instruction combines 8 float32 by add", "UPDATE w[0, 0] by add of b[0] width 4"),
    (
        "UPDATE w[0, 0] by add of r width 4",
        "an update of vectors needs a last axis on both sides, at an index without values",
        "UPDATE w[0, 0] by add of acc[0] width 4",
    ),
    # TMA
    (
        "TMA y[0, 0] <- map_x(0, 0) on full[0]",
        "TMA copies to and from Shared memory; 'y' is not Shared",
        "TMA s[1, 0, 0] <- map_x(0, 0) on full[0]",
    ),
    ("TMA f[0] <- map_x(0, 0) on full[0]", "TMA does not convert: 'f' is float32, 'x' is bfloat16", "TMA s[0, 0, 0] <- map_x(N, 0) on full[0]"),
    ("TMA s[0, 0, 0] <- map_x(0) on full[0]", "'map_x' has 2 axes, the copy 1 coordinates", "TMA map_y(0, 64) <- s[0, 0, 0]"),
    (
        "TMA map_2(0, 64) <- s[0, 0, 0]",
        "'map_2' has steps, and a box that is stored has all elements of its part of the tensor",
        "TMA s[0, 0, 0] <- map_2(0, 64) on full[0]",
    ),
    (
        "TMA map_y(0, 64) <- s[0, 0, 0] by mul",
        "the copy engine does not combine bfloat16 by mul",
        "TMA map_y(0, 64) <- s[0, 0, 0]",
    ),
    ("TMA low[0, 0] <- map_x(0, 0) on full[0]", "'low' is aligned to 128 bytes; TMA needs 1024", "TMA s[0, 8, 0] <- map_x(0, 0) on full[0]"),
    # wgmma
    (WGMMA.replace("bfloat16", "float64"), "wgmma does not multiply float64", WGMMA),
    (WGMMA.replace("n16k", "n12k"), "wgmma has no n of 12: multiples of 8 from 8 to 256 exist", WGMMA.replace("n16k", "n24k")),
    (WGMMA.replace("k16", "k32"), "wgmma has no k of 32 for bfloat16: k spans 32 bytes", WGMMA),
    (WGMMA.replace("acc[0]", "r"), "the accumulator 'r' is not a Local float32 array of one axis", WGMMA),
    (WGMMA.replace("acc[0]", "acc[60]"), "registers 60 to 67 of 'acc', which has 64", WGMMA.replace("acc[0]", "acc[56]")),
    (WGMMA.replace("s[0, 0, 0]", "x[0, 0]"), "the wgmma operand 'x' is not bfloat16 in Shared memory", WGMMA.replace("s[0, 0, 0]", "s[0, 0, 0] + 32*N")),
    (WGMMA.replace("swizzle 128", "swizzle 96"), "a swizzle of 96 bytes: 0, 32, 64 and 128 are possible", WGMMA.replace("swizzle 128", "swizzle 32")),
    (WGMMA.replace("lbo 0", "lbo 8"), "the byte offsets of a descriptor are multiples of 16, not 8 and 1024", WGMMA.replace("lbo 0", "lbo 16")),
    (WGMMA.replace("lbo 0", "lbo -16"), "the byte offsets of a descriptor are 0 to 262128, not -16 and 1024", WGMMA.replace("lbo 0", "lbo 16")),
    (WGMMA.replace("lbo 0", "lbo 262144"), "the byte offsets of a descriptor are 0 to 262128, not 262144 and 1024", WGMMA.replace("lbo 0", "lbo 262128")),
    (
        WGMMA.replace("s[1, 0, 0]", "s[1, 0, 0] + 8"),
        "the descriptor of 's' starts at byte 8, not a multiple of 16",
        WGMMA.replace("s[1, 0, 0]", "s[1, 0, 0] + 64"),
    ),
    (
        WGMMA.replace("k16.bfloat16", "k32.float8_e5m2").replace("s[", "e[").replace("major K", "major MN"),
        "a wgmma operand of float8_e5m2 must be K-major",
        WGMMA.replace("major K", "major MN"),
    ),
    (
        WGMMA.replace("s[0, 0, 0]", "low[0, 0]"),
        "'low' is aligned to 128 bytes; its swizzle needs 1024",
        WGMMA.replace("s[0, 0, 0], swizzle 128", "low[0, 0], swizzle 0"),
    ),
    # other instructions
    ("STMATRIX y[0, 0] <- half_regs[0]", "stmatrix stores a Local array to Shared memory", "STMATRIX s[0, 0, 0] <- half_regs[0]"),
    ("STMATRIX f[0] <- half_regs[0]", "stmatrix does not convert: 'f' is float32, 'half_regs' is bfloat16", "STMATRIX low[0, 0] <- half_regs[0]"),
    ("STMATRIX low[0, 0] <- half_regs[9]", "registers 9 to 16 of 'half_regs', which has 16", "STMATRIX low[0, 0] <- half_regs[8]"),
    ("SHUFFLE r <- f[0] xor 1", "a shuffle exchanges registers; 'f' is not Local", "SHUFFLE r <- acc[0] xor 1"),
    ("SHUFFLE y[0, 0] <- half_regs[0] xor 1", "a shuffle exchanges registers; 'y' is not Local", "SHUFFLE half_regs[1] <- half_regs[0] xor 1"),
    ("SHUFFLE r <- half_regs[0] xor 1", "a shuffle does not convert: 'r' is float32, 'half_regs' is bfloat16", "SHUFFLE r <- r xor 2"),
    ("SHUFFLE r <- r xor 3", "a shuffle with mask 3: 1, 2, 4, 8 and 16 are possible", "SHUFFLE r <- r xor 4"),
    ("SHUFFLE r <- r xor 32", "a shuffle with mask 32: 1, 2, 4, 8 and 16 are possible", "SHUFFLE r <- r xor 16"),
]


@pytest.mark.parametrize(("bad", "text", "good"), INSTRUCTIONS, ids=[s[1][:40] for s in INSTRUCTIONS])
def test_instruction_rules(bad: str, text: str, good: str) -> None:
    is_refused(bad, text, good)


def test_a_shuffle_needs_a_warp() -> None:
    small = DECLARATIONS.replace("BLOCK (32, 4, 1)", "BLOCK (8, 2, 1)")
    assert message(kernel("SHUFFLE r <- r xor 1", declarations=small))[0] == "a shuffle needs a whole warp; a block has 16 threads"
    verify_kernel(kernel("SHUFFLE r <- r xor 1", declarations=small.replace("8, 2, 1", "8, 2, N")))
