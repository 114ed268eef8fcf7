"""The work of a launch in numbers, and the time that follows from the figures of a target.

Each resource would take some time alone: DRAM, L2 cache, the units of a multiprocessor. They work in parallel, but none of them all the time while another
one is as busy: the launch takes a norm of these times, or as long as the longest chain of dependent loads and barriers of a thread, once for each block that
follows another one on its place, which begins with loads of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from taskfuse.count.launch import Launch
from taskfuse.target import SECTOR_BYTES, WARP, Target

IN_FLIGHT: Final = 4
"""Trips of a loop whose loads the compiler issues together if no statement prevents it."""
CHAINS: Final = "chains of one thread"
"""Of the times of a launch, that which is no resource's."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of one tensor, or one workspace buffer.

    Attributes:
        bytes: its size.
        asked: bytes that threads load or store.
        moved: bytes that pass through the L2 cache: whole sectors of 32.
        fetched: bytes from or to DRAM.
    """

    bytes: float
    asked: float
    moved: float
    fetched: float


@dataclass(frozen=True, slots=True)
class Count:
    """The counted work of a launch.

    Attributes:
        launch: its shape.
        steps: loop trips of the busiest thread, one after another.
        idle_threads: the share of threads that write nothing.
        idle_blocks: the share of blocks in which no thread writes.
        reads, writes: traffic of Global memory, by name.
        instructions: instructions of warps, of all threads together.
        lookups: cycles of multiprocessors for cache lookups of Global memory and accesses of Shared memory.
        products: cycles of multiprocessors in which tensor cores multiply.
        chain: cycles that the longest thread of a block waits for loads, barriers and results.
        target: the GPU whose figures are used.
    """

    launch: Launch
    steps: float
    idle_threads: float
    idle_blocks: float
    reads: Mapping[str, Traffic]
    writes: Mapping[str, Traffic]
    instructions: float
    lookups: float
    products: float
    chain: float
    target: Target

    @property
    def fetched(self) -> float:
        """Bytes from and to DRAM."""
        return sum(t.fetched for t in (*self.reads.values(), *self.writes.values()))

    @property
    def moved(self) -> float:
        """Bytes through the L2 cache."""
        return sum(t.moved for t in (*self.reads.values(), *self.writes.values()))

    @property
    def coalesced(self) -> float:
        """The share of the moved bytes that threads asked for: 1 if the lanes of a warp access neighbors, 1/8 if each float32 has its own sector."""
        asked = sum(t.asked for t in (*self.reads.values(), *self.writes.values()))
        return min(1.0, asked / self.moved) if self.moved else 1.0

    @property
    def times(self) -> dict[str, float]:
        """Microseconds of each resource."""
        target, launch = self.target, self.launch
        share = -(-launch.blocks // target.sms) / launch.blocks / target.clock_mhz  # of what all blocks do, on the multiprocessor that does most
        waves = max(1.0, launch.blocks / (target.sms * launch.resident))
        return {
            "memory": target.dram_us(self.fetched),
            "L2 cache": self.moved / target.l2_bytes_per_cycle * share,
            "instructions": self.instructions * WARP / target.lanes * share,
            "lookups": self.lookups * share,
            "tensor cores": self.products * share,
            CHAINS: (self.chain * waves + target.assumed.block_cycles * (waves - 1)) / target.clock_mhz,
        }

    @property
    def us(self) -> float:
        """Microseconds of the launch."""
        times = self.times
        waited, power = times.pop(CHAINS), self.target.assumed.resources_norm
        return self.target.kernel_us(float(sum(t**power for t in times.values()) ** (1 / power)), waited)

    def __str__(self) -> str:
        launch = self.launch
        what, us = max(self.times.items(), key=lambda item: item[1])
        said = [f"{self.us:.1f} us ({what} {us:.1f})", f"{launch.blocks} blocks of {launch.threads} threads, {launch.resident} at once"]
        said += [f"{self.fetched / 1e6:.1f} MB of memory, {self.coalesced:.0%} of the sectors of {SECTOR_BYTES} bytes used", f"{self.steps:.0f} serial steps"]
        said += [f"{self.idle_threads:.0%} of the threads store nothing"] * (self.idle_threads >= 0.005)
        said += [f"{self.idle_blocks:.0%} of the blocks store nothing"] * (self.idle_blocks >= 0.005)
        return ", ".join(said)
