"""Conditions around data that threads pass to each other: queues, rings, clusters."""

from __future__ import annotations

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.sides.side import Declared, Shape, Side, condition
from taskfuse.testing.small.text import Text


def queues(c: Chooser) -> Side:
    """Who copies, who commits, who waits for, and who arrives for copies, each under a condition of its own."""
    of = Shape(c.pick(((32, 1, 1), (32, 2, 1), (16, 1, 1), (8, 4, 1), (48, 1, 1))))
    n = of.threads
    h = Declared(of, [f"SHARED s: float32[3, {n}] align 16", "MBARRIER b[1]"], [f"x: float32[3, {n}]"], [f"y: float32[3, {n}]"])
    lane, other = of.linear, f"{n - 1} - ({of.linear})"
    same = condition(c, of)

    def who(percent: int) -> list[str]:
        return [] if c.chance(percent) else [f"IF {same if c.chance(50) else condition(c, of)}"]

    t = Text()
    trips = c.pick((1, 2, 3))
    covered = c.chance(30)
    arriving = who(60)
    if covered:
        count = len(of.selected(arriving[0][3:])) if arriving else n
        with t.block(f"IF {of.first}"):
            t.add(f"INIT b[0] count {max(count + c.pick((0, 0, 0, 1)), 1)}")
        t.add("SYNC block")
    copying = who(50)
    with t.block(f"FOR k in 0..{trips}"):
        with t.blocks(copying):
            t.add(f"COPY.async s[k, {lane}] <- x[k, {lane}] width 1")
        with t.blocks(who(70)):
            t.add("COMMIT copy")
    if covered:
        with t.blocks(arriving):
            t.add("ARRIVE.async b[0]")
        if c.chance(85):
            t.add("WAIT b[0] parity 0")
    else:
        with t.blocks(who(70)):
            t.add(f"WAIT_GROUP copy <= {c.pick((0, 0, 0, 1, 2))}")
    t.add(*c.pick((["SYNC block"], ["SYNC block"], ["SYNC warp"], [])))
    t.add(f"y[{c.integer(0, trips - 1)}, {lane}] = copy(s[{c.integer(0, trips - 1)}, {c.pick((lane, other))}])")
    return h.side("queues", t, None)


def rings(c: Chooser) -> Side:
    """A ring of mbarriers whose positions are taken under conditions on loops, cursors, blocks and extents."""
    of = Shape((32, 2, 1))
    stages, trips = c.pick((1, 2, 3)), c.pick(("N", "N", "4", "3"))
    forms = (
        "",
        "",
        "k % 2 == 0",
        "k > 0",
        "q.slot == 0",
        "q.parity == 0",
        "q.slot != 1",
        "k < N - 1",
        "blockIdx.x == 0",
        "N > 1",
        "k + 1 < N",
        "q.phase == 0",
        "0 < N % 2",
    )
    first = c.pick(forms)
    second = first if c.chance(75) else c.pick(forms)
    moves = ["q.advance(1)", c.pick(("q.advance(1)", "q.advance(1)", "q.advance(1)", "q.advance(2)"))]
    outside = c.chance(25)
    h = Declared(
        of, [f"SHARED s: float32[{stages}, 32] align 16", f"MBARRIER full[{stages}], empty[{stages}]"], dims="N max 4", grid=f"({c.pick((1, 1, 1, 2))}, 1, 1)"
    )
    h.inputs, h.outputs = ["x: float32[8, 32]"], ["y: float32[2, 8, 32]"]
    t = Text()
    with t.block("IF threadIdx.x == 0 && threadIdx.y == 0"), t.block(f"FOR i in 0..{stages}"):
        t.add("INIT full[i] count 32", f"INIT empty[i] count {c.pick((32, 32, 32, 16))}")
    t.add("SYNC block")
    uses = any(" q." in f" {e}" for e in (first, second))
    if uses:
        t.add(f"q = CURSOR(slots {c.pick((2, 3))}, slot 0, parity 0)")
    for role, (cond, move) in enumerate(zip((first, second), moves, strict=True)):
        p = "pc"[role]
        with t.block("IF threadIdx.y == 0" if role == 0 else "ELSE"):
            t.add(f"{p} = CURSOR(slots {stages}, slot 0, parity {1 - role})")
            guards = [f"IF {cond}"] if cond else []
            with t.blocks(guards if outside and " k " not in f" {cond} " else []), t.block(f"FOR k in 0..{trips}"):
                with t.blocks(guards):
                    if role == 0:
                        t.add("WAIT empty[p.slot] parity p.parity", "s[p.slot, threadIdx.x] = copy(x[k, threadIdx.x])", "ARRIVE full[p.slot]")
                    else:
                        t.add("WAIT full[c.slot] parity c.parity", "y[blockIdx.x, k, threadIdx.x] = copy(s[c.slot, 31 - threadIdx.x])", "ARRIVE empty[c.slot]")
                    t.add(f"{p}.advance(1)")
                if uses:
                    t.add(move)
    return h.side("rings", t, None, [{"N": k} for k in (4, 1, 0)])


def clusters(c: Chooser) -> Side:
    """Arrivals and multicast copies across a cluster, under conditions on its blocks and on threads."""
    of = Shape(c.pick(((32, 1, 1), (8, 4, 1), (32, 2, 1))))
    blocks = c.pick((2, 2, 4))
    loaders = c.pick(("", "clusterIdx.x == 0", "clusterIdx.x == 1", "clusterIdx.x < 2", "blockIdx.x % 2 == 0"))
    amount = {"": blocks, "clusterIdx.x == 0": 1, "clusterIdx.x == 1": 1, "clusterIdx.x < 2": 2, "blockIdx.x % 2 == 0": blocks // 2}[loaders]
    who = of.first if c.chance(80) else condition(c, of)
    pieces = c.pick((amount, amount, blocks, 1))
    h = Declared(
        of, [f"SHARED s: float32[{blocks}, 32] align 128", "MBARRIER b[1], e[1]"], [f"x: float32[{blocks}, 32]"], [f"y: float32[{blocks}, {of.threads}]"]
    )
    h.maps, h.grid, h.after = ["m = x box (1, 32) swizzle 0"], f"({2 * blocks if c.chance(20) else blocks}, 1, 1)", f"  CLUSTER ({blocks}, 1, 1)"
    if h.grid != f"({blocks}, 1, 1)":
        h.outputs = [f"y: float32[{2 * blocks}, {of.threads}]"]
    t = Text()
    with t.block(f"IF {of.first}"):
        t.add("INIT b[0] count 1", f"INIT e[0] count {c.pick((blocks, blocks, 1))}")
        if c.chance(90):
            t.add("FENCE mbarrier_init")
    t.add(c.pick(("SYNC cluster", "SYNC cluster", "SYNC cluster", "SYNC block")))
    with t.block(f"IF {of.first}"):
        t.add(f"EXPECT b[0] bytes {128 * pieces}")
    with t.blocks([f"IF {loaders}"] if loaders else []), t.block(f"IF {who}"):
        t.add(f"TMA s[{c.pick(('clusterIdx.x', 'clusterIdx.x', '0'))}, 0] <- m(clusterIdx.x, 0) on b[0] across CIDx")
    t.add("WAIT b[0] parity 0", f"y[blockIdx.x, {of.linear}] = copy(s[0, ({of.linear}) % 32])")
    if c.chance(50):
        with t.blocks([f"IF {c.pick((loaders, 'clusterIdx.x == 0'))}"] if c.chance(30) and loaders else []), t.block(f"IF {of.first}"):
            t.add("ARRIVE e[0] across CIDx")
        if c.chance(70):
            t.add("WAIT e[0] parity 0")
    if c.chance(80):
        t.add("SYNC cluster")
    return h.side("clusters", t, None)
