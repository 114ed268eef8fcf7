"""Roles that fill their own ring ahead, by asynchronous copies or by TMA: copies of later positions are in flight while one is read."""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.text import EXTENT, ROW, Head, Small, Text, dim


@dataclass(frozen=True, slots=True)
class _Ring:
    """``slots`` of them, filled ``distance`` positions ahead, by TMA (``bulk``) or by the threads' copies; ``rows``: of threads that share it."""

    slots: int
    distance: int
    bulk: bool
    rows: int
    lanes: int

    def fill(self, t: Text, ahead: str, row: str, trips: str) -> None:
        """Begin to fill the position so much further than the cursor's with a row, if there is one."""
        slot = f"(c.slot + {ahead}) % {self.slots}"
        with t.block(f"IF {row} < {trips}"):
            if self.bulk:
                with t.block("IF threadIdx.x == 0" + (" && threadIdx.y == 0" if self.rows > 1 else "")):
                    t.add(f"EXPECT full[{slot}] bytes {4 * ROW * self.rows}", f"TMA s[{slot}, 0, 0] <- x.map({row}, 0, 0) on full[{slot}]")
            else:
                t.add(f"COPY.async s[{slot}, threadIdx.y, threadIdx.x] <- x[{row}, threadIdx.y, threadIdx.x] width 1")
        if not self.bulk:
            t.add("COMMIT copy")


def prefetched(c: Chooser) -> Small:
    """Threads that read each other's elements of a row, and fill later slots meanwhile."""
    lanes, rows = c.pick((2, 2, 4, 32)), c.pick((1, 1, 2))
    h = Head(lanes, rows)
    h.dim = dim(c)
    trips, outer = EXTENT if h.dim else str(c.pick((3, 2, 4, 1, 0))), c.pick((None, None, 2))
    slots = c.pick((2, 3, 3, 4))
    bulk = c.chance(45)
    after = not bulk and c.chance(25)  # the slot just read is filled again, after a barrier of its own
    ring = _Ring(slots, slots if after else c.pick((slots - 1, slots - 1, 1)), bulk, rows, lanes)
    width = ROW if ring.bulk else lanes
    h.inputs.append(f"x: float32[{trips}, {rows}, {width}]")
    h.outputs.append(f"y: float32[{outer or 1}, {trips}, {rows}, {lanes}]")
    h.storage.append(f"SHARED s: float32[{slots}, {rows}, {width}] align {128 if ring.bulk else 16}")
    if ring.bulk:
        h.maps.append(f"x.map = x box (1, {rows}, {ROW}) swizzle 0")
        h.mbarriers["full"] = slots, 1
    meet = "SYNC block" if c.chance(50) else f"SYNC named 1, {lanes * rows}" if lanes * rows % 32 == 0 else "SYNC warp"
    read = f"y[{'0' if outer is None else 'm'}, i, threadIdx.y, threadIdx.x] = neg(s[c.slot, {rows - 1} - threadIdx.y, {lanes - 1} - threadIdx.x])"
    there = "WAIT full[c.slot] parity c.parity" if ring.bulk else f"WAIT_GROUP copy <= {ring.distance - 1}"
    t = Text()
    h.initialize(t)
    t.add(f"c = CURSOR(slots {slots}, slot 0, parity 0)")
    with t.blocks([] if outer is None else [f"FOR m in 0..{outer}"]):
        with t.block(f"FOR p in 0..{ring.distance} UNROLL"):
            ring.fill(t, "p", "p", trips)
        with t.block(f"FOR i in 0..{trips}"):
            t.add(there, meet)
            if not after:
                ring.fill(t, str(ring.distance), f"i + {ring.distance}", trips)
            t.add(read)
            if after:
                t.add(meet)
                ring.fill(t, str(ring.distance), f"i + {ring.distance}", trips)
            t.add("c.advance(1)")
        if not ring.bulk:
            t.add("WAIT_GROUP copy <= 0")
    return h.small("prefetch", t)
