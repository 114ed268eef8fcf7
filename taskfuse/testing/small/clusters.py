"""Rings across the blocks of a cluster: every block loads a piece of a slot for all, and each release arrives in all."""

from __future__ import annotations

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.signals import Signal, arrivals, declare, signal, signals
from taskfuse.testing.small.text import EXTENT, ROW, Head, Small, Text, dim


def clustered(c: Chooser) -> Small:
    """A role of each block loads, the others read."""
    lanes, readers, stages = c.pick((2, 2, 1, 32)), c.pick((1, 1, 2)), c.pick((2, 1, 3))
    h = Head(lanes, 1 + readers)
    h.cluster = c.pick(((2, 1), (1, 2), (2, 1), (2, 2)))
    clusters = 2 if h.cluster == (2, 1) and c.chance(25) else 1
    h.grid = h.cluster[0] * clusters, h.cluster[1]
    h.dim = dim(c)
    trips = EXTENT if h.dim else str(c.pick((2, 3, 1, 0)))
    types = [name for name, extent in zip("xy", h.cluster, strict=True) if extent > 1]
    if len(types) > 1 and c.chance(50):
        types = [c.pick(types)]
    sharing = 2 ** len(types)
    piece = f"clusterIdx.{types[0]}" if len(types) == 1 else "clusterIdx.x + 2*clusterIdx.y"
    across = "across " + ", ".join(f"CID{name}" for name in types)
    how = [c.pick(signals(lanes)) for _ in range(readers)]
    h.inputs.append(f"x: float32[{trips}, {sharing}, {ROW}]")
    h.outputs.append(f"y: float32[{h.grid[1]}, {h.cluster[0]}, {trips}, {readers}, {sharing}, {lanes}]")
    h.maps.append(f"x.map = x box (1, 1, {ROW}) swizzle 0")
    h.storage.append(f"SHARED s: float32[{stages}, {sharing}, {ROW}] align 128")
    h.mbarriers = {"full": (stages, 1), "empty": (stages, sharing * sum(arrivals(each, lanes) for each in how))}
    for r, each in enumerate(how, 1):
        if each is Signal.MET:
            declare(h, lanes, r)
    loop = f"FOR i in 0..{trips}" if clusters == 1 else f"FOR i in blockIdx.x//2..{trips} step 2"
    t = Text()
    h.initialize(t)
    with t.blocks(["IF threadIdx.y == 0", "IF threadIdx.x == 0"]):
        t.add(f"p = CURSOR(slots {stages}, slot 0, parity 1)")
        with t.block(loop):
            t.add("WAIT empty[p.slot] parity p.parity", f"EXPECT full[p.slot] bytes {4 * ROW * sharing}")
            t.add(f"TMA s[p.slot, {piece}, 0] <- x.map(i, {piece}, 0) on full[p.slot] {across}", "p.advance(1)")
    for r, each in enumerate(how, 1):
        with t.block(f"ELSE IF threadIdx.y == {r}"):
            t.add(f"c{r} = CURSOR(slots {stages}, slot 0, parity 0)")
            with t.block(loop):
                t.add(f"WAIT full[c{r}.slot] parity c{r}.parity")
                with t.block(f"FOR j in 0..{sharing}"):
                    t.add(f"y[blockIdx.y, clusterIdx.x, i, {r - 1}, j, threadIdx.x] = copy(s[c{r}.slot, j, {lanes - 1} - threadIdx.x])")
                signal(t, each, lanes, r, f"empty[c{r}.slot] {across}")
                t.add(f"c{r}.advance(1)")
    t.add("SYNC cluster  # no block exits while others reach it")
    return h.small("cluster", t)
