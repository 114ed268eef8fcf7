"""Threads that exchange data after barriers: of the block, of a warp, of named threads, of the grid."""

from __future__ import annotations

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.text import EXTENT, Head, Small, Text, dim


def exchanging(c: Chooser) -> Small:
    """All threads write and read Shared memory alternately, between barriers of the block or of a warp, named ones, or an mbarrier."""
    lanes, rows = c.pick((2, 4, 2, 32)), c.pick((1, 2, 3, 4))
    h = Head(lanes, rows)
    h.dim = dim(c)
    trips = EXTENT if h.dim else str(c.pick((2, 1, 3, 4, 0)))
    stages = c.pick((1, 2, 3))
    partner = c.pick(("threadIdx.y", f"{rows - 1} - threadIdx.y", "threadIdx.y"))
    h.inputs.append(f"x: float32[{trips}, {rows}, {lanes}]")
    h.outputs.append(f"y: float32[{trips}, {rows}, {lanes}]")
    h.storage.append(f"SHARED s: float32[{stages}, {rows}, {lanes}] align 16")
    across = partner != "threadIdx.y" and rows > 1
    threads = lanes * rows
    sync = "SYNC block"
    if not across and lanes == 32:
        sync = c.pick(("SYNC block", "SYNC warp", "SYNC named threadIdx.y + 1, 32"))
    elif not across and threads <= 32 and c.chance(50):
        sync = "SYNC warp"
    elif threads % 32 == 0 and c.chance(30):
        sync = f"SYNC named 1, {threads}"
    if rows == 4 and partner != "threadIdx.y" and lanes == 32:
        sync = c.pick((sync, "SYNC named min(threadIdx.y, 3 - threadIdx.y) + 1, 64"))
    meet = [sync]
    if c.chance(15):  # at an mbarrier
        h.mbarriers["meet"] = 1, threads
        meet = ["ARRIVE meet[0]", "WAIT meet[0] parity m.parity", "m.advance(1)"]
    t = Text()
    h.initialize(t)
    if h.mbarriers:
        t.add("m = CURSOR(slots 1, slot 0, parity 0)")
    if stages > 1:
        t.add(f"q = CURSOR(slots {stages}, slot 0, parity 0)")
    slot = "q.slot" if stages > 1 else "0"
    with t.block(f"FOR k in 0..{trips}"):
        t.add(f"s[{slot}, threadIdx.y, threadIdx.x] = mul(x[k, threadIdx.y, threadIdx.x], 2.0)", *meet)
        t.add(f"y[k, threadIdx.y, threadIdx.x] = add(s[{slot}, {partner}, {lanes - 1} - threadIdx.x], 1.0)")
        if stages == 1 or c.chance(15):
            t.add(*meet)
        if stages > 1:
            t.add("q.advance(1)")
    return h.small("exchange", t)


def handover(c: Chooser) -> Small:
    """Two roles that pass a buffer to each other at named barriers, or at barriers of the block."""
    lanes = c.pick((32, 32, 2))
    h = Head(lanes, 2)
    trips, stages = str(c.pick((2, 1, 3, 0))), c.pick((1, 2))
    full, empty = ("SYNC named 1, 64", f"SYNC named {c.pick((2, 2, 2, 1))}, 64") if lanes == 32 else ("SYNC block", "SYNC block")
    h.inputs.append(f"x: float32[{trips}, {lanes}]")
    h.outputs.append(f"y: float32[{trips}, {lanes}]")
    h.storage.append(f"SHARED s: float32[{stages}, {lanes}] align 16")
    t = Text()
    with t.block(f"FOR k in 0..{trips}"):
        with t.block("IF threadIdx.y == 0"):
            t.add(f"s[k % {stages}, threadIdx.x] = copy(x[k, threadIdx.x])")
        t.add(full)
        with t.block("IF threadIdx.y == 1"):
            t.add(f"y[k, threadIdx.x] = copy(s[k % {stages}, {lanes - 1} - threadIdx.x])")
        if stages == 1 or c.chance(20):
            t.add(empty)
    return h.small("handover", t)


def gridwide(c: Chooser) -> Small:
    """Blocks that read, after a grid barrier, what others wrote to Global memory."""
    lanes, blocks, trips = c.pick((2, 4, 32)), c.pick((2, 3)), c.pick((1, 2, 3, 0))
    h = Head(lanes, 1, grid=(blocks, 1))
    h.inputs.append(f"x: float32[{trips}, {blocks}, {lanes}]")
    h.outputs.append(f"y: float32[{trips}, {blocks}, {lanes}]")
    per_trip = c.chance(50)
    h.storage.append(f"GLOBAL g: float32[{max(trips, 1) if per_trip else 1}, {blocks}, {lanes}]")
    h.storage.append("COUNTER grid")
    sync = f"SYNC grid grid, {lanes * blocks}"
    t = Text()
    with t.block(f"FOR k in 0..{trips}"):
        row = "k" if per_trip else "0"
        t.add(f"g[{row}, blockIdx.x, threadIdx.x] = mul(x[k, blockIdx.x, threadIdx.x], 2.0)", sync)
        t.add(f"y[k, blockIdx.x, threadIdx.x] = copy(g[{row}, (blockIdx.x + 1) % {blocks}, {lanes - 1} - threadIdx.x])")
        if not per_trip:
            t.add(sync)
    return h.small("grid", t)
