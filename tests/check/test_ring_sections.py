"""Accesses of rings: which are between the wait and the release of their position."""

import pytest

from taskfuse.check.access_order import AccessOrder
from taskfuse.check.accesses import Use, Uses
from taskfuse.check.ring_sections import Sections
from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.structure import Structure
from taskfuse.kir import parse_kernel
from taskfuse.reports.certificate import Verdict
from tests.sim.kernels import load, replaced


def sections(text: str) -> tuple[Sections, list[Use]]:
    """The sections of a kernel, and the uses of its tile."""
    found = Structure.of(StatementTree.of(parse_kernel(text)))
    assert all(o.verdict is Verdict.PROVED for o in (*found.barriers.obligations, *found.rings.obligations))
    all_ = Uses(found.tree)
    order = AccessOrder(found.threads, found.barriers, found.rings, found.paths)
    return Sections(found.threads, found.rings, found.paths, all_, order), [u for u in all_.all if u.buffer == "s"]


TEXT = load("ring")
RELEASE = "    ARRIVE empty[c.slot]\n"
READ = "    y[k, threadIdx.x] = add(s[c.slot, threadIdx.x], 1.0)\n"


def test_accesses_of_both_ends_are_in_a_section() -> None:
    found, (write, read) = sections(TEXT)
    one, two = found.pair(write, read)
    assert one is not None
    assert two is not None
    assert (one.end is one.ring.producer, two.end is two.ring.producer) == (True, False)
    assert found.same_slot(write, read, one, two)
    assert found.slot_axis(write) == one.axis == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (READ + RELEASE, RELEASE + READ),  # behind the release
        (READ, READ.replace("    y", "    IF threadIdx.x < 3:\n      y").replace("c.slot", "0")),  # a slot that no cursor says
    ],
)
def test_accesses_outside(old: str, new: str) -> None:
    found, (write, read) = sections(replaced(TEXT, old, new))
    assert found.section(write) is not None
    assert found.section(read) is None
