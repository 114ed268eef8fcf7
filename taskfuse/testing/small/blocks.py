"""Rings between blocks: slots in Global memory, guarded by semaphores; and rings across the blocks of a cluster: every block loads a part of a slot for all,
and each release arrives in all.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.text import EXTENT, ROW, ArrivalSignal, Head, Small, Text, arrivals, declare, dim, signal, signals


@dataclass(frozen=True, slots=True)
class _Links:
    """Rings ``w0``, ``w1``, ... of ``slots`` slots; ``lone``: one thread of a block acquires and releases for all; ``meet``: the barrier between them."""

    slots: int
    lanes: int
    lone: bool
    meet: str
    instances: int
    """Blocks of a role, each with rings of its own; they lie next to each other."""

    def own(self, role: int) -> str:
        """The index of a block's ring in front of that of the slot; empty if there is one ring."""
        return "" if self.instances == 1 else f"blockIdx.x - {role * self.instances}, " if role else "blockIdx.x, "

    def arrivals(self, readers: int) -> int:
        """Releases per position, by a number of blocks."""
        return readers * (1 if self.lone else self.lanes)

    def declare(self, h: Head, ring: int, readers: int) -> None:
        """A ring that several roles read."""
        shape = f"{self.slots}" if self.instances == 1 else f"{self.instances}, {self.slots}"
        h.storage.append(f"GLOBAL w{ring}: float32[{shape}, {self.lanes}]")
        h.storage.append(f"SEMAPHORE w{ring}.full[{shape}] count {self.arrivals(1)}, w{ring}.empty[{shape}] count {self.arrivals(readers)}")

    def acquire(self, t: Text, role: int, side: str, cursor: str, phases: str) -> None:
        """Acquire a slot."""
        statement = f"ACQUIRE {side}[{self.own(role)}{cursor}.slot] phases {phases}"
        if not self.lone:
            t.add(statement)
            return
        with t.block("IF threadIdx.x == 0"):
            t.add(statement)
        t.add(self.meet)

    def release(self, t: Text, role: int, side: str, cursor: str) -> None:
        """Release a slot, and advance to the next."""
        statement = f"RELEASE {side}[{self.own(role)}{cursor}.slot]"
        if self.lone:
            t.add(self.meet)
        with t.blocks(["IF threadIdx.x == 0"] if self.lone else []):
            t.add(statement)
        t.add(f"{cursor}.advance(1)")


def between_blocks(c: Chooser) -> Small:
    """Roles of blocks: the first fills a ring that all others read, or each fills one that the next reads."""
    lanes = c.pick((2, 2, 1, 4))
    chain, readers = c.chance(35), c.pick((1, 1, 2))
    instances = 1 if chain or readers > 1 or c.chance(60) else 2
    links = _Links(c.pick((1, 2, 2, 3)), lanes, c.chance(60), c.pick(("SYNC block", "SYNC block", "SYNC warp")), instances)
    h = Head(lanes, 1)
    h.dim = dim(c)
    trips, outer = EXTENT if h.dim else str(c.pick((2, 1, 3, 0))), c.pick((None, None, None, 2))
    roles = 3 if chain else 1 + readers
    h.grid = roles * instances, 1
    rings = roles - 1 if chain else 1
    last = [roles - 1] if chain else list(range(1, roles))
    rounds = outer or 1
    h.inputs.append(f"x: float32[{instances}, {trips}, {lanes}]")
    h.outputs.append(f"y: float32[{len(last)}, {instances}, {rounds}, {trips}, {lanes}]")
    h.storage.append("LOCAL r: float32[]")
    for ring in range(rings):
        links.declare(h, ring, 1 if chain else readers)
    t = Text()
    for role in range(roles):
        condition = f"blockIdx.x < {(role + 1) * instances}"
        with t.block(f"IF {condition}" if role == 0 else f"ELSE IF {condition}" if role + 1 < roles else "ELSE"):
            source, target = (role - 1 if chain else 0) if role else None, role if role < rings else None
            if source is not None:
                t.add(f"c{role} = CURSOR(slots {links.slots}, slot 0, parity 0)")
            if target is not None:
                t.add(f"p{role} = CURSOR(slots {links.slots}, slot 0, parity 1)")
            with t.blocks([f"FOR m in 0..{outer}"] * (outer is not None) + [f"FOR k in 0..{trips}"]):
                if source is None:
                    t.add(f"r = add(x[{links.own(role) or '0, '}k, threadIdx.x], index({'0' if outer is None else '16*m'}))")
                else:
                    cursor, ring = f"c{role}", f"w{source}"
                    links.acquire(t, role, f"{ring}.full", cursor, f"{cursor}.phase + 1")
                    t.add(f"r = copy({ring}[{links.own(role)}{cursor}.slot, {lanes - 1} - threadIdx.x])")
                    links.release(t, role, f"{ring}.empty", cursor)
                if target is not None:
                    cursor, ring = f"p{role}", f"w{target}"
                    links.acquire(t, role, f"{ring}.empty", cursor, f"{cursor}.phase")
                    t.add(f"{ring}[{links.own(role)}{cursor}.slot, threadIdx.x] = mul(r, 2.0)")
                    links.release(t, role, f"{ring}.full", cursor)
                else:
                    own = links.own(role) or "0, "
                    t.add(f"y[{last.index(role)}, {own}{'0' if outer is None else 'm'}, k, threadIdx.x] = add(r, 1.0)")
    return h.small("blocks", t)


def clustered(c: Chooser) -> Small:
    """A role of each block loads, the others read, and a single one may write into the slot."""
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
    writes = readers == 1 and c.chance(25)  # into the slot: other blocks then fill it again
    scope = " scope cluster" if writes else ""
    h.inputs.append(f"x: float32[{trips}, {sharing}, {ROW}]")
    h.outputs.append(f"y: float32[{h.grid[1]}, {h.cluster[0]}, {trips}, {readers}, {sharing}, {lanes}]")
    h.maps.append(f"x.map = x box (1, 1, {ROW}) swizzle 0")
    h.storage.append(f"SHARED s: float32[{stages}, {sharing}, {ROW}] align 128")
    h.mbarriers = {"full": (stages, 1), "empty": (stages, sharing * sum(arrivals(each, lanes) for each in how))}
    for r, each in enumerate(how, 1):
        if each is ArrivalSignal.MET:
            declare(h, lanes, r)
    loop = f"FOR i in 0..{trips}" if clusters == 1 else f"FOR i in blockIdx.x//2..{trips} step 2"
    t = Text()
    h.initialize(t)
    with t.blocks(["IF threadIdx.y == 0", "IF threadIdx.x == 0"]):
        t.add(f"p = CURSOR(slots {stages}, slot 0, parity 1)")
        with t.block(loop):
            t.add(f"WAIT empty[p.slot] parity p.parity{scope}", f"EXPECT full[p.slot] bytes {4 * ROW * sharing}")
            t.add(f"TMA s[p.slot, {piece}, 0] <- x.map(i, {piece}, 0) on full[p.slot] {across}", "p.advance(1)")
    for r, each in enumerate(how, 1):
        with t.block(f"ELSE IF threadIdx.y == {r}"):
            t.add(f"c{r} = CURSOR(slots {stages}, slot 0, parity 0)")
            with t.block(loop):
                t.add(f"WAIT full[c{r}.slot] parity c{r}.parity")
                with t.block(f"FOR j in 0..{sharing}"):
                    t.add(f"y[blockIdx.y, clusterIdx.x, i, {r - 1}, j, threadIdx.x] = copy(s[c{r}.slot, j, {lanes - 1} - threadIdx.x])")
                if writes:
                    with t.block(f"FOR j in 0..{sharing}"):
                        t.add(f"s[c{r}.slot, j, {lanes - 1} - threadIdx.x] = neg(s[c{r}.slot, j, {lanes - 1} - threadIdx.x])")
                    t.add("FENCE proxy.async")
                signal(t, each, lanes, r, f"empty[c{r}.slot] {across}{scope}")
                t.add(f"c{r}.advance(1)")
    t.add("SYNC cluster  # no block exits while others reach it")
    return h.small("cluster", t)
