"""Each rule of the verifier: a kernel that breaks it, with the message, and a twin that does not."""

import pickle
from dataclasses import replace
from inspect import signature

import pytest

from taskfuse import dtypes
from taskfuse.errors import VerifyError
from taskfuse.ir.scalar import const
from taskfuse.ir.types import ParallelType
from taskfuse.kir import Kernel, parse_kernel, verify_kernel
from taskfuse.kir.declaration_rules import NO_NAME
from taskfuse.kir.declarations import HostParam, TensorParam
from taskfuse.kir.nodes import Bind, Choose, If
from taskfuse.kir.statement_rules import STATEMENT_RULES
from taskfuse.kir.synchronization import Barrier, BarrierScope
from taskfuse.kir.verify import RULES

DECLARATIONS = """\
  DIM N, S multiple_of 8
  HOST half = N//2
  TENSORMAP map_x = x box (8, 64) swizzle 128
  TENSORMAP map_y = y box (8, 64) swizzle 128
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

# bad line, message, good line
STATEMENTS = [
    # names and scopes
    ("acc[i] = neg(b[0])", "'i' is not in scope", "acc[3] = neg(b[0])"),
    ("r = neg(b[i])", "'i' is not in scope", "FOR i in 0..S:\n  r = neg(b[i])"),
    ("FOR i in i..4:\n  PASS", "'i' is not in scope", "FOR i in 0..4:\n  PASS"),
    ("IF i < 3:\n  PASS", "'i' is not in scope", "IF half < 3:\n  PASS"),
    ("p.advance(1)", "cursor 'p' is not initialized here", "p = CURSOR(slots 2, slot 0, parity 0)\np.advance(1)"),
    ("WAIT full[p.slot] parity 0", "cursor 'p' is not initialized here", "p = CURSOR(slots 2, slot 0, parity 0)\nWAIT full[p.slot] parity p.parity"),
    (
        "IF N < 3:\n  p = CURSOR(slots 2, slot 0, parity 0)\nWAIT full[p.slot] parity 0",
        "cursor 'p' is not initialized here",
        "FOR threadIdx.y in TIDy{4}:\n  p = CURSOR(slots 2, slot 0, parity 0)\nWAIT full[p.slot] parity 0",
    ),
    # accesses
    ("r = neg(x[0])", "'x' has 2 axes, the access 1 indices", "r = neg(x[0, 0])"),
    ("f[-1] = neg(r)", "index -1 is outside axis 0 of 'f', whose extent is S", "f[S - 1] = neg(r)"),
    ("acc[64] = neg(r)", "index 64 is outside axis 0 of 'acc', whose extent is 64", "acc[63] = neg(r)"),
    ("COPY.async f[0] <- b[-1] width 1 if N > 0", "index -1 is outside axis 0 of 'b', whose extent is S", "COPY.async f[0] <- b[-1] width 1 if 0"),
    ("ARRIVE full[2]", "slot 2 is outside the 2 slots of mbarrier 'full'", "ARRIVE full[1]"),
    (
        "FOR i in 0..4:\n  acc[i] = neg(r)",
        "index i of Local 'acc' is not a constant after unrolling: 'i' is not the variable of an unrolled loop",
        "FOR i in 0..4 UNROLL:\n  acc[2*i + 1] = neg(r)",
    ),
    (
        "p = CURSOR(slots 2, slot 0, parity 0)\nacc[p.slot] = neg(r)",
        "index p.slot of Local 'acc' is not a constant after unrolling: 'p.slot' is not the variable of an unrolled loop",
        "p = CURSOR(slots 2, slot 0, parity 0)\ns[p.slot, 0, 0] = neg(r)",
    ),
    ("x[0, 0] = neg(r)", "input 'x' is written", "y[0, 0] = neg(r)"),
    ("TMA map_x(0, 0) <- s[0, 0, 0]", "input 'x' is written", "TMA map_y(0, 0) <- s[0, 0, 0]"),
    # conditions and loops
    ("IF N:\n  PASS", "the condition N is not a boolean", "IF N != 0:\n  PASS"),
    ("r = cat(b[0] if S, otherwise 0.0)", "the condition S is not a boolean", "r = cat(b[0] if S > 0, otherwise 0.0)"),
    (WGMMA.replace("accumulate 0", "accumulate N"), "the condition N is not a boolean", WGMMA.replace("accumulate 0", "accumulate N > 0")),
    ("FOR N in 0..4:\n  PASS", "the loop variable 'N' already means something here", "FOR n in 0..4:\n  PASS"),
    (
        "FOR i in 0..4:\n  FOR i in 0..4:\n    PASS",
        "the loop variable 'i' already means something here",
        "FOR i in 0..4:\n  PASS\nFOR i in 0..4:\n  PASS",
    ),
    ("FOR i in 0..4 step 0:\n  PASS", "the step 0 is not positive", "FOR i in 0..4 step N:\n  PASS"),
    (
        "FOR i in 0..N UNROLL:\n  PASS",
        "the unrolled loop's bound N is not a constant",
        "FOR i in 0..4 UNROLL:\n  FOR j in i..4 UNROLL:\n    PASS",
    ),
    # computations
    ("r = add(b[0])", "add takes 2 operands, not 1", "r = add(b[0], 1.0)"),
    ("r = sin.int32(b[0])", "sin does not compute in int32", "r = sin.float64(b[0])"),
    ("r = neg.bool(b[0])", "neg does not compute in bool", "r = abs.bool(b[0])"),
    ("r = bitwise_not(b[0])", "bitwise_not does not compute in float32", "r = bitwise_not.int32(b[0])"),
    ("r = left_shift.bool(b[0], true)", "left_shift does not compute in bool", "r = left_shift.uint8(b[0], 1)"),
    ("r = copy.int8(300)", "300 is not a value of int8", "r = copy.int8(100)"),
    ("r = cat(0.5:int32 if N < 3, otherwise 0.0)", "0.5 is not a value of int32", "r = cat(5:int32 if N < 3, otherwise 0.0)"),
    ("COPY f[0] <- x[0, 0] width 4", "a vector copy does not convert: 'f' is float32, 'x' is bfloat16", "COPY f[0] <- b[0] width 4"),
    ("COPY r <- b[0] width 4", "a vector copy needs an axis on both sides", "COPY acc[0] <- b[0] width 4"),
    ("COPY f[0] <- b[0] width 8", "a vector of 8 float32: widths are 2, 4, 8 and 16, and at most 16 bytes", "COPY y[0, 0] <- x[0, 0] width 8"),
    ("COPY f[0] <- b[0] width 3", "a vector of 3 float32: widths are 2, 4, 8 and 16, and at most 16 bytes", "COPY f[0] <- b[0] width 2"),
    ("COPY.async f[0] <- b[0] width 4 if N", "the condition N is not a boolean", "COPY.async f[0] <- b[0] width 4 if N > 0"),
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
    # synchronization
    ("SYNC block 64", "a block barrier of 64 threads in blocks of 128", "SYNC block 128"),
    ("SYNC warp 16", "a warp barrier of 16 threads: all 32 of a warp meet, or all of a block that has fewer", "SYNC warp 32"),
    ("SYNC named 0, 64", "named barrier 0: ids are 1 to 15", "SYNC named 15, 64"),
    ("SYNC named 16, 64", "named barrier 16: ids are 1 to 15", "SYNC named threadIdx.y + 1, 64"),
    ("SYNC named 1, 48", "a named barrier of 48 threads: not a multiple of 32", "SYNC named 1, S"),
    ("INIT full[0] count 0", "an mbarrier counts 1 to 1048575 arrivals, not 0", "INIT full[0] count N"),
    ("EXPECT full[0] bytes 1048576", "an mbarrier expects at most 1048575 bytes, not 1048576", "EXPECT full[0] bytes 1048575"),
    ("FOR threadIdx.w in 0..4:\n  PASS", NO_NAME.format("threadIdx.w"), "FOR w.threadIdx in 0..4:\n  PASS"),
    ("FOR min in 0..4:\n  PASS", NO_NAME.format("min"), "FOR minimum in 0..4:\n  PASS"),
    (
        "FOR p.slot in 0..4:\n  PASS\np = CURSOR(slots 2, slot 0, parity 0)",
        NO_NAME.format("p.slot"),
        "FOR n.slot in 0..4:\n  PASS\np = CURSOR(slots 2, slot 0, parity 0)",
    ),
    (
        "FOR p in 0..4:\n  PASS\np = CURSOR(slots 2, slot 0, parity 0)",
        "the loop variable 'p' already means something here",
        "FOR n in 0..4:\n  PASS\np = CURSOR(slots 2, slot 0, parity 0)",
    ),
    (
        "p = CURSOR(slots 2, slot 0, parity 0)\nIF N > 3:\n  p = CURSOR(slots 4, slot 0, parity 0)",
        "the cursor 'p' runs over 4 slots here and over 2 elsewhere",
        "p = CURSOR(slots 2, slot 0, parity 0)\nIF N > 3:\n  p = CURSOR(slots 2, slot 1, parity 0)",
    ),
    (
        "p = CURSOR(slots 2, slot 0, parity 0)\nFOR n in 0..p.slot:\n  p.advance(1)",
        "the loop moves the cursor 'p', of which its own bounds speak",
        "p = CURSOR(slots 2, slot 0, parity 0)\nFOR n in 0..p.slot:\n  PASS\np.advance(1)",
    ),
    ("r = CURSOR(slots 2, slot 0, parity 0)", "the cursor 'r' already means something here", "p = CURSOR(slots 2, slot 0, parity 0)"),
    ("p = CURSOR(slots 0, slot 0, parity 0)", "a cursor over 0 slots; it needs at least 1", "p = CURSOR(slots 1, slot 0, parity 0)"),
    ("p = CURSOR(slots 2, slot 2, parity 0)", "a cursor at slot 2 with parity 0: slots are 0 to 1, parities 0 and 1", "p = CURSOR(slots 2, slot 1, parity 0)"),
    ("p = CURSOR(slots 2, slot 0, parity 2)", "a cursor at slot 0 with parity 2: slots are 0 to 1, parities 0 and 1", "p = CURSOR(slots 2, slot 0, parity 1)"),
    # TMA
    (
        "TMA y[0, 0] <- map_x(0, 0) on full[0]",
        "TMA copies to and from Shared memory; 'y' is not Shared",
        "TMA s[1, 0, 0] <- map_x(0, 0) on full[0]",
    ),
    ("TMA f[0] <- map_x(0, 0) on full[0]", "TMA does not convert: 'f' is float32, 'x' is bfloat16", "TMA s[0, 0, 0] <- map_x(N, 0) on full[0]"),
    ("TMA s[0, 0, 0] <- map_x(0) on full[0]", "'map_x' has 2 axes, the copy 1 coordinates", "TMA map_y(0, 64) <- s[0, 0, 0]"),
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
    (
        "FOR i in 0..4:\n  SHUFFLE acc[i] <- r xor 8",
        "index i of Local 'acc' is not a constant after unrolling: 'i' is not the variable of an unrolled loop",
        "FOR i in 0..4 UNROLL:\n  SHUFFLE acc[i] <- r xor 8",
    ),
    ("WAIT_GROUP wgmma.read <= 0", "wgmma has no wait_group of reads only", "WAIT_GROUP bulk.read <= 0"),
    ("WAIT_GROUP copy.read <= 0", "copy has no wait_group of reads only", "WAIT_GROUP copy <= 7"),
    ("WAIT_GROUP bulk <= 8", "a wait_group to 8 unfinished batches: 0 to 7 are possible", "WAIT_GROUP bulk <= 7"),
    ("SETMAXNREG 20", "setmaxnreg 20: multiples of 8 from 24 to 256 are possible", "SETMAXNREG 24"),
    ("SETMAXNREG 42", "setmaxnreg 42: multiples of 8 from 24 to 256 are possible", "SETMAXNREG 256"),
]


@pytest.mark.parametrize(("bad", "text", "good"), STATEMENTS, ids=[s[1][:40] for s in STATEMENTS])
def test_statement_rules(bad: str, text: str, good: str) -> None:
    declarations = DECLARATIONS.replace("  MBARRIER", "  SHARED e: float8_e5m2[2, 64, 64] align 1024\n  MBARRIER")
    assert message(kernel(bad, declarations=declarations))[0] == text
    verify_kernel(kernel(good, declarations=declarations))


# what to replace in the header, the bad and the good replacement, message, line
HEADERS = [
    ("half = N", "full = N", "other = N", "'full' is declared twice", "HOST full = N//2"),
    (
        "DIM N, S multiple_of 8",
        "DIM N, S min 5 max 4",
        "DIM N, S min 8 max 8 multiple_of 8",
        "no value of 'S' is at least 5, at most 4 and a multiple of 1",
        None,
    ),
    ("b: float32[S]", "b: float32[half]", "b: float32[S + N]", "the shape of 'b' uses 'half', which is not an extent", None),
    (
        "HOST half = N//2",
        "HOST half = 2*T",
        "HOST half = 2*N\n  HOST t = half + N",
        "host parameter 'half' uses 'T', which is neither an extent nor an earlier host parameter",
        None,
    ),
    ("GRID (N,", "GRID (i0,", "GRID (half,", "the launch shape uses 'i0', which is neither an extent nor a host parameter", None),
    ("BLOCK (32, 4", "BLOCK (32, -4", "BLOCK (32, 2", "the launch shape has the extent -4", None),
    ("BLOCK (32, 4", "BLOCK (32, 64", "BLOCK (32, 32", "a block has 2048 threads; at most 1024 are possible", None),
    ("BLOCK (32, 4, 1", "BLOCK (1, 1, 65", "BLOCK (1, 1, 64", "a block has 65 threads along z; at most 64 are possible", None),
    ("map_x = x", "map_x = w", "map_x = x", "tensor map 'map_x' is of 'w', which is not a tensor argument", None),
    ("map_x = x box (8, 64)", "map_x = x box (64)", "map_x = x box (1, 64)", "the box of 'map_x' has 1 axes, 'x' has 2", None),
    (
        "map_x = x box (8, 64)",
        "map_x = x box (512, 64)",
        "map_x = x box (256, 64)",
        "the box of 'map_x' has an axis of 512 elements; 1 to 256 are possible",
        None,
    ),
    (
        "map_x = x box (8, 64)",
        "map_x = x box (8, 12)",
        "map_x = x box (8, 16)",
        "the innermost axis of the box of 'map_x' has 24 bytes, not a multiple of 16",
        None,
    ),
    (
        "map_x = x box (8, 64)",
        "map_x = x box (8, 128)",
        "map_x = x box (8, 32)",
        "the innermost axis of the box of 'map_x' has 256 bytes, more than the swizzle span of 128",
        None,
    ),
    (
        "map_x = x box (8, 64) swizzle 128",
        "map_x = x box (8, 64) swizzle 48",
        "map_x = x box (8, 64) swizzle 0",
        "a swizzle of 48 bytes: 0, 32, 64 and 128 are possible",
        None,
    ),
    ("acc: float32[64]", "acc: float32[S]", "acc: float32[32]", "Local 'acc' has the extent S, which is not a constant", "LOCAL acc: float32[S]"),
    ("w: float32[N, S]", "w: float32[N, T]", "w: float32[N, half]", "the shape of 'w' uses 'T', which is neither an extent nor a host parameter", None),
    ("[S] align 16", "[S] align 2", "[S] align 4", "'f' has the alignment 2; it must be a power of two, at least the element's 4 bytes", None),
    ("[S] align 16", "[S] align 24", "[S] align 32", "'f' has the alignment 24; it must be a power of two, at least the element's 4 bytes", None),
    ("w: float32[N, S]", "w: float32[N, S] @ 0", "w: float32[N, S]", "'w' has an offset, which only a Shared buffer can have", None),
    ("[S] align 16", "[S] align 16 @ 8", "[S] align 16 @ 16", "the offset 8 of 'f' is not a multiple of its alignment 16", None),
    ("[S] align 16", "[S] align 16 @ N", "[S] align 16 @ 2*S", "the offset N of 'f' is not a multiple of its alignment 16", None),
    ("[S] align 16", "[S] align 16 @ -16", "[S] align 16 @ 0", "the offset -16 of 'f' is negative", None),
    ("[S] align 16", "[S] align 16 @ 16*T", "[S] align 16 @ 16*N", "the offset of 'f' uses 'T', which is neither an extent nor a host parameter", None),
    ("full[2]", "full[0]", "full[1]", "mbarrier 'full' has 0 slots; it needs at least 1", "MBARRIER full[0]"),
]


@pytest.mark.parametrize(("place", "bad", "good", "text", "line"), HEADERS, ids=[h[3][:40] for h in HEADERS])
def test_declaration_rules(place: str, bad: str, good: str, text: str, line: str | None) -> None:
    header = SIGNATURE + DECLARATIONS
    assert place in header
    found, under = message(parse_kernel(header.replace(place, bad)))
    assert found == text
    assert line is None or under == line
    verify_kernel(parse_kernel(header.replace(place, good)))


def test_a_shuffle_needs_a_warp() -> None:
    small = DECLARATIONS.replace("BLOCK (32, 4, 1)", "BLOCK (8, 2, 1)")
    assert message(kernel("SHUFFLE r <- r xor 1", declarations=small))[0] == "a shuffle needs a whole warp; a block has 16 threads"
    verify_kernel(kernel("SHUFFLE r <- r xor 1", declarations=small.replace("8, 2, 1", "8, 2, N")))


def test_tma_has_five_axes_at_most() -> None:
    header = "KERNEL k(x: float32[N, N, N, N, {0}]) -> ()\n  DIM N\n  TENSORMAP m = x box (1, 1, 1, 1, {1}) swizzle 0\n  GRID (1, 1, 1)  BLOCK (32, 1, 1)"
    assert message(parse_kernel(header.format("N, N", "1, 4")))[0] == "the box of 'm' has 6 axes; 1 to 5 are possible"
    verify_kernel(parse_kernel(header.format("N", "4")))


def test_names_that_cannot_be_read_back() -> None:
    def named(name: str) -> Kernel:
        return Kernel("k", (), (HostParam(name, const(1)),), *[(const(1),) * 3] * 2, (), (), (), ())

    for bad in ("a b", "2d", "", "SYNC", "min", "threadIdx.x"):
        text = NO_NAME.format(bad)
        assert message(named(bad))[0] == text
    verify_kernel(named("grid.x"))


def test_params_are_in_order() -> None:
    x, y = TensorParam("x", dtypes.float32, (), is_output=False), TensorParam("y", dtypes.float32, (), is_output=True)
    launch = [(const(1),) * 3] * 2
    text = "'x' is out of order: inputs and scalars come first, then outputs, then derived parameters"
    assert message(Kernel("k", (), (y, x), *launch, (), (), (), ()))[0] == text
    verify_kernel(Kernel("k", (), (x, y), *launch, (), (), (), ()))


def body_of(stmt: object) -> Kernel:
    base = kernel("PASS")
    return Kernel(**{**{f: getattr(base, f) for f in Kernel.__match_args__}, "body": (stmt,)})


NODES = [
    (If(()), "an IF without branches"),
    (Barrier(BarrierScope.NAMED, const(64)), "a named barrier without an id"),
    (Barrier(BarrierScope.GRID, const(64)), "a grid barrier without a counter"),
    (Barrier(BarrierScope.GRID, const(64), counter="gone"), "there is no counter 'gone'"),
    (Barrier(BarrierScope.WARP, const(32), id=const(1)), "a warp barrier has no id"),
    (Barrier(BarrierScope.BLOCK, const(128), counter="done"), "a block barrier has no counter"),
    (Bind(const(0), ParallelType.Serial, const(1), ()), "Serial is not a block or thread type"),
]


@pytest.mark.parametrize(("stmt", "text"), NODES, ids=[n[1] for n in NODES])
def test_nodes_that_text_cannot_say(stmt: object, text: str) -> None:
    found = body_of(stmt)
    with pytest.raises(VerifyError) as caught:
        verify_kernel(found)
    assert str(caught.value).startswith(f"kernel 'k': {text}\n")


def test_undeclared_names() -> None:
    other = parse_kernel(
        """\
KERNEL k(q: float32[4], beta: float32, z: float32[4, 4]) -> (t: float32[4])
  TENSORMAP map_z = z box (4, 4) swizzle 0
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL r: float32[]
  LOCAL acc: float32[64]
  SHARED s: float32[2, 64, 64] align 1024
  MBARRIER gone[1], full[2]

r = neg(q[0])
r = neg(beta)
ARRIVE gone[0]
TMA s[0, 0, 0] <- map_z(0, 0) on full[0]
acc[0] = cat(q[0] if threadIdx.x < 1, otherwise 0.0)"""
    )
    texts = [
        "there is no buffer or tensor 'q'",
        "there is no scalar argument 'beta'",
        "there is no mbarrier 'gone'",
        "there is no tensor map 'map_z'",
        "there is no buffer or tensor 'q'",
    ]
    for stmt, text in zip(other.body, texts, strict=True):
        assert message(body_of(stmt))[0] == text


def test_a_choice_has_cases() -> None:
    stmt = kernel("r = cat(b[0] if N < 1, otherwise 0.0)").body[0]
    assert isinstance(stmt, Choose)
    assert message(body_of(Choose(stmt.out, "cat", ())))[0] == "a choice without cases"
    verify_kernel(body_of(stmt))


def test_the_message_stands_under_the_statement() -> None:
    text = """\
KERNEL scale(x: float32[N]) -> (y: float32[N])
  DIM N
  GRID (N, 1, 1)  BLOCK (1, 1, 1)

FOR blockIdx.x in BIDx{N}:
  IF blockIdx.x < 1:  # first
    y[blockIdx.x] = copy(x[blockIdx.x])
  ELSE IF i == 1:  # second
    y[blockIdx.x] = mul(y[blockIdx.x], 2.0)"""
    with pytest.raises(VerifyError) as caught:
        parse_kernel(text).check_ir()
    assert (
        str(caught.value)
        == """\
kernel 'scale': 'i' is not in scope
  | KERNEL scale(x: float32[N]) -> (y: float32[N])
  |   DIM N
  |   GRID (N, 1, 1)  BLOCK (1, 1, 1)
  |
  | FOR blockIdx.x in BIDx{N}:
  |   IF blockIdx.x < 1:  # first
  |     y[blockIdx.x] = copy(x[blockIdx.x])
  |   ELSE IF i == 1:  # second
  |   ^ 'i' is not in scope
  |     y[blockIdx.x] = mul(y[blockIdx.x], 2.0)"""
    )
    with pytest.raises(VerifyError) as caught:
        parse_kernel(text.replace("i == 1", "N == 1").replace("    y[blockIdx.x] = mul(", "    x[blockIdx.x] = mul(")).check_ir()
    assert str(caught.value).endswith("  |     x[blockIdx.x] = mul(y[blockIdx.x], 2.0)\n  |     ^ input 'x' is written")


def test_every_rule_is_in_the_table() -> None:
    import taskfuse.kir.instruction_rules as instructions
    import taskfuse.kir.statement_rules as statements
    import taskfuse.kir.synchronization_rules as synchronization
    import taskfuse.kir.witness_rules as witness

    defined = {
        f
        for module in (statements, synchronization, instructions, witness)
        for name, f in vars(module).items()
        if callable(f) and getattr(f, "__module__", "") == module.__name__ and name[0].islower() and list(signature(f).parameters) == ["subject", "scope"]
    }
    assert set(RULES) == defined
    assert len(STATEMENT_RULES) < len(RULES)


def test_rules_are_looked_at_once_for_each_kernel_object(monkeypatch: pytest.MonkeyPatch) -> None:
    found = kernel("y[blockIdx.x, threadIdx.x] = copy(b[threadIdx.x])\n")
    assert not found.keeps_rules
    verify_kernel(found)
    assert found.keeps_rules
    with monkeypatch.context() as patched:
        patched.setattr("taskfuse.kir.verify.DECLARATION_RULES", ())
        patched.setattr("taskfuse.kir.verify.Scope", None)  # it would not come through
        verify_kernel(found)
    wrong = replace(found, name="", params=())  # another object
    assert not wrong.keeps_rules
    for _ in range(2):
        with pytest.raises(VerifyError, match="'' is not a name"):
            verify_kernel(wrong)
    assert pickle.loads(pickle.dumps(found)) == found
