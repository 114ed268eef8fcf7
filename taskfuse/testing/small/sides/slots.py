"""Rings of mbarriers whose slots lie in any memory: who fills, reads and overwrites them by which engine, and what completes and shows that."""

from __future__ import annotations

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.sides.side import Declared, Shape, Side
from taskfuse.testing.small.text import Text

LANES = 32
FIRST = "threadIdx.x == 0"


def slots(c: Chooser) -> Side:
    """A role fills slots, and another reads them and may write into them."""
    blocks, cluster = c.pick(((1, 1), (1, 1), (2, 1), (2, 2), (2, 2), (4, 2)))
    stages, wide = c.pick((2, 1, 3)), cluster > 1 and c.chance(60)
    memory = c.pick(("s", "s", "w", "w", *(("g",) if cluster > 1 else ())))
    per_block = memory == "w" and blocks > 1 and c.chance(80)
    loads = memory == "s" and c.chance(60)
    across = " across CIDx" if wide and loads else ""
    pieces = cluster if across else 1
    columns = LANES * (blocks if per_block else 1)
    t, h = Text(), Declared(Shape((LANES, 2, 1)), dims="N max 4", grid=f"({blocks}, 1, 1)")
    h.after = f"  CLUSTER ({cluster}, 1, 1)" if cluster > 1 else ""
    h.inputs = [f"x: float32[4, {pieces}, {LANES}]"]
    h.outputs = [f"w: float32[{stages}, {pieces}, {columns}]", f"y: float32[{blocks}, 4, {pieces}, {LANES}]"]
    h.maps = [f"x.map = x box (1, 1, {LANES}) swizzle 0", f"w.map = w box (1, 1, {LANES}) swizzle 0", f"y.map = y box (1, 1, 1, {LANES}) swizzle 0"]
    h.lines = [f"SHARED s: float32[{stages}, {pieces}, {LANES}] align 128 @ 0", f"SHARED r: float32[{LANES}] align 128 @ 2048"]
    h.lines += [f"CLUSTER g: float32[{cluster}, {stages}, {pieces}, {LANES}] align 16 @ 4096"] if cluster > 1 else []
    by_all = c.chance(50) and not loads
    released_by_all = c.chance(40)
    full, empty = LANES if by_all else 1, (LANES if released_by_all else 1) * (cluster if across else 1)
    h.lines.append(f"MBARRIER full[{stages}], empty[{stages}]")
    with t.block(f"IF {FIRST} && threadIdx.y == 0"), t.block(f"FOR i in 0..{stages}"):
        t.add(f"INIT full[i] count {full}", f"INIT empty[i] count {empty}")
    with t.block(f"IF {FIRST} && threadIdx.y == 0"):
        t.add("FENCE mbarrier_init")
    t.add("SYNC cluster" if cluster > 1 else "SYNC block")
    scope = " scope cluster" if across and c.chance(70) else ""
    with t.block("IF threadIdx.y == 0"):
        t.add(f"p = CURSOR(slots {stages}, slot 0, parity 1)")
        with t.block("FOR k in 0..N"), t.blocks([f"IF {FIRST}"] if loads else []):
            t.add(f"WAIT empty[p.slot] parity p.parity{scope if c.chance(90) else ''}")
            if loads:
                _load(c, t, across, pieces)
            else:
                _fill(c, t, memory, per_block, by_all)
            t.add("p.advance(1)")
        t.add(*(["WAIT_GROUP bulk <= 0"] if not loads else []))
    with t.block("ELSE"):
        t.add(f"c = CURSOR(slots {stages}, slot 0, parity 0)")
        with t.block("FOR k in 0..N"):
            t.add("WAIT full[c.slot] parity c.parity")
            _use(c, t, memory, pieces, per_block)
            together = c.chance(90)
            t.add(*(["SYNC warp"] if not released_by_all and together else []))
            with t.blocks([] if released_by_all else [f"IF {FIRST}"]):
                t.add(f"ARRIVE empty[c.slot]{across}{scope if across and c.chance(90) else ''}")
            t.add("c.advance(1)")
        t.add("WAIT_GROUP bulk <= 0")
    t.add(*(["SYNC cluster"] if cluster > 1 else []))
    return h.side("slots", t, None, [{"N": n} for n in (4, 2)])


def _load(c: Chooser, t: Text, across: str, pieces: int) -> None:
    """Bulk loads, of a piece for all blocks of the cluster, and maybe a store beside them."""
    source = c.pick(("x.map(k, ", "x.map(k, ", "w.map(p.slot, "))
    lines = [f"EXPECT full[p.slot] bytes {4 * LANES * pieces}"]
    piece = "clusterIdx.x" if across else "0"
    lines.append(f"TMA s[p.slot, {piece}, 0] <- {source}{piece}, 0) on full[p.slot]{across}")
    if c.chance(20):
        lines.insert(c.integer(0, 2), f"w[p.slot, {piece}, {c.integer(0, 31)}] = copy(x[k, 0, 0])")
    t.add(*lines)


def _fill(c: Chooser, t: Text, memory: str, per_block: bool, by_all: bool) -> None:
    """The threads of the role fill a slot, themselves, by copies, or by a bulk store of one of them; what follows may be a little too little."""
    column = "32*blockIdx.x" if per_block else "0"
    rank = c.pick(("clusterIdx.x, ", "1 - clusterIdx.x, ", "0, ")) if memory == "g" else ""
    lane = "threadIdx.x" if column == "0" else f"{column} + threadIdx.x"
    fences = ["FENCE proxy.async" if memory == "s" else "FENCE proxy.async.global"] if c.chance(70) else []
    who = [f"IF blockIdx.x == {c.integer(0, 1)}"] if c.chance(15) else []
    match c.pick(("threads", "threads", *{"s": ("copies",), "w": ("store", "store", "update"), "g": ()}[memory])):
        case "threads":
            with t.blocks(who):
                t.add(f"{memory}[{rank}p.slot, 0, {lane}] = copy(x[k, 0, threadIdx.x])", *fences)
        case "copies":
            t.add("COPY.async s[p.slot, 0, threadIdx.x] <- x[k, 0, threadIdx.x] width 1", "COMMIT copy", f"WAIT_GROUP copy <= {c.pick((0, 0, 0, 1))}", *fences)
        case "update":
            t.add(f"UPDATE w[p.slot, 0, {lane}] by add of x[k, 0, threadIdx.x]", *fences)
        case _:
            t.add("r[threadIdx.x] = copy(x[k, 0, threadIdx.x])", "FENCE proxy.async", "SYNC warp")
            with t.block(f"IF {FIRST}"):
                t.add(f"TMA w.map(p.slot, 0, {column}) <- r[0]" + c.pick(("", "", " by add")), "COMMIT bulk")
                t.add(f"WAIT_GROUP bulk{c.pick(('', '', '.read'))} <= 0", *fences)
            t.add(*(["SYNC warp"] if c.chance(90) else []))
    t.add(*(["SYNC warp"] if not by_all and c.chance(90) else []))
    with t.blocks([] if by_all else [f"IF {FIRST}"]):
        t.add("ARRIVE full[p.slot]")


def _use(c: Chooser, t: Text, memory: str, pieces: int, per_block: bool) -> None:
    """The slot is read, and maybe written, by threads, by copies, or by a bulk store of one thread; or the slot of another block is."""
    column = c.pick(("32*blockIdx.x", "32*blockIdx.x", "32*blockIdx.x", "0")) if per_block else "0"
    rank = c.pick(("clusterIdx.x, ", "1 - clusterIdx.x, ")) if memory == "g" else ""
    lane = (
        c.pick(("threadIdx.x", "31 - threadIdx.x"))
        if column == "0"
        else c.pick((f"{column} + threadIdx.x", f"{column} + 31 - threadIdx.x", "63 - threadIdx.x"))
    )
    way = c.pick(("threads", "threads", *{"s": ("store", "store"), "w": ("copies",), "g": ()}[memory]))
    with t.blocks([f"FOR j in 0..{pieces}"] if pieces > 1 else []):
        j = "j" if pieces > 1 else "0"
        match way:
            case "threads":
                t.add(f"y[blockIdx.x, k, {j}, threadIdx.x] = copy({memory}[{rank}c.slot, {j}, {lane}])")
            case "copies":
                t.add(f"COPY.async r[threadIdx.x] <- w[c.slot, {j}, {lane.replace('31 - ', '')}] width 1", "COMMIT copy", "WAIT_GROUP copy <= 0")
            case _:
                with t.block(f"IF {FIRST}"):
                    t.add(f"TMA y.map(blockIdx.x, k, {j}, 0) <- s[c.slot, {j}, 0]", "COMMIT bulk", "WAIT_GROUP bulk.read <= 0")
    if c.chance(30):
        piece = c.pick(("0", "clusterIdx.x")) if pieces > 1 else "0"
        target = c.pick((memory, "w" if memory == "s" and not per_block else memory))
        where = f"{rank if target == memory else ''}c.slot, {piece}, {'threadIdx.x' if target != 'w' or not per_block else lane}"
        t.add(f"{target}[{where}] = copy(0.0)")
    if c.chance(60):
        t.add(f"FENCE proxy.async{c.pick(('', '.global'))}")
