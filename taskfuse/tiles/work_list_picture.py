"""Which block computes which tile: a list of tiles as text and as an SVG picture."""

from __future__ import annotations

from taskfuse.ir.signatures import checked_first
from taskfuse.svg import FONT, Drawing, text_width
from taskfuse.tiles.work_lists import WorkList

COLOURS = ("#9ecae1", "#fdd0a2", "#c7e9c0", "#dadaeb", "#fcbba1", "#d9d9d9")
"""By turn: the first tile of every block, the second, and so on."""
OUTSIDE = "#ffffff"
GAP, HEIGHT, WIDEST = 18.0, 20.0, 960.0


@checked_first
def table(listed: WorkList) -> str:
    """A table of blocks for each problem; ``.``: no block computes the tile."""
    width = len(str(listed.blocks - 1))
    lines: list[str] = []
    for g, p in enumerate(listed.problems):
        for b, table in enumerate(listed.blocks_of(g).tolist()):
            lines.append(f"{g}: {p}{f', {b}' if p.batch > 1 else ''}")
            lines += ["  " + " ".join(f"{'.' if block < 0 else block:>{width}}" for block in row) for row in table]
    return "\n".join(lines)


@checked_first
def picture(listed: WorkList) -> str:
    """Grids of tiles side by side, each tile with its block, in the color of its turn; then the k of each block as bars."""
    cell = max(HEIGHT, text_width(str(listed.blocks - 1)) + 6)
    drawing = Drawing()
    x, y, lowest = GAP, GAP, GAP
    for g, p in enumerate(listed.problems):
        for b, table in enumerate(listed.blocks_of(g).tolist()):
            title = f"{g}: {p}" + (f", {b}" if p.batch > 1 else "")
            wide = max(len(table[0]) * cell, text_width(title))
            if x > GAP and x + wide > WIDEST:
                x, y = GAP, lowest + GAP
            drawing.text(x, y + FONT, title, bold=True)
            _grid(drawing, listed, g, b, table, (x, y + FONT + 6, cell))
            lowest = max(lowest, y + FONT + 6 + len(table) * HEIGHT)
            x += wide + GAP
            drawing.width = max(drawing.width, x)
    _bars(drawing, listed, lowest + GAP)
    return str(drawing)


def _grid(drawing: Drawing, listed: WorkList, g: int, batch: int, table: list[list[int]], at: tuple[float, float, float]) -> None:
    """The tiles of one problem."""
    x, y, cell = at
    numbers = {at[1:]: w for w, at in enumerate(listed.tiles_of(g), listed.starts[g]) if at[0] == batch}
    for i, row in enumerate(table):
        for j, block in enumerate(row):
            turn = numbers.get((i, j), -1) // listed.blocks
            note = "" if block < 0 else f"item {numbers[i, j]}: block {block}, turn {turn}, k {listed.problems[g].k}"
            fill = OUTSIDE if block < 0 else COLOURS[turn % len(COLOURS)]
            drawing.box(x + j * cell, y + i * HEIGHT, cell, HEIGHT, fill, round=0, dashed=block < 0, note=note)
            if block >= 0:
                drawing.text(x + (j + 0.5) * cell, y + i * HEIGHT + 14, str(block), anchor="middle")


def _bars(drawing: Drawing, listed: WorkList, y: float) -> None:
    """The sum of k of each block, in parts for its turns."""
    most = max(1, int(listed.depths.max()))
    drawing.width = max(drawing.width, 480.0)
    room = drawing.width - 2 * GAP
    wide = max(2.0, min(24.0, room / listed.blocks))
    title = f"k of the {listed.blocks} blocks, up to {most}: imbalance {listed.imbalance:.2f}"
    drawing.text(GAP, y + FONT, title, bold=True)
    base, tall = y + FONT + 6 + 80.0, 80.0
    for block in range(listed.blocks):
        top = base
        for turn, item in enumerate(listed.of_block(block)):
            high = tall * listed.problems[item.problem].k / most
            top -= high
            note = f"block {block}, turn {turn}: problem {item.problem}, tile {item.row}, {item.column}"
            drawing.box(GAP + block * wide, top, wide, high, COLOURS[turn % len(COLOURS)], weight=0.4, round=0, note=note)
    drawing.width = max(drawing.width, GAP * 2 + listed.blocks * wide)
    drawing.height = base + GAP
