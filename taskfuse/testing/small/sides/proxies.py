"""Conditions between the proxies: generic writes that an engine reads, an engine's writes that threads or engines read, in Shared and Global memory."""

from __future__ import annotations

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.sides.side import Declared, Shape, Side, condition
from taskfuse.testing.small.text import Text

FENCES = {"s": "FENCE proxy.async", "w": "FENCE proxy.async.global"}
"""The fence of each buffer that is handed on."""


def proxies(c: Chooser) -> Side:
    """Generic writes that an engine sees, and an engine's writes that threads or engines see, in Shared and Global memory."""
    of = Shape(c.pick(((32, 1, 1), (32, 2, 1), (16, 3, 1))))
    n = of.threads
    rows = -(-n // 32)
    h = Declared(of, [f"SHARED s: float32[{rows}, 32] align 128", f"SHARED r: float32[{rows}, 32] align 128", "MBARRIER b[1]"])
    h.inputs, h.outputs = [f"x: float32[{rows}, 32]"], [f"y: float32[{rows}, 32]", f"z: float32[{rows}, 32]"]
    h.maps = [f"of = y box ({rows}, 32) swizzle 0"]
    place, lane = f"({of.linear})//32", f"({of.linear}) % 32"
    t = Text()
    with t.block(f"IF {of.first}"):
        t.add("INIT b[0] count 1", "FENCE mbarrier_init")
    right: bool | None = True
    fence = c.pick(("all", "all", "none", "one", "after"))
    meets = c.pick(("SYNC block", "SYNC block", "SYNC block", "SYNC warp", ""))
    way = c.pick(("stored", "stored", "global", "twice", "asynchronous", "loaded"))
    needs = "FENCE proxy.async"
    if way != "stored":
        t.add("SYNC block")
    if way == "asynchronous":
        t.add(f"COPY.async s[{place}, {lane}] <- x[{place}, {lane}] width 1", "COMMIT copy")
        waited = c.pick(("before", "before", "after"))
        if waited == "before":
            t.add("WAIT_GROUP copy <= 0")
        right = right and waited == "before"
    elif way == "global":
        t.add(f"y[{place}, {lane}] = copy(x[{place}, {lane}])")
    else:
        t.add(f"s[{place}, {lane}] = copy(x[{place}, {lane}])")
    if way in ("stored", "twice", "asynchronous", "global"):
        if fence == "all":
            t.add(needs)
        elif fence == "one":
            with t.block(f"IF {condition(c, of)}"):
                t.add(needs)
        if meets:
            t.add(meets)
        if fence == "after":
            t.add(needs)
        right = None if fence == "one" or way == "global" else right and fence == "all" and (meets == "SYNC block" or (meets == "SYNC warp" and n == 32))
    with t.block(f"IF {of.first}"):
        match way:
            case "global" | "loaded":
                t.add(f"EXPECT b[0] bytes {128 * rows}", "TMA r[0, 0] <- of(0, 0) on b[0]")
            case _:
                t.add("TMA of(0, 0) <- s[0, 0]", "COMMIT bulk", f"WAIT_GROUP bulk{c.pick(('', '', '.read'))} <= 0")
                if "read" in t.lines[-1]:
                    right = False
        if way == "asynchronous" and not right:
            t.add("WAIT_GROUP copy <= 0")
    if way in ("global", "loaded"):
        t.add("WAIT b[0] parity 0", f"z[{place}, {lane}] = copy(r[{place}, {lane}])")
        right = None
    if way == "twice":
        again = c.chance(60)
        if again:
            t.add("SYNC block")
        t.add(c.pick((f"s[{place}, {lane}] = copy(0.0)", f"z[{place}, {lane}] = copy(y[{place}, {lane}])")))
        right = right and again if right is not None else None
        if right and "y[" in t.lines[-1]:
            right = None
    if way == "asynchronous" and not right:
        t.add("WAIT_GROUP copy <= 0")
    return h.side(f"proxies: {way}", t, right)


def handed(c: Chooser) -> Side:
    """One warp writes rows, an engine of another warp or block reads or overwrites them: how they are written, which fence is where, what passes between."""
    where = c.pick(("s", "s", "w", "w", "w"))
    over = where == "w" and c.chance(35)
    meets = c.pick(("mbarrier", "one arrival", "named", "block", *(("semaphore", "grid") if over else ("grid",) if where == "w" else ("cluster",)), "warp", ""))
    blocks = 2 if meets in ("semaphore", "grid") else 1
    how = c.pick(("threads", "threads", "copy", "thread") if where == "s" else ("threads", "threads", "store", "thread"))
    fence = c.pick(("after", "after", "after", "after", "before", "passed", "reader", "one", ""))
    kind = FENCES[where] if c.chance(85) else FENCES["w" if where == "s" else "s"]
    right = (fence == "after" or (fence == "one" and how in ("store", "thread"))) and kind == FENCES[where] and bool(meets) and meets != "warp"
    h = Declared(Shape((32, 2, 1)), ["SHARED s: float32[2, 32] align 128", "SHARED r: float32[2, 32] align 128", "MBARRIER b[1], got[1]"])
    h.inputs, h.outputs = ["x: float32[2, 32]"], ["w: float32[2, 32]", "y: float32[2, 32]"]
    h.maps = ["wm = w box (2, 32) swizzle 0", "ym = y box (2, 32) swizzle 0"]
    h.grid = f"({blocks}, 1, 1)"
    h.lines += [*(["SEMAPHORE full[1] count 1, empty[1] count 1"] if meets == "semaphore" else []), *(["COUNTER c"] if meets == "grid" else [])]
    t = Text()
    with t.block("IF threadIdx.x == 0 && threadIdx.y == 0"):
        t.add(f"INIT b[0] count {32 if meets == 'mbarrier' else 1}", "INIT got[0] count 1", "FENCE mbarrier_init")
    t.add("SYNC block")
    everyone = {"block": "SYNC block", "named": "SYNC named 1, 64", "cluster": "SYNC cluster", "grid": "SYNC grid c, 128"}.get(meets, "")
    writer = "threadIdx.y == 0" if blocks == 1 else "blockIdx.x == 0 && threadIdx.y == 0"
    reader = "threadIdx.y == 1" if blocks == 1 or not over else "blockIdx.x == 1 && threadIdx.y == 1"
    turns = ["FOR k in 0..1"] if meets == "semaphore" else []
    if turns:
        t.add("p = CURSOR(slots 1, slot 0, parity 1)", "q = CURSOR(slots 1, slot 0, parity 0)")
    with t.block(f"IF {writer}"), t.blocks(turns):
        t.add(*([kind] if fence == "before" else []))
        if turns:
            with t.block("IF threadIdx.x == 0"):
                t.add("ACQUIRE empty[p.slot] phases p.phase")
            t.add("SYNC warp")
        _write(t, where, how)
        right = _complete(c, t, how) and right
        match fence:
            case "after":
                t.add(kind)
            case "one":
                with t.block("IF threadIdx.x == 0"):
                    t.add(kind)
            case _:
                pass
        match meets:
            case "mbarrier":
                t.add("ARRIVE b[0]")
            case "one arrival" | "semaphore":
                together = c.chance(85)
                right = right and (together or how in ("store", "thread"))
                t.add(*(["SYNC warp"] if together else []))
                with t.block("IF threadIdx.x == 0"):
                    t.add("ARRIVE b[0]" if meets == "one arrival" else "RELEASE full[p.slot]")
            case "warp":
                t.add("SYNC warp")
            case _:
                pass
        t.add(*([kind] if fence == "passed" and not everyone else []), *(["p.advance(1)"] if turns else []))
    t.add(*([everyone] if everyone else []), *([kind] if fence == "passed" and everyone else []))
    with t.block(f"IF {reader}"), t.blocks(turns):
        t.add(*(["WAIT b[0] parity 0"] if meets in ("mbarrier", "one arrival") else []))
        with t.block("IF threadIdx.x == 0"):
            t.add(*(["ACQUIRE full[q.slot] phases q.phase + 1"] if meets == "semaphore" else []), *([kind] if fence == "reader" else []))
            if over:
                t.add("TMA wm(0, 0) <- s[0, 0]", "COMMIT bulk", "WAIT_GROUP bulk <= 0", *(["RELEASE empty[q.slot]"] if meets == "semaphore" else []))
            elif where == "w":
                t.add("EXPECT got[0] bytes 256", "TMA r[0, 0] <- wm(0, 0) on got[0]")
            else:
                t.add("TMA ym(0, 0) <- s[0, 0]", "COMMIT bulk", "WAIT_GROUP bulk <= 0")
        if where == "w" and not over:
            t.add("WAIT got[0] parity 0")
            with t.blocks(["IF blockIdx.x == 1"] if blocks == 2 else []):
                t.add(*(f"y[{k}, threadIdx.x] = copy(r[{k}, threadIdx.x])" for k in range(2)))
        t.add(*(["q.advance(1)"] if turns else []))
    return h.side(f"handed: {meets or 'nothing'}", t, None if right and turns else right)  # the proof asks for a ring whose slots are indexed


def _write(t: Text, where: str, how: str) -> None:
    """Both rows are written, by 32 threads, by one, by its TMA store, or by copies."""
    lane = "threadIdx.x"
    match how:
        case "copy":
            t.add(*(f"COPY.async {where}[{k}, {lane}] <- x[{k}, {lane}] width 1" for k in range(2)), "COMMIT copy")
        case "store":
            t.add(*(f"r[{k}, {lane}] = copy(x[{k}, {lane}])" for k in range(2)), FENCES["s"], "SYNC warp")
            with t.block("IF threadIdx.x == 0"):
                t.add("TMA wm(0, 0) <- r[0, 0]", "COMMIT bulk")
        case "thread":
            with t.block("IF threadIdx.x == 0"), t.block("FOR i in 0..32"):
                t.add(*(f"{where}[{k}, i] = copy(x[{k}, i])" for k in range(2)))
        case _:
            t.add(*(f"{where}[{k}, {lane}] = copy(x[{k}, {lane}])" for k in range(2)))


def _complete(c: Chooser, t: Text, how: str) -> bool:
    """Wait for an asynchronous operation, or almost. True if the wait suffices."""
    match how:
        case "copy":
            whole = c.chance(85)
            t.add(f"WAIT_GROUP copy <= {0 if whole else 1}")
            return whole
        case "store":
            whole = c.chance(85)
            with t.block("IF threadIdx.x == 0"):
                t.add(f"WAIT_GROUP bulk{'' if whole else '.read'} <= 0")
            return whole
        case _:
            return True
