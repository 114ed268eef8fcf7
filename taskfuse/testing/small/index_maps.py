"""Index maps: the elements of an array in the digits of random numbers, in any order; and texts with one number, symbol or sign changed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.text import Text

LOOPS = ("w", "v", "u", "t")
BLOCKS, THREADS = ("blockIdx.x", "blockIdx.y"), ("threadIdx.x", "threadIdx.y")
NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
SYMBOL = re.compile(r"(?:blockIdx|threadIdx)\.[xy]|(?<![\w.])[wvut](?![\w.])")
SIGNS = {"//": "%", "%": "//", " < ": " <= ", " + ": " - "}


@dataclass(slots=True)
class Map:
    """Where a statement visits elements.

    Attributes:
        index: one expression per axis.
        guards: conditions that exclude other elements.
        loops: those around it, by name: where each begins, ends, and by what it steps.
    """

    index: list[str]
    guards: list[str] = field(default_factory=list[str])
    loops: dict[str, tuple[str, str, int]] = field(default_factory=dict[str, tuple[str, str, int]])

    def heads(self, order: Sequence[str], guard: bool = True) -> list[str]:
        """The loops in some order, and the conditions."""
        found: list[str] = []
        for name in order:
            begin, end, step = self.loops[name]
            found.append(f"FOR {name} in {begin}..{end}" + (f" step {step}" if step != 1 else ""))
        return [*found, *([f"IF {' && '.join(self.guards)}"] if self.guards and guard else [])]


@dataclass(slots=True)
class Grid:
    """The hardware indices that maps have used so far."""

    spans: dict[str, str] = field(default_factory=dict[str, str])
    blocks: bool = True

    def free(self, constant: bool) -> list[str]:
        """Hardware indices that can be taken; those of blocks may have any number of values."""
        return [n for n in (*(BLOCKS if self.blocks else ()), *(THREADS if constant else ())) if n not in self.spans]

    def line(self) -> str:
        """Their declaration."""
        x, y, tx, ty = (self.spans.get(n, "1") for n in (*BLOCKS, *THREADS))
        return f"  GRID ({x}, {y}, 1)  BLOCK ({tx}, {ty}, 1)"


@dataclass(slots=True)
class MapDigit:
    """``weight * symbol`` of an axis; ``span``: how many values it has; ``value``: as an expression."""

    axis: int
    weight: str
    span: str
    value: str = ""


def digits(c: Chooser, sizes: Sequence[str]) -> tuple[list[MapDigit], list[bool]]:
    """The axes' numbers in digits of any order, and which of them run past the end."""
    found: list[MapDigit] = []
    beyond: list[bool] = []
    for axis, size in enumerate(sizes):
        low = [c.pick((1, 2, 3, 4)) for _ in range(c.integer(0, 2))]
        low = [f for f in low if f > 1]
        if size.isdigit():
            n, below = int(size), prod(low)
            top = -(-n // below)
            spans: list[str] = c.order([str(f) for f in (*low, *([top] if top > 1 or not low else []))])
            beyond.append(top * below != n)
            weights = [prod(map(int, spans[:k])) for k in range(len(spans))]
        else:
            below = prod(low)
            spans = [*(str(f) for f in c.order(low)), f"ceildiv({size}, {below})" if below > 1 else size]
            beyond.append(below > 1)
            weights = [prod(map(int, spans[:k])) for k in range(len(spans))]
        found += [MapDigit(axis, str(w), s) for s, w in zip(spans, weights, strict=True)]
    return found, beyond


def assigned(c: Chooser, found: list[MapDigit], grid: Grid, made: Map, hardware: int) -> None:
    """Every digit is one of a loop's, a thread's or a block's, or two constant ones share a symbol."""
    left = c.order(found)
    while left:
        d = left.pop()
        shared = next((other for other in left if other.span.isdigit() and d.span.isdigit()), None) if c.chance(25) else None
        span = d.span if shared is None else str(int(d.span) * int(shared.span))
        places = grid.free(span.isdigit())
        if places and c.chance(hardware):
            name = c.pick(places)
            grid.spans[name] = span
            value = name
        else:
            name = next(n for n in (*LOOPS, *(f"w{k}" for k in range(9))) if n not in made.loops)
            begin, step = (c.pick((1, 2, 3)), c.pick((1, 2))) if span.isdigit() and c.chance(20) else (0, 1)
            made.loops[name] = str(begin), str(begin + int(span) * step) if span.isdigit() else span, step
            value = name if not begin else f"({name} - {begin})" if step == 1 else f"(({name} - {begin})//{step})"
        if shared is None:
            d.value = value
        else:
            left.remove(shared)
            d.value, shared.value = f"({value}//{shared.span})", f"({value} % {shared.span})"


def box(c: Chooser, sizes: Sequence[str], grid: Grid, hardware: int = 60) -> Map:
    """All elements of an array, axis by axis, or as the digits of one number."""
    made = Map([])
    if c.chance(30) and len(sizes) > 1:
        total = str(prod(map(int, sizes))) if all(s.isdigit() for s in sizes) else "*".join(sizes)
        found, beyond = digits(c, [total] if total.isdigit() else [f"({total})"])
        assigned(c, found, grid, made, hardware)
        number = sums(found, 0)
        for k in range(len(sizes)):
            below = "*".join(sizes[k + 1 :])
            upper = f"({number})//({below})" if below else f"({number})"
            made.index.append(f"{upper} % {sizes[k]}" if k else upper)
        made.guards = [f"{number} < {total}"] if beyond[0] else []
        return made
    found, beyond = digits(c, sizes)
    assigned(c, found, grid, made, hardware)
    made.index = [sums(found, k) for k in range(len(sizes))]
    made.guards = [f"{e} < {n}" for e, n, more in zip(made.index, sizes, beyond, strict=True) if more]
    return made


def sums(found: Sequence[MapDigit], axis: int) -> str:
    """The number of an axis."""
    return " + ".join(d.value if d.weight == "1" else f"{d.weight}*{d.value}" for d in found if d.axis == axis) or "0"


def other(c: Chooser, text: str) -> str:
    """The text with one number, symbol or sign changed."""
    numbers, symbols = list(NUMBER.finditer(text)), list(SYMBOL.finditer(text))
    signs = [s for s in SIGNS if s in text]
    match c.pick(("number",) * 3 + ("symbol", "sign")):
        case "number" if numbers:
            m = c.pick(numbers)
            n = int(m[0])
            return text[: m.start()] + str(c.pick([x for x in (n + 1, max(n - 1, 0), 2 * n, n // 2, 0) if x != n] or [n + 1])) + text[m.end() :]
        case "symbol" if len({m[0] for m in symbols}) > 1:
            m = c.pick(symbols)
            return text[: m.start()] + c.pick(sorted({s[0] for s in symbols} - {m[0]})) + text[m.end() :]
        case "sign" if signs:
            sign = c.pick(signs)
            return text.replace(sign, SIGNS[sign], 1)
        case _:
            return text


def replaced_guards(m: Map, guards: list[str]) -> Map:
    """The same loops under other conditions."""
    return Map(m.index, guards, m.loops)


def changed(c: Chooser, m: Map) -> Map:
    """The map, sometimes with the same change wherever it occurs."""
    if not c.chance(25):
        return m
    match c.pick(("index", "guard", "loop")):
        case "index":
            k = c.integer(0, len(m.index) - 1) if m.index else -1
            if k >= 0:
                m.index[k] = other(c, m.index[k])
        case "guard" if m.guards:
            m.guards = [other(c, m.guards[0]), *m.guards[1:]] if c.chance(60) else m.guards[1:]
        case "loop" if m.loops:
            name = c.pick(sorted(m.loops))
            begin, end, step = m.loops[name]
            if c.chance(20):
                m.loops[name] = begin, c.pick([f"{n} + 1" for n in sorted(m.loops) if n != name] or [f"threadIdx.x + {end}"]), step
                return m
            m.loops[name] = (begin, other(c, end), step) if c.chance(70) else (other(c, begin), end, step)
        case _:
            pass
    return m


def store(body: Text, c: Chooser, m: Map, tensor: str, value: str, claim: str) -> None:
    """One statement in its loops."""
    at = ", ".join(m.index)
    with body.blocks(m.heads(c.order(sorted(m.loops)))):
        body.add(f"{tensor}[{at}] = {value.format(at)}  ~ {claim}[{at}]")


def indices(sizes: Sequence[str]) -> str:
    """All indices of an array."""
    return ", ".join(f"i{k}" for k in range(len(sizes)))
