"""Small kernels whose loops, guards and indices contain elements of tables: sums of rows whose ends are in a table, and copies of them.

Elements past the end of a row mostly add nothing, the loop over a row mostly ends there, and the ranges of elements are mostly not empty. As in
:mod:`~taskfuse.testing.small.maps`, some numbers, symbols and signs are then changed, and the generator does not know which kernels are right.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.kir import parse_kernel
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.small.index_maps import Grid, box, other
from taskfuse.testing.small.maps import COMBINES
from taskfuse.testing.small.text import Small, Text

ROWS, COLUMNS = "G", "M"
TRIED = ({ROWS: 2, COLUMNS: 3}, {ROWS: 1, COLUMNS: 1}, {ROWS: 3, COLUMNS: 6}, {ROWS: 2, COLUMNS: 0}, {ROWS: 4, COLUMNS: 2})

THROUGH = ("float16", "float8_e5m2", "float8_e4m3")
"""Types that terms are converted to on their way: the last one has no infinity."""
OF_TYPES = ("", ":float32", ":float16", ":float8_e5m2", ":float8_e4m3")
"""Types of the constants that reductions and accumulators begin with."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of unequal length.

    Attributes:
        tables, input: arguments.
        first, end: where a row begins and ends in its columns, or how long it is; in terms of ``ROW``, its number.
        place: of column ``COLUMN`` in the input.
        inside: whether that is a column of the row.
        never: that an element is outside its range.
    """

    tables: list[str]
    input: str
    first: str
    end: str
    place: str
    inside: str
    never: str


ROW, COLUMN = "ROW", "COLUMN"


def rows(c: Chooser, count: str, width: str) -> Rows:
    """Offsets of rows one after the other, lengths of rows, or where they begin and end."""
    low = c.pick(("0", "0", "0", "0", "1", "2"))
    high = c.pick((width, width, width, width, f"{width} - 1", "4"))
    tables = [f"o: int32[{count}]"]

    def element(table: str, index: str, size: str = count) -> str:
        return f"clamp({table}[{index} of {size}], {low}, {high})"

    match c.pick(("offsets", "lengths", "both")):
        case "offsets":
            tables = [f"o: int32[{count} + 1]"]
            begin, after = (element("o", index, f"{count} + 1") for index in (ROW, f"{ROW} + 1"))
            first, end, place = "0", f"{after} - {begin}", f"{COLUMN} + {begin}"
        case "lengths":
            begin, first, end, place = low, "0", element("o", ROW), f"{ROW}, {COLUMN}"
        case _:
            tables.append(f"q: int32[{count}]")
            begin, end, place = element("o", ROW), element("q", ROW), f"{ROW}, {COLUMN}"
            first = begin
    inside = f"{COLUMN} < {end}" if first == "0" else f"{COLUMN} < {end} && {COLUMN} >= {first}"
    shape = f"{count}, {width}" if place.startswith(ROW) else width
    return Rows(tables, f"x: float32[{shape}]", first, end, place, inside, c.pick((f"{begin} < {low}", f"{end} > {high}", f"{begin} > {high}")))


def tabled(c: Chooser) -> Small:
    """A kernel and the sizes to look at. Raises :class:`~taskfuse.errors.TaskfuseError` if the text is not a kernel."""
    count, width = c.pick((ROWS, ROWS, "1", "3", "4")), c.pick((COLUMNS, COLUMNS, COLUMNS, "2", "5"))
    made = rows(c, count, width)
    combine = c.pick(("add", "add", *COMBINES))
    nothing = COMBINES[combine]
    behind = nothing if c.chance(80) else c.pick(("0.0", "1.0", "-0.0"))
    grid, body = Grid(), Text()
    over = box(c, [count], grid)

    def at(text: str, column: str) -> str:
        return text.replace(ROW, over.index[0]).replace(COLUMN, column)

    def defined(text: str) -> str:
        return text.replace(ROW, "i0").replace(COLUMN, "i1")

    sums = c.chance(70)
    padded = f"pick(x[{defined(made.place)}] if {defined(made.inside)}, otherwise {behind})"
    begin = c.pick(("0", "0", at(made.first, "")))
    end = c.pick((width, at(made.end, ""), f"max({at(made.end, '')}, 0)", f"min({at(made.end, '')}, {width})", f"{at(made.end, '')} + 1"))
    choice = f"pad(x[{at(made.place, 'r')}] if {at(made.inside, 'r')}, otherwise {behind})"
    if sums:
        declared = ["  LOCAL acc: float32[]", "  LOCAL t: float32[]", f"  DEFINE p: float32[{count}, {width}] = {padded}"]
        term, through = ("q", c.pick(THROUGH)) if c.chance(25) else ("p", "")
        if through:
            declared = ["  LOCAL u: float32[]", *declared, f"  DEFINE q: float32[{count}, {width}] = copy.{through}(p[i0, i1])"]
        start, init = (nothing + c.pick(OF_TYPES) if c.chance(20) else nothing for _ in range(2))
        declared.append(f"  DEFINE y: float32[{count}] over ({count}, {width}) at (i0) = reduce {combine} of copy({term}[i0, i1]) from {init}")
        with body.blocks(over.heads(c.order(sorted(over.loops)))):
            body.add(f"acc = copy({start})  ~ start y")
            with body.block(f"FOR r in {begin}..{end}"):
                body.add(f"t = {choice}  ~ value p[{at(ROW, '')}, r]")
                if through:
                    body.add(f"u = copy.{through}(t)  ~ value q[{at(ROW, '')}, r]")
                body.add(f"acc = {combine}(acc, {'u' if through else 't'})  ~ term y[{at(ROW, '')}, r]")
            body.add(f"y[{at(ROW, '')}] = copy(acc)  ~ value y[{at(ROW, '')}]")
    else:
        declared = [f"  DEFINE y: float32[{count}, {width}] = {padded}"]
        value = f"~ value y[{at(ROW, '')}, r]"
        if c.chance(40):
            with body.block(f"IF {made.never.replace(ROW, '0')}"):
                body.add("y[0, 0] = copy(9.0)  ~ value y[0, 0]")
        with body.blocks([*over.heads(c.order(sorted(over.loops))), f"FOR r in {'0' if c.chance(80) else begin}..{width if c.chance(70) else end}"]):
            if c.chance(50):
                body.add(f"y[{at(ROW, '')}, r] = {choice}  {value}")
            else:
                with body.block(f"IF {at(made.inside, 'r')}"):
                    body.add(f"y[{at(ROW, '')}, r] = copy(x[{at(made.place, 'r')}])  {value}")
                with body.block("ELSE"):
                    body.add(f"y[{at(ROW, '')}, r] = copy({behind})  {value}")
    symbols = [n for n in (ROWS, COLUMNS) if n in (count, width)]
    least = c.pick((1, 1, 0))
    lines = [
        f"KERNEL tabled({', '.join([made.input, *made.tables])}) -> (y: float32[{count}{'' if sums else ', ' + width}])",
        *([f"  DIM {', '.join(f'{n} min {1 if n == ROWS else least}' for n in symbols)}"] if symbols else []),
        grid.line(),
        *declared,
        "",
        *body.lines,
        "",
    ]
    text = "\n".join(lines)
    for _ in range(c.pick((0, 0, 1, 1, 2))):
        start = text.index("\n\n") if c.chance(80) else text.index("DEFINE")
        text = text[:start] + other(c, text[start:])
    tried = [{n: e[n] for n in symbols} for e in TRIED if e[COLUMNS] >= least or COLUMNS not in symbols]
    return Small(parse_kernel(text), "tabled", tuple(tried if symbols else [{}]))
