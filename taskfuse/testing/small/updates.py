"""Threads, or the copy engine, that combine something with elements that others combine something with, too."""

from __future__ import annotations

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.text import ROW, Head, Small, Text


def updating(c: Chooser) -> Small:
    """Elements are stored, updated in any order, and maybe read when all updates are done."""
    blocks, trips, bulk = c.pick((1, 2, 2)), c.pick((1, 2, 3)), c.chance(60)
    dtype, f = c.pick((("float32", "add"), ("float32", "add"), ("int32", "maximum"), ("int32", "bitwise_xor")))
    lanes = ROW if bulk else c.pick((2, 4))
    h = Head(lanes, 1, grid=(blocks, 1))
    width = c.pick((1, 2, 4)) if dtype == "float32" and not bulk else 1
    count = lanes * width
    h.inputs += [f"x: {dtype}[{count}]", f"s: {dtype}[{trips}, {blocks}, {count}]"]
    h.outputs.append(f"y: {dtype}[1, {count}]")
    meet = "SYNC block"
    if blocks > 1:
        h.storage.append("COUNTER grid")
        meet = f"SYNC grid grid, {lanes * blocks}"
    t = Text()
    begun, each = ("IF blockIdx.x == 0", f"FOR e in 0..{width}")
    with t.blocks([begun, each]):
        t.add(f"y[0, {width}*threadIdx.x + e] = copy(x[{width}*threadIdx.x + e])")
    if bulk:
        t.add("FENCE proxy.async.global", meet)
        _boxes(c, h, t, trips, dtype, f)
    else:
        t.add(meet)
        place = c.pick(("threadIdx.x", f"{lanes - 1} - threadIdx.x"))
        vector = f" width {width}" if width > 1 else ""
        with t.block(f"FOR k in 0..{trips}"):
            t.add(f"UPDATE y[0, {width}*({place})] by {f} of s[k, blockIdx.x, {width}*threadIdx.x]{vector}")
    if c.chance(50):
        h.outputs.append(f"z: {dtype}[{blocks}, {lanes}]")
        t.add(meet, f"z[blockIdx.x, threadIdx.x] = copy(y[0, {count - 1} - threadIdx.x])")
    return h.small("updates", t)


def _boxes(c: Chooser, h: Head, t: Text, trips: int, dtype: str, f: str) -> None:
    """Threads fill slots, and one of them has the engine combine each with the elements."""
    stages = c.pick((1, 2, 2))
    h.maps.append(f"y.map = y box (1, {ROW}) swizzle 0")
    h.storage.append(f"SHARED t: {dtype}[{stages}, 1, {ROW}] align 128")
    slot = "q.slot" if stages > 1 else "0"
    if stages > 1:
        t.add(f"q = CURSOR(slots {stages}, slot 0, parity 0)")
    with t.block(f"FOR k in 0..{trips}"):
        t.add(f"t[{slot}, 0, threadIdx.x] = copy(s[k, blockIdx.x, threadIdx.x])", "FENCE proxy.async", "SYNC block")
        with t.block("IF threadIdx.x == 0"):
            t.add(f"TMA y.map(0, 0) <- t[{slot}, 0, 0] by {f}", "COMMIT bulk", f"WAIT_GROUP bulk.read <= {stages - 1}")
        t.add("SYNC block")
        if stages > 1:
            t.add("q.advance(1)")
    with t.block("IF threadIdx.x == 0"):
        t.add("WAIT_GROUP bulk <= 0")
