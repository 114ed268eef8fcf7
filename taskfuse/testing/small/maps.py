"""Small kernels with index maps that do not come from lowering: copies, stages, sums and parts whose iterations are digits of random numbers.

Sums are also products, maxima and minima, with any initial value; tables are read at indices that are data. A map is first made right, as digits of loops,
threads and blocks in any order, or of one combined number; then some numbers, symbols and signs of the text are changed, in one place or in every occurrence
of the map. The generator does not know which of these kernels are right: their definitions decide.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from taskfuse.kir import parse_kernel
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.index_maps import BLOCKS, THREADS, Grid, Map, box, changed, indices, other, replaced_guards, store
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


COMBINES = {"add": "0.0", "mul": "1.0", "maximum": "-inf", "minimum": "inf"}
"""Combining functions of reductions, with their neutral elements."""


@dataclass(frozen=True, slots=True)
class Made:
    """The declarations for a body, the shape and the definition of its result; ``also``: more arguments."""

    declared: list[str]
    out: list[str]
    value: str
    also: str = ""


def copied(c: Chooser, sizes: list[str], grid: Grid, body: Text) -> Made:
    """One statement stores all, or two store a part each."""
    made = Made([], sizes, f" = copy(x[{indices(sizes)}])")
    if sizes[0].isdigit() and int(sizes[0]) > 1 and c.chance(30):
        cut = c.integer(1, int(sizes[0]) - 1)
        for begin, rows in ((0, cut), (cut, int(sizes[0]) - cut)):
            part = changed(c, box(c, [str(rows), *sizes[1:]], Grid(dict.fromkeys((*BLOCKS, *THREADS), "1"))))
            part.index[0] = f"{begin} + {part.index[0]}" if begin else part.index[0]
            store(body, c, part, "y", "copy(x[{}])", "value y")
        return made
    if not sizes[0].isdigit() and c.chance(30):
        cut = c.pick(("{}//2", "ceildiv({}, 2)", "min({}, 3)", "{} - 1", "max({} - 2, 0)")).format(sizes[0])
        for begin, end in (("0", cut), (cut, sizes[0])):
            part = box(c, sizes[1:], Grid(dict.fromkeys((*BLOCKS, *THREADS), "1"))) if sizes[1:] else Map([])
            part.index = ["row", *part.index]
            part.loops["row"] = begin, end, 1
            store(body, c, changed(c, part), "y", "copy(x[{}])", "value y")
        return made
    store(body, c, changed(c, box(c, sizes, grid)), "y", "copy(x[{}])", "value y")
    return made


def staged(c: Chooser, sizes: list[str], grid: Grid, body: Text) -> Made:
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
    declared = [f"  {c.pick(('SHARED', 'GLOBAL'))} b: float32[{shape}]", f"  DEFINE b: float32[{', '.join(sizes)}] = copy(x[{indices(sizes)}])"]
    return Made(declared, sizes, f" = copy(b[{indices(sizes)}])")


def padded(c: Chooser, sizes: list[str], grid: Grid, body: Text) -> Made:
    """An assembly in Shared memory: a part is copied up to an end, with zeros past it, by asynchronous copies or by choices."""
    n, front = c.integer(1, 6), c.integer(0, 3)
    sizes[:] = [str(n)]
    end, room = c.integer(0, n), c.integer(0, 2)
    limit = min(n, max(0, c.pick((end, end, end, end, end - front, end + front, end - 1))))
    front = min(front, n)
    body.add(*(f"b[{k}] = copy(x[{k}])  ~ value q[{k}]" for k in range(front)))
    with body.block(f"FOR j in 0..{n + room}"):
        if c.chance(60):
            body.add(f"COPY.async b[j + {front}] <- x[j] width 1 if j < {limit}  ~ value p[j]")
        else:
            body.add(f"b[j + {front}] = choose(x[j] if j < {limit}, 0.0)  ~ value p[j]")
    body.add("COMMIT copy", "WAIT_GROUP copy <= 0")
    with body.block(f"FOR k in 0..{front + n + room}"):
        body.add("y[k] = copy(b[k])  ~ value y[k]")
    whole = "whole q at (i0), p at (" if front else "whole p at ("
    declared = [f"  SHARED b: float32[{front + n + room}] align 16"]
    declared += [f"  DEFINE q: float32[{front}] = copy(x[i0])"] * bool(front)
    declared += [f"  DEFINE p: float32[{n + room}] = pick(x[i0] if i0 < {end}, otherwise 0.0)"]
    declared += [f"  DEFINE b: float32[{front + n + room}] = {whole}i0 + {front})"]
    return Made(declared, [str(front + n + room)], " = copy(b[i0])")


def gathered(c: Chooser, sizes: list[str], grid: Grid, body: Text) -> Made:
    """A table that a thread makes, or an input, read at indices that are data: one entry may be another, which few indices show."""
    n = c.pick(SIZES) * c.pick((1, 9, 17))  # also more entries than anybody looks at one by one
    sizes[:] = [str(n)]
    grid.spans["threadIdx.x"] = "32"
    table, declared = "x", list[str]()
    if c.chance(70):
        own = changed(c, box(c, sizes, Grid(dict.fromkeys((*BLOCKS, *THREADS), "1"))))
        at = taken = own.index[0]
        if c.chance(50):
            taken = c.pick((f"select({at} == {c.integer(0, n - 1)}, 0, {at})", f"min({at}, {max(n - 2, 0)})", f"min({at}, {n})", f"({at}) % {n}"))
        with body.blocks(["IF threadIdx.x == 0", *own.heads(c.order(sorted(own.loops)))]):
            body.add(f"b[{at}] = mul(x[{taken}], 2.0)  ~ value b[{at}]")
        body.add("SYNC block")
        table, declared = "b", [f"  SHARED b: float32[{n}]", f"  DEFINE b: float32[{n}] = mul(x[i0], 2.0)"]
    place = c.pick(("v", "v", "v", f"min(v, {n - 1})", f"xor(v, v//{n})", f"v - v//{max(n - 1, 1)}", f"(v + 1) % {n}"))
    with body.block("FOR k in 0..8"):
        body.add(f"GATHER y[k, threadIdx.x] <- {table}[{place}] at v = at[k, threadIdx.x] of {n}  ~ value y[k, threadIdx.x]")
    return Made(declared, ["8", "32"], f" = find {table}[v0] at at[i0, i1] of {n}", ", at: int32[8, 32]")


def summed(c: Chooser, sizes: list[str], grid: Grid, body: Text) -> Made:
    """The last axis is summed by each thread; or in parts by several threads, one of which combines them. The initial values of a sum and its parts are not
    always 0.
    """
    combine = c.pick(("add", "add", *COMBINES))
    nothing = COMBINES[combine]
    init = c.pick((nothing, nothing, "2.0"))
    start, joining = (c.pick((init, nothing)) if c.chance(60) else usual for usual in (init, nothing))
    kept, k = sizes[:-1], sizes[-1]
    joins = k.isdigit() and c.chance(50)
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
        body.add(f"acc = copy({start})  ~ start y")
        inside = replaced_guards(inner, [*inner.guards, *(own.guards if joins else [])])
        first, *rest_of_loops = c.order(sorted(inner.loops)) or [""]
        begin, end, step = inner.loops.get(first, ("0", "0", 1))
        cut = c.integer(int(begin), int(end)) if begin.isdigit() and end.isdigit() and int(begin) < int(end) and c.chance(30) else None
        for span in [(begin, end)] if cut is None else [(begin, str(cut)), (str(cut + c.pick((0, 0, 1))), end)]:
            if first:
                inside.loops[first] = (*span, step)
            with body.blocks(inside.heads([*([first] if first else []), *rest_of_loops])):
                body.add(f"acc = {combine}(acc, x[{at}])  ~ term y[{at}]")
        if joins:
            total = c.pick(("total", "acc"))
            parts = str(lanes) if c.chance(70) else str(max(lanes + c.pick((-1, 1)), 1))
            first, place = c.pick(((0, "threadIdx.x"), (0, "threadIdx.x"), (0, f"{lanes} - 1 - threadIdx.x"), (0, "threadIdx.x//2")))
            again = [f"ws[threadIdx.y, {c.integer(0, lanes - 1)}] = copy(acc)  ~ part y"] if c.chance(15) else []
            body.add("SYNC block", f"ws[threadIdx.y, {place}] = copy(acc)  ~ part y", *again, "SYNC block", f"{total} = copy({joining})  ~ part y")
            with body.block(f"FOR r in {first}..{parts}"):
                body.add(f"{total} = {combine}({total}, ws[threadIdx.y, r])  ~ part y")
            with body.block(" && ".join([f"IF threadIdx.x == {c.pick((0, 0, 0, 1))}", *own.guards])):
                body.add(f"y[{out}] = copy({total})  ~ value y[{out}]")
        else:
            body.add(f"y[{out}] = copy(acc)  ~ value y[{out}]")
    storage = ["  LOCAL acc: float32[]"]
    if joins:
        storage += [f"  SHARED ws: float32[{grid.spans['threadIdx.y']}, {lanes}]", "  LOCAL total: float32[]"]
    over = f" over ({', '.join(sizes)}) at ({indices(kept)})"
    return Made(storage, kept, f"{over} = reduce {combine} of copy(x[{indices(sizes)}]) from {init}")


def mapped(c: Chooser) -> Small:
    """A kernel and the sizes to look at. Raises :class:`~taskfuse.errors.TaskfuseError` if the text is not a kernel."""
    kind = c.pick((copied, copied, staged, summed, summed, gathered))
    kind = padded if kind is copied and c.chance(35) else kind
    rank = 1 if kind in (gathered, padded) else c.pick((1, 2, 2, 3)) if kind is not summed else c.pick((1, 2, 2))
    symbolic, least = c.chance(35), c.pick((1, 1, 0))
    sizes = [NAMES[k] if symbolic and c.chance(70) else str(c.pick(SIZES)) for k in range(rank)]
    grid, body = Grid(), Text()
    made = kind(c, sizes, grid, body)
    dims = [n for n in sizes if not n.isdigit()]
    lines = [
        f"KERNEL mapped(x: float32[{', '.join(sizes)}]{made.also}) -> (y: float32[{', '.join(made.out)}])",
        *([f"  DIM {', '.join(f'{n} min {least}' for n in dims)}"] if dims else []),
        grid.line(),
        *made.declared,
        f"  DEFINE y: float32[{', '.join(made.out)}]{made.value}",
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
