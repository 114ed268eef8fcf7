"""Kernels whose loops and guards are elements of tables."""

import random

from taskfuse.errors import TaskfuseError
from taskfuse.kir.walk import looked_up
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.outcomes import is_valid
from taskfuse.testing.small.tables import OF_TYPES, THROUGH, tabled
from taskfuse.testing.small.text import Small


def drawn(number: int) -> Small | None:
    try:
        return tabled(RandomChooser(random.Random(number).getrandbits(48)))
    except TaskfuseError:
        return None


def test_most_are_kernels_that_read_tables() -> None:
    found = [small for n in range(100) if (small := drawn(n)) is not None and is_valid(small.kernel)]
    assert len(found) >= 60
    assert sum(bool(looked_up(small.kernel)) for small in found) >= len(found) * 3 // 4
    assert all(e.admits(sizes[e.name], sizes) for small in found for sizes in small.extents for e in small.kernel.extents)


def test_rows_are_told_in_every_way() -> None:
    text = "\n".join(small.kernel.text(witness=True) for n in range(200) if (small := drawn(n)) is not None)
    for part in ("reduce maximum", "reduce mul", "o: int32[G + 1]", "q: int32[G]", "ELSE:", *(f"copy.{dtype}(" for dtype in THROUGH), *OF_TYPES[2:]):
        assert part in text
