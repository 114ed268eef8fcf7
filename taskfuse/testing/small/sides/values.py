"""Conditions on values: targets of stores, alignment, divisors and negative operands, steps, trips, advances, names."""

from __future__ import annotations

from dataclasses import replace

from taskfuse.ir.scalar import Expr, FloorDiv, Mod, children
from taskfuse.kir import expressions, walk
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.sides.side import AXES, Declared, Shape, Side, Thread, condition, number, shape
from taskfuse.testing.small.text import Text


def index(c: Chooser, of: Shape, others: tuple[str, ...] = ()) -> str:
    """An index made of thread indices, and what else has a value."""
    names = [a for a, n in zip(AXES, of.extents, strict=True) if n > 1] or ["threadIdx.x"]
    names += others
    u, v = c.pick(names), c.pick(names)
    m, k = c.pick((2, 3, 4, 8, 32)), c.integer(0, 3)
    x = of.extents[0]
    forms = (u, of.linear, f"{u} + {v}", f"{m}*{u} + {v}", f"({of.linear})//{m}", f"({of.linear}) % {m}", f"{u} - {v}", f"{u} + {k}", f"{k}", f"{v} + {x}*{u}")
    forms += (
        f"xor({of.linear}, {k})",
        f"{of.threads - 1} - ({of.linear})",
        f"{u}*{v}",
        f"max({u}, {v})",
        f"min({u}, {k})",
        f"({u} - {k})//{m}",
        f"({u} - {k}) % {m}",
        f"{u} % {m}*{x} + {v}",
    )
    return c.pick(forms) if c.chance(75) else of.linear


def stores(c: Chooser) -> Side:
    """Selected threads store to Shared or Global memory, and load after a barrier, or without one."""
    of = shape(c)
    blocks = c.pick((1, 1, 2))
    trips = c.pick((1, 1, 2, 3))
    others = ("i",) * (trips > 1) + ("blockIdx.x",) * (blocks > 1)
    cond = condition(c, of, others) if c.chance(75) else ""
    where = index(c, of, others)
    values = [{"i": i, "blockIdx.x": b} for i in range(trips) for b in range(blocks)]
    to_global = c.chance(40)
    written: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    low = high = 0
    for v in values:
        for thread in of.selected(cond, v) if cond else of.all():
            i = number(where, thread, v)
            low, high = min(low, i), max(high, i)
            place = (i,) if to_global else (i, v["blockIdx.x"])
            written.setdefault(place, set()).add((*thread, v["blockIdx.x"]))
    size = max(high + 1, 1) if not c.chance(6) else max(high, 1)
    races = any(len(who) > 1 for who in written.values())
    outside = low < 0 or high >= size
    h = Declared(of, outputs=[f"y: float32[{blocks}, {of.threads}]", f"z: float32[{size}]"], grid=f"({blocks}, 1, 1)")
    h.lines.append(f"SHARED s: float32[{size}] align 16")
    t = Text()
    target = "z" if to_global else "s"
    back = c.pick(("none", "own", "sync", "sync", "race"))
    right: bool | None = not races and not outside
    with t.blocks([f"FOR i in 0..{trips}"] if trips > 1 else []):
        with t.blocks([f"IF {cond}"] if cond else []):
            t.add(f"{target}[{where}] = copy(x[{of.linear}])")
            if back == "own":
                t.add(f"y[blockIdx.x, {of.linear}] = copy({target}[{where}])")
        if back == "sync" and not to_global:
            t.add("SYNC block", f"y[blockIdx.x, {of.linear}] = copy(s[({of.linear} + 1) % {size}])", "SYNC block")
            right = right or (None if not outside else False)
        if back == "race" and not to_global:
            t.add(f"y[blockIdx.x, {of.linear}] = copy(s[({of.linear} + 1) % {size}])")
            right = None
    if races and back == "sync":
        right = None
    return h.side("stores", t, right)


def alignment(c: Chooser) -> Side:
    """Vectors, asynchronous copies, rows of matrices, boxes: all at addresses that must be multiples of what they move."""
    of = Shape(c.pick(((32, 1, 1), (8, 4, 1), (15, 1, 1), (16, 2, 1), (4, 1, 1))))
    dtype, size = c.pick((("float32", 4), ("bfloat16", 2), ("int8", 1), ("float32", 4)))
    width = c.pick((2, 4, 8))
    while width * size > 16 or width * size < 2:
        width = 2 if size > 4 else width // 2
    bytes_ = width * size
    a, b = c.pick((width, width, 2 * width, width // 2 or 1, width + 1)), c.pick((0, 0, width, 1, width // 2, 2 * width))
    row = c.pick((64 * width, 64 * width, 64 * width + 1, 64 * width + width // 2))
    asynchronous = c.chance(40) and bytes_ >= 4
    align = c.pick((16, 16, bytes_, size)) if not asynchronous else c.pick((16, bytes_))
    offset = c.pick(("", f" @ {align * c.integer(0, 3)}"))
    i = c.pick(("0", "1", "threadIdx.x % 2", "k"))
    trips = c.pick((1, 2))
    a2, b2 = (a, b) if c.chance(60) else (width, 0)
    n = of.threads
    h = Declared(of, [f"SHARED s: {dtype}[2, {row}] align {align}{offset}"], [f"x: {dtype}[2, {row}]"], [f"y: {dtype}[2, {row}]"])
    lane = of.linear
    near, far = f"{a}*({lane}) + {b}", f"{a2}*({lane}) + {b2}"
    t = Text()
    right = True
    for k in range(trips):
        for thread in of.all():
            at = number(i, thread, {"k": k})
            for e in (near, far):
                j = number(e, thread, {"k": k})
                right = right and (at * row + j) * size % bytes_ == 0 and 0 <= j <= row - width and at < 2
    aligned = align % bytes_ == 0
    seen: dict[tuple[int, int], tuple[Thread, int]] = {}
    races = False
    for k in range(trips):
        for thread in of.all():
            at, j = number(i, thread, {"k": k}), number(near, thread, {"k": k})
            for e in range(j, j + width):
                if seen.setdefault((at, e), (thread, k)) != (thread, k):
                    races = races or asynchronous or seen[at, e][0] != thread
    with t.block(f"FOR k in 0..{trips}"):
        if asynchronous:
            t.add(f"COPY.async s[{i}, {near}] <- x[{i}, {far}] width {width}" + c.pick(("", "", " if threadIdx.x < 3", " if k > 0")))
        else:
            t.add(f"COPY s[{i}, {near}] <- x[{i}, {far}] width {width}")
    if asynchronous:
        t.add("COMMIT copy", "WAIT_GROUP copy <= 0")
    t.add("SYNC block", f"y[0, {lane}] = copy(s[0, {n - 1} - ({lane})])")
    return h.side("alignment", t, None if (right and (races or not aligned)) or (asynchronous and not right) else right)


def rows(c: Chooser) -> Side:
    """Rows of 16 bytes that the lanes of a warp address."""
    of = Shape((32, c.pick((1, 2)), 1))
    inner = c.pick((8, 8, 16, 12, 9, 4))
    column = c.pick(("0", "0", "8*(threadIdx.x//16)", "4", "threadIdx.x//8", "2"))
    count = c.pick((1, 2, 4))
    lines = c.pick((32, 32, 16, 8, 31))
    row = c.pick(("threadIdx.x", "threadIdx.x % 16", "threadIdx.x % 8", "threadIdx.x//2"))
    stores_ = c.chance(50)
    h = Declared(of, [f"LOCAL f: bfloat16[{2 * count}]", f"SHARED s: bfloat16[{of.extents[1]}, {lines}, {inner}] align {c.pick((16, 128, 16, 8))}"])
    access = f"s[threadIdx.y, {row}, {column}]"
    t = Text()
    with t.block(f"FOR v in 0..{2 * count} UNROLL"):
        t.add(f"f[v] = cast(x[{of.linear}])")
    t.add(f"STMATRIX.x{count} {access} <- f[0]" if stores_ else f"LDMATRIX.x{count} f[0] <- {access}")
    t.add(f"y[{of.linear}] = cast(f[0])")
    return h.side("rows of matrices", t, None)


def arithmetic(c: Chooser) -> Side:
    """Divisors that may be 0, operands that may be negative, in indices, conditions, bounds and counts."""
    of = shape(c)
    names = [a for a, n in zip(AXES, of.extents, strict=True) if n > 1] or ["threadIdx.x"]
    symbolic = c.chance(50)
    u, v = c.pick(names), c.pick((*names, *["M"] * (2 * symbolic), "i"))
    k = c.integer(0, 4)
    tried = (0, 1, 2, 3) if not c.chance(50) else (1, 2, 3)
    divisor = c.pick((v, f"{v} - {k}", f"{v} + 1", f"{v} % 3", f"{v}//2", f"max({v}, 1)", f"{v} + {k}"))
    dividend = c.pick((u, of.linear, f"{u} - {k}", f"{k} - {u}", f"2*{u} + 1", f"{u} - {v}"))
    e = f"({dividend}){c.pick(('//', ' % '))}({divisor})"
    guard = c.pick(("", "", f"{divisor} > 0", f"{divisor} != 0", f"{v} > 0", f"{u} > {v}", f"{divisor} > 0 && {u} >= {k}"))
    offset = c.pick((0, 0, 8, 64))
    size = c.pick((64, 128, 256))
    h = Declared(of, inputs=[f"x: float32[{size}]"], outputs=[f"y: float32[3, {of.threads}]"])
    if symbolic:
        h.dims = f"M min {tried[0]} max 3"
    t = Text()
    right = True
    trips = c.pick((3, 3, 1))
    values = [{"i": i, "M": m} for i in range(trips) for m in (tried if symbolic else (0,))]
    use = c.pick(("index", "index", "condition", "value"))
    for env in values:
        for thread in of.all():
            try:
                if guard and not number(guard, thread, env):
                    continue
                at = number(e, thread, env) + offset
            except ZeroDivisionError:
                right = False
                continue
            right = right and (use != "index" or 0 <= at < size)
    with t.block(f"FOR i in 0..{trips}"), t.blocks([f"IF {guard}"] if guard else []):
        match use:
            case "index":
                t.add(f"y[i, {of.linear}] = copy(x[{e} + {offset}])")
            case "condition":
                with t.block(f"IF {e} > 0"):
                    t.add(f"y[i, {of.linear}] = copy(x[0])")
            case _:
                t.add(f"y[i, {of.linear}] = cast(index({e}))")
    side = h.side("arithmetic", t, right, [{"M": m} for m in tried] if symbolic else ({},))
    divides = any(_divides(e) for s in walk(side.kernel) for e in expressions(s))
    return side if divides else replace(side, right=None)  # a division that was simplified away has no divisor


def hidden(c: Chooser) -> Side:
    """Divisors that may be 0, and indices of tables that may be outside, beside what one extent of the call decides or multiplies by 0."""
    of = Shape(c.pick(((32, 1, 1), (8, 4, 1))))
    least, k = c.pick((0, 1)), c.integer(0, 3)
    where = c.pick((f"M - {k}", f"{k} - M", "M", f"M//2 - {k % 2}", f"M + {k}"))
    table = c.chance(35)
    asked = f"clamp(t[{where} of 4], 1, 2)" if table else f"({c.pick((of.linear, '8'))})//({where})"
    said = f"1//(({where} >= 0)*({where} < 4))" if table else asked  # the same as Python has it: without a value where that has none
    decided = c.pick((f"M > {k}", f"M != {k}", f"M == {k}", f"M < {c.integer(0, 3)}"))
    factor = c.pick((f"(M - {k})", "M", "(M//3)"))
    form = c.pick(
        (
            f"IF {asked} > 0 && {decided}",
            f"IF {decided} && {asked} > 0",
            f"IF {asked} > 0 || {decided}",
            f"IF {decided} || {asked} > 0",
            f"FOR i in 0..min({factor}*({asked}), 2)",
            f"FOR i in 0..2 step max({factor}*({asked}), 1)",
            f"IF ({factor}*({asked})) % 3 < 1",
        )
    )
    right: bool | None = True
    question = form.replace(asked, said).partition(" ")[2].removeprefix("i in 0..").removeprefix("2 step ")
    for m in range(least, 4):
        for thread in of.all():
            try:
                number(question, thread, {"M": m})
            except ZeroDivisionError:
                right = False
            if right and not table and number(where, thread, {"M": m}) < 0:
                right = None  # divisors below 0 are outside the model
    h = Declared(of, inputs=[f"x: float32[{of.threads}]", "t: int32[4]"], dims=f"M min {least} max 3")
    t = Text()
    with t.block(form):
        t.add(f"y[{of.linear}] = copy(x[{of.linear}])")
    return h.side("hidden", t, right, [{"M": m} for m in range(least, 4)])


def _divides(e: Expr) -> bool:
    return isinstance(e, (FloorDiv, Mod)) or any(map(_divides, children(e)))


def steps(c: Chooser) -> Side:
    """Loops whose bounds or steps are symbols, or depend on threads, around stores and barriers."""
    of = shape(c)
    names = [a for a, n in zip(AXES, of.extents, strict=True) if n > 1] or ["threadIdx.x"]
    u = c.pick((*names, "blockIdx.x"))
    least = c.pick((0, 1, 2))
    step = c.pick(("1", "2", "M", "M", f"{u} + 1", u, f"{u} % 2 + 1", "M - 1", "max(M, 1)", f"{(of.linear)}//32 + 1", f"{u} - 1"))
    start = c.pick(("0", "0", u, f"{u} % 2", f"({of.linear})//32", "M"))
    stop = c.pick(("4", "M", f"{u} + 2", f"4 - ({of.linear})//32", f"M*({of.linear})//32", "3"))
    guard = c.pick(("", "", "", "M > 0", f"{u} > 0"))
    meets = c.pick(("", "", "SYNC warp", "SYNC block"))
    h = Declared(of, [f"SHARED s: float32[{of.threads}] align 16"], outputs=[f"y: float32[{of.threads}]"], dims=f"M min {least} max 4")
    t = Text()
    right = True
    for m in range(least, 5):
        came: dict[int, int] = {}
        for thread in of.all():
            env = {"M": m, "blockIdx.x": 0}
            if guard and not number(guard, thread, env):
                continue
            i, trips = number(start, thread, env), 0
            while i < number(stop, thread, env) and trips < 40:
                trips += 1
                by = number(step, thread, env)
                if by <= 0:
                    right = False
                    break
                i += by
            came[of.number(thread)] = trips
        group = 32 if meets == "SYNC warp" else of.threads if meets else 1
        for first in range(0, of.threads, group):
            right = right and len({came.get(k, 0) for k in range(first, min(first + group, of.threads))}) == 1
    with t.blocks([f"IF {guard}"] if guard else []), t.block(f"FOR i in {start}..{stop}" + ("" if step == "1" else f" step {step}")):
        if meets:
            t.add(f"s[{of.linear}] = copy(x[{of.linear}])", meets)
        t.add(f"y[{of.linear}] = copy({f's[{of.linear}]' if meets else f'x[{of.linear}]'})")
    return h.side("steps", t, None if meets == "SYNC warp" and not right else right, [{"M": m} for m in range(least, 5)])


def advances(c: Chooser) -> Side:
    """A cursor that threads advance by a computed number, in a ring of their own."""
    of = Shape(c.pick(((32, 1, 1), (32, 2, 1), (8, 4, 1), (16, 1, 1))))
    slots, trips = c.pick((1, 2, 3, 4)), c.pick((1, 2, 3))
    by = c.pick(
        (
            "1",
            "1",
            "2",
            "0 - 1",
            "1 - 2*(k % 2)",
            "threadIdx.x",
            "threadIdx.y",
            "threadIdx.x % 2",
            "k",
            "k - 1",
            "M",
            "M - 1",
            "0",
            f"{slots}",
            f"{slots} + 1",
            "3",
        )
    )
    by2 = c.pick(("", "", "", "1", "0 - 1"))
    other = c.pick(("threadIdx.x", f"{of.extents[0] - 1} - threadIdx.x", "threadIdx.x"))
    meets = c.pick(("SYNC block", "SYNC block", "", "SYNC warp"))
    twice = c.chance(40)
    least = c.pick((0, 1))
    h = Declared(
        of,
        [f"SHARED s: float32[{slots}, {of.extents[1]}, {of.extents[0]}] align 16"],
        outputs=[f"y: float32[{trips}, {of.extents[1]}, {of.extents[0]}]"],
        dims=f"M min {least} max 3",
    )
    h.inputs = [f"x: float32[{of.extents[1]}, {of.extents[0]}]"]
    t = Text()
    t.add(f"c = CURSOR(slots {slots}, slot {c.integer(0, slots - 1)}, parity {c.integer(0, 1)})")
    with t.block(f"FOR k in 0..{trips}"):
        t.add("s[c.slot, threadIdx.y, threadIdx.x] = copy(x[threadIdx.y, threadIdx.x])", *([meets] if meets else []))
        t.add(f"y[k, threadIdx.y, threadIdx.x] = copy(s[c.slot, threadIdx.y, {other}])", *([meets] if meets and twice else []))
        with t.blocks([f"IF {condition(c, of, ['k'])}"] if c.chance(25) else []):
            t.add(f"c.advance({by})")
        if by2:
            t.add(f"c.advance({by2})")
    return h.side("advances", t, None, [{"M": m} for m in range(least, 4)])


def names(c: Chooser) -> Side:
    """Loops, extents and cursors whose names look like something else, in kernels whose verdict must not depend on them."""
    of = Shape(c.pick(((32, 2, 1), (8, 2, 1), (32, 1, 1))))
    rows_ = of.extents[1]
    outer = c.pick(("i", "k", "c"))
    inner = c.pick(
        (
            f"{outer}.trip",
            f"{outer}.0",
            f"{outer}.a",
            f"{outer}.b",
            f"{outer}.slot",
            f"{outer}.1",
            "j",
            "threadIdx",
            "t0",
            "u",
            f"{outer}_",
            "N.trip",
            f"{outer}.step",
            f"{outer}.start",
        )
    )
    dim = c.pick(("N", "threadIdx.w", "blockIdx", "i.n", f"{outer}.N", f"{outer}.trip", "c.phase", "x.0", "N.0", "first"))
    start = c.pick(("0", "threadIdx.y", "0"))
    step = c.pick(("1", "2", str(rows_)))
    t = Text()
    h = Declared(
        of,
        [f"SHARED s: float32[4, {of.extents[0]}] align 16"],
        inputs=[f"x: float32[4, {of.extents[0]}]"],
        outputs=[f"y: float32[4, 4, {of.extents[0]}]"],
        dims=f"{dim} max 4",
    )
    meets = c.pick(("SYNC warp", "SYNC block", ""))
    again = c.chance(50)
    where = c.pick((outer, outer, f"({outer} + {inner}) % 4", inner))
    with t.block(f"FOR {outer} in {start}..4" + ("" if step == "1" else f" step {step}")), t.block(f"FOR {inner} in 0..{c.pick((dim, '4', '2'))}"):
        t.add(f"s[{where}, threadIdx.x] = add(x[{outer}, threadIdx.x], index({inner}))", *([meets] if meets else []))
        last = of.extents[0] - 1
        t.add(f"y[{outer}, {inner}, threadIdx.x] = copy(s[{where}, {c.pick((f'{last} - threadIdx.x', 'threadIdx.x'))}])", *([meets] if meets and again else []))
    return h.side("names", t, None, [{dim: n} for n in (4, 0, 1, 3)])
