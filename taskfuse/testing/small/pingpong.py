"""A ring whose slots the instances of a consumer read in order (ping-pong)."""

from __future__ import annotations

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.text import EXTENT, ArrivalSignal, Head, Small, Text, dim, signal


def distributed(c: Chooser) -> Small:
    """One producer (``threadIdx.z == 0``), whose slots the rows of a consumer read in order."""
    lanes, stages, instances = c.pick((2, 2, 4, 32)), c.pick((2, 1, 3)), c.pick((2, 2, 3))
    h = Head(lanes, instances, depth=2)
    h.dim = dim(c)
    trips = EXTENT if h.dim else str(c.pick((2, 1, 3, 0)))
    warp = lanes == 32 and c.chance(50)
    h.inputs.append(f"x: float32[{trips}, {instances}, {lanes}]")
    h.outputs.append(f"y: float32[{trips}, {instances}, {lanes}]")
    h.storage.append(f"SHARED s: float32[{stages}, {lanes}] align 16")
    one = 1 if warp else lanes
    h.mbarriers = {"full": (stages, one * instances), "empty": (stages, one), "order": (instances, one)}
    how = ArrivalSignal.WARP if warp else ArrivalSignal.ALL
    t = Text()
    h.initialize(t)
    with t.block("IF threadIdx.z == 0"):
        t.add(f"p = CURSOR(slots {stages}, slot 0, parity 1)")
        with t.blocks([f"FOR k in 0..{trips}", f"FOR j in 0..{instances}"]):
            t.add("WAIT empty[p.slot] parity p.parity")
            with t.block("IF threadIdx.y == 0"):
                t.add("s[p.slot, threadIdx.x] = mul(x[k, j, threadIdx.x], 2.0)")
            signal(t, how, lanes, 0, "full[p.slot]")
            t.add("p.advance(1)")
    with t.block("ELSE"):
        t.add(f"c = CURSOR(slots {stages}, slot 0, parity 0)", "round = CURSOR(slots 1, slot 0, parity 0)")
        with t.block(f"FOR k in 0..{trips}"):
            t.add("c.advance(threadIdx.y)", "WAIT order[threadIdx.y] parity xor(round.parity, threadIdx.y == 0)")
            t.add("WAIT full[c.slot] parity c.parity", f"y[k, threadIdx.y, threadIdx.x] = copy(s[c.slot, {lanes - 1} - threadIdx.x])")
            signal(t, how, lanes, 0, "empty[c.slot]")
            t.add("c.advance(1)")
            signal(t, how, lanes, 0, f"order[(threadIdx.y + 1) % {instances}]")
            t.add("round.advance(1)", f"c.advance({instances - 1} - threadIdx.y)")
    return h.small("pingpong", t)
