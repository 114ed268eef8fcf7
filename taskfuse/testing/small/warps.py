"""Instructions that whole warps execute together: shuffles, matrices moved to and from registers, and products of them."""

from __future__ import annotations

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.text import EXTENT, Head, Small, Text, dim


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
