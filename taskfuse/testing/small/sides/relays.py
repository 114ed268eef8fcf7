"""Accesses of a few buffers by warps and blocks in turn, and between them what completes, shows and orders them: at every scope, through either proxy.

What a thread writes may come to its reader through others. Order is transitive, but a step orders only what its scope, its proxy and its block say.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.sides.side import Declared, Shape, Side
from taskfuse.testing.small.text import Text

Lines = tuple[str, ...]
LANES = 32
FIRST = "threadIdx.x == 0"


@dataclass(slots=True)
class _Relay:
    """A kernel under construction: guarded lines, and what they need.

    Attributes:
        blocks, cluster: blocks of the grid and of a cluster; warps: of a block; repeats: all of it stands in a loop.
        arrivals: of mbarriers that complete once; meetings: slots and arrivals of those at which a warp meets, each with a cursor.
        last: what waits for stores in any case, at the end.
    """

    c: Chooser
    blocks: int
    cluster: int
    warps: int
    repeats: bool
    body: list[tuple[str, Lines]] = field(default_factory=list[tuple[str, Lines]])
    outputs: list[str] = field(default_factory=lambda: [f"w: float32[2, {LANES}]"])
    maps: dict[str, str] = field(default_factory=dict[str, str])
    arrivals: list[int] = field(default_factory=list[int])
    meetings: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    last: list[tuple[str, Lines]] = field(default_factory=list[tuple[str, Lines]])

    def add(self, guard: str, *lines: str) -> None:
        """Lines under a condition on threads and blocks; under one on the extent or the iteration, too, at times."""
        if self.c.chance(4):
            on = self.c.pick(("N > 1", "N > 2", *(("k > 0", "k % 2 == 0", "k < N - 1") * 2 if self.repeats else ())))
            guard = f"{on} && {guard}" if guard else on
        self.body.append((guard, lines))

    def who(self, warp: int, block: int | None, *, first: bool = False) -> str:
        """The condition of a warp, of a block if it is given, or of its first thread."""
        parts = [f"threadIdx.y == {warp}"]
        if block is not None:
            parts.append(f"blockIdx.x == {block}" if self.cluster == 1 or self.c.chance(40) else f"clusterIdx.x == {block % self.cluster}")
        return " && ".join([*parts, FIRST] if first else parts)

    def output(self, *, boxes: bool = False) -> str:
        """A new output, of a row for each block."""
        name = f"y{len(self.outputs)}"
        self.outputs.append(f"{name}: float32[{self.blocks}, {LANES}]")
        if boxes:
            self.map_of(name)
        return name

    def map_of(self, tensor: str) -> str:
        """The map of a tensor's rows."""
        return self.maps.setdefault(tensor, f"{tensor}.map = {tensor} box (1, {LANES}) swizzle 0").partition(" ")[0]

    # -- accesses -----------------------------------------------------------------------------------------------------------------------

    def write(self, buffer: str, row: int, warp: int, block: int | None) -> None:
        """A row is written: by threads, by copies, or by an engine."""
        c, every, one = self.c, self.who(warp, block), self.who(warp, block, first=True)
        lane = c.pick(("threadIdx.x", "threadIdx.x", "31 - threadIdx.x"))
        ways = {"s": ("threads", "threads", "copies"), "g": ("threads",), "w": ("threads", "threads", "store", "store", "update", "combine")}[buffer]
        match c.pick((*ways, *(("load",) if buffer == "s" and not self.repeats else ()))):
            case "threads":
                self.add(every, f"{buffer}[{self._rank(buffer)}{row}, {lane}] = copy(x[0, {lane}])")
            case "copies":
                self.add(every, f"COPY.async s[{row}, threadIdx.x] <- {c.pick(('x', 'x', 'w'))}[1, threadIdx.x] width 1", "COMMIT copy")
                if self.repeats or c.chance(75):
                    self.add(every, "WAIT_GROUP copy <= 0")
                else:
                    slot = self._new(LANES)
                    self.add(every, f"ARRIVE.async {slot}")
                    self._await(slot, warp)
            case "load":
                self._load(f"s[{row}, 0]", f"{self.map_of(c.pick(('x', 'x', 'w')))}({c.integer(0, 1)}, 0)", one, warp)
            case "update":
                self.add(every, f"UPDATE w[{row}, {lane}] by add of x[1, threadIdx.x]")
            case how:
                box = f"TMA {self.map_of('w')}({row}, 0) <- s[{c.integer(0, 1)}, 0]"
                self.add(one, box + (" by add" if how == "combine" else ""), "COMMIT bulk", f"WAIT_GROUP bulk{c.pick(('', '', '', '.read'))} <= 0")
                self.last.append((one, ("WAIT_GROUP bulk <= 0",)))

    def read(self, buffer: str, row: int, warp: int, block: int | None) -> None:
        """A row is read: by threads, by copies, or by an engine."""
        c, every, one = self.c, self.who(warp, block), self.who(warp, block, first=True)
        ways = {"s": ("threads", "threads", "store"), "g": ("threads",), "w": ("threads", "threads", "copies")}[buffer]
        match c.pick((*ways, *(("load",) if buffer == "w" and not self.repeats else ()))):
            case "threads":
                lane = c.pick(("threadIdx.x", "31 - threadIdx.x"))
                self.add(every, f"{self.output()}[blockIdx.x, threadIdx.x] = copy({buffer}[{self._rank(buffer)}{row}, {lane}])")
            case "copies":
                self.add(every, f"COPY.async s[{c.integer(0, 1)}, threadIdx.x] <- w[{row}, threadIdx.x] width 1", "COMMIT copy", "WAIT_GROUP copy <= 0")
            case "load":
                self._load(f"s[{c.integer(0, 1)}, 0]", f"{self.map_of('w')}({row}, 0)", one, warp)
            case _:
                name = self.output(boxes=True)
                self.add(one, f"TMA {name}.map(blockIdx.x, 0) <- s[{row}, 0]", "COMMIT bulk", f"WAIT_GROUP bulk{c.pick(('', '.read'))} <= 0")
                self.last.append((one, ("WAIT_GROUP bulk <= 0",)))

    def _rank(self, buffer: str) -> str:
        return self.c.pick(("clusterIdx.x, ", "clusterIdx.x, ", "1 - clusterIdx.x, ", "0, ")) if buffer == "g" else ""

    def _new(self, arrivals: int) -> str:
        """The slot of a new mbarrier that completes once."""
        self.arrivals.append(arrivals)
        return f"b{len(self.arrivals) - 1}[0]"

    def _load(self, to: str, source: str, guard: str, warp: int) -> None:
        slot = self._new(1)
        self.add(guard, f"EXPECT {slot} bytes {4 * LANES}", f"TMA {to} <- {source} on {slot}")
        self._await(slot, warp)

    def _await(self, slot: str, warp: int) -> None:
        if self.c.chance(95):
            self.add("" if self.c.chance(60) else f"threadIdx.y == {warp}", f"WAIT {slot} parity 0")

    # -- between them ---------------------------------------------------------------------------------------------------------------------

    def fence(self, warp: int, block: int | None) -> None:
        """A proxy fence."""
        memory = self.c.pick(("", ".global"))
        self.add(self.who(warp, block, first=self.c.chance(25)), f"FENCE proxy.async{memory}")

    def meet(self, warp: int, then: int) -> None:
        """Two warps meet, or a warp of each block; or one tells the other."""
        c = self.c
        kinds = ["block", "block", "named", "warp", *(["cluster"] * 2 if self.cluster > 1 else []), *(["grid"] * 2 if self.blocks > 1 else [])]
        match c.pick((*kinds, *(("meeting", "meeting") if self.repeats else ("once", "once")))):
            case "block":
                self.add("", "SYNC block")
            case "named":
                self.add("", f"SYNC named 1, {LANES * self.warps}")
            case "warp":
                self.add(f"threadIdx.y == {warp}" if c.chance(50) else "", "SYNC warp")
            case "cluster":
                self.add("", "SYNC cluster")
            case "grid":
                self.add("", f"SYNC grid c, {LANES * self.warps * self.blocks}")
            case "once":
                self._tell(warp, then)
            case _:
                self._meeting(warp)

    def _tell(self, warp: int, then: int) -> None:
        c = self.c
        first = c.chance(50)
        if first and c.chance(85):
            self.add(f"threadIdx.y == {warp}", "SYNC warp")
        slot = self._new(1 if first else LANES)
        self.add(f"threadIdx.y == {warp}" + (f" && {FIRST}" if first else ""), f"ARRIVE {slot}")
        if c.chance(15):
            self.add(f"threadIdx.y == {then} && {FIRST}", f"WAIT {slot} parity 0")
            self.add(f"threadIdx.y == {then}", "SYNC warp")
        else:
            self.add(c.pick((f"threadIdx.y == {then}", f"threadIdx.y == {then}", "")), f"WAIT {slot} parity 0")

    def _meeting(self, warp: int) -> None:
        c = self.c
        wide, first = self.cluster > 1 and c.chance(60), c.chance(60)
        name, cursor = f"m{len(self.meetings)}", f"q{len(self.meetings)}"
        self.meetings.append((2 if wide else 1, (1 if first else LANES) * (self.cluster if wide else 1)))
        slot = f"{name}[{f'{cursor}.slot' if wide else '0'}]"
        gives, waits = (f" across CIDx{c.pick((' scope cluster',) * 5 + ('',))}", c.pick((" scope cluster",) * 5 + ("",))) if wide else ("", "")
        around = [("", ("SYNC block",))]
        self.body += around if c.chance(85) else []
        self.body.append(
            (f"threadIdx.y == {warp}" + (f" && {FIRST}" if first else ""), (f"ARRIVE {slot}{gives}", f"WAIT {slot} parity {cursor}.parity{waits}"))
        )
        self.body.append(("", (f"{cursor}.advance(1)",)))
        self.body += around if c.chance(85) else []

    # -- the kernel -----------------------------------------------------------------------------------------------------------------------

    def side(self) -> Side:
        h = Declared(
            Shape((LANES, self.warps, 1)), [f"SHARED s: float32[2, {LANES}] align 128 @ 0"], [f"x: float32[2, {LANES}]", "v: float32[N]"], dims="N max 3"
        )
        h.outputs, h.maps, h.grid = self.outputs, [*self.maps.values()], f"({self.blocks}, 1, 1)"
        if self.cluster > 1:
            h.after = f"  CLUSTER ({self.cluster}, 1, 1)"
            h.lines.append(f"CLUSTER g: float32[{self.cluster}, 2, {LANES}] align 16 @ 1024")
        mbarriers = {f"b{k}": (1, n) for k, n in enumerate(self.arrivals)} | {f"m{k}": found for k, found in enumerate(self.meetings)}
        h.lines += ["MBARRIER " + ", ".join(f"{name}[{slots}]" for name, (slots, _) in mbarriers.items())] if mbarriers else []
        h.lines += ["COUNTER c"] if any("SYNC grid" in line for _, lines in self.body for line in lines) else []
        t = Text()
        if mbarriers:
            with t.block(f"IF {FIRST} && threadIdx.y == 0"):
                t.add(*(f"INIT {name}[{k}] count {n}" for name, (slots, n) in mbarriers.items() for k in range(slots)), "FENCE mbarrier_init")
        t.add("SYNC cluster" if self.cluster > 1 else "SYNC block")
        t.add(*(f"q{k} = CURSOR(slots {slots}, slot 0, parity 0)" for k, (slots, _) in enumerate(self.meetings)))
        with t.blocks(["FOR k in 0..N"] if self.repeats else []):
            self._write(t, self.body)
        self._write(t, self.last)
        if self.cluster > 1 and self.c.chance(95):
            t.add("SYNC cluster")
        return h.side("relays", t, None, [{"N": n} for n in (3, 1)])

    @staticmethod
    def _write(t: Text, guarded: list[tuple[str, Lines]]) -> None:
        for guard, lines in guarded:
            with t.blocks([f"IF {guard}"] if guard else []):
                t.add(*lines)


def relays(c: Chooser) -> Side:
    """Warps and blocks access a buffer in turn."""
    blocks, cluster = c.pick(((1, 1), (2, 1), (2, 1), (2, 2), (4, 2), (4, 2)))
    relay = _Relay(c, blocks, cluster, c.pick((2, 2, 3)), c.chance(35))
    buffers = ("s", "w", *(("g",) if cluster > 1 else ()))
    focus, warp = c.pick(buffers), c.integer(0, relay.warps - 1)
    for step in range(c.integer(2, 4)):
        buffer, row = focus if c.chance(80) else c.pick(buffers), 1 if c.chance(20) else 0
        block = None if blocks == 1 or (buffer != "w" and c.chance(60)) else c.integer(0, blocks - 1)
        access = relay.write if step == 0 or c.chance(35) else relay.read
        access(buffer, row, warp, block)
        if c.chance(55):
            relay.fence(warp, block)
        then = c.integer(0, relay.warps - 1)
        for _ in range(c.pick((1, 1, 1, 2, 0))):
            relay.meet(warp, then)
        warp = then
    if relay.repeats and c.chance(80):
        relay.meet(warp, warp)
    return relay.side()
