"""Tensor cores and whole warps: wgmmas that read Shared memory while their warpgroup goes on, and releases that follow their wait_group; shuffles,
matrices moved to and from registers, and products of them.
"""

from __future__ import annotations

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.text import EXTENT, ArrivalSignal, Head, Small, Text, arrivals, dim, signal

K = 8
"""Elements of a row of an operand: the 32 bytes of one wgmma of tf32, and of the swizzle."""
ACCUMULATOR = "16*(threadIdx.x//32) + threadIdx.x % 32//4 + 8*(v//2), 2*(threadIdx.x % 4) + v % 2"
FRAGMENT = "16*(threadIdx.x//32) + threadIdx.x % 32//4 + 8*(v % 2)", "threadIdx.x % 4 + 4*(v//2)"


def _multiply(a: str, b: str) -> str:
    """``acc += A @ B^T``; A is a place in Shared memory, or a fragment."""
    first = a if a == "f[0]" else f"desc({a}, swizzle 32, lbo 0, sbo 256, major K)"
    return f"WGMMA.m64n8k8.tf32 acc[0], {first}, desc({b}, swizzle 32, lbo 0, sbo 256, major K), accumulate k >= 0"


def _declare(h: Head, groups: int, slots: int, trips: str) -> None:
    columns = f"{K}*{trips} + {K}"
    h.inputs += [f"a: float32[{64 * groups}, {columns}]", f"b: float32[8, {columns}]"]
    h.outputs.append(f"y: float32[{groups}, 64, 8]")
    h.storage += ["LOCAL acc: float32[4]", f"SHARED a_s: float32[{slots}, {64 * groups}, {K}] align 256", f"SHARED b_s: float32[{slots}, 8, {K}] align 256"]


def _clear(t: Text) -> None:
    with t.block("FOR v in 0..4 UNROLL"):
        t.add("acc[v] = copy(0.0)")


def _write(t: Text, group: str) -> None:
    with t.block("FOR v in 0..4 UNROLL"):
        t.add(f"y[{group}, {ACCUMULATOR}] = copy(acc[v])")


def loaded(c: Chooser) -> Small:
    """One thread loads operands for warpgroups that multiply."""
    groups, slots = c.pick((1, 1, 2)), c.pick((2, 2, 3, 1))
    h = Head(128, 1 + groups)
    h.dim = dim(c)
    trips = EXTENT if h.dim else str(c.pick((2, 3, 1, 0)))
    lag = int(slots > 1 and c.chance(50))
    how = c.pick((ArrivalSignal.WARP, ArrivalSignal.ALL, ArrivalSignal.NAMED))
    budgets = (40, 232) if groups == 2 and c.chance(50) else None
    _declare(h, groups, slots, trips)
    h.maps += [f"a.map = a box ({64 * groups}, {K}) swizzle 32", f"b.map = b box (8, {K}) swizzle 32"]
    h.mbarriers = {"full": (slots, 1), "empty": (slots, groups * arrivals(how, 128))}
    group = "threadIdx.y - 1"
    rows = f"64*({group})" if groups > 1 else "0"

    def release(cursor: str) -> None:
        if how is ArrivalSignal.NAMED:
            t.add("SYNC named threadIdx.y, 128")
            with t.block("IF threadIdx.x == 0"):
                t.add(f"ARRIVE empty[{cursor}.slot]")
        else:
            signal(t, how, 128, 0, f"empty[{cursor}.slot]")
        t.add(f"{cursor}.advance(1)")

    t = Text()
    h.initialize(t)
    with t.block("IF threadIdx.y < 1"):
        if budgets:
            t.add(f"SETMAXNREG {budgets[0]}")
        with t.block("IF threadIdx.x == 0"):
            t.add(f"p = CURSOR(slots {slots}, slot 0, parity 1)")
            with t.block(f"FOR k in 0..{trips}"):
                t.add("WAIT empty[p.slot] parity p.parity", f"EXPECT full[p.slot] bytes {4 * K * (64 * groups + 8)}")
                t.add(*(f"TMA {x}_s[p.slot, 0, 0] <- {x}.map(0, {K}*k) on full[p.slot]" for x in "ab"), "p.advance(1)")
    with t.block("ELSE"):
        if budgets:
            t.add(f"SETMAXNREG {budgets[1]}")
        t.add(*(f"{name} = CURSOR(slots {slots}, slot 0, parity 0)" for name in ("c", "r")[: 1 + lag]))
        _clear(t)
        with t.block(f"FOR k in 0..{trips}"):
            t.add("WAIT full[c.slot] parity c.parity", "FENCE wgmma")
            t.add(_multiply(f"a_s[c.slot, {rows}, 0]", "b_s[c.slot, 0, 0]"), "COMMIT wgmma", f"WAIT_GROUP wgmma <= {lag}")
            if lag:
                with t.block("IF k > 0"):
                    release("r")
                t.add("c.advance(1)")
            else:
                release("c")
        if lag:
            t.add("WAIT_GROUP wgmma <= 0")
            if trips != "0":
                with t.blocks([f"IF {trips} > 0"] if trips == EXTENT else []):
                    release("r")
        _write(t, group)
    return h.small("product", t)


def stored(c: Chooser) -> Small:
    """A warpgroup writes operands itself, and multiplies what it has made visible to the tensor core; A may stay in registers."""
    slots = c.pick((1, 2))
    held = slots == 1 and c.chance(60)
    h = Head(128, 1)
    h.dim = dim(c)
    trips = EXTENT if h.dim else str(c.pick((2, 3, 1, 0)))
    meet = c.pick(("SYNC block", "SYNC named 1, 128"))
    _declare(h, 1, slots, trips)
    element = "4*xor(j//4, threadIdx.x % 8//4) + j % 4"
    if held:
        h.storage.append("LOCAL f: float32[4]")
    t = Text()
    t.add(f"q = CURSOR(slots {slots}, slot 0, parity 0)")
    _clear(t)
    with t.block(f"FOR k in 0..{trips}"):
        if slots > 1:
            t.add("WAIT_GROUP wgmma <= 1", meet)  # of two iterations ago: it has read the slot
        if held:
            with t.block("FOR v in 0..4 UNROLL"):
                t.add(f"f[v] = copy(a[{FRAGMENT[0]}, {K}*k + {FRAGMENT[1]}])")
        for x, rows in (("a", 64), ("b", 8))[held:]:
            with t.blocks([f"IF threadIdx.x < {rows}", f"FOR j in 0..{K}"]):
                t.add(f"{x}_s[q.slot, threadIdx.x, {element}] = copy({x}[threadIdx.x, {K}*k + j])")
        t.add("FENCE proxy.async", meet, "FENCE wgmma")
        t.add(_multiply("f[0]" if held else "a_s[q.slot, 0, 0]", "b_s[q.slot, 0, 0]"), "COMMIT wgmma")
        if slots == 1:
            t.add("WAIT_GROUP wgmma <= 0", meet)
        t.add("q.advance(1)")
    t.add("WAIT_GROUP wgmma <= 0")
    _write(t, "0")
    return h.small("product", t)


def product(c: Chooser) -> Small:
    """A product of :func:`loaded` or :func:`stored` operands."""
    return (loaded if c.chance(60) else stored)(c)


def together(c: Chooser) -> Small:
    """Warps that exchange registers, or matrices of 8 x 8 through Shared memory; a lane moves elements for others."""
    rows = c.pick((1, 2))
    h = Head(32, rows)
    h.dim = dim(c)
    trips, stages = EXTENT if h.dim else str(c.pick((2, 1, 3, 0))), c.pick((1, 2))
    across = rows > 1 and c.chance(50)
    meet = "SYNC block" if across or c.chance(30) else c.pick(("SYNC warp", "SYNC named threadIdx.y + 1, 32"))
    partner = f"{rows - 1} - threadIdx.y" if across else "threadIdx.y"
    h.inputs.append(f"x: float32[{trips}, {rows}, 64]")
    h.outputs.append(f"y: float32[{trips}, {rows}, 64]")
    h.storage += ["LOCAL r: float32[]", "LOCAL f: bfloat16[2]", f"SHARED s: bfloat16[{stages}, {rows}, 8, 8] align 128"]
    loads = c.chance(50)
    multiplies = c.chance(40)
    if multiplies:
        h.storage += ["LOCAL acc: float32[4]", "LOCAL a: bfloat16[8]", "LOCAL b: bfloat16[4]"]
    own, swapped = "s[q.slot, threadIdx.y, threadIdx.x//4, 2*(threadIdx.x % 4) + v]", f"s[q.slot, {partner}, threadIdx.x//4, 2*(threadIdx.x % 4) + v]"
    t = Text()
    t.add(f"q = CURSOR(slots {stages}, slot 0, parity 0)")
    with t.block(f"FOR k in 0..{trips}"):
        with t.block("FOR v in 0..2 UNROLL"):
            t.add("r = copy(x[k, threadIdx.y, 2*threadIdx.x + v])", f"SHUFFLE r <- r xor {c.pick((1, 4, 16))}", "f[v] = cast(r)")
            if loads:
                t.add(f"{own} = copy(f[v])")
        if not loads:
            t.add("STMATRIX.x1 s[q.slot, threadIdx.y, threadIdx.x % 8, 0] <- f[0]")
        t.add(meet)
        if loads:
            t.add(f"LDMATRIX.x1 f[0] <- s[q.slot, {partner}, threadIdx.x % 8, 0]")
        else:
            with t.block("FOR v in 0..2 UNROLL"):
                t.add(f"f[v] = copy({swapped})")
        if multiplies:
            for name, count in (("a", 8), ("b", 4)):
                with t.block(f"FOR v in 0..{count} UNROLL"):
                    t.add(f"{name}[v] = copy(f[v % 2])")
            with t.block("FOR v in 0..4 UNROLL"):
                t.add("acc[v] = copy(0.0)")
            t.add("MMA.m16n8k16.bfloat16 acc[0], a[0], b[0]")
        with t.block("FOR v in 0..2 UNROLL"):
            t.add(f"y[k, threadIdx.y, 2*threadIdx.x + v] = {'add(acc[v], acc[v + 2])' if multiplies else 'cast(f[v])'}")
        if stages == 1:
            t.add(meet)
        t.add("q.advance(1)")
    return h.small("warp", t)
