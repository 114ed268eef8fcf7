"""Rings between blocks: slots in Global memory, handed over by semaphores."""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.text import EXTENT, Head, Small, Text, dim


@dataclass(frozen=True, slots=True)
class _Links:
    """Rings ``w0``, ``w1``, ... of ``slots`` slots; ``lone``: one thread of a block acquires and releases for all; ``meet``: how they meet it."""

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
        """Releases per position, by so many blocks."""
        return readers * (1 if self.lone else self.lanes)

    def declare(self, h: Head, ring: int, readers: int) -> None:
        """A ring that so many roles read."""
        shape = f"{self.slots}" if self.instances == 1 else f"{self.instances}, {self.slots}"
        h.storage.append(f"GLOBAL w{ring}: float32[{shape}, {self.lanes}]")
        h.storage.append(f"SEMAPHORE w{ring}.full[{shape}] count {self.arrivals(1)}, w{ring}.empty[{shape}] count {self.arrivals(readers)}")

    def acquire(self, t: Text, role: int, side: str, cursor: str, phases: str) -> None:
        """Wait for a slot."""
        statement = f"ACQUIRE {side}[{self.own(role)}{cursor}.slot] phases {phases}"
        if not self.lone:
            t.add(statement)
            return
        with t.block("IF threadIdx.x == 0"):
            t.add(statement)
        t.add(self.meet)

    def release(self, t: Text, role: int, side: str, cursor: str) -> None:
        """Hand a slot over, and go on to the next."""
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
