"""A launch, thread by thread.

Threads are independent: warps are not in lock step, except at instructions that whole warps execute. A run follows one order of the
threads. It finds errors in *any* order with the same synchronization, since vector clocks record which events are ordered, not which came first.
"""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from taskfuse.ir.shared_layouts import Major
from taskfuse.ir.types import INDEX_TYPES
from taskfuse.kir.clusters import peers
from taskfuse.target import launch_registers
from taskfuse.testing.machine.barriers import MachineBarriers
from taskfuse.testing.machine.engines import Box, MachineEngines, MachineRegisters, MachineTile, WgmmaFactors
from taskfuse.testing.machine.fault import FaultFound, FaultKind, OutOfSteps
from taskfuse.testing.machine.launch import BLOCK_BYTES, MachineLaunch
from taskfuse.testing.machine.memory import MachineMemory
from taskfuse.testing.machine.python_kernel import PythonKernel
from taskfuse.testing.machine.threads import MachineThreads
from taskfuse.testing.machine.writer import entry

ROW_BYTES = 16
MOST_STEPS = 200_000


def _lane(t: int, m: SecondMachine) -> int:
    return t % m.launch.threads % 32


class Order(Enum):
    """The order of threads, and the completion of engines: early, late or random."""

    RANDOM = "random"
    FIRST = "first"
    LAST = "last"


@dataclass(slots=True)
class Comers:
    """Threads that wait for the rest of their warp or warpgroup at one statement, each with its operands."""

    brought: dict[int, Any] = field(default_factory=dict[int, Any])


class SecondMachine:
    """One run of a launch."""

    def __init__(self, compiled: PythonKernel, launch: MachineLaunch, order: Order, seed: int, most_steps: int = MOST_STEPS) -> None:
        self.launch, self.order, self.most_steps = launch, order, most_steps
        self.chance = random.Random(seed)
        self.fine = order is Order.RANDOM
        blocks, per_block = launch.blocks, launch.threads
        self.threads = MachineThreads(blocks * per_block, blocks * launch.slot_count, clusters=max(launch.cluster) > 1)
        self.ready: list[int] = []
        self.pending: list[Callable[[], None]] = []
        self.barriers = MachineBarriers(self.threads, blocks, per_block, launch.slot_count, self.wake)
        self.memory = MachineMemory(self.threads)
        self.engines = MachineEngines(self.threads, self.memory, self.barriers, compiled.shared_cell, compiled.global_cell, self.later)
        self.comers: dict[tuple[int, int, int, int], Comers] = {}
        self.aligned: dict[tuple[int, int, int], Counter[int]] = {}
        self.at: dict[int, int] = {}
        self.steps = 0
        self.claims: dict[tuple[str, int], list[int]] = {}
        self.budgets: dict[int, int] = {}
        self.pool: dict[int, int] = {}
        self.remote: list[tuple[int, int, int, int]] = []
        self.asking: dict[int, list[tuple[int, list[int], int, int]]] = {}
        self.compiled = compiled
        self._start()

    def _start(self) -> None:
        launch, compiled = self.launch, self.compiled
        scope: dict[str, Any] = {
            "Tile": MachineTile,
            "Registers": MachineRegisters,
            "Product": WgmmaFactors,
            "Major": Major,
            "places": launch.places,
            "entry": entry,
            "t_lane": _lane,
        }
        for symbol, name in compiled.symbols.items():
            if symbol in launch.values:
                scope[name] = launch.values[symbol]
        for number, place in enumerate(launch.places.values()):
            scope[f"B{number}"] = place.base
            for axis, extent in enumerate(place.shape):
                scope[f"E{number}_{axis}"] = extent
        exec(compiled.code, scope)
        make = scope["thread"]
        (dx, dy, _), (gx, gy, _), (cx, cy, cz) = launch.block, launch.grid, launch.cluster
        self.places: list[tuple[int, int, int]] = []
        of_cluster: dict[tuple[int, int, int], dict[int, int]] = {}
        self.running: list[Generator[None] | None] = []
        for b in range(launch.blocks):
            bx, by, bz = b % gx, b // gx % gy, b // (gx * gy)
            here = bx % cx, by % cy, bz % cz
            self.places.append(here)
            rank = here[0] + cx * (here[1] + cy * here[2])
            of_cluster.setdefault((bx // cx, by // cy, bz // cz), {})[rank] = b
            for k in range(launch.threads):
                given = bx, by, bz, *here, k % dx, k // dx % dy, k // (dx * dy)
                assert len(given) == len(INDEX_TYPES)
                t = b * launch.threads + k
                self.running.append(make(self, t, b, b * BLOCK_BYTES, b * launch.slot_count, *given))
        self.clusters = {b: ranks for ranks in of_cluster.values() for b in ranks.values()}

    # -- the run ------------------------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the launch to its end.

        Raises:
            FaultFound: a statement is faulty.
            OutOfSteps: the run exceeds the limit of steps.
        """
        self.ready = [*range(self.threads.count)]
        while True:
            if not self.ready:
                if self.pending:
                    self.pending.pop()()
                    continue
                break
            if self.pending and self.order is Order.RANDOM and self.chance.random() < 0.2:
                self.pending.pop(int(self.chance.random() * len(self.pending)))()
            self._go_on(self._pick())
        self._ends()

    def _pick(self) -> int:
        ready = self.ready
        match self.order:
            case Order.FIRST:
                return ready.pop(0)
            case Order.LAST:
                return ready.pop()
            case Order.RANDOM:
                k = int(self.chance.random() * len(ready))
                ready[k], ready[-1] = ready[-1], ready[k]
                return ready.pop()

    def _go_on(self, t: int) -> None:
        thread = self.running[t]
        assert thread is not None
        try:
            next(thread)
        except StopIteration:
            self.running[t] = None
            self.engines.exits(t, -1)
            self.barriers.exits(t)
        except (ZeroDivisionError, LookupError) as error:
            frames = traceback.extract_tb(error.__traceback__)
            line = next((f.lineno for f in reversed(frames) if f.filename == "<kernel>"), None)
            if line is None:
                raise
            raise FaultFound(FaultKind.VALUE, str(error), t, self.compiled.lines[line - 1]) from error

    def _ends(self) -> None:
        left = [t for t, thread in enumerate(self.running) if thread is not None]
        for (_, _, _, site), comers in self.comers.items():
            t = next(iter(comers.brought))
            raise FaultFound(FaultKind.PARTIAL, f"{len(comers.brought)} threads are here, and the rest of their warps never comes", t, site)
        if left:
            site = next((g.here[t] for t in left for g in self.barriers.gatherings.values() if t in g.here), -1)
            raise FaultFound(FaultKind.DEADLOCK, f"{len(left)} threads wait for ever", left[0], site)
        for (block, group, site), warps in self.aligned.items():
            if {warps[4 * group + k] for k in range(4)} != {warps[4 * group]}:
                t = block * self.launch.threads + 32 * next(iter(warps))
                raise FaultFound(FaultKind.PARTIAL, "some warps of a warpgroup execute this, and others do not, or less often", t, site)
        for b in range(self.launch.blocks):
            members = range(b * self.launch.threads, (b + 1) * self.launch.threads)
            clock = self.threads.clock(members)
            self.engines.ends(b, clock)
            for there, t, epoch, site in self.remote:
                if there == b and clock.known[self.threads.count + t] < epoch:
                    raise FaultFound(FaultKind.LIFE, "nothing orders this access and the exit of the block that it reaches", t, site)

    def wake(self, threads: Sequence[int]) -> None:
        """Make threads ready."""
        self.ready += threads

    def pauses(self, t: int, often: float = 0.3) -> bool:
        """True if other threads run before this one goes on."""
        if self.chance.random() < often:
            self.ready.append(t)
            return True
        return False

    def later(self, action: Callable[[], None]) -> None:
        """Schedule a step of an engine for any time from now on."""
        if self.order is Order.FIRST:
            action()
        else:
            self.pending.append(action)

    def claimed(self, queue: str, block: int, position: int) -> int:
        """A block's claims from a queue, one number after another, in the order of arrival."""
        mine = self.claims.setdefault((queue, block), [])
        while len(mine) <= position:
            mine.append(sum(len(numbers) for (name, _), numbers in self.claims.items() if name == queue))
        return mine[position]

    def step(self) -> None:
        """An iteration of a loop."""
        self.steps += 1
        if self.steps > self.most_steps:
            raise OutOfSteps("too long")

    def anything(self, extent: int) -> int:
        """An index that is data: in bounds or not."""
        return self.chance.randint(-1, extent)

    # -- what threads may not do ----------------------------------------------------------------------------------------------------------

    def outside(self, t: int, site: int, name: str, axis: int, i: int, extent: int) -> None:
        """An index is out of bounds."""
        raise FaultFound(FaultKind.BOUNDS, f"index {i} of axis {axis} of '{name}', whose extent is {extent}", t, site)

    def misaligned(self, t: int, site: int, address: int, size: int) -> None:
        """An address is not a multiple of the instruction's alignment."""
        raise FaultFound(FaultKind.ALIGNMENT, f"byte {address % BLOCK_BYTES}, which is not a multiple of {size}", t, site)

    def positive(self, t: int, site: int, count: int) -> int:
        """A count of threads."""
        if count < 1:
            raise FaultFound(FaultKind.COUNT, f"a barrier of {count} threads", t, site)
        return count

    def endless(self, t: int, site: int, step: int) -> None:
        """A loop whose step does not advance."""
        raise FaultFound(FaultKind.ENDLESS, f"a step of {step}", t, site)

    # -- fences -------------------------------------------------------------------------------------------------------------------------

    def init_fence(self, t: int) -> None:
        """``fence.mbarrier_init``."""
        self.threads.own[t] += 1
        self.barriers.init_fences[t].append(self.threads.own[t])

    def proxy_fence(self, t: int, of_global: bool) -> None:
        """``fence.proxy.async``, of one of the two memories."""
        self.threads.own[t] += 1
        (self.threads.global_fences if of_global else self.threads.shared_fences)[t].append(self.threads.own[t])

    # -- clusters and copies ---------------------------------------------------------------------------------------------------------------

    def reached(self, b: int, across: tuple[str, ...]) -> list[int]:
        """Blocks that a statement of block ``b`` reaches."""
        types = tuple(p for p in INDEX_TYPES if p.value in across)
        return [self.clusters[b][rank] for rank in peers(self.places[b], self.launch.cluster, types)] if across else [b]

    def arrive_across(self, t: int, site: int, b: int, k: int, across: tuple[str, ...], *, cluster: bool) -> None:
        """Arrivals at an mbarrier of several blocks, at the scope of the ``cluster`` or the block."""
        for there in self.reached(b, across):
            self._alive(t, site, b, there)
            self.remote.append((there, t, self.threads.own[t], site))
            self.barriers.arrive(t, site, there * self.launch.slot_count + k, cluster=cluster)

    def of_rank(self, t: int, site: int, b: int, rank: int) -> int:
        """The base address of Shared memory of a block of the cluster, which a thread of block ``b`` accesses."""
        there = self.clusters[b][rank]
        if there != b:
            first = there * self.launch.threads
            if not any(self.threads.base[t].known[first : first + self.launch.threads]):
                raise FaultFound(FaultKind.LIFE, "nothing says that the block that it reaches has begun", t, site)
            self._alive(t, site, b, there)
            self.remote.append((there, t, self.threads.own[t], site))
        return there * BLOCK_BYTES

    def _alive(self, t: int, site: int, b: int, there: int) -> None:
        first = there * self.launch.threads
        if there != b and all(u in self.barriers.exited for u in range(first, first + self.launch.threads)):
            raise FaultFound(FaultKind.LIFE, "a block is reached that has exited", t, site)

    def cluster_barrier(self, t: int, site: int, b: int) -> bool:
        """``barrier.cluster``."""
        members = self.clusters[b]
        key = "everyone of a cluster", min(members.values())
        return self.barriers.barrier(key, t, site, len(members) * self.launch.threads)

    def load(self, t: int, site: int, b: int, address: int, buffer: str, name: str, coords: Sequence[int], k: int, across: tuple[str, ...]) -> None:
        """A bulk load."""
        m, tensor = self.launch.maps[name]
        reached = self.reached(b, across)
        for there in reached:
            self._alive(t, site, b, there)
        slots = [(there, there * self.launch.slot_count + k) for there in reached]
        self.engines.load(t, site, address, self.launch.places[buffer], Box(tensor, tuple(coords), m.box, m.swizzle, m.step), slots)

    def store(self, t: int, site: int, address: int, buffer: str, name: str, coords: Sequence[int], function: str | None) -> None:
        """A bulk store, or an update by a function."""
        m, tensor = self.launch.maps[name]
        self.engines.store(t, site, address, self.launch.places[buffer], Box(tensor, tuple(coords), m.box, m.swizzle, m.step), function)

    # -- whole warps ----------------------------------------------------------------------------------------------------------------------

    def _come(self, t: int, site: int, size: int, expected: int, brought: object) -> dict[int, Any] | None:
        """The threads of a warp (``size`` 32) or warpgroup (128), when ``t`` is the last of them to reach a statement."""
        block, k = divmod(t, self.launch.threads)
        key = block, size, k // size, site
        comers = self.comers.setdefault(key, Comers()).brought
        comers[t] = brought
        if len(comers) < expected:
            return None
        del self.comers[key]
        self.wake([u for u in comers if u != t])
        self.threads.pass_together([*comers])
        return comers

    def warp_comes(self, t: int, site: int, expected: int, brought: Any) -> bool:
        """An instruction of a whole warp; ``expected`` 0: all existing lanes."""
        comers = self._come(t, site, 32, expected or len(self.barriers.lanes(t)), brought)
        if comers is None:
            return True
        lanes = sorted(comers)
        if isinstance(brought, (str, int)):  # .aligned: the other warps of the group execute it, too, if not at the same time
            block, k = divmod(t, self.launch.threads)
            self.aligned.setdefault((block, k // 128, site), Counter())[k // 32] += 1
        match brought:
            case None:
                pass
            case "commit":
                self.engines.commit_wgmma(lanes)
            case "fence":
                self.engines.fence_registers(lanes)
            case int():
                self.engines.wait_for_wgmma(lanes, brought)
            case _:
                self._matrices(site, lanes, comers)
        return False

    def _matrices(self, site: int, lanes: list[int], brought: dict[int, Any]) -> None:
        _, what, count, transpose, buffer = brought[lanes[0]]
        place = self.launch.places[buffer]
        access = self.memory.read_all if what == "reads" else self.memory.write_all
        rows: list[int] = []
        for t in lanes[: 8 * count]:
            address = brought[t][0]
            offset = address % BLOCK_BYTES
            if offset % ROW_BYTES:
                self.misaligned(t, site, address, ROW_BYTES)
            if offset + ROW_BYTES > place.base + place.size:
                raise FaultFound(FaultKind.BOUNDS, f"a row of 16 bytes leaves '{buffer}'", t, site)
            rows.append(address)
        for k in range(count):
            for lane, t in enumerate(lanes):
                if transpose:
                    for row in (2 * (lane % 4), 2 * (lane % 4) + 1):
                        access(t, self.engines.shared_cells(rows[8 * k + row] + 2 * (lane // 4), 2), site)
                else:
                    access(t, self.engines.shared_cells(rows[8 * k + lane // 4] + 4 * (lane % 4), 4), site)

    def group_issues(self, t: int, site: int, product: WgmmaFactors) -> bool:
        """``wgmma.mma_async`` of a warpgroup."""
        comers = self._come(t, site, 128, 128, product)
        if comers is None:
            return True
        if any(other != product for other in comers.values()):
            raise FaultFound(FaultKind.PARTIAL, "threads of one warpgroup give different operands", t, site)
        self.engines.wgmma(site, sorted(comers), product)
        return False

    # -- registers ------------------------------------------------------------------------------------------------------------------------

    def registers(self, t: int, site: int, count: int) -> bool:
        """``setmaxnreg``: of a warpgroup, which waits until its block has enough free registers."""
        comers = self._come(t, site, 128, 128, count)
        if comers is None:
            return True
        block, k = divmod(t, self.launch.threads)
        group = block * 8 + k // 128
        launched = launch_registers(self.launch.threads * self.launch.kernel.residents)
        now = self.budgets.get(group, launched)
        increases = count > launched  # the CUDA text says so
        if (increases and count < now) or (not increases and count > now):
            raise FaultFound(FaultKind.REGISTERS, f"a budget of {now} registers is {'increased' if increases else 'decreased'} to {count}", t, site)
        needed = 128 * (count - now)
        members = [*comers]
        if needed > self.pool.get(block, 0):
            self.asking.setdefault(block, []).append((group, members, needed, count))
            for u in members:
                if u in self.ready:
                    self.ready.remove(u)
            return True
        self.budgets[group] = count
        self.pool[block] = self.pool.get(block, 0) - needed
        self._give(block)
        return False

    def _give(self, block: int) -> None:
        for asked in [*self.asking.get(block, [])]:
            group, members, needed, count = asked
            if needed <= self.pool.get(block, 0):
                self.asking[block].remove(asked)
                self.budgets[group] = count
                self.pool[block] -= needed
                self.wake(members)
