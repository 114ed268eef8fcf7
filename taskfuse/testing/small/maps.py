"""Small kernels whose index maps nobody lowered: copies, stages, sums and parts that run over their elements in the digits of random numbers.

A map is made right, as digits of loops, threads and blocks in any order, or of one number that all of them make; then some numbers, symbols and signs of
the text are others, in one place or wherever the map stands. Nobody knows which of these kernels are right: what definitions mean decides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from taskfuse.kir import parse_kernel
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.text import Small, Text

SIZES = (1, 2, 3, 4, 5, 6, 8, 12)
NAMES = ("A", "B", "C")
TRIED = (
    {"A": 1, "B": 1, "C": 1},
    {"A": 2, "B": 3, "C": 2},
    {"A": 5, "B": 4, "C": 3},
    {"A": 6, "B": 1, "C": 4},
    {"A": 0, "B": 2, "C": 3},
    {"A": 3, "B": 8, "C": 0},
)
"""Values of symbolic sizes; those with 0 where one may be 0."""
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
        guards: conditions without which it visits more.
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
    """Blocks and threads, as far as maps have taken them."""

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
class Digit:
    """``weight * symbol`` of an axis; ``span``: how many values it has; ``value``: as an expression."""

    axis: int
    weight: str
    span: str
    value: str = ""


def digits(c: Chooser, sizes: Sequence[str]) -> tuple[list[Digit], list[bool]]:
    """The axes' numbers in digits of any order, and which of them run behind the end."""
    found: list[Digit] = []
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
        found += [Digit(axis, str(w), s) for s, w in zip(spans, weights, strict=True)]
    return found, beyond


def assigned(c: Chooser, found: list[Digit], grid: Grid, made: Map, hardware: int) -> None:
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


def sums(found: Sequence[Digit], axis: int) -> str:
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


def copied(c: Chooser, sizes: list[str], grid: Grid, body: Text) -> list[str]:
    """One statement stores all, or two store a part each."""
    if sizes[0].isdigit() and int(sizes[0]) > 1 and c.chance(30):
        cut = c.integer(1, int(sizes[0]) - 1)
        for begin, rows in ((0, cut), (cut, int(sizes[0]) - cut)):
            part = changed(c, box(c, [str(rows), *sizes[1:]], Grid(dict.fromkeys((*BLOCKS, *THREADS), "1"))))
            part.index[0] = f"{begin} + {part.index[0]}" if begin else part.index[0]
            store(body, c, part, "y", "copy(x[{}])", "value y")
        return []
    if not sizes[0].isdigit() and c.chance(30):
        cut = c.pick(("{}//2", "ceildiv({}, 2)", "min({}, 3)", "{} - 1", "max({} - 2, 0)")).format(sizes[0])
        for begin, end in (("0", cut), (cut, sizes[0])):
            part = box(c, sizes[1:], Grid(dict.fromkeys((*BLOCKS, *THREADS), "1"))) if sizes[1:] else Map([])
            part.index = ["row", *part.index]
            part.loops["row"] = begin, end, 1
            store(body, c, changed(c, part), "y", "copy(x[{}])", "value y")
        return []
    store(body, c, changed(c, box(c, sizes, grid)), "y", "copy(x[{}])", "value y")
    return []


def staged(c: Chooser, sizes: list[str], grid: Grid, body: Text) -> list[str]:
    """A tensor between them, in memory of the block, where it lies in some order."""
    grid.blocks = False
    lies = c.order(range(len(sizes)))
    shift = c.pick((0, 0, 0, 1, 3)) if sizes[lies[0]].isdigit() else 0
    held = changed(c, box(c, sizes, grid))
    threads = dict(grid.spans)
    read = changed(c, box(c, sizes, Grid(dict.fromkeys((*BLOCKS, *THREADS), "1"))))
    if c.chance(50):  # by the threads that there are; or by one of them
        read = Map(list(held.index), list(held.guards), dict(held.loops))
    else:
        read.guards += [f"{n} == 0" for n in THREADS if threads.get(n, "1") != "1"]
    grid.spans = threads

    def place(index: Sequence[str]) -> str:
        found = [index[k] for k in lies]
        if shift:
            found[0] = f"({found[0]} + {shift}) % {sizes[lies[0]]}"
        return ", ".join(found)

    order = c.order(sorted(held.loops))
    with body.blocks(held.heads(order)):
        body.add(f"b[{place(held.index)}] = copy(x[{', '.join(held.index)}])  ~ value b[{', '.join(held.index)}]")
    body.add("SYNC block")
    heads = read.heads(c.order(sorted(read.loops)))
    with body.blocks(heads):
        body.add(f"y[{', '.join(read.index)}] = copy(b[{place(read.index)}])  ~ value y[{', '.join(read.index)}]")
    shape = ", ".join(sizes[k] for k in lies)
    return [f"  {c.pick(('SHARED', 'GLOBAL'))} b: float32[{shape}]", f"  DEFINE b: float32[{', '.join(sizes)}] = copy(x[{indices(sizes)}])"]


def summed(c: Chooser, sizes: list[str], grid: Grid, body: Text) -> list[str]:
    """The last axis is summed by each thread; or its parts by threads, which one of them joins."""
    kept, k = sizes[:-1], sizes[-1]
    joins = k.isdigit() and c.chance(40)
    lanes = c.pick((2, 3, 4)) if joins else 1
    if joins:
        grid.spans["threadIdx.x"] = str(lanes)
    own = changed(c, box(c, kept, grid)) if kept else Map([])
    if joins:
        grid.spans.setdefault("threadIdx.y", "1")
    inner = Map([])
    rest = Grid(dict.fromkeys((*BLOCKS, *THREADS), "1"))
    taken = set(own.loops)
    if joins:
        each = -(-int(k) // lanes)
        inner.loops = {"s": ("0", str(each), 1)}
        inner.index = [c.pick((f"{lanes}*s + threadIdx.x", f"{each}*threadIdx.x + s"))]
        inner.guards = [f"{inner.index[0]} < {k}"] if each * lanes != int(k) else []
    else:
        found = box(c, [k], rest)
        names = {n: f"s{j}" for j, n in enumerate(found.loops)}
        rename = re.compile(rf"(?<![\w.])({'|'.join(names) or '-'})(?![\w.])")
        inner = Map(
            [rename.sub(lambda m: names[m[0]], e) for e in found.index],
            [rename.sub(lambda m: names[m[0]], e) for e in found.guards],
            {names[n]: span for n, span in found.loops.items()},
        )
        assert taken.isdisjoint(inner.loops)
    inner = changed(c, inner)
    at = ", ".join([*own.index, inner.index[0]])
    out = ", ".join(own.index)
    with body.blocks(own.heads(c.order(sorted(own.loops)), guard=not joins)):
        body.add("acc = copy(0.0)  ~ start y")
        inside = replaced_guards(inner, [*inner.guards, *(own.guards if joins else [])])
        first, *rest_of_loops = c.order(sorted(inner.loops)) or [""]
        begin, end, step = inner.loops.get(first, ("0", "0", 1))
        cut = c.integer(int(begin), int(end)) if begin.isdigit() and end.isdigit() and int(begin) < int(end) and c.chance(30) else None
        for span in [(begin, end)] if cut is None else [(begin, str(cut)), (str(cut + c.pick((0, 0, 1))), end)]:
            if first:
                inside.loops[first] = (*span, step)
            with body.blocks(inside.heads([*([first] if first else []), *rest_of_loops])):
                body.add(f"acc = add(acc, x[{at}])  ~ term y[{at}]")
        if joins:
            parts = str(lanes) if c.chance(70) else str(max(lanes + c.pick((-1, 1)), 1))
            first, place = c.pick(((0, "threadIdx.x"), (0, "threadIdx.x"), (0, f"{lanes} - 1 - threadIdx.x"), (0, "threadIdx.x//2")))
            again = [f"ws[threadIdx.y, {c.integer(0, lanes - 1)}] = copy(acc)  ~ part y"] if c.chance(15) else []
            body.add("SYNC block", f"ws[threadIdx.y, {place}] = copy(acc)  ~ part y", *again, "SYNC block", "total = copy(0.0)  ~ part y")
            with body.block(f"FOR r in {first}..{parts}"):
                body.add("total = add(total, ws[threadIdx.y, r])  ~ part y")
            with body.block(" && ".join([f"IF threadIdx.x == {c.pick((0, 0, 0, 1))}", *own.guards])):
                body.add(f"y[{out}] = copy(total)  ~ value y[{out}]")
        else:
            body.add(f"y[{out}] = copy(acc)  ~ value y[{out}]")
    storage = ["  LOCAL acc: float32[]"]
    if joins:
        storage += [f"  SHARED ws: float32[{grid.spans['threadIdx.y']}, {lanes}]", "  LOCAL total: float32[]"]
    return storage


def replaced_guards(m: Map, guards: list[str]) -> Map:
    """The same loops under other conditions."""
    return Map(m.index, guards, m.loops)


def changed(c: Chooser, m: Map) -> Map:
    """The map, or with something changed wherever it stands."""
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


def mapped(c: Chooser) -> Small:
    """A kernel and the sizes to look at. Raises :class:`~taskfuse.errors.TaskfuseError` if it is none."""
    kind = c.pick((copied, copied, staged, summed))
    rank = c.pick((1, 2, 2, 3)) if kind is not summed else c.pick((1, 2, 2))
    symbolic, least = c.chance(35), c.pick((1, 1, 0))
    sizes = [NAMES[k] if symbolic and c.chance(70) else str(c.pick(SIZES)) for k in range(rank)]
    grid, body = Grid(), Text()
    declared = kind(c, sizes, grid, body)
    out, value = (sizes, f"copy({'b' if kind is staged else 'x'}[{indices(sizes)}])")
    if kind is summed:
        out, value = sizes[:-1], f"reduce add of copy(x[{indices(sizes)}]) from 0.0"
    over = f" over ({', '.join(sizes)}) at ({indices(out)})" if kind is summed else ""
    dims = [n for n in sizes if not n.isdigit()]
    lines = [
        f"KERNEL mapped(x: float32[{', '.join(sizes)}]) -> (y: float32[{', '.join(out)}])",
        *([f"  DIM {', '.join(f'{n} min {least}' for n in dims)}"] if dims else []),
        grid.line(),
        *declared,
        f"  DEFINE y: float32[{', '.join(out)}]{over} = {value}",
        "",
        *body.lines,
        "",
    ]
    text = "\n".join(lines)
    if c.chance(25):
        at = text.index("\n\n")
        text = text[:at] + other(c, text[at:])
    tried = [{n: e[n] for n in dims} for e in TRIED if all(e[n] >= least for n in dims)]
    return Small(parse_kernel(text), kind.__name__, tuple(tried if dims else tried[:1]))
