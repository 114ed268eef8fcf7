"""What lanes of a warp exchange: shuffles, votes, matches, matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taskfuse.testing.ptx.events import Kind
from taskfuse.testing.ptx.machine import ThreadEvent
from taskfuse.testing.ptx.matrices import load_matrices, mma, store_matrices
from taskfuse.testing.ptx.storage import Storage
from taskfuse.testing.ptx.threads import Reply


def answers(kind: Kind, events: Mapping[int, ThreadEvent], memory: Storage) -> Mapping[int, Reply] | None:
    """What lanes get that execute an instruction together; ``None``: what it does is not known.

    Args:
        events: by lane.
        memory: that of their block.

    Raises:
        PtxError: an access outside of everything.
    """
    lanes = list(events)
    line, _, operands, _ = events[lanes[0]]
    data = {lane: event[3] for lane, event in events.items()}
    match kind:
        case Kind.WARP_BARRIER:
            return dict.fromkeys(lanes, ())
        case Kind.SHUFFLE | Kind.FROM_ABOVE:
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
            return mma(operands[0], data)
        case Kind.LOAD_MATRIX:
            return load_matrices(operands[0], {n: e[2][1] for n, e in events.items()}, lambda a, n: memory.read(line, "shared", a, n))
        case _:
            rows = store_matrices(operands[0], {n: e[2][1] for n, e in events.items()}, data)
            for address, row in rows or ():
                memory.write(line, "shared", address, row)
            return None if rows is None else dict.fromkeys(lanes, ())


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
