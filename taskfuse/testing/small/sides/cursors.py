"""Conditions on cursors, before and after these have moved."""

from __future__ import annotations

from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.sides.side import Declared, Shape, Side
from taskfuse.testing.small.text import Text

SLOTS = 6


def moved(c: Chooser) -> Side:
    """An index or a divisor that a condition on a cursor bounds, before the cursor moves or after."""
    at = c.integer(0, SLOTS - 1)
    least = c.integer(0, SLOTS - 1)
    holds, cond = c.pick(((at < least, f"c.slot < {least}"), (at >= least, f"c.slot >= {least}"), (at == least, f"c.slot == {least}"), (at > 0, "c.slot > 0")))
    by = c.integer(1, SLOTS - 1)
    place = c.pick(("before", "after", "after", "loop", "start", "never"))
    otherwise = c.chance(30)
    taken = holds is not otherwise
    divides = c.chance(30)
    extent = c.integer(1, SLOTS)
    use = f"y[{8 * SLOTS}//c.slot % {extent}] = copy(0.0)" if divides else "y[c.slot] = copy(0.0)"
    move = f"c.advance({by})"
    start = c.integer(0, SLOTS - 1)
    lines, seen = {
        "before": ([move, use], [(at + by) % SLOTS]),
        "after": ([use, move], [at]),
        "loop": (["FOR k in 0..2:", f"  {use}", f"  {move}"], [at, (at + by) % SLOTS]),
        "start": ([f"c = CURSOR(slots {SLOTS}, slot {start}, parity 0)", use], [start]),
        "never": ([use], [at]),
    }[place]
    right = not taken or all(slot > 0 if divides else slot < extent for slot in seen)
    h = Declared(Shape((1, 1, 1)), outputs=[f"y: float32[{extent}]"])
    t = Text()
    t.add(f"c = CURSOR(slots {SLOTS}, slot {at}, parity 0)")
    with t.block(f"IF {cond}"):
        t.add(*(["PASS"] if otherwise else lines))
    if otherwise:
        with t.block("ELSE"):
            t.add(*lines)
    return h.side("moved cursors", t, right)
