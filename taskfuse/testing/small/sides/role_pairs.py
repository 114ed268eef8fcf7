"""Barriers of two roles in blocks of a symbolic extent N: the members of each role, their number, and the number of meetings are expressions of N."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.sides.side import Declared, Shape, Side, Thread, holds, number
from taskfuse.testing.small.text import Text

LANES = 32
MOST_ROWS = 6
TRIPS = 3


@dataclass(frozen=True, slots=True)
class RolePair:
    """The threads of a block, and those of two roles.

    Attributes:
        index: the thread index that says a role; its extent is N.
        lanes: threads of each value of it, along ``threadIdx.x``, if that is another index.
        first, second: the conditions of the roles. A thread of both takes the first one's arm.
        sizes: values of N.
    """

    index: str
    lanes: int
    first: str
    second: str
    sizes: tuple[int, ...]

    def count(self, n: int) -> tuple[int, int]:
        """The threads of both roles in a block of extent ``n``."""
        one = [self._is_in(self.first, k, n) for k in range(n)]
        two = [self._is_in(self.second, k, n) and not one[k] for k in range(n)]
        return self.lanes * sum(one), self.lanes * sum(two)

    def _is_in(self, condition: str, k: int, n: int) -> bool:
        at: Thread = (k, 0, 0) if self.lanes == 1 else (0, k, 0)
        return holds(condition, at, {"N": n})


def role_pairs(c: Chooser) -> Side:
    """Two roles meet at an mbarrier or a named barrier, once or in each iteration, or one arrives and the other waits; they may pass data on."""
    pair = _pair(c)
    kind = c.pick(("meet", "meet", "handover", "handover", "named") if pair.lanes > 1 else ("meet", "handover"))
    looped = kind != "handover" and c.chance(50)
    once = c.pick(("M", "M", "2", "1"))
    trips = (once, once if c.chance(75) else c.pick(("M", "2", "M + 1", "M//2", "max(M, 1)")))
    extents = [{"N": n, "M": m} for n in pair.sizes for m in range(TRIPS)] if looped else [{"N": n} for n in pair.sizes]
    needed = {n: pair.count(n)[0] + (0 if kind == "handover" else pair.count(n)[1]) for n in pair.sizes}
    count = _count(c, pair, needed)
    h = _declared(pair, count, kind, looped)
    t = Text()
    if kind != "named":
        with t.block("IF threadIdx.x == 0" + (" && threadIdx.y == 0" if pair.lanes > 1 else "")):
            t.add(f"INIT b[0] count {count}")
        t.add("SYNC block")
    hands = not looped and c.chance(60)
    own, last = (pair.index, "N - 1") if pair.lanes == 1 else (f"{pair.index}, threadIdx.x", "N - 1, threadIdx.x")
    other = c.pick((last, f"N - 1 - {own}", last.replace("N - 1", "0", 1)))
    with t.block(f"IF {pair.first}"):
        if hands:
            t.add(f"s[{own}] = copy(x[{own}])")
        _meets(t, kind, count, trips[0] if looped else "", waits=kind != "handover")
    with t.block(f"ELSE IF {pair.second}"):
        _meets(t, kind, count, trips[1] if looped else "", arrives=kind != "handover")
        if hands:
            t.add(f"y[{own}] = copy(s[{other}])")
    if not hands:
        t.add(f"y[{own}] = copy(x[{own}])")
    found = [_is_right(pair, kind, count, trips if looped else (), at) for at in extents]  # the second role writes nothing, so no race is left
    return h.side(f"pair of roles: {kind}", t, False if False in found else None if None in found else True, extents)


def _pair(c: Chooser) -> RolePair:
    """Roles that are apart or overlap, of a line of threads or of rows of whole warps."""
    rows = c.chance(60)
    v = "threadIdx.y" if rows else "threadIdx.x"
    step = 1 if rows else c.pick((1, 2, 4))
    k = c.integer(1, 3)
    least = c.pick((k, k + 1, k + 1, k + 2))
    least += -least % step
    sizes = tuple(range(least, (MOST_ROWS if rows else least + 5 * step) + 1, step))
    first, second = c.pick(
        (
            (f"{v} < {k}", f"{v} >= {k}"),
            (f"{v} < {k}", f"{v} >= {k}"),
            (f"{v} >= N - {k}", f"{v} < N - {k}"),
            (f"{v} < N - {k}", f"{v} >= N - {k}"),
            (f"2*{v} < N", f"2*{v} >= N"),
            (f"{v} == 0", f"{v} > 0"),
            (f"{v} == N - 1", f"{v} < N - 1"),
            (f"{v} % 2 == 0", f"{v} % 2 == 1"),
            (f"{v} == 0", f"{v} == N - 1"),
            (f"{v} < {k}", f"{v} >= {k} && {v} < {k + 1}"),
            (f"{v} < {k}", f"{v} > {k}"),
            (f"{v} <= {k}", f"{v} >= {k}"),
            (f"{v} < {k}", f"{v} < N"),
        )
    )
    if c.chance(30):
        first, second = second, first
    return RolePair(v, LANES if rows else 1, first, second, sizes)


def _count(c: Chooser, pair: RolePair, needed: Mapping[int, int]) -> str:
    """A count of arrivals: in most kernels a right one, if an expression says it."""
    units = ["N", "N - 1", "N//2", "(N + 1)//2", "1", "2", "N + 1", *(f"N - {k}" for k in (2, 3)), "3", "4"]
    counts = units if pair.lanes == 1 else [f"{pair.lanes}*({u})" for u in units] + ["32", "64", "N"]
    good = [e for e in counts if all(number(e, (0, 0, 0), {"N": n}) == k for n, k in needed.items())]
    return c.pick(good) if good and c.chance(60) else c.pick(counts)


def _declared(pair: RolePair, count: str, kind: str, looped: bool) -> Declared:
    h = Declared(Shape((1, 1, 1)), [] if kind == "named" else ["MBARRIER b[1]"])
    step = pair.sizes[1] - pair.sizes[0] if len(pair.sizes) > 1 else 1
    multiple = f" multiple_of {step}" if step > 1 else ""
    h.dims = f"N min {min(pair.sizes)} max {max(pair.sizes)}{multiple}" + (f", M max {TRIPS - 1}" if looped else "")
    h.block = "(N, 1, 1)" if pair.lanes == 1 else f"({pair.lanes}, N, 1)"
    shape = "N" if pair.lanes == 1 else f"N, {pair.lanes}"
    h.inputs, h.outputs = [f"x: float32[{shape}]"], [f"y: float32[{shape}]"]
    h.lines.append(f"SHARED s: float32[{shape}] align 16")
    return h


def _meets(t: Text, kind: str, count: str, trips: str, *, arrives: bool = True, waits: bool = True) -> None:
    """What a role does at the barrier."""
    if kind == "named":
        with t.blocks([f"FOR k in 0..{trips}"] if trips else []):
            t.add(f"SYNC named 1, {count}")
        return
    if trips:
        t.add("q = CURSOR(slots 1, slot 0, parity 0)")
    with t.blocks([f"FOR k in 0..{trips}"] if trips else []):
        if arrives:
            t.add("ARRIVE b[0]")
        if waits:
            t.add(f"WAIT b[0] parity {'q.parity' if trips else 0}")
        if trips:
            t.add("q.advance(1)")


def _is_right(pair: RolePair, kind: str, count: str, trips: Sequence[str], at: Mapping[str, int]) -> bool | None:
    """Whether all arrive that are waited for, in one launch; ``None``: nobody waits, or another number of threads may do."""
    one, two = pair.count(at["N"])
    expected = number(count, (0, 0, 0), at)
    if expected < 1 and kind != "named":
        return False
    if kind == "handover":
        return expected == one or (None if not two else False)
    times = [number(e, (0, 0, 0), at) for e in trips] or [1, 1]
    meeting = {one * (k < times[0]) + two * (k < times[1]) for k in range(max(times))} - {0}
    if not meeting:
        return None
    if meeting == {expected}:
        return True
    return None if kind == "named" and expected > 0 and not any(n % expected for n in meeting) else False
