"""PTX against kernel IR, thread by thread: the actions of each thread, in order, with every integer operand and address.

Both sides run the same threads of the same launches. A difference is one of

- an event of another kind, with another operand, at another address, in another order, or one too many or too few;
- between two events that order memory, other bytes of Shared memory or workspace written than by kernel IR, or bytes read that kernel IR does not read;
- over the whole run, other bytes of a tensor argument written, or bytes read that kernel IR does not read;
- a load, as of constant memory (``.nc``), of what the kernel writes;
- an event or an access before the wait for earlier launches, or that wait missing or repeated;
- launch bounds, or an instruction that could not be parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random

from taskfuse.cuda.signature import Source
from taskfuse.ir.scalar import Const
from taskfuse.kir import Kernel
from taskfuse.kir.printer import stmt_text
from taskfuse.kir.walk import looked_up
from taskfuse.target import WARP
from taskfuse.testing.ptx.events import ANY, RANK, UNORDERED, WHOLE_WARP, Kind, Observed, PtxPlace, PtxStep, Span, WarpLanes
from taskfuse.testing.ptx.expected import ExpectedTrace, Traces
from taskfuse.testing.ptx.launch import PARAMS_AT, SHARED_AT, TENSORS_AT, WORKSPACE_AT, Int3, PtxLaunch, blocks, extents, launches, linear, threads
from taskfuse.testing.ptx.machine import PtxMachine, TooLong, machine
from taskfuse.testing.ptx.nodes import PtxError
from taskfuse.testing.ptx.text import read
from taskfuse.testing.ptx.unknown import LOCAL, SHARED, UNKNOWN, Unknown, Value


class Difference(Exception):
    """The PTX differs from kernel IR."""


@dataclass(slots=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        difference: the first one, or ``None``.
        launches, threads, steps: the number of each that was compared.
        unseen: instructions that synchronize or access memory and that no thread reached.
    """

    difference: str | None = None
    launches: int = 0
    threads: int = 0
    steps: int = 0
    unseen: tuple[str, ...] = ()


STREAM_WAIT_TARGET = 90
"""The first target whose launches overlap, so that threads wait for earlier launches."""
ALL_LANES = 2**WARP - 1
WORK, MOST = 12_000, 60_000
"""Statements and basic blocks executed in a launch after which no further thread is started: if all events have been seen, and in any case."""


def compare(kernel: Kernel, source: Source, ptx: str, sizes: Iterable[Mapping[str, int]] | None = None) -> Comparison:
    """Compare the PTX of a text with the kernel that it was printed from.

    Args:
        sizes: extents of launches, all of which are compared; ``None``: some are chosen, until threads have reached all instructions.
    """
    report = Comparison()
    seen: set[int] = set()
    places: dict[str, int] = {}
    if kernel.queues:
        report.difference = "what threads do to claim numbers of a queue is not compared"
        return report
    if any(p.lengths is not None and p.name in looked_up(kernel) for p in kernel.table_inputs):
        report.difference = "how threads add up lengths of groups is not compared"
        return report
    try:
        function = read(ptx)
        program = machine(function)
        _check_limits(kernel, function.limits)
        waits = int("".join(c for c in function.target if c.isdigit())) >= STREAM_WAIT_TARGET
        for values in extents(kernel) if sizes is None else sizes:
            launch = launches(kernel, source, function, values)
            if launch is None:
                continue
            try:
                _launch(launch, program, report, seen, {} if source.shared_bytes.free else places, waits)
            except TooLong:
                break
            if sizes is None and report.launches > 1 and seen >= program.sites.keys():
                break
        report.unseen = tuple(text for line, text in program.sites.items() if line not in seen)
    except (Difference, PtxError) as error:
        report.difference = str(error)
    return report


def _check_limits(kernel: Kernel, limits: Mapping[str, tuple[int, ...]]) -> None:
    """The launch bounds: all threads of a block, and the blocks that a multiprocessor holds."""
    x, y, z = kernel.block
    count = x * y * z
    if isinstance(count, Const) and limits.get("maxntid", ())[:1] != (max(count.value, 1),):
        raise Difference(f"launch bounds of {limits.get('maxntid')} threads, not {count}")
    if limits.get("minnctapersm") != (kernel.residents,):
        raise Difference(f"{limits.get('minnctapersm')} blocks of a multiprocessor, not {kernel.residents}")


def _launch(launch: PtxLaunch, program: PtxMachine, report: Comparison, seen: set[int], places: dict[str, int], waits: bool) -> None:
    """Compare threads of a launch, in an order that mixes them.

    Args:
        places: where arrays of mbarriers and counters lie, as far as that is known; what is found is added.
        waits: whether threads must wait for what the stream holds before.

    Raises:
        TooLong: one of them does too much.
    """
    traces = Traces(launch)
    everyone = list(product(blocks(launch.grid), threads(launch.block)))
    Random(0).shuffle(everyone)
    everyone.sort(key=lambda pair: any(pair[0]) or linear(launch.block, pair[1]) % WARP != 0)  # the first lanes of the first block, then the others
    work = 0
    for block, thread in everyone:
        try:
            follower = _Follower(traces, block, thread, places, program.constant, seen, not waits)
            work += follower.trace.work + program.run(launch.special(block, thread), launch.at, launch.read, follower)
            follower.end()
        except (Difference, PtxError) as error:
            where = f"block {block}, thread {thread}" + (f", {', '.join(f'{n} = {v}' for n, v in launch.symbols.items())}" if launch.symbols else "")
            raise Difference(f"{error}\n  {where}") from error
        report.threads += 1
        report.steps += len(follower.trace.steps)
        if work > MOST or (work > WORK and seen >= program.events):
            break
    report.launches += 1
    _apart(launch, places)


def _apart(launch: PtxLaunch, places: dict[str, int]) -> None:
    """Arrays of mbarriers lie apart from each other and from all buffers, and are aligned."""
    slots = {m.name: 8 * m.slots for m in launch.kernel.mbarriers}
    counters = [base for name, base in launch.bases.items() if name not in launch.strides and base >= WORKSPACE_AT and base < PARAMS_AT]
    found = [(base, base + slots.get(name, 8), name) for name, base in places.items()]
    buffers = [(low, low + size, name) for name, (low, size) in launch.parts.items()]
    for k, (low, high, name) in enumerate(found):
        space = (SHARED_AT, SHARED_AT + launch.shared_bytes) if name in slots else (min(counters), min(counters) + 8 * len(launch.kernel.counters))
        if low % 8 or low < space[0] or high > space[1]:
            raise Difference(f"{name} lies at {low - space[0]}: no multiple of 8, or not inside the {space[1] - space[0]} bytes that there are")
        for other_low, other_high, other in found[k + 1 :] + buffers:
            if low < other_high and other_low < high:
                raise Difference(f"{name} and {other} overlap")
    for _, high, name in buffers:
        if high > SHARED_AT + launch.shared_bytes:
            raise Difference(f"{name} ends at {high - SHARED_AT}, behind the {launch.shared_bytes} bytes of Shared memory")


@dataclass(slots=True)
class _Follower:
    """Follows a thread of the PTX along its trace by kernel IR."""

    traces: Traces
    block: Int3
    thread: Int3
    places: dict[str, int]
    constant: frozenset[int]
    seen: set[int]
    waited: bool
    trace: ExpectedTrace = field(init=False)
    at: int = 0
    stores: list[Span] = field(default_factory=list[Span])
    loads: list[Span] = field(default_factory=list[Span])
    tensor_stores: list[Span] = field(default_factory=list[Span])
    tensor_loads: list[Span] = field(default_factory=list[Span])
    is_uncertain: bool = False
    was_uncertain: bool = False

    def __post_init__(self) -> None:
        self.trace = self.traces.thread(self.block, self.thread)

    def event(self, line: int, kind: Kind, operands: tuple[Observed | Unknown, ...]) -> Value:
        """The next step: the same kind, the same operands; returns the result that kernel IR gives it."""
        if kind in WHOLE_WARP:  # a thread is run by itself: the first lane, and no other
            return 1 if kind is Kind.ACTIVE else UNKNOWN
        self.seen.add(line)
        if kind is Kind.STREAM_WAIT:
            if self.waited:
                raise Difference(f"PTX line {line}: a second wait for the stream")
            self.waited = True
            return 0
        if kind is Kind.AGREED and not self.waited and operands[0] in self._common_indices() and operands[1:] == (0, WARP - 1, ALL_LANES):
            assert isinstance(operands[0], int)
            return operands[0]  # one lane tells the others what they know
        self._check_waited(line)
        if self.at == len(self.trace.steps):
            raise Difference(f"PTX line {line}: {_said(kind, operands)}, where the thread is at its end")
        step = self.trace.steps[self.at]
        if kind is not step.kind or len(operands) != len(step.operands):
            raise Difference(f"PTX line {line}: {_said(kind, operands)}, not {self._wanted(step)}")
        for got, wanted in zip(operands, step.operands, strict=True):
            if got != wanted and not self._fits(got, wanted):
                raise Difference(f"PTX line {line}: {_said(kind, operands)}, not {self._wanted(step)}")
        self.at += 1
        if kind not in UNORDERED:
            self._check_memory(f"in front of PTX line {line}", step.stores, step.loads)
        return step.result

    def _common_indices(self) -> list[int]:
        """The thread's indices that are those of its whole warp."""
        x, y, _ = self.traces.launch.block
        return [i for i, inner in zip(self.thread[1:], (x, x * y), strict=True) if inner % WARP == 0]

    def _wanted(self, step: PtxStep) -> str:
        operands = [self._lanes(o) if isinstance(o, WarpLanes) else o for o in step.operands]
        return f"{_said(step.kind, operands)} of `{stmt_text(step.statement, self.traces.launch.kernel)}`"

    def _lanes(self, lanes: WarpLanes) -> str:
        come, there = self.traces.lanes(self.block, self.thread, lanes)
        return f"lanes {come:#x} of {there:#x}"

    def _fits(self, got: Observed | Unknown, wanted: object) -> bool:
        match wanted:
            case PtxPlace(name, offset, rank):
                if not isinstance(got, int):
                    return False
                base = got - offset - (0 if rank is None else (rank + 1) * RANK)
                return self.places.setdefault(name, base) == base
            case WarpLanes():
                come, there = self.traces.lanes(self.block, self.thread, wanted)
                return isinstance(got, int) and got & there == come
            case _:
                return wanted is ANY

    def access(self, line: int, store: bool, address: Value, size: int) -> None:
        """An access of Shared or Global memory."""
        self.seen.add(line)
        if isinstance(address, Unknown):
            if store:
                raise Difference(f"PTX line {line}: a store to where data says")
            return
        if address >= LOCAL:
            return
        if address >= SHARED:
            address -= SHARED
        elif address >= PARAMS_AT:
            return
        self._check_waited(line)
        if line in self.constant and not self.traces.launch.is_constant(address):
            raise Difference(f"PTX line {line}: a load of bytes that the kernel writes, as if nothing wrote them")
        if not store and self.traces.launch.is_of_table(address):
            return
        if SHARED_AT <= address < TENSORS_AT or address >= WORKSPACE_AT:
            (self.stores if store else self.loads).append((self.traces.launch.ranked(address, self.block), size))
        else:
            (self.tensor_stores if store else self.tensor_loads).append((address, size))

    def _check_waited(self, line: int) -> None:
        if not self.waited:
            raise Difference(f"PTX line {line}: in front of the wait for what the stream holds before")

    def uncertain(self) -> None:
        """Skipped accesses depended on data."""
        self.is_uncertain = self.was_uncertain = True

    def end(self) -> None:
        """The thread is at its end."""
        if not self.waited:
            raise Difference("the thread ends without the wait for what the stream holds before")
        if self.at < len(self.trace.steps):
            raise Difference(f"the thread ends in front of {self._wanted(self.trace.steps[self.at])}")
        self._check_memory("at the end", self.trace.stores, self.trace.loads)
        _same_bytes("a tensor", self.tensor_stores, self.trace.tensor_stores, self.was_uncertain)
        _no_other("a tensor", self.tensor_loads, self.trace.tensor_loads)

    def _check_memory(self, where: str, stores: Sequence[Span], loads: Sequence[Span]) -> None:
        if self.stores or stores:
            _same_bytes(f"Shared memory or workspace {where}", self.stores, stores, self.is_uncertain)
        if self.loads:
            _no_other(f"Shared memory or workspace {where}", self.loads, loads)
        self.stores.clear()
        self.loads.clear()
        self.is_uncertain = False


def _bytes(spans: Sequence[Span]) -> set[int]:
    return {a for start, size in spans for a in range(start, start + size)}


def _same_bytes(what: str, got: Sequence[Span], wanted: Sequence[Span], may_miss: bool) -> None:
    if set(got) == set(wanted):
        return
    found, asked = _bytes(got), _bytes(wanted)
    if found - asked:
        raise Difference(f"{what}: bytes {_few(found - asked)} are written, which kernel IR does not write")
    if asked - found and not may_miss:
        raise Difference(f"{what}: bytes {_few(asked - found)} are not written, which kernel IR writes")


def _no_other(what: str, got: Sequence[Span], wanted: Sequence[Span]) -> None:
    if set(got) <= set(wanted):
        return
    more = _bytes(got) - _bytes(wanted)
    if more:
        raise Difference(f"{what}: bytes {_few(more)} are read, which kernel IR does not read")


def _few(found: set[int]) -> str:
    return ", ".join(f"{a:#x}" for a in sorted(found)[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")


def _said(kind: Kind, operands: Sequence[object]) -> str:
    return f"{kind.name}({', '.join('data' if isinstance(o, Unknown) else str(o) for o in operands)})"
