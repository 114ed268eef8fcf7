"""Small kernels with several accumulators, or with slots of a separate cursor: which iteration takes terms, sets, multiplies and reads which accumulator.

Indices are sums, quotients and remainders of loop variables, loops are in any order, and cursors advance anywhere. About half of the kernels are right, and
the generator does not know which.
"""

from __future__ import annotations

from taskfuse.kir import parse_kernel
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.text import Small, Text

TRIED = ({"N": 1, "M": 1}, {"N": 2, "M": 3}, {"N": 1, "M": 4}, {"N": 3, "M": 2})
RULES = {"sum": ("add", "0.0"), "max": ("maximum", "-inf"), "fold": ("sub", "0.0"), "rescaled": ("add", "0.0")}


def registered(c: Chooser) -> Small:
    """A kernel and the sizes to look at. Raises :class:`~taskfuse.errors.TaskfuseError` if the text is not a kernel."""
    return _slots(c) if c.chance(30) else _accumulators(c)


def _place(c: Chooser, name: str, count: int) -> tuple[list[str], str]:
    """Loops, and an expression of their variables with values below ``count``, mostly each of them once."""
    plain = [f"FOR {name} in 0..{count} UNROLL"]
    twice = [f"FOR {name} in 0..{2 * count} UNROLL"]
    if c.chance(60):
        return plain, name
    return c.pick(
        (
            (plain, f"{count - 1} - {name}"),
            (twice, f"{name}//2"),
            (twice, f"{name} % {count}"),
            ([f"FOR {name} in 0..{count - 1} UNROLL", f"FOR {name}b in 0..2 UNROLL"], f"{name} + {name}b"),
            ([f"FOR {name} in 0..{count // 2} UNROLL", f"FOR {name}b in 0..2 UNROLL"], f"2*{name} + {name}b"),
            (plain, f"({name} + 1) % {count}"),
        )
    )


def _accumulators(c: Chooser) -> Small:
    rule = c.pick(("sum", "sum", "max", "fold", "rescaled", "rescaled"))
    combine, init = RULES[rule]
    count = c.pick((2, 4))
    (loops, e), (starting, s), (reading, v), (scaling, f) = (_place(c, name, count) for name in "isvf")
    at = e if c.chance(85) else c.pick(("0", f"({e}) % 2"))
    along = ["FOR j in 0..M"]
    order = c.pick((loops + along, along + loops))
    if c.chance(15):
        order = ["FOR q in 0..2", *order]
    set_ = f"acc[{s}] = copy({init})  ~ start y"
    factor = f"acc[{f}] = mul(acc[{f}], d[blockIdx.x, j])  ~ rescaled y[blockIdx.x, {f}, j]"
    body = Text()
    outside = c.pick((0, 0, 0, 1))
    with body.blocks(order[:outside]):
        with body.blocks(starting):
            body.add(set_)
        if outside < len(order) and c.chance(10):
            body.add(f"acc[0] = copy({init})  ~ start y")
        first = order.index("FOR j in 0..M") + 1
        with body.blocks(order[outside:first]):
            if rule == "rescaled":
                with body.blocks(scaling):
                    body.add(factor)
            with body.blocks(order[max(first, outside) :]):
                body.add(f"acc[{at}] = {combine}(acc[{at}], x[blockIdx.x, {e}, j])  ~ term y[blockIdx.x, {e}, j]")
    with body.blocks(reading):
        body.add(f"y[blockIdx.x, {v}] = copy(acc[{v}])  ~ value y[blockIdx.x, {v}]")
    space = f"float32[N, {count}] over (N, {count}, M) at (i0, i1)"
    defined = f"reduce {combine} of copy(x[i0, i1, i2]) from {init}" + (" rescaled 2 by d[i0, i2]" if rule == "rescaled" else "")
    if rule == "fold":
        defined = f"fold along 2 of sub(x[i0, i1, i2]) from {init}"
    inputs = f"x: float32[N, {count}, M]" + (", d: float32[N, M]" if rule == "rescaled" else "")
    lines = [
        f"KERNEL registers({inputs}) -> (y: float32[N, {count}])",
        "  DIM N min 1, M min 1",
        "  GRID (N, 1, 1)  BLOCK (1, 1, 1)",
        f"  LOCAL acc: float32[{count}]",
        f"  DEFINE y: {space} = {defined}",
        "",
        *body.lines,
    ]
    return Small(parse_kernel("\n".join(lines) + "\n"), "registers", tuple(dict(t) for t in TRIED))


def _slots(c: Chooser) -> Small:
    """What a thread writes at the slot of a cursor, it reads at the slot of the same cursor."""
    start = "c = CURSOR(slots 3, slot 0, parity 0)"
    move = ["c.advance(1)"]
    write = ["s[c.slot, threadIdx.x] = neg(x[i, threadIdx.x])  ~ value a[i, threadIdx.x]"]
    read = ["y[i, threadIdx.x] = exp(s[c.slot, OTHER])  ~ value y[i, threadIdx.x]"]
    other = c.pick(("threadIdx.x", "7 - threadIdx.x"))
    parts = [write, ["SYNC block"], read] + [move] * c.integer(0, 2)
    body = Text()
    if c.chance(40):
        body.add(start)
        start = "PASS"
    with body.block("FOR i in 0..N"):
        if start != "PASS":
            body.add(start)
        for k in sorted(range(len(parts)), key=lambda k: k if k < 3 else c.integer(-1, 3)):
            if parts[k] is not move:
                body.add(*(line.replace("OTHER", other) for line in parts[k]))
            elif c.chance(25):
                with body.block(c.pick(("IF threadIdx.x < 4", "IF i % 2 == 0", "FOR k in 0..2", "FOR k in 0..threadIdx.x"))):
                    body.add(*move)
            else:
                body.add(*move)
        body.add("SYNC block")
    lines = [
        "KERNEL slots(x: float32[N, 8]) -> (y: float32[N, 8])",
        "  DIM N",
        "  GRID (1, 1, 1)  BLOCK (8, 1, 1)",
        "  SHARED s: float32[3, 8] align 16",
        "  DEFINE a: float32[N, 8] = neg(x[i0, i1])",
        f"  DEFINE y: float32[N, 8] = exp(a[i0, {other.replace('threadIdx.x', 'i1')}])",
        "",
        *body.lines,
    ]
    return Small(parse_kernel("\n".join(lines) + "\n"), "slots", ({"N": 1}, {"N": 2}, {"N": 5}))
