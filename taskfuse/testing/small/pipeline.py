"""Roles that run the same loops and pass data to each other through rings of mbarriers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.text import EXTENT, ROW, ArrivalSignal, Head, Small, Text, arrivals, declare, dim, met, signal, signals


class Fill(Enum):
    """The writer of a channel's slots."""

    THREADS = "stores of threads"
    BULK = "TMA"
    COPIES = "asynchronous copies, for which arrivals wait"
    RETIRED = "asynchronous copies, which their threads wait for"


@dataclass(slots=True)
class SmallChannel:
    """A ring from one role to others. ``stored``: its consumer's TMA reads the slots."""

    name: str
    producer: int
    consumers: list[int]
    stages: int
    phases: list[int]
    fill: Fill
    stored: bool
    pieces: int
    signals: dict[int, ArrivalSignal]
    lagging: dict[int, bool]

    @property
    def bulk(self) -> bool:
        """True if one thread starts the fill of a slot."""
        return self.fill is Fill.BULK

    def filled(self, lanes: int) -> int:
        """Arrivals at ``full`` for a position."""
        match self.fill:
            case Fill.BULK:
                return 1
            case Fill.COPIES:
                return lanes
            case Fill.THREADS | Fill.RETIRED:
                return arrivals(self.signals[self.producer], lanes)

    def buffer(self, lanes: int) -> str:
        """Its slots in Shared memory."""
        bulk = self.bulk or self.stored
        return f"SHARED {self.name}: float32[{self.stages}, {self.pieces}, {max(ROW, lanes) if bulk else lanes}] align {128 if bulk else 16}"


class Pipeline:
    """Roles on ``threadIdx.y``, one row each, that run the same loops; channels from lower roles to higher ones."""

    def __init__(self, c: Chooser) -> None:
        self.c = c
        self.lanes = c.pick((2, 2, 2, 2, 2, 2, 4, 32, 32, 64))
        self.roles = c.pick((2, 2, 2, 3, 3))
        self.head = Head(self.lanes, self.roles)
        self.head.dim = dim(c)
        self.phases = c.pick((1, 1, 1, 2))
        self.trips = [EXTENT if self.head.dim and p == 0 else str(c.pick((2, 3, 1, 4, 0))) for p in range(self.phases)]
        self.outer = c.pick((None, None, 2, 1, 3, 0))
        if self.outer is not None and self.outer > 1:
            self.trips = [n if n == EXTENT or int(n) < 3 else "2" for n in self.trips]
        self.wild = c.chance(12)
        self.once = c.chance(15)
        self.width = max(ROW, self.lanes)
        self.copying = [c.pick((Fill.COPIES, Fill.RETIRED)) for _ in range(self.roles)]
        self.channels = [self._channel(k) for k in range(c.pick((1, 1, 2, 2, 3)))]
        self.local_ring = {r: c.pick((1, 2, 3)) for r in range(self.roles) if c.chance(15)}
        self.staged = {r: c.pick((1, 2)) for r in range(self.roles) if c.chance(8)}
        if self.staged or any(ch.stored for ch in self.channels):
            self.lanes = self.width = self.head.lanes = ROW  # a row is written by one statement
            self.channels = [replace(ch, signals={r: c.pick(signals(ROW)) for r in range(self.roles)}) for ch in self.channels]

    def _channel(self, k: int) -> SmallChannel:
        c, lanes = self.c, self.lanes
        producer = c.integer(0, self.roles - 2)
        later = list(range(producer + 1, self.roles))
        consumers = later if len(later) > 1 and c.chance(30) else [c.pick(later)]
        fill = c.pick((*[Fill.THREADS] * 5, *[Fill.BULK] * 3, *[self.copying[producer]] * 2))
        stored = len(consumers) == 1 and c.chance(15)
        if stored and fill is Fill.COPIES:
            fill = Fill.RETIRED  # an arrival does not make a copy visible to an engine
        stages = c.pick((2, 2, 1, 3))
        both = c.chance(20)
        return SmallChannel(
            name=f"s{k}",
            producer=producer,
            consumers=consumers,
            stages=stages,
            phases=list(range(self.phases)) if both else [c.integer(0, self.phases - 1)],
            fill=fill,
            stored=stored,
            pieces=2 if c.chance(15) and not stored else 1,
            signals={r: c.pick(signals(lanes)) for r in range(self.roles)},
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
            read = 1 if ch.stored else sum(arrivals(ch.signals[r], lanes) for r in ch.consumers)
            h.mbarriers[f"{ch.name}.full"] = ch.stages, ch.filled(lanes)
            h.mbarriers[f"{ch.name}.empty"] = ch.stages, read
        if self.once:
            h.storage.append(f"SHARED once: float32[{self.width}] align 128")
            h.mbarriers["once.full"] = 1, 1
        for r, stages in self.local_ring.items():
            h.storage.append(f"SHARED b{r}: float32[{stages}, {lanes}] align 16")
        for r, stages in self.staged.items():
            h.storage.append(f"SHARED o{r}: float32[{stages}, {self.width}] align 128")
        t = Text()
        codes = [self._role(r) for r in range(self.roles)]
        h.initialize(t)
        if self.once:
            with t.block("IF threadIdx.x == 0 && threadIdx.y == 0"):
                t.add(f"EXPECT once.full[0] bytes {4 * self.width}", "TMA once[0] <- x.map(8, 0) on once.full[0]")
        for r, code in enumerate(codes):
            with t.block(f"{'IF' if r == 0 else 'ELSE IF'} threadIdx.y == {r}"):
                t.add(*code.lines)
        return h.small("pipeline", t)

    def _output(self, name: str, phase: int, bulk: bool) -> str:
        """Declare an output for a phase; its name."""
        made = f"{name}{phase}"
        self.head.outputs.append(f"{made}: float32[{1 if self.outer is None else self.outer}, {self.trips[phase]}, {self.width if bulk else self.lanes}]")
        if bulk:
            self.head.maps.append(f"{made}.map = {made} box (1, 1, {self.width}) swizzle 0")
        return made

    # -- code of a role -------------------------------------------------------------------------------------------------------------

    def _role(self, r: int) -> Text:
        c, t = self.c, Text()
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
                t.add("WAIT_GROUP bulk <= 0")
        return t

    def _phase(self, t: Text, r: int, p: int, incoming: list[SmallChannel], outgoing: list[SmallChannel], elected: bool) -> None:
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

    def _begin(self, t: Text, r: int, elected: bool) -> None:
        if not elected:
            t.add(f"r{r} = add(x[k, threadIdx.x], once[threadIdx.x])" if self.once else f"r{r} = copy(x[k, threadIdx.x])")

    def _consume(self, t: Text, r: int, p: int, m: str, ch: SmallChannel, elected: bool) -> None:
        cursor = f"{ch.name}.c{r}"
        with t.blocks([] if elected or not ch.stored else ["IF threadIdx.x == 0"]):
            t.add(f"WAIT {ch.name}.full[{cursor}.slot] parity {cursor}.parity")
            if ch.stored:
                out = self._output(f"z{r}{ch.name}", p, bulk=True)
                t.add(f"TMA {out}.map({m}, k, 0) <- {ch.name}[{cursor}.slot, 0, 0]", "COMMIT bulk", f"WAIT_GROUP bulk.read <= {1 if ch.lagging[r] else 0}")
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

    def _release(self, t: Text, r: int, ch: SmallChannel, which: str) -> None:
        cursor = f"{ch.name}.{which}{r}"
        slot = f"{ch.name}.empty[{cursor}.slot]"
        if ch.stored:
            t.add(f"ARRIVE {slot}")
        else:
            self._signal(t, r, ch.signals[r], slot)
        t.add(f"{cursor}.advance(1)")

    def _drain(self, t: Text, r: int, ch: SmallChannel, elected: bool) -> None:
        with t.blocks([] if elected or not ch.stored else ["IF threadIdx.x == 0"]):
            if ch.stored:
                t.add("WAIT_GROUP bulk.read <= 0")
            self._release(t, r, ch, "r")

    def _produce(self, t: Text, r: int, ch: SmallChannel, elected: bool) -> None:
        cursor = f"{ch.name}.p"
        with t.blocks(["IF threadIdx.x == 0"] if ch.bulk and not elected else []):
            t.add(f"WAIT {ch.name}.empty[{cursor}.slot] parity {cursor}.parity")
            full = f"{ch.name}.full[{cursor}.slot]"
            if ch.bulk:
                t.add(f"EXPECT {full} bytes {4 * self.width * ch.pieces}")
                for piece in range(ch.pieces):
                    t.add(f"TMA {ch.name}[{cursor}.slot, {piece}, 0] <- x.map(k, {self.width * piece}) on {full}")
            else:
                lane = self.c.pick(("threadIdx.x", f"{self.lanes - 1} - threadIdx.x"))
                for piece in range(ch.pieces):
                    self._fill(t, r, ch, f"{ch.name}[{cursor}.slot, {piece}, {lane}]", piece)
                if ch.fill is Fill.RETIRED:
                    t.add("COMMIT copy", "WAIT_GROUP copy <= 0")
                if ch.stored:
                    t.add("FENCE proxy.async")
                if ch.fill is Fill.COPIES:
                    t.add(f"ARRIVE.async {full}")
                else:
                    self._signal(t, r, ch.signals[r], full)
            t.add(f"{cursor}.advance(1)")

    def _fill(self, t: Text, r: int, ch: SmallChannel, to: str, piece: int) -> None:
        """What a thread writes of a piece."""
        if ch.fill is Fill.THREADS:
            outer = "" if self.outer is None else " + 16*m"
            t.add(f"{to} = add(r{r}, index(k{outer}))")
        else:
            t.add(f"COPY.async {to} <- x[k, threadIdx.x + {self.width * piece}] width 1" + (" if k < 2" if self.c.chance(20) else ""))

    def _meet(self, t: Text, r: int) -> None:
        if self.lanes < 32:
            declare(self.head, self.lanes, r + 1)
            t.add(*met(r + 1))
        else:
            t.add("SYNC warp" if self.lanes == 32 and not self.c.chance(50) else f"SYNC named {r + 1}, {self.lanes}")

    def _signal(self, t: Text, r: int, how: ArrivalSignal, barrier: str) -> None:
        if how is ArrivalSignal.MET:
            declare(self.head, self.lanes, r + 1)
        signal(t, how, self.lanes, r + 1, barrier)

    def _exchange(self, t: Text, r: int) -> None:
        """Through a ring of the role's own."""
        t.add(f"b{r}[b{r}.q.slot, threadIdx.x] = mul(r{r}, 2.0)")
        self._meet(t, r)
        t.add(f"r{r} = add(r{r}, b{r}[b{r}.q.slot, {self.lanes - 1} - threadIdx.x])")
        if self.local_ring[r] == 1:
            self._meet(t, r)
        t.add(f"b{r}.q.advance(1)")

    def _store(self, t: Text, r: int, p: int, m: str) -> None:
        """By TMA from slots of the role's own."""
        out = self._output(f"v{r}", p, bulk=True)
        with t.block("IF threadIdx.x == 0"):
            t.add(f"WAIT_GROUP bulk.read <= {self.staged[r] - 1}")
        self._meet(t, r)
        t.add(f"o{r}[o{r}.q.slot, threadIdx.x] = copy(r{r})", "FENCE proxy.async")
        self._meet(t, r)
        with t.block("IF threadIdx.x == 0"):
            t.add(f"TMA {out}.map({m}, k, 0) <- o{r}[o{r}.q.slot, 0]", "COMMIT bulk")
        t.add(f"o{r}.q.advance(1)")

    def _write(self, t: Text, r: int, p: int, m: str) -> None:
        out = self._output(f"y{r}", p, bulk=False)
        t.add(f"{out}[{m}, k, threadIdx.x] = copy(r{r})")
