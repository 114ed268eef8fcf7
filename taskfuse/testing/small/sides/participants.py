"""Conditions on the threads that arrive, initialize, load, synchronize, release, or execute instructions of whole warps."""

from __future__ import annotations

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.sides.side import AXES, Declared, Shape, Side, Thread, condition, number, shape
from taskfuse.testing.small.text import Text


def _count(c: Chooser, true: int) -> int:
    """The right number, or, in every second kernel, one nearby."""
    if true > 0 and c.chance(50):
        return true
    return max(c.pick((true, true + 1, true - 1, -(-true // 32) * 32, 1, 2 * true, true // 2)), 1)


def arrivals(c: Chooser) -> Side:
    """Selected threads arrive at an mbarrier, for which all wait; they may pass data on, once or in each iteration of a loop."""
    of = shape(c)
    trips = c.pick((0, 1, 2, 3))
    looped = trips and c.chance(60)
    cond = condition(c, of, ["k"] if looped else [])
    counts = {len(of.selected(cond, {"k": k})) for k in range(trips)} if looped else {len(of.selected(cond))}
    true = counts.pop() if len(counts) == 1 else 0
    count = _count(c, true)
    h, t = Declared(of, ["MBARRIER b[1]"]), Text()
    hands = c.chance(40)
    if hands:
        h.lines.append(f"SHARED s: float32[2, {of.threads}] align 16")
    with t.block(f"IF {of.first}"):
        t.add(f"INIT b[0] count {count}")
    t.add("SYNC block")
    inits = ["q = CURSOR(slots 1, slot 0, parity 0)", "d = CURSOR(slots 2, slot 0, parity 0)"]
    if looped:
        t.add(*inits)
    element = f"s[d.slot, {of.linear}]" if looped else f"s[0, {of.linear}]"
    with t.blocks([f"FOR k in 0..{trips}"] if looped else []):
        with t.block(f"IF {cond}"):
            if hands:
                t.add(f"{element} = copy(x[{of.linear}])")
            t.add("ARRIVE b[0]")
        t.add(f"WAIT b[0] parity {'q.parity' if looped else 0}")
        if hands:
            t.add(f"y[{of.linear}] = copy({element.replace(f', {of.linear}', f', {of.threads - 1} - ({of.linear})')})")
        if looped:
            t.add("q.advance(1)", "d.advance(1)")
    if not hands:
        t.add(f"y[{of.linear}] = copy(x[{of.linear}])")
    if looped and trips > 1 and count < of.threads:  # who waits and does not arrive may miss a phase
        return h.side("arrivals", t, False)
    return h.side("arrivals", t, true > 0 and count == true and (not hands or not looped or None))


def symbolic(c: Chooser) -> Side:
    """The same in blocks of a symbolic extent."""
    step = c.pick((6, 12, 4, 8))
    least = c.pick((step, 2 * step))
    tried = [n for n in range(least, 8 * step + 1, step)][:6]
    a, b = c.pick((2, 3, 4)), c.pick((2, 3, 6))
    cond = c.pick(
        (
            f"threadIdx.x % {a} == 0",
            f"threadIdx.x % {a} == 0 && threadIdx.x % {b} == 0",
            f"threadIdx.x % {a} == {a - 1} && threadIdx.x % {b} == {c.integer(0, b - 1)}",
            f"threadIdx.x < {c.integer(1, step)}",
            f"threadIdx.x >= {c.integer(1, step)}",
            f"threadIdx.x < {c.integer(1, step)} && threadIdx.x % {a} == 0",
            f"threadIdx.x < N - {c.integer(0, step)}",
            f"threadIdx.x == N - 1 || threadIdx.x == {c.integer(0, 3)}",
            f"threadIdx.x//{a} == {c.integer(0, 2)}",
            f"2*threadIdx.x < N && threadIdx.x % {a} == 0",
        )
    )
    count = c.pick(("N", f"N//{a}", f"N//{b}", f"N//{a * b}", "N//6", "1", "2", str(step), f"N - {c.integer(0, step)}", f"N//{a} + 1", f"N//{2 * a}"))
    if c.chance(30):
        ones = {len(Shape((n, 1, 1)).selected(cond, {"N": n})) for n in tried}
        count = str(ones.pop()) if len(ones) == 1 else count
    pairs = [(len(Shape((n, 1, 1)).selected(cond, {"N": n})), number(count, (0, 0, 0), {"N": n})) for n in tried]
    h = Declared(Shape((1, 1, 1)), ["MBARRIER b[1]"], dims=f"N multiple_of {step} min {least} max {tried[-1]}", block="(N, 1, 1)")
    h.inputs, h.outputs = ["x: float32[N]"], ["y: float32[N]"]
    t = Text()
    with t.block("IF threadIdx.x == 0"):
        t.add(f"INIT b[0] count {count}")
    t.add("SYNC block")
    with t.block(f"IF {cond}"):
        t.add("ARRIVE b[0]")
    t.add("WAIT b[0] parity 0", "y[threadIdx.x] = copy(x[threadIdx.x])")
    return h.side("symbolic block", t, all(m == n and m > 0 for m, n in pairs), [{"N": n} for n in tried])


def loader(c: Chooser) -> Side:
    """The threads that initialize, fence, expect and load are each selected by a separate condition."""
    of = shape(c)
    slots = c.pick((1, 2))
    h = Declared(
        of,
        [f"SHARED s: float32[{slots}, 4, 32] align 128", f"MBARRIER b[{slots}]"],
        ["x: float32[8, 32]"],
        [f"y: float32[4, {of.threads}]"],
        maps=["m = x box (4, 32) swizzle 0"],
    )

    def one() -> tuple[str, list[Thread]]:
        if c.chance(25):
            cond = condition(c, of)
        else:
            chosen = c.pick(of.all())
            cond = " && ".join(f"{a} == {i}" for a, n, i in zip(AXES, of.extents, chosen, strict=True) if n > 1 or a == AXES[0])
        return cond, of.selected(cond)

    who = [one() for _ in range(slots)]
    if slots == 2 and c.chance(40):
        who[1] = who[0]
    fence = c.pick((*who, *who, one())) if c.chance(40) else None
    expects = one()
    loads = expects if c.chance(60) else one()
    t = Text()
    for k, (cond, _) in enumerate(who):
        with t.block(f"IF {cond}"):
            t.add(f"INIT b[{k}] count 1")
            if fence is None:
                t.add("FENCE mbarrier_init")
    if fence is not None:
        with t.block(f"IF {fence[0]}"):
            t.add("FENCE mbarrier_init")
    synced = not c.chance(4)
    t.add("SYNC block" if synced else "SYNC warp")
    together = loads is expects and c.chance(70)
    for k in range(slots):
        with t.block(f"IF {expects[0]}"):
            t.add(f"EXPECT b[{k}] bytes 512")
            if together:
                t.add(f"TMA s[{k}, 0, 0] <- m({4 * k}, 0) on b[{k}]")
        if not together:
            with t.block(f"IF {loads[0]}"):
                t.add(f"TMA s[{k}, 0, 0] <- m({4 * k}, 0) on b[{k}]")
        t.add(f"WAIT b[{k}] parity 0")
    with t.block("FOR i in 0..4"):
        t.add(f"y[i, {of.linear}] = copy(s[{slots - 1}, i, ({of.linear}) % 32])")
    good = all(len(w) == 1 for _, w in who) and len(expects[1]) == 1 and len(loads[1]) == 1
    fenced = fence is None or all({*w} <= {*fence[1]} for _, w in who)
    return h.side("loader", t, None if not synced or (good and fenced and loads[1] != expects[1]) else good and fenced)


def idle(c: Chooser) -> Side:
    """The threads that initialize mbarriers that stay unused, since their loop has no trips."""
    of = shape(c)
    slots = c.pick((1, 2))
    h, t = Declared(of, [f"MBARRIER b[{slots}]"]), Text()
    cond = of.first if c.chance(50) else condition(c, of)
    chosen = of.selected(cond)
    numbers = c.order(range(slots)) if c.chance(70) else [0] * slots
    with t.block(f"IF {cond}"):
        t.add(*(f"INIT b[{k}] count {max(len(chosen), 1)}" for k in numbers))
    t.add("SYNC block")
    with t.blocks([f"FOR k in 0..{c.pick(('0', '0', '-1'))}", f"IF {cond}"]):
        t.add("ARRIVE b[0]")
    t.add(f"y[{of.linear}] = copy(x[{of.linear}])")
    return h.side("idle", t, None if not chosen else len(chosen) == 1 and len({*numbers}) == slots)


def whole_warps(c: Chooser) -> Side:
    """Instructions that a whole warp executes, by the threads that a condition selects."""
    of = shape(c)
    cond = condition(c, of) if c.chance(70) else f"({of.linear})//32 == {c.integer(0, (of.threads - 1) // 32)}"
    chosen = of.selected(cond)
    op = c.pick(("sync", "sync", "shuffle", "ldmatrix", "stmatrix", "mma", "wait", "commit", "fence", "block", "setmaxnreg"))
    whole = of.are_whole_warps(chosen)
    full = whole and len(chosen) % 32 == 0
    h = Declared(of, ["LOCAL r: float32[]", "LOCAL f: bfloat16[2]", f"SHARED s: bfloat16[{max(of.threads // 8, 1)}, 8, 8] align 16"])
    t = Text()
    t.add(f"r = copy(x[{of.linear}])", "f[0] = cast(r)", "f[1] = cast(r)")
    right: bool | None = whole or not chosen
    waits = c.chance(40)
    if waits:
        h.lines.append("MBARRIER go[1]")
        with t.block(f"IF {of.first}"):
            t.add(f"INIT go[0] count {max(len(chosen), 1)}")
        t.add("SYNC block")
    with t.block(f"IF {cond}"):
        match op:
            case "sync":
                t.add("SYNC warp")
            case "shuffle":
                t.add("SHUFFLE r <- r xor 1")
                right = full or not chosen
            case "ldmatrix" | "stmatrix":
                row = f"s[({of.linear})//8, ({of.linear}) % 8, 0]"
                if op == "stmatrix":
                    t.add(f"STMATRIX.x{c.pick((1, 2, 4))} {row} <- f[0]" if c.chance(10) else f"STMATRIX.x1 {row} <- f[0]")
                else:
                    t.add(f"LDMATRIX.x1 f[0] <- {row}")
                right = full or not chosen
            case "mma":
                h.lines += ["LOCAL acc: float32[4]", "LOCAL a: bfloat16[8]", "LOCAL b: bfloat16[4]"]
                t.add("MMA.m16n8k16.bfloat16 acc[0], a[0], b[0]")
                right = full or not chosen
            case "wait" | "commit" | "fence":
                t.add({"wait": "WAIT_GROUP wgmma <= 0", "commit": "COMMIT wgmma", "fence": "FENCE wgmma"}[op])
                right = None if right else right  # by whole warps; of warpgroups there is none here
            case "block":
                t.add("SYNC block")
                right = len(chosen) == of.threads or not chosen
            case _:
                t.add("SETMAXNREG 24")
                right = None
        if waits:
            t.add("ARRIVE go[0]")
    if waits and c.chance(60):
        with t.block("ELSE"):
            t.add("WAIT go[0] parity 0")
        right = right if chosen else None
    elif op == "sync" and not right:  # the rest of the warp exits, and is not waited for
        right = None
    t.add(f"y[{of.linear}] = copy(r)")
    return h.side(f"whole warp: {op}", t, right)


def named(c: Chooser) -> Side:
    """Named barriers whose number and count are computed."""
    of = Shape(c.pick(((32, 2, 1), (32, 3, 1), (64, 1, 1), (16, 4, 1), (96, 1, 1), (8, 8, 2), (48, 2, 1))))
    ids = c.pick(
        (
            "1",
            "threadIdx.y + 1",
            f"({of.linear})//32 + 1",
            "threadIdx.y",
            f"({of.linear})//32",
            "15 - threadIdx.y",
            "threadIdx.y*8 + 1",
            "i + 1",
            "threadIdx.x//32 + 1",
            "threadIdx.y % 2 + 1",
        )
    )
    trips = c.pick((1, 2, 3))
    cond = condition(c, of, ["i"]) if c.chance(50) else ""
    expected = c.pick(("32", "64", "96", "32*(threadIdx.y + 1)", "32 + 32*(i % 2)"))
    h, t = Declared(of, [f"SHARED s: float32[{of.threads}] align 16"], outputs=[f"y: float32[{trips}, {of.threads}]"]), Text()
    hands = c.chance(50)
    right = True
    for i in range(trips):
        rounds: dict[int, list[int]] = {}
        for thread in of.selected(cond, {"i": i}) if cond else of.all():
            rounds.setdefault(number(ids, thread, {"i": i}), []).append(number(expected, thread, {"i": i}))
        right = right and all(1 <= k <= 15 and {*wanted} == {len(wanted)} for k, wanted in rounds.items())
    with t.block(f"FOR i in 0..{trips}"), t.blocks([f"IF {cond}"] if cond else []):
        if hands:
            t.add(f"s[{of.linear}] = copy(x[{of.linear}])")
        t.add(f"SYNC named {ids}, {expected}")
        other = c.pick((of.linear, f"{of.threads - 1} - ({of.linear})", f"xor({of.linear}, 1)"))
        t.add(f"y[i, {of.linear}] = copy(s[{other}])" if hands else f"y[i, {of.linear}] = copy(x[{of.linear}])")
        if hands:
            t.add(f"SYNC named {ids}, {expected}")
    return h.side("named barrier", t, right and (not hands or None))


def grids(c: Chooser) -> Side:
    """Barriers across blocks: counts, conditions, and one counter for several of them."""
    of = Shape(c.pick(((32, 1, 1), (8, 4, 1), (4, 1, 1), (32, 2, 1))))
    blocks, n = c.pick((1, 2, 3)), of.threads
    h = Declared(of, ["GLOBAL w: float32[3, 64] align 16", "COUNTER c, d"], outputs=[f"y: float32[{blocks}, 2, {n}]"], grid=f"({blocks}, 1, 1)")
    t = Text()
    right: bool | None = True
    for k in range(c.pick((1, 2, 2))):
        cond = c.pick(("", "", condition(c, of), "blockIdx.x < 2", of.first))
        met = sum(len(of.selected(cond, {"blockIdx.x": b})) for b in range(blocks)) if cond else blocks * n
        count = c.pick((met, met, met, blocks * n, blocks)) or 1
        right = right and (count == met or met == 0) and k == 0
        other = f"blockIdx.x + 1 - {blocks}*((blockIdx.x + 1)//{blocks})"
        if c.chance(60):
            t.add(f"w[blockIdx.x, {of.linear}] = copy(x[{of.linear}])", *(["SYNC block"] if cond and c.chance(70) else []))
            right = None if cond or k else right
        with t.blocks([f"IF {cond}"] if cond else []):
            t.add(f"SYNC grid {c.pick(('c', 'c', 'd'))}, {count}")
        t.add(*(["SYNC block"] if cond and c.chance(70) else []), f"y[blockIdx.x, {k}, {of.linear}] = copy(w[{other}, {n - 1} - ({of.linear})])")
    return h.side("grid barrier", t, right if right is None or right else None)


def semaphores(c: Chooser) -> Side:
    """Blocks that pass slots on, under conditions on blocks, threads and cursors."""
    of = Shape(c.pick(((32, 1, 1), (8, 4, 1), (16, 1, 1), (4, 1, 1))))
    trips, slots = c.pick((0, 1, 2, 3, 4)), c.pick((1, 2, 3))
    who = of.first if c.chance(60) else condition(c, of)
    count = len(of.selected(who))
    given = _count(c, count)
    h = Declared(of, ["GLOBAL w: float32[4, 64] align 16", f"SEMAPHORE full[{slots}] count {given}, empty[{slots}] count {given}"], grid="(2, 1, 1)")
    h.inputs, h.outputs = [f"x: float32[{max(trips, 1)}, {of.threads}]"], [f"y: float32[{max(trips, 1)}, {of.threads}]"]
    on_cursor = c.pick(("", "", "", "q.slot == 0", "q.slot != 1", "q.parity == 0"))
    on_block = c.pick(("", "", "blockIdx.x == 0"))
    hands = c.chance(60)
    meets = "SYNC block" if not c.chance(8) else "SYNC warp"
    mover = c.pick((who, condition(c, of))) if c.chance(20) else ""
    t = Text()
    if on_cursor:
        t.add(f"q = CURSOR(slots {c.pick((2, 3))}, slot 0, parity 0)")

    def turn(name: str, parity: int, wait: str, give: str, ahead: str, use: str, advances: str) -> None:
        t.add(f"{name} = CURSOR(slots {slots}, slot 0, parity {parity})")
        with t.block(f"FOR k in 0..{trips}"):
            with t.blocks([f"IF {on_cursor}"] if on_cursor else []):
                with t.block(f"IF {who}"):
                    t.add(f"ACQUIRE {wait}[{name}.slot] phases {name}.phase{ahead}")
                if hands:
                    t.add(meets, use, meets)
                with t.block(f"IF {who}"):
                    t.add(f"RELEASE {give}[{name}.slot]")
                with t.blocks([f"IF {mover}"] if mover else []):
                    t.add(f"{name}.advance(1)")
            if on_cursor:
                t.add(advances)

    moves = [c.pick(("q.advance(1)", "q.advance(1)", "q.advance(2)", "q.advance(0)")) for _ in range(2)]
    if c.chance(60):
        moves[1] = moves[0]
    before = c.pick(("", "", "q.advance(1)")) if on_cursor else ""
    with t.block("IF blockIdx.x == 0"):
        if before:
            t.add(before)
        turn("p", 1, "empty", "full", "", f"w[p.slot, {of.linear}] = copy(x[k, {of.linear}])", moves[0])
    with t.block("ELSE"):
        turn("c", 0, "full", "empty", " + 1", f"y[k, {of.linear}] = copy(w[c.slot, {of.linear}])", moves[1])
    if on_block and not hands:
        with t.block(f"IF {on_block}"):
            t.add(f"y[0, {of.linear}] = copy(x[0, {of.linear}])")
    plain = not on_cursor and not mover and meets == "SYNC block"
    return h.side("semaphore", t, (given == count and count > 0) if plain and trips and count else None)
