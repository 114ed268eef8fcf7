"""What the value layer lacks of a kernel's text, for all extents at once."""

from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.structure import Structure
from taskfuse.check.values.definitions import meaningless
from taskfuse.check.values.verify import right
from taskfuse.kir import parse_kernel
from taskfuse.reports.certificate import Verdict


def unproved(text: str) -> list[str]:
    """The reasons of what is not proved of values; symbolic extents leave no run that could decide it."""
    kernel = parse_kernel(text)
    kernel.check_ir()
    tree = StatementTree.of(kernel if kernel.extents else parse_kernel(text.replace("  GRID", "  DIM Unused\n  GRID", 1)))
    assert not list(meaningless(tree))
    return [o.reason for o in right(Structure.of(tree)) if o.verdict is not Verdict.PROVED]
