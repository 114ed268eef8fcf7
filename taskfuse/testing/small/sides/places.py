"""Conditions on the places of accesses: overlapping buffers, arrays of negative extent, choices that read what another case guards, indices that are data or
sums of symbolic weights.
"""

from __future__ import annotations

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.sides.side import Declared, Shape, Side, condition, number, shape
from taskfuse.testing.small.text import Text


def aliases(c: Chooser) -> Side:
    """Two Shared buffers at offsets that may overlap, of dtypes that may differ, with or without a barrier between their uses."""
    of = shape(c)
    n = of.threads
    (dtype, size), other_dtype = c.pick((("float32", 4), ("bfloat16", 2))), c.pick(("float32", "bfloat16", "int8"))
    end = -(-n * size // 16) * 16
    at = c.pick((0, 0, end, end, end // 2 // 16 * 16, max(end - 16, 0), 16))
    h = Declared(of, [f"SHARED a: {dtype}[{n}] align 16 @ 0", f"SHARED b: {other_dtype}[{n}] align 16 @ {at}"], outputs=[f"y: float32[2, {n}]"])
    lane, other = of.linear, f"{n - 1} - ({of.linear})"
    meets = [c.pick(("SYNC block", "SYNC block", "SYNC warp", "")) for _ in range(3)]
    cond = [f"IF {condition(c, of)}"] if c.chance(30) else []
    t = Text()

    def meet(k: int) -> None:
        if meets[k]:
            t.add(meets[k])

    t.add(f"a[{lane}] = cast(x[{lane}])")
    meet(0)
    t.add(f"y[0, {lane}] = cast(a[{c.pick((other, other, lane))}])")
    meet(1)
    with t.blocks(cond):
        t.add(f"b[{lane}] = cast(x[{lane}])")
    meet(2)
    t.add(f"y[1, {lane}] = cast(b[{c.pick((other, other, lane))}])")
    apart = at >= n * size
    whole = meets[0] == meets[2] == "SYNC block" and not cond
    right = True if whole and (apart or meets[1] == "SYNC block") else None
    return h.side("aliases", t, right)


def extents(c: Chooser) -> Side:
    """An array whose extent is a difference, which may be negative, stands before another one."""
    of = Shape((c.pick((4, 32)), 1, 1))
    n, least, less = of.threads, c.integer(0, 3), c.integer(0, 3)
    extent = c.pick((f"N - {less}", f"N - {less}", f"max(N - {less}, 0)", f"2*N - {2 * less}", f"(N - {less})//2"))
    where = c.pick(("SHARED b: float32[{}, 32] align 16", "GLOBAL b: float32[{}, 32]", "QUEUE b[{}]", "SEMAPHORE b[{}] count 1"))
    dtype = c.pick(("SHARED", "GLOBAL"))
    lines = [f"{dtype} a: float32[{n}] align 16", where.format(extent), f"{dtype} d: float32[{n}] align 16"]
    lines.sort(key=lambda line: line.startswith(("QUEUE", "SEMAPHORE")))  # buffers are declared first
    h = Declared(of, lines, dims=f"N min {least}", inputs=[f"x: float32[{n}]", "v: float32[N]"])
    t = Text()
    t.add("a[threadIdx.x] = copy(x[threadIdx.x])", "d[threadIdx.x] = neg(x[threadIdx.x])", "SYNC block")
    t.add(f"y[threadIdx.x] = sub(a[threadIdx.x], d[{n - 1} - threadIdx.x])")
    return h.side("extents", t, least >= less or extent.startswith("max"), tuple({"N": least + k} for k in (0, 1, 4)))


def choices(c: Chooser) -> Side:
    """Choices between accesses, of which each is inside its extent only where its case holds, or not even there."""
    of = shape(c)
    n = of.threads
    cut, size, more = c.integer(0, n), c.pick((n, max(n // 2, 1), n + 1)), c.pick((n, max(n // 2, 1)))
    lane = of.linear
    low, high = c.pick((lane, lane, f"({lane})//2", f"{n - 1} - ({lane})")), c.pick((f"{lane} - {cut}", f"{lane} - {cut}", lane, f"{lane} - {cut + 1}"))
    cond = c.pick((f"{lane} < {cut}", f"{lane} < {cut}", f"{lane} <= {cut}", f"threadIdx.x < {cut}"))
    last = c.pick(("otherwise", "otherwise", f"{lane} >= {cut}", f"{lane} >= {cut} && threadIdx.x > 0", f"{lane} > {cut}"))
    h = Declared(of, [f"SHARED s: float32[{n}] align 16"], [f"x: float32[{size}]", f"w: float32[{more}]"], [f"y: float32[{n}]"])
    right: bool | None = True
    for thread in of.all():
        try:
            taken, extent = (low, size) if number(cond, thread, {}) else (high, more)
            right = right and 0 <= number(taken, thread, {}) < extent
        except ZeroDivisionError:
            right = False
        if last != "otherwise" and not number(cond, thread, {}) and not number(last, thread, {}):
            right = None if right else right
    case = f"otherwise w[{high}]" if last == "otherwise" else f"w[{high}] if {last}"
    t = Text()
    t.add(f"y[{lane}] = cat(x[{low}] if {cond}, {case})")
    return h.side("choices", t, right)


def weights(c: Chooser) -> Side:
    """Blocks and a loop are digits of an index whose weights are symbols, negative ones too."""
    low = c.pick((-8, -4, -3, -1, 0, 1))
    high = low + c.integer(1, 4)
    blocks, digits, times, least = c.pick((2, 3)), c.integer(1, 4), c.pick((1, 2, 2, 4)), c.pick((1, 2, 4))
    h = Declared(Shape((1, 1, 1)), inputs=["x: float32[8]"], grid=f"({blocks}, 1, 1)")
    edge = max(0, -low) * (digits - 1)
    size = f"{times * blocks}*N + {edge + max(0, high) * digits}"
    last = "j" if c.chance(80) else f"{digits - 1} - j"
    row = c.pick((f"t - {low}", f"t - {low}", "0"))
    h.outputs, h.dims = [f"y: float32[{high - low}, {size}]"], f"N min {least} max {least + 4}"
    t = Text()
    with t.block(f"FOR t in {low}..{high}"), t.block(f"FOR j in 0..{digits}"):
        t.add(f"y[{row}, {times}*N*blockIdx.x + t*({last}) + {edge}] = copy(x[j])")
    return h.side("weights", t, None, [{"N": least}, {"N": least + 1}])


def gathers(c: Chooser) -> Side:
    """Elements at indices that are data: within their extents they may be anything."""
    of = Shape(c.pick(((32, 1, 1), (15, 1, 1), (8, 4, 1))))
    n = of.threads
    width = c.pick((1, 1, 2, 4))
    rows, columns = c.pick((4, 8)), c.pick((4, 8, 16))
    extent = c.pick((rows, rows, rows + 1, "N"))
    column = c.pick(("0", "v", f"{c.pick((1, 2, 4))}*v", f"v + {c.integer(0, 2)}", "threadIdx.x % 4")) if c.chance(40) else str(c.pick((0, width)))
    row = "v" if c.chance(70) else c.pick((f"{rows - 1} - v", "v//2", "v + 1", "threadIdx.x % 4"))
    h = Declared(
        of,
        [f"SHARED s: float32[{n}, {max(width, 4)}] align 16"],
        [f"x: float32[{'N' if extent == 'N' and c.chance(60) else rows}, {columns}]", f"i: int32[{n}]"],
    )
    h.outputs = [f"y: float32[{n}, {max(width, 4)}]"]
    h.dims = "N min 1 max 6" if extent == "N" else ""
    t = Text()
    target = c.pick(("y", "s"))
    t.add(f"GATHER {target}[{of.linear}, 0] <- x[{row}, {column}]{f' width {width}' if width > 1 else ''} at v = i[{of.linear}] of {extent}")
    return h.side("gathers", t, None, [{"N": k} for k in (6, 1, 4)] if h.dims else ({},))
