"""The gain of joining fusions into one kernel: a model of the GPU's multiprocessors as they fill with blocks.

Alone, each kernel pays for its launch, and its last wave leaves multiprocessors idle. Side by side there is one launch, and the next member's blocks fill
the wave; but every block has the threads, registers and Shared memory of the largest member, so fewer are
resident. A wave takes the time of its bytes from DRAM, or of its operations, at the rate of as many threads as are resident and at work: a
multiprocessor needs a number of them to reach its bandwidth (Little's law).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from taskfuse.count.launch import SPARE_REGISTERS
from taskfuse.cuda.resources import occupancy
from taskfuse.ir.expr import MathExpr, reads
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Const, Expr, const, evaluate
from taskfuse.ir.storage import has_code
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import Buffer, Dim3
from taskfuse.lowering import lower
from taskfuse.reports.resources import Resources
from taskfuse.schedulers.schedule import Block
from taskfuse.target import MAX_THREADS, Target, launch_registers


@dataclass(frozen=True, slots=True)
class Load:
    """The resources and the work of a kernel.

    Attributes:
        grid: blocks (x, y, z).
        block: threads of a block (x, y, z).
        registers, shared: registers of a thread, estimated; bytes of a block's Shared memory.
        bytes: that it reads and writes, each input and output once.
        cycles: that its operations take one multiprocessor.
        residents: blocks of a multiprocessor that the registers of a thread have to allow (:meth:`taskfuse.Fusion.resident_blocks`).
        target: the GPU.
        is_cooperative: its blocks wait for one another.
    """

    name: str
    grid: Block
    block: Block
    registers: int
    shared: int
    bytes: float
    cycles: float
    target: Target
    residents: int = 1
    is_cooperative: bool = False

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return prod(self.grid)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(self.block)

    def resident(self) -> int:
        """Blocks of this kernel on one multiprocessor; at least 1, as one that fits not even once does not launch."""
        registers = min(self.registers, launch_registers(self.threads * self.residents))
        return max(1, occupancy(Resources(registers, 0, 0, 0, 0, 0), self.threads, self.shared, self.target.arch))


@dataclass(frozen=True, slots=True)
class HorizontalCost:
    """The expected cost of a horizontal fusion.

    Attributes:
        members: the fusions, as members of the joint kernel.
        joint: the joint kernel.
        alone: microseconds of each with the schedule that it would have alone, its launch included.
        together: microseconds of the joint kernel.
    """

    members: tuple[Load, ...]
    joint: Load
    alone: tuple[float, ...]
    together: float

    @property
    def us(self) -> float:
        """Microseconds saved; negative for a loss."""
        return sum(self.alone) - self.together

    @property
    def spilled(self) -> tuple[Load, ...]:
        """Members that spill registers in the joint kernel only, because its blocks have more threads."""
        return tuple(m for m in self.members if launch_registers(self.joint.threads) < m.registers <= launch_registers(m.threads))

    @property
    def pays(self) -> bool:
        """True if the joint kernel launches, saves time, and makes no member spill."""
        return self.us > 0 and not self.spilled and not self.obstacles

    @property
    def obstacles(self) -> tuple[str, ...]:
        """The reasons why a GPU would not launch the joint kernel."""
        joint = self.joint
        found: list[str] = []
        if joint.threads > MAX_THREADS:
            found.append(f"blocks of {' x '.join(map(str, joint.block))} threads: at most {MAX_THREADS} are possible")
        room = joint.target.sms * min(joint.residents, joint.resident())
        if joint.is_cooperative and joint.blocks > room:
            waiting = ", ".join(m.name for m in self.members if m.is_cooperative)
            found.append(f"blocks of {waiting} wait for one another, so that all {joint.blocks} have to be resident at once: {room} are sure to be")
        return tuple(found)

    def explain(self) -> str:
        """A line per member, then both totals."""
        joint = self.joint
        width = max(len(m.name) for m in (*self.members, joint))
        lines = [f"{'':{width}}  blocks  threads  registers  Shared  per SM       MB       us"]
        lines += [
            f"{m.name:{width}}  {m.blocks:6}  {m.threads:7}  {m.registers:9}  {m.shared:6}  {m.resident():6}  {m.bytes / 1e6:7.2f}  {us:7.2f}"
            for m, us in zip((*self.members, joint), (*self.alone, self.together), strict=True)
        ]
        verdict = f"{abs(self.us):.1f} us {'saved' if self.us > 0 else 'lost'}"
        lines.append(f"one after another {sum(self.alone):.1f} us, launches included, side by side {self.together:.1f} us: {verdict}")
        registers = launch_registers(joint.threads)
        lines += self.obstacles
        lines += [f"{m.name} would spill: a thread of a block of {joint.threads} has at most {registers} registers" for m in self.spilled]
        return "\n".join(lines)


def horizontal_cost(name: str, loads: Sequence[Load], alone: Sequence[Load]) -> HorizontalCost:
    """The estimate for a kernel of that name.

    Args:
        loads: what the members ask for side by side.
        alone: what they would ask for alone.
    """
    joint = _joint(name, loads)
    apart = tuple(m.target.kernel_us(duration([m], m.resident())) for m in alone)
    return HorizontalCost(tuple(loads), joint, apart, joint.target.kernel_us(duration(loads, joint.resident())))


def load(name: str, fusion: Fusion, sizes: Mapping[str, int], target: Target) -> Load:
    """What the kernel of ``fusion`` asks for, at the given values of all its dimensions. Raises what :func:`taskfuse.lower` raises."""
    kernel = lower(fusion)

    def number(e: Expr) -> int:
        return int(evaluate(e, sizes))

    def numbers(shape: Dim3) -> Block:
        x, y, z = map(number, shape)
        return x, y, z

    transferred = sum(prod(map(number, tv.shape)) * tv.dtype.itemsize for tv in (*fusion.inputs, *fusion.outputs))
    shared = [number(b.offset + _elements(b) * b.dtype.itemsize) for b in kernel.buffers if MEDIA[b.memory].is_placed and b.offset is not None]
    return Load(
        name,
        numbers(kernel.grid),
        numbers(kernel.block),
        _registers(kernel),
        max(shared, default=0),
        transferred,
        sum(prod(number(a.extent) for a in e.output.root) / _rate(e, target) for e in fusion.exprs() if has_code(fusion, e)),
        target,
        kernel.residents,
        kernel.is_cooperative,
    )


def duration(loads: Sequence[Load], resident: int) -> float:
    """Microseconds of blocks that start in the order of ``loads``, at most ``resident`` on each multiprocessor, in waves."""
    capacity = loads[0].target.sms * resident if loads else 0
    us, room = 0.0, capacity
    wave: list[tuple[Load, int]] = []
    for m in loads:
        left = m.blocks
        if not wave and left >= capacity:
            us += left // capacity * _wave([(m, capacity)])
            left %= capacity
        while left:
            taken = min(left, room)
            wave.append((m, taken))
            left, room = left - taken, room - taken
            if not room:
                us += _wave(wave)
                wave, room = [], capacity
                us += left // capacity * _wave([(m, capacity)])
                left %= capacity
    return us + _wave(wave)


def _wave(parts: Sequence[tuple[Load, int]]) -> float:
    """Microseconds of blocks that run at once: some of each member."""
    blocks = sum(n for _, n in parts)
    if not blocks:
        return 0.0
    target = parts[0][0].target
    transfer = target.dram_us(sum(n * m.bytes / m.blocks for m, n in parts), target.fill(sum(n * m.threads for m, n in parts)))
    compute = sum(n * m.cycles / m.blocks for m, n in parts) / (target.clock_mhz * min(target.sms, blocks))
    return max(transfer, compute)


def _joint(name: str, loads: Sequence[Load]) -> Load:
    """The kernel that has all of them side by side. It has as many resident blocks as leave every member the registers that it has alone."""
    block = max(m.block[0] for m in loads), max(m.block[1] for m in loads), max(m.block[2] for m in loads)
    grid = sum(m.grid[0] for m in loads), max(m.grid[1] for m in loads), max(m.grid[2] for m in loads)
    residents = min(m.threads * m.residents for m in loads) // prod(block)
    return Load(
        name,
        grid,
        block,
        max(m.registers for m in loads),
        max(m.shared for m in loads),
        sum(m.bytes for m in loads),
        sum(m.cycles for m in loads),
        loads[0].target,
        max(1, residents),
        any(m.is_cooperative for m in loads),
    )


def _registers(kernel: Kernel) -> int:
    """Registers of a thread, estimated: those that hold the largest Local tensor, and :data:`SPARE_REGISTERS`."""
    words = (-(-size.value * b.dtype.bits // 32) for b in kernel.buffers if not MEDIA[b.memory].has_addresses and isinstance(size := _elements(b), Const))
    return min(SPARE_REGISTERS + max(words, default=0), launch_registers(1))


def _elements(b: Buffer) -> Expr:
    return prod(b.shape, start=const(1))


def _rate(expr: MathExpr, target: Target) -> float:
    """Points of an expression's iteration space that a multiprocessor does in a cycle."""
    atom = expr.output.schedule.atom
    if atom is None or atom.contraction is None:
        return target.lanes
    return target.products_per_cycle(reads(expr)[0].tensor.dtype.itemsize)
