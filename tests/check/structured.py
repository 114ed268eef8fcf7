"""Small kernels as the checker reads them."""

from __future__ import annotations

from taskfuse.check.accesses import Use, Uses
from taskfuse.check.statement_tree import Node, StatementTree
from taskfuse.check.structure import Structure
from taskfuse.kir import parse_kernel
from taskfuse.kir.nodes import Stmt

HEAD = """\
KERNEL k(x: float32[N, 64]) -> (y: float32[N, 64])
  DIM N min 1
  GRID (4, 1, 1)  BLOCK {block}
  LOCAL r: float32[4]
  SHARED s: float32[4, 64] align 16
  MBARRIER full[2], empty[2]

"""


def structure(body: str, block: str = "(64, 1, 1)", head: str = HEAD) -> Structure:
    """The structure layer of a body."""
    return Structure.of(StatementTree.of(parse_kernel(head.format(block=block) + body.strip("\n") + "\n")))


def nodes(found: Structure, *kinds: type[Stmt]) -> list[Node]:
    """The statements of some kinds, in the order of the text."""
    return [n for n in found.tree.leaves() if isinstance(n.stmt, kinds)]


def uses(found: Structure, buffer: str = "s") -> list[Use]:
    """The accesses of a buffer."""
    return [u for u in Uses(found.tree).all if u.buffer == buffer]
