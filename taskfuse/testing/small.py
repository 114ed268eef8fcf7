"""Random small kernels, as text of kernel IR: few threads, few trips, all that synchronizes.

They are small enough for all their interleavings (``kernel.explore``), so that the static proof, exhaustive exploration and random schedules can
be compared on tens of thousands of them (:mod:`taskfuse.testing.agreement`). Most are right; some have their actions in a random order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from taskfuse.kir import Kernel, parse_kernel
from taskfuse.testing.chooser import Chooser

EXTENT = "N"
TRIED = (0, 1, 2, 3, 4)
"""Values of ``N`` at which a kernel with a symbolic trip count runs; mostly it has no others."""
ROW = 32
"""Elements of a row that TMA copies: the 128 bytes to which its addresses in Shared memory are aligned."""


@dataclass(frozen=True, slots=True)
class Small:
    """A small kernel.

    Attributes:
        kind: the generator that made it.
        extents: the launches to look at; one without extents if all trip counts are constants.
    """

    kernel: Kernel
    kind: str
    extents: tuple[dict[str, int], ...]


class Signal(Enum):
    """How the threads of a role arrive."""

    ALL = "every thread"
    WARP = "a lane after SYNC warp"
    NAMED = "a thread after SYNC named"


class _Text:
    """Lines of a body, indented."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def add(self, *lines: str) -> None:
        self.lines += ["  " * self._depth + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        self.add(head + ":")
        self._depth += 1
        at = len(self.lines)
        yield
        if len(self.lines) == at:
            self.add("PASS")
        self._depth -= 1

    @contextmanager
    def blocks(self, heads: list[str]) -> Generator[None]:
        """Blocks in each other."""
        if heads:
            with self.block(heads[0]), self.blocks(heads[1:]):
                yield
        else:
            yield


@dataclass(slots=True)
class _Head:
    """Declarations."""

    lanes: int
    rows: int
    blocks: int = 1
    depth: int = 1
    inputs: list[str] = field(default_factory=list[str])
    outputs: list[str] = field(default_factory=list[str])
    maps: list[str] = field(default_factory=list[str])
    storage: list[str] = field(default_factory=list[str])
    mbarriers: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    dim: str = ""
    """What is declared of ``N``; empty: all trip counts are constants."""

    @property
    def launches(self) -> tuple[dict[str, int], ...]:
        """The extents to look at."""
        return tuple({EXTENT: n} for n in TRIED) if self.dim else ({},)

    def text(self, body: _Text) -> str:
        lines = [f"KERNEL small({', '.join(self.inputs)}) -> ({', '.join(self.outputs)})"]
        if self.dim:
            lines.append(f"  DIM {self.dim}")
        lines += [f"  TENSORMAP {m}" for m in self.maps]
        lines.append(f"  GRID ({self.blocks}, 1, 1)  BLOCK ({self.lanes}, {self.rows}, {self.depth})")
        lines += [f"  {s}" for s in self.storage]
        if self.mbarriers:
            lines.append("  MBARRIER " + ", ".join(f"{name}[{slots}]" for name, (slots, _) in self.mbarriers.items()))
        return "\n".join([*lines, "", *body.lines, ""])

    def initialize(self, t: _Text) -> None:
        if not self.mbarriers:
            return
        with t.block("IF threadIdx.x == 0 && threadIdx.y == 0" + (" && threadIdx.z == 0" if self.depth > 1 else "")):
            for name, (slots, count) in self.mbarriers.items():
                with t.block(f"FOR i in 0..{slots}"):
                    t.add(f"INIT {name}[i] count {count}")
            if self.maps:
                t.add("FENCE mbarrier_init")
        t.add("SYNC block  # barriers are initialized")


def _dim(c: Chooser) -> str:
    return f"{EXTENT} max {TRIED[-1]}" if c.chance(12) else EXTENT if c.chance(2) else ""


def _signal(t: _Text, how: Signal, lanes: int, ident: int, barrier: str) -> None:
    """The arrival of a role of one row at ``barrier``."""
    match how:
        case Signal.ALL:
            t.add(f"ARRIVE {barrier}")
            return
        case Signal.WARP:
            t.add("SYNC warp")
            with t.block("IF threadIdx.x % 32 == 0" if lanes > 32 else "IF threadIdx.x == 0"):
                t.add(f"ARRIVE {barrier}")
        case Signal.NAMED:
            t.add(f"SYNC named {ident}, {lanes}")
            with t.block("IF threadIdx.x == 0"):
                t.add(f"ARRIVE {barrier}")


def _count(how: Signal, lanes: int) -> int:
    return {Signal.ALL: lanes, Signal.WARP: -(-lanes // 32), Signal.NAMED: 1}[how]


def _signals(lanes: int) -> list[Signal]:
    return [Signal.ALL, Signal.WARP, Signal.NAMED] if lanes % 32 == 0 else [Signal.ALL, Signal.WARP]


# -- roles and channels ---------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Channel:
    """A ring from one role to others. ``bulk``: TMA fills its slots; ``stored``: its consumer's TMA reads them."""

    name: str
    producer: int
    consumers: list[int]
    stages: int
    phases: list[int]
    bulk: bool
    stored: bool
    pieces: int
    signals: dict[int, Signal]
    lagging: dict[int, bool]

    def buffer(self, lanes: int) -> str:
        bulk = self.bulk or self.stored
        return f"SHARED {self.name}: float32[{self.stages}, {self.pieces}, {max(ROW, lanes) if bulk else lanes}] align {128 if bulk else 16}"


class _Pipeline:
    """Roles on ``threadIdx.y``, one row each, that run the same loops; channels from lower roles to higher ones."""

    def __init__(self, c: Chooser) -> None:
        self.c = c
        self.lanes = c.pick((2, 2, 2, 2, 2, 2, 4, 32, 32, 64))
        self.roles = c.pick((2, 2, 2, 3, 3))
        self.head = _Head(self.lanes, self.roles)
        self.head.dim = _dim(c)
        self.phases = c.pick((1, 1, 1, 2))
        self.trips = [EXTENT if self.head.dim and p == 0 else str(c.pick((2, 3, 1, 4, 0))) for p in range(self.phases)]
        self.outer = c.pick((None, None, 2, 1, 3, 0))
        if self.outer is not None and self.outer > 1:
            self.trips = [n if n == EXTENT or int(n) < 3 else "2" for n in self.trips]
        self.wild = c.chance(12)
        self.once = c.chance(15)
        self.width = max(ROW, self.lanes)
        self.channels = [self._channel(k) for k in range(c.pick((1, 1, 2, 2, 3)))]
        self.local_ring = {r: c.pick((1, 2, 3)) for r in range(self.roles) if c.chance(15)}
        self.staged = {r: c.pick((1, 2)) for r in range(self.roles) if c.chance(8)}
        if self.staged or any(ch.stored for ch in self.channels):
            self.lanes = self.width = self.head.lanes = ROW  # a row is written by one statement
            self.channels = [replace(ch, signals={r: c.pick(_signals(ROW)) for r in range(self.roles)}) for ch in self.channels]

    def _channel(self, k: int) -> _Channel:
        c, lanes = self.c, self.lanes
        producer = c.integer(0, self.roles - 2)
        later = list(range(producer + 1, self.roles))
        consumers = later if len(later) > 1 and c.chance(30) else [c.pick(later)]
        bulk = c.chance(30)
        stored = len(consumers) == 1 and c.chance(15)
        stages = c.pick((2, 2, 1, 3))
        both = c.chance(20)
        return _Channel(
            name=f"s{k}",
            producer=producer,
            consumers=consumers,
            stages=stages,
            phases=list(range(self.phases)) if both else [c.integer(0, self.phases - 1)],
            bulk=bulk,
            stored=stored,
            pieces=2 if c.chance(15) and not stored else 1,
            signals={r: c.pick(_signals(lanes)) for r in range(self.roles)},
            lagging={r: stages > 1 and c.chance(10) for r in consumers},
        )

    # -- declarations ---------------------------------------------------------------------------------------------------------------

    def make(self) -> Small:
        h, lanes = self.head, self.lanes
        rows = f"{EXTENT} + 9" if h.dim else "9"
        h.inputs.append(f"x: float32[{rows}, {2 * self.width}]")
        if self.once or any(ch.bulk for ch in self.channels):
            h.maps.append(f"x.map = x box (1, {self.width}) swizzle 0")
        h.storage += [f"LOCAL r{r}: float32[]" for r in range(self.roles)]
        for ch in self.channels:
            h.storage.append(ch.buffer(lanes))
            filled = 1 if ch.bulk else _count(ch.signals[ch.producer], lanes)
            read = 1 if ch.stored else sum(_count(ch.signals[r], lanes) for r in ch.consumers)
            h.mbarriers[f"{ch.name}.full"] = ch.stages, filled
            h.mbarriers[f"{ch.name}.empty"] = ch.stages, read
        if self.once:
            h.storage.append(f"SHARED once: float32[{self.width}] align 128")
            h.mbarriers["once.full"] = 1, 1
        for r, stages in self.local_ring.items():
            h.storage.append(f"SHARED b{r}: float32[{stages}, {lanes}] align 16")
        for r, stages in self.staged.items():
            h.storage.append(f"SHARED o{r}: float32[{stages}, {self.width}] align 128")
        t = _Text()
        codes = [self._role(r) for r in range(self.roles)]
        h.initialize(t)
        if self.once:
            with t.block("IF threadIdx.x == 0 && threadIdx.y == 0"):
                t.add(f"EXPECT once.full[0] bytes {4 * self.width}", "TMA once[0] <- x.map(8, 0) on once.full[0]")
        for r, code in enumerate(codes):
            with t.block(f"{'IF' if r == 0 else 'ELSE IF'} threadIdx.y == {r}"):
                t.add(*code.lines)
        return Small(parse_kernel(h.text(t)), "pipeline", h.launches)

    def _output(self, name: str, phase: int, bulk: bool) -> str:
        """Declare an output for a phase; its name."""
        made = f"{name}{phase}"
        self.head.outputs.append(f"{made}: float32[{1 if self.outer is None else self.outer}, {self.trips[phase]}, {self.width if bulk else self.lanes}]")
        if bulk:
            self.head.maps.append(f"{made}.map = {made} box (1, 1, {self.width}) swizzle 0")
        return made

    # -- code of a role -------------------------------------------------------------------------------------------------------------

    def _role(self, r: int) -> _Text:
        c, t = self.c, _Text()
        incoming = [ch for ch in self.channels if r in ch.consumers]
        outgoing = [ch for ch in self.channels if ch.producer == r]
        loader = not incoming and bool(outgoing) and all(ch.bulk for ch in outgoing)
        storer = bool(incoming) and all(ch.stored for ch in incoming) and not outgoing
        elected = loader or storer
        inits: list[str] = []
        for ch in incoming:
            inits.append(f"{ch.name}.c{r} = CURSOR(slots {ch.stages}, slot 0, parity 0)")
            if ch.lagging[r]:
                inits.append(f"{ch.name}.r{r} = CURSOR(slots {ch.stages}, slot 0, parity 0)")
        inits += [f"{ch.name}.p = CURSOR(slots {ch.stages}, slot 0, parity 1)" for ch in outgoing]
        if r in self.local_ring and not elected:
            inits.append(f"b{r}.q = CURSOR(slots {self.local_ring[r]}, slot 0, parity 0)")
        if r in self.staged and not elected:
            inits.append(f"o{r}.q = CURSOR(slots {self.staged[r]}, slot 0, parity 0)")
        t.add(*inits)
        if self.once and not elected:
            t.add("WAIT once.full[0] parity 0")
        phases = list(range(self.phases))
        if self.wild and c.chance(30):
            phases = c.order(phases)
        heads = ["IF threadIdx.x == 0"] if elected else []
        if self.outer is not None:
            heads.append(f"FOR m in 0..{self.outer}")
        with t.blocks(heads):
            for p in phases:
                self._phase(t, r, p, incoming, outgoing, elected)
        if any(ch.stored for ch in incoming) or (r in self.staged and not elected):
            with t.blocks([] if c.chance(30) else ["IF threadIdx.x == 0"]):
                t.add("RETIRE bulk <= 0")
        return t

    def _phase(self, t: _Text, r: int, p: int, incoming: list[_Channel], outgoing: list[_Channel], elected: bool) -> None:
        incoming = [ch for ch in incoming if p in ch.phases]
        outgoing = [ch for ch in outgoing if p in ch.phases]
        if not incoming and not outgoing and not self.c.chance(30):
            return
        m = "0" if self.outer is None else "m"
        unrolled = " UNROLL" if self.trips[p] != EXTENT and self.c.chance(8) else ""
        with t.block(f"FOR k in 0..{self.trips[p]}{unrolled}"):
            steps: list[Callable[[], None]] = [partial(self._begin, t, r, elected)]
            steps += [partial(self._consume, t, r, p, m, ch, elected) for ch in incoming]
            if not elected and r in self.local_ring:
                steps.append(partial(self._exchange, t, r))
            steps += [partial(self._produce, t, r, ch, elected) for ch in outgoing]
            if not elected and r in self.staged:
                steps.append(partial(self._store, t, r, p, m))
            elif not elected and (not outgoing or self.c.chance(30)):
                steps.append(partial(self._write, t, r, p, m))
            steps += [partial(self._release, t, r, ch, "c") for ch in incoming if not ch.lagging[r] and not ch.stored]
            if self.wild:
                steps = [steps[0], *self.c.order(steps[1:])]
            for step in steps:
                step()
        for ch in incoming:
            if ch.lagging[r]:
                with t.blocks([f"IF {self.trips[p]} > 0"] if self.trips[p] == EXTENT else []):
                    if self.trips[p] != "0":
                        self._drain(t, r, ch, elected)

    def _begin(self, t: _Text, r: int, elected: bool) -> None:
        if not elected:
            t.add(f"r{r} = add(x[k, threadIdx.x], once[threadIdx.x])" if self.once else f"r{r} = copy(x[k, threadIdx.x])")

    def _consume(self, t: _Text, r: int, p: int, m: str, ch: _Channel, elected: bool) -> None:
        cursor = f"{ch.name}.c{r}"
        with t.blocks([] if elected or not ch.stored else ["IF threadIdx.x == 0"]):
            t.add(f"WAIT {ch.name}.full[{cursor}.slot] parity {cursor}.parity")
            if ch.stored:
                out = self._output(f"z{r}{ch.name}", p, bulk=True)
                t.add(f"TMA {out}.map({m}, k, 0) <- {ch.name}[{cursor}.slot, 0, 0]", "COMMIT bulk", f"RETIRE bulk.read <= {1 if ch.lagging[r] else 0}")
                if not ch.lagging[r]:
                    t.add(f"ARRIVE {ch.name}.empty[{cursor}.slot]", f"{cursor}.advance(1)")
            else:
                lane = self.c.pick(("threadIdx.x", f"{self.lanes - 1} - threadIdx.x"))
                for piece in range(ch.pieces):
                    t.add(f"r{r} = add(r{r}, {ch.name}[{cursor}.slot, {piece}, {lane}])")
            if ch.lagging[r]:
                with t.block("IF k > 0"):
                    self._release(t, r, ch, "r")
                t.add(f"{cursor}.advance(1)")

    def _release(self, t: _Text, r: int, ch: _Channel, which: str) -> None:
        cursor = f"{ch.name}.{which}{r}"
        slot = f"{ch.name}.empty[{cursor}.slot]"
        if ch.stored:
            t.add(f"ARRIVE {slot}")
        else:
            _signal(t, ch.signals[r], self.lanes, r + 1, slot)
        t.add(f"{cursor}.advance(1)")

    def _drain(self, t: _Text, r: int, ch: _Channel, elected: bool) -> None:
        with t.blocks([] if elected or not ch.stored else ["IF threadIdx.x == 0"]):
            if ch.stored:
                t.add("RETIRE bulk.read <= 0")
            self._release(t, r, ch, "r")

    def _produce(self, t: _Text, r: int, ch: _Channel, elected: bool) -> None:
        cursor = f"{ch.name}.p"
        with t.blocks(["IF threadIdx.x == 0"] if ch.bulk and not elected else []):
            t.add(f"WAIT {ch.name}.empty[{cursor}.slot] parity {cursor}.parity")
            if ch.bulk:
                t.add(f"EXPECT {ch.name}.full[{cursor}.slot] bytes {4 * self.width * ch.pieces}")
                for piece in range(ch.pieces):
                    t.add(f"TMA {ch.name}[{cursor}.slot, {piece}, 0] <- x.map(k, {self.width * piece}) on {ch.name}.full[{cursor}.slot]")
            else:
                lane = self.c.pick(("threadIdx.x", f"{self.lanes - 1} - threadIdx.x"))
                outer = "" if self.outer is None else " + 16*m"
                for piece in range(ch.pieces):
                    t.add(f"{ch.name}[{cursor}.slot, {piece}, {lane}] = add(r{r}, index(k{outer}))")
                if ch.stored:
                    t.add("FENCE proxy.async")
                _signal(t, ch.signals[r], self.lanes, r + 1, f"{ch.name}.full[{cursor}.slot]")
            t.add(f"{cursor}.advance(1)")

    def _meet(self, t: _Text, r: int) -> None:
        t.add("SYNC warp" if self.lanes <= 32 and not (self.lanes == 32 and self.c.chance(50)) else f"SYNC named {r + 1}, {self.lanes}")

    def _exchange(self, t: _Text, r: int) -> None:
        """Through a ring of the role's own."""
        t.add(f"b{r}[b{r}.q.slot, threadIdx.x] = mul(r{r}, 2.0)")
        self._meet(t, r)
        t.add(f"r{r} = add(r{r}, b{r}[b{r}.q.slot, {self.lanes - 1} - threadIdx.x])")
        if self.local_ring[r] == 1:
            self._meet(t, r)
        t.add(f"b{r}.q.advance(1)")

    def _store(self, t: _Text, r: int, p: int, m: str) -> None:
        """By TMA from slots of the role's own."""
        out = self._output(f"v{r}", p, bulk=True)
        with t.block("IF threadIdx.x == 0"):
            t.add(f"RETIRE bulk.read <= {self.staged[r] - 1}")
        self._meet(t, r)
        t.add(f"o{r}[o{r}.q.slot, threadIdx.x] = copy(r{r})", "FENCE proxy.async")
        self._meet(t, r)
        with t.block("IF threadIdx.x == 0"):
            t.add(f"TMA {out}.map({m}, k, 0) <- o{r}[o{r}.q.slot, 0]", "COMMIT bulk")
        t.add(f"o{r}.q.advance(1)")

    def _write(self, t: _Text, r: int, p: int, m: str) -> None:
        out = self._output(f"y{r}", p, bulk=False)
        t.add(f"{out}[{m}, k, threadIdx.x] = copy(r{r})")


# -- other shapes ---------------------------------------------------------------------------------------------------------------------


def _distributed(c: Chooser) -> Small:
    """One producer (``threadIdx.z == 0``), whose slots the rows of a consumer read in turns."""
    lanes, stages, instances = c.pick((2, 2, 4, 32)), c.pick((2, 1, 3)), c.pick((2, 2, 3))
    h = _Head(lanes, instances, depth=2)
    h.dim = _dim(c)
    trips = EXTENT if h.dim else str(c.pick((2, 1, 3, 0)))
    warp = lanes == 32 and c.chance(50)
    h.inputs.append(f"x: float32[{trips}, {instances}, {lanes}]")
    h.outputs.append(f"y: float32[{trips}, {instances}, {lanes}]")
    h.storage.append(f"SHARED s: float32[{stages}, {lanes}] align 16")
    one = 1 if warp else lanes
    h.mbarriers = {"full": (stages, one * instances), "empty": (stages, one), "turns": (instances, one)}
    how = Signal.WARP if warp else Signal.ALL
    t = _Text()
    h.initialize(t)
    with t.block("IF threadIdx.z == 0"):
        t.add(f"p = CURSOR(slots {stages}, slot 0, parity 1)")
        with t.blocks([f"FOR k in 0..{trips}", f"FOR j in 0..{instances}"]):
            t.add("WAIT empty[p.slot] parity p.parity")
            with t.block("IF threadIdx.y == 0"):
                t.add("s[p.slot, threadIdx.x] = mul(x[k, j, threadIdx.x], 2.0)")
            _signal(t, how, lanes, 0, "full[p.slot]")
            t.add("p.advance(1)")
    with t.block("ELSE"):
        t.add(f"c = CURSOR(slots {stages}, slot 0, parity 0)", "turn = CURSOR(slots 1, slot 0, parity 0)")
        with t.block(f"FOR k in 0..{trips}"):
            t.add("c.advance(threadIdx.y)", "WAIT turns[threadIdx.y] parity xor(turn.parity, threadIdx.y == 0)")
            t.add("WAIT full[c.slot] parity c.parity", f"y[k, threadIdx.y, threadIdx.x] = copy(s[c.slot, {lanes - 1} - threadIdx.x])")
            _signal(t, how, lanes, 0, "empty[c.slot]")
            t.add("c.advance(1)")
            _signal(t, how, lanes, 0, f"turns[(threadIdx.y + 1) % {instances}]")
            t.add("turn.advance(1)", f"c.advance({instances - 1} - threadIdx.y)")
    return Small(parse_kernel(h.text(t)), "turns", h.launches)


def _exchanging(c: Chooser) -> Small:
    """All threads write and read Shared memory in turns, with barriers of the block, a warp, or named ones."""
    lanes, rows = c.pick((2, 4, 2, 32)), c.pick((1, 2, 3, 4))
    h = _Head(lanes, rows)
    h.dim = _dim(c)
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
    t = _Text()
    if stages > 1:
        t.add(f"q = CURSOR(slots {stages}, slot 0, parity 0)")
    slot = "q.slot" if stages > 1 else "0"
    with t.block(f"FOR k in 0..{trips}"):
        t.add(f"s[{slot}, threadIdx.y, threadIdx.x] = mul(x[k, threadIdx.y, threadIdx.x], 2.0)", sync)
        t.add(f"y[k, threadIdx.y, threadIdx.x] = add(s[{slot}, {partner}, {lanes - 1} - threadIdx.x], 1.0)")
        if stages == 1 or c.chance(15):
            t.add(sync)
        if stages > 1:
            t.add("q.advance(1)")
    return Small(parse_kernel(h.text(t)), "exchange", h.launches)


def _handing(c: Chooser) -> Small:
    """Two roles that hand a buffer over at named barriers, or at barriers of the block."""
    lanes = c.pick((32, 32, 2))
    h = _Head(lanes, 2)
    trips, stages = str(c.pick((2, 1, 3, 0))), c.pick((1, 2))
    full, empty = ("SYNC named 1, 64", f"SYNC named {c.pick((2, 2, 2, 1))}, 64") if lanes == 32 else ("SYNC block", "SYNC block")
    h.inputs.append(f"x: float32[{trips}, {lanes}]")
    h.outputs.append(f"y: float32[{trips}, {lanes}]")
    h.storage.append(f"SHARED s: float32[{stages}, {lanes}] align 16")
    t = _Text()
    with t.block(f"FOR k in 0..{trips}"):
        with t.block("IF threadIdx.y == 0"):
            t.add(f"s[k % {stages}, threadIdx.x] = copy(x[k, threadIdx.x])")
        t.add(full)
        with t.block("IF threadIdx.y == 1"):
            t.add(f"y[k, threadIdx.x] = copy(s[k % {stages}, {lanes - 1} - threadIdx.x])")
        if stages == 1 or c.chance(20):
            t.add(empty)
    return Small(parse_kernel(h.text(t)), "handing", ({},))


def _gridwide(c: Chooser) -> Small:
    """Blocks that read what others wrote to Global memory, behind a barrier of the grid."""
    lanes, blocks, trips = c.pick((2, 4, 32)), c.pick((2, 3)), c.pick((1, 2, 3, 0))
    h = _Head(lanes, 1, blocks)
    h.inputs.append(f"x: float32[{trips}, {blocks}, {lanes}]")
    h.outputs.append(f"y: float32[{trips}, {blocks}, {lanes}]")
    per_trip = c.chance(50)
    h.storage.append(f"GLOBAL g: float32[{max(trips, 1) if per_trip else 1}, {blocks}, {lanes}]")
    h.storage.append("COUNTER grid")
    t = _Text()
    with t.block(f"FOR k in 0..{trips}"):
        row = "k" if per_trip else "0"
        t.add(f"g[{row}, blockIdx.x, threadIdx.x] = mul(x[k, blockIdx.x, threadIdx.x], 2.0)", f"SYNC grid grid, {lanes * blocks}")
        t.add(f"y[k, blockIdx.x, threadIdx.x] = copy(g[{row}, (blockIdx.x + 1) % {blocks}, {lanes - 1} - threadIdx.x])")
        if not per_trip:
            t.add(f"SYNC grid grid, {lanes * blocks}")
    return Small(parse_kernel(h.text(t)), "grid", ({},))


def small_kernel(c: Chooser) -> Small:
    """A random small kernel."""
    kind = c.integer(0, 99)
    if kind < 76:
        return _Pipeline(c).make()
    return (_distributed if kind < 85 else _exchanging if kind < 93 else _handing if kind < 96 else _gridwide)(c)
