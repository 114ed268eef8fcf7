"""Threads that run side by side, and what their events do: barriers, exchanges in a warp, mbarriers, counters, copies, tensor cores.

One thread runs until it must wait. Copies and products are done when they are issued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from taskfuse.target import WARP
from taskfuse.testing.ptx.arithmetic import meaning
from taskfuse.testing.ptx.bulk import TensorMap, loaded
from taskfuse.testing.ptx.events import RANK, Kind
from taskfuse.testing.ptx.floats import FORMATS
from taskfuse.testing.ptx.machine import Thread, ThreadEvent, TooLong
from taskfuse.testing.ptx.matrices import load_matrices, mma, store_matrices, wgmma
from taskfuse.testing.ptx.nodes import SIZES, PtxError, PtxInstruction
from taskfuse.testing.ptx.storage import Storage

WARPGROUP = 4 * WARP
_ALL = (1 << WARP) - 1
_COUNTERS = {"gpu.global.u64": ("global", 8), "cta.shared::cta.s32": ("shared", 4)}
"""Space and bytes of what is read by an acquire, or written by a release, by the words of the instruction."""
Reply = tuple[int, ...]
"""The results of an event."""


@dataclass(slots=True)
class PtxMbarrier:
    """An mbarrier (PTX ISA, "mbarrier"): a phase ends when no arrival and no byte is missing.

    Attributes:
        count: arrivals of a phase; ``missing``: those that are missing; ``bytes``: bytes that are missing.
        phase: the number of phases that ended.
        waiting: threads that wait, each with the parity of the phase that must end.
    """

    count: int
    missing: int
    bytes: int = 0
    phase: int = 0
    waiting: list[tuple[PtxThread, int]] = field(default_factory=list["tuple[PtxThread, int]"])


@dataclass(slots=True, eq=False)
class PtxWarp:
    """Lanes that have not ended, and those that wait for each other, by what they wait in."""

    live: int = 0
    waiting: dict[tuple[Kind, int], dict[int, tuple[PtxThread, ThreadEvent]]] = field(
        default_factory=dict[tuple[Kind, int], "dict[int, tuple[PtxThread, ThreadEvent]]"]
    )


@dataclass(slots=True, eq=False)
class PtxBlock:
    """A block: its barriers, by number the threads that wait, and its mbarriers, by address."""

    cluster: PtxCluster
    barriers: dict[int, list[PtxThread]] = field(default_factory=dict[int, "list[PtxThread]"])
    mbarriers: dict[int, PtxMbarrier] = field(default_factory=dict[int, PtxMbarrier])
    products: dict[tuple[int, Kind], dict[int, tuple[PtxThread, ThreadEvent]]] = field(
        default_factory=dict[tuple[int, Kind], "dict[int, tuple[PtxThread, ThreadEvent]]"]
    )


@dataclass(slots=True, eq=False)
class PtxCluster:
    """Blocks that share a barrier.

    Attributes:
        threads: those of all its blocks.
        arrived: arrivals at the barrier; ``waiting``: threads that wait for its end.
    """

    blocks: list[PtxBlock] = field(default_factory=list["PtxBlock"])
    threads: int = 0
    arrived: int = 0
    phase: int = 0
    waiting: list[PtxThread] = field(default_factory=list["PtxThread"])


@dataclass(slots=True, eq=False)
class PtxThread:
    """A thread.

    Attributes:
        number: in its block.
        doing: its last event.
        counter: the last value that it has read of a counter.
    """

    coroutine: Thread
    block: PtxBlock
    warp: PtxWarp
    number: int
    storage: Storage
    name: str
    doing: ThreadEvent | None = None
    cluster_phase: int = 0
    counter: int = 0

    @property
    def lane(self) -> int:
        return self.number % WARP


class PtxScheduler:
    """Runs threads.

    Args:
        code: the instructions by line.
        maps: tensor maps by address.
        seed: picks the order of threads.
    """

    def __init__(self, code: Mapping[int, PtxInstruction], maps: Mapping[int, TensorMap], seed: int) -> None:
        self._code = code
        self._maps = maps
        self._random = Random(seed)
        self._ready: deque[tuple[PtxThread, Reply | None]] = deque()
        self._counting: dict[tuple[int, int], list[PtxThread]] = {}
        self._has_counted = True
        self._live: dict[PtxThread, None] = {}
        self._acts: dict[Kind, Callable[[PtxThread, ThreadEvent], Reply | None]] = {
            **dict.fromkeys((Kind.STREAM_WAIT, Kind.FENCE, Kind.REGISTERS, Kind.WGMMA_FENCE, Kind.WGMMA_COMMIT, Kind.WGMMA_WAIT), _nothing),
            **dict.fromkeys((Kind.COPY_COMMIT, Kind.COPY_WAIT, Kind.BULK_COMMIT, Kind.BULK_WAIT, Kind.BULK_WAIT_READ), _nothing),
            **dict.fromkeys((Kind.SHUFFLE, Kind.AGREED, Kind.MATCH, Kind.BALLOT, Kind.WARP_BARRIER), self._in_warp),
            **dict.fromkeys((Kind.ACTIVE, Kind.MMA, Kind.LOAD_MATRIX, Kind.STORE_MATRIX), self._in_warp),
            Kind.BARRIER: self._barrier,
            Kind.CLUSTER_ARRIVE: self._cluster_arrive,
            Kind.CLUSTER_WAIT: self._cluster_wait,
            Kind.INIT: self._init,
            Kind.ARRIVE: self._arrive,
            Kind.EXPECT: self._expect,
            Kind.WAIT: self._wait,
            Kind.COPY: self._copy,
            Kind.COPY_ARRIVE: self._copy_arrive,
            Kind.UPDATE: self._update,
            Kind.RELEASE: self._release,
            Kind.COUNT: self._count,
            Kind.PUBLISH: self._publish,
            Kind.EXCHANGE: self._exchange,
            Kind.BULK_LOAD: self._bulk_load,
            Kind.MULTICAST: self._multicast,
            Kind.BULK_STORE: self._bulk_store,
            Kind.BULK_UPDATE: self._bulk_update,
            Kind.WGMMA: self._wgmma,
        }

    def run(self, threads: Sequence[PtxThread]) -> None:
        """Run threads to their end.

        Raises:
            PtxError: an access outside of everything, an instruction that is not known, or no thread can continue.
        """
        order = list(threads)
        self._random.shuffle(order)
        self._ready.extend((t, None) for t in order)
        self._live = dict.fromkeys(threads)
        while self._live:
            while self._ready:
                self._advance(*self._ready.popleft())
            self._stalled()

    def _advance(self, thread: PtxThread, reply: Reply | None) -> None:
        """Run a thread until it waits or ends."""
        try:
            while True:
                before = thread.doing
                event = next(thread.coroutine) if before is None else thread.coroutine.send(reply or ())
                thread.doing = event
                if event[1] is Kind.ACQUIRE:
                    reply = self._acquire(thread, event, event == before)
                else:
                    self._has_counted = True
                    reply = self._acts[event[1]](thread, event)
                if reply is None:
                    return
        except StopIteration:
            self._end(thread)
        except TooLong:
            raise PtxError(0, f"{thread.name} does not end") from None
        except TypeError as error:
            raise PtxError(
                0 if thread.doing is None else thread.doing[0], f"a value that nothing computed, behind this line, in {thread.name}: {error}"
            ) from error
        except PtxError as error:
            raise PtxError(error.line, f"{error.what}; {thread.name}") from error

    def _end(self, thread: PtxThread) -> None:
        del self._live[thread]
        warp = thread.warp
        warp.live &= ~(1 << thread.lane)
        for key in list(warp.waiting):
            self._try_warp(warp, key)

    def _stalled(self) -> None:
        """All threads wait: lanes that ask who is active have found each other."""
        for warp in dict.fromkeys(t.warp for t in self._live):
            together = [key for key in warp.waiting if key[0] is Kind.ACTIVE]
            for key in together:
                lanes = warp.waiting.pop(key)
                mask = sum(1 << lane for lane in lanes)
                self._wake((t, (mask,)) for t, _ in lanes.values())
        if not self._ready and self._has_counted:  # a read after one that had enough may have enough, too
            self._has_counted = False
            for place in list(self._counting):
                self._changed(place)
        if self._live and not self._ready:
            thread = next(iter(self._live))
            assert thread.doing is not None
            line, kind, operands, _ = thread.doing
            raise PtxError(line, f"{len(self._live)} threads wait for ever: {thread.name} in {kind.name}{operands}")

    def _wake(self, replies: Any) -> None:
        self._ready.extend(replies)

    # -- warps --------------------------------------------------------------------------------------------------------------------------

    def _in_warp(self, thread: PtxThread, event: ThreadEvent) -> Reply | None:
        line, kind, operands, _ = event
        match kind:
            case Kind.ACTIVE:
                key = kind, line
            case Kind.MMA | Kind.LOAD_MATRIX | Kind.STORE_MATRIX:
                key = kind, _ALL
            case _:
                key = kind, operands[-1]
                if not operands[-1] >> thread.lane & 1:
                    raise PtxError(line, f"lane {thread.lane} is not one of the lanes {operands[-1]:#x} that it waits for")
        thread.warp.waiting.setdefault(key, {})[thread.lane] = thread, event
        return self._try_warp(thread.warp, key, thread)

    def _try_warp(self, warp: PtxWarp, key: tuple[Kind, int], last: PtxThread | None = None) -> Reply | None:
        """Go on if all lanes have come that must. Returns the results of ``last``."""
        kind, mask = key
        waiting = warp.waiting[key]
        if kind is Kind.ACTIVE or any(mask >> lane & 1 and warp.live >> lane & 1 and lane not in waiting for lane in range(WARP)):
            return None
        del warp.waiting[key]
        events = {lane: event for lane, (_, event) in sorted(waiting.items())}
        threads = {lane: t for lane, (t, _) in waiting.items()}
        replies = self._answers(kind, events, threads)
        self._wake((t, replies[lane]) for lane, t in threads.items() if t is not last)
        return replies[last.lane] if last is not None else None

    def _answers(self, kind: Kind, events: Mapping[int, ThreadEvent], threads: Mapping[int, PtxThread]) -> Mapping[int, Reply]:
        lanes = list(events)
        line, _, operands, _ = events[lanes[0]]
        data = {lane: event[3] for lane, event in events.items()}
        memory = threads[lanes[0]].storage
        found: Mapping[int, Reply] | None
        match kind:
            case Kind.WARP_BARRIER:
                return dict.fromkeys(lanes, ())
            case Kind.SHUFFLE:
                return {lane: _shuffled(lane, events, str(events[lane][2][0]), *events[lane][2][1:3]) for lane in lanes}
            case Kind.AGREED:
                values = {lane: (*e[:3], (e[2][0],)) for lane, e in events.items()}
                return {lane: _shuffled(lane, values, "idx", *events[lane][2][1:3]) for lane in lanes}
            case Kind.BALLOT:
                mask = sum(1 << lane for lane, (bit,) in data.items() if bit)
                return dict.fromkeys(lanes, (mask,))
            case Kind.MATCH:
                if operands[0] == "any":
                    return {lane: (sum(1 << other for other in lanes if data[other] == data[lane]),) for lane in lanes}
                same = len(set(data.values())) == 1
                return dict.fromkeys(lanes, (operands[-1] if same else 0, same))
            case Kind.MMA:
                found = mma(operands[0], data)
            case Kind.LOAD_MATRIX:
                found = load_matrices(operands[0], {n: e[2][1] for n, e in events.items()}, lambda a, n: memory.read(line, "shared", a, n))
            case _:
                rows = store_matrices(operands[0], {n: e[2][1] for n, e in events.items()}, data)
                for address, row in rows or ():
                    memory.write(line, "shared", address, row)
                found = None if rows is None else dict.fromkeys(lanes, ())
        if found is None:
            raise self._unknown(line)
        return found

    def _unknown(self, line: int) -> PtxError:
        return PtxError(line, f"{'.'.join(self._code[line].opcode)}: what it does is not known")

    def _wgmma(self, thread: PtxThread, event: ThreadEvent) -> Reply | None:
        line, kind, _, _ = event
        first = thread.number // WARPGROUP * WARPGROUP
        waiting = thread.block.products.setdefault((first, kind), {})
        waiting[thread.number - first] = thread, event
        if len(waiting) < WARPGROUP:
            return None
        del thread.block.products[first, kind]
        words, count, *operands = event[2]
        by_registers = operands[0] == -1
        sums = {k: e[3][:count] for k, (_, e) in waiting.items()}
        left = {k: e[3][count:] for k, (_, e) in waiting.items()} if by_registers else None
        found = wgmma(words, operands, sums, left, lambda a, n: thread.storage.read(line, "shared", a, n))
        if found is None or any(e[2] != event[2] for _, e in waiting.values()):
            raise self._unknown(line)
        self._wake((t, found[k]) for k, (t, _) in waiting.items() if t is not thread)
        return found[thread.number - first]

    # -- barriers -----------------------------------------------------------------------------------------------------------------------

    def _barrier(self, thread: PtxThread, event: ThreadEvent) -> Reply | None:
        number, count = event[2]
        waiting = thread.block.barriers.setdefault(number, [])
        waiting.append(thread)
        if len(waiting) < count:
            return None
        del thread.block.barriers[number]
        self._random.shuffle(waiting)
        self._wake((t, ()) for t in waiting if t is not thread)
        return ()

    def _cluster_arrive(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        cluster = thread.block.cluster
        cluster.arrived += 1
        thread.cluster_phase = cluster.phase + 1
        if cluster.arrived == cluster.threads:
            cluster.arrived = 0
            cluster.phase += 1
            self._wake((t, ()) for t in cluster.waiting)
            cluster.waiting.clear()
        return ()

    def _cluster_wait(self, thread: PtxThread, event: ThreadEvent) -> Reply | None:
        cluster = thread.block.cluster
        if 0 < thread.cluster_phase <= cluster.phase:
            return ()
        cluster.waiting.append(thread)
        return None

    def _mbarrier(self, thread: PtxThread, event: ThreadEvent, address: int) -> PtxMbarrier:
        block = thread.block if address < RANK else thread.block.cluster.blocks[address // RANK - 1]
        found = block.mbarriers.get(address % RANK)
        if found is None:
            raise PtxError(event[0], f"no mbarrier was initialized at {address:#x}")
        return found

    def _init(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        address, count = event[2]
        thread.storage.place(event[0], "shared", address, 8)
        thread.block.mbarriers[address] = PtxMbarrier(count, count)
        return ()

    def _arrived(self, barrier: PtxMbarrier, event: ThreadEvent, count: int, moved: int = 0) -> None:
        """Arrivals, and bytes that have been moved; negative: that are expected."""
        barrier.missing -= count
        barrier.bytes -= moved
        if barrier.missing < 0:
            raise PtxError(event[0], "more arrivals at an mbarrier than it counts")
        if barrier.missing == 0 and barrier.bytes == 0:
            barrier.missing = barrier.count
            barrier.phase += 1
            done = [(t, parity) for t, parity in barrier.waiting if (barrier.phase ^ parity) & 1]
            barrier.waiting = [w for w in barrier.waiting if w not in done]
            self._wake((t, (1,)) for t, _ in done)

    def _arrive(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        _, address, count = event[2]
        self._arrived(self._mbarrier(thread, event, address), event, count)
        return (0,)

    def _expect(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        _, address, count = event[2]
        self._arrived(self._mbarrier(thread, event, address), event, 1, -count)
        return (0,)

    def _wait(self, thread: PtxThread, event: ThreadEvent) -> Reply | None:
        _, address, parity = event[2]
        barrier = self._mbarrier(thread, event, address)
        if (barrier.phase ^ parity) & 1:  # the phase of this parity is not the current one
            return (1,)
        barrier.waiting.append((thread, parity))
        return None

    # -- counters and updates -----------------------------------------------------------------------------------------------------------

    def _changed(self, place: tuple[int, int]) -> None:
        """Go on with threads that wait for another value of a counter."""
        for thread in self._counting.pop(place, []):
            assert thread.doing is not None
            self._wake([(thread, self._read_counter(thread, thread.doing))])

    def _read_counter(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        space, size = _COUNTERS[event[2][0]]
        thread.counter = thread.storage.load(event[0], space, event[2][1], size)
        return (thread.counter,)

    def _acquire(self, thread: PtxThread, event: ThreadEvent, again: bool) -> Reply | None:
        """A read of a counter. One that has been read before, and has not changed, is read again when it has."""
        if event[2][0] not in _COUNTERS:
            raise self._unknown(event[0])
        space, size = _COUNTERS[event[2][0]]
        address = event[2][1]
        if again and thread.counter == thread.storage.load(event[0], space, address, size):
            self._counting.setdefault(_key(thread, event, space, size), []).append(thread)
            return None
        return self._read_counter(thread, event)

    def _publish(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        line, _, (words, address), (value,) = event
        if words not in _COUNTERS:
            raise self._unknown(line)
        space, size = _COUNTERS[words]
        thread.storage.store(line, space, address, size, value & (1 << 8 * size) - 1)
        self._changed(_key(thread, event, space, size))
        return ()

    def _exchange(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        line, _, (words, address, expected), (value,) = event
        if words != "acq_rel.cta.shared::cta.cas.b32":
            raise self._unknown(line)
        before = thread.storage.load(line, "shared", address, 4)
        if before == expected:
            thread.storage.store(line, "shared", address, 4, value & 0xFFFFFFFF)
            self._changed(_key(thread, event, "shared", 4))
        return (before,)

    def _add(self, thread: PtxThread, event: ThreadEvent) -> int:
        line, _, (_, address, amount), _ = event
        before = thread.storage.load(line, "global", address, 8)
        thread.storage.store(line, "global", address, 8, before + amount & (1 << 64) - 1)
        self._changed(_key(thread, event, "global", 8))
        return before

    def _release(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        if event[2][0] != "release.gpu.global.add.u64":
            raise self._unknown(event[0])
        self._add(thread, event)
        return ()

    def _count(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        if event[2][0] != "global.add.u64":
            raise self._unknown(event[0])
        return (self._add(thread, event),)

    def _update(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        line, _, (function, _, address), data = event
        kind = self._code[line].opcode[-1]
        size = SIZES[kind] if kind in SIZES else FORMATS[kind.removesuffix("x2")].bits // 8 * (2 if kind.endswith("x2") else 1)
        combine = self._combination(line, function, kind)
        for k, value in enumerate(data):
            before = thread.storage.load(line, "global", address + k * size, size)
            thread.storage.store(line, "global", address + k * size, size, combine(before, value & (1 << 8 * size) - 1))
        return ()

    def _combination(self, line: int, function: str, kind: str) -> Callable[[int, int], int]:
        """The function of an update. Of f32 in Global memory, ``add`` flushes subnormal numbers (PTX ISA, "red")."""
        if kind.removesuffix("x2") in FORMATS:
            found = meaning((function, *(("ftz",) if kind == "f32" and function == "add" else ()), kind))
        elif kind in SIZES:
            found = _on_integers(function, kind)
        else:
            found = None
        if found is None:
            raise self._unknown(line)
        return found

    # -- copies -------------------------------------------------------------------------------------------------------------------------

    def _copy(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        line, _, (to, source, size, used), _ = event
        content = thread.storage.read(line, "global", source, used) if used else b""
        if to % size or (used and source % size) or used > size:
            raise PtxError(line, f"a copy of {size} bytes from {source:#x} to {to:#x}, which is not aligned")
        thread.storage.write(line, "shared", to, content + bytes(size - used))
        return ()

    def _copy_arrive(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        words, address = event[2]
        if words != "noinc.shared":
            raise self._unknown(event[0])
        self._arrived(self._mbarrier(thread, event, address), event, 1)
        return ()

    def _map(self, event: ThreadEvent, address: int) -> TensorMap:
        found = self._maps.get(address)
        if found is None:
            raise PtxError(event[0], f"no tensor map is at {address:#x}")
        return found

    def _load_box(self, thread: PtxThread, event: ThreadEvent, to: int, box: TensorMap, barrier: int, coordinates: Sequence[int]) -> None:
        if to % 128:
            raise PtxError(event[0], f"a bulk copy to {to:#x}, which is no multiple of 128")
        line = event[0]
        for address, content in loaded(box, to, _signed(coordinates), lambda source: thread.storage.read(line, "global", source, box.size)):
            thread.storage.write(line, "shared", address, content)
        self._arrived(self._mbarrier(thread, event, barrier), event, 0, box.bytes)

    def _bulk_load(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        to, where, barrier, *coordinates = event[2]
        self._load_box(thread, event, to, self._map(event, where), barrier, coordinates)
        return ()

    def _multicast(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        to, where, barrier, mask, *coordinates = event[2]
        for rank in range(len(thread.block.cluster.blocks)):
            if mask >> rank & 1:
                offset = (rank + 1) * RANK
                self._load_box(thread, event, to % RANK + offset, self._map(event, where), barrier % RANK + offset, coordinates)
        return ()

    def _bulk_store(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        line, _, (where, source, *coordinates), _ = event
        box = self._map(event, where)
        for address, place in box.elements(source, _signed(coordinates)):
            if place is not None:
                thread.storage.write(line, "global", place, thread.storage.read(line, "shared", address, box.size))
        return ()

    def _bulk_update(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        line, _, (function, where, source, *coordinates), _ = event
        box = self._map(event, where)
        combine = self._combination(line, function, box.kind)
        for address, place in box.elements(source, _signed(coordinates)):
            if place is not None:
                before, value = thread.storage.load(line, "global", place, box.size), thread.storage.load(line, "shared", address, box.size)
                thread.storage.store(line, "global", place, box.size, combine(before, value))
        return ()


def _key(thread: PtxThread, event: ThreadEvent, space: str, size: int) -> tuple[int, int]:
    """The place of a counter in all memory."""
    memory, at = thread.storage.place(event[0], space, event[2][1], size)
    return id(memory), at


def _nothing(thread: PtxThread, event: ThreadEvent) -> Reply:
    return ()


def _signed(words: Sequence[int]) -> list[int]:
    return [(w ^ 1 << 31) - (1 << 31) for w in words]


def _shuffled(lane: int, events: Mapping[int, Any], mode: str, distance: int, clamp: int) -> Reply:
    """The value of another lane, and whether there is one in the segment (PTX ISA, "shfl.sync"); of a lane that does not take part, all bits are 1."""
    segment, most = clamp >> 8 & 31, clamp & 31
    low, high = lane & segment, (lane & segment) | (most & ~segment)
    match mode:
        case "up":
            source = lane - distance
            inside = source >= high
        case "down":
            source = lane + distance
            inside = source <= high
        case "bfly":
            source = lane ^ distance
            inside = source <= high
        case _:
            source = low | distance & 31 & ~segment
            inside = source <= high
    source = source if inside else lane
    return (events[source][3][0] if source in events else 0xFFFFFFFF), int(inside)


def _on_integers(function: str, kind: str) -> Callable[[int, int], int] | None:
    bits = 8 * SIZES[kind]
    mask, half = (1 << bits) - 1, 1 << bits - 1

    def order(x: int) -> int:
        return (x ^ half) - half if kind[0] == "s" else x

    match function:
        case "add":
            return lambda a, b: a + b & mask
        case "and":
            return lambda a, b: a & b
        case "or":
            return lambda a, b: a | b
        case "xor":
            return lambda a, b: a ^ b
        case "min":
            return lambda a, b: min(a, b, key=order)
        case "max":
            return lambda a, b: max(a, b, key=order)
        case _:
            return None
