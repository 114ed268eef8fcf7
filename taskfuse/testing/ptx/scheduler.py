"""Threads that run side by side, and what their events do: barriers, exchanges in a warp, mbarriers, counters, copies, tensor cores.

One thread runs until it must wait. Copies and products are done when they are issued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from taskfuse.target import WARP
from taskfuse.testing.ptx.bulk import TensorMap, loaded
from taskfuse.testing.ptx.events import RANK, Kind
from taskfuse.testing.ptx.lanes import answers
from taskfuse.testing.ptx.machine import ThreadEvent, TooLong
from taskfuse.testing.ptx.matrices import wgmma
from taskfuse.testing.ptx.nodes import PtxError, PtxInstruction
from taskfuse.testing.ptx.threads import PtxMbarrier, PtxThread, PtxWarp, Reply
from taskfuse.testing.ptx.updates import combination, size_of

WARPGROUP = 4 * WARP
_ALL = (1 << WARP) - 1
_COUNTERS = {"gpu.global.u64": ("global", 8), "cta.shared::cta.s32": ("shared", 4)}
"""Space and bytes of what is read by an acquire, or written by a release, by the words of the instruction."""


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
            **dict.fromkeys((Kind.SHUFFLE, Kind.FROM_ABOVE, Kind.AGREED, Kind.MATCH, Kind.BALLOT, Kind.WARP_BARRIER), self._in_warp),
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
        first = next(iter(events))
        replies = answers(kind, events, threads[first].storage)
        if replies is None:
            raise self._unknown(events[first][0])
        self._wake((t, replies[lane]) for lane, t in threads.items() if t is not last)
        return replies[last.lane] if last is not None else None

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

    def _init(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        address, count = event[2]
        thread.storage.place(event[0], "shared", address, 8)
        thread.block.mbarriers[address] = PtxMbarrier(count, count)
        return ()

    def _arrived(self, barrier: PtxMbarrier, line: int, count: int, moved: int = 0) -> None:
        self._wake((t, (1,)) for t in barrier.arrive(line, count, moved))

    def _arrive(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        _, address, count = event[2]
        self._arrived(thread.mbarrier(event[0], address), event[0], count)
        return (0,)

    def _expect(self, thread: PtxThread, event: ThreadEvent) -> Reply:
        _, address, count = event[2]
        self._arrived(thread.mbarrier(event[0], address), event[0], 1, -count)
        return (0,)

    def _wait(self, thread: PtxThread, event: ThreadEvent) -> Reply | None:
        _, address, parity = event[2]
        barrier = thread.mbarrier(event[0], address)
        if barrier.has_ended(parity):
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
        size, combine = size_of(kind), self._combination(line, function, kind)
        for k, value in enumerate(data):
            before = thread.storage.load(line, "global", address + k * size, size)
            thread.storage.store(line, "global", address + k * size, size, combine(before, value & (1 << 8 * size) - 1))
        return ()

    def _combination(self, line: int, function: str, kind: str) -> Callable[[int, int], int]:
        found = combination(function, kind)
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
        self._arrived(thread.mbarrier(event[0], address), event[0], 1)
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
        self._arrived(thread.mbarrier(line, barrier), line, 0, box.bytes)

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
