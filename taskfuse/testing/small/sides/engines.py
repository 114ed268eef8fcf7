"""Conditions on operations of asynchronous engines: bytes, boxes, registers."""

from __future__ import annotations

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.sides.side import Declared, Shape, Side, condition, number
from taskfuse.testing.small.text import Text


def ring_bytes(c: Chooser) -> Side:
    """A ring that is filled by bulk loads: who expects how many bytes, and who loads how often."""
    lanes = c.pick((32, 32, 16, 8))
    of = Shape((lanes, 2, 1))
    stages, trips = c.pick((1, 2)), c.pick(("N", "N", "2", "3", "0"))
    expects, loads = c.pick((0, 0, 1, 2, 3)), c.pick((0, 0, 1, 2, 3))
    if c.chance(60):
        loads = expects
    pieces = c.pick((1, 1, 2, 3))
    per = c.pick(
        (
            f"{128 * pieces}",
            f"{128 * pieces}",
            "128*threadIdx.x",
            "128*(threadIdx.x + 1)",
            f"{128 * pieces} + 0*k",
            "128*k",
            f"128*min(k + 1, {pieces})",
            f"{128 * pieces + 128}",
        )
    )
    times = c.pick((str(pieces), str(pieces), "threadIdx.x", "threadIdx.x + 1", "k", f"min(k + 1, {pieces})", f"threadIdx.x % {pieces + 1}"))
    n = 2 if trips == "N" else int(trips)
    right: bool | None = True
    for k in range(n):
        announced, brought = number(per, (expects, 0, 0), {"k": k}), 128 * number(times, (loads, 0, 0), {"k": k})
        right = right and announced == brought and brought <= 4 * 128
    if right and any(number(times, (loads, 0, 0), {"k": k}) == 0 for k in range(n)):
        right = None
    count = c.pick((1, 1, 1, 2)) if c.chance(30) else 1
    rest = ""  # what another thread expects
    if per == f"{128 * pieces}" and c.chance(30):
        rest = c.pick(("64", "128*k", f"{128 * pieces}", f"{128 * pieces + 128}", "k - 1"))
        per, count = f"{per} - ({rest})", 2
        right = None if right else right
    right = right if count == 1 or n == 0 or rest else False
    met = c.chance(85)
    h = Declared(of, [f"SHARED s: float32[{stages}, 4, 32] align 128", f"MBARRIER full[{stages}], empty[{stages}]"])
    h.inputs, h.outputs = [f"x: float32[{trips if trips != '0' else 1}, 32]"], [f"y: float32[{trips if trips != '0' else 1}, {lanes}]"]
    h.dims = "N max 4" if trips == "N" and c.chance(50) else "N" if trips == "N" else ""
    h.maps = ["m = x box (1, 32) swizzle 0"]
    t = Text()
    with t.block("IF threadIdx.x == 0 && threadIdx.y == 0"):
        with t.block(f"FOR i in 0..{stages}"):
            t.add(f"INIT full[i] count {count}", f"INIT empty[i] count {lanes}")
        t.add("FENCE mbarrier_init")
    t.add("SYNC block")
    with t.block("IF threadIdx.y == 0"):
        t.add(f"p = CURSOR(slots {stages}, slot 0, parity 1)")
        with t.block(f"FOR k in 0..{trips}"):
            t.add("WAIT empty[p.slot] parity p.parity")
            if met:
                t.add("SYNC warp")
            with t.block(f"IF threadIdx.x == {expects}"):
                t.add(f"EXPECT full[p.slot] bytes {per}")
            if rest:
                with t.block(f"IF threadIdx.x == {expects + 1}"):
                    t.add(f"EXPECT full[p.slot] bytes {rest}")
            with t.block(f"IF threadIdx.x == {loads}"), t.block(f"FOR j in 0..{times}"):
                t.add("TMA s[p.slot, j, 0] <- m(k, 0) on full[p.slot]")
            t.add("p.advance(1)")
    with t.block("ELSE"):
        t.add(f"c = CURSOR(slots {stages}, slot 0, parity 0)")
        with t.block(f"FOR k in 0..{trips}"):
            t.add("WAIT full[c.slot] parity c.parity", "y[k, threadIdx.x] = copy(s[c.slot, 0, threadIdx.x])", "ARRIVE empty[c.slot]", "c.advance(1)")
    if (expects != loads or not met or lanes < 32) and right:
        right = None
    return h.side("bytes", t, right, [{"N": k} for k in (3, 0, 1, 4)] if h.dims else ({},))


def boxes(c: Chooser) -> Side:
    """Boxes at the ends of buffers, at odd places, of extents 0 and 1."""
    of = Shape(c.pick(((32, 1, 1), (32, 2, 1), (15, 1, 1), (48, 1, 1))))
    rows, columns = c.pick((1, 2, 4, 8)), c.pick((32, 32, 16, 8, 4))
    lines = c.pick((rows, rows, 2 * rows, rows - 1 or 1, rows + 1))
    inner = c.pick((columns, columns, 32))
    at = c.pick(("0", "0", "1", str(lines - rows if lines > rows else 0), "threadIdx.x"))
    shift = c.pick((0, 0, 0, 4, 32 if inner > 32 else 0))
    size, least = c.pick(("8", "N", "N")), c.pick((0, 1, 1))
    first = at if at != "threadIdx.x" else "0"
    start = (int(first) * inner + shift) * 4
    fits = start + rows * columns * 4 <= lines * inner * 4 and shift < inner and int(first) < lines
    right = fits and start % 128 == 0
    stored = c.chance(40)
    h = Declared(of, [f"SHARED s: float32[{lines}, {inner}] align 128", "SHARED after: float32[64] align 128", "MBARRIER b[1]"])
    h.inputs, h.outputs = [f"x: float32[{size}, 32]"], [f"y: float32[{of.threads}]", f"z: float32[{size}, 32]"]
    h.dims = f"N min {least} max 8" if size == "N" else ""
    h.maps = [f"m = x box ({rows}, {columns}) swizzle 0", f"out = z box ({rows}, {columns}) swizzle 0"]
    t = Text()
    coordinate = c.pick(("0", "8", "-4" if c.chance(50) else "4"))
    with t.block(f"IF {of.first}"):
        t.add("INIT b[0] count 1", "FENCE mbarrier_init")
    t.add("SYNC block")
    with t.block(f"IF {of.first}"):
        if stored:
            t.add(
                f"TMA out({coordinate}, 0) <- s[{at}, {shift}]",
                "COMMIT bulk",
                c.pick(("WAIT_GROUP bulk <= 0", "WAIT_GROUP bulk <= 0", "WAIT_GROUP bulk.read <= 0", "WAIT_GROUP bulk <= 1")),
            )
            right = right and "WAIT_GROUP bulk <= 0" in t.lines[-1]
        else:
            size_ = rows * columns * 4 + c.pick((0, 0, 0, 16, -16))
            t.add(f"EXPECT b[0] bytes {size_}", f"TMA s[{at}, {shift}] <- m({coordinate}, 0) on b[0]")
            right = right and size_ == rows * columns * 4
    if not stored:
        t.add("WAIT b[0] parity 0")
    t.add(f"y[{of.linear}] = copy(s[0, ({of.linear}) % {inner}])")
    if h.dims and not least:  # of a tensor without elements there is no map
        right = right and None
    return h.side("boxes", t, right, [{"N": k} for k in range(9) if k >= least and k in (0, 1, 8)] if h.dims else ({},))


def budgets(c: Chooser) -> Side:
    """Register budgets of warpgroups, under conditions."""
    groups = c.pick((1, 2, 3, 4))
    of = Shape(c.pick(((128, groups, 1), (128 * groups, 1, 1), (32, 4 * groups, 1))))
    resident = c.pick(("", "", "", "  RESIDENT 2"))
    t = Text()
    whole = c.chance(80)
    amounts = (24, 32, 40, 56, 104, 128, 152, 168, 200, 232, 240, 248)
    row = f"({of.linear})//128"
    for g in range(groups):
        if c.chance(75):
            with t.block(f"IF {row} == {g}" if whole or c.chance(60) else f"IF {condition(c, of)}"):
                t.add(f"SETMAXNREG {c.pick(amounts)}", *([f"SETMAXNREG {c.pick(amounts)}"] if c.chance(10) else []))
                if c.chance(15):
                    t.add("SYNC block")
    t.add(f"y[{of.linear}] = copy(x[{of.linear}])")
    return Declared(of, after=resident).side("budgets", t, None)


def accumulators(c: Chooser) -> Side:
    """wgmmas on accumulators that overlap, with and without what orders them; descriptors at the ends of tiles."""
    n1, n2 = c.pick((64, 32, 16)), c.pick((64, 32, 16))
    first, second = 0, c.pick((0, 0, 8, 16, 32))
    between = c.pick(("", "", "FENCE wgmma", "COMMIT wgmma", "WAIT_GROUP", "WAIT_GROUP fence"))
    offset = c.pick((0, 0, 32, 64, 96, 128, 1024))
    sbo = c.pick((1024, 1024, 1024, 2048, 512))
    rows = c.pick((64, 64, 128))
    mover = c.pick(("", "", "threadIdx.x >= 0", "threadIdx.x < 64", "threadIdx.x//32 == 1", "threadIdx.x != 5")) if c.chance(40) else None
    h = Declared(
        Shape((128, 1, 1)),
        ["LOCAL acc: float32[64]", f"SHARED a_s: bfloat16[{rows}, 64] align 1024", "SHARED b_s: bfloat16[64, 64] align 1024", "MBARRIER full[1]"],
    )
    h.inputs, h.outputs = ["A: bfloat16[128, 64]", "B: bfloat16[64, 64]"], ["D: float32[64, 64]"]
    h.maps = [f"map_a = A box ({rows}, 64) swizzle 128", "map_b = B box (64, 64) swizzle 128"]
    t = Text()
    with t.block("IF threadIdx.x == 0"):
        t.add("INIT full[0] count 1", "FENCE mbarrier_init")
    t.add("SYNC block")
    with t.block("IF threadIdx.x == 0"):
        t.add(f"EXPECT full[0] bytes {8192 + 128 * rows}", "TMA a_s[0, 0] <- map_a(0, 0) on full[0]", "TMA b_s[0, 0] <- map_b(0, 0) on full[0]")
    t.add("WAIT full[0] parity 0")
    if mover is not None:  # the operands are those of a cursor
        t.add("c = CURSOR(slots 2, slot 0, parity 0)")
        with t.blocks([f"IF {mover}"] if mover else []):
            t.add("c.advance(1)")
    if c.chance(95):
        t.add("FENCE wgmma")
    b, again = ("0", "0 > 0") if mover is None else c.pick((("32*c.slot", "0 > 0"), ("0", "c.slot > 0")))

    def issue(n: int, at: int, plus: int, step: int) -> None:
        a = f"desc(a_s[0, 0] + {plus}, swizzle 128, lbo 0, sbo {step}, major K)"
        t.add(f"WGMMA.m64n{n}k16.bfloat16 acc[{at}], {a}, desc(b_s[0, 0] + {b}, swizzle 128, lbo 0, sbo 1024, major K), accumulate {again}")

    issue(n1, first, 0, 1024)
    match between:
        case "WAIT_GROUP" | "WAIT_GROUP fence":
            t.add("COMMIT wgmma", "WAIT_GROUP wgmma <= 0", *(["FENCE wgmma"] if "fence" in between else []))
        case "":
            pass
        case _:
            t.add(between)
    issue(n2, second, offset, sbo)
    t.add("COMMIT wgmma")
    pending = c.pick((0, 0, 0, 1))
    who = c.pick(("", "", "", "threadIdx.x == 0", "threadIdx.x < 32", "threadIdx.x >= 64"))
    t.add(f"WAIT_GROUP wgmma <= {pending}")
    if who:
        with t.block(f"IF {who}"):
            t.add(c.pick(("WAIT_GROUP wgmma <= 0", "COMMIT wgmma", "FENCE wgmma")))
    with t.block("FOR v in 0..8 UNROLL"):
        t.add("D[threadIdx.x//2, threadIdx.x % 2 + 2*v] = copy(acc[v])")
    overlap = second < n1 // 2
    right: bool | None = pending == 0 and not who and "FENCE wgmma" in t.lines
    if (overlap and n1 != n2 and between in ("", "COMMIT wgmma")) or mover not in (None, "", "threadIdx.x >= 0"):
        right = False
    elif right and (
        (overlap and (n1 != n2 or second)) or offset not in (0, 32, 64, 96) or sbo != 1024 or rows != 64 or between in ("WAIT_GROUP", "FENCE wgmma")
    ):
        right = None
    return h.side("accumulators", t, right)
