"""Bound calls: calls of a fusion in a compiled graph in which only the addresses of tensors vary.

The guards of ``torch.compile`` hold when a graph runs, so shapes, strides, dtypes and devices of the arguments of its fusions are those for which it was
compiled, or, with symbolic extents, those of a call with the same sizes. The first such call of a fusion takes the general path, and its launches are recorded
(:mod:`taskfuse.cuda.recording`). From the record a Python function is written that does the rest: it reads the addresses of the tensors, allocates results,
fills in the addresses, and launches. All tensors between the kernels of a call are one allocation.

A step of an optimizer has hundreds of arguments, at the same addresses in each call: where they are many, addresses are compared with those of the last call
as a whole, and filled in if one is another.

Addresses also determine the vectorization of loads: a function serves arguments of the same alignment to 16 bytes. Other calls take the general path: with
run-time scalars, in a debug build, if results are arguments. Arguments that overlap, as slices of one tensor may, have to lie at the same distances again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import torch

from taskfuse.cuda.frame import STREAM_WORD, Frame
from taskfuse.cuda.recording import RecordedLaunch, recording
from taskfuse.torch.calls import allocator

ALIGNMENT: Final = 16
"""Alignment in bytes that determines the variant of a kernel."""
BLOCK: Final = 256
"""Alignment of tensors between kernels, in bytes."""
MANY: Final = 32
"""From so many tensors on, addresses are compared with those of the last call."""
MOST: Final = 1024
"""The most functions of one fusion of a graph, for different sizes and alignments."""

BoundCall = Callable[..., tuple[Any, ...]]


class CallSite:
    """A fusion of a graph.

    Args:
        run: the general path: from tensors and integers to results.
        tensors: the number of its arguments that are tensors, which come first.
        rebind: called with a function for arguments of the usual alignment, if extents are not symbols: the graph calls it from then on.
    """

    __slots__ = ("_known", "_rebind", "_run", "_tensors")

    def __init__(self, run: BoundCall, tensors: int, rebind: Callable[[BoundCall], None] | None) -> None:
        self._run = run
        self._tensors = tensors
        self._rebind = rebind
        self._known: dict[Any, BoundCall] = {}

    def fixed(self, *args: Any) -> tuple[Any, ...]:
        """A call of a graph whose extents are known."""
        return self._call((), args)

    def sized(self, sizes: tuple[int, ...], *args: Any) -> tuple[Any, ...]:
        """A call of a graph with symbols, whose values decide on all extents and strides."""
        return self._call(sizes, args)

    def _call(self, sizes: tuple[int, ...], args: tuple[Any, ...]) -> tuple[Any, ...]:
        key = sizes, *[x.data_ptr() % ALIGNMENT for x in args[: self._tensors]]
        known = self._known.get(key)
        if known is not None:
            return known(*args)
        with recording() as launches:
            made = self._run(*args)
        found = None if len(self._known) >= MOST else bound(launches, args[: self._tensors], made, self._run, None if sizes else self.fixed)
        if found is not None:
            self._known[key] = found
            if self._rebind is not None and not any(key[1:]):
                self._rebind(found)
        elif len(self._known) < MOST and launches:
            self._known[key] = self._run
        return made


@dataclass(frozen=True, slots=True)
class LaunchedArray:
    """Where an array of a launch lies: so many bytes from a name of the source."""

    base: str
    offset: int

    def __str__(self) -> str:
        return f"{self.base} + {self.offset}" if self.offset else self.base


def bound(launches: Sequence[RecordedLaunch], args: Sequence[Any], made: Sequence[Any], otherwise: BoundCall, again: BoundCall | None) -> BoundCall | None:
    """A function that makes recorded launches for other tensors; ``None``: there is none.

    Args:
        launches: of a call with ``args``, tensors that may be followed by integers, which gave ``made``: new tensors, and some of ``args``, which were written.
        otherwise: the function for calls on another GPU than the current one.
        again: the function for calls whose arguments have other alignments; ``None``: they have the same.
    """
    if not launches or any(plan.scalars or plan.report is not None or plan.current is None for _, plan, _ in launches):
        return None
    clusters, distances = _clusters(args)
    written = {k: position for k, y in enumerate(made) for position, x in enumerate(args) if x is y}
    new = {k: y for k, y in enumerate(made) if k not in written}
    ranges = clusters + [(*_range(y), f"b{k}") for k, y in new.items()]
    if written and distances:
        return None  # whether one that is written overlaps another one is checked in each call
    if any(low == high for x in (*args, *made) for low, high in [_range(x)]) or any(low < high for (_, high, _), (low, _, _) in pairwise(sorted(ranges))):
        return None  # empty, or a result in something else
    if any(y.storage_offset() or y.untyped_storage().data_ptr() != y.data_ptr() for y in new.values()):
        return None
    blocks = _between(launches, ranges)
    if blocks is None:
        return None
    starts, end = _packed(blocks)

    def place(address: int) -> LaunchedArray:
        for low, high, name in ranges:
            if low <= address < high:
                return LaunchedArray(name, address - low)
        return next(LaunchedArray("c", start + address - low) for (low, high), start in zip(blocks, starts, strict=True) if low <= address < high)

    results = [f"x{written[k]}" if k in written else f"y{k}" for k in range(len(made))]
    return _written([(launch, tuple(map(place, launch.addresses))) for launch in launches], args, distances, new, results, end, otherwise, again)


def _clusters(args: Sequence[Any]) -> tuple[list[tuple[int, int, str]], list[tuple[int, int, int]]]:
    """The bytes of arguments, those that overlap, as slices of one tensor may, as one range from the first of them; and for the others of such a range their
    position, that of the first, and the distance between the two, at which they must lie in other calls, too."""
    clusters: list[tuple[int, int, str]] = []
    distances: list[tuple[int, int, int]] = []
    first = -1
    for low, high, k in sorted((*_range(x), k) for k, x in enumerate(args)):
        if clusters and low < clusters[-1][1]:
            begin, end, name = clusters[-1]
            clusters[-1] = begin, max(end, high), name
            distances.append((k, first, low - begin))
        else:
            clusters.append((low, high, f"a{k}"))
            first = k
    return clusters, distances


def _range(x: Any) -> tuple[int, int]:
    """The bytes of a tensor: the first, and the one after the last."""
    last = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    begin = x.data_ptr()
    return begin, begin + (last + 1) * x.element_size() if x.numel() else begin


def _between(launches: Sequence[RecordedLaunch], ranges: Sequence[tuple[int, int, str]]) -> list[tuple[int, int]] | None:
    """The bytes of what goes between kernels. ``None``: some is read before it is written, so that it belongs to none of them, or a launch takes nothing."""
    spans: list[tuple[int, int]] = []
    for launcher, plan, addresses in launches:
        inputs = len(addresses) - len(launcher.kernel.outputs)
        for position, (address, (first, after)) in enumerate(zip(addresses, plan.ranges, strict=True)):
            if any(low <= address < high for low, high, _ in ranges):
                continue
            span = address + first, address + after
            if first < 0 or first == after:
                return None
            if position < inputs and not any(low <= span[0] and span[1] <= high for low, high in spans):
                return None
            spans.append(span)
    joined: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if joined and low < joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined


def _packed(blocks: Sequence[tuple[int, int]]) -> tuple[list[int], int]:
    """Where blocks begin in one allocation, with the alignment that they have, and its size."""
    starts: list[int] = []
    end = 0
    for low, high in blocks:
        starts.append(-(-end // BLOCK) * BLOCK + low % BLOCK)
        end = starts[-1] + high - low
    return starts, end


def _written(
    launches: Sequence[tuple[RecordedLaunch, tuple[LaunchedArray, ...]]],
    args: Sequence[Any],
    distances: Sequence[tuple[int, int, int]],
    made: Mapping[int, Any],
    results: Sequence[str],
    end: int,
    otherwise: BoundCall,
    again: BoundCall | None,
) -> BoundCall:
    first = launches[0][0]
    driver = first.launcher.kinds.driver
    device = first.plan.device
    names = [f"x{k}" for k in range(len(args))]
    given = ", ".join([*names, "*rest"])
    whole = [launch.plan for launch, _ in launches]

    def new() -> tuple[Any, ...]:
        own = [plan.frame() for plan in whole]
        return (*[part for frame in own for part in (frame.words, frame.launch)], *own, [])

    scope: dict[str, Any] = {"otherwise": otherwise, "current": first.plan.current, "frames": [], "is_current": driver.is_current, "device": device, "new": new}
    scope |= {"again": again, "address": torch.Tensor.data_ptr}
    parts = ", ".join([*(f"w{k}, l{k}" for k in range(len(whole))), *(f"f{k}" for k in range(len(whole))), "last"])
    frame = ["    try:", "        frame = frames.pop()", "    except IndexError:", "        frame = new()", f"    {parts} = frame"]
    usual = [f"a{k}" for k, x in enumerate(args) if x.data_ptr() % ALIGNMENT == 0]
    others = [f"a{k} & {ALIGNMENT - 1} != {x.data_ptr() % ALIGNMENT}" for k, x in enumerate(args) if x.data_ptr() % ALIGNMENT]
    tests = ([f"({' | '.join(usual)}) & {ALIGNMENT - 1}"] if usual else []) + others
    refused = [(" or ".join(tests), "again")] if again is not None and tests else []
    refused += [(" or ".join(f"a{k} - a{first} != {distance}" for k, first, distance in distances), "otherwise")] if distances else []
    moved = [_addresses(k, launch, places, whole[k].frame(), scope) for k, (launch, places) in enumerate(launches)]
    lines = [f"def call({given}):"]
    if len(args) < MANY:
        lines += [f"    a{k} = {name}.data_ptr()" for k, name in enumerate(names)]
        lines += [line for test, other in refused for line in (f"    if {test}:", f"        return {other}({given})")]
    if any(launch.plan.guarded for launch, _ in launches):
        lines += ["    if not is_current(device):", f"        return otherwise({given})"]
    if len(args) >= MANY:
        lines += [
            f"    now = [*map(address, ({', '.join(names)}))]",
            *frame,
            "    if now != last:",
            f"        {', '.join(f'a{k}' for k in range(len(args)))} = now",
        ]
        lines += [
            line for test, other in refused for line in (f"        if {test}:", "            frames.append(frame)", f"            return {other}({given})")
        ]
        lines += [f"    {line}" for own in moved for base, line in own if base.startswith("a")]
        lines += ["        last[:] = now"]
        moved = [[(base, line) for base, line in own if not base.startswith("a")] for own in moved]
    lines.append(f"    stream = current({first.plan.ordinal})")
    for k, y in made.items():
        scope |= {f"empty{k}": allocator(y.device), f"dtype{k}": y.dtype}
        lines += [f"    y{k} = empty{k}({tuple(y.shape)}, {tuple(y.stride())}, dtype{k})", f"    b{k} = y{k}.data_ptr()"]
    if end:
        scope |= {"empty": allocator(args[0].device), "byte": torch.uint8}
        lines += [f"    between = empty(({end},), (1,), byte)", "    c = between.data_ptr()"]
    lines += frame if len(args) < MANY else []
    for k, (launch, _) in enumerate(launches):
        lines += _launch(k, launch, [line for _, line in moved[k]], scope)
    lines += ["    frames.append(frame)", f"    return {''.join(f'{name}, ' for name in results)}"]
    exec(compile("\n".join(lines) + "\n", "<taskfuse bound call>", "exec"), scope)
    call: BoundCall = scope["call"]
    return call


def _addresses(k: int, launch: RecordedLaunch, places: Sequence[LaunchedArray], frame: Frame, scope: dict[str, Any]) -> list[tuple[str, str]]:
    """The lines that fill in the addresses of one launch, each with the name of what the address is that of."""
    lines = [(places[position].base, f"    w{k}[{word}] = {places[position]}") for word, position in launch.plan.pointers]
    for number, slot in enumerate(frame.maps):
        scope[f"move{k}"] = launch.launcher.move
        place = places[slot.position]
        lines.append((place.base, f"    if f{k}.maps[{number}].pointer != {place}: move{k}(f{k}.maps[{number}], {place})"))
    return lines


def _launch(k: int, launch: RecordedLaunch, addresses: Sequence[str], scope: dict[str, Any]) -> list[str]:
    """The lines of one launch."""
    launcher, plan, _ = launch
    lines = [f"    w{k}[{STREAM_WORD}] = stream", *addresses]
    if plan.workspace is not None:
        scope |= {f"lend{k}": launcher.lend_workspace, f"plan{k}": plan}
        lines.append(f"    space{k} = lend{k}(plan{k}, plan{k}.workspace, f{k}, stream)")
    scope |= {f"again{k}": launcher.launch_again, f"plan{k}": plan}
    return [*lines, f"    status = l{k}()", "    if status:", f"        again{k}(plan{k}, f{k}, status)"]
